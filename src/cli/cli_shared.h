/* cli_shared: runs in the store that machines share, whoever runs them: brought here to be taken up
 * (`resume`), added to (`tag`, `metadata`), or beside this machine's own runs to be read (`show`,
 * `logs`, `runs` with --stack).
 */
#ifndef STK_CLI_SHARED_H
#define STK_CLI_SHARED_H

#include "cli/cli.h"

/* The share of a stack, in `arena`; NULL: it has none (its steps run here). */
int stk_cli_shared_url(const char *stack, stk_arena *arena, const char **ret_url, stk_err *err);
/* What this store lacks of a run that `text` names here or in the stack's share: its events as far
 * as they are there. `stack` NULL: the one that the run was begun with. STK_E_NOT_FOUND: neither
 * knows it. */
int stk_cli_shared_bring(stk_store *store, const char *stack, const char *text, char ret_run[40],
                         stk_err *err);
/* Before something is added to a run of this store that may be in a share (a tag, metadata): what
 * others have done to it is brought here. STK_E_BUSY: another machine runs it, and it is to be done
 * there. */
int stk_cli_shared_may_add(stk_store *store, const char *run, stk_err *err);
/* Puts to the share what it lacks of a run of this store that no engine has (*ret_told: there was
 * something); where the run is in none: nothing. `stack`: whose share; NULL: the run's own. */
int stk_cli_shared_publish(stk_store *store, const char *stack, const char *run, bool *ret_told,
                           stk_err *err);
/* Then the share is told, or a sentence on stderr says that only this machine has it. */
void stk_cli_shared_added(stk_store *store, const char *run);
/* A store of what the share of --stack says, for reading. `text`: the run (with what follows its
 * slash), brought with its files where `with_files`; NULL: the newest `limit` runs. 0, or an exit
 * status after printing why. */
int stk_cli_shared_store(const stk_cli *cli, const char *text, bool with_files, uint32_t limit,
                         stk_store **ret_store);

#define STK_CLI_STACK_OPTION                                                                       \
    {                                                                                              \
        "stack", 0, "STACK", "of the store that this stack shares, whichever machine runs it",     \
            false                                                                                  \
    }

#endif
