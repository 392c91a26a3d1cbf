/* The ranks' accounts of their errors: PyTorch's `@record` writes the file that
 * TORCHELASTIC_ERROR_FILE names, torchrun reads it. So do we, and like torchrun we write our own
 * TORCHELASTIC_ERROR_FILE if a rank has failed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_told.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { ACCOUNT_BYTES = 1 << 20, ACCOUNT_NODES = 10000, ACCOUNT_DEPTH = 20 };

/* A folder has this name while its launcher holds its lock, which ends with the process. */
#define PREFIX "stoker-errors-"
#define UNLOCKED "stoker-unlocked-errors-"

static void empty_folder(int fd, const char *name)
{
    stk_dir folder = {0};
    if (stk_dir_read_fd(fd, name, &folder, NULL) == 0) {
        for (uint32_t i = 0; i < folder.n; i++) {
            (void)unlinkat(fd, folder.items[i].name, 0);
        }
        stk_dir_done(&folder);
    }
}

/* Removes one folder if it is ours and nobody holds its lock: its launcher was killed. */
static void remove_if_dead(int above, const char *name)
{
    struct stat st;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(above, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && fcntl(fd, F_OFD_GETLK, &lock) == 0 &&
        lock.l_type == F_UNLCK) {
        empty_folder(fd, name);
        (void)unlinkat(above, name, AT_REMOVEDIR);
    }
    (void)close(fd);
}

