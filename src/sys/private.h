/* Which of a user's files are private: not to be given to containers, other machines and images
 * with the project's code. Two signs: a name that holds secrets by custom (tbl/private_files.def),
 * and a mode that shuts others out of what lies in a folder that is open to them. In a folder that
 * is shut itself (umask 077) a mode tells nothing. */
#ifndef STK_SYS_PRIVATE_H
#define STK_SYS_PRIVATE_H

#include <stdbool.h>
#include <sys/stat.h>

/* By its name; a regular file (`st` says) is read where only its content tells. */
bool stk_private_by_name(const char *path, const struct stat *st);
/* By its mode; `folder` is what it lies in. */
bool stk_private_by_mode(const struct stat *folder, const struct stat *st);
/* Shut to group and others. */
bool stk_private_is_shut(mode_t mode);

#endif
