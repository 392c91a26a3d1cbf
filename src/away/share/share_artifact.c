/* Artifacts in a shared store (docs/formats/shared-stores.md).
 *
 * A file is artifacts/ab/cd…, by its digest. A folder is its files, each such an object, and
 * artifacts/ab/cd….tree: the very text that its digest is of, a line a file, and behind it what
 * the digest doesn't cover: "+x PATH" (executable), "+d PATH" (a folder without files). It is put
 * last: where it is, all is. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_private.h"
#include "store/store_digest.h"
#include "sys/faults.h"
#include "sys/file.h"

enum { TREE_MAX = 1 << 30, KEY_SIZE = STK_SHARE_KEY_MAX + 96, LOCK_TRIES = 100 };

#define ARTIFACTS "artifacts"

/* `under`: ARTIFACTS, or where something lies that is to be removed again. */
static void artifact_key(const char *under, const char *digest, const char *suffix,
                         char key[KEY_SIZE])
{
    (void)snprintf(key, KEY_SIZE, "%s/%.2s/%s%s", under, digest, digest + 2, suffix);
}

static int check_digest(const char *digest, stk_err *err)
{
    if (strlen(digest) != STK_DIGEST_HEX || strspn(digest, "0123456789abcdef") != STK_DIGEST_HEX) {
        return stk_err_set(err, STK_E_USAGE, "'%.80s' isn't a valid digest of an artifact", digest);
    }
    return 0;
}

/* 0 and *ret, also where it isn't there. */
static int find_object(stk_share *share, const char *under, const char *digest, const char *suffix,
                       bool *ret, int64_t *ret_size, stk_err *err)
{
    char key[KEY_SIZE];
    artifact_key(under, digest, suffix, key);
    if (stk_share_is_cancelled(share)) { /* everything here asks this first */
        return stk_share_cancelled(share, err);
    }
    int rc = share->ops->look(share, key, ret_size, err);
    *ret = rc == 0;
    return stk_err_but(rc, STK_E_NOT_FOUND);
}

static int has_object(stk_share *share, const char *under, const char *digest, const char *suffix,
                      bool *ret, stk_err *err)
{
    int64_t size;
    return find_object(share, under, digest, suffix, ret, &size, err);
}

static int has_either(stk_share *share, const char *under, const char *digest, bool *ret,
                      stk_err *err)
{
    int rc = has_object(share, under, digest, "", ret, err);
    if (rc < 0 || *ret) {
        return rc;
    }
    return has_object(share, under, digest, ".tree", ret, err);
}

int stk_share_has(stk_share *share, const char *digest, bool *ret, stk_err *err)
{
    STK_TRY(check_digest(digest, err));
    return has_either(share, ARTIFACTS, digest, ret, err);
}

int stk_share_size(stk_share *share, const char *digest, int64_t *ret_size, stk_err *err)
{
    bool is_there = false;
    STK_TRY(check_digest(digest, err));
    STK_TRY(find_object(share, ARTIFACTS, digest, "", &is_there, ret_size, err));
    if (!is_there) {
        *ret_size = -1;
    }
    return 0;
}

/* --- push --- */

static int push_file(stk_share *share, const char *under, const char *path, const char *digest,
                     int64_t size, stk_err *err)
{
    char key[KEY_SIZE];
    bool there = false;
    artifact_key(under, digest, "", key);
    if (share->ops->small == 0 || size > share->ops->small) {
        STK_TRY(has_object(share, under, digest, "", &there, err));
    }
    if (there) {
        return 0;
    }
    return stk_share_send_file(share, key, path, digest, err);
}

typedef struct pushed {
    stk_share *share;
    const char *under;
    const stk_tree *tree;
    char (*digests)[STK_DIGEST_HEX + 1]; /* of the tree's files */
} pushed;

static int push_one(void *arg, uint64_t i, stk_err *err)
{
    pushed *p = arg;
    const stk_tree_file *f = &p->tree->files[i];
    if (f->is_dir) {
        return 0;
    }
    STK_TEXT_AUTO path = stk_file_join(p->tree->root, f->path);
    if (path == NULL) {
        return stk_share_no_memory(p->share, err);
    }
    STK_TRY(stk_share_sum(p->share, path, p->digests[i], err));
    return push_file(p->share, p->under, path, p->digests[i], f->size, err);
}

