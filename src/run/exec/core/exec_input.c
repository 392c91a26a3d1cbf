/* The files of a command's inputs. A step's changes to them must not reach the store, so each is a
 * clone, or a copy if it is small. Otherwise it is the stored file, mounted read-only if the engine
 * can, and checked after the step. docs/store.md has the costs. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

/* The digest of one input, or item of a list, in a fixed graph; NULL: it has none. */
static const char *digest_of_input(const stk_exec *x, const stk_input *in)
{
    if (in->kind == STK_INPUT_ARTIFACT) {
        return in->text;
    }
    return in->kind == STK_INPUT_OUTPUT ? x->tasks[in->step].outputs[in->output].digest : NULL;
}

int stk_exec_input_digests(stk_exec *x, uint32_t task, const stk_input *in, stk_arena *arena,
                           const char ***ret_digests, uint32_t *ret_n, stk_err *err)
{
    const exec_artifact **found = NULL;
    bool is_list = in->kind == STK_INPUT_LIST;
    uint32_t n = is_list ? in->n_items : 1;
    if (x->graph.grow != NULL && in->kind != STK_INPUT_ARTIFACT) {
        STK_TRY(stk_exec_scope_from(x, task, in, &found, &n, err));
        if (!is_list && !stk_exec_step(x, task)->is_join) {
            n = 1;
        }
    }
    const char **digests = stk_arena_array(arena, (size_t)n + 1, sizeof *digests);
    STK_TRY(stk_err_if_null(digests, err));
    for (uint32_t i = 0; i < n; i++) {
        if (found != NULL) {
            digests[i] = found[i]->ref.digest;
        } else {
            digests[i] = digest_of_input(x, is_list ? &in->items[i] : in);
        }
    }
    *ret_digests = digests;
    *ret_n = n;
    return 0;
}

const char *stk_exec_input_item(stk_arena *arena, const char *folder, uint32_t n, uint32_t i)
{
    int width = snprintf(NULL, 0, "%u", MAX(n, 1) - 1);
    return stk_arena_printf(arena, "%s/%0*u", folder, width, i);
}

static int link_to(const char *path, const char *at, stk_err *err)
{
    if (symlink(path, at) < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_SYS, errno, "linking %s", at);
    }
    return 0;
}

