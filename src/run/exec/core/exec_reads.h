/* What steps read besides their inputs: files, folders and environment variables. A cache entry
 * holds all of it (`seen`), and a hit needs it unchanged.
 *
 * `seen` is a JSON object of texts:
 *
 *     "/path"   the SHA-256 of a project file that was imported; "": a distribution
 *     "/path"   "file SIZE MTIME_NS INODE SHA256"; SHA256 "-": unknown, so a touched file changed
 *     "/path"   "absent": the step looked for it
 *     "/path/"  "folder MTIME_NS INODE SHA256 OWN/…": the names in it, without those the step made
 *     "$NAME"   "set SHA256" or "unset"
 *     "@NAME"   "latest DIGEST": a stored artifact that it looked up by name
 *     "@NAME:V" "version DIGEST V": the same, by name and version
 *     "?"       a sentence: reads that can't be seen
 *
 * An MTIME_NS of 0 is never compared: the file had changed just before it was read.
 */
#ifndef STK_EXEC_READS_H
#define STK_EXEC_READS_H

#include <sys/stat.h>

#include "base/digest.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_start.h"

/* Adds the records of the attempt (docs/formats/task-directory.md: reads) to `seen`, which may be
 * NULL. *ret_unseen: the sentence, or NULL. Texts live in x->arena. */
int stk_exec_reads_collect(stk_exec *x, const exec_ending *e, const char *seen,
                           const char **ret_seen, const char **ret_unseen, stk_err *err);
/* The sentence of an entry, or NULL. */
const char *stk_exec_reads_unseen(const char *seen, stk_arena *arena);
/* The files, folders and set variables that an entry's step read: "data.csv, conf/, $LR and 3
 * more"; NULL: none. Paths below the current folder are relative. */
const char *stk_exec_reads_list(const char *seen, stk_arena *arena);
/* Checks one member of `seen` that the step's reads made. Returns whether it is one, and
 * *ret_change: "FILE, which it read, has changed", or NULL if nothing changed. `track`: files,
 * folders and variables count; artifacts always do. */
bool stk_exec_reads_check(const exec_lookup *lookup, const char *key, const char *value, bool track,
                          const char **ret_change);
/* Whether an entry's step looked up artifacts by name. */
bool stk_exec_reads_names(const char *seen);
/* Adds the variables of a task that records its reads. `dir`: the attempt's. */
void stk_exec_reads_env(const stk_exec *x, uint32_t task, const char *dir, exec_env *env);

/* --- digests, for exec_reads.c --- */

int64_t stk_reads_mtime_ns(const struct stat *st);
/* Hex; "-" if the file has more than 8 MiB or can't be read. */
void stk_reads_sum_file(const char *path, int64_t size, char hex[STK_DIGEST_HEX + 1]);
void stk_reads_sum_variable(const char *name, char ret[STK_DIGEST_HEX + 8]);
/* Of the folder's names without those in `own` ("a/b/", each ended by '/') and __pycache__. */
int stk_reads_sum_folder(const char *path, const char *own, char hex[STK_DIGEST_HEX + 1]);

#endif
