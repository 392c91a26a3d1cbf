/* cli_shared: runs in a store that machines share. `tag` and `metadata` publish what they add
 * there; `show`, `logs`, `metrics` and `runs` read there with --stack or --store. Private to the
 * cli room. */
#ifndef STK_CLI_SHARED_H
#define STK_CLI_SHARED_H

#include "away/mirror/mirror.h"
#include "cli/cli.h"

/* Publishes what was added to a run. If that fails, a line on stderr says so. */
void stk_cli_shared_added(stk_store *store, const char *run);
/* The URL of the store that --stack shares or --store names, in `arena`; NULL: neither is given. */
int stk_cli_shared_url(const stk_cli *cli, stk_arena *arena, const char **ret, stk_err *err);
/* Whether one of them names a store that machines share; a path may be a store of this machine. */
bool stk_cli_shared_is(const stk_cli *cli);
/* Opens a copy of the store that --stack shares or --store names, for reading (away/mirror).
 * `text`: the run to bring (what follows its slash is ignored); NULL: the newest `limit` runs.
 * Opens the store itself where --store names one of this machine, and without these options the
 * one of this folder. */
int stk_cli_shared_store(const stk_cli *cli, const char *text, stk_mirror_depth depth,
                         uint32_t limit, stk_store **ret_store, stk_err *err);

#define STK_CLI_SHARED_OPTIONS                                                                     \
    {"stack", 0, "STACK", "from the store that this stack shares, whichever machine runs it"},     \
    {                                                                                              \
        "store", 0, "URL",                                                                         \
            "from this store: a folder, or one that machines share, also s3://bucket/prefix "      \
            "and ssh://host/folder",                                                               \
            false                                                                                  \
    }

#endif
