/* stoker logs: what steps wrote to stdout and stderr. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "sys/file.h"

enum { CHUNK = 65536, POLL_MS = 200 };

/* One log file that is being copied to our stdout. */
typedef struct follow {
    const char *prefix; /* the task's label, or NULL: lines go out as they are */
    char *path;
    off_t at;
    bool mid_line;
    uint32_t task, attempt;
} follow;

typedef struct follows {
    follow *items;
    uint32_t n;
    uint32_t cap;
    uint32_t *attempt; /* of each task: which attempt's logs were taken up (0: none) */
    uint32_t n_tasks;
    bool any; /* some were */
    bool out;
    bool err;
    /* The run that a clone came from: neighbours come from the same one. */
    char run[40];
    stk_view *origin;
} follows;

static void put_lines(follow *f, const char *data, size_t len)
{
    while (len > 0) {
        const char *end = memchr(data, '\n', len);
        size_t n = end != NULL ? (size_t)(end - data) + 1 : len;
        if (f->prefix != NULL && !f->mid_line) {
            (void)printf("%s | ", f->prefix);
        }
        (void)fwrite(data, 1, n, stdout);
        f->mid_line = end == NULL;
        data += n;
        len -= n;
    }
}

/* Copies what is new; true when there was something. */
static bool pump(follow *f)
{
    STK_FD_AUTO fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    char data[CHUNK];
    bool any = false;
    for (ssize_t n; fd >= 0 && (n = pread(fd, data, sizeof data, f->at)) > 0; f->at += n) {
        put_lines(f, data, (size_t)n);
        any = true;
    }
    return any;
}

static int add_file(follows *all, const follow *file, const char *path)
{
    if (all->n == all->cap) {
        uint32_t cap = all->cap < 16 ? 16 : all->cap * 2;
        follow *items = realloc(all->items, cap * sizeof *items);
        if (items == NULL) {
            return -1;
        }
        all->items = items;
        all->cap = cap;
    }
    all->any = true;
    all->items[all->n] = *file;
    all->items[all->n].path = path != NULL ? strdup(path) : NULL;
    return all->items[all->n++].path != NULL ? 0 : -1;
}

