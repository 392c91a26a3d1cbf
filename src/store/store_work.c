/* The long part of adding, checking and summing: reading, copying and removing files, which any
 * thread can do. The parts that need the database come before and after. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store_private.h"
#include "sys/file.h"

enum { AT_ONCE_BYTES = 1 << 20 }; /* removing a file of this size takes no time */

struct stk_store_work {
    char *path;
    char *stage; /* target of a copy, or NULL */
    bool is_remove;
    bool is_add;  /* false: only sums */
    bool is_take; /* removes `path` at the end */
    bool is_beside;
    bool is_known; /* made.digest was given */
    bool is_check; /* checks whether an artifact still has `digest` */
    bool is_calm, is_refused;
    bool is_stamped; /* an artifact with `stamp` is unchanged */
    char digest[STK_DIGEST_HEX + 1];
    char stamp[STK_STAMP_TEXT];
    bool is_copied;
    bool leaves_path, leaves_stage; /* what remains to be removed */
    stk_tree tree, copied;          /* of `path`, of `stage` */
    stk_artifact made;
    const atomic_bool *until; /* borrowed: our `stop`, or the caller's */
    atomic_bool stop; /* set by another thread; apart from the bools, which a compiler may access
                         together */
};

int stk_store_work_sum(const char *path, stk_store_work **ret_work, stk_err *err)
{
    stk_store_work *work = calloc(1, sizeof *work);
    if (work == NULL || (work->path = strdup(path)) == NULL) {
        free(work);
        return stk_err_nomem(err);
    }
    work->until = &work->stop;
    *ret_work = work;
    return 0;
}

int stk_store_work_remove(const char *path, stk_store_work **ret_work, stk_err *err)
{
    STK_TRY(stk_store_work_sum(path, ret_work, err));
    (*ret_work)->is_remove = true;
    return 0;
}

int stk_store_work_add(stk_store *store, const char *path, const char *known_digest, bool take,
                       stk_store_work **ret_work, stk_err *err)
{
    stk_store_work *work = NULL;
    STK_TRY(stk_store_writable(store, err));
    if (known_digest != NULL && !stk_store_is_digest(known_digest, strlen(known_digest))) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "'%s' comes with '%.80s', which isn't a valid digest", path,
                           known_digest);
    }
    STK_TRY(stk_store_work_sum(path, &work, err));
    work->is_add = true;
    work->is_take = take;
    work->is_beside = stk_store_is_beside(store, path);
    work->is_known = known_digest != NULL;
    if (known_digest != NULL) {
        memcpy(work->made.digest, known_digest, sizeof work->made.digest);
    }
    int rc = stk_store_stage_path(store, &work->stage, err);
    if (rc < 0) {
        stk_store_work_free(work);
        return rc;
    }
    *ret_work = work;
    return 0;
}

/* Makes a read-only copy of a walked tree; on failure removes what it copied. */
static int copy_locked(const stk_tree *tree, const char *to, stk_tree *ret_copied, stk_err *err)
{
    int rc = stk_tree_copy(tree, to, err);
    if (rc == 0) {
        rc = stk_tree_walk_until(to, true, tree->stop, ret_copied, err);
    }
    if (rc < 0) {
        (void)stk_file_remove_tree(to, NULL);
    }
    return rc;
}

/* --- checking --- */

int stk_store_work_check(stk_store *store, const char *digest, stk_store_work **ret_work,
                         stk_err *err)
{
    STK_TEXT_AUTO path = stk_store_artifact_path(store, digest);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_store_work_sum(path, ret_work, err));
    (*ret_work)->is_check = true;
    memcpy((*ret_work)->digest, digest, STK_DIGEST_HEX);
    bool is_good = stk_store_recall(store, digest, (*ret_work)->stamp);
    (*ret_work)->is_stamped = is_good && (*ret_work)->stamp[0] != '\0';
    return 0;
}

int stk_store_work_verify(stk_store *store, const char *digest, stk_store_work **ret_work,
                          stk_err *err)
{
    STK_TRY(stk_store_work_check(store, digest, ret_work, err));
    (*ret_work)->is_stamped = false;
    (*ret_work)->is_calm = true;
    return 0;
}

/* Doesn't read an artifact that has its stamp. */
static int run_check(stk_store_work *w, stk_err *err)
{
    char stamp[STK_STAMP_TEXT];
    STK_TRY(stk_tree_stamp(&w->tree, stamp, err));
    w->tree.is_calm = w->tree.is_cold = w->is_calm;
    if (w->is_stamped && strcmp(stamp, w->stamp) == 0) {
        memcpy(w->made.digest, w->digest, sizeof w->made.digest);
        return 0;
    }
    return stk_tree_digest(&w->tree, w->made.digest, err);
}

int stk_store_work_checked(stk_store *store, stk_store_work *w, stk_err *err)
{
    if (strcmp(w->made.digest, w->digest) == 0) {
        return stk_store_believe(store, w->digest, &w->tree, err);
    }
    if (w->is_refused) { /* refused earlier, for another caller: a good artifact may be in its place
                            now */
        return stk_err_set(err, STK_E_STORE, "artifact %.12s was damaged and has been set aside",
                           w->digest);
    }
    w->is_refused = true;
    return stk_store_refuse_damaged(store, w->digest, w->made.digest, err);
}

