/* The parts of `stoker artifact`. Private to the cli room. */
#ifndef STK_CLI_ARTIFACT_H
#define STK_CLI_ARTIFACT_H

#include "cli/cli.h"
#include "store/store.h"

int stk_cli_artifact_add(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                         stk_err *err);
int stk_cli_artifact_mv(const stk_cli *cli, stk_store *store, stk_arena *arena, stk_buf *out,
                        stk_err *err);

#endif
