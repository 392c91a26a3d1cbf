/* Packs a project's code as one artifact. An index beside the store keeps each file's digest, so
 * that later calls stat every file but read only changed ones. */
#include "store/package/package.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/digest.h"
#include "base/text.h"
#include "base/units.h"
#include "store/package/package_private.h"
#include "store/store_digest.h"
#include "sys/file.h"

#define DEFAULT_BYTES ((int64_t)100 << 20)
#define INDEX_HEAD "stoker-package-index-1\n"

enum {
    INDEX_BYTES = 256 << 20,
    MANIFEST_BYTES = 64 << 20,
    N_LARGEST = 5,
    N_PRIVATE = 5, /* private files named in the note */
    RECENT_S = 2   /* a file changed this recently may change again within one tick of its clock */
};

const char *stk_package_root(const char *folder, stk_arena *arena)
{
    static const char *const marks[] = {".git", "stoker.yaml", "pyproject.toml"};
    char *at = stk_arena_dup(arena, folder);
    while (at != NULL && *at != '\0') {
        for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
            char *path = stk_arena_printf(arena, "%s/%s", at, marks[i]);
            if (path != NULL && stk_file_exists(path)) {
                return at;
            }
        }
        char *slash = strrchr(at, '/');
        if (slash == NULL) {
            break;
        }
        *slash = '\0';
    }
    return folder;
}

/* --- too large --- */

static int larger_first(const void *a, const void *b)
{
    const package_file *x = *(package_file *const *)a;
    const package_file *y = *(package_file *const *)b;
    if (x->st.st_size != y->st.st_size) {
        return x->st.st_size > y->st.st_size ? -1 : 1;
    }
    return strcmp(x->path, y->path);
}

static int too_large(const package_list *list, int64_t max, stk_arena *arena, stk_err *err)
{
    char size[32];
    char limit[32];
    STK_BUF_AUTO text = STK_BUF_INIT(600);
    const package_file **files = stk_arena_array(arena, list->n, sizeof *files);
    STK_TRY(stk_err_if_null(files, err));
    for (uint32_t i = 0; i < list->n; i++) {
        files[i] = &list->files[i];
    }
    qsort(files, list->n, sizeof *files, larger_first);
    for (uint32_t i = 0; i < list->n && i < N_LARGEST; i++) {
        stk_buf_separate(&text, ", ");
        stk_buf_printf(&text, "%.80s (%s)", files[i]->path,
                       stk_units_format_memory(files[i]->st.st_size, size, sizeof size));
    }
    stk_err_set(
        err, STK_E_LIMIT,
        "the code in %s has %s, more than the %s that Stoker copies into containers; largest: %s",
        list->root, stk_units_format_memory(list->bytes, size, sizeof size),
        stk_units_format_memory(max, limit, sizeof limit), text.data);
    stk_err_hint(err, "list files that aren't code in %s/.stokerignore, and pass data as inputs",
                 list->root);
    return STK_E_LIMIT;
}

/* --- what is private --- */

static const char *note_of(const package_list *list, stk_arena *arena)
{
    STK_BUF_AUTO text = STK_BUF_INIT(2000);
    stk_buf_printf(&text, "left out of the project's code as private: ");
    for (uint32_t i = 0; i < list->n_left_out && i < N_PRIVATE; i++) {
        stk_buf_text(&text, stk_text_when(i > 0, ", "));
        stk_buf_printf(&text, "%.100s", list->left_out[i]);
    }
    if (list->n_left_out > N_PRIVATE) {
        stk_buf_printf(&text, " and %u more", list->n_left_out - N_PRIVATE);
    }
    stk_buf_text(&text, "; to include one, add a line with '!' and its name to .stokerignore");
    return stk_buf_keep(&text, arena);
}

/* Makes the store's folder for packages, readable only for us. */
static int make_own_folder(const char *folder, stk_err *err)
{
    STK_TRY(stk_file_mkdirs(folder, 0700, err));
    if (chmod(folder, 0700) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "%s", folder);
    }
    return 0;
}