static bool is_wanted(const stk_cli_read *read, uint32_t i_task)
{
    return read->has_task   ? i_task == read->task
           : read->has_step ? stk_view_get_task(read->view, i_task)->i_step == read->i_step
                            : true;
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

/* The directory of the attempt that made what a clone has; NULL: its run is gone. */
static int find_origin(stk_store *store, follows *all, const stk_view_details *clone,
                       stk_arena *arena, const char **ret_dir, stk_err *err)
{
    enum { CLONES = 1000 }; /* of clones; a damaged store may hold a circle */
    stk_view_details d = *clone;
    *ret_dir = NULL;
    for (int i = 0; i < CLONES && d.cached_from != NULL && d.from_task >= 0; i++) {
        uint32_t task = (uint32_t)d.from_task;
        int rc = open_origin(store, all, d.cached_from, err);
        if (rc == STK_E_NOT_FOUND ||
            (rc == 0 && d.from_task >= (int64_t)stk_view_n_tasks(all->origin))) {
            return 0;
        }
        rc = rc < 0 ? rc : stk_view_get_details(all->origin, task, arena, &d, err);
        if (rc < 0) {
            return rc;
        }
        *ret_dir = d.dir;
        if (d.dir != NULL) {
            return 0;
        }
    }
    return 0;
}

/* The folder of the logs of a task's last attempt; NULL: it has none (yet). */
static int find_folder(const stk_cli_read *read, follows *all, uint32_t i_task, stk_arena *arena,
                       const char **ret_dir, stk_err *err)
{
    stk_view_details d;
    int rc = stk_view_get_details(read->view, i_task, arena, &d, err);
    *ret_dir = rc == 0 ? d.dir : NULL;
    if (rc == 0 && d.dir == NULL && d.cached_from != NULL && d.from_task >= 0) {
        rc = find_origin(read->store, all, &d, arena, ret_dir, err);
    }
    if (rc == 0 && *ret_dir != NULL && read->rank >= 0) {
        *ret_dir = stk_arena_printf(arena, "%s/rank-%lld", *ret_dir, (long long)read->rank);
    }
    return rc;
}

static int make_room(const stk_cli_read *read, follows *all, stk_err *err)
{
    uint32_t n = stk_view_n_tasks(read->view);
    uint32_t *attempt = n > all->n_tasks || all->attempt == NULL
                            ? realloc(all->attempt, (n + 1u) * sizeof *attempt)
                            : all->attempt;
    if (attempt == NULL) {
        return stk_err_nomem(err);
    }
    for (; all->n_tasks < n; all->n_tasks++) {
        attempt[all->n_tasks] = 0;
    }
    all->attempt = attempt;
    return 0;
}

/* Takes up the logs of attempts that started since the last look. */
static int find_files(const stk_cli_read *read, follows *all, stk_arena *arena, stk_err *err)
{
    int rc = make_room(read, all, err);
    for (uint32_t i = 0; rc == 0 && i < stk_view_n_tasks(read->view); i++) {
        const stk_view_task *task = stk_view_get_task(read->view, i);
        bool clone = task->attempt == 0 && task->state == STK_TASK_CACHED;
        uint32_t attempt = clone ? UINT32_MAX : task->attempt;
        const char *dir = NULL;
        if (!is_wanted(read, i) || attempt == all->attempt[i]) {
            continue;
        }
        rc = find_folder(read, all, i, arena, &dir, err);
        all->attempt[i] = attempt;
        follow file = {read->has_task ? NULL : task->label, NULL, 0, false, i, task->attempt};
        bool fine = rc < 0 || dir == NULL ||
                    ((!all->out ||
                      add_file(all, &file, stk_arena_printf(arena, "%s/stdout.log", dir)) == 0) &&
                     (!all->err ||
                      add_file(all, &file, stk_arena_printf(arena, "%s/stderr.log", dir)) == 0));
        if (!fine) {
            rc = stk_err_nomem(err);
        }
        stk_arena_reset(arena);
    }
    return rc;
}

static bool is_over(const stk_cli_read *read)
{
    return !stk_view_is_live(read->view) ||
           (read->has_task && stk_state_is_final(stk_view_get_task(read->view, read->task)->state));
}

/* Copies what is new of all; files of attempts that were over before that aren't looked at again.
 */
static void pump_all(const stk_cli_read *read, follows *all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->n; i++) {
        follow *f = &all->items[i];
        const stk_view_task *task = stk_view_get_task(read->view, f->task);
        bool done = stk_state_is_final(task->state) || task->attempt != f->attempt;
        if (pump(f) && f->mid_line && (f->prefix != NULL || kept + i > 0)) {
            putchar('\n');
            f->mid_line = false;
        }
        if (done) {
            free(f->path);
        } else {
            all->items[kept++] = *f;
        }
    }
    all->n = kept;
}

static int copy_logs(stk_cli_read *read, follows *all, bool keep_on, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (;;) {
        /* Over is asked first: what was written before the end is then still copied. */
        bool over = !keep_on || is_over(read);
        int rc = arena ? find_files(read, all, arena, err) : stk_err_nomem(err);
        if (rc < 0) {
            return rc;
        }
        pump_all(read, all);
        if (fflush(stdout) != 0 || over) {
            return 0;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000l}, NULL);
        rc = stk_view_refresh(read->view, read->store, NULL, err);
        if (rc < 0) {
            return rc;
        }
    }
}

