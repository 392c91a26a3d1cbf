/* Finds programs outside Stoker on a device: processes that compute there without a lease.
 *
 * A process belongs to a lease if it has the device's lock file open. It also does if the device is
 * leased and STOKER_RUN is in its environment: a descendant of a task may have closed the inherited
 * descriptor. We can read neither for other users' processes; we attribute them to a lease if their
 * user holds one on the device. In a container, a pid that names no process may be the host's
 * number: on a leased device we attribute it to the holder. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "host/accel/accel_lease.h"
#include "host/accel/accel_priv.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc.h"

enum { PROCESSES = 64, ENVIRON = 256 << 10 };

/* Whether the process has the lock file open; -1 with errno: unreadable. */
static int has_open(pid_t pid, const struct stat *lock)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read(path, &dir, NULL) < 0) {
        return -1;
    }
    int found = 0;
    for (uint32_t i = 0; !found && lock != NULL && i < dir.n; i++) {
        struct stat st;
        found = fstatat(dir.fd, dir.items[i].name, &st, 0) == 0 && st.st_dev == lock->st_dev &&
                st.st_ino == lock->st_ino;
    }
    return found;
}

bool stk_lease_is_part(const stk_accel *accel, uint32_t i, pid_t pid)
{
    struct stat lock;
    if (i >= accel->n) {
        return false;
    }
    STK_FD_AUTO fd = stk_lease_open_to_look(&accel->devices[i]);
    return fd >= 0 && fstat(fd, &lock) == 0 && has_open(pid, &lock) > 0;
}

static bool is_of_a_run(pid_t pid, stk_arena *scratch)
{
    static const char key[] = "\0STOKER_RUN=";
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = stk_arena_alloc(scratch, ENVIRON);
    if (fd < 0 || text == NULL) {
        return false;
    }
    size_t len = 1; /* starts with a NUL, so that every entry follows one */
    for (ssize_t n; len < ENVIRON && (n = read(fd, text + len, ENVIRON - len)) > 0;) {
        len += (size_t)n;
    }
    return memmem(text, len, key, sizeof key - 1) != NULL;
}

/* "pid 4242 (python, user ann)". */
static void describe(pid_t pid, char *ret_text, size_t size)
{
    char path[32], comm[20], user[48];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (stat(path, &st) < 0) {
        (void)snprintf(ret_text, size, "pid %d (of another container or user)", (int)pid);
        return;
    }
    (void)stk_proc_name(pid, comm, sizeof comm);
    stk_text_tame(comm); /* the program chose this name */
    (void)snprintf(ret_text, size, "pid %d (%s, user %s)", (int)pid,
                   stk_text_or(stk_text_if_any(comm), "unnamed"), stk_proc_user(st.st_uid, user));
}

/* Whether our pids are the host's: a pid that isn't found here has then ended. */
static bool sees_all_processes(void)
{
    char name[32] = "";
    return readlink("/proc/self/ns/pid", name, sizeof name - 1) > 0 &&
           strcmp(name, "pid:[4026531836]") == 0; /* PROC_PID_INIT_INO of the kernel */
}

/* `lock`: the device's lock file, or NULL. `labels`: of the lease holders, NULL: there are none. */
static bool is_outsider(pid_t pid, const struct stat *lock, const char *labels, stk_arena *scratch)
{
    char path[32], user[48], holder[64];
    struct stat st;
    int has = has_open(pid, lock);
    if (has >= 0) {
        return !has && (labels == NULL || !is_of_a_run(pid, scratch));
    }
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (stat(path, &st) < 0) { /* ended, hidden, or of another namespace */
        bool gone = kill(pid, 0) < 0 && errno == ESRCH && sees_all_processes();
        return !gone && labels == NULL;
    }
    (void)snprintf(holder, sizeof holder, "(user %s, pid ", stk_proc_user(st.st_uid, user));
    return labels == NULL || strstr(labels, holder) == NULL;
}

const char *stk_lease_outsiders(stk_accel *accel, uint32_t i, int fd, stk_arena *arena)
{
    stk_device_process processes[PROCESSES];
    STK_BUF_AUTO labels = STK_BUF_INIT(STK_LEASE_SLOTS * (STK_LEASE_LABEL + 2));
    struct stat lock;
    bool looked = false, is_file = fd >= 0 && fstat(fd, &lock) == 0;
    int n = stk_accel_processes(accel, i, processes, PROCESSES);
    char first[160] = "";
    uint32_t n_outside = 0;
    for (int k = 0; k < n; k++) {
        pid_t pid = processes[k].pid;
        if (pid <= 0 || pid == getpid() || processes[k].graphics) {
            continue;
        }
        if (!looked) {
            if (fd >= 0) {
                (void)stk_lease_labels(fd, &labels);
            }
            looked = true;
        }
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        if (!is_outsider(pid, is_file ? &lock : NULL, labels.data, scratch)) {
            continue;
        }
        if (n_outside++ == 0) {
            describe(pid, first, sizeof first);
        }
    }
    if (n_outside < 2) {
        if (n_outside == 0) {
            return NULL;
        }
        return stk_arena_printf(arena, "%s uses it outside Stoker", first);
    }
    return stk_arena_printf(arena, "%s and %u more use it outside Stoker", first, n_outside - 1);
}
