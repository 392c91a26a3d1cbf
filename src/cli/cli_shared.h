/* cli_shared: runs in a store that machines share. `tag` and `metadata` publish what they add
 * there; commands that look at runs read there with --stack or --store. Private to the cli room. */
#ifndef STK_CLI_SHARED_H
#define STK_CLI_SHARED_H

#include "away/mirror/mirror.h"
#include "cli/cli.h"

/* Publishes what was added to a run. If that fails, a line on stderr says so. */
void stk_cli_shared_added(stk_store *store, const char *run);
/* The URL of the store that --stack shares or --store names, in `arena`; NULL: neither is given, or
 * --store names the folder of a store that isn't shared. STK_E_NOT_FOUND: of no store. */
int stk_cli_shared_url(const stk_cli *cli, stk_arena *arena, const char **ret, stk_err *err);
/* Whether one of them names a store that machines share. */
bool stk_cli_shared_is(const stk_cli *cli);
/* Opens a copy of the store that --stack shares or --store names, for reading (away/mirror).
 * `runs`: those to bring (what follows a slash is ignored), NULL-terminated; NULL: the newest
 * `limit` ones. Opens this machine's store without these options, and one that isn't shared as it
 * is. */
int stk_cli_shared_store(const stk_cli *cli, const char *const *runs, stk_mirror_depth depth,
                         uint32_t limit, stk_store **ret_store, stk_err *err);
/* Appends where that is, as the user has written it. */
void stk_cli_shared_put_place(const stk_cli *cli, const stk_store *store, stk_buf *out);

#define STK_CLI_SHARED_OPTIONS                                                                     \
    {"stack", 0, "STACK", "from the store that this stack shares, whichever machine runs it"},     \
    {                                                                                              \
        "store", 0, "URL", "from this store: s3://bucket/prefix, ssh://host/folder, a folder",     \
            false                                                                                  \
    }

#endif