static int list_logs(const stk_cli_read *read, follows *all, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *sep = "[";
    for (uint32_t i = 0; i < stk_view_n_tasks(read->view); i++) {
        const stk_view_task *task = stk_view_get_task(read->view, i);
        const char *dir = NULL;
        if (!is_wanted(read, i)) {
            continue;
        }
        int rc = arena ? find_folder(read, all, i, arena, &dir, err) : stk_err_nomem(err);
        if (rc < 0) {
            return rc;
        }
        if (dir == NULL) {
            continue;
        }
        stk_buf_printf(out, "%s{\"step\":", sep);
        stk_buf_json(out, task->name);
        if (stk_view_grows(read->view)) {
            stk_buf_printf(out, ",\"id\":%u", task->id);
        }
        stk_buf_printf(out, ",\"attempt\":%u,\"stdout\":", task->attempt);
        stk_buf_json(out, stk_arena_printf(arena, "%s/stdout.log", dir));
        stk_buf_text(out, ",\"stderr\":");
        stk_buf_json(out, stk_arena_printf(arena, "%s/stderr.log", dir));
        stk_buf_char(out, '}');
        sep = ",\n ";
        stk_arena_reset(arena);
    }
    stk_buf_text(out, *sep == '[' ? "[]\n" : "]\n");
    return 0;
}

/* Nothing to copy is no mistake, but silence would look like an empty log. */
static int say_why_none(const stk_cli_read *read, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_view_run *run = stk_view_get_run(read->view);
    stk_view_details d;
    if (!read->has_task) {
        (void)fprintf(stderr, "stoker: no %s of run %s has run",
                      read->has_step ? "task of that step" : "step", run->id);
        (void)fprintf(stderr,
                      !read->has_step && run->n[STK_TASK_CACHED] > 0 ? ", %u came from the cache\n"
                                                                     : "\n",
                      run->n[STK_TASK_CACHED]);
        return 0;
    }
    const stk_view_task *task = stk_view_get_task(read->view, read->task);
    int rc =
        arena ? stk_view_get_details(read->view, read->task, arena, &d, err) : stk_err_nomem(err);
    if (rc == 0 && d.cached_from != NULL) {
        (void)fprintf(stderr,
                      "stoker: step '%s' came from the cache; it ran in: stoker logs %s/%s\n",
                      task->label, d.cached_from, task->name);
    } else if (rc == 0) {
        (void)fprintf(stderr, "stoker: step '%s' has not run\n", task->label);
    }
    return rc;
}

static int run_logs(stk_cli *cli)
{
    STK_CLI_READ_AUTO read = {0};
    stk_err err = {0};
    int status = stk_cli_at_most(cli, 2);
    if (status != 0 || (status = stk_cli_read_open(cli, 0, &read)) != 0) {
        return status;
    }
    bool only_out = stk_cli_flag(cli, "stdout"), only_err = stk_cli_flag(cli, "stderr");
    follows all = {.out = only_out || !only_err, .err = only_err || !only_out};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 30);
    int rc = stk_cli_json(cli) ? list_logs(&read, &all, &out, &err)
                               : copy_logs(&read, &all, stk_cli_flag(cli, "follow"), &err);
    rc = rc == 0 && !all.any && !stk_cli_json(cli) ? say_why_none(&read, &err) : rc;
    for (uint32_t i = 0; i < all.n; i++) {
        free(all.items[i].path);
    }
    free(all.items);
    free(all.attempt);
    stk_view_free(all.origin);
    return stk_cli_answer(cli, rc, &out, &err);
}

static const stk_option options[] = {
    {"follow", 'f', NULL, "go on until the step, or the run, has ended", false},
    {"stdout", 0, NULL, "only what was written to stdout", false},
    {"stderr", 0, NULL, "only what was written to stderr", false},
    STK_CLI_STACK_OPTION,
    {NULL}};

const stk_command stk_cmd_logs = {
    .name = "logs",
    .summary = "what the steps of a run wrote",
    .usage = "[options] [RUN[/STEP[/ID[_node_K]]]]",
    .text =
        "Of one step: its last attempt's stdout, then stderr. Of a whole run: the same for each "
        "step, with the step's name before each line. RUN as in 'stoker show'; --json gives the "
        "paths of the files.\n\nWhere a run makes its tasks as it goes, RUN/STEP is all tasks of "
        "the step in their order, "
        "RUN/STEP/ID one of them, and RUN/STEP/ID_node_K rank K of a gang. Of a task that was "
        "cloned from another run: what it wrote there.",
    .options = options,
    .run = run_logs};
