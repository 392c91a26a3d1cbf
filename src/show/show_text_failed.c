/* What failed in a run, the root cause first, and what to do next. */
#include <string.h>

#include "base/text.h"
#include "show/show_text_private.h"

static void put_block(const line_ctx *c, const char *text)
{
    const char *bar = c->style->utf8 ? "    │ " : "    | ";
    STK_BUF_AUTO block = STK_BUF_INIT(1u << 20);
    stk_buf_text(&block, bar);
    stk_text_safe(&block, text, bar);
    stk_text_ink(c->out, c->style, STK_INK_DIM, block.data);
    stk_buf_char(c->out, '\n');
}

/* The last lines of a long traceback: they say most. */
static const char *last_lines(const char *text, int n_lines)
{
    const char *end = text + strlen(text);
    while (end > text && n_lines > 0) {
        end--;
        n_lines -= *end == '\n' && end[1] != '\0';
    }
    return *end == '\n' ? end + 1 : end;
}

int stk_text_put_failure(const line_ctx *c, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(c->view, i_task);
    stk_view_details d;
    STK_TRY(stk_show_details(c->view, i_task, c->arena, &d, c->err));
    stk_buf_char(c->out, '\n');
    stk_text_put_mark(c, "failed");
    stk_buf_char(c->out, ' ');
    STK_BUF_AUTO line = STK_BUF_INIT(1u << 16);
    stk_text_safe(&line, stk_view_who(c->view, i_task, c->arena), "");
    stk_buf_text(&line, " failed: ");
    stk_text_safe(&line, stk_text_or(d.error_text, "?"), "    ");
    if (task->attempt > 1) {
        stk_buf_printf(&line, " after %u attempts", task->attempt);
    }
    stk_text_ink(c->out, c->style, STK_INK_BOLD, line.data);
    int used = 2 + stk_text_width(line.data);
    if (d.error_class != NULL) {
        stk_buf_printf(c->out, " [%s]", d.error_class);
        used += 3 + (int)strlen(d.error_class);
    }
    STK_BUF_AUTO more = STK_BUF_INIT(1u << 16);
    if (d.where != NULL) {
        stk_buf_text(&more, "at ");
        stk_text_safe(&more, d.where, "");
    }
    if (d.stderr_path != NULL) {
        stk_buf_separate(&more, ", ");
        stk_buf_printf(&more, "stderr: %s", stk_text_path(c->style, d.stderr_path));
    }
    if (more.len > 0) {
        bool fits = used + 3 + (int)more.len <= c->style->columns;
        stk_buf_printf(c->out, fits ? " (%s)" : "\n    (%s)", more.data);
    }
    stk_buf_char(c->out, '\n');
    STK_BUF_AUTO tail = STK_BUF_INIT(1u << 16);
    if (d.traceback != NULL) {
        put_block(c, last_lines(d.traceback, 2 * TAIL));
    } else if (d.stderr_path != NULL) {
        stk_text_tail(&tail, d.stderr_path, TAIL);
        if (tail.len > 0) {
            put_block(c, tail.data);
        }
    }
    return 0;
}

/* "  12 steps skipped because of 'train': evaluate, report, …" */
static void skipped_line(const line_ctx *c, const uint32_t *roots, uint32_t root)
{
    STK_BUF_AUTO names = STK_BUF_INIT(1u << 16);
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(c->view); i++) {
        const stk_view_task *task = stk_view_get_task(c->view, i);
        if (task->state != STK_TASK_SKIPPED || roots[i] != root) {
            continue;
        }
        if (n++ < NAMES) {
            stk_buf_separate(&names, ", ");
            stk_text_safe(&names, task->title, "");
        }
    }
    if (n > 0) {
        char count[32];
        const char *cause = "what it needs";
        if (root != UINT32_MAX) {
            cause = stk_view_get_task(c->view, root)->title;
        }
        if (n > NAMES) {
            stk_buf_text(&names, ", …");
        }
        stk_buf_printf(c->out, "  %s %s step%s skipped because of '%s': %s\n",
                       stk_text_dash(c->style->utf8), stk_text_count(n, count, sizeof count),
                       stk_text_plural(n), cause, names.data);
    }
}

static int64_t failed_at(const stk_view *view, uint32_t i_task)
{
    return stk_view_get_task(view, i_task)->ended_ms;
}

/* Failed tasks; those to show come first, in the order in which they failed: the first is most
 * likely the cause. */
static uint32_t *failed_tasks(const line_ctx *c, stk_arena *keep, uint32_t *ret_n)
{
    uint32_t n = stk_view_n_tasks(c->view), n_failed = 0;
    uint32_t *list = stk_arena_array(keep, (size_t)n + 1, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        if (stk_view_get_task(c->view, i)->state == STK_TASK_FAILED) {
            list[n_failed++] = i;
        }
    }
    /* Sorting all of them would be wasted: only the first FAILURES are shown. */
    for (uint32_t k = 0; k < n_failed && k < FAILURES; k++) {
        uint32_t best = k;
        for (uint32_t i = k + 1; i < n_failed; i++) {
            if (failed_at(c->view, list[i]) < failed_at(c->view, list[best])) {
                best = i;
            }
        }
        uint32_t first = list[best];
        memmove(list + k + 1, list + k, (best - k) * sizeof *list);
        list[k] = first;
    }
    *ret_n = n_failed;
    return list;
}

