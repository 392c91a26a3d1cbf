#include "cli/cli_cancelling.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"
#include "sys/file.h"

#define STORE_IS "STOKER_STORE="

/* Our environment, but with this store. */
static char **environment_for(const char *store, stk_arena *arena)
{
    size_t n = 0, n_kept = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char **all = (char **)stk_arena_array(arena, n + 2, sizeof *all);
    for (size_t i = 0; all != NULL && i < n; i++) {
        if (store == NULL || strncmp(environ[i], STORE_IS, sizeof STORE_IS - 1) != 0) {
            all[n_kept++] = environ[i];
        }
    }
    if (all != NULL && store != NULL) {
        all[n_kept++] = stk_arena_printf(arena, STORE_IS "%s", store);
    }
    return all;
}

static int spawn_program(stk_cli_cancelling *c, char *const *argv, char *const *env)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t all, none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&files, c->said_fd, 1);
    (void)posix_spawn_file_actions_adddup2(&files, c->said_fd, 2);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setsigdefault(&how, &all);
    (void)posix_spawnattr_setsigmask(&how, &none);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSID);
    int rc = posix_spawn(&c->pid, "/proc/self/exe", &files, &how, argv, env);
    (void)posix_spawn_file_actions_destroy(&files);
    (void)posix_spawnattr_destroy(&how);
    return rc;
}

static int start_cancel(stk_cli_cancelling *c, const char *store, const char *stack, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    char **env = environment_for(store, arena);
    char *argv[] = {
        stk_arena_dup(arena, "stoker"), stk_arena_dup(arena, "cancel"), c->run, NULL, NULL, NULL};
    if (stack != NULL) {
        argv[3] = stk_arena_dup(arena, "--stack");
        argv[4] = stk_arena_dup(arena, stack);
    }
    STK_TRY(stk_err_if_null(env, err));
    stk_cli_cancelling_done(c);
    c->said_fd = memfd_create("said", MFD_CLOEXEC);
    if (c->said_fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making a file for an answer");
    }
    int rc = spawn_program(c, argv, env);
    if (rc != 0) {
        c->pid = 0;
        stk_cli_cancelling_done(c);
        return stk_err_sys(err, STK_E_SYS, rc, "starting 'stoker cancel'");
    }
    return 0;
}

int stk_cli_cancelling_begin(stk_cli_cancelling *c, const char *store, const char *stack,
                             const char *run, stk_err *err)
{
    if (c->pid != 0) {
        return stk_err_set(err, STK_E_BUSY, "another run is being cancelled; try again");
    }
    (void)snprintf(c->run, sizeof c->run, "%s", run);
    c->stack = stack;
    return start_cancel(c, store, NULL, err);
}

bool stk_cli_cancelling_hear(stk_cli_cancelling *c, char *ret_said, size_t size, bool *ret_done)
{
    int status = 0;
    if (c->pid == 0 || waitpid(c->pid, &status, WNOHANG) != c->pid) {
        return false;
    }
    *ret_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ssize_t n = pread(c->said_fd, ret_said, size - 1, 0);
    ret_said[n > 0 ? n : 0] = '\0';
    ret_said[strcspn(ret_said, "\n")] = '\0';
    if (ret_said[0] == '\0') {
        (void)snprintf(ret_said, size, "%s", *ret_done ? "done" : "this was not possible");
    }
    const char *stack = c->stack;
    c->pid = 0;
    c->stack = NULL;
    stk_cli_cancelling_done(c);
    return *ret_done || stack == NULL || start_cancel(c, NULL, stack, NULL) < 0;
}

void stk_cli_cancelling_done(stk_cli_cancelling *c)
{
    stk_file_close(&c->said_fd);
}
