#include "show/logs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "sys/file.h"

enum { CHUNK = 65536, POLL_MS = 200 };

/* A log file that is being copied to our stdout. */
typedef struct follow {
    const char *prefix; /* the task's label, or NULL: copies lines unchanged */
    char *path;
    off_t at;
    bool mid_line;
    uint32_t task, attempt;
    bool is_live; /* it goes when the attempt ends */
} follow;

typedef struct follows {
    follow *items;
    uint32_t n;
    uint32_t cap;
    uint32_t *attempt; /* by task: the attempt whose logs were added last (0: none) */
    uint32_t n_tasks;
    bool any;  /* at least one file was added */
    int wrong; /* errno of stdout that takes nothing more, or 0 */
    /* The run of the last clone's origin, kept open because most clones come from the same run. */
    char run[40];
    stk_view *origin;
} follows;

static void put_lines(follow *f, const char *data, size_t len)
{
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = (size_t)((end == NULL ? data + len : end + 1) - data);
        if (f->prefix != NULL && !f->mid_line) {
            (void)printf("%s | ", f->prefix);
        }
        (void)fwrite(data, 1, n, stdout);
        f->mid_line = end == NULL;
        data += n;
        len -= n;
    }
}

/* Copies what was added since the last call, as long as stdout takes it; returns true if there was
 * something. */
static bool pump(follows *all, follow *f)
{
    STK_FD_AUTO fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char data[CHUNK];
    bool any = false;
    for (ssize_t n; fd >= 0 && all->wrong == 0 && (n = pread(fd, data, sizeof data, f->at)) > 0;
         f->at += n) {
        put_lines(f, data, (size_t)n);
        any = true;
        if (ferror(stdout)) {
            all->wrong = errno;
        }
    }
    return any;
}

/* Adds DIR/name to the list. */
static int add_file(follows *all, const follow *file, const char *dir, const char *name,
                    stk_err *err)
{
    if (all->n == all->cap) {
        uint32_t cap = MAX(all->cap * 2, 16);
        follow *items = realloc(all->items, cap * sizeof *items);
        STK_TRY(stk_err_if_null(items, err));
        all->items = items;
        all->cap = cap;
    }
    all->any = true;
    all->items[all->n] = *file;
    all->items[all->n].path = stk_file_join(dir, name);
    return stk_err_if_null(all->items[all->n++].path, err);
}

static bool is_wanted(const stk_logs *logs, uint32_t i_task)
{
    if (logs->has_task) {
        return i_task == logs->task;
    }
    return !logs->has_step || stk_view_get_task(logs->view, i_task)->i_step == logs->i_step;
}

static int open_origin(stk_store *store, follows *all, const char *run, stk_err *err)
{
    if (all->origin != NULL && strcmp(all->run, run) == 0) {
        return 0;
    }
    stk_view_free(all->origin);
    all->origin = NULL;
    (void)snprintf(all->run, sizeof all->run, "%s", run);
    return stk_view_load(store, run, &all->origin, err);
}

/* Finds the directory of the attempt that a clone's results come from; NULL: its run is gone. */
static int find_origin(stk_store *store, follows *all, const stk_view_details *clone,
                       stk_arena *arena, const char **ret_dir, stk_err *err)
{
    enum { CLONES = 1000 }; /* the longest chain of clones; a damaged store may hold a cycle */
    stk_view_details d = *clone;
    *ret_dir = NULL;
    for (int i = 0; i < CLONES && d.cached_from != NULL && d.from_task >= 0; i++) {
        uint32_t task = (uint32_t)d.from_task;
        int rc = open_origin(store, all, d.cached_from, err);
        if (rc == STK_E_NOT_FOUND ||
            (rc == 0 && d.from_task >= (int64_t)stk_view_n_tasks(all->origin))) {
            return 0;
        }
        STK_TRY(rc);
        STK_TRY(stk_view_get_details(all->origin, task, arena, &d, err));
        *ret_dir = d.dir;
        if (d.dir != NULL) {
            return 0;
        }
    }
    return 0;
}

