/* Private to proc: one process as /proc/PID/stat describes it. */
#ifndef STK_SYS_PROC_PRIVATE_H
#define STK_SYS_PROC_PRIVATE_H

#include "sys/proc.h"

typedef struct stk_process {
    pid_t pid, parent, session;
    char state;
    int64_t cpu_ticks; /* user + system, including reaped children */
    int64_t rss_pages;
    uint64_t start;
    int64_t n_threads;
} stk_process;

/* Parses the text of /proc/PID/stat. */
bool stk_proc_parse(const char *text, pid_t pid, stk_process *ret);

/* True if the process has one of our files open in the way that only our processes do
 * (sys/proc_open.c). */
bool stk_process_has_file(pid_t pid, const stk_proc_ours *ours);

/* True if a process uses its parent's memory, as a child of vfork does until it execs: what both
 * have counts once. False where the kernel doesn't tell. */
bool stk_process_is_in(pid_t pid, pid_t parent);

static inline bool stk_process_is_dead(const stk_process *p)
{
    return p->state == 'Z' || p->state == 'X' || p->state == 'x';
}

#endif
