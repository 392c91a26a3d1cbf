/* The host's resources other than devices: CPUs, memory, shared memory, limits, disk, a port. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>

#include "base/text.h"
#include "base/units.h"
#include "host/accel/accel_sysfs.h"
#include "host/preflight/preflight_private.h"
#include "sys/file.h"
#include "sys/proc.h"

#define MEMORY_LOW_BYTES 1000000000ll
#define SHM_LOW_BYTES (64ll << 20) /* a container's default */
#define DISK_LOW_BYTES 2000000000ll
#define DISK_FULL_BYTES 100000000ll
enum { FILES_LOW = 4096, PROCESSES_LOW = 512, INODES_LOW = 1000, STACK_LOW_BYTES = 1 << 20 };

/* Formats the amount into buf; "?" if unknown. */
static const char *amount(int64_t bytes, char buf[32])
{
    (void)snprintf(buf, 32, "?");
    if (bytes >= 0) {
        (void)stk_units_format_memory(bytes, buf, 32);
    }
    return buf;
}

/* A finding is a warning if it has a remedy. */
static stk_check_level warning_if(const char *remedy)
{
    return remedy != NULL ? STK_CHECK_WARNING : STK_CHECK_OK;
}

static int look_at_memory(stk_findings *f)
{
    char a[32], b[32];
    uint32_t n = stk_proc_n_cpus();
    int64_t available = stk_proc_available_bytes();
    const char *remedy = NULL;
    if (available >= 0 && available < MEMORY_LOW_BYTES) {
        remedy = "end what uses it, or run fewer steps at once (--max-workers)";
    }
    STK_TRY(stk_preflight_add(f, STK_CHECK_OK, "cpus", NULL, NULL, "%u CPU%s may be used", n,
                              stk_text_plural(n)));
    return stk_preflight_add(f, warning_if(remedy), "memory", NULL, remedy,
                             "%s of memory, %s available now", amount(stk_proc_memory_bytes(), a),
                             amount(available, b));
}

static int look_at_shm(stk_findings *f)
{
    struct statvfs shm;
    char a[32], b[32];
    if (statvfs("/dev/shm", &shm) != 0) {
        return stk_preflight_add(f, STK_CHECK_WARNING, "shm", "/dev/shm",
                                 "mount a tmpfs on /dev/shm",
                                 "there is no /dev/shm: PyTorch's data loader workers and NCCL "
                                 "need it");
    }
    int64_t size = (int64_t)(shm.f_blocks * shm.f_frsize);
    int64_t left = (int64_t)(shm.f_bavail * shm.f_frsize);
    const char *remedy = NULL;
    if (size <= SHM_LOW_BYTES) {
        remedy = "give the container more: docker run --shm-size=1g (or --ipc=host)";
    } else if (left < SHM_LOW_BYTES) {
        remedy = "remove what was left there (ls -l /dev/shm), or give it more room";
    }
    return stk_preflight_add(
        f, warning_if(remedy), "shm", "/dev/shm", remedy, "/dev/shm has %s, %s free%s",
        amount(size, a), amount(left, b),
        stk_text_when(remedy != NULL, ": too little for PyTorch's data loader workers and NCCL"));
}

static const char *limit_text(rlim_t value, bool bytes, char buf[32])
{
    if (value == RLIM_INFINITY) {
        return "unlimited";
    }
    if (bytes) {
        return amount((int64_t)value, buf);
    }
    (void)snprintf(buf, 32, "%llu", (unsigned long long)value);
    return buf;
}

static int look_at_files(stk_findings *f)
{
    struct rlimit files;
    char a[32], b[32];
    const char *remedy = NULL;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0) {
        return 0;
    }
    if (files.rlim_max != RLIM_INFINITY && files.rlim_max < FILES_LOW) {
        remedy = "raise the hard limit of open files (ulimit -Hn, limits.conf) to 4096 or more";
    }
    return stk_preflight_add(f, warning_if(remedy), "ulimit", "nofile", remedy,
                             "a process may open %s files, and raise that to %s",
                             limit_text(files.rlim_cur, false, a),
                             limit_text(files.rlim_max, false, b));
}

