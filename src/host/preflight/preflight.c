#include "host/preflight/preflight.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/preflight/preflight_private.h"

const char *stk_check_word(stk_check_level level)
{
    static const char *const words[STK_CHECK_N] = {"ok", "note", "warning", "problem"};
    return words[level];
}

static int grow(stk_findings *f)
{
    stk_finding *items = stk_arena_grow(f->arena, f->items, f->n, sizeof *items, &f->cap);
    if (items == NULL) {
        return STK_E_NOMEM;
    }
    f->items = items;
    return 0;
}

int stk_preflight_add(stk_findings *findings, stk_check_level level, const char *check,
                      const char *subject, const char *remedy, const char *fmt, ...)
{
    char text[1200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stk_finding finding = {.level = level,
                           .check = check,
                           .subject = stk_arena_dup(findings->arena, subject),
                           .text = stk_arena_dup(findings->arena, text),
                           .remedy = stk_arena_dup(findings->arena, remedy)};
    if (finding.text == NULL || (subject != NULL) != (finding.subject != NULL) ||
        (remedy != NULL) != (finding.remedy != NULL) || grow(findings) < 0) {
        return STK_E_NOMEM;
    }
    findings->items[findings->n++] = finding;
    return 0;
}
