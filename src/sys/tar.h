/* Writes tar archives without owners and times, so that the same content gives the same bytes.
 * GNU's format: names and targets over 100 bytes, and files of 8 GiB and more, have no limit.
 *
 * A file is stk_tar_entry, its bytes by stk_tar_data, stk_tar_pad; after the last one stk_tar_end.
 * All return 0, or STK_E_SYS when the descriptor can't be written. */
#ifndef STK_SYS_TAR_H
#define STK_SYS_TAR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/digest.h"
#include "base/err.h"

typedef struct stk_tar {
    int fd;
    const char *name; /* for messages */
    stk_sha256 *sha;  /* gets every byte that is written; or NULL */
} stk_tar;

/* `mode`: with the type, a folder, a symbolic link to `target`, or a file of `size` bytes. */
int stk_tar_entry(const stk_tar *tar, const char *name, const char *target, mode_t mode,
                  int64_t size, stk_err *err);
int stk_tar_data(const stk_tar *tar, const void *data, size_t n, stk_err *err);
int stk_tar_pad(const stk_tar *tar, int64_t size, stk_err *err);
int stk_tar_end(const stk_tar *tar, stk_err *err);

#endif