static void remove_dead_folders(const char *above)
{
    stk_dir folder = {0};
    if (stk_dir_read(above, &folder, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < folder.n; i++) {
        if (strncmp(folder.items[i].name, PREFIX, strlen(PREFIX)) == 0) {
            remove_if_dead(folder.fd, folder.items[i].name);
        }
    }
    stk_dir_done(&folder);
}

/* Makes the folder, locks it, and only then gives it the name by which others find it. Where the
 * file system has no locks it keeps the other one. */
static int make_folder(stk_gang *g, const char *above)
{
    char name[PATH_MAX];
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    (void)snprintf(g->errors, sizeof g->errors, "%.*s/" UNLOCKED "XXXXXX", PATH_MAX / 2, above);
    if (mkdtemp(g->errors) == NULL) {
        return -1;
    }
    const char *random = g->errors + strlen(g->errors) - 6;
    (void)snprintf(name, sizeof name, "%.*s/" PREFIX "%s", PATH_MAX / 2, above, random);
    g->errors_fd = open(g->errors, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (g->errors_fd >= 0 && fcntl(g->errors_fd, F_OFD_SETLK, &lock) == 0 &&
        rename(g->errors, name) == 0) {
        (void)snprintf(g->errors, sizeof g->errors, "%s", name);
    }
    return 0;
}

int stk_launch_errors_open(stk_gang *g, stk_err *err)
{
    const char *above = stk_text_or(getenv("TMPDIR"), "/tmp");
    g->errors_fd = -1;
    if (g->config->dir != NULL) {
        return 0;
    }
    remove_dead_folders(above);
    if (make_folder(g, above) < 0) {
        int code = errno;
        remove_dead_folders("/tmp");
        if (make_folder(g, "/tmp") < 0) {
            g->errors[0] = '\0';
            return stk_err_sys(err, STK_E_SYS, code, "no folder for the ranks' errors in TMPDIR");
        }
    }
    return 0;
}

const char *stk_launch_errors_path(const stk_gang *g, uint32_t rank, char ret[PATH_MAX])
{
    if (g->config->dir != NULL) {
        return stk_launch_path(g, rank, "error.json", ret);
    }
    (void)snprintf(ret, PATH_MAX, "%.*s/%u.json", PATH_MAX - 32, g->errors,
                   stk_launch_number(g, rank));
    return ret;
}

void stk_launch_errors_forget(stk_gang *g)
{
    char path[PATH_MAX];
    for (uint32_t i = 0; i < g->n; i++) {
        (void)unlink(stk_launch_errors_path(g, i, path));
    }
}

void stk_launch_errors_close(stk_gang *g)
{
    if (g->errors[0] == '\0') {
        return;
    }
    if (g->errors_fd >= 0) {
        empty_folder(g->errors_fd, g->errors);
    }
    (void)rmdir(g->errors);
    stk_file_close(&g->errors_fd);
    g->errors[0] = '\0';
}

/* Its message ("ValueError: boom") and traceback (or NULL), in `arena`. */
static const char *account_of(const stk_gang *g, uint32_t rank, stk_arena *arena,
                              const char **ret_trace)
{
    static const stk_json_limits limits = {ACCOUNT_BYTES, ACCOUNT_NODES, ACCOUNT_DEPTH};
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json doc;
    (void)stk_launch_errors_path(g, rank, path);
    *ret_trace = NULL;
    if (arena == NULL || stk_file_read_untrusted(path, ACCOUNT_BYTES, &text, &len, NULL) < 0 ||
        stk_json_parse(text, len, path, &limits, arena, &doc, NULL) < 0) {
        return NULL;
    }
    const stk_json *message = stk_json_get(&doc, "message");
    const char *words = stk_json_text(message); /* programs of an older PyTorch */
    if (words != NULL) {
        return stk_arena_dup(arena, words);
    }
    *ret_trace =
        stk_arena_dup(arena, stk_json_get_text(stk_json_get(message, "extraInfo"), "py_callstack"));
    return stk_arena_dup(arena, stk_json_get_text(message, "message"));
}

/* What the rank would have written to stderr, for those that read its end. */
static void add_to_tail(launch_rank *r, const char *text)
{
    size_t n = strlen(text);
    size_t most = LAUNCH_TAIL - 2;
    if (n > most) {
        text += n - most;
        n = most;
    }
    size_t keep = r->n_tail;
    if (keep + n > most) {
        keep = most - n;
        memmove(r->tail, r->tail + r->n_tail - keep, keep);
    }
    if (keep > 0 && r->tail[keep - 1] != '\n') {
        r->tail[keep++] = '\n';
    }
    memcpy(r->tail + keep, text, n);
    r->n_tail = keep + n;
    r->tail[r->n_tail] = '\0';
}

void stk_launch_errors_read(stk_gang *g)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (uint32_t i = 0; i < g->n; i++) {
        launch_rank *r = &g->ranks[i];
        const char *trace, *last;
        size_t len, n_last;
        r->error[0] = '\0';
        const char *message = r->failed ? account_of(g, i, arena, &trace) : NULL;
        if (message == NULL || stk_launch_traceback(r->tail, &len, &last, &n_last) != NULL) {
            continue;
        }
        (void)snprintf(r->error, sizeof r->error, "%.*s", (int)strcspn(message, "\n"), message);
        add_to_tail(r, stk_text_or(trace, message));
    }
}

void stk_launch_errors_tell(const stk_gang *g, const stk_launch_end *end)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    const char *trace = NULL, *last, *message = NULL;
    size_t len, n_last;
    char when[32];
    if (path == NULL || *path == '\0' || end->failure == STK_FAIL_NONE) {
        return;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (g->first >= 0 && (uint32_t)g->first < g->n) {
        message = account_of(g, (uint32_t)g->first, arena, &trace);
    }
    if (trace == NULL && g->first >= 0) {
        trace = stk_launch_traceback(g->ranks[g->first].tail, &len, &last, &n_last);
    }
    (void)snprintf(when, sizeof when, "%lld", (long long)stk_clock_anchored_ms(&g->clock) / 1000);
    STK_BUF_AUTO out = STK_BUF_INIT(2 * ACCOUNT_BYTES);
    stk_json_open(&out, NULL, '{');
    stk_json_open(&out, "message", '{');
    stk_json_put_text(&out, "message", stk_text_or(message, end->text));
    stk_json_open(&out, "extraInfo", '{');
    stk_json_put_text(&out, "py_callstack", stk_text_or(trace, ""));
    stk_json_put_text(&out, "timestamp", when);
    stk_json_close(&out, '}');
    stk_json_put_int(&out, "errorCode", end->exit_status);
    stk_buf_text(&out, "}}\n");
    /* Not by a new file: it may be a mount such as Kubernetes' termination log. */
    STK_FD_AUTO fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out.failed || fd < 0 || stk_file_write_all(fd, out.data, out.len) < 0) {
        fprintf(stderr, "stoker launch: cannot write TORCHELASTIC_ERROR_FILE %s: %s\n", path,
                strerror(errno));
    }
}
