/* cli_shared: runs in a store that machines share. `tag` and `metadata` publish what they add
 * there; `show`, `logs` and `runs` read there with --stack. Private to the cli room. */
#ifndef STK_CLI_SHARED_H
#define STK_CLI_SHARED_H

#include "cli/cli.h"

/* Publishes what was added to a run. If that fails, a line on stderr says so. */
void stk_cli_shared_added(stk_store *store, const char *run);
/* Opens a local mirror of the store that --stack shares, for reading. `text`: the run to fetch
 * (what follows its slash is ignored), with its files if `with_files`; NULL: the newest `limit`
 * runs. Without --stack, opens this machine's store. */
int stk_cli_shared_store(const stk_cli *cli, const char *text, bool with_files, uint32_t limit,
                         stk_store **ret_store, stk_err *err);

#define STK_CLI_STACK_OPTION                                                                       \
    {                                                                                              \
        "stack", 0, "STACK", "from the store that this stack shares, whichever machine runs it",   \
            false                                                                                  \
    }

#endif
