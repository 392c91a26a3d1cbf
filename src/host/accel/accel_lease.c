/* Leases: open-file-description locks on one file per device (layout: accel_lease.h). The kernel
 * keeps a lock as long as any process holds a copy of the descriptor, so a lease ends with the last
 * process of its task, however that process ends, and never earlier; no cleanup is needed.
 *
 * No process waits while it holds a lock, and all lock devices in the order of the list: if several
 * want the same devices, the one that got furthest wins. */
#include "host/accel/accel_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "host/accel/accel_priv.h"
#include "sys/file.h"
#include "sys/proc.h"

static bool make_shared_dir(const char *path)
{
    if (mkdir(path, 01777) == 0) {
        (void)chmod(path, 01777); /* despite the umask */
    }
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, W_OK | X_OK) == 0;
}

/* In a container /run/lock is the container's own, unless the host's folder is mounted there. */
static bool is_mount_or_host(const char *path)
{
    struct stat here, parent;
    bool container = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;
    return !container || (stat(path, &here) == 0 && stat("/run/lock", &parent) == 0 &&
                          here.st_dev != parent.st_dev);
}

const char *stk_lease_dir(bool *ret_private)
{
    static char dir[512]; /* constant for one environment, so callers needn't copy it */
    const char *set = getenv("STOKER_LEASE_DIR");
    bool is_private = false;
    if (set != NULL && *set != '\0') {
        (void)snprintf(dir, sizeof dir, "%s", set);
        (void)make_shared_dir(dir);
    } else if (make_shared_dir("/run/lock/stoker")) {
        (void)snprintf(dir, sizeof dir, "/run/lock/stoker");
        is_private = !is_mount_or_host(dir);
    } else {
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        if (runtime != NULL && *runtime == '/') {
            (void)snprintf(dir, sizeof dir, "%s/stoker-lease", runtime);
        } else {
            (void)snprintf(dir, sizeof dir, "/tmp/stoker-lease-%u", (unsigned)getuid());
        }
        (void)mkdir(dir, 0700);
        is_private = true;
    }
    if (ret_private != NULL) {
        *ret_private = is_private;
    }
    return dir;
}

int stk_lease_level(void)
{
    long n = strtol(stk_text_or(getenv("STOKER_LEASE_LEVEL"), "0"), NULL, 10);
    return (int)MIN(MAX(n, 0), STK_LEASE_LEVEL_MAX);
}

int stk_lease_path(const stk_device *device, char *ret_path, size_t size)
{
    const char *dir = stk_lease_dir(NULL);
    int n = snprintf(ret_path, size, "%s/%s-%s", dir, device->vendor,
                     stk_text_or(device->uuid, "unknown"));
    /* Old drivers name slices MIG-GPU-…/1/0: a file name can't contain the slashes. */
    for (size_t i = strlen(dir) + 1; n > 0 && (size_t)n < size && i < (size_t)n; i++) {
        if (strchr("/ \n\t", ret_path[i]) != NULL) {
            ret_path[i] = '_';
        }
    }
    return n > 0 && (size_t)n < size ? 0 : -1;
}

/* Creates the file, readable and writable for everybody; -1 with errno. The file gets its mode
 * before its name: an engine killed between the two steps would otherwise lock out all other users
 * for good. We can't change the umask, because it also applies to other threads. */
static int make_lock(const char *dir, const char *path)
{
    char link[64];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (fd >= 0 && fchmod(fd, 0666) == 0 &&
        linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0) {
        return fd;
    }
    int sys = errno;
    stk_file_close(&fd);
    if (sys == EEXIST) {
        errno = sys;
        return -1;
    }
    /* This file system doesn't support O_TMPFILE. */
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL, 0666);
    if (fd >= 0) {
        (void)fchmod(fd, 0666);
    }
    return fd;
}

/* Tries to open before it creates: the kernel refuses O_CREAT on other users' files in a shared
 * folder (fs.protected_regular). */
int stk_lease_open_lock(const char *path)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, flags);
    for (int i = 0; fd < 0 && errno == ENOENT && i < 8; i++) {
        char dir[PATH_MAX];
        (void)snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
        fd = make_lock(dir, path);
        if (fd < 0 && errno == EEXIST) {
            fd = open(path, flags);
        }
    }
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = EINVAL;
        fd = -1;
    }
    return fd;
}

/* A cleaner of /run may have removed the file that we locked; the next engine would then lock a new
 * one. */
bool stk_lease_is_current(int fd, const char *path)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && lstat(path, &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
}

static int lock_range(int fd, short type, off_t from, off_t len)
{
    struct flock lock = {.l_type = type,
                         .l_whence = SEEK_SET,
                         .l_start = stk_lease_level() * STK_LEASE_SPAN + from,
                         .l_len = len};
    int rc = fcntl(fd, F_OFD_SETLK, &lock);
    if (rc < 0 && errno == EACCES) {
        errno = EAGAIN;
    }
    return rc;
}

