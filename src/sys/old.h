/* What older kernels, and filters of system calls, don't have: each function asks the kernel first
 * and does the same in another way where that answers "unknown". Stoker needs Linux 4.18. */
#ifndef STK_SYS_OLD_H
#define STK_SYS_OLD_H

#include <stdbool.h>
#include <sys/types.h>

/* A descriptor that is readable once the process has ended (a zombie has); close it at any time. A
 * pidfd, or before Linux 5.3 an eventfd that a thread of ours writes to when it sees the end. -1
 * and errno if there is no such process or no descriptor is left. The process may be any, a child
 * or not; only of a child the end is seen at once, else within 20 ms. */
int stk_sys_pidfd(pid_t pid);

/* Closes the descriptors `first` to `last`, or with by_exec sets CLOEXEC on them. Allocates nothing
 * and takes no lock, so a child that shares our memory may call it. */
void stk_sys_close_range(unsigned first, unsigned last, bool by_exec);

#endif
