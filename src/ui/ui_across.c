/* Pages across runs: some side by side, a step over its runs, and the hours of devices. */
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/compare.h"
#include "show/hours.h"
#include "show/steps.h"
#include "ui/ui_private.h"

enum { STEP_RUNS = 100, DAY_MS = 86400000, DAYS = 30, DAYS_MOST = 3650 };

static const char run_url[] = "run?run="; /* what the link to a run has before its id */

static void put_head(ui_request *r, const char *title)
{
    r->title = title;
    stk_html_put(&r->out, "<header><div class=\"title\"><h1>%s</h1></div>", title);
}

/* --- compare --- */

static int add_run(const stk_run_values *all, uint32_t n_all, const char *id, stk_run_values *runs,
                   uint32_t *n, stk_err *err)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (strcmp(runs[i].row->id, id) == 0) {
            return 0;
        }
    }
    for (uint32_t i = 0; i < n_all; i++) {
        if (strcmp(all[i].row->id, id) == 0) {
            runs[(*n)++] = all[i];
            return 0;
        }
    }
    return stk_err_set(err, STK_E_NOT_FOUND, "run %s has just been removed", id);
}

/* The runs that the query names, or those that its filter leaves, newest first. */
static int choose_compared(ui_request *r, stk_run_values **ret, uint32_t *ret_n, stk_err *err)
{
    stk_run_values *all = NULL;
    uint32_t n_all = 0;
    if (stk_ui_get(r, "run") == NULL) {
        STK_TRY(stk_ui_choose_runs(r, ret, ret_n, err));
        *ret_n = MIN(*ret_n, STK_COMPARE_MOST);
    } else {
        STK_TRY(stk_ui_index_runs(r->at->index, false, r->arena, &all, &n_all, err));
        *ret = stk_arena_array(r->arena, (size_t)n_all + 1, sizeof **ret);
        STK_TRY(stk_err_if_null(*ret, err));
    }
    for (const struct evkeyval *one = r->query.tqh_first; one != NULL; one = one->next.tqe_next) {
        char id[40];
        if (strcmp(one->key, "run") == 0) {
            STK_TRY(stk_store_resolve_run(r->at->store, one->value, id, err));
            STK_TRY(add_run(all, n_all, id, *ret, ret_n, err));
        }
    }
    if (*ret_n < 2) {
        return stk_err_set(err, STK_E_USAGE, "a comparison needs two runs: mark them in the table");
    }
    return 0;
}

/* Values of many runs are read over several visits of the page. */
static void put_unread(ui_request *r, uint32_t left)
{
    char text[32];
    if (left > 0) {
        stk_buf_clear(&r->change);
        stk_buf_text(&r->change, "of=now");
        stk_buf_printf(&r->out,
                       "<p class=\"dim\">The values of %s runs are still to be read.</p>\n",
                       stk_text_count(left, text, sizeof text));
    }
}

static int put_comparison(ui_request *r, const stk_compare_ask *ask, uint32_t left, stk_err *err)
{
    STK_COMPARE_AUTO compare = NULL;
    STK_TRY(stk_compare_make(ask, &compare, err));
    put_head(r, "Runs side by side");
    stk_buf_printf(&r->out, "<div class=\"meta\">%u runs</div></header>\n", ask->n);
    put_unread(r, left);
    stk_compare_verdict(compare, &r->out);
    return stk_compare_html(compare, &r->out, err);
}

int stk_ui_page_compare(ui_request *r, stk_err *err)
{
    stk_run_values *runs = NULL;
    uint32_t n = 0, left = 0;
    stk_compare_ask ask = {.metric = stk_text_if_any(stk_ui_get(r, "best")),
                           .all = stk_ui_get(r, "all") != NULL,
                           .run_url = run_url,
                           .now_ms = r->now_ms};
    STK_TRY(choose_compared(r, &runs, &n, err));
    STK_TRY(stk_ui_index_read_some(r->at->index, runs, n, &left, err));
    stk_run_row *rows = stk_arena_array(r->arena, n, sizeof *rows);
    STK_TRY(stk_err_if_null(rows, err));
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = *runs[i].row;
    }
    ask.runs = runs;
    ask.cost = stk_ui_index_cost(r->at->index);
    int rc = stk_compare_load(r->at->store, rows, n, r->arena, &ask, err);
    if (rc == 0) {
        rc = put_comparison(r, &ask, left, err);
    }
    stk_compare_unload(&ask);
    return rc;
}

