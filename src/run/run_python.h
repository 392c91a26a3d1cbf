/* Which Python, and the package that belongs to this program. */
#ifndef STK_RUN_PYTHON_H
#define STK_RUN_PYTHON_H

#include <stddef.h>

#include "base/arena.h"

/* The interpreter for the user's files and steps: `named` if not NULL, $STOKER_PYTHON,
 * $VIRTUAL_ENV's, that of the virtual environment whose `stoker` was called, python3. `buf` may be
 * used for the answer. */
const char *stk_run_python(const char *named, char *buf, size_t size);
/* The folder of the Python package `stoker` that belongs to `program` (absolute path), in `arena`;
 * NULL: it isn't there. */
const char *stk_run_front(const char *program, stk_arena *arena);

#endif
