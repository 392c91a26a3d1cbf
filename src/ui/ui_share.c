/* A store that machines share, shown by its mirror: how old it is, and what is still to be brought
 * of what somebody looks at. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "show/show_html.h"
#include "show/show_text.h"
#include "sys/file.h"
#include "ui/ui_private.h"

enum {
    LATE_MS = 10000,      /* a share that hasn't answered for so long is told */
    FRESH_TICK_MS = 5000, /* pages say so often how fresh they are */
    QUIET_MS = 60000,     /* a live run without news for so long is told */
    TASKS_MAX = 100,      /* whose artifacts are brought for a run's page */
    PREVIEW_MAX = 1 << 20 /* bytes of an artifact that is brought to be shown beside others */
};

/* --- opening --- */

static int open_own(const stk_ui *ui, const char *path, ui_store *ret, stk_err *err)
{
    struct stat st;
    STK_TRY(stk_store_open(path, STK_STORE_READONLY, &ret->store, err));
    ret->name = ret->path = stk_store_path(ret->store);
    ret->is_own = !ui->options->read_only && stat(ret->path, &st) == 0 && st.st_uid == geteuid() &&
                  access(ret->path, W_OK) == 0;
    return 0;
}

int stk_ui_share_open(stk_ui *ui, const char *text, ui_store *ret, stk_err *err)
{
    if (!stk_mirror_is_share(text)) {
        return open_own(ui, text, ret, err);
    }
    STK_TRY(stk_mirror_open(text, &ret->mirror, err));
    ret->path = stk_mirror_path(ret->mirror);
    ret->name = stk_mirror_url(ret->mirror);
    STK_TRY(stk_mirror_follow(ret->mirror, err));
    return stk_store_open(ret->path, STK_STORE_READONLY | STK_STORE_MIRROR, &ret->store, err);
}

/* --- how old it is --- */

static bool is_late(const ui_request *r, const stk_mirror_state *s)
{
    return s->trouble.code == 0 && s->asked_ms > 0 && r->now_ms - s->asked_ms >= LATE_MS;
}

static void put_shown_time(stk_buf *out, const char *before, int64_t ms, const char *after)
{
    char text[64];
    if (ms > 0) {
        stk_html_put(out, "%s%s%s", before, stk_text_time(ms, false, text, sizeof text), after);
    }
}

static void put_trouble(const ui_request *r, const stk_mirror_state *s, stk_buf *out)
{
    stk_buf_text(out, "<div class=\"note\" role=\"status\">");
    if (s->trouble.code != 0) {
        stk_html_put(out, "<code>%s</code> can’t be read now: %s", r->at->name, s->trouble.text);
    } else {
        stk_html_put(out, "<code>%s</code> has been asked", r->at->name);
        put_shown_time(out, " since ", s->asked_ms, " and hasn’t answered");
    }
    if (s->fresh_ms > 0) {
        put_shown_time(out, ". What you see is from ", s->fresh_ms, ".");
    } else {
        stk_buf_text(out, ". What you see was brought earlier.");
    }
    stk_buf_text(out, "</div>\n");
}

static void put_copied(const ui_request *r, const stk_mirror_state *s, stk_buf *out)
{
    stk_html_put(out, "<p class=\"dim copied\">A copy of <code>%s</code>", r->at->name);
    put_shown_time(out, " as of ", s->fresh_ms, "");
    if (!s->is_complete) {
        stk_buf_text(out, ": it is being asked for the first time");
    } else if (s->n_runs == 0) {
        stk_buf_text(out, ": it has no runs");
    } else if (s->n_coming > 0) {
        stk_buf_printf(out, ": %u of its %u runs are here so far", s->n_here, s->n_runs);
    }
    stk_buf_text(out, ". These pages don’t change it.</p>\n");
}

void stk_ui_share_put_state(const ui_request *r, stk_buf *out)
{
    stk_mirror_state s;
    if (r->at->mirror == NULL || strcmp(r->page, "now") == 0) {
        return;
    }
    stk_mirror_get_state(r->at->mirror, &s);
    if (s.trouble.code != 0 || is_late(r, &s)) {
        put_trouble(r, &s, out);
    } else {
        put_copied(r, &s, out);
    }
    if (s.n_damaged > 0) {
        stk_buf_printf(out, "<div class=\"note\">%u run%s can’t be read: ", s.n_damaged,
                       stk_text_plural(s.n_damaged));
        stk_html_put(out, "%s</div>\n", s.damage);
    }
}

void stk_ui_share_put_version(ui_request *r)
{
    stk_mirror_state s;
    if (r->at->mirror != NULL) {
        stk_mirror_get_state(r->at->mirror, &s);
        stk_buf_printf(&r->out, "-%u-%d", s.version, is_late(r, &s));
    }
}

int64_t stk_ui_share_tick(const ui_request *r)
{
    stk_mirror_state s = {0};
    if (r->at->mirror != NULL) {
        stk_mirror_get_state(r->at->mirror, &s);
    }
    return s.fresh_ms / FRESH_TICK_MS;
}

static int take_time(void *arg, const stk_event_row *row)
{
    *(int64_t *)arg = row->time_ms;
    return 0;
}

