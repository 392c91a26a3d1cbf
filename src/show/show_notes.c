/* The notes of a run in its summary. */
#include <string.h>

#include "base/text.h"
#include "show/show_private.h"
#include "show/show_text.h"

enum { NAMES = 6 };

typedef struct line_ctx {
    const stk_view *view;
    const stk_style *style;
    stk_buf *out;
    stk_err *err;
} line_ctx;

void stk_text_note(const char *text, const stk_style *style, stk_buf *out)
{
    stk_buf_text(out, "  ");
    stk_text_ink(out, style, STK_INK_WARN, "!");
    stk_buf_char(out, ' ');
    stk_text_safe(out, text, "    ");
    stk_buf_char(out, '\n');
}

/* A warning and the steps that have it. */
typedef struct warned {
    const char *text;
    uint32_t n, steps[NAMES];
} warned;

static void warned_note(const line_ctx *c, const warned *w)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    const char *comma = "";
    stk_buf_printf(&text, "step%s ", stk_text_plural(w->n));
    for (uint32_t i = 0; i < w->n && i < NAMES; i++) {
        stk_buf_printf(&text, "%s'%s'", comma, stk_view_get_task(c->view, w->steps[i])->title);
        comma = ", ";
    }
    if (w->n > NAMES) {
        stk_buf_printf(&text, " and %u more", w->n - NAMES);
    }
    stk_buf_printf(&text, ": %s", w->text);
    stk_text_note(text.failed ? w->text : text.data, c->style, c->out);
}

/* A warning that several steps share appears once. */
static int warnings(const line_ctx *c)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    uint32_t n = stk_view_n_tasks(c->view), n_all = 0, n_texts = 0;
    STK_TRY(stk_err_if_null(arena, c->err));
    stk_view_details *d = stk_arena_array(arena, (size_t)n + 1, sizeof *d);
    STK_TRY(stk_err_if_null(d, c->err));
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(stk_show_details(c->view, i, arena, &d[i], c->err));
        n_all += d[i].n_warnings;
    }
    warned *all = stk_arena_array(arena, (size_t)n_all + 1, sizeof *all);
    STK_TRY(stk_err_if_null(all, c->err));
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < d[i].n_warnings; k++) {
            uint32_t at = 0;
            while (at < n_texts && strcmp(all[at].text, d[i].warnings[k]) != 0) {
                at++;
            }
            n_texts += at == n_texts;
            all[at].text = d[i].warnings[k];
            if (all[at].n < NAMES) {
                all[at].steps[all[at].n] = i;
            }
            all[at].n++;
        }
    }
    for (uint32_t i = 0; i < n_texts; i++) {
        warned_note(c, &all[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *kept = stk_show_checkpoints(&d[i], arena);
        if (kept != NULL) {
            stk_text_note(stk_arena_printf(arena, "step '%s' has %s",
                                           stk_view_get_task(c->view, i)->title, kept),
                          c->style, c->out);
        }
    }
    return 0;
}

int stk_text_notes(const stk_view *view, const stk_style *style, uint32_t many, stk_buf *out,
                   stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(view);
    line_ctx c = {view, style, out, err};
    size_t before = out->len;
    stk_buf_char(out, '\n');
    for (uint32_t i = 0; i < run->n_notes; i++) {
        stk_text_note(run->notes[i], style, out);
    }
    int rc = 0;
    if (stk_view_n_tasks(view) <= many) {
        rc = warnings(&c);
    }
    if (out->len == before + 1) {
        out->data[--out->len] = '\0'; /* no notes, no empty line */
    }
    return rc;
}
