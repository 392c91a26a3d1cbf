/* The stores that this user may open on this host, for commands that look across all of them. Each
 * store in which this user runs something is noted once, as a link in
 * $XDG_STATE_HOME/stoker/stores (~/.local/state). Private to the cli room. */
#ifndef STK_CLI_STORES_H
#define STK_CLI_STORES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

enum { STK_CLI_STORES_MOST = 200 };

typedef struct stk_cli_stores {
    const char *paths[STK_CLI_STORES_MOST]; /* absolute, each once */
    uint32_t n;
    stk_arena *arena;
} stk_cli_stores;

/* Notes a store; where it can't be noted, nothing happens. */
void stk_cli_stores_note(const char *path);
void stk_cli_stores_add(stk_cli_stores *stores, const char *path);
/* The store that a user names by its folder or by the one that it lies in (as .stoker). NULL: no
 * memory. */
const char *stk_cli_stores_path(stk_arena *arena, const char *folder);
/* A store, or a folder with one. */
void stk_cli_stores_add_folder(stk_cli_stores *stores, const char *folder);
/* Adds those that were noted and are there, those in folders that the user trusts, and those of
 * what runs on this host now. Forgets those that are gone. */
void stk_cli_stores_add_all(stk_cli_stores *stores);

#endif