/* --- digests that are known --- */

/* Everything in a file's metadata that changes when the file does. */
static const char *stamp(const struct stat *st, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%" PRIu64 ".%" PRIu64 ".%" PRId64 ".%" PRId64 ".%ld.%" PRId64 ".%ld",
                   (uint64_t)st->st_dev, (uint64_t)st->st_ino, (int64_t)st->st_size,
                   (int64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (int64_t)st->st_ctim.tv_sec,
                   st->st_ctim.tv_nsec);
    return buf;
}

static const char *index_path(const stk_store *store, const char *root, stk_arena *arena)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_digest_of(root, strlen(root), hex);
    return stk_arena_printf(arena, "%s/package/%.16s.index", stk_store_path(store), hex);
}

/* Reads lines of "STAMP DIGEST PATH". Files missing from an unreadable index are read anew from the
 * project. */
static void read_index(const char *path, stk_map *ret, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    const size_t head = sizeof INDEX_HEAD - 1;
    if (stk_file_read(path, INDEX_BYTES, &text, &len, NULL) < 0 || len < head ||
        memcmp(text, INDEX_HEAD, head) != 0) {
        return;
    }
    char *line = stk_arena_dupn(arena, text + head, len - head);
    for (char *end; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        char *name = strchr(line, ' ');
        if (name != NULL) {
            name = strchr(name + 1, ' ');
        }
        if (name != NULL && stk_map_put(ret, name + 1, (uintptr_t)line) < 0) {
            return;
        }
    }
}

static bool is_known(const stk_map *known, package_file *file)
{
    uint64_t at = 0;
    char now[160];
    if (!stk_map_get(known, file->path, &at)) {
        return false;
    }
    const char *line = (const char *)(uintptr_t)at;
    size_t n = strlen(stamp(&file->st, now, sizeof now));
    if (strncmp(line, now, n) != 0 || line[n] != ' ') {
        return false;
    }
    memcpy(file->digest, line + n + 1, STK_DIGEST_HEX);
    return true;
}

static int find_digests(const stk_store *store, package_list *list, stk_arena *arena, stk_err *err)
{
    STK_MAP_AUTO known = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(INDEX_BYTES);
    const char *path = index_path(store, list->root, arena);
    struct timespec now;
    bool all_known = true;
    STK_TRY(stk_err_if_null(path, err));
    (void)clock_gettime(CLOCK_REALTIME, &now);
    read_index(path, &known, arena);
    stk_buf_text(&text, INDEX_HEAD);
    for (uint32_t i = 0; i < list->n; i++) {
        package_file *file = &list->files[i];
        char mark[160];
        if (file->link != NULL) {
            continue;
        }
        if (!is_known(&known, file)) {
            const char *full = stk_arena_printf(arena, "%s/%s", list->root, file->path);
            STK_TRY(stk_err_if_null(full, err));
            STK_TEXT_AUTO real = realpath(full, NULL); /* a link may lead outside */
            int64_t size = 0;
            if (real == NULL) {
                return stk_err_sys(err, STK_E_SYS, errno, "reading %s", full);
            }
            STK_TRY(stk_store_digest_path(real, file->digest, &size, err));
            all_known = false;
            if (size != file->st.st_size) {
                continue; /* changed just now: the copy gets a fresh digest */
            }
        }
        if (now.tv_sec - file->st.st_mtim.tv_sec > RECENT_S) {
            stk_buf_printf(&text, "%s %s %s\n", stamp(&file->st, mark, sizeof mark), file->digest,
                           file->path);
        }
    }
    const char *folder = stk_arena_printf(arena, "%s/package", stk_store_path(store));
    if (!all_known && !text.failed && folder != NULL && make_own_folder(folder, NULL) == 0) {
        (void)stk_file_write_atomic(path, text.data, text.len, 0600,
                                    NULL); /* a failure only costs time */
    }
    return 0;
}

