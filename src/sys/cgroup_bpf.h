/* Closes devices to a v2 control group. v2 has no device controller, so a small BPF program in the
 * kernel checks every open. Needs root, or CAP_BPF and CAP_NET_ADMIN. */
#ifndef STK_SYS_CGROUP_BPF_H
#define STK_SYS_CGROUP_BPF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* True if the kernel lets us do so; asks it once. */
bool stk_cgroup_bpf_can_close(void);
/* From now on no process in the group `dir` can open (or make) these character devices; open ones
 * stay open. Lasts until the group ends. */
int stk_cgroup_bpf_close(const char *dir, const dev_t *closed, uint32_t n_closed, stk_err *err);

#endif
