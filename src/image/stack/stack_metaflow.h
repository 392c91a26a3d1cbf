/* metaflow: Metaflow's settings on this machine, for programs that were written for it.
 *
 * Looks where Metaflow does: a variable of the environment, else the member of that name in
 * config.json of the nearest .metaflow at or above the current folder, else in
 * $METAFLOW_HOME/config.json (~/.metaflowconfig if that isn't set; config_NAME.json with
 * METAFLOW_PROFILE=NAME). A process reads the files once. */
#ifndef STK_METAFLOW_H
#define STK_METAFLOW_H

#include "base/err.h"

/* The value of "METAFLOW_…" (JSON if it isn't text). Unless ret_from is NULL, *ret_from is its
 * source: "$METAFLOW_…", or the file's path. NULL: not set. Texts live as long as the process. */
const char *stk_metaflow_setting(const char *name, const char **ret_from);
/* STK_E_SPEC: a file isn't a JSON object; STK_E_NOT_FOUND: METAFLOW_PROFILE has no file. The
 * settings then ignore that file. */
int stk_metaflow_check(stk_err *err);

#endif