/* --- the artifact --- */

static int manifest(const package_list *list, stk_buf *buf, stk_err *err)
{
    stk_buf_text(buf, "stoker-package-1\n");
    for (uint32_t i = 0; i < list->n; i++) {
        const package_file *file = &list->files[i];
        if (strchr(file->path, '\n') != NULL) {
            stk_err_set(err, STK_E_USAGE,
                        "%s/%s: a file whose name has a line break can't be packed", list->root,
                        file->path);
            stk_err_hint(err, "rename it, or list it in .stokerignore");
            return STK_E_USAGE;
        }
        if (file->link != NULL) {
            stk_buf_printf(buf, "l %s\n%s\n", file->path, file->link);
        } else if ((file->st.st_mode & 0111) != 0) {
            stk_buf_printf(buf, "x %s\n", file->path);
        }
        if (file->is_shut) {
            stk_buf_printf(buf, "p %s\n", file->path);
        }
    }
    return stk_buf_check(buf, err);
}

/* The digest of a folder, by docs/formats/task-directory.md. */
static int digest_of(const package_list *list, const stk_buf *man, char ret[STK_DIGEST_HEX + 1],
                     stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(INDEX_BYTES);
    char own[STK_DIGEST_HEX + 1];
    bool told = false;
    stk_tree_digest_bytes(man->data, man->len, own);
    stk_buf_text(&text, "stoker-tree-1\n");
    for (uint32_t i = 0; i <= list->n; i++) {
        const package_file *file = i < list->n ? &list->files[i] : NULL;
        if (!told && (file == NULL || strcmp(STK_PACKAGE_MANIFEST, file->path) < 0)) {
            stk_buf_printf(&text, "%s %zu %s\n", own, man->len, STK_PACKAGE_MANIFEST);
            told = true;
        }
        if (file != NULL && file->link == NULL) {
            stk_buf_printf(&text, "%s %lld %s\n", file->digest, (long long)file->st.st_size,
                           file->path);
        }
    }
    if (!text.failed) {
        stk_tree_digest_bytes(text.data, text.len, ret);
    }
    return stk_buf_check(&text, err);
}

/* Shares blocks if the file system can. */
static int copy_file(const char *from, const char *to, mode_t mode, stk_err *err)
{
    STK_FD_AUTO in = open(from, O_RDONLY | O_CLOEXEC);
    STK_FD_AUTO out = -1;
    if (in >= 0) {
        out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    if (out < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "copying %s", from);
    }
    if (ioctl(out, FICLONE, in) == 0) {
        return 0;
    }
    ssize_t n;
    while ((n = sendfile(out, in, NULL, 16 << 20)) > 0) {
    }
    if (n < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "copying %s to %s", from, to);
    }
    return 0;
}

