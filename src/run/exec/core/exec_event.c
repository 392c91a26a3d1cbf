/* Events on their way to the store: the scheduler takes each at once, a flush commits them
 * together. */
#include "run/exec/core/exec_event.h"

#include <stdlib.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_loop.h"

enum { EVENTS_AT_ONCE = 8192 };

/* Makes room for one more element in a malloc'd array. */
static int make_room(void **array, uint32_t n, uint32_t *cap, size_t size, stk_err *err)
{
    if (n < *cap) {
        return 0;
    }
    uint32_t bigger = MAX(64, *cap * 2);
    void *p = realloc(*array, (size_t)bigger * size);
    STK_TRY(stk_err_if_null(p, err));
    *array = p;
    *cap = bigger;
    return 0;
}

static int queue(stk_exec *x, stk_event_kind kind, uint32_t task, uint32_t attempt,
                 const stk_buf *data, stk_err *err)
{
    exec_pending *p = &x->pending;
    const char *text = NULL;
    if (data != NULL) {
        text = stk_buf_keep(data, x->tick);
        STK_TRY(stk_err_if_null(text, err));
    }
    STK_TRY(make_room((void **)&p->events, p->n_events, &p->cap_events, sizeof *p->events, err));
    p->events[p->n_events++] = (stk_event_row){.time_ms = stk_clock_wall_ms(x->config.clock),
                                               .kind = kind,
                                               .task = task,
                                               .attempt = attempt,
                                               .data = text};
    return 0;
}

int stk_exec_emit(stk_exec *x, const stk_sched_event *event, const stk_buf *data, stk_err *err)
{
    int rc = stk_sched_fold(x->sched, event, err);
    if (rc < 0 || event->kind >= STK_EV_N) {
        return rc;
    }
    stk_event_kind kind = (stk_event_kind)event->kind;
    if (event->kind == STK_EV_RUN_CANCELLING || event->kind == STK_EV_RUN_ENDED) {
        STK_TRY(stk_exec_emit_plain(x, kind, data, err));
    } else {
        STK_TRY(queue(x, kind, event->task, stk_exec_attempt(x, event->task), data, err));
    }
    if (x->pending.n_events >= EVENTS_AT_ONCE && !x->is_held) {
        return stk_exec_flush(x, err);
    }
    return 0;
}

int stk_exec_emit_task(stk_exec *x, int kind, uint32_t task, const stk_buf *data, stk_err *err)
{
    return stk_exec_emit(x, &(stk_sched_event){.kind = kind, .task = task}, data, err);
}

int stk_exec_emit_plain(stk_exec *x, stk_event_kind kind, const stk_buf *data, stk_err *err)
{
    return queue(x, kind, UINT32_MAX, 0, data, err);
}

int stk_exec_emit_note(stk_exec *x, const char *text, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    STK_TRY(stk_err_if_null(text, err));
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "text", text);
    stk_json_close(&buf, '}');
    return stk_exec_emit_plain(x, STK_EV_NOTE, &buf, err);
}

int stk_exec_emit_word(stk_exec *x, const stk_report *report, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    bool is_known = report->id < x->n_tasks && (report->why_at > 0 || report->waits_no_more);
    if (!is_known) {
        return stk_exec_emit_note(x, report->text, err);
    }
    stk_json_open(&buf, NULL, '{');
    stk_json_put_known_text(&buf, "text", stk_text_if_any(report->text));
    stk_json_put_text(&buf, "waits", report->text + report->why_at);
    stk_json_close(&buf, '}');
    return queue(x, STK_EV_NOTE, report->id, report->attempt, &buf, err);
}

int stk_exec_push_cache(stk_exec *x, const stk_cache_row *row, stk_err *err)
{
    exec_pending *p = &x->pending;
    STK_TRY(make_room((void **)&p->cache, p->n_cache, &p->cap_cache, sizeof *p->cache, err));
    p->cache[p->n_cache++] = *row;
    return 0;
}

int stk_exec_push_ref(stk_exec *x, const stk_ref_row *row, stk_err *err)
{
    exec_pending *p = &x->pending;
    STK_TRY(make_room((void **)&p->refs, p->n_refs, &p->cap_refs, sizeof *p->refs, err));
    p->refs[p->n_refs++] = *row;
    return 0;
}

int stk_exec_push_launch(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_pending *p = &x->pending;
    STK_TRY(make_room((void **)&p->launches, p->n_launches, &p->cap_launches, sizeof *p->launches,
                      err));
    p->launches[p->n_launches++] = task;
    return 0;
}

int stk_exec_flush(stk_exec *x, stk_err *err)
{
    if (x->pending.n_events == 0) {
        return 0;
    }
    stk_commit commit = {.events = x->pending.events,
                         .n_events = x->pending.n_events,
                         .cache = x->pending.cache,
                         .n_cache = x->pending.n_cache,
                         .refs = x->pending.refs,
                         .n_refs = x->pending.n_refs};
    STK_TRY(stk_store_commit(x->config.store, x->config.run, &commit, err));
    for (uint32_t i = 0; i < x->pending.n_events; i++) {
        if (x->pending.events[i].kind == STK_EV_TASK_SUCCEEDED) {
            stk_exec_checkpoints_drop(x, x->pending.events[i].task);
        }
        if (x->config.on_event != NULL) {
            x->config.on_event(x->config.arg, &x->pending.events[i]);
        }
    }
    x->pending.n_events = x->pending.n_cache = x->pending.n_refs = 0;
    stk_arena_reset(x->tick);
    return 0;
}