static int put_failed_tasks(const line_ctx *c)
{
    const stk_view_run *run = stk_view_get_run(c->view);
    if (run->n[STK_TASK_FAILED] + run->n[STK_TASK_SKIPPED] + run->n[STK_TASK_CANCELLED] == 0) {
        return 0;
    }
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t *roots = NULL, n_failed = 0;
    STK_TRY(stk_err_if_null(keep, c->err));
    STK_TRY(stk_view_roots(c->view, keep, &roots, c->err));
    uint32_t *failed = failed_tasks(c, keep, &n_failed);
    STK_TRY(stk_err_if_null(failed, c->err));
    for (uint32_t i = 0; i < n_failed && i < FAILURES; i++) {
        STK_TRY(stk_text_put_failure(c, failed[i]));
        skipped_line(c, roots, failed[i]);
        stk_arena_reset(c->arena);
    }
    char count[32];
    if (n_failed > FAILURES) {
        stk_buf_printf(c->out, "\n  … and %s more failed; stoker show %s --json lists all\n",
                       stk_text_count(n_failed - FAILURES, count, sizeof count), run->id);
    }
    if (run->n[STK_TASK_CANCELLED] > 0) {
        stk_buf_char(c->out, '\n');
        stk_text_put_mark(c, "cancelled");
        stk_buf_printf(c->out, " %s %s%s cancelled\n",
                       stk_text_count(run->n[STK_TASK_CANCELLED], count, sizeof count),
                       stk_show_noun(c->view), run->n[STK_TASK_CANCELLED] == 1 ? " was" : "s were");
    }
    return 0;
}

static void next_line(const line_ctx *c)
{
    const stk_view_run *run = stk_view_get_run(c->view);
    const char *status = run->status;
    if (run->taker != NULL) {
        stk_buf_text(c->out, "\n  its engine here has ended, and ");
        stk_text_safe(c->out, run->taker, "  ");
        stk_buf_printf(
            c->out, " has taken the run over: 'stoker show %s --stack %s' shows how it goes on\n",
            run->id, run->taker_stack);
    } else if (strcmp(status, "interrupted") == 0 && run->started_ms <= 0) {
        stk_buf_text(c->out, "\n  its engine ended before it recorded anything of the run: start "
                             "it again with 'stoker run'\n");
    } else if (strcmp(status, "interrupted") == 0) {
        stk_buf_printf(c->out, "\n  its engine has ended: 'stoker resume %s' continues the run\n",
                       run->id);
    } else if (strcmp(status, "failed") == 0 && run->error != NULL &&
               run->n[STK_TASK_FAILED] == 0) {
        stk_buf_text(c->out, "\n  ");
        stk_text_safe(c->out, run->error, "  ");
        stk_buf_char(c->out, '\n');
    }
}

int stk_text_put_failures(const line_ctx *c)
{
    STK_TRY(put_failed_tasks(c));
    next_line(c);
    return 0;
}

void stk_text_put_next(const line_ctx *c, stk_store *store)
{
    const stk_view_run *run = stk_view_get_run(c->view);
    uint32_t first = UINT32_MAX;
    for (uint32_t i = 0; run->n[STK_TASK_FAILED] > 0 && i < stk_view_n_tasks(c->view); i++) {
        bool has_failed = stk_view_get_task(c->view, i)->state == STK_TASK_FAILED;
        if (has_failed &&
            (first == UINT32_MAX || failed_at(c->view, i) < failed_at(c->view, first))) {
            first = i;
        }
    }
    if (strcmp(run->status, "failed") != 0 || first == UINT32_MAX) {
        return;
    }
    char latest[40] = "";
    bool is_latest = store != NULL && stk_store_resolve_run(store, "latest", latest, NULL) == 0 &&
                     strcmp(latest, run->id) == 0;
    const char *step = stk_view_get_task(c->view, first)->label;
    stk_text_put_label(c, "next");
    if (is_latest) {
        stk_buf_printf(c->out, "stoker logs %s%sstoker why %s", step, dot(c->style), step);
    } else {
        stk_buf_printf(c->out, "stoker logs %s/%s", run->id, step);
    }
    stk_buf_printf(c->out, "%sstoker resume %s\n", dot(c->style), run->id);
}

int stk_text_failures(const stk_view *view, stk_store *store, const stk_style *style, stk_buf *out,
                      stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    line_ctx c = {view, style, arena, 0, out, err};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_text_put_failures(&c));
    stk_text_put_next(&c, store);
    return 0;
}
