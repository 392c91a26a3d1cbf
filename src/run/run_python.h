/* Finds the Python interpreter, and the package that belongs to this program. */
#ifndef STK_RUN_PYTHON_H
#define STK_RUN_PYTHON_H

#include "base/arena.h"
#include "base/err.h"
#include "model/spec/spec.h"

/* The interpreter for the user's files and steps: `named` if not NULL, $STOKER_PYTHON,
 * $VIRTUAL_ENV's, that of the virtual environment whose `stoker` was called, python3. In `arena`.
 */
const char *stk_run_python(const char *named, stk_arena *arena);
/* The same for the steps of a document, which may name the interpreter that wrote it. */
const char *stk_run_spec_python(const stk_spec *spec, const char *named, stk_arena *arena);
/* Programs started from now on import from this folder first. */
int stk_run_import_from(const char *folder, stk_err *err);
/* The folder of the Python package `stoker` that belongs to `program` (absolute path), in `arena`;
 * NULL: it isn't there, or `program` is NULL. */
const char *stk_run_front(const char *program, stk_arena *arena);
/* The same; an error if the package is missing. */
int stk_run_need_front(const char *program, stk_arena *arena, const char **ret, stk_err *err);

#endif
