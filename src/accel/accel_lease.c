/* Leases: open-file-description locks on one file a device. The kernel keeps the lock as long as
 * any process holds a copy of the descriptor, so a lease ends with the last process of its task,
 * however that ends, and never before; nobody has to clean up.
 *
 * The lock's range stands for the device's memory, one byte a MiB, so that shares can come later;
 * a whole device takes the whole range. An engine started inside a task that holds devices leases
 * them on: level k's range begins at k * SPAN, and level k's holder is written at k * LABEL in the
 * file's text (locks and text don't touch each other). */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel/accel_priv.h"
#include "base/buf.h"

enum { LABEL = 512, LEVEL_MAX = 15 };
#define SPAN ((off_t)1 << 24) /* 16 TiB of device memory */

static bool make_shared_dir(const char *path)
{
    if (mkdir(path, 01777) == 0) {
        (void)chmod(path, 01777); /* past the umask */
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
    static char dir[512]; /* the same answer for one environment; callers copy nothing */
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

static off_t level(void)
{
    const char *text = getenv("STOKER_LEASE_LEVEL");
    long n = text != NULL ? strtol(text, NULL, 10) : 0;
    return n < 0 ? 0 : n > LEVEL_MAX ? LEVEL_MAX : (off_t)n;
}

static int lock_path(const stk_device *device, char *ret_path, size_t size)
{
    int n = snprintf(ret_path, size, "%s/%s-%s", stk_lease_dir(NULL), device->vendor,
                     device->uuid != NULL ? device->uuid : "unknown");
    if (n < 0 || (size_t)n >= size) {
        return -1;
    }
    for (char *c = strrchr(ret_path, '/') + 1; *c != '\0'; c++) {
        if (strchr("/ \n\t", *c) != NULL) {
            *c = '_';
        }
    }
    return 0;
}

/* Opens a device's lock file, made readable and writable for everybody if new. The kernel refuses
 * O_CREAT on others' files in a shared folder (fs.protected_regular), so it comes second. */
static int open_lock(const char *path)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, flags);
    for (int i = 0; fd < 0 && errno == ENOENT && i < 8; i++) {
        fd = open(path, flags | O_CREAT | O_EXCL, 0666);
        if (fd >= 0) {
            (void)fchmod(fd, 0666);
        } else if (errno == EEXIST) {
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

/* The file that we locked must still be the one of that name: a cleaner of /run may have removed
 * it, and the next engine would lock another. */
static bool is_current(int fd, const char *path)
{
    struct stat ours, named;
    return fstat(fd, &ours) == 0 && lstat(path, &named) == 0 && ours.st_ino == named.st_ino &&
           ours.st_dev == named.st_dev;
}

static struct flock whole(void)
{
    return (struct flock){
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = level() * SPAN, .l_len = SPAN};
}

static void write_label(int fd, const char *label)
{
    char text[LABEL] = {0};
    const struct passwd *user = getpwuid(geteuid());
    char number[16];
    (void)snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    (void)snprintf(text, sizeof text, "%.400s (user %.40s, pid %d)", label ? label : "somebody",
                   user != NULL ? user->pw_name : number, (int)getpid());
    /* Only for others to read: the lock is what counts. */
    (void)!pwrite(fd, text, sizeof text, level() * LABEL);
}

/* A locked descriptor; -1 with errno EAGAIN when somebody holds it. */
static int take_one(const stk_device *device, const char *label)
{
    char path[768];
    if (lock_path(device, path, sizeof path) < 0) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int i = 0; i < 16; i++) {
        int fd = open_lock(path);
        if (fd < 0) {
            return -1;
        }
        struct flock lock = whole();
        if (fcntl(fd, F_OFD_SETLK, &lock) < 0) {
            int why = errno;
            close(fd);
            errno = why == EACCES ? EAGAIN : why;
            return -1;
        }
        if (is_current(fd, path)) {
            write_label(fd, label);
            return fd;
        }
        close(fd);
    }
    errno = EBUSY;
    return -1;
}

const char *stk_lease_holder(const stk_accel *accel, uint32_t i, stk_arena *arena)
{
    char path[768], text[LABEL + 1] = "";
    if (i >= accel->n || lock_path(&accel->devices[i], path, sizeof path) < 0) {
        return NULL;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return NULL;
    }
    struct flock lock = whole();
    bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    const char *holder = NULL;
    if (held) {
        ssize_t n = pread(fd, text, LABEL, level() * LABEL);
        for (char *c = text; *c != '\0'; c++) { /* somebody else's words, for our terminal */
            *c = (unsigned char)*c < ' ' || *c == 0x7f ? '?' : *c;
        }
        holder = stk_arena_dup(arena, n > 0 && text[0] != '\0' ? text : "somebody");
    }
    close(fd);
    return holder;
}

static bool is_candidate(const stk_accel *accel, uint32_t i, const bool *wanted)
{
    return accel->devices[i].usable && (wanted == NULL || wanted[i]);
}

static void name_holders(const stk_accel *accel, const bool *wanted, stk_buf *text)
{
    STK_ARENA_AUTO scratch = stk_arena_new(1u << 20);
    for (uint32_t i = 0; i < accel->n; i++) {
        const char *holder =
            is_candidate(accel, i, wanted) ? stk_lease_holder(accel, i, scratch) : NULL;
        if (holder != NULL) {
            stk_buf_printf(text, "%sGPU %d: %s", text->len ? ", " : "", accel->devices[i].index,
                           holder);
        }
    }
}

static int busy(const stk_accel *accel, uint32_t n, const bool *wanted, uint32_t n_usable,
                uint32_t n_free, stk_err *err)
{
    STK_BUF_AUTO holders = STK_BUF_INIT(600);
    name_holders(accel, wanted, &holders);
    return stk_err_set(err, STK_E_BUSY,
                       "%u GPU%s asked for, %u of %u free now; they are held by %s", n,
                       n == 1 ? "" : "s", n_free, n_usable,
                       holders.len > 0 ? holders.data : "somebody who just let go");
}

int stk_lease_take_any(stk_accel *accel, uint32_t n, const bool *wanted, const char *label,
                       stk_lease *ret_lease, stk_err *err)
{
    const uint32_t n_max = sizeof ret_lease->fds / sizeof ret_lease->fds[0];
    uint32_t n_usable = 0, n_free = 0;
    STK_ARENA_AUTO scratch = stk_arena_new(1u << 20);
    for (uint32_t i = 0; i < accel->n && n > 0; i++) {
        if (is_candidate(accel, i, wanted)) {
            n_usable++;
            n_free += stk_lease_holder(accel, i, scratch) == NULL;
        }
    }
    if (n > n_usable || n > n_max) {
        return stk_err_set(err, STK_E_RESOURCES, "%u GPUs asked for, this machine has %u usable", n,
                           n_usable);
    }
    /* Looking first keeps two that want all devices from grabbing halves in turn. */
    if (n > n_free) {
        return busy(accel, n, wanted, n_usable, n_free, err);
    }
    stk_lease lease = {0};
    for (uint32_t i = 0; i < accel->n && lease.n < n; i++) {
        if (!is_candidate(accel, i, wanted)) {
            continue;
        }
        int fd = take_one(&accel->devices[i], label);
        if (fd >= 0) {
            lease.devices[lease.n] = i;
            lease.fds[lease.n++] = fd;
        } else if (errno != EAGAIN && errno != EBUSY) {
            int why = errno;
            stk_lease_drop(&lease);
            stk_err_sys(err, STK_E_SYS, why, "leasing GPU %d in '%s'", accel->devices[i].index,
                        stk_lease_dir(NULL));
            stk_err_hint(err, "name a folder that every user of this host may write to in "
                              "STOKER_LEASE_DIR");
            return STK_E_SYS;
        }
    }
    if (lease.n < n) {
        uint32_t n_got = lease.n;
        stk_lease_drop(&lease);
        return busy(accel, n, wanted, n_usable, n_got, err);
    }
    *ret_lease = lease;
    return 0;
}

void stk_lease_drop(stk_lease *lease)
{
    for (uint32_t i = 0; i < lease->n; i++) {
        close(lease->fds[i]);
    }
    lease->n = 0;
}

int stk_lease_level(void)
{
    return (int)level();
}
