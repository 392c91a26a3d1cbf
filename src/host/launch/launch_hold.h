/* launch_hold: devices of this host for what is launched here. */
#ifndef STK_HOST_LAUNCH_HOLD_H
#define STK_HOST_LAUNCH_HOLD_H

#include "host/launch/launch.h"

/* Leases `n` free whole devices of this host, all or none, for as long as this process and what it
 * becomes live; sets the variables that say which. 0: it sees none. */
int stk_launch_hold(uint32_t n, stk_err *err);
/* The devices that can be used and that a mask lets us see go into `config` (as far as it has room
 * for them); *ret_n is how many there are. */
int stk_launch_see_devices(stk_arena *arena, stk_launch_config *config, uint32_t *ret_n,
                           stk_err *err);

#endif
