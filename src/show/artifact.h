/* artifact: artifacts as lines and as JSON. */
#ifndef STK_SHOW_ARTIFACT_H
#define STK_SHOW_ARTIFACT_H

#include "base/buf.h"
#include "store/view/view.h"

/* All outputs of run `run`, or, if `run` is NULL, every named artifact of the store. */
int stk_show_artifacts(stk_store *store, const char *run, bool json, stk_arena *arena, stk_buf *out,
                       stk_err *err);
/* `path`: the artifact's path in the store, or NULL. */
void stk_show_artifact_json(const stk_view_found *found, const char *path, int64_t size,
                            stk_buf *out);

#endif
