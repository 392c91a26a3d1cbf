/* Devices of a run: leases, other holders, faults, and advice after failures. */
#ifndef STK_EXEC_DEVICES_H
#define STK_EXEC_DEVICES_H

#include "run/exec/core/exec_end.h"

/* Leases exactly these devices. STK_E_BUSY: another run was quicker; the scheduler then knows what
 * is free, and waits for a moment. */
int stk_exec_lease(stk_exec *x, const stk_action *start, stk_lease *ret_lease, stk_err *err);
/* Tells the scheduler which devices others hold, if a task waits for devices and the last look was
 * some time ago. */
int stk_exec_look(stk_exec *x, stk_err *err);
/* Call it after the scheduler's answer. If a task waits for devices of others, notes that once and
 * sets when to look again. */
int stk_exec_wait_devices(stk_exec *x, int64_t *wake_ms, stk_err *err);

/* Notes the device errors (Xids and their like) since the last call, and keeps them for the
 * attempts on that device. Ignores errors of devices that this run doesn't hold. */
int stk_exec_device_events(stk_exec *x, stk_err *err);
/* Checks whether a device made the attempt fail, and then sets class and text of the failure. A
 * device that needs a reset leaves the pool. Call it before releasing the attempt's slot. */
int stk_exec_blame(stk_exec *x, uint32_t task, exec_failure *failure, stk_err *err);
/* Tells the scheduler that a device has left the pool, and notes it. */
int stk_exec_gone(stk_exec *x, uint32_t i_device, const char *why, stk_err *err);
/* Fails `task`, because all devices that it could use have left the pool. */
int stk_exec_fail_gone(stk_exec *x, uint32_t task, stk_err *err);

/* Returns a failure's sentence with advice; `next`: what happens next. In x->scratch; NULL: out of
 * memory. Call it before releasing the attempt's slot. */
const char *stk_exec_advise(stk_exec *x, uint32_t task, stk_failure failure, const char *text,
                            const stk_sched_retrying *next);

#endif
