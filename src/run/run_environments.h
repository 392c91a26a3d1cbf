/* run_environments: removes environments of `@pypi` and `@conda` from the user's cache, for `stoker
 * store gc`. python/stoker/flow/_environments/_build.py makes them. */
#ifndef STK_RUN_ENVIRONMENTS_H
#define STK_RUN_ENVIRONMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef struct stk_run_environments {
    int64_t keep_ms; /* keep those used within this time */
    uint32_t n;      /* removed, or with `dry_run` to be removed */
    int64_t bytes;   /* freed; files that others share don't count */
} stk_run_environments;

/* Removes old environments that no process uses, and what is left of such a removal. An environment
 * is in use as long as someone holds a shared lock (flock) of its stoker.json, whose time of change
 * is that of its last use; one that isn't finished has no such file, and who makes it holds
 * NAME.lock. */
int stk_run_drop_environments(bool dry_run, stk_run_environments *environments, stk_err *err);

#endif