/* The label is only information for others: without it (no free slot, disk full) the lock still
 * holds. */
static void write_label(int fd, const char *label)
{
    char text[STK_LEASE_LABEL] = {0};
    stk_lease_sign(label, text, sizeof text);
    for (int slot = 0; slot < STK_LEASE_SLOTS; slot++) {
        int rc = stk_lease_write_slot(fd, STK_LEASE_MEMORY + 2 * slot,
                                      stk_lease_level() * STK_LEASE_SLOTS + slot, text);
        if (rc >= 0 || errno != EAGAIN) {
            return;
        }
    }
}

void stk_lease_sign(const char *label, char *ret_text, size_t size)
{
    static char user[48]; /* looked up once */
    static uid_t of = (uid_t)-1;
    if (of != geteuid()) {
        of = geteuid();
        (void)stk_proc_user(of, user);
    }
    (void)snprintf(ret_text, size, "%.400s (user %s, pid %d)", stk_text_or(label, "somebody"), user,
                   (int)getpid());
}

int stk_lease_write_slot(int fd, off_t lock, int i_text, const char text[STK_LEASE_LABEL])
{
    if (lock_range(fd, F_WRLCK, lock, 1) < 0) {
        return -1;
    }
    ssize_t n = pwrite(fd, text, STK_LEASE_LABEL, (off_t)i_text * STK_LEASE_LABEL);
    if (n != STK_LEASE_LABEL) {
        if (n >= 0 || errno == EAGAIN) {
            errno = ENOSPC;
        }
        return -1;
    }
    return lock_range(fd, F_WRLCK, lock + 1, 1);
}

/* Locks n_mib of the device's memory in one or more pieces; their positions have no meaning. -1
 * with errno EAGAIN if too little is free; some pieces may then be locked, so the caller must close
 * fd.
 */
static int lock_share(int fd, int64_t total_mib, int64_t n_mib)
{
    off_t at = 0;
    bool looked = false;
    for (int i = 0; n_mib > 0 && i < 1 << 16; i++) {
        off_t len = MIN(n_mib, total_mib - at);
        if (len <= 0) {
            break;
        }
        off_t from = 0, held = 0;
        while (len > 0 && stk_lease_conflict(fd, F_WRLCK, at, len, &from, &held)) {
            /* Check first that enough is free: others would see a useless lock as memory in use. */
            if (!looked && stk_lease_free_mib(fd, F_WRLCK, at, total_mib - at) < n_mib) {
                errno = EAGAIN;
                return -1;
            }
            looked = true;
            len = from - at;
        }
        if (len == 0) {
            at = from + held;
        } else if (lock_range(fd, F_WRLCK, at, len) == 0) {
            at += len;
            n_mib -= len;
        } else if (errno != EAGAIN) {
            return -1;
        } /* else another process was quicker: retry */
    }
    errno = EAGAIN;
    return n_mib > 0 ? -1 : 0;
}

/* Opens and locks a device's file; share_mib 0: the whole device. -1 with errno EAGAIN if others
 * hold it, or claim it and come before us. A claim made just after our check waits for us, as for
 * any other holder. */
static int lock_file(const stk_accel *accel, const stk_device *device, short type,
                     int64_t share_mib, const char *label)
{
    char path[768];
    if (stk_lease_path(device, path, sizeof path) < 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int i = 0; i < 16; i++) {
        int fd = stk_lease_open_lock(path);
        if (fd < 0) {
            return -1;
        }
        int rc = -1;
        if (stk_lease_claimed_before(fd, stk_lease_own_claim(accel), NULL)) {
            errno = EAGAIN;
        } else if (share_mib > 0) {
            rc = lock_share(fd, stk_lease_total_mib(device), share_mib);
        } else {
            rc = lock_range(fd, type, 0, STK_LEASE_MEMORY);
        }
        if (rc < 0) {
            int why = errno;
            close(fd);
            errno = why;
            return -1;
        }
        if (stk_lease_is_current(fd, path)) {
            write_label(fd, label);
            return fd;
        }
        close(fd);
    }
    errno = EAGAIN;
    return -1;
}

/* Adds device i to the lease; -1 with errno. */
static int take_one(const stk_accel *accel, uint32_t i, int64_t share_mib, const char *label,
                    stk_lease *lease)
{
    const stk_device *device = &accel->devices[i];
    int parent_fd = -1;
    if (device->parent >= 0) {
        parent_fd = lock_file(accel, &accel->devices[device->parent], F_RDLCK, 0, label);
        if (parent_fd < 0) {
            return -1;
        }
    }
    int fd = lock_file(accel, device, F_WRLCK, share_mib, label);
    if (fd < 0) {
        int why = errno;
        stk_file_close(&parent_fd);
        errno = why;
        return -1;
    }
    lease->devices[lease->n++] = i;
    lease->fds[lease->n_fds++] = fd;
    if (parent_fd >= 0) {
        lease->fds[lease->n_fds++] = parent_fd;
    }
    return 0;
}