void stk_ui_share_put_news(ui_request *r, const stk_view *view)
{
    const char *run = stk_view_get_run(view)->id;
    int64_t news_ms = 0;
    if (r->at->mirror == NULL || !stk_view_is_live(view)) {
        return;
    }
    int64_t last = stk_store_last_event(r->at->store, run);
    (void)stk_store_events(r->at->store, run, last - 1, take_time, &news_ms, NULL);
    if (news_ms > 0 && r->now_ms - news_ms >= QUIET_MS) {
        stk_buf_text(&r->out, "<p class=\"dim\">This run has no end");
        put_shown_time(&r->out, ", and no news since ", news_ms, "");
        stk_buf_text(&r->out, ". A share doesn’t tell whether the engine of a run lives.</p>\n");
    }
}

int64_t stk_ui_share_files(const ui_store *at, const char *run)
{
    char path[PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/runs/%s/share.json", at->path, run);
    if (at->mirror == NULL || stat(path, &st) < 0) {
        return 0;
    }
    return (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

/* --- what is looked at --- */

static bool is_here(const ui_request *r, const char *digest)
{
    const char *path = stk_view_artifact_path(r->arena, r->at->path, digest);
    return path == NULL || stk_file_exists(path);
}

static void want_artifact(const ui_request *r, const char *digest)
{
    if (digest != NULL && !is_here(r, digest)) {
        (void)stk_mirror_want_artifact(r->at->mirror, digest);
    }
}

static void want_outputs(const ui_request *r, const stk_view *view, uint32_t i_task)
{
    stk_view_details d;
    if (stk_view_get_details(view, i_task, r->arena, &d, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < d.n_outputs; i++) {
        const stk_view_ref *ref = &d.outputs[i];
        want_artifact(r, ref->preview);
        if (ref->preview == NULL && ref->size >= 0 && ref->size <= PREVIEW_MAX) {
            want_artifact(r, ref->digest);
        }
    }
}

void stk_ui_share_want_run(const ui_request *r, const stk_view *view)
{
    if (r->at->mirror == NULL) {
        return;
    }
    stk_mirror_look(r->at->mirror, stk_view_get_run(view)->id);
    for (uint32_t i = 0; i < MIN(stk_view_n_tasks(view), TASKS_MAX); i++) {
        if (stk_view_get_task(view, i)->ended_ms > 0) {
            want_outputs(r, view, i);
        }
    }
}

/* The key and the folder of a task's attempt here; NULL: it has none. */
static const char *attempt_of(const ui_request *r, const stk_view *view, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    if (task->attempt == 0) {
        return NULL;
    }
    return stk_arena_printf(r->arena, "runs/%s/%s/%u/%u", stk_view_get_run(view)->id, task->name,
                            task->id, task->attempt);
}

void stk_ui_share_want_task(const ui_request *r, const stk_view *view, uint32_t i_task)
{
    const char *key = NULL;
    if (r->at->mirror == NULL) {
        return;
    }
    key = attempt_of(r, view, i_task);
    if (key != NULL) {
        stk_mirror_want_attempt(r->at->mirror, key);
    }
    want_outputs(r, view, i_task);
}

bool stk_ui_share_awaits(const ui_request *r, const stk_view *view, uint32_t i_task,
                         const char **ret_why)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    *ret_why = NULL;
    if (r->at->mirror == NULL || task->attempt == 0) {
        return false;
    }
    const stk_json *granted = stk_json_get(stk_json_read(r->arena, task->start_data), "granted");
    if (stk_json_get_text(granted, "stack") == NULL) {
        *ret_why = "This step ran beside its engine: its logs and files are on that machine, and a "
                   "share has none of them.";
        return false;
    }
    const char *key = attempt_of(r, view, i_task);
    const char *dir = key == NULL ? NULL : stk_arena_printf(r->arena, "%s/%s", r->at->path, key);
    if (dir == NULL) {
        return false;
    }
    switch (stk_mirror_look_files(dir)) {
    case STK_MIRROR_HERE:
        return false;
    case STK_MIRROR_ABSENT:
        *ret_why = "The share has no log of this attempt: its pod or job was lost.";
        return false;
    default:
        *ret_why = "What it prints comes from the share every few seconds.";
        return true;
    }
}

void stk_ui_share_put_artifact(ui_request *r, const stk_view_ref *ref)
{
    static const char *const words[] = {
        [STK_MIRROR_COMING] = "Its content is being brought from",
        [STK_MIRROR_HERE] = "Its content was just brought from",
        [STK_MIRROR_ABSENT] = "It isn’t a file that can be shown, or its content isn’t in",
        [STK_MIRROR_TOO_LARGE] = "It has more than 64 MiB, so its content stays in"};
    if (r->at->mirror == NULL || ref->digest == NULL) {
        return;
    }
    want_artifact(r, ref->preview);
    if (is_here(r, ref->digest)) {
        return;
    }
    stk_mirror_found found = stk_mirror_want_artifact(r->at->mirror, ref->digest);
    stk_html_put(&r->out, "<p class=\"dim\">%s <code>%s</code>.", words[found], r->at->name);
    if (found == STK_MIRROR_ABSENT || found == STK_MIRROR_TOO_LARGE) {
        stk_html_put(&r->out, " <code>stoker share pull %s %s</code> brings what is there.",
                     r->at->name, ref->digest);
    }
    stk_buf_text(&r->out, "</p>\n");
    if (r->change.len == 0) { /* the page comes again when it is here */
        stk_buf_text(&r->change, "of=runs");
    }
}
