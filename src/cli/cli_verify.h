/* `stoker store verify`. Private to the cli room. */
#ifndef STK_CLI_VERIFY_H
#define STK_CLI_VERIFY_H

#include "base/buf.h"
#include "cli/cli.h"

enum { STK_CLI_VERIFY_MAX = 1 << 28 }; /* most bytes of an answer */

/* Reads the whole store. Exit status 3: something is bad, even if it was repaired. */
int stk_cli_verify(const stk_cli *cli, stk_store *store, stk_buf *out, stk_err *err);

#endif