/* Makes the folders of `path` (relative) below `base`; `made` remembers them. */
static int make_parents(const char *base, const char *path, stk_map *made, stk_arena *arena,
                        stk_err *err)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || stk_map_getn(made, path, (size_t)(slash - path), NULL)) {
        return 0;
    }
    const char *parent = stk_arena_dupn(arena, path, (size_t)(slash - path));
    STK_TRY(stk_err_if_null(parent, err));
    const char *full = stk_arena_printf(arena, "%s/%s", base, parent);
    STK_TRY(stk_err_if_null(full, err));
    STK_TRY(stk_file_mkdirs(full, 0755, err));
    if (stk_map_put(made, parent, 1) < 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int lay_out(const package_list *list, const stk_buf *man, const char *folder,
                   stk_arena *arena, stk_err *err)
{
    STK_MAP_AUTO made = {0};
    const char *own = stk_arena_printf(arena, "%s/%s", folder, STK_PACKAGE_MANIFEST);
    STK_TRY(stk_err_if_null(own, err));
    STK_TRY(stk_file_mkdirs(folder, 0755, err));
    STK_TRY(stk_file_write(own, man->data, man->len, 0644, err));
    for (uint32_t i = 0; i < list->n; i++) {
        const package_file *file = &list->files[i];
        if (file->link != NULL) {
            continue;
        }
        const char *from = stk_arena_printf(arena, "%s/%s", list->root, file->path);
        const char *to = stk_arena_printf(arena, "%s/%s", folder, file->path);
        mode_t mode = stk_file_mode(file->st.st_mode, 0755);
        if (file->is_shut) {
            mode &= 0500; /* the store keeps this mode */
        }
        STK_TRY(make_parents(folder, file->path, &made, arena, err));
        if (from == NULL || to == NULL) {
            return stk_err_nomem(err);
        }
        STK_TRY(copy_file(from, to, mode, err));
    }
    return 0;
}

/* Sets *ret_note to the note on private files that were left out, or NULL. */
static int make_note(const package_list *list, stk_arena *keep, const char **ret_note, stk_err *err)
{
    if (list->n_left_out == 0) {
        return 0;
    }
    *ret_note = note_of(list, keep);
    return stk_err_if_null(*ret_note, err);
}

int stk_package_add(stk_store *store, const char *root, int64_t max_bytes, stk_arena *keep,
                    stk_artifact *ret, const char **ret_note, stk_err *err)
{
    return stk_package_add_only(store, root, NULL, max_bytes, keep, ret, ret_note, err);
}

int stk_package_add_only(stk_store *store, const char *root, const char *const *only,
                         int64_t max_bytes, stk_arena *keep, stk_artifact *ret,
                         const char **ret_note, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO man = STK_BUF_INIT(MANIFEST_BYTES);
    char digest[STK_DIGEST_HEX + 1];
    int64_t max = max_bytes > 0 ? max_bytes : DEFAULT_BYTES;
    package_list list = {.root = root, .store = stk_store_path(store), .only = only};
    const char *path = NULL;
    int64_t size = 0;
    *ret_note = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_package_walk(&list, arena, err));
    if (list.bytes > max) {
        return too_large(&list, max, arena, err);
    }
    STK_TRY(manifest(&list, &man, err));
    STK_TRY(find_digests(store, &list, arena, err));
    STK_TRY(digest_of(&list, &man, digest, err));
    STK_TRY(make_note(&list, keep, ret_note, err));
    if (stk_store_artifact(store, digest, arena, &path, &size, NULL) == 0) {
        *ret = (stk_artifact){.size = size, .is_dir = true};
        memcpy(ret->digest, digest, sizeof digest);
        (void)chmod(path, 0500);
        return 0;
    }
    const char *own = stk_arena_printf(arena, "%s/package", stk_store_path(store));
    STK_TRY(stk_err_if_null(own, err));
    const char *folder = stk_arena_printf(arena, "%s/new.%d", own, (int)getpid());
    STK_TRY(stk_err_if_null(folder, err));
    STK_TRY(make_own_folder(own, err));
    STK_TRY(stk_file_remove_tree(folder, err));
    int rc = lay_out(&list, &man, folder, arena, err);
    if (rc == 0) { /* a file may have changed since it was summed: the digest of the copy counts */
        rc = stk_store_add_path(store, folder, NULL, ret, err);
    }
    if (rc < 0) {
        (void)stk_file_remove_tree(folder, NULL);
        return rc;
    }
    if (stk_store_artifact(store, ret->digest, arena, &path, &size, NULL) == 0) {
        (void)chmod(path, 0500); /* code must not be readable for others */
    }
    return 0;
}

int stk_package_private(const char *store, const char *root, const char *const *only,
                        stk_arena *keep, const char **ret_note, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    package_list list = {.root = root, .store = store, .only = only};
    *ret_note = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_package_walk(&list, arena, err));
    return make_note(&list, keep, ret_note, err);
}

