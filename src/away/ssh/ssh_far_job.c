/* A job's folder on its host. Whether its keeper lives is a question to the kernel, which knows the
 * holder of a lock; a number of a process may belong to another one. */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { FILE_BYTES = 64 << 10, ROOM_BYTES = 64 << 10 };

static const char *const words[] = {[SSH_JOB_NONE] = "none",
                                    [SSH_JOB_NEW] = "new",
                                    [SSH_JOB_LIVE] = "live",
                                    [SSH_JOB_ENDED] = "ended",
                                    [SSH_JOB_LOST] = "lost"};

const char *stk_ssh_state_word(ssh_job_state state)
{
    return words[state];
}

ssh_job_state stk_ssh_state_of(const char *word)
{
    for (size_t i = 0; word != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(words[i], word) == 0) {
            return (ssh_job_state)i;
        }
    }
    return SSH_JOB_NONE;
}

const char *stk_ssh_home(void)
{
    const char *home = stk_text_if_any(getenv("HOME"));
    if (home != NULL) {
        return home;
    }
    const struct passwd *user = getpwuid(geteuid());
    if (user == NULL) {
        return NULL;
    }
    return user->pw_dir;
}

bool stk_ssh_has_room(const char *folder)
{
    struct statvfs fs;
    if (statvfs(folder, &fs) < 0) {
        return true;
    }
    bool has_inodes = fs.f_files == 0 || fs.f_favail > 0;
    return has_inodes && (int64_t)fs.f_bavail * (int64_t)fs.f_frsize >= ROOM_BYTES;
}

/* A name is a part of a path, and comes from another machine. */
static int check_name(const char *name, stk_err *err)
{
    size_t n = strlen(stk_text_or(name, ""));
    if (n == 0 || n > SSH_NAME || name[0] == '.' ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != n) {
        return stk_err_set(err, STK_E_PROTOCOL, "'%.80s' can't be the name of a job",
                           stk_text_or(name, ""));
    }
    return 0;
}

/* Machines may share a home, but not jobs. */
int stk_ssh_job_folder(const char *name, char ret[PATH_MAX], stk_err *err)
{
    struct utsname machine;
    const char *state = stk_text_if_any(getenv("XDG_STATE_HOME")), *home = stk_ssh_home();
    STK_TRY(check_name(name, err));
    if (uname(&machine) < 0 || strchr(machine.nodename, '/') != NULL) {
        (void)snprintf(machine.nodename, sizeof machine.nodename, "host");
    }
    if (state == NULL && home == NULL) {
        return stk_err_set(err, STK_E_ENV, "this user has no home there, and HOME isn't set");
    }
    int n = state != NULL
                ? snprintf(ret, PATH_MAX, "%s/stoker/jobs/%s", state, machine.nodename)
                : snprintf(ret, PATH_MAX, "%s/.local/state/stoker/jobs/%s", home, machine.nodename);
    if (n < 0 || n + (int)strlen(name) + 80 >= PATH_MAX) {
        return stk_err_sys(err, STK_E_ENV, ENAMETOOLONG, "%s", ret);
    }
    STK_TRY(stk_file_mkdirs(ret, 0700, err));
    (void)snprintf(ret + n, PATH_MAX - (size_t)n, "/%s", name);
    return 0;
}

void stk_ssh_job_path(const char *folder, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/%s", folder, name);
}

int stk_ssh_job_lock(const char *folder, int *ret_fd, stk_err *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    stk_ssh_job_path(folder, "lock", path);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "opening %s", path);
    }
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0) {
        return errno == EAGAIN || errno == EACCES
                   ? stk_err_set(err, STK_E_BUSY, "another keeper has %s", path)
                   : stk_err_sys(err, STK_E_ENV, errno, "locking %s", path);
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

/* Asks without taking it, so that a keeper that begins at this moment isn't refused. */
static bool is_locked(const char *folder)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[PATH_MAX];
    stk_ssh_job_path(folder, "lock", path);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDWR, 0);
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
}

/* One of the small files; NULL: it isn't there. */
static const stk_json *read_small(const char *folder, const char *name, stk_arena *arena)
{
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_ssh_job_path(folder, name, path);
    if (stk_file_read(path, FILE_BYTES, &text, &len, NULL) < 0) {
        return NULL;
    }
    return stk_json_readn(arena, text, len);
}

static bool read_end(const char *folder, ssh_job_now *ret)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *end = read_small(folder, "end", arena);
    if (end == NULL) {
        return false;
    }
    ret->state = SSH_JOB_ENDED;
    ret->exit_status = (int)stk_json_get_whole(end, "exit_status", -1);
    ret->signal = (int)stk_json_get_whole(end, "signal", 0);
    (void)snprintf(ret->text, sizeof ret->text, "%s",
                   stk_text_or(stk_json_get_text(end, "text"), ""));
    return true;
}

/* The keeper has begun, doesn't live, and left no end. */
static void say_lost(const char *folder, ssh_job_now *ret)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *boot = stk_json_get_text(read_small(folder, "begun", arena), "boot");
    bool is_other = boot != NULL && strcmp(boot, stk_clock_boot_id()) != 0;
    ret->state = SSH_JOB_LOST;
    (void)snprintf(ret->text, sizeof ret->text, "%s",
                   is_other ? "the host was started again meanwhile"
                            : "its keeper was ended from outside");
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    stk_ssh_job_path(folder, name, path);
    return stk_file_exists(path);
}

/* The lock is asked before the end is read: a keeper that ends in between has written it. */
int stk_ssh_job_look(const char *folder, ssh_job_now *ret, stk_err *err)
{
    char path[PATH_MAX];
    struct stat st;
    *ret = (ssh_job_now){.exit_status = -1};
    if (stat(folder, &st) < 0) {
        if (errno == ENOENT) {
            return 0;
        }
        return stk_err_sys(err, STK_E_ENV, errno, "%s", folder);
    }
    bool has_begun = has_file(folder, "begun");
    bool lives = is_locked(folder);
    stk_ssh_job_path(folder, "out", path);
    if (!read_end(folder, ret)) {
        ret->state = SSH_JOB_NEW;
        if (has_begun && lives) {
            ret->state = SSH_JOB_LIVE;
        } else if (has_begun) {
            say_lost(folder, ret);
        }
    }
    ret->is_held = has_file(folder, "held");
    if (stat(path, &st) == 0) {
        ret->log_bytes = (int64_t)st.st_size;
    }
    return 0;
}
