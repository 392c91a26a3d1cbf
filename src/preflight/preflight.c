#include "preflight/preflight.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "preflight/preflight_private.h"

const char *stk_check_word(stk_check_level level)
{
    static const char *const words[STK_CHECK_N] = {"ok", "note", "warning", "problem"};
    return words[level];
}

static int grow(stk_findings *f)
{
    if (f->n < f->cap) {
        return 0;
    }
    uint32_t cap = f->cap == 0 ? 32 : f->cap * 2;
    stk_finding *bigger = stk_arena_array(f->arena, cap, sizeof *bigger);
    if (bigger == NULL) {
        return STK_E_NOMEM;
    }
    if (f->n > 0) {
        memcpy(bigger, f->items, f->n * sizeof *bigger);
    }
    f->items = bigger;
    f->cap = cap;
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