/* The error for a lock that failed for another reason than a holder. */
static int cannot_lock(const stk_device *device, int why, stk_err *err)
{
    char name[64];
    int rc = stk_err_sys(err, STK_E_SYS, why, "leasing %s in '%s'",
                         stk_lease_name(device, name, sizeof name), stk_lease_dir(NULL));
    stk_err_hint(err,
                 "name a folder that every user of this host may write to in STOKER_LEASE_DIR");
    return rc;
}

/* --- stk_lease_take --- */

static int check_ask(const stk_accel *accel, const stk_devset *devices, int64_t share_mib,
                     stk_err *err)
{
    char name[64], have[32], want[32];
    uint32_t n = stk_devset_count(devices);
    if (n > STK_LEASE_DEVICES) {
        return stk_err_set(err, STK_E_RESOURCES, "%u devices asked for at once; %d is the most", n,
                           STK_LEASE_DEVICES);
    }
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        if (!stk_devset_has(devices, i)) {
            continue;
        }
        if (i >= accel->n) {
            return stk_err_set(err, STK_E_BUG, "device %u to be leased; there are %u", i, accel->n);
        }
        const stk_device *device = &accel->devices[i];
        int64_t total = stk_lease_total_mib(device);
        (void)stk_lease_name(device, name, sizeof name);
        if (!device->usable) {
            return stk_err_set(
                err, STK_E_RESOURCES, "%s can't be leased: %s", name,
                stk_text_or(device->trouble, "it is split into slices: lease those"));
        }
        if (share_mib > 0 && total < 0) {
            return stk_err_set(err, STK_E_RESOURCES,
                               "%s: its memory size is unknown, so no share of it can be leased; "
                               "ask for the whole device",
                               name);
        }
        if (share_mib > total && share_mib > 0) {
            return stk_err_set(err, STK_E_RESOURCES,
                               "%s has %s of memory, but the request is for %s", name,
                               stk_units_format_memory(total << 20, have, sizeof have),
                               stk_units_format_memory(share_mib << 20, want, sizeof want));
        }
    }
    return 0;
}

/* Reports which of the devices are held, and by whom. `i_failed` is the device whose lock has just
 * failed. */
static int tell_busy(const stk_accel *accel, const stk_devset *devices, int64_t share_mib,
                     uint32_t i_failed, stk_devset *ret_busy, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(1u << 20);
    STK_BUF_AUTO text = STK_BUF_INIT(600);
    stk_devset busy = {{0}};
    char name[64], left[32];
    for (uint32_t i = 0; i < accel->n; i++) {
        if (!stk_devset_has(devices, i)) {
            continue;
        }
        const stk_device *device = &accel->devices[i];
        const char *holder = stk_lease_who(accel, i, scratch);
        STK_FD_AUTO fd = stk_lease_open_to_look(device);
        int64_t free_mib = stk_lease_unleased(fd, device) >> 20;
        if (i != i_failed && (holder == NULL || (share_mib > 0 && free_mib >= share_mib))) {
            continue;
        }
        stk_devset_add(&busy, i);
        stk_buf_separate(&text, ", ");
        stk_buf_text(&text, stk_lease_name(device, name, sizeof name));
        if (share_mib > 0 && free_mib > 0) {
            stk_buf_printf(&text, " (%s left)",
                           stk_units_format_memory(free_mib << 20, left, sizeof left));
        }
        stk_buf_printf(&text, ": %s", stk_text_or(holder, "a process that has just released it"));
    }
    if (ret_busy != NULL) {
        *ret_busy = busy;
    }
    uint32_t n = stk_devset_count(devices);
    return stk_err_set(err, STK_E_BUSY, "%u device%s to be leased, %u held: %s", n,
                       stk_text_plural(n), stk_devset_count(&busy), stk_text_or(text.data, ""));
}

int stk_lease_take(stk_accel *accel, const stk_devset *devices, int64_t share_bytes,
                   const char *label, stk_lease *ret_lease, stk_devset *ret_busy, stk_err *err)
{
    stk_lease lease = {.share_bytes = MAX(share_bytes, 0)};
    int64_t share_mib = (lease.share_bytes + (1 << 20) - 1) >> 20;
    STK_TRY(check_ask(accel, devices, share_mib, err));
    for (uint32_t i = 0; i < accel->n; i++) {
        if (stk_devset_has(devices, i) && take_one(accel, i, share_mib, label, &lease) < 0) {
            int why = errno;
            stk_lease_drop(&lease);
            if (why == EAGAIN) {
                return tell_busy(accel, devices, share_mib, i, ret_busy, err);
            }
            return cannot_lock(&accel->devices[i], why, err);
        }
    }
    *ret_lease = lease;
    return 0;
}

void stk_lease_drop(stk_lease *lease)
{
    for (uint32_t i = 0; lease->n > 0 && i < lease->n_fds; i++) {
        close(lease->fds[i]);
    }
    lease->n = lease->n_fds = 0;
}
