/* What /proc knows: this host's size, what a process tree uses, who belongs to a task. */
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
/* The CPU numbers of our affinity mask; returns how many were written. */
uint32_t stk_proc_cpus(uint32_t *ret_cpus, uint32_t n_max);
int64_t stk_proc_memory_bytes(void);
int64_t stk_proc_available_bytes(void);

/* Start time of a process in clock ticks since boot, 0 if gone: (pid, start) names a process for
 * good. */
uint64_t stk_proc_start_time(pid_t pid);

typedef struct stk_proc_usage {
    int64_t cpu_us;    /* user + system of all living members and their reaped children */
    int64_t rss_bytes; /* sum; shared pages counted in each */
    int64_t read_bytes, write_bytes; /* from and to storage, as cpu_us; -1 not asked or unknown */
    uint32_t n;
} stk_proc_usage;

/* Members of the session `sid` and all their descendants, in one pass over /proc for all sessions
 * asked for. */
int stk_proc_sessions(const pid_t *sids, uint32_t n, stk_proc_usage *ret_usages);
/* The processes of one session, kept between looks: finding them costs more than reading them. */
typedef struct stk_proc_members {
    pid_t *pids;
    uint32_t n, cap;
    struct stk_proc_files *files; /* of some of them, kept open: opening costs as much as reading */
    uint32_t n_files, cap_files;
} stk_proc_members;
int stk_proc_members_find(pid_t sid, stk_proc_members *members);
void stk_proc_members_done(stk_proc_members *members);
/* Usage of those that still live; with_io: reads and writes too. */
void stk_proc_members_usage(stk_proc_members *members, bool with_io, stk_proc_usage *ret_usage);

/* Children of this process that it didn't make: orphans that it was given as child subreaper. Those
 * in our own session and those in `known` are left alone; dead ones are reaped here. Costs one
 * small read when there are no more children than `n_expected`. Returns how many live. */
uint32_t stk_proc_orphans(const pid_t *known, uint32_t n_known, uint32_t n_expected,
                          pid_t *ret_pids, uint32_t n_max);

/* Memory of a session's members that they can't give back (anonymous and shared memory, swapped
 * out too), shared pages counted once: proportional. Clean file pages don't count. Slow: reads
 * smaps_rollup. -1 unknown. */
int64_t stk_proc_session_pss(pid_t sid);
/* SIGKILL to every process of the session and their descendants, and every one whose initial
 * environment has `marker` ("K=V", or NULL), repeated until none is left or `timeout_ms` is over.
 * Returns how many were found in the last round. Never the caller itself; by the marker never what
 * an agent runs (STOKER_AGENT=1 in its environment), which is the agent's to end. */
int stk_proc_kill_session(pid_t sid, const char *marker, int timeout_ms);

/* The same for many sessions at once, and every member of these is taken with it. */
int stk_proc_kill_sessions(const pid_t *sids, uint32_t n, const char *marker, int timeout_ms);

/* A file by what it is, not by its name, and how those have it open whom it tells apart. */
typedef struct stk_proc_file {
    uint64_t device, inode;
    int64_t born_ns; /* 0 unknown; else another file that was given the number later is another */
    bool by_lock;    /* with a lock on it, by whatever descriptor; else for writing */
} stk_proc_file;
/* Zeros where there is none. By its lock, if `fd` can only read. */
stk_proc_file stk_proc_file_of(int fd);
/* What tells that a process is one of ours. */
typedef struct stk_proc_ours {
    const pid_t *sids;
    uint32_t n_sids;
    const char *marker; /* or NULL */
    const stk_proc_file *files;
    uint32_t n_files;
} stk_proc_ours;
/* The same for all that is ours by any of these. */
int stk_proc_kill(const stk_proc_ours *ours, int timeout_ms);
/* Children of `pid`, theirs, and so on, as far as this kernel lists them. */
int stk_proc_descendants(pid_t pid, stk_proc_members *members);
/* Processes that have `path` (absolute, links resolved) open for writing, but for the caller.
 * Returns how many, at most n_max. */
uint32_t stk_proc_writers(const char *path, pid_t *ret_pids, uint32_t n_max);
/* The same of who has it open by a description that holds a lock on it (F_OFD_SETLK), which may
 * well only read. Not where locks are kept by a server alone (FUSE): there it finds none. */
uint32_t stk_proc_lockers(const char *path, pid_t *ret_pids, uint32_t n_max);
/* The descriptor `fd` ("7") of `pid` is one of these. */
bool stk_proc_has_lock(pid_t pid, const char *fd);
/* `text` ("K=V") is in the initial environment of `pid`. */
bool stk_proc_has_env(pid_t pid, const char *text);

/* A small file of a process's folder in /proc ("io"), as text; its bytes, or -1. `ret` is "" then.
 */
ssize_t stk_proc_read(pid_t pid, const char *name, char *ret, size_t size);
/* What the kernel calls its program ("python"); "" where there is none. */
const char *stk_proc_name(pid_t pid, char *ret, size_t size);
/* "ann", or the number of a user without a name. */
const char *stk_proc_user(uid_t uid, char ret[48]);

#endif
