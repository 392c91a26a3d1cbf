/* The terminal while a picture has it all. Private to the cli room. */
#ifndef STK_CLI_SCREEN_H
#define STK_CLI_SCREEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE are noted instead of ending this process. `all`:
 * takes the terminal as well. Only one can be open. */
void stk_cli_screen_open(bool all);
void stk_cli_screen_close(void);     /* gives the terminal back */
bool stk_cli_screen_has_ended(void); /* one of the signals came, or the terminal is gone */
/* Waits at most `timeout_ms` for keys, a change of size, the end of a child, or an ending. Returns
 * the number of keys. Stops here on Ctrl-Z. */
int stk_cli_screen_wait(int64_t timeout_ms, int *ret_keys, int n_max);
/* Replaces the picture by the first `rows` lines of this one, in one go. */
void stk_cli_screen_put(const stk_buf *picture, int rows);

#endif