/* --- a step over its runs --- */

static void put_step_links(ui_request *r, const stk_steps_group *groups, uint32_t n)
{
    stk_html_panel_open(&r->out, "Steps");
    stk_buf_text(
        &r->out,
        "<div class=\"scroll\"><table class=\"named\"><thead><tr><th>step</th><th>pipeline</th>"
        "<th class=\"num\">tasks</th><th class=\"num\">median</th>"
        "<th class=\"num\">failed</th></tr></thead><tbody>\n");
    for (uint32_t i = 0; i < n; i++) {
        const stk_steps_group *g = &groups[i];
        const char *const pairs[] = {"step", g->step, "pipeline", g->pipeline, NULL};
        stk_buf_text(&r->out, "<tr><td><b>");
        stk_html_href(&r->out, "steps", pairs);
        stk_html_put(&r->out, "%s</a></b></td><td>%s</td>", g->step, g->pipeline);
        stk_buf_printf(&r->out, "<td class=\"num\">%u</td><td class=\"num\">", g->n);
        if (g->spreads[STK_STEPS_SECONDS].n > 0) {
            stk_html_seconds(&r->out, g->spreads[STK_STEPS_SECONDS].median);
        }
        stk_buf_printf(&r->out, "</td><td class=\"num\">%u</td></tr>\n", g->n_failed);
    }
    stk_buf_text(&r->out, "</tbody></table></div>");
    stk_html_panel_close(&r->out);
}

int stk_ui_page_steps(ui_request *r, stk_err *err)
{
    stk_steps_group *groups = NULL;
    uint32_t n = 0;
    const char *step = stk_text_if_any(stk_ui_get(r, "step"));
    const char *url = run_url;
    STK_TRY(stk_err_if_null(url, err));
    STK_TRY(stk_steps_read(r->at->store, stk_text_if_any(stk_ui_get(r, "pipeline")), step,
                           STEP_RUNS, r->arena, &groups, &n, err));
    put_head(r, "Steps over their runs");
    stk_buf_printf(&r->out, "<div class=\"meta\">the newest %d runs</div></header>\n", STEP_RUNS);
    if (n == 0) {
        stk_buf_text(&r->out, "<section class=\"panel\"><p class=\"dim\">There is no run yet."
                              "</p></section>\n");
    } else if (step == NULL) {
        put_step_links(r, groups, n);
    }
    for (uint32_t i = 0; step != NULL && i < n; i++) {
        STK_TRY(stk_steps_html(&groups[i], url, r->arena, &r->out, err));
    }
    return 0;
}

/* --- devices --- */

int stk_ui_page_devices(ui_request *r, stk_err *err)
{
    STK_HOURS_AUTO hours = NULL;
    int64_t days = MAX(stk_ui_get_whole(r, "days", DAYS, DAYS_MOST), 1);
    STK_TRY(stk_hours_new(MAX(r->now_ms - days * DAY_MS, 0), &hours, err));
    for (uint32_t i = 0; i < r->ui->n_stores; i++) {
        const ui_store *at = &r->ui->stores[i];
        stk_run_values *all = NULL;
        uint32_t n_all = 0;
        STK_TRY(stk_ui_index_runs(at->index, false, r->arena, &all, &n_all, err));
        STK_TRY(stk_hours_add(hours, at->store, stk_ui_index_cost(at->index), err));
    }
    put_head(r, "Hours of devices");
    stk_html_put(&r->out, "<form class=\"meta\" action=\"devices\"><label>the last <input "
                          "name=\"days\" id=\"days\" size=\"4\" inputmode=\"numeric\" value=\"");
    stk_buf_printf(&r->out, "%lld\"/> days</label> <button>Show</button></form></header>\n",
                   (long long)days);
    return stk_hours_html(hours, &r->out, err);
}
