/* One run: its events, then the files of its attempts that have ended, and what those that run have
 * measured and printed. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "away/mirror/mirror_private.h"
#include "away/remote/remote_live.h"
#include "away/remote/remote_log.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "store/view/view.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { LIVE_TASKS = 1000 };

/* What is looked at of one run. */
typedef struct looking {
    stk_mirror *m;
    const stk_view *view;
    stk_arena *arena;   /* of the look */
    stk_arena *scratch; /* of one attempt */
    stk_live_task *live;
    uint32_t n_live;
    bool is_whole;  /* nothing is left to be brought */
    bool has_files; /* some were brought */
    stk_err damage; /* code ≠ 0: some can't be */
} looking;

/* Whether the attempt ran where its engine isn't: the share then has its files. */
static bool is_elsewhere(looking *l, const char *start_data)
{
    stk_arena_reset(l->scratch);
    const stk_json *granted = stk_json_get(stk_json_read(l->scratch, start_data), "granted");
    return stk_json_get_text(granted, "stack") != NULL;
}

static const char *key_of(const looking *l, const stk_view_task *task, uint32_t attempt)
{
    return stk_arena_printf(l->arena, "runs/%s/%s/%u/%u", stk_view_get_run(l->view)->id, task->name,
                            task->id, attempt);
}

/* In an attempt's folder: what is brought unasked is here; the share has no end of it. */
#define SMALL ".small"
#define NONE ".none"

static int note_files(const char *dir, const char *name, stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_join(dir, name);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_store_make_attempt(dir, err));
    return stk_file_write(path, "", 0, 0644, err);
}

static bool has_note(const char *dir, const char *name)
{
    STK_TEXT_AUTO path = stk_file_join(dir, name);
    return path != NULL && stk_file_exists(path);
}

stk_mirror_found stk_mirror_look_files(const char *dir)
{
    if (stk_remote_log_has_attempt(dir)) {
        return STK_MIRROR_HERE;
    }
    if (has_note(dir, NONE)) {
        return STK_MIRROR_ABSENT;
    }
    return has_note(dir, SMALL) ? STK_MIRROR_TOO_LARGE : STK_MIRROR_COMING;
}

static int bring_ended(looking *l, const stk_view_task *task, uint32_t attempt, stk_err *err)
{
    bool left = false;
    const char *key = key_of(l, task, attempt);
    STK_TRY(stk_err_if_null(key, err));
    const char *dir = stk_arena_printf(l->arena, "%s/%s", l->m->path, key);
    STK_TRY(stk_err_if_null(dir, err));
    int64_t most = stk_mirror_is_wanted(l->m, key) ? INT64_MAX : l->m->most;
    stk_mirror_found found = stk_mirror_look_files(dir);
    if (found == STK_MIRROR_HERE || (found != STK_MIRROR_COMING && most == MIRROR_SMALL)) {
        return 0;
    }
    if (stk_mirror_now_ms() >= l->m->end_ms) {
        l->m->has_more = true;
        l->is_whole = false;
        return 0;
    }
    int64_t nodes = MAX(MAX(task->step->settings->gang.nodes, task->ranks), 1);
    nodes = MIN(nodes, STK_LIMIT_RANKS);
    int rc = stk_remote_log_fetch_attempt(l->m->share, key, dir, (uint32_t)nodes, most, &left, err);
    if (rc == STK_E_NOT_FOUND) { /* its pod or job was lost */
        return note_files(dir, NONE, err);
    }
    STK_TRY(rc);
    l->has_files = true;
    if (!left) {
        return 0;
    }
    return note_files(dir, SMALL, err);
}

static int note_live(looking *l, const stk_view_task *task, stk_err *err)
{
    const char *key = key_of(l, task, task->attempt);
    STK_TRY(stk_err_if_null(key, err));
    const char *dir = stk_arena_printf(l->arena, "%s/%s", l->m->path, key);
    STK_TRY(stk_err_if_null(dir, err));
    l->is_whole = false;
    if (l->n_live == LIVE_TASKS) {
        return 0;
    }
    bool wants_logs = l->m->most == INT64_MAX || stk_mirror_is_wanted(l->m, key);
    l->live[l->n_live++] = (stk_live_task){.key = key, .dir = dir, .wants_logs = wants_logs};
    return stk_store_make_attempt(dir, err);
}

/* What can't be read or kept of one attempt hides none of the others. */
static int take_damage(looking *l, int rc, const stk_err *why, stk_err *err)
{
    if (rc < 0 && stk_remote_log_is_damage(why)) {
        l->damage = *why;
        return 0;
    }
    if (rc < 0) {
        *err = *why;
    }
    return rc;
}

static int look_at_attempt(looking *l, const stk_view_task *task, uint32_t attempt, bool is_running,
                           stk_err *err)
{
    stk_err why = {0};
    int rc = is_running ? note_live(l, task, &why) : bring_ended(l, task, attempt, &why);
    return take_damage(l, rc, &why, err);
}

