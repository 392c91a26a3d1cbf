/* A run and a task: their cards, live, with what only a server can add. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "show/show_html.h"
#include "show/show_task_card.h"
#include "sys/clock.h"
#include "ui/ui_private.h"

enum { RANKS_MAX = 1 << 20 };

int stk_ui_load_run(ui_request *r, stk_view **ret, stk_err *err)
{
    const char *text = NULL;
    char run[40];
    STK_TRY(stk_ui_need(r, "run", &text, err));
    STK_TRY(stk_store_resolve_run(r->at->store, text, run, err));
    return stk_view_load(r->at->store, run, ret, err);
}

int stk_ui_find_task(ui_request *r, const stk_view *view, uint32_t *ret, stk_err *err)
{
    const char *task = NULL;
    STK_TRY(stk_ui_need(r, "task", &task, err));
    if (!stk_view_find(view, task, ret)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "run %s has no task '%s'",
                           stk_view_get_run(view)->id, task);
    }
    return 0;
}

/* The time at which a run's page is made: a live run's own clock. */
static int64_t now_of(ui_request *r, const stk_view *view)
{
    stk_clock_anchor clock;
    const stk_view_run *run = stk_view_get_run(view);
    if (run->ended_ms == 0 && stk_store_run_clock(r->at->store, run->id, &clock, NULL) == 0) {
        return stk_clock_anchored_ms(&clock);
    }
    return r->now_ms;
}

static void watch_run(ui_request *r, const char *run)
{
    stk_buf_printf(&r->change, "of=run&run=%s", run);
}

int stk_ui_page_run(ui_request *r, stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    STK_TRY(stk_ui_load_run(r, &view, err));
    const stk_view_run *run = stk_view_get_run(view);
    r->title = stk_arena_printf(r->arena, "%s %s", run->pipeline, run->status);
    watch_run(r, run->id);
    stk_ui_share_want_run(r, view);
    stk_ui_put_said(r);
    stk_ui_share_put_news(r, view);
    stk_ui_put_actions(r, run);
    return stk_html_run_served(view, r->at->store, now_of(r, view), &r->out, err);
}

/* --- a task --- */

/* What a card class wrote stays in a frame without scripts, network and our cookie. */
static void put_frame(ui_request *r, const char *run, const char *task, const stk_task_card *card)
{
    STK_BUF_AUTO query = STK_BUF_INIT(UI_HEADERS_MAX);
    const char *const pairs[] = {"run", run, "task", task, "id", card->name};
    for (size_t i = 0; i < 6; i += 2) {
        stk_buf_printf(&query, "%s%s=", stk_text_when(i > 0, "&"), pairs[i]);
        stk_buf_percent(&query, pairs[i + 1], strlen(pairs[i + 1]), "/");
    }
    stk_html_put(&r->out,
                 "<section class=\"panel\"><h2>Report of the step: %s</h2><iframe class=\"frame\" "
                 "sandbox=\"\" title=\"report of the step\" src=\"card?%s\"></iframe></section>\n",
                 card->name, query.data);
}

static int put_cards(ui_request *r, const stk_view *view, uint32_t i_task, stk_err *err)
{
    stk_task_card *cards = NULL;
    uint32_t n = 0;
    const char *run = stk_view_get_run(view)->id, *task = stk_view_get_task(view, i_task)->label;
    STK_TRY(stk_task_cards(view, i_task, -1, r->arena, &cards, &n, err));
    if (n > 1) {
        stk_buf_text(&r->out, "<p class=\"cards\">cards:");
        for (uint32_t i = 0; i < n; i++) {
            stk_buf_char(&r->out, ' ');
            const char *const pairs[] = {"run", run, "task", task, "id", cards[i].name, NULL};
            stk_html_href(&r->out, "task", pairs);
            stk_html_put(&r->out, "%s</a>", stk_text_or(cards[i].id, cards[i].name));
        }
        stk_buf_text(&r->out, "</p>\n");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (cards[i].html != NULL) {
            put_frame(r, run, task, &cards[i]);
        }
    }
    return 0;
}

