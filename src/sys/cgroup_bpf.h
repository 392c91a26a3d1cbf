/* Closing devices to a control group of version 2, which has no controller for them: a small
 * program for the kernel (BPF) that is asked at every open. Needs root, or CAP_BPF and
 * CAP_NET_ADMIN. */
#ifndef STK_SYS_CGROUP_BPF_H
#define STK_SYS_CGROUP_BPF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* May we? Asks the kernel once. */
bool stk_cgroup_bpf_can_close(void);
/* From now on no process in the group `dir` can open (or make) these character devices; what is
 * open stays so. It ends with the group. */
int stk_cgroup_bpf_close(const char *dir, const dev_t *closed, uint32_t n_closed, stk_err *err);

#endif
