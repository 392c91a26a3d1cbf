/* Removing runs: `stoker rm`, `stoker store rm`; what was removed is printed as by `stoker store
 * gc`. */
#ifndef STK_CLI_RM_H
#define STK_CLI_RM_H

#include "cli/cli.h"
#include "run/run_environments.h"

/* Removes the runs that the arguments name, from number `first` on; none if one doesn't exist. */
int stk_cli_rm(const stk_cli *cli, stk_store *store, int first, stk_arena *arena, stk_buf *out,
               stk_err *err);
void stk_cli_put_removed(const stk_cli *cli, const stk_store *store, const stk_gc *gc,
                         uint32_t n_containers, const stk_run_environments *environments,
                         stk_buf *out);

#endif
