/* stoker logs: what steps wrote to stdout and stderr. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli_read.h"
#include "sys/file.h"

enum { CHUNK = 65536, POLL_MS = 200 };

/* One log file that is being copied to our stdout. */
typedef struct follow {
    const char *prefix; /* step name, or NULL: lines go out as they are */
    char *path;
    off_t at;
    bool mid_line;
} follow;

typedef struct follows {
    follow *items;
    uint32_t n;
    uint32_t cap;
    uint32_t *attempt; /* of each task: which attempt's logs are in `items` (0: none) */
    bool out;
    bool err;
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

static int add_file(follows *all, const char *prefix, const char *path)
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
    all->items[all->n] = (follow){prefix, strdup(path), 0, false};
    return all->items[all->n++].path != NULL ? 0 : -1;
}

/* Takes up the logs of attempts that started since the last look. */
static int find_files(const stk_cli_read *read, follows *all, stk_arena *arena, stk_err *err)
{
    for (uint32_t i = 0; i < stk_view_n_tasks(read->view); i++) {
        const stk_view_task *task = stk_view_get_task(read->view, i);
        stk_view_details d;
        if ((read->has_task && i != read->task) || task->attempt == all->attempt[i]) {
            continue;
        }
        int rc = stk_view_get_details(read->view, i, arena, &d, err);
        if (rc < 0) {
            return rc;
        }
        const char *prefix = read->has_task ? NULL : task->name;
        if ((all->out && add_file(all, prefix, d.stdout_path) < 0) ||
            (all->err && add_file(all, prefix, d.stderr_path) < 0)) {
            return stk_err_set(err, STK_E_NOMEM, "out of memory");
        }
        all->attempt[i] = task->attempt;
        stk_arena_reset(arena);
    }
    return 0;
}

static bool is_over(const stk_cli_read *read)
{
    return !stk_view_is_live(read->view) ||
           (read->has_task && stk_state_is_final(stk_view_get_task(read->view, read->task)->state));
}

static int copy_logs(stk_cli_read *read, follows *all, bool keep_on, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (;;) {
        /* Over is asked first: what was written before the end is then still copied. */
        bool over = !keep_on || is_over(read);
        int rc = arena ? find_files(read, all, arena, err)
                       : stk_err_set(err, STK_E_NOMEM, "out of memory");
        if (rc < 0) {
            return rc;
        }
        for (uint32_t i = 0; i < all->n; i++) {
            if (pump(&all->items[i]) && i > 0 && all->items[i].mid_line) {
                putchar('\n');
                all->items[i].mid_line = false;
            }
        }
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

static int list_logs(const stk_cli_read *read, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *sep = "[";
    for (uint32_t i = 0; i < stk_view_n_tasks(read->view); i++) {
        const stk_view_task *task = stk_view_get_task(read->view, i);
        stk_view_details d;
        if ((read->has_task && i != read->task) || task->attempt == 0) {
            continue;
        }
        int rc = arena ? stk_view_get_details(read->view, i, arena, &d, err)
                       : stk_err_set(err, STK_E_NOMEM, "out of memory");
        if (rc < 0) {
            return rc;
        }
        stk_buf_printf(out, "%s{\"step\":", sep);
        stk_buf_json(out, task->name);
        stk_buf_printf(out, ",\"attempt\":%u,\"stdout\":", task->attempt);
        stk_buf_json(out, d.stdout_path ? d.stdout_path : "");
        stk_buf_text(out, ",\"stderr\":");
        stk_buf_json(out, d.stderr_path ? d.stderr_path : "");
        stk_buf_char(out, '}');
        sep = ",\n ";
        stk_arena_reset(arena);
    }
    stk_buf_text(out, *sep == '[' ? "[]\n" : "]\n");
    return 0;
}

static int run_logs(stk_cli *cli)
{
    STK_CLI_READ_AUTO read = {0};
    stk_err err = {0};
    int status = stk_cli_at_most(cli, 2);
    if (status != 0 || (status = stk_cli_read_open(cli, 0, &read)) != 0) {
        return status;
    }
    if (stk_cli_json(cli)) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 30);
        int rc = list_logs(&read, &out, &err);
        return stk_cli_answer(cli, rc, &out, &err);
    }
    bool only_out = stk_cli_flag(cli, "stdout"), only_err = stk_cli_flag(cli, "stderr");
    follows all = {.out = only_out || !only_err, .err = only_err || !only_out};
    all.attempt = calloc((size_t)stk_view_n_tasks(read.view) + 1, sizeof *all.attempt);
    int rc = all.attempt == NULL ? stk_err_set(&err, STK_E_NOMEM, "out of memory")
                                 : copy_logs(&read, &all, stk_cli_flag(cli, "follow"), &err);
    for (uint32_t i = 0; i < all.n; i++) {
        free(all.items[i].path);
    }
    free(all.items);
    free(all.attempt);
    return rc < 0 ? stk_cli_fail(cli, &err) : 0;
}

static const stk_option options[] = {
    {"follow", 'f', NULL, "go on until the step, or the run, has ended", false},
    {"stdout", 0, NULL, "only what was written to stdout", false},
    {"stderr", 0, NULL, "only what was written to stderr", false},
    {NULL}};

const stk_command stk_cmd_logs = {
    .name = "logs",
    .summary = "what the steps of a run wrote",
    .usage = "[options] [RUN[/STEP]]",
    .text =
        "Of one step: its last attempt's stdout, then stderr. Of a whole run: the same for each "
        "step, with the step's name before each line. RUN as in 'stoker show'; --json gives the "
        "paths of the files.",
    .options = options,
    .run = run_logs};
