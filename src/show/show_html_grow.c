/* The card's tables of a growing run: steps with their tasks counted, similar artifacts as one. */
#include <string.h>
#include <sys/param.h>

#include "base/map.h"
#include "base/units.h"
#include "show/show_html_private.h"
#include "show/show_text.h"

enum { MAX_LISTED = 100 /* tasks per step */ };

static const char *name_of(const page *p, uint32_t i_step)
{
    return stk_spec_step(stk_view_spec(p->view), i_step)->name;
}

static void wide_row(const page *p, uint32_t i_step, const stk_view_sums *sums)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    stk_buf *out = p->out;
    char text[64];
    STK_BUF_AUTO counts = STK_BUF_INIT(4096);
    int64_t end = step->ended_ms;
    if (step->by_state[STK_TASK_RUNNING] + step->by_state[STK_TASK_BACKOFF] > 0) {
        end = p->now_ms;
    }
    stk_html_put(out, "<tr><td><b>%s</b> <span class=\"dim\">×%s</span></td><td>",
                 name_of(p, i_step), stk_text_count(step->n, text, sizeof text));
    stk_html_status(out, stk_state_word(stk_view_worst(step)));
    stk_buf_text(out, "</td><td class=\"num\">");
    if (step->started_ms > 0 && end >= step->started_ms) {
        stk_html_seconds(out, (double)(end - step->started_ms) / 1000);
    } else {
        stk_buf_text(out, "–");
    }
    stk_buf_text(out, "</td><td></td><td></td><td>");
    if (sums->cpu_s >= 0) {
        stk_html_seconds(out, sums->cpu_s);
        stk_buf_text(out, " of CPU time");
    }
    if (sums->peak_memory_bytes >= 0) {
        stk_buf_printf(out, ", at most %s each",
                       stk_units_format_memory(sums->peak_memory_bytes, text, sizeof text));
    }
    stk_show_counts(step, &counts);
    stk_buf_text(out, "</td>");
    stk_html_cell(out, "dim", counts.data);
    stk_buf_text(out, "</tr>\n");
}

static void unreached_row(const page *p, uint32_t i_step)
{
    stk_html_put(p->out,
                 "<tr><td class=\"dim\">%s</td><td class=\"dim\">not reached</td><td></td><td></td>"
                 "<td></td><td></td><td></td></tr>\n",
                 name_of(p, i_step));
}

static int task_row(const page *p, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(p->view, i_task);
    stk_view_details d;
    STK_TRY(stk_html_details(p, i_task, &d));
    stk_buf_text(p->out, "<tr>");
    stk_html_cell(p->out, NULL, stk_view_who(p->view, i_task, p->arena));
    stk_buf_text(p->out, "<td>");
    stk_html_status(p->out, stk_view_status(p->view, task, true));
    stk_buf_text(p->out, "</td><td class=\"num\">");
    if (task->started_ms > 0) {
        stk_html_took(p, task);
    }
    stk_buf_text(p->out, "</td>");
    const char *about = "";
    if (task->state == STK_TASK_FAILED) {
        about = d.error_text;
    } else if (d.cached_from != NULL) {
        about = stk_arena_printf(p->arena, "from run %s", d.cached_from);
    }
    stk_html_cell(p->out, "dim", about);
    stk_buf_text(p->out, "</tr>\n");
    return 0;
}

/* The tasks of one step in a folded list, failed ones first. */
static int tasks_of(const page *p, uint32_t i_step)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    uint32_t shown = 0;
    int rc = 0;
    char text[32];
    stk_html_put(p->out,
                 "<details><summary>tasks of <b>%s</b></summary><div class=\"scroll tall\"><table>"
                 "<tbody>\n",
                 name_of(p, i_step));
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = step->first; rc == 0 && i < stk_view_n_tasks(p->view); i++) {
            const stk_view_task *task = stk_view_get_task(p->view, i);
            bool failed = task->state == STK_TASK_FAILED;
            if (task->i_step == i_step && failed == (pass == 0) && shown < MAX_LISTED) {
                rc = task_row(p, i);
                shown++;
            }
        }
    }
    stk_buf_text(p->out, "</tbody></table></div>");
    if (step->n > shown) {
        stk_html_put(p->out, "<p class=\"meta\">and %s more: <code>stoker show %s/%s</code></p>",
                     stk_text_count(step->n - shown, text, sizeof text), p->run->id,
                     name_of(p, i_step));
    }
    stk_buf_text(p->out, "</details>\n");
    return rc;
}

