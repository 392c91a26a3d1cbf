/* metaflow: what Metaflow is set to on this machine, for programs that were written for it.
 *
 * As Metaflow's own: a variable of the environment, else the member of that name in config.json of
 * the nearest .metaflow at or above the current folder, else in $METAFLOW_HOME/config.json
 * (~/.metaflowconfig where that isn't set; config_NAME.json with METAFLOW_PROFILE=NAME). The files
 * are read once a process.
 */
#ifndef STK_METAFLOW_H
#define STK_METAFLOW_H

#include "base/err.h"

/* "METAFLOW_…": its value (what isn't text, as JSON) and, unless ret_from is NULL, where it is
 * from: "$METAFLOW_…", or the file's path. NULL: not set. Texts live as long as the process. */
const char *stk_metaflow_setting(const char *name, const char **ret_from);
/* STK_E_SPEC: a file isn't a JSON object; STK_E_NOT_FOUND: there is none for METAFLOW_PROFILE. It
 * counts for nothing then. */
int stk_metaflow_check(stk_err *err);

#endif
