/* A task's output: log files or, if the task has secrets, pipes to a scribe that masks them. */
#include "host/backend/backend_local_logs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/units.h"
#include "host/backend/backend_local.h"
#include "sys/file.h"

enum {
    LOOK_MS = 1000,
    STILL_MS = 20000, /* a scribe that makes no progress for this long, with work to do, hangs */
    MOST_RENEWED = 100
};

static int open_task_log(local_task *t, const char *name, stk_err *err)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", t->dir, name) >= sizeof path) {
        return stk_err_set(err, STK_E_LIMIT, "%s: the path is too long", t->dir);
    }
    int fd = stk_file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot write %s", path);
    }
    t->fds[t->n_fds++] = fd;
    return 0;
}

int stk_local_logs_open(local_task *task, const char *const *hidden, stk_err *err)
{
    local_scribe *l = &task->logs;
    if (hidden != NULL) {
        if (!task->hook && stk_runner_attempt_is_live(task->dir)) { /* later its log has our lock */
            return stk_err_set(err, STK_E_BUSY, "%s: a process of this attempt still lives",
                               task->dir);
        }
        STK_TRY(stk_scribe_open(task->dir, hidden, task->fds, &l->scribe, err));
    }
    if (l->scribe != NULL) {
        task->n_fds = 2;
    } else {
        STK_TRY(open_task_log(task, "stdout.log", err));
        STK_TRY(open_task_log(task, "stderr.log", err));
    }
    if (!task->hook) { /* a hook runs during or after its attempt, which has the lock */
        int log = l->scribe == NULL ? task->fds[1] : -1;
        STK_TRY(stk_runner_attempt_lock(task->dir, log, &task->fds[task->n_fds], err));
        task->n_fds++;
    }
    return 0;
}

int stk_local_logs_watch(local_backend *b, local_task *task, stk_err *err)
{
    local_scribe *l = &task->logs;
    if (l->scribe != NULL &&
        stk_local_watch_fd(b, stk_scribe_fd(l->scribe), EPOLLIN, l, false) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "watching the process that hides secrets");
    }
    return 0;
}

static void note_lost(local_backend *b, local_task *task)
{
    int why = 0;
    uint64_t lost = stk_scribe_lost(task->logs.scribe, &why);
    if (lost > 0) {
        char size[32];
        (void)stk_units_format_memory((int64_t)lost, size, sizeof size);
        stk_local_note(b, task, "its log is incomplete: %s could not be written: %s", size,
                       strerror(why));
    }
}

bool stk_local_logs_finish(local_backend *b, local_task *task)
{
    local_scribe *l = &task->logs;
    if (l->scribe == NULL) {
        return true;
    }
    if (stk_scribe_is_done(l->scribe)) {
        note_lost(b, task);
        return true;
    }
    stk_scribe_finish(l->scribe);
    l->progress = stk_scribe_progress(l->scribe);
    l->progress_ms = stk_local_now_ms();
    stk_local_due(b, l->progress_ms + LOOK_MS);
    return false;
}

static int renew_scribe(local_backend *b, local_task *task, stk_err *err)
{
    if (task->logs.n_renewed > MOST_RENEWED) {
        return stk_err_set(err, STK_E_SYS, "the process that hides its secrets was killed %d times",
                           MOST_RENEWED);
    }
    STK_TRY(stk_scribe_renew(task->logs.scribe, err));
    return stk_local_logs_watch(b, task, err);
}

/* The scribe has ended: either it has written everything, or it was killed and a new one
 * continues. */
void stk_local_logs_event(local_backend *b, local_task *task)
{
    stk_err err = {0};
    local_scribe *l = &task->logs;
    if (l->scribe == NULL || stk_scribe_fd(l->scribe) < 0 || task->state == LOCAL_DONE) {
        return;
    }
    (void)epoll_ctl(b->epoll, EPOLL_CTL_DEL, stk_scribe_fd(l->scribe), NULL);
    if (stk_scribe_is_done(l->scribe)) { /* also if the task closed both, but runs on */
        if (task->state == LOCAL_WRITING) {
            note_lost(b, task);
            stk_local_task_tell_end(b, task);
        }
        return;
    }
    if (l->n_renewed++ == 0) {
        stk_local_note(b, task,
                       "the process that hides its secrets was killed, but not by Stoker; a new "
                       "one continues where it stopped");
    }
    if (renew_scribe(b, task, &err) <
        0) { /* we can't store its output masked, and must not store it unmasked */
        (void)snprintf(task->failed, sizeof task->failed, "its log can't be written: %.400s",
                       err.text);
        if (task->state == LOCAL_WRITING) {
            stk_local_note(b, task, "%s", task->failed);
            stk_local_task_tell_end(b, task);
        } else {
            stk_local_task_stop(b, task, 0, STK_FAIL_START);
        }
    }
}

void stk_local_logs_timers(local_backend *b, local_task *task, int64_t now_ms)
{
    local_scribe *l = &task->logs;
    if (l->scribe == NULL) {
        return;
    }
    uint64_t progress = stk_scribe_progress(l->scribe);
    if (progress != l->progress) {
        l->progress = progress;
        l->progress_ms = now_ms;
    } else if (now_ms - l->progress_ms >= STILL_MS) {
        l->progress_ms = now_ms;
        stk_scribe_kill(l->scribe);
    }
    stk_local_due(b, now_ms + LOOK_MS);
}

void stk_local_logs_close(local_backend *b, local_task *task)
{
    local_scribe *l = &task->logs;
    if (l->scribe != NULL) {
        int fd = stk_scribe_fd(l->scribe);
        if (fd >= 0) {
            (void)epoll_ctl(b->epoll, EPOLL_CTL_DEL, fd, NULL);
        }
        stk_scribe_finish(l->scribe); /* the task never began: no one waits for its scribe */
        stk_scribe_close(l->scribe);
        l->scribe = NULL;
    }
}