static bool has_files(const stk_tree *tree, size_t i)
{
    size_t n = strlen(tree->files[i].path);
    const stk_tree_file *next = &tree->files[i + 1];
    /* Sorted by bytes, what is in a folder needn't come right behind it: "a", "a-b", "a/c". */
    for (; next < tree->files + tree->n && strncmp(next->path, tree->files[i].path, n) == 0;
         next++) {
        if (next->path[n] == '/') {
            return true;
        }
    }
    return false;
}

static int write_tree(const pushed *p, const char *digest, stk_buf *text, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_buf_text(text, SHARE_TREE_HEAD);
    for (size_t i = 0; i < p->tree->n; i++) {
        const stk_tree_file *f = &p->tree->files[i];
        if (!f->is_dir) {
            stk_buf_printf(text, "%s %lld %s\n", p->digests[i], (long long)f->size, f->path);
        }
    }
    if (!text->failed) {
        stk_tree_digest_bytes(text->data, text->len, hex);
        if (strcmp(hex, digest) != 0) {
            return stk_err_set(err, STK_E_STORE,
                               "artifact %.12s was changed in the local store: its digest is %.12s",
                               digest, hex);
        }
    }
    for (size_t i = 0; i < p->tree->n; i++) {
        const stk_tree_file *f = &p->tree->files[i];
        STK_TEXT_AUTO path = stk_file_join(p->tree->root, f->path);
        struct stat st;
        if (path == NULL) {
            return stk_share_no_memory(p->share, err);
        }
        if (f->is_dir && !has_files(p->tree, i)) {
            stk_buf_printf(text, "+d %s\n", f->path);
        } else if (!f->is_dir && stat(path, &st) == 0 && (st.st_mode & 0111) != 0) {
            stk_buf_printf(text, "+x %s\n", f->path);
        }
    }
    if (text->failed) {
        return stk_share_no_memory(p->share, err);
    }
    return 0;
}

static int sync_share(stk_share *share, stk_err *err)
{
    if (share->ops->sync == NULL) {
        return 0;
    }
    return share->ops->sync(share, err);
}

static int push_folder(stk_share *share, const char *under, const char *path, const char *digest,
                       stk_err *err)
{
    STK_TREE_AUTO tree = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(TREE_MAX);
    char key[KEY_SIZE];
    STK_TRY(stk_tree_walk_until(path, false, &share->cancelled, &tree, err));
    STK_TEXT_AUTO digests = calloc(tree.n + 1, STK_DIGEST_HEX + 1);
    if (digests == NULL) {
        return stk_share_no_memory(share, err);
    }
    pushed p = {.share = share, .under = under, .tree = &tree};
    p.digests = (char(*)[STK_DIGEST_HEX + 1]) digests;
    STK_TRY(stk_share_parallel(SHARE_FILES, tree.n, push_one, &p, err));
    STK_TRY(write_tree(&p, digest, &text, err));
    STK_TRY(sync_share(share, err));
    artifact_key(under, digest, ".tree", key);
    return stk_share_put(share, key, text.data, text.len, false, err);
}

static int push_what(stk_share *share, const char *under, const char *path, const char *digest,
                     stk_err *err)
{
    struct stat st;
    char key[KEY_SIZE];
    if (stat(path, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't read artifact '%s'", path);
    }
    if (S_ISDIR(st.st_mode)) {
        return push_folder(share, under, path, digest, err);
    }
    if ((st.st_mode & 0111) != 0) { /* before the file, so that it is known when that is there */
        artifact_key(under, digest, ".x", key);
        STK_TRY(stk_share_put(share, key, "", 0, false, err));
    }
    artifact_key(under, digest, "", key);
    STK_TRY(stk_share_send_file(share, key, path, digest, err));
    return sync_share(share, err);
}

int stk_share_push(stk_share *share, stk_store *store, const char *digest, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *path = NULL;
    int64_t size = 0;
    bool there = false;
    if (arena == NULL) {
        return stk_share_no_memory(share, err);
    }
    STK_TRY(stk_share_has(share, digest, &there, err));
    if (there) { /* before the store is asked, which may have it from here only */
        return 0;
    }
    STK_TRY(stk_store_artifact(store, digest, arena, &path, &size, err));
    return push_what(share, ARTIFACTS, path, digest, err);
}

int stk_share_push_path(stk_share *share, const char *under, const char *path, const char *digest,
                        stk_err *err)
{
    bool there = false;
    STK_TRY(check_digest(digest, err));
    STK_TRY(has_either(share, under, digest, &there, err));
    if (there) {
        return 0;
    }
    return push_what(share, under, path, digest, err);
}

/* --- pull --- */

/* <store>/tmp/pull-<digest>, ours until the lock's descriptor is closed. What a pull that died has
 * left there is of use; gc removes it when nobody holds the lock. */
static int take_stage(stk_store *store, const char *digest, char **ret_path, int *ret_lock,
                      stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    if (asprintf(&path, "%s/tmp/pull-%s", stk_store_path(store), digest) < 0) {
        path = NULL;
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "artifact %.12s", digest);
    }
    STK_TEXT_AUTO name = stk_file_join(path, "lock");
    for (int tries = 0; name != NULL && tries < LOCK_TRIES; tries++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        struct stat st;
        int rc = 0;
        STK_TRY(stk_file_mkdirs(path, 0777, err));
        STK_FD_AUTO fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 && errno != ENOENT) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", name);
        }
        while (fd >= 0 && (rc = fcntl(fd, F_OFD_SETLKW, &lock)) < 0 && errno == EINTR) {
        }
        if (fd >= 0 && rc == 0 && fstat(fd, &st) == 0 && st.st_nlink > 0) { /* else: just removed */
            *ret_path = path;
            *ret_lock = fd;
            path = NULL;
            fd = -1;
            return 0;
        }
    }
    return stk_err_set(err, STK_E_SYS, "can't lock '%s'", path);
}

