/* Checkpoints: what the attempts of one task leave for the next (docs/decisions/0008). Plain
 * entries of a folder beside the attempts, no rows: who removes a run's folder removes them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <string.h>
#include <sys/stat.h>

#include "store/store.h"
#include "sys/file.h"

const char *stk_store_checkpoint_folder(stk_store *store, const char *run, const char *step,
                                        uint32_t task, stk_arena *arena)
{
    return stk_arena_printf(arena, "%s/runs/%s/%s/%u/checkpoints", stk_store_path(store), run, step,
                            task);
}

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

void stk_store_checkpoints_look(const char *folder, stk_checkpoints *ret_found)
{
    *ret_found = (stk_checkpoints){.newest_ns = -1};
    DIR *dir = opendir(folder);
    struct dirent *e;
    struct stat st;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.' || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        int64_t ns = ns_of(&st.st_ctim); /* a rename counts, an old date that was copied doesn't */
        ret_found->n++;
        ret_found->newest_ns = ns > ret_found->newest_ns ? ns : ret_found->newest_ns;
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

int64_t stk_store_checkpoints_bytes(const char *folder)
{
    char *const paths[] = {(char *)(uintptr_t)folder, NULL};
    FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    FTSENT *e;
    int64_t bytes = 0;
    if (tree == NULL) {
        return -1;
    }
    while ((e = fts_read(tree)) != NULL) {
        if (e->fts_level == 1 && e->fts_name[0] == '.') {
            (void)fts_set(tree, e, FTS_SKIP);
        } else if (e->fts_info == FTS_F) {
            bytes += e->fts_statp->st_size;
        } else if (e->fts_info == FTS_ERR || e->fts_info == FTS_DNR || e->fts_info == FTS_NS) {
            bytes = -1;
            break;
        }
    }
    (void)fts_close(tree);
    return bytes;
}

int stk_store_checkpoints_clean(const char *folder, bool all, stk_err *err)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    int rc = dir == NULL && errno != ENOENT
                 ? stk_err_sys(err, STK_E_SYS, errno, "can't read '%s'", folder)
                 : 0;
    while (rc == 0 && dir != NULL && (e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            (!all && e->d_name[0] != '.')) {
            continue;
        }
        STK_TEXT_AUTO path = stk_file_join(folder, e->d_name);
        rc = path == NULL ? stk_err_set(err, STK_E_NOMEM, "%s: out of memory", folder)
                          : stk_file_remove_tree(path, err);
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return rc;
}