/* The folder with the logs of a task's last attempt; NULL: it has none (yet). */
static int find_folder(const stk_logs *logs, follows *all, uint32_t i_task, stk_arena *arena,
                       const char **ret_dir, stk_err *err)
{
    stk_view_details d;
    STK_TRY(stk_view_get_details(logs->view, i_task, arena, &d, err));
    *ret_dir = d.dir;
    if (d.dir == NULL && d.cached_from != NULL && d.from_task >= 0) {
        STK_TRY(find_origin(logs->store, all, &d, arena, ret_dir, err));
    }
    if (*ret_dir != NULL && logs->rank >= 0) {
        *ret_dir = stk_arena_printf(arena, "%s/rank-%lld", *ret_dir, (long long)logs->rank);
    }
    return 0;
}

static int grow_attempts(const stk_logs *logs, follows *all, stk_err *err)
{
    uint32_t n = stk_view_n_tasks(logs->view);
    if (n <= all->n_tasks) {
        return 0;
    }
    uint32_t *attempt = realloc(all->attempt, n * sizeof *attempt);
    STK_TRY(stk_err_if_null(attempt, err));
    for (; all->n_tasks < n; all->n_tasks++) {
        attempt[all->n_tasks] = 0;
    }
    all->attempt = attempt;
    return 0;
}

/* Adds the logs of attempts that started since the last call. */
static int find_files(const stk_logs *logs, follows *all, stk_arena *arena, stk_err *err)
{
    STK_TRY(grow_attempts(logs, all, err));
    for (uint32_t i = 0; i < stk_view_n_tasks(logs->view); i++) {
        const stk_view_task *task = stk_view_get_task(logs->view, i);
        bool is_clone = task->attempt == 0 && task->state == STK_TASK_CACHED;
        uint32_t attempt = is_clone ? UINT32_MAX : task->attempt;
        const char *dir = NULL;
        if (!is_wanted(logs, i) || attempt == all->attempt[i]) {
            continue;
        }
        STK_TRY(find_folder(logs, all, i, arena, &dir, err));
        all->attempt[i] = attempt;
        const char *live = NULL;
        if (logs->live != NULL && logs->rank < 0 && logs->out) {
            live = logs->live(logs->arg, i);
        }
        dir = stk_text_or(live, dir);
        const follow file = {.prefix = logs->has_task ? NULL : task->title,
                             .task = i,
                             .attempt = task->attempt,
                             .is_live = live != NULL};
        if (dir != NULL && logs->out) {
            STK_TRY(add_file(all, &file, dir, "stdout.log", err));
        }
        if (dir != NULL && logs->err && live == NULL) { /* live, stdout.log has both */
            STK_TRY(add_file(all, &file, dir, "stderr.log", err));
        }
        stk_arena_reset(arena);
    }
    return 0;
}

static bool is_over(const stk_logs *logs)
{
    return !stk_view_is_live(logs->view) ||
           (logs->has_task && stk_state_is_final(stk_view_get_task(logs->view, logs->task)->state));
}

/* Copies what is new in each file, and drops files whose attempt had ended before the call. Returns
 * true if files of such an attempt come instead of its live output, which never came. */
static bool pump_all(const stk_logs *logs, follows *all)
{
    uint32_t kept = 0;
    bool again = false;
    for (uint32_t i = 0; i < all->n; i++) {
        follow *f = &all->items[i];
        const stk_view_task *task = stk_view_get_task(logs->view, f->task);
        bool done = stk_state_is_final(task->state) || task->attempt != f->attempt;
        if (pump(all, f) && f->mid_line && (f->prefix != NULL || kept + i > 0)) {
            putchar('\n');
            f->mid_line = false;
        }
        if (done && f->is_live && f->at == 0 && f->attempt == all->attempt[f->task]) {
            all->attempt[f->task] = 0;
            again = true;
        }
        if (done) {
            free(f->path);
        } else {
            all->items[kept++] = *f;
        }
    }
    all->n = kept;
    return again;
}

