/* cli_shared: runs in the store that machines share, beside this machine's own: told of what is
 * added here (`tag`, `metadata`), or to be read (`show`, `logs`, `runs` with --stack). Private to
 * the cli room. */
#ifndef STK_CLI_SHARED_H
#define STK_CLI_SHARED_H

#include "cli/cli.h"

/* The share is told of what was added to a run, or a sentence on stderr says that only this machine
 * has it. */
void stk_cli_shared_added(stk_store *store, const char *run);
/* A store of what the share of --stack says, for reading. `text`: the run (with what follows its
 * slash), brought with its files where `with_files`; NULL: the newest `limit` runs. Without --stack
 * the store of this machine. */
int stk_cli_shared_store(const stk_cli *cli, const char *text, bool with_files, uint32_t limit,
                         stk_store **ret_store, stk_err *err);

#define STK_CLI_STACK_OPTION                                                                       \
    {                                                                                              \
        "stack", 0, "STACK", "of the store that this stack shares, whichever machine runs it",     \
            false                                                                                  \
    }

#endif