int stk_html_grown_steps(const page *p)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    stk_view_sums *sums = NULL;
    uint32_t n = stk_spec_n_steps(stk_view_spec(p->view)), shown = MIN(n, MAX_ROWS);
    STK_TRY(stk_err_if_null(keep, p->err));
    STK_TRY(stk_view_sum_steps(p->view, keep, &sums, p->err));
    for (uint32_t i = 0; i < shown; i++) {
        const stk_view_step *step = stk_view_get_step(p->view, i);
        if (step->n == 1) {
            STK_TRY(stk_html_step_row(p, step->first));
        } else if (step->n == 0) {
            unreached_row(p, i);
        } else {
            wide_row(p, i, &sums[i]);
        }
    }
    stk_buf_text(p->out, "</tbody></table></div>");
    stk_html_more(p, n, shown, "steps");
    for (uint32_t i = 0; i < shown; i++) {
        if (stk_view_get_step(p->view, i)->n > 1) {
            STK_TRY(tasks_of(p, i));
        }
    }
    return 0;
}

/* --- artifacts --- */

/* The artifacts of one name that the tasks of a step made. */
typedef struct made {
    uint32_t i_step, n;
    int64_t bytes; /* sum of the known sizes; -1: none is known */
    stk_view_ref first;
} made;

static int add_made(const page *p, uint32_t i_step, const char *name, const stk_json *ref,
                    stk_map *known, made *all, uint32_t *n, stk_arena *keep)
{
    const char *key = stk_arena_printf(keep, "%u %s", i_step, name);
    uint64_t at = 0;
    STK_TRY(stk_err_if_null(key, p->err));
    if (!stk_map_get(known, key, &at)) {
        if (*n == MAX_ARTIFACTS) {
            return 0;
        }
        at = (*n)++;
        all[at] = (made){.i_step = i_step,
                         .bytes = -1,
                         .first = {.name = stk_arena_dup(keep, name),
                                   .digest = stk_arena_dup(keep, stk_json_get_text(ref, "digest")),
                                   .format = stk_arena_dup(keep, stk_json_get_text(ref, "format")),
                                   .type = stk_arena_dup(keep, stk_json_get_text(ref, "type")),
                                   .size = stk_json_get_whole(ref, "size", -1)}};
        if (all[at].first.name == NULL || stk_map_put(known, key, at) < 0) {
            return stk_err_nomem(p->err);
        }
    }
    int64_t size = stk_json_get_whole(ref, "size", -1);
    all[at].n++;
    if (size >= 0) {
        all[at].bytes = size + MAX(all[at].bytes, 0);
    }
    return 0;
}

static int find_made(const page *p, made *all, uint32_t *ret_n, stk_arena *keep)
{
    STK_MAP_AUTO known = {0};
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view); i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *end = stk_json_read(scratch, task->end_data);
        for (uint32_t k = 0; k < stk_json_n_members(stk_json_get(end, "outputs")); k++) {
            const char *name = stk_json_key(stk_json_get(end, "outputs"), k)->text;
            const stk_json *ref = stk_json_value(stk_json_get(end, "outputs"), k);
            STK_TRY(add_made(p, task->i_step, name, ref, &known, all, ret_n, keep));
        }
    }
    return 0;
}

int stk_html_grown_artifacts(const page *p)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    uint32_t n = 0;
    char text[32];
    STK_TRY(stk_err_if_null(keep, p->err));
    made *all = stk_arena_array(keep, MAX_ARTIFACTS, sizeof *all);
    STK_TRY(stk_err_if_null(all, p->err));
    STK_TRY(find_made(p, all, &n, keep));
    if (n > 0) {
        stk_html_artifacts_open(p->out);
    }
    for (uint32_t i = 0; i < n; i++) {
        const made *one = &all[i];
        if (one->n == 1) {
            stk_html_artifact_row(p->out, name_of(p, one->i_step), &one->first);
            continue;
        }
        stk_html_put(p->out, "<tr><td><b>%s.%s</b> <span class=\"dim\">×%s</span></td>",
                     name_of(p, one->i_step), one->first.name,
                     stk_text_count(one->n, text, sizeof text));
        stk_html_cell(p->out, NULL, one->first.type);
        stk_html_cell(p->out, NULL, one->first.format);
        stk_html_cell_size(p->out, one->bytes);
        stk_buf_text(p->out, "<td class=\"dim\">one a task</td></tr>\n");
    }
    if (n > 0) {
        stk_buf_text(p->out, "</tbody></table></div></section>\n");
    }
    return 0;
}
