/* Starts a job's keeper on this host. Everything may be asked twice: the folder is made once, and
 * of several keepers one begins. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/ssh/ssh_private.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/spawn.h"

enum { READY_MS = 20000, ARGV_MAX = 16 };

extern char **environ;

/* The folder that ssh's first contact brought (away/link): bin/stoker with its loader. NULL: this
 * program isn't a carried one. */
static const char *program_folder(stk_arena *arena)
{
    STK_TEXT_AUTO self = realpath("/proc/self/exe", NULL);
    for (int i = 0; i < 2 && self != NULL; i++) { /* bin/ld.so, or bin/stoker */
        char *slash = strrchr(self, '/');
        if (slash == NULL) {
            return NULL;
        }
        *slash = '\0';
    }
    const char *loader = stk_arena_printf(arena, "%s/bin/ld.so", stk_text_or(self, ""));
    return self != NULL && loader != NULL && stk_file_exists(loader) ? stk_arena_dup(arena, self)
                                                                     : NULL;
}

/* systemd ends a user's processes with the last session, unless the user lingers and they are the
 * user manager's. */
static bool is_kept_by_systemd(void)
{
    char path[300], user[48];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    (void)snprintf(path, sizeof path, "/var/lib/systemd/linger/%s", stk_proc_user(geteuid(), user));
    return runtime != NULL && stk_file_exists(path) && stk_file_exists("/usr/bin/systemd-run");
}

static int keeper_argv(const char *folder, int ready_fd, stk_arena *arena, const char **argv,
                       stk_err *err)
{
    static const char *const scope[] = {
        "/usr/bin/systemd-run", "--user", "--scope", "--quiet", "--collect", "--"};
    const char *at = program_folder(arena);
    const char *other = getenv("STOKER_SSH_PROGRAM"); /* tests: a program that isn't carried */
    const char *fd = stk_arena_printf(arena, "%d", ready_fd);
    uint32_t n = 0;
    if (other == NULL && at == NULL) {
        return stk_err_set(err, STK_E_ENV, "this program has no loader beside it");
    }
    if (is_kept_by_systemd()) {
        memcpy(argv, scope, sizeof scope);
        n = sizeof scope / sizeof *scope;
    }
    if (other == NULL) {
        argv[n++] = stk_arena_printf(arena, "%s/bin/ld.so", at);
        argv[n++] = "--library-path";
        argv[n++] = stk_arena_printf(arena, "%s/bin/lib", at);
        other = stk_arena_printf(arena, "%s/bin/stoker", at);
    }
    argv[n++] = other;
    argv[n++] = "keep";
    argv[n++] = folder;
    argv[n++] = fd;
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(stk_err_if_null(argv[i], err));
    }
    argv[n] = NULL;
    return 0;
}

/* Ours, without what belongs to the connection, and the job's over it. */
static const char **keeper_env(const stk_json *order, const stk_json *secrets, stk_arena *arena)
{
    static const char *const gone[] = {
        "SSH_CONNECTION=", "SSH_CLIENT=", "SSH_TTY=", "SSH_AUTH_SOCK=", "XDG_SESSION_ID="};
    const stk_json *lists[] = {stk_json_get(order, "env"), secrets};
    size_t n = 0, n_more = stk_json_n_items(lists[0]) + stk_json_n_items(lists[1]);
    while (environ[n] != NULL) {
        n++;
    }
    const char **env = stk_arena_array(arena, n + n_more + 1, sizeof *env);
    size_t k = 0;
    for (size_t i = 0; env != NULL && i < n; i++) {
        bool is_gone = false;
        for (size_t g = 0; g < sizeof gone / sizeof *gone; g++) {
            is_gone = is_gone || strncmp(environ[i], gone[g], strlen(gone[g])) == 0;
        }
        if (!is_gone) {
            env[k++] = environ[i];
        }
    }
    for (size_t l = 0; env != NULL && l < 2; l++) {
        for (uint32_t i = 0; i < stk_json_n_items(lists[l]); i++) {
            const char *pair = stk_json_text(stk_json_item(lists[l], i));
            if (pair != NULL) {
                env[k++] = pair;
            }
        }
    }
    return env;
}

