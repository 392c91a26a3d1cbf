/* Reads /proc: the size of this host, the usage of process trees, and the processes of a task. */
#ifndef STK_SYS_PROC_H
#define STK_SYS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* CPUs this process may use (affinity and cgroup quota, rounded down, at least 1) and memory (the
 * lower of RAM and cgroup limit). */
uint32_t stk_proc_n_cpus(void);
int64_t stk_proc_cpu_milli(void); /* the same in thousandths of a CPU, not rounded */
/* The CPU numbers of our affinity mask; returns how many were written. */
uint32_t stk_proc_cpus(uint32_t *ret_cpus, uint32_t n_max);
int64_t stk_proc_memory_bytes(void);
int64_t stk_proc_available_bytes(void);

/* Start time of a process in clock ticks since boot, 0 if it has ended. (pid, start) identifies a
 * process for good. */
uint64_t stk_proc_start_time(pid_t pid);

typedef struct stk_proc_usage {
    int64_t cpu_us;    /* user + system of all living members and their reaped children */
    int64_t rss_bytes; /* sum; shared pages count in each process */
    int64_t read_bytes,
        write_bytes; /* from and to storage, summed like cpu_us; -1 not asked or unknown */
    uint32_t n;
} stk_proc_usage;

/* Usage of each session's members and all their descendants, in one pass over /proc for all
 * sessions. */
int stk_proc_sessions(const pid_t *sids, uint32_t n, stk_proc_usage *ret_usages);
/* The processes of one session, kept between measurements: finding them costs more than reading
 * them. */
typedef struct stk_proc_members {
    pid_t *pids;
    uint32_t n, cap;
    struct stk_proc_files
        *files; /* files of some of them, kept open because opening costs as much as reading */
    uint32_t n_files, cap_files;
} stk_proc_members;
int stk_proc_members_find(pid_t sid, stk_proc_members *members);
void stk_proc_members_done(stk_proc_members *members);
/* Usage of those still alive; with_io: reads and writes too. */
void stk_proc_members_usage(stk_proc_members *members, bool with_io, stk_proc_usage *ret_usage);

/* Children that this process did not start: orphans that it received as child subreaper. Skips
 * those in our session and those in `known`; reaps dead ones. Costs one small read if there are at
 * most `n_expected` children. Returns how many are alive. */
uint32_t stk_proc_orphans(const pid_t *known, uint32_t n_known, uint32_t n_expected,
                          pid_t *ret_pids, uint32_t n_max);

/* Memory that a session's members can't give back (anonymous and shared memory, including swap);
 * shared pages count proportionally, so once in all. Clean file pages don't count. Slow: reads
 * smaps_rollup. -1 unknown. */
int64_t stk_proc_session_pss(pid_t sid);
/* Sends SIGKILL to every process of the session, its descendants, and every process with `marker`
 * ("K=V", or NULL) in its initial environment. Repeats until none is left or `timeout_ms` has
 * passed. Returns how many the last round found. Never kills the caller. The marker never selects
 * processes of an agent (STOKER_AGENT=1 in their environment): the agent ends those. */
int stk_proc_kill_session(pid_t sid, const char *marker, int timeout_ms);

/* The same for all members of many sessions at once. */
int stk_proc_kill_sessions(const pid_t *sids, uint32_t n, const char *marker, int timeout_ms);

/* Identifies a file by inode, not by name, and says which way of having it open counts. */
typedef struct stk_proc_file {
    uint64_t device, inode;
    int64_t born_ns; /* 0 unknown; tells a later file with the same inode number apart */
    bool by_lock;    /* open with a lock on it, through any descriptor; else open for writing */
} stk_proc_file;
/* Zeros if there is no file. by_lock is set if `fd` can only read. */
stk_proc_file stk_proc_file_of(int fd);
/* Any of these marks a process as ours. */
typedef struct stk_proc_ours {
    const pid_t *sids;
    uint32_t n_sids;
    const char *marker; /* or NULL */
    const stk_proc_file *files;
    uint32_t n_files;
} stk_proc_ours;
/* The same for every process that any of these marks as ours. */
int stk_proc_kill(const stk_proc_ours *ours, int timeout_ms);
/* All descendants of `pid`, as far as this kernel lists children. */
int stk_proc_descendants(pid_t pid, stk_proc_members *members);
/* Processes other than the caller that have `path` (absolute, links resolved) open for writing.
 * Returns how many, at most n_max. */
uint32_t stk_proc_writers(const char *path, pid_t *ret_pids, uint32_t n_max);
/* The same for processes that have it open through a description with a lock (F_OFD_SETLK), even
 * read-only. Finds none where only a server keeps the locks (FUSE). */
uint32_t stk_proc_lockers(const char *path, pid_t *ret_pids, uint32_t n_max);
/* True if the descriptor `fd` ("7") of `pid` is such a description. */
bool stk_proc_has_lock(pid_t pid, const char *fd);
/* `text` ("K=V") is in the initial environment of `pid`. */
bool stk_proc_has_env(pid_t pid, const char *text);

/* Reads a small file of a process's /proc folder ("io") as text. Returns its length, or -1 with
 * `ret` "". */
ssize_t stk_proc_read(pid_t pid, const char *name, char *ret, size_t size);
/* The kernel's name for its program ("python"); "" if there is none. */
const char *stk_proc_name(pid_t pid, char *ret, size_t size);
/* "ann", or the number of a user without a name. */
const char *stk_proc_user(uid_t uid, char ret[48]);

#endif
