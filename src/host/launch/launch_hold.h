/* launch_hold: leases devices of this host for a launched program. */
#ifndef STK_HOST_LAUNCH_HOLD_H
#define STK_HOST_LAUNCH_HOLD_H

#include "host/launch/launch.h"

/* Leases `n` free whole devices of this host, all or none, for the life of this process, also after
 * exec; sets the variables that name them. n = 0: hides all devices. */
int stk_launch_hold(uint32_t n, stk_err *err);
/* Adds the usable devices that a mask lets us see to `config` (as many as fit); *ret_n is their
 * total number. */
int stk_launch_see_devices(stk_arena *arena, stk_launch_config *config, uint32_t *ret_n,
                           stk_err *err);

#endif