/* Makes the step's own file. Returns 0, or 1: it can't be cloned and is too large to copy. */
static int clone_or_copy(stk_exec *x, const char *path, const struct stat *st, bool may_copy,
                         const char *at, stk_err *err)
{
    char text[STK_LIMIT_INPUT_COPY];
    if (x->no_clones && !may_copy) {
        return 1;
    }
    mode_t mode = (st->st_mode & 0111) != 0 ? 0755 : 0644;
    STK_FD_AUTO from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    STK_FD_AUTO to = -1;
    if (from >= 0) {
        to = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    if (to < 0) {
        if (errno == EEXIST) {
            return 0;
        }
        return stk_err_sys(err, STK_E_SYS, errno, "making input %s", at);
    }
    if (!x->no_clones && st->st_size > 0) {
        if (ioctl(to, FICLONE, from) == 0) {
            return 0;
        }
        x->no_clones = true;
    }
    if (!may_copy && unlink(at) == 0) {
        return 1;
    }
    if (!may_copy) {
        return stk_err_sys(err, STK_E_SYS, errno, "making input %s", at);
    }
    ssize_t n = pread(from, text, sizeof text, 0);
    if (n == st->st_size && stk_file_write_all(to, text, (size_t)n) == 0) {
        return 0;
    }
    return stk_err_sys(err, STK_E_SYS, errno, "copying input %s", at);
}

/* Tries it once, because nothing lists what the kernel, a container and a policy allow together. */
static bool can_mount(stk_exec *x)
{
    enum { UNKNOWN, YES, NO };
    if (x->mounts == UNKNOWN && geteuid() != 0) {
        x->mounts = NO;
    }
    if (x->mounts == UNKNOWN) {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0) {
            const char *at = x->folder;
            _exit(unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
                  mount(at, at, NULL, MS_BIND, NULL) < 0 ||
                  mount(NULL, at, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0);
        }
        bool is_done = pid > 0 && waitpid(pid, &status, 0) == pid;
        x->mounts = is_done && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? YES : NO;
    }
    return x->mounts == YES;
}

static int add_path(exec_inputs *inputs, const char *path, stk_err *err)
{
    const char **paths = stk_arena_grow(inputs->arena, inputs->mounts, inputs->n_mounts,
                                        sizeof *paths, &inputs->cap_mounts);
    STK_TRY(stk_err_if_null(paths, err));
    inputs->mounts = paths;
    paths[inputs->n_mounts++] = path;
    return 0;
}

/* Makes a file or folder on which the stored one is mounted. */
static int put_mount(exec_inputs *inputs, const char *path, bool is_dir, const char *at,
                     stk_err *err)
{
    STK_FD_AUTO fd = -1;
    int made =
        is_dir ? mkdir(at, 0555) : (fd = open(at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
    if (made < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_SYS, errno, "making input %s", at);
    }
    STK_TRY(add_path(inputs, path, err));
    return add_path(inputs, at, err);
}

int stk_exec_input_put(stk_exec *x, exec_inputs *inputs, const char *path, const char *at,
                       bool *ret_is_own, stk_err *err)
{
    struct stat st;
    *ret_is_own = false;
    STK_TRY(stk_err_if_null(at, err));
    if (inputs->is_elsewhere || lstat(path, &st) < 0) {
        return link_to(path, at, err);
    }
    bool may_copy = st.st_size <= STK_LIMIT_INPUT_COPY && inputs->n_copied < STK_LIMIT_INPUT_COPIES;
    if (S_ISREG(st.st_mode)) {
        int rc = clone_or_copy(x, path, &st, may_copy, at, err);
        inputs->n_copied += rc == 0;
        *ret_is_own = rc == 0;
        if (rc <= 0) {
            return rc;
        }
    }
    if (inputs->may_mount && inputs->n_mounts < 2 * STK_LIMIT_INPUT_MOUNTS && can_mount(x)) {
        *ret_is_own = true;
        return put_mount(inputs, path, S_ISDIR(st.st_mode), at, err);
    }
    /* A program that replaces a file replaces the link. A folder's modes forbid changes, and a
     * program that copies a folder doesn't expect a link. */
    *ret_is_own = S_ISREG(st.st_mode);
    return link_to(path, at, err);
}

const char *const *stk_exec_input_mounts(exec_inputs *inputs)
{
    if (inputs->n_mounts == 0 || add_path(inputs, NULL, NULL) < 0) {
        return NULL;
    }
    return inputs->mounts;
}

bool stk_exec_may_mount(const stk_exec *x, uint32_t task)
{
    bool may = true;
    for (int i = 0; i < STK_HOOK_N; i++) { /* a hook runs in another process and reads them, too */
        may = may && stk_exec_step(x, task)->settings->hooks[i].python == NULL;
    }
    return may;
}

/* --- after the step --- */

/* True also for a Python step, because a user's materializer gets the path of the stored file. */
static bool is_looked_at(const stk_exec *x, uint32_t task)
{
    const stk_step *step = stk_exec_step(x, task);
    return step->n_inputs > 0 && !stk_exec_is_contained(x, task) && !stk_exec_is_away(x, task);
}

static int look_at_input(stk_exec *x, uint32_t task, const stk_input *in, stk_err *err)
{
    const char **digests = NULL;
    uint32_t n = 0;
    if (in->kind != STK_INPUT_OUTPUT && in->kind != STK_INPUT_ARTIFACT &&
        in->kind != STK_INPUT_LIST) {
        return 0;
    }
    int rc = stk_exec_input_digests(x, task, in, x->scratch, &digests, &n, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const char *path = NULL;
        bool comes = false;
        if (digests[i] == NULL) {
            continue;
        }
        if (!x->tasks[task].looks_at_inputs) {
            stk_store_look_again(x->config.store, digests[i]);
        }
        rc = stk_exec_sum_artifact(x->sum, x->config.store, digests[i], &comes, err);
        if (rc == 0 && !comes) {
            rc = stk_store_locate(x->config.store, digests[i], x->scratch, &path, NULL, err);
        }
    }
    if (rc == STK_E_STORE || rc == STK_E_NOT_FOUND) {
        rc = stk_err_context(err, "input '%s' was changed while the step ran", in->name);
        stk_err_hint(err, "work on a copy of it; `stoker resume` makes the input again");
    }
    return rc;
}

int stk_exec_inputs_look(stk_exec *x, uint32_t task, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    int rc = 0;
    for (uint32_t i = 0; is_looked_at(x, task) && i < step->n_inputs && rc == 0; i++) {
        rc = look_at_input(x, task, &step->inputs[i], err);
    }
    x->tasks[task].looks_at_inputs = true;
    return rc;
}

static bool has_command_hooks(const stk_step *step)
{
    bool has = false;
    for (int i = 0; i < STK_HOOK_N; i++) {
        has = has || step->settings->hooks[i].run != NULL;
    }
    return has;
}

/* Replaces copies and mount points by links. Keeps files that the step has changed. */
static void put_back(stk_exec *x, const char *at, const char *digest, bool has_succeeded)
{
    struct stat st;
    const char *path = NULL;
    if (at == NULL || digest == NULL || lstat(at, &st) < 0 || S_ISLNK(st.st_mode) ||
        stk_store_locate(x->config.store, digest, x->scratch, &path, NULL, NULL) < 0) {
        return;
    }
    mode_t mode_of_place = S_ISDIR(st.st_mode) ? 0555 : 0444;
    if (((st.st_mode & 0777) == mode_of_place || has_succeeded) && remove(at) == 0) {
        (void)link_to(path, at, NULL);
    }
}

void stk_exec_inputs_done(stk_exec *x, uint32_t task, const char *dir, bool has_succeeded)
{
    const stk_step *step = stk_exec_step(x, task);
    bool is_done = is_looked_at(x, task) && step->python == NULL &&
                   !has_command_hooks(step); /* which may still use them */
    x->tasks[task].looks_at_inputs = false;
    for (uint32_t i = 0; is_done && i < step->n_inputs; i++) {
        const stk_input *in = &step->inputs[i];
        const char **digests = NULL;
        uint32_t n = 0;
        bool is_one =
            in->kind == STK_INPUT_ARTIFACT || (in->kind == STK_INPUT_OUTPUT && !step->is_join);
        bool is_list = in->kind == STK_INPUT_LIST || (in->kind == STK_INPUT_OUTPUT && !is_one);
        if ((!is_one && !is_list) ||
            stk_exec_input_digests(x, task, in, x->scratch, &digests, &n, NULL) < 0) {
            continue;
        }
        const char *at = stk_arena_printf(x->scratch, "%s/in/%s", dir, in->name);
        for (uint32_t k = 0; k < n && k < STK_LIMIT_INPUT_MOUNTS + STK_LIMIT_INPUT_COPIES; k++) {
            const char *item = is_one ? at : stk_exec_input_item(x->scratch, at, n, k);
            put_back(x, item, digests[k], has_succeeded);
        }
    }
}
