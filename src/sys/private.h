/* Finds a user's private files, which must not reach containers, other machines or images together
 * with the project's code. Two signs mark them: a name that usually holds secrets
 * (tbl/private_files.def), or a mode that shuts others out of a file in a folder that is open to
 * them. In a folder that is itself shut (umask 077) the mode means nothing. */
#ifndef STK_SYS_PRIVATE_H
#define STK_SYS_PRIVATE_H

#include <stdbool.h>
#include <sys/stat.h>

/* By its name. Reads a regular file (per `st`) if only the content decides. */
bool stk_private_by_name(const char *path, const struct stat *st);
/* By its mode; `folder` is the folder that holds it. */
bool stk_private_by_mode(const struct stat *folder, const struct stat *st);
/* True if group and others have no access. */
bool stk_private_is_shut(mode_t mode);

#endif