static int look_at_limits(stk_findings *f)
{
    struct rlimit l;
    char a[32];
    STK_TRY(look_at_files(f));
    if (getrlimit(RLIMIT_NPROC, &l) == 0 && l.rlim_cur < PROCESSES_LOW) {
        STK_TRY(stk_preflight_add(
            f, STK_CHECK_WARNING, "ulimit", "nproc", "raise the limit of processes (ulimit -u)",
            "a user may run only %s processes and threads", limit_text(l.rlim_cur, false, a)));
    }
    if (getrlimit(RLIMIT_STACK, &l) == 0 && l.rlim_cur < STACK_LOW_BYTES) {
        STK_TRY(stk_preflight_add(f, STK_CHECK_WARNING, "ulimit", "stack",
                                  "raise the limit of stacks (ulimit -s) to 8 MB",
                                  "a thread's stack has only %s: compilers of kernels may crash",
                                  limit_text(l.rlim_cur, true, a)));
    }
    /* Only RDMA needs this limit to pin memory; CUDA's driver isn't subject to it. */
    if (getrlimit(RLIMIT_MEMLOCK, &l) == 0 && l.rlim_cur != RLIM_INFINITY &&
        stk_sysfs_exists("/sys/class/infiniband")) {
        STK_TRY(stk_preflight_add(f, STK_CHECK_WARNING, "ulimit", "memlock",
                                  "allow it: ulimit -l unlimited (docker run --ulimit memlock=-1)",
                                  "a process may lock only %s of memory: InfiniBand needs more",
                                  limit_text(l.rlim_cur, true, a)));
    }
    if (getrlimit(RLIMIT_CORE, &l) == 0 && l.rlim_cur == RLIM_INFINITY) {
        STK_TRY(stk_preflight_add(f, STK_CHECK_NOTE, "ulimit", "core",
                                  "ulimit -c 0 keeps crashes from writing them",
                                  "core dumps are not limited: one of a training process is as "
                                  "large as its memory"));
    }
    return 0;
}

static int look_at_disk(const char *folder, stk_findings *f)
{
    struct statvfs fs;
    char a[32];
    STK_TEXT_AUTO absolute = stk_file_absolute(folder);
    const char *path = stk_text_or(absolute, folder);
    if (statvfs(path, &fs) != 0) {
        return stk_preflight_add(f, STK_CHECK_ERROR, "disk", path, NULL, "%s: %s", path,
                                 strerror(errno));
    }
    int64_t left = (int64_t)(fs.f_bavail * fs.f_frsize);
    stk_check_level level = STK_CHECK_OK;
    const char *remedy = NULL;
    if (left < DISK_LOW_BYTES) {
        level = left < DISK_FULL_BYTES ? STK_CHECK_ERROR : STK_CHECK_WARNING;
        remedy = "free some ('stoker store gc' removes old runs), or name another store in "
                 "STOKER_STORE";
    }
    STK_TRY(stk_preflight_add(f, level, "disk", path, remedy, "%s is free on the disk of %s",
                              amount(left, a), path));
    if (fs.f_files > 0 && fs.f_favail < INODES_LOW) {
        return stk_preflight_add(f, STK_CHECK_ERROR, "disk", path, "remove files there",
                                 "%s has only %llu inodes left", path,
                                 (unsigned long long)fs.f_favail);
    }
    return 0;
}

/* Checks for a free loopback port: ranks on one machine meet there. */
static int look_at_port(stk_findings *f)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    STK_FD_AUTO fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) < 0) {
        return stk_preflight_add(f, STK_CHECK_WARNING, "port", "127.0.0.1",
                                 "bring the loopback interface up (ip link set lo up)",
                                 "no port of 127.0.0.1 can be opened (%s): processes of a "
                                 "multi-GPU step can't find each other",
                                 strerror(errno));
    }
    return stk_preflight_add(f, STK_CHECK_OK, "port", "127.0.0.1", NULL,
                             "ports of the loopback interface can be opened");
}

int stk_preflight_host(const char *folder, stk_findings *findings, stk_err *err)
{
    if (look_at_memory(findings) < 0 || look_at_shm(findings) < 0 || look_at_limits(findings) < 0 ||
        look_at_disk(folder, findings) < 0 || look_at_port(findings) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the findings");
    }
    return 0;
}