static int write_order(const char *folder, const stk_json *order, stk_err *err)
{
    char path[PATH_MAX];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *text = stk_json_dump_in(order, arena);
    STK_TRY(stk_err_if_null(text, err));
    if (mkdir(folder, 0700) < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_ENV, errno, "making %s", folder);
    }
    stk_ssh_job_path(folder, "order.json", path);
    return stk_file_write_atomic(path, text, strlen(text), 0600, err);
}

static int spawn_keeper(const char *folder, const stk_json *order, const stk_json *secrets,
                        int out_fd, int ready_fd, pid_t *ret_pid, stk_err *err)
{
    const char *argv[ARGV_MAX];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(keeper_argv(folder, ready_fd, arena, argv, err));
    const stk_spawn spawn = {.argv = argv,
                             .env = keeper_env(order, secrets, arena),
                             .cwd = "/",
                             .stdin_fd = -1,
                             .stdout_fd = out_fd,
                             .stderr_fd = out_fd,
                             .keep_fds = &ready_fd,
                             .n_keep_fds = 1,
                             .new_session = true};
    STK_TRY(stk_err_if_null(spawn.env, err));
    return stk_sys_spawn(&spawn, ret_pid, NULL, err);
}

/* The keeper says that it has begun, or ends without a word: then another one has, or it can't. */
static int start_keeper(const char *folder, const stk_json *order, const stk_json *secrets,
                        stk_err *err)
{
    char path[PATH_MAX], word[8];
    int ready[2] = {-1, -1};
    stk_ssh_job_path(folder, "out", path);
    STK_FD_AUTO out = stk_file_open_regular(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (out < 0 || pipe2(ready, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "opening %s", path);
    }
    pid_t pid = -1;
    int rc = spawn_keeper(folder, order, secrets, out, ready[1], &pid, err);
    stk_file_close(&ready[1]);
    struct pollfd fd = {.fd = ready[0], .events = POLLIN};
    if (rc == 0 && poll(&fd, 1, READY_MS) > 0) {
        (void)!read(ready[0], word, sizeof word);
    }
    stk_file_close(&ready[0]);
    if (pid > 0) { /* the keeper is its child, and nobody's once this one has ended */
        (void)waitpid(pid, NULL, 0);
    }
    return rc;
}

static int make_job(const char *folder, const stk_json *order, const stk_json *secrets,
                    stk_err *err)
{
    STK_TRY(write_order(folder, order, err));
    STK_FAILPOINT("ssh.far.start");
    return start_keeper(folder, order, secrets, err);
}

int stk_ssh_far_start(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err)
{
    const stk_json *order = stk_json_get(ask, "order");
    char folder[PATH_MAX];
    ssh_job_now now;
    (void)body, (void)n, (void)ret_body;
    STK_TRY(stk_ssh_job_folder(stk_json_get_text(ask, "name"), folder, err));
    STK_TRY(stk_ssh_job_look(folder, &now, err));
    if (now.state == SSH_JOB_NONE || now.state == SSH_JOB_NEW) {
        int rc = make_job(folder, order, stk_json_get(ask, "secrets"), err);
        STK_TRY(stk_ssh_job_look(folder, &now, NULL));
        if (now.state == SSH_JOB_NEW && !stk_ssh_has_room(folder)) {
            (void)stk_file_remove_tree(folder, NULL); /* another host may get it */
            return stk_err_sys(err, STK_E_FULL, ENOSPC, "starting a job in %s", folder);
        }
        STK_TRY(rc);
    }
    if (now.state == SSH_JOB_NEW) {
        char path[PATH_MAX];
        STK_TEXT_AUTO said = NULL;
        size_t len = 0;
        stk_ssh_job_path(folder, "out", path);
        (void)stk_file_read(path, 1 << 20, &said, &len, NULL);
        return stk_err_set(err, STK_E_ENV, "its keeper didn't begin: %.300s",
                           stk_text_or(stk_text_if_any(said), "it said nothing"));
    }
    stk_json_put_text(ret, "state", stk_ssh_state_word(now.state));
    return 0;
}