typedef struct pulled {
    stk_share *share;
    const char *under;
    const char *root;
    const stk_share_tree *tree;
} pulled;

static int make_parent(const pulled *p, const char *path, stk_err *err)
{
    STK_TEXT_AUTO folder = stk_file_join(p->root, path);
    if (folder == NULL) {
        return stk_share_no_memory(p->share, err);
    }
    *strrchr(folder, '/') = '\0';
    return stk_file_mkdirs(folder, 0755, err);
}

/* The folders that files need. */
static int make_folders(const pulled *p, stk_err *err)
{
    for (uint64_t i = 0; i < p->tree->n; i++) {
        STK_TRY(make_parent(p, p->tree->files[i].path, err));
    }
    return 0;
}

/* "+x PATH", "+d PATH": once the files are there. */
static int apply_rest(const pulled *p, stk_err *err)
{
    for (uint64_t i = 0; i < p->tree->n_rest; i++) {
        const char *line = p->tree->rest[i];
        STK_TEXT_AUTO path = stk_file_join(p->root, line + 3);
        if (path == NULL) {
            return stk_share_no_memory(p->share, err);
        }
        if (line[1] == 'd') {
            STK_TRY(stk_file_mkdirs(path, 0755, err));
        } else if (line[1] == 'x' && chmod(path, 0555) < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't make '%s' executable", path);
        }
    }
    return 0;
}

/* One that is there already was made by an interrupted pull: under its own name once verified. */
static int pull_one(void *arg, uint64_t i, stk_err *err)
{
    pulled *p = arg;
    char key[KEY_SIZE];
    STK_TEXT_AUTO path = stk_file_join(p->root, p->tree->files[i].path);
    STK_TEXT_AUTO part = NULL;
    if (path == NULL || asprintf(&part, "%s/../part-%llu", p->root, (unsigned long long)i) < 0) {
        part = NULL;
        return stk_share_no_memory(p->share, err);
    }
    if (stk_file_exists(path)) {
        return 0;
    }
    artifact_key(p->under, p->tree->files[i].digest, "", key);
    const stk_share_tree_file *f = &p->tree->files[i];
    struct stat st;
    int rc = p->share->ops->get_file(p->share, key, part, f->digest, f->size, err);
    if (rc == 0 && stat(part, &st) == 0 && st.st_size != f->size) {
        rc = stk_err_set(err, STK_E_STORE,
                         "store '%s' has an invalid list of files: '%s' has %lld bytes, not %lld",
                         p->share->url, f->path, (long long)st.st_size, (long long)f->size);
    }
    if (rc == 0 && rename(part, path) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't write '%s'", path);
    }
    return rc;
}

/* All of it once more, as it lies here: an earlier pull's files too. */
static int check_sum(const stk_share *share, const char *digest, const char *root, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    int rc = stk_share_sum(share, root, hex, err);
    if (rc < 0 || strcmp(hex, digest) == 0) {
        return rc;
    }
    return stk_err_set(
        err, STK_E_STORE,
        "artifact %.12s from store '%s' has other content, with digest %.12s, and isn't used",
        digest, share->url, hex);
}

