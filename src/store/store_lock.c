/* Open-file-description locks belong to an open file, not to a process. So they survive closing
 * another descriptor of the same file, and asking for the holder never takes the lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"
#include "store/store_private.h"
#include "sys/clock.h"
#include "sys/faults.h"
#include "sys/file.h"
#include "sys/proc.h"

int stk_store_lock(int fd, int kind, int64_t first, int64_t n, bool wait)
{
    struct flock lock = {.l_type = (short)kind, .l_whence = SEEK_SET, .l_start = first, .l_len = n};
    while (fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock) < 0) {
        if (errno != EINTR) {
            return errno == EACCES ? EAGAIN : errno;
        }
    }
    return 0;
}

bool stk_store_is_locked(int fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

int stk_store_write_holder(int fd)
{
    char host[65] = "";
    char text[192];
    (void)gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "%d %llu %s %s\n", (int)getpid(),
                     (unsigned long long)stk_proc_start_time(getpid()), stk_clock_boot_id(), host);
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        stk_file_write_all(fd, text, (size_t)n) < 0) {
        return errno;
    }
    return 0;
}

void stk_store_read_holder(int fd, char *buf, size_t size)
{
    char text[192];
    char host[65] = "";
    int pid = 0;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[MAX(n, 0)] = '\0';
    if (sscanf(text, "%d %*s %*s %64s", &pid, host) >= 1) {
        (void)snprintf(buf, size, "process %d%s%s", pid, stk_text_when(host[0], " on "), host);
    } else {
        (void)snprintf(buf, size, "another process");
    }
}

bool stk_store_holder_is_gone(int fd)
{
    char text[192], boot[64] = "", host[65] = "", here[65] = "";
    int pid = 0;
    unsigned long long start = 0;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[MAX(n, 0)] = '\0';
    (void)gethostname(here, sizeof here - 1);
    return sscanf(text, "%d %llu %63s %64s", &pid, &start, boot, host) == 4 &&
           strcmp(host, here) == 0 && strcmp(boot, stk_clock_boot_id()) == 0 &&
           stk_proc_start_time(pid) != start;
}

int stk_store_no_lock(int code, stk_err *err)
{
    if (code != STK_E_FULL) {
        stk_err_hint(err,
                     "a store needs a file system with locks; set STOKER_STORE to a folder on one");
    }
    return code;
}

int stk_store_use_begin(stk_store *store, stk_err *err)
{
    if (store->in_use || store->lock_fd < 0) {
        return 0;
    }
    int sys = stk_store_lock(store->lock_fd, F_RDLCK, 0, 1, true);
    if (sys != 0) {
        int code = stk_err_sys(err, STK_E_SYS, sys, "can't lock '%s/lock'", store->path);
        return stk_store_no_lock(code, err);
    }
    store->in_use = true;
    return 0;
}

void stk_store_use_end(stk_store *store)
{
    stk_store_read_end(store);
    if (store->in_use) {
        (void)stk_store_lock(store->lock_fd, F_UNLCK, 0, 1, false);
        store->in_use = false;
    }
}

int stk_store_gc_begin(stk_store *store, stk_err *err)
{
    stk_store_use_end(store);
    int sys = 0;
    for (int ms = 0; ms < STK_STORE_BUSY_MS; ms += 10) {
        sys = stk_store_lock(store->lock_fd, F_WRLCK, 0, 1, false);
        if (sys != EAGAIN) {
            break;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    if (sys == EAGAIN) {
        stk_err_set(err, STK_E_BUSY, "store '%s': an engine is storing artifacts", store->path);
        stk_err_hint(err, "try again when it has finished");
        return STK_E_BUSY;
    }
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't lock '%s/lock'", store->path);
    }
    return 0;
}

void stk_store_gc_end(stk_store *store)
{
    (void)stk_store_lock(store->lock_fd, F_UNLCK, 0, 1, false);
}
