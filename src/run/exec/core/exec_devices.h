/* Devices: leased, held by others, broken; what a failure advises. */
#ifndef STK_EXEC_DEVICES_H
#define STK_EXEC_DEVICES_H

#include "run/exec/core/exec_end.h"

/* Leases exactly these. STK_E_BUSY: another run was quicker; the scheduler knows then what is
 * free, and that it is to wait for a moment. */
int stk_exec_lease(stk_exec *x, const stk_action *start, stk_lease *ret_lease, stk_err *err);
/* Tells the scheduler what others hold, if something waits for devices and the last look is some
 * time ago. */
int stk_exec_look(stk_exec *x, stk_err *err);
/* After the scheduler's answer: when something waits for what others hold, says so (once) and when
 * to look again. */
int stk_exec_wait_devices(stk_exec *x, int64_t *wake_ms, stk_err *err);

/* Xids and their like since the last time: noted, and kept for the attempts on that device. What
 * comes while nobody holds it is none of this run's business. */
int stk_exec_device_events(stk_exec *x, stk_err *err);
/* An attempt failed: was it its device's fault? Then *class and *text say so; a device that needs a
 * reset leaves the pool. Before the attempt's slot is released. */
int stk_exec_blame(stk_exec *x, uint32_t task, exec_failure *failure, stk_err *err);
/* A device that has left the pool: for the scheduler, and noted. */
int stk_exec_gone(stk_exec *x, uint32_t i_device, const char *why, stk_err *err);
/* Every device that `task` could have had is out of the pool. */
int stk_exec_fail_gone(stk_exec *x, uint32_t task, stk_err *err);

/* A failure's sentence with what it advises; `next`: what follows it. In x->scratch; NULL: out of
 * memory. Before the attempt's slot is released. */
const char *stk_exec_advise(stk_exec *x, uint32_t task, stk_failure failure, const char *text,
                            const stk_sched_retrying *next);

#endif