static int look_at_task(looking *l, const stk_view_task *task, stk_err *err)
{
    for (const stk_view_attempt *a = task->earlier; a != NULL; a = a->before) {
        if (is_elsewhere(l, a->start_data)) {
            STK_TRY(look_at_attempt(l, task, a->number, false, err));
        }
    }
    if (task->attempt == 0 || !is_elsewhere(l, task->start_data)) {
        return 0;
    }
    return look_at_attempt(l, task, task->attempt, task->state == STK_TASK_RUNNING, err);
}

static int look_at_tasks(looking *l, stk_err *err)
{
    l->live = stk_arena_array(l->arena, LIVE_TASKS, sizeof *l->live);
    STK_TRY(stk_err_if_null(l->live, err));
    for (uint32_t i = 0; i < stk_view_n_tasks(l->view); i++) {
        STK_TRY(look_at_task(l, stk_view_get_task(l->view, i), err));
    }
    stk_err why = {0};
    return take_damage(l, stk_live_fetch(l->m->share, l->live, l->n_live, &why), &why, err);
}

/* Has readers see that files came, which the database doesn't tell: what they know of the run is as
 * old as its share.json, and a record makes them look. */
static int tell_files(stk_mirror *m, const mirror_run *run, stk_err *err)
{
    const stk_record record = {.kind = "mirror",
                               .name = run->id,
                               .body = "{}",
                               .updated_ms = stk_clock_wall_ms(&stk_clock_real)};
    int64_t revision = 0;
    STK_TEXT_AUTO path = stk_file_printf("%s/runs/%s/share.json", m->path, run->id);
    STK_TRY(stk_err_if_null(path, err));
    (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
    pthread_mutex_lock(&m->lock);
    m->state.version++;
    pthread_mutex_unlock(&m->lock);
    return stk_store_put_record(m->store, &record, STK_RECORD_ANY, &revision, err);
}

static void set_damage(mirror_run *run, const char *what, const stk_err *why)
{
    char text[1400];
    free(run->damage);
    run->damage = NULL;
    if (why->code != 0) {
        run->damage = stk_file_printf("%srun %s: %s", what, run->id,
                                      stk_err_format(why, text, (int)sizeof text));
    }
}

static int bring_files(stk_mirror *m, mirror_run *run, stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_err_if_null(scratch, err));
    STK_TRY(stk_view_load(m->store, run->id, &view, err));
    looking l = {.m = m, .view = view, .arena = arena, .scratch = scratch, .is_whole = true};
    STK_TRY(look_at_tasks(&l, err));
    set_damage(run, "an attempt of ", &l.damage);
    run->is_ended = l.is_whole && !stk_view_is_live(view);
    if (!l.has_files) {
        return 0;
    }
    return tell_files(m, run, err);
}

static int bring_events(stk_mirror *m, mirror_run *run, bool checks_gap, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_remote_run about = {.id = run->id};
    STK_TRY(stk_err_if_null(arena, err));
    if (!run->is_here) {
        STK_TRY(stk_remote_run_read(m->share, run->id, arena, &about, err));
    }
    STK_TRY(stk_remote_log_fetch_known(m->share, &about, m->store, false,
                                       checks_gap || !run->is_here, err));
    run->is_here = true;
    return 0;
}

static int bring_whole(stk_mirror *m, mirror_run *run, bool checks_gap, stk_err *err)
{
    STK_TRY(bring_events(m, run, checks_gap, err));
    int64_t last = stk_store_last_event(m->store, run->id);
    if (m->most == 0 || (run->is_ended && last == run->event && !run->is_damaged)) {
        return 0;
    }
    STK_TRY(bring_files(m, run, err));
    run->event = last;
    return 0;
}

int stk_mirror_drop_run(stk_mirror *m, const char *id, stk_err *err)
{
    const char *const only[] = {id};
    stk_gc gc = {.only = only, .n_only = 1};
    return stk_err_but(stk_store_gc(m->store, &gc, stk_clock_wall_ms(&stk_clock_real), err),
                       STK_E_NOT_FOUND);
}

int stk_mirror_bring_run(stk_mirror *m, mirror_run *run, bool checks_gap, stk_err *err)
{
    STK_TRY(stk_mirror_begin_write(m, err));
    int rc = bring_whole(m, run, checks_gap, err);
    if (rc == STK_E_BUSY) { /* the share's record isn't the one that is here: it is brought anew */
        rc = stk_mirror_drop_run(m, run->id, err);
        run->is_here = run->is_ended = false;
        if (rc == 0) {
            rc = bring_whole(m, run, checks_gap, err);
        }
    }
    stk_mirror_end_write(m);
    run->is_damaged = run->is_damaged && rc != 0;
    return rc;
}

int stk_mirror_follow_run(stk_mirror *m, mirror_run *run, bool checks_gap, stk_err *err)
{
    stk_err why = {0};
    int rc = stk_mirror_bring_run(m, run, checks_gap, &why);
    if (rc == 0 || rc == STK_E_NOT_FOUND) { /* it just begins, or was just removed */
        return 0;
    }
    if (stk_remote_log_is_damage(&why)) {
        set_damage(run, "", &why);
        run->is_damaged = true;
        return 0;
    }
    *err = why;
    return rc;
}
