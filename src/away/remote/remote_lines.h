/* remote_lines: a file of the share to which one process appends lines of JSON while another reads
 * them: the orders for a pilot, and its news (docs/formats/shared-stores.md). Each read opens the
 * file again, because a network file system looks for news only then. */
#ifndef STK_REMOTE_LINES_H
#define STK_REMOTE_LINES_H

#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* Calls each(arg, object, end) for each whole line from *at on, with the offset behind it; moves
 * *at. Lines that aren't JSON objects are skipped. A missing file has no lines. */
int stk_remote_lines_read(const char *path, int64_t *at, stk_arena *arena,
                          int (*each)(void *arg, const stk_json *line, int64_t end, stk_err *err),
                          void *arg, stk_err *err);
/* Appends whole lines at once; after a writer that died within a line it begins a new one. */
int stk_remote_lines_add(const char *path, const stk_buf *lines, stk_err *err);

#endif
