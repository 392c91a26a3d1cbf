/* Checkpoints: files that the attempts of one task leave for the next (docs/decisions/0008). They
 * are plain entries of a folder beside the attempts, without rows, so removing a run's folder
 * removes them. */
#include <fcntl.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>

#include "store/store.h"
#include "sys/dir.h"
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
    STK_DIR_AUTO dir = {0};
    struct stat st;
    int rc = stk_dir_read(folder, &dir, NULL); /* no attempt can resume from an unreadable folder */
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        const char *name = dir.items[i].name;
        if (name[0] == '.' || fstatat(dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            continue;
        }
        int64_t ns = ns_of(&st.st_ctim); /* ctime: a rename counts, a copied old date doesn't */
        ret_found->n++;
        ret_found->newest_ns = MAX(ns, ret_found->newest_ns);
    }
}

static int count_bytes(void *arg, const stk_dir_seen *e, stk_err *err)
{
    (void)err;
    if (e->below[0] == '.') {
        return STK_DIR_SKIP;
    }
    if (S_ISREG(e->st->st_mode)) {
        *(int64_t *)arg += e->st->st_size;
    }
    return 0;
}

int64_t stk_store_checkpoints_bytes(const char *folder)
{
    int64_t bytes = 0;
    return stk_dir_walk(folder, count_bytes, &bytes, NULL) < 0 ? -1 : bytes;
}

int stk_store_checkpoints_clean(const char *folder, bool all, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_if(folder, &dir, err);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        if (!all && dir.items[i].name[0] != '.') {
            continue;
        }
        STK_TEXT_AUTO path = stk_file_join(folder, dir.items[i].name);
        if (path == NULL) {
            rc = stk_err_set(err, STK_E_NOMEM, "%s: out of memory", folder);
        } else {
            rc = stk_file_remove_tree(path, err);
        }
    }
    return rc;
}
