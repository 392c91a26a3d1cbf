#include "show/findings.h"

#include <sys/param.h>

#include "base/json.h"

stk_check_level stk_findings_worst(const stk_findings *findings)
{
    stk_check_level worst = STK_CHECK_OK;
    for (uint32_t i = 0; i < findings->n; i++) {
        stk_check_level level = findings->items[i].level;
        worst = MAX(level, worst);
    }
    return worst;
}

void stk_findings_text(const stk_findings *findings, bool colour, stk_buf *out)
{
    static const char *const colours[STK_CHECK_N] = {"\033[32m", "\033[36m", "\033[33m",
                                                     "\033[31m"};
    for (uint32_t i = 0; i < findings->n; i++) {
        const stk_finding *f = &findings->items[i];
        const char *word = stk_check_word(f->level);
        if (colour) {
            stk_buf_printf(out, "%s%-8s\033[0m", colours[f->level], word);
        } else {
            stk_buf_printf(out, "%-8s", word);
        }
        stk_buf_printf(out, " %-10s %s\n", f->check, f->text);
        if (f->remedy != NULL) {
            stk_buf_printf(out, "%20s→ %s\n", "", f->remedy);
        }
    }
}

void stk_findings_json(const stk_findings *findings, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "version", STK_VERSION);
    stk_json_put_text(out, "worst", stk_check_word(stk_findings_worst(findings)));
    stk_json_open(out, "findings", '[');
    for (uint32_t i = 0; i < findings->n; i++) {
        const stk_finding *f = &findings->items[i];
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "level", stk_check_word(f->level));
        stk_json_put_text(out, "topic", f->check);
        stk_json_put_text(out, "subject", f->subject);
        stk_json_put_text(out, "text", f->text);
        stk_json_put_text(out, "remedy", f->remedy);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_buf_char(out, '\n');
}