static void put_links(ui_request *r, const stk_view_run *of, const stk_view_task *task_of)
{
    const char *run = of->id, *task = task_of->label;
    static const char *const streams[] = {"stdout", "stderr"};
    stk_buf_text(&r->out, "<p class=\"cards\">logs:");
    for (size_t i = 0; i < 2; i++) {
        const char *const pairs[] = {"run", run, "task", task, "stream", streams[i], NULL};
        stk_buf_char(&r->out, ' ');
        stk_html_href(&r->out, "log", pairs);
        stk_html_put(&r->out, "%s</a>", streams[i]);
    }
    stk_buf_text(&r->out, "; ");
    stk_html_href(&r->out, "steps",
                  (const char *const[]){"step", task_of->name, "pipeline", of->pipeline, NULL});
    stk_buf_text(&r->out, "this step over its runs</a>");
    stk_buf_text(&r->out, "</p>\n");
}

int stk_ui_page_task(ui_request *r, stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    uint32_t i_task = 0;
    STK_TRY(stk_ui_load_run(r, &view, err));
    STK_TRY(stk_ui_find_task(r, view, &i_task, err));
    const char *run = stk_view_get_run(view)->id, *task = stk_view_get_task(view, i_task)->label;
    const stk_task_card_options options = {.rank = stk_ui_get_whole(r, "rank", -1, RANKS_MAX),
                                           .id = stk_text_if_any(stk_ui_get(r, "id")),
                                           .served = true};
    r->title = stk_arena_printf(r->arena, "%s of %s", task, run);
    watch_run(r, run);
    stk_ui_share_want_run(r, view);
    stk_ui_share_want_task(r, view, i_task);
    put_links(r, stk_view_get_run(view), stk_view_get_task(view, i_task));
    STK_TRY(put_cards(r, view, i_task, err));
    return stk_html_task_card(view, i_task, &options, now_of(r, view), &r->out, err);
}

int stk_ui_page_card(ui_request *r, stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    uint32_t i_task = 0;
    r->type = "text/html; charset=utf-8";
    r->csp = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
             "font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
    STK_TRY(stk_ui_load_run(r, &view, err));
    STK_TRY(stk_ui_find_task(r, view, &i_task, err));
    const stk_task_card_options options = {.rank = stk_ui_get_whole(r, "rank", -1, RANKS_MAX),
                                           .id = stk_text_if_any(stk_ui_get(r, "id"))};
    return stk_html_task_card(view, i_task, &options, now_of(r, view), &r->out, err);
}

/* --- changes --- */

/* A text that differs from the last one once the page is stale. A live run's page changes each
 * second, because times go on. */
int stk_ui_page_change(ui_request *r, stk_err *err)
{
    const char *of = stk_text_or(stk_ui_get(r, "of"), ""), *run = stk_ui_get(r, "run");
    int64_t tick = stk_ui_share_tick(r), seconds = r->now_ms / 1000;
    (void)err;
    r->type = "text/plain; charset=utf-8";
    if (strcmp(of, "run") == 0 && run != NULL) {
        if (stk_store_run_is_live(r->at->store, run)) {
            tick += seconds;
        }
        stk_buf_printf(&r->out, "%lld", (long long)stk_store_last_event(r->at->store, run));
        stk_ui_share_put_version(r);
        stk_buf_printf(&r->out, " %lld", (long long)tick);
        return 0;
    }
    if (strcmp(of, "now") == 0) {
        tick += seconds;
    } else if (stk_ui_index_is_live(r->at->index)) {
        tick += seconds / 5;
    }
    stk_buf_printf(&r->out, "%lld", (long long)stk_store_changes(r->at->store));
    stk_ui_share_put_version(r);
    stk_buf_printf(&r->out, " %lld", (long long)tick);
    return 0;
}
