/* A task's checkpoints (docs/decisions/0008) stay between attempts, and are removed after its
 * success. Also decides whether an attempt was preempted, and whether it made progress. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/units.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

enum {
    TERM_STATUS = 128 + SIGTERM,
    AGAIN_STATUS = 75 /* EX_TEMPFAIL: it has saved and wants to run again */
};

const char *stk_exec_checkpoints(stk_exec *x, uint32_t task, stk_arena *arena)
{
    return stk_store_checkpoint_folder(x->config.store, x->config.run, stk_exec_step(x, task)->name,
                                       stk_exec_id(x, task), arena);
}

/* --- begin --- */

static const stk_json *load_task(const char *path, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (path == NULL || stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) < 0) {
        return NULL;
    }
    return stk_json_readn(arena, text, len);
}

/* True also if neither has the member. */
static bool has_same_member(const stk_json *a, const stk_json *b, const char *key)
{
    a = stk_json_get(a, key);
    b = stk_json_get(b, key);
    return a == b || (a != NULL && b != NULL && stk_json_equal(a, b));
}

/* True if the previous attempt had the same inputs, by both task.json files. An unreadable one (the
 * attempt never began) counts as the same. */
static bool was_given_same(stk_exec *x, uint32_t task, uint32_t attempt, const stk_buf *task_json)
{
    const char *path = stk_exec_file_in_dir(x, task, attempt - 1, "task.json");
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *before = load_task(path, scratch);
    const stk_json *now = stk_json_readn(scratch, task_json->data, task_json->len);
    return before == NULL ||
           (has_same_member(before, now, "inputs") && has_same_member(before, now, "command") &&
            has_same_member(before, now, "kind"));
}

/* Notes checkpoints of an earlier engine that the attempt will use. */
static int note_checkpoints(stk_exec *x, uint32_t task, const char *folder, bool same, stk_err *err)
{
    char size[32] = "of unknown size";
    uint32_t n = x->tasks[task].checkpoints.n;
    int64_t bytes = stk_store_checkpoints_bytes(folder);
    const char *who = stk_exec_who(x, task, x->scratch);
    STK_TRY(stk_err_if_null(who, err));
    if (bytes >= 0) {
        (void)stk_units_format_memory(bytes, size, sizeof size);
    }
    const char *text =
        same ? stk_arena_printf(x->scratch,
                                "%s goes on with %u checkpoint%s (%s) of its earlier attempts", who,
                                n, stk_text_plural(n), size)
             : stk_arena_printf(x->scratch,
                                "%s starts fresh: its inputs or its command have changed, so %u "
                                "checkpoint%s (%s) of its earlier attempts were removed",
                                who, n, stk_text_plural(n), size);
    return stk_exec_emit_note(x, text, err);
}

int stk_exec_checkpoints_begin(stk_exec *x, uint32_t task, uint32_t attempt,
                               const stk_buf *task_json, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    const char *folder = stk_exec_checkpoints(x, task, x->scratch);
    t->checkpoints = (stk_checkpoints){.newest_ns = -1};
    STK_TRY(stk_err_if_null(folder, err));
    if (attempt <= 1 ||
        stk_exec_is_away(x, task)) { /* the first checkpoint makes the folder; the agent */
        return 0;                    /* keeps remote checkpoints in the share */
    }
    int rc = stk_store_checkpoints_clean(folder, false, err); /* removes incomplete checkpoints */
    stk_store_checkpoints_look(folder, &t->checkpoints);
    if (rc < 0 || t->checkpoints.n == 0 || attempt != t->attempt_base + 1 || attempt <= 1) {
        return rc;
    }
    bool same = was_given_same(x, task, attempt, task_json);
    rc = note_checkpoints(x, task, folder, same, err);
    if (rc == 0 && !same) {
        rc = stk_store_checkpoints_clean(folder, true, err);
        t->checkpoints = (stk_checkpoints){.newest_ns = -1};
    }
    return rc;
}

/* --- end --- */

void stk_exec_checkpoints_drop(stk_exec *x, uint32_t task)
{
    if (stk_exec_step(x, task)->settings->keep_checkpoints) {
        return;
    }
    stk_backend *backend = x->config.backend;
    if (backend != NULL && backend->ops->drop_checkpoints != NULL && stk_exec_is_away(x, task)) {
        backend->ops->drop_checkpoints(backend, task);
    }
    const char *folder = stk_exec_checkpoints(x, task, x->scratch);
    if (folder != NULL && rmdir(folder) < 0 && errno != ENOENT) {
        stk_exec_sum_remove(x, folder); /* the run's removal takes what this can't remove */
    }
    errno = 0;
}

void stk_exec_preempted(stk_exec *x, uint32_t task, const stk_outcome *o, exec_failure *failure)
{
    const char *folder = stk_exec_checkpoints(x, task, x->scratch);
    stk_checkpoints now = {.newest_ns = -1};
    bool is_away = stk_exec_is_away(x, task), saved = false;
    if (is_away) {
        const char *dir = stk_exec_dir(x, task, stk_exec_attempt(x, task), x->scratch);
        saved = dir != NULL && stk_exec_away_saved(x, task, dir, &now.n);
    } else if (folder != NULL) {
        stk_store_checkpoints_look(folder, &now);
    }
    bool told = o->signal == SIGTERM || o->exit_status == TERM_STATUS;
    bool again = told || o->exit_status == AGAIN_STATUS;
    bool plain = failure->class == STK_FAIL_EXIT || failure->class == STK_FAIL_SIGNAL;
    const char *how = told ? ", not from Stoker" : ": it has saved and asks to run again";
    if (plain && again && now.n > 0) {
        const char *text = stk_arena_printf(x->scratch, "preempted (%s%s)", failure->text, how);
        failure->class = STK_FAIL_PREEMPTED;
        failure->text = stk_text_or(text, failure->text);
    }
    failure->saved = is_away ? saved : now.newest_ns > x->tasks[task].checkpoints.newest_ns;
}
