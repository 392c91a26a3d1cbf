/* This program, its loader and libraries, for where it isn't installed: containers of this machine,
 * images elsewhere. */
#ifndef STK_RUN_CARRY_H
#define STK_RUN_CARRY_H

#include "away/share/share.h"
#include "base/arena.h"
#include "store/store.h"

/* A folder with this program, its loader and libraries, to be mounted as /stoker/bin; in `arena`.
 */
int stk_run_carry(const stk_store *store, stk_arena *arena, const char **ret, stk_err *err);
/* Makes `folder`, for machines that aren't this one: the same, libcurl, CA certificates, and the
 * Python front of `program`. STK_E_USAGE: something else is there. */
int stk_run_carry_all(const char *program, const char *folder, stk_arena *arena, stk_err *err);
/* libcurl is here to be carried: without it a copy can't reach S3. */
bool stk_run_carry_curl(void);
/* The folder as an archive: the same content gives the same bytes. */
int stk_run_carry_write(const char *folder, const char *path, stk_err *err);
/* The archive in the share as carry/<SHA-256>.tar, where it isn't there yet. */
int stk_run_carry_tar(const char *program, const stk_store *store, stk_share *share,
                      stk_arena *arena, const char **ret_digest, stk_err *err);

#endif