/* --- adding --- */

/* Copies first and sums the copy, which can't change any more. */
static int run_add(stk_store_work *w, stk_err *err)
{
    if (w->is_take && !w->is_known) {
        STK_TRY(stk_tree_digest(&w->tree, w->made.digest, err));
    }
    if (w->is_take && w->is_beside && !w->tree.foreign) {
        return 0;
    }
    STK_TRY(copy_locked(&w->tree, w->stage, &w->copied, err));
    w->is_copied = true;
    if (w->is_take || w->is_known) {
        return 0;
    }
    return stk_tree_digest(&w->copied, w->made.digest, err);
}

static int remove_left(stk_store_work *w)
{
    if (w->leaves_path) {
        stk_tree_remove(&w->tree);
    }
    if (w->leaves_stage) {
        stk_tree_remove(&w->copied);
    }
    w->leaves_path = w->leaves_stage = false;
    return 0;
}

int stk_store_work_run(stk_store_work *w, stk_err *err)
{
    if (w->leaves_path || w->leaves_stage) {
        return remove_left(w);
    }
    int rc = stk_tree_walk_until(w->path, w->is_take, w->until, &w->tree, err);
    if (w->is_remove) {
        if (rc == 0) {
            stk_tree_remove(&w->tree);
        }
        /* unusual entries too, such as links, which no artifact may have */
        if (atomic_load(w->until)) {
            return 0;
        }
        return stk_file_remove_tree(w->path, err);
    }
    if (rc < 0) {
        return rc;
    }
    w->made.size = w->tree.size;
    w->made.is_dir = w->tree.is_dir;
    if (w->is_check) {
        return run_check(w, err);
    }
    if (w->is_add) {
        return run_add(w, err);
    }
    return stk_tree_digest(&w->tree, w->made.digest, err);
}

void stk_store_work_stop(stk_store_work *work)
{
    atomic_store(&work->stop, true);
}

int stk_store_work_take(stk_store *store, stk_store_work *w, stk_artifact *ret, bool *ret_leaves,
                        stk_err *err)
{
    bool was_there = false;
    const stk_tree *tree = w->is_copied ? &w->copied : &w->tree;
    *ret = w->made;
    STK_TRY(stk_store_place(store, tree, ret, &was_there, err));
    w->leaves_path = w->is_take && (w->is_copied || was_there);
    w->leaves_stage = w->is_copied && was_there;
    *ret_leaves = w->leaves_path || w->leaves_stage;
    if (*ret_leaves && !tree->is_dir && tree->size <= AT_ONCE_BYTES) {
        *ret_leaves = false;
        return remove_left(w);
    }
    return 0;
}

void stk_store_work_summed(const stk_store_work *work, char ret_hex[STK_DIGEST_HEX + 1],
                           int64_t *ret_size)
{
    memcpy(ret_hex, work->made.digest, sizeof work->made.digest);
    *ret_size = work->made.size;
}

void stk_store_work_free(stk_store_work *w)
{
    if (w == NULL) {
        return;
    }
    stk_tree_done(&w->tree);
    stk_tree_done(&w->copied);
    free(w->path);
    free(w->stage);
    free(w);
}

/* --- at once --- */

static void free_work(stk_store_work **work)
{
    stk_store_work_free(*work);
}
#define WORK_AUTO __attribute__((cleanup(free_work))) stk_store_work *

/* Runs the work and adds the row; then runs it again to remove leftovers. */
static int work_through(stk_store *store, stk_store_work *work, stk_artifact *ret, stk_err *err)
{
    bool leaves = false;
    STK_TRY(stk_store_work_run(work, err));
    STK_TRY(stk_store_work_take(store, work, ret, &leaves, err));
    if (leaves) {
        return stk_store_work_run(work, err);
    }
    return 0;
}

static int add_at_once(stk_store *store, const char *path, const char *known_digest, bool take,
                       const atomic_bool *stop, stk_artifact *ret, stk_err *err)
{
    WORK_AUTO work = NULL;
    STK_TRY(stk_store_work_add(store, path, known_digest, take, &work, err));
    if (stop != NULL) {
        work->until = stop;
    }
    int rc = work_through(store, work, ret, err);
    if (rc < 0 && work->is_copied) {
        (void)stk_file_remove_tree(work->stage, NULL);
    }
    return rc;
}

int stk_store_add_path(stk_store *store, const char *path, const char *known_digest,
                       stk_artifact *ret, stk_err *err)
{
    return add_at_once(store, path, known_digest, true, NULL, ret, err);
}

int stk_store_add_path_until(stk_store *store, const char *path, const char *known_digest,
                             const atomic_bool *stop, stk_artifact *ret, stk_err *err)
{
    return add_at_once(store, path, known_digest, true, stop, ret, err);
}

int stk_store_copy_path(stk_store *store, const char *path, stk_artifact *ret, stk_err *err)
{
    return add_at_once(store, path, NULL, false, NULL, ret, err);
}