static int copy_all(const stk_logs *logs, follows *all, bool keep_on, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    for (;;) {
        /* Checked before copying, so that output written just before the end is still copied. */
        bool over = !keep_on || is_over(logs);
        do {
            STK_TRY(find_files(logs, all, arena, err));
        } while (pump_all(logs, all));
        if (all->wrong == 0 && fflush(stdout) != 0) {
            all->wrong = errno;
        }
        if (all->wrong != 0 && all->wrong != EPIPE) {
            return stk_err_set(err, STK_E_ENV, "writing the logs: %s", strerror(all->wrong));
        }
        if (all->wrong != 0 || over) {
            return 0;
        }
        if (logs->wait != NULL) { /* it refreshes the view when the files are here, too */
            STK_TRY(logs->wait(logs->arg, err));
            continue;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000l}, NULL);
        STK_TRY(stk_view_refresh(logs->view, logs->store, NULL, err));
    }
}

/* Printing nothing would look like an empty log, so say why there is none. That is no error. */
static int say_why_none(const stk_logs *logs, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_view_run *run = stk_view_get_run(logs->view);
    stk_view_details d;
    if (!logs->has_task) {
        (void)fprintf(stderr, "stoker: no %s of run %s has run",
                      logs->has_step ? "task of that step" : "step", run->id);
        if (!logs->has_step && run->n[STK_TASK_CACHED] > 0) {
            (void)fprintf(stderr, ", %u came from the cache", run->n[STK_TASK_CACHED]);
        }
        (void)fputc('\n', stderr);
        return 0;
    }
    const stk_view_task *task = stk_view_get_task(logs->view, logs->task);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_view_get_details(logs->view, logs->task, arena, &d, err));
    if (d.cached_from != NULL) {
        (void)fprintf(stderr,
                      "stoker: step '%s' came from the cache; it ran in: stoker logs %s/%s\n",
                      task->title, d.cached_from, task->name);
    } else {
        (void)fprintf(stderr, "stoker: step '%s' has not run\n", task->title);
    }
    return 0;
}

static void end_follows(follows *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        free(all->items[i].path);
    }
    free(all->items);
    free(all->attempt);
    stk_view_free(all->origin);
}

int stk_logs_copy(const stk_logs *logs, bool keep_on, stk_err *err)
{
    __attribute__((cleanup(end_follows))) follows all = {0};
    STK_TRY(copy_all(logs, &all, keep_on, err));
    if (all.any) {
        return 0;
    }
    return say_why_none(logs, err);
}

int stk_logs_json(const stk_logs *logs, stk_buf *out, stk_err *err)
{
    __attribute__((cleanup(end_follows))) follows all = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    for (uint32_t i = 0; i < stk_view_n_tasks(logs->view); i++) {
        const stk_view_task *task = stk_view_get_task(logs->view, i);
        const char *dir = NULL;
        if (is_wanted(logs, i)) {
            STK_TRY(find_folder(logs, &all, i, arena, &dir, err));
        }
        if (dir == NULL) {
            continue;
        }
        stk_buf_text(out, out->len == 0 ? "[{" : ",\n {");
        stk_json_put_text(out, "step", task->name);
        stk_json_put_text(out, "title", task->title);
        if (stk_view_grows(logs->view)) {
            stk_json_put_whole(out, "id", task->id);
        }
        stk_json_put_whole(out, "attempt", task->attempt);
        stk_json_put_text(out, "stdout", stk_arena_printf(arena, "%s/stdout.log", dir));
        stk_json_put_text(out, "stderr", stk_arena_printf(arena, "%s/stderr.log", dir));
        stk_json_close(out, '}');
        stk_arena_reset(arena);
    }
    stk_buf_text(out, out->len == 0 ? "[]\n" : "]\n");
    return 0;
}