static int pull_folder(stk_share *share, const char *under, const char *digest, const char *root,
                       stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(TREE_MAX);
    char key[KEY_SIZE];
    STK_SHARE_TREE_AUTO tree = {0};
    artifact_key(under, digest, ".tree", key);
    int rc = share->ops->get(share, key, 0, true, &text, err);
    if (rc == 0 &&
        (rc = stk_share_tree_read(text.data, text.len, digest, &tree, err)) == STK_E_STORE) {
        (void)stk_err_context(err, "artifact %.12s in store '%s' has an invalid list of files",
                              digest, share->url);
    }
    STK_TRY(rc);
    pulled p = {.share = share, .under = under, .root = root, .tree = &tree};
    STK_TRY(stk_file_mkdirs(root, 0755, err));
    STK_TRY(make_folders(&p, err));
    STK_TRY(stk_share_parallel(SHARE_FILES, tree.n, pull_one, &p, err));
    STK_TRY(apply_rest(&p, err));
    return check_sum(share, digest, root, err);
}

static int pull_file(stk_share *share, const char *under, const char *digest, int64_t size,
                     const char *path, stk_err *err)
{
    char key[KEY_SIZE];
    bool is_program = false;
    artifact_key(under, digest, "", key);
    STK_TRY(share->ops->get_file(share, key, path, digest, size, err));
    STK_TRY(has_object(share, under, digest, ".x", &is_program, err));
    if (is_program && chmod(path, 0555) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't make '%s' executable", path);
    }
    return 0;
}

/* Its bytes, here: the store may be one that fetches from this share what it hasn't. */
static bool have(stk_store *store, const char *digest)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *path;
    return arena != NULL && stk_store_locate(store, digest, arena, &path, NULL, NULL) == 0 &&
           stk_file_exists(path);
}

/* Into the folder `stage`, by the name that is returned, malloc'd. */
static int pull_staged(stk_share *share, const char *under, const char *digest, const char *stage,
                       char **ret_path, stk_err *err)
{
    bool is_file = false;
    bool is_folder = false;
    int64_t size = -1;
    STK_TRY(find_object(share, under, digest, "", &is_file, &size, err));
    if (!is_file) {
        STK_TRY(has_object(share, under, digest, ".tree", &is_folder, err));
        if (!is_folder) {
            return stk_err_set(err, STK_E_NOT_FOUND, "artifact %.12s isn't in store '%s'", digest,
                               share->url);
        }
    }
    STK_TEXT_AUTO path = stk_file_join(stage, is_file ? "data" : "tree");
    if (path == NULL) {
        return stk_share_no_memory(share, err);
    }
    if (is_file) {
        STK_TRY(pull_file(share, under, digest, size, path, err));
    } else {
        STK_TRY(pull_folder(share, under, digest, path, err));
    }
    *ret_path = path;
    path = NULL;
    return 0;
}

static int pull_into(stk_share *share, stk_store *store, const char *digest, const char *stage,
                     stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    stk_artifact added;
    STK_TRY(pull_staged(share, ARTIFACTS, digest, stage, &path, err));
    return stk_store_add_path_until(store, path, digest, &share->cancelled, &added, err);
}

int stk_share_pull_path(stk_share *share, const char *under, const char *digest, const char *stage,
                        char **ret_path, stk_err *err)
{
    STK_TRY(check_digest(digest, err));
    return pull_staged(share, under, digest, stage, ret_path, err);
}

int stk_share_pull(stk_share *share, stk_store *store, const char *digest, stk_err *err)
{
    STK_TEXT_AUTO stage = NULL;
    STK_FD_AUTO lock = -1;
    int rc = check_digest(digest, err);
    if (rc < 0 || have(store, digest)) {
        return rc;
    }
    rc = take_stage(store, digest, &stage, &lock, err);
    stk_err why = {0};
    if (rc == 0 && !have(store, digest)) { /* else somebody else pulled it meanwhile */
        rc = pull_into(share, store, digest, stage, &why);
    }
    if (rc < 0 && why.code != 0 && err != NULL) {
        *err = why;
    }
    /* What is refused leaves nothing; after a failure that passes, the next pull goes on there. */
    if (stage != NULL && (rc == 0 || !(stk_share_may_pass(&why) || rc == STK_E_CANCELLED))) {
        int removed = stk_file_remove_tree(stage, rc == 0 ? err : NULL);
        if (rc == 0) {
            rc = removed;
        }
    }
    return rc;
}
