#include "host/preflight/preflight.h"

#include <stdarg.h>
#include <stdio.h>

#include "host/preflight/preflight_private.h"

const char *stk_check_word(stk_check_level level)
{
    static const char *const words[STK_CHECK_N] = {"ok", "note", "warning", "problem"};
    return words[level];
}

int stk_preflight_add(stk_findings *findings, stk_check_level level, const char *check,
                      const char *subject, const char *remedy, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stk_finding *items = stk_arena_grow(findings->arena, findings->items, findings->n,
                                        sizeof *items, &findings->cap);
    stk_finding finding = {.level = level,
                           .check = check,
                           .subject = stk_arena_dup(findings->arena, subject),
                           .text = stk_arena_dup(findings->arena, text),
                           .remedy = stk_arena_dup(findings->arena, remedy)};
    if (items == NULL || finding.text == NULL || (subject != NULL) != (finding.subject != NULL) ||
        (remedy != NULL) != (finding.remedy != NULL)) {
        return STK_E_NOMEM;
    }
    findings->items = items;
    findings->items[findings->n++] = finding;
    return 0;
}
