/* Copies this program with its loader and libraries, for containers and machines where it isn't
 * installed. */
#ifndef STK_RUN_CARRY_H
#define STK_RUN_CARRY_H

#include "away/share/share.h"
#include "base/arena.h"
#include "base/digest.h"
#include "image/image.h"
#include "store/store.h"

/* Returns a folder with the copy, to be mounted as /stoker/bin. In `arena`. */
int stk_run_carry(const stk_store *store, stk_arena *arena, const char **ret, stk_err *err);
/* Makes `folder` for other machines: the copy, libcurl, CA certificates, and the Python front of
 * `program`. STK_E_USAGE: the folder has other files. */
int stk_run_carry_all(const char *program, const char *folder, stk_arena *arena, stk_err *err);
/* True if libcurl is here to be copied; a copy without it can't reach S3. */
bool stk_run_carry_curl(void);
/* Writes the folder as an archive. The same content gives the same bytes. */
int stk_run_carry_write(const char *folder, const char *path, stk_err *err);
/* The same, and its SHA-256 in hex. */
int stk_run_carry_sum(const char *folder, const char *path, char ret_hex[STK_DIGEST_HEX + 1],
                      stk_err *err);
/* The archive of this program for other machines, and its digest: made once for each build and kept
 * in ~/.cache/stoker/carry, or in memory if nothing can be kept there. In `arena`. */
int stk_run_carry_archive(const char *program, stk_arena *arena, const char **ret_tar,
                          const char **ret_digest, stk_err *err);
/* Puts it into the share as carry/<SHA-256>.tar, unless it is there. */
int stk_run_carry_tar(const char *program, stk_share *share, stk_arena *arena,
                      const char **ret_digest, stk_err *err);
/* Lays it out beside its archive, as carry/<SHA-256> of a share that is a folder, unless it is
 * there, and whole. */
int stk_run_carry_lay(const char *program, const char *share, const char *digest, stk_arena *arena,
                      stk_err *err);
/* Where machines keep the CA certificates that they trust; the first that is there is carried. */
extern const char *const stk_run_carry_roots[]; /* NULL-terminated */

/* Makes the image that brings this program into pods, where an init container copies /stoker out of
 * it, and sends it as `how` says (`tar` and `entrypoint` are set here). */
int stk_run_carry_image(const char *program, const stk_image_send_how *how, stk_arena *arena,
                        stk_image_sent *ret, stk_err *err);

#endif