/* --- viewing --- */

typedef struct viewer {
    const char *from, *to;
    stk_map shut; /* paths of files that only their owner may read */
    stk_arena *arena;
    stk_err *err;
} viewer;

static int view_link(viewer *v, const char *path, const char *target)
{
    char *link = stk_arena_printf(v->arena, "%s/%s", v->to, path);
    STK_TRY(stk_err_if_null(link, v->err));
    char *slash = strrchr(link, '/');
    *slash = '\0';
    STK_TRY(stk_file_mkdirs(link, 0755, v->err)); /* the folder may hold nothing but this link */
    *slash = '/';
    if (symlink(target, link) < 0) {
        return stk_err_sys(v->err, STK_E_SYS, errno, "linking %s", link);
    }
    return 0;
}

/* Reads the manifest: makes the links, or (`links` false) collects files only for their owner. */
static int read_manifest(viewer *v, bool links)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    const char *path = stk_arena_printf(v->arena, "%s/%s", v->from, STK_PACKAGE_MANIFEST);
    STK_TRY(stk_err_if_null(path, v->err));
    STK_TRY(stk_file_read(path, MANIFEST_BYTES, &text, &len, v->err));
    char *line = text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        if (!links && strncmp(line, "p ", 2) == 0) {
            const char *name = stk_arena_dup(v->arena, line + 2);
            if (name == NULL || stk_map_put(&v->shut, name, 1) < 0) {
                return stk_err_nomem(v->err);
            }
        }
        char *target = end + 1;
        char *after = strchr(target, '\n');
        if (line[0] != 'l' || after == NULL) {
            continue;
        }
        *after = '\0';
        if (links) {
            STK_TRY(view_link(v, line + 2, target));
        }
        end = after;
    }
    return 0;
}

/* Makes a hard link, which costs nothing. Copies if that fails, or if only the owner may read the
 * file and the artifact is more open (it came from a share). */
static int view_file(viewer *v, const char *path, const char *from, const char *to)
{
    struct stat st;
    if (stat(from, &st) < 0) {
        return stk_err_sys(v->err, STK_E_SYS, errno, "reading %s", from);
    }
    bool is_shut = stk_map_get(&v->shut, path, NULL);
    if ((!is_shut || (st.st_mode & 0077) == 0) && link(from, to) == 0) {
        return 0;
    }
    mode_t mode = stk_file_mode(st.st_mode, 0555);
    if (is_shut) {
        mode &= 0500;
    }
    return copy_file(from, to, mode, v->err);
}

static int view_files(viewer *v)
{
    STK_TREE_AUTO tree = {0};
    int rc = stk_tree_walk(v->from, false, &tree, v->err);
    for (size_t i = 0; i < tree.n && rc == 0; i++) { /* a folder comes before its contents */
        const stk_tree_file *file = &tree.files[i];
        const char *from = stk_arena_printf(v->arena, "%s/%s", v->from, file->path);
        const char *to = stk_arena_printf(v->arena, "%s/%s", v->to, file->path);
        if (from == NULL || to == NULL) {
            rc = stk_err_nomem(v->err);
        } else if (file->is_dir) {
            rc = stk_file_mkdirs(to, 0755, v->err);
        } else if (strcmp(file->path, STK_PACKAGE_MANIFEST) != 0) {
            rc = view_file(v, file->path, from, to);
        }
    }
    return rc;
}

int stk_package_view(stk_store *store, const char *digest, const char *folder, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    viewer v = {.to = folder, .arena = arena, .err = err};
    int64_t size = 0;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_store_artifact(store, digest, arena, &v.from, &size, err));
    STK_TRY(stk_file_mkdirs(folder, 0755, err));
    int rc = read_manifest(&v, false);
    if (rc == 0) {
        rc = view_files(&v);
    }
    if (rc == 0) {
        rc = read_manifest(&v, true);
    }
    stk_map_done(&v.shut);
    return rc;
}
