/* Devices for what becomes of this process. */
#ifndef STK_CLI_HOLD_H
#define STK_CLI_HOLD_H

#include <stdint.h>

#include "base/err.h"

/* Leases `n` free whole devices of this host, all or none, for as long as this process and what it
 * becomes live; sets the variables that say which. 0: it sees none. */
int stk_cli_hold(uint32_t n, stk_err *err);

#endif
