/* The files that go to a build, as a list, a digest and a tar. The tar has no times and no owners,
 * so that the same content is the same layer. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_private.h"
#include "image/image_recipe.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/private.h"
#include "sys/tar.h"

#define FOR_CONTEXT "for the build's context"

enum { MAX_FILES = 1000000, MAX_LEVELS = 256 };

static int add_to_context(stk_image_context *c, const stk_image_file *file, stk_err *err)
{
    if (c->n >= MAX_FILES) {
        return stk_err_set(
            err, STK_E_LIMIT,
            "the build's context has more than %d files; exclude some in .dockerignore", MAX_FILES);
    }
    stk_image_file *files = stk_arena_grow(c->arena, c->files, c->n, sizeof *files, &c->cap);
    STK_TRY(stk_err_need(files, FOR_CONTEXT, err));
    STK_TRY(stk_err_need(file->name, FOR_CONTEXT, err));
    c->files = files;
    c->files[c->n++] = *file;
    return 0;
}

int stk_image_context_text(stk_image_context *context, const char *name, const char *text,
                           stk_err *err)
{
    const stk_image_file file = {.name = stk_arena_dup(context->arena, name),
                                 .text = stk_arena_dup(context->arena, text),
                                 .mode = S_IFREG | 0644,
                                 .size = (int64_t)strlen(text)};
    STK_TRY(stk_err_need(file.text, FOR_CONTEXT, err));
    return add_to_context(context, &file, err);
}

int stk_image_context_program(stk_image_context *context, const char *name, const char *path,
                              stk_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "%s, for the build's context", path);
    }
    const stk_image_file file = {.name = stk_arena_dup(context->arena, name),
                                 .path = stk_arena_dup(context->arena, path),
                                 .mode = S_IFREG | 0755,
                                 .size = (int64_t)st.st_size};
    STK_TRY(stk_err_need(file.path, FOR_CONTEXT, err));
    return add_to_context(context, &file, err);
}

typedef struct walk {
    stk_image_context *context;
    const stk_image_ignore *ignore;
    const char *prefix;
    bool with_private;
    bool keeps_shut; /* modes mean something: the folder itself is open to others */
    stk_err *err;
} walk;

static bool is_shut(const walk *w, const struct stat *st)
{
    return w->keeps_shut && stk_private_is_shut(st->st_mode);
}

static int take_file(const walk *w, const char *path, const char *below, const struct stat *st)
{
    stk_arena *arena = w->context->arena;
    stk_image_file file = {.name = stk_arena_printf(arena, "%s%s", w->prefix, below),
                           .path = stk_arena_dup(arena, path)};
    if (S_ISLNK(st->st_mode)) {
        char target[PATH_MAX];
        ssize_t n = readlink(path, target, sizeof target - 1);
        if (n < 0) {
            return stk_err_sys(w->err, STK_E_SYS, errno, "reading the link %s", path);
        }
        file.target = stk_arena_dupn(arena, target, (size_t)n);
        file.mode = S_IFLNK | 0777;
    } else if (S_ISDIR(st->st_mode)) {
        file.mode = S_IFDIR | 0755u;
    } else if (S_ISREG(st->st_mode)) {
        file.mode = S_IFREG | ((st->st_mode & 0100) != 0 ? 0755u : 0644u);
        file.size = st->st_size;
    } else {
        return 0; /* a socket, a device: nothing to build with */
    }
    if (!S_ISLNK(st->st_mode) && is_shut(w, st)) {
        file.mode &= ~0077u;
    }
    return add_to_context(w->context, &file, w->err);
}

static bool is_private(const walk *w, const struct stat *folder, const char *path, const char *name,
                       const struct stat *st)
{
    return !w->with_private && !S_ISLNK(st->st_mode) && !stk_image_is_named(w->ignore, name) &&
           (stk_private_by_name(path, st) || stk_private_by_mode(folder, st));
}

static int leave_out(const walk *w, const char *name)
{
    stk_image_context *c = w->context;
    if (c->n_left_out == 0) {
        c->left_out = stk_arena_dup(c->arena, name);
    } else if (c->n_left_out < STK_IMAGE_NAMED) {
        c->left_out = stk_arena_printf(c->arena, "%s, %s", c->left_out, name);
    }
    c->n_left_out++;
    return stk_err_need(c->left_out, FOR_CONTEXT, w->err);
}

static int go(const walk *w, const char *folder, const char *below, int level)
{
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read(folder, &dir, w->err) < 0) {
        return stk_err_context(w->err, "the build's context");
    }
    if (level > MAX_LEVELS) {
        return stk_err_set(w->err, STK_E_LIMIT, "%s is nested more than %d folders deep", folder,
                           MAX_LEVELS);
    }
    struct stat own;
    if (fstat(dir.fd, &own) < 0) {
        return stk_err_sys(w->err, STK_E_SYS, errno, "reading the build's context %s", folder);
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *last = dir.items[i].name;
        if (*below == '\0' && strcmp(last, ".stoker") == 0) { /* never code */
            continue;
        }
        struct stat st;
        STK_TEXT_AUTO path = stk_file_join(folder, last);
        STK_TEXT_AUTO name = *below == '\0' ? strdup(last) : stk_file_join(below, last);
        STK_TRY(stk_err_need(path, FOR_CONTEXT, w->err));
        STK_TRY(stk_err_need(name, FOR_CONTEXT, w->err));
        if (lstat(path, &st) < 0) {
            continue; /* removed since the folder was read */
        }
        bool ignored = stk_image_is_ignored(w->ignore, name);
        if (!ignored && is_private(w, &own, path, name, &st)) {
            STK_TRY(leave_out(w, name));
            continue;
        }
        if (!ignored) {
            STK_TRY(take_file(w, path, name, &st));
        }
        /* an exception may be below */
        if (S_ISDIR(st.st_mode) && (!ignored || w->ignore->has_exceptions)) {
            STK_TRY(go(w, path, name, level + 1));
        }
    }
    return 0;
}

int stk_image_context_tree(stk_image_context *context, const char *folder, const char *prefix,
                           const char *ignore, bool with_private, stk_err *err)
{
    enum { MAX_IGNORE_BYTES = 1 << 20 };
    STK_TEXT_AUTO own = stk_file_join(folder, ".dockerignore");
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_image_ignore patterns;
    const char *path = stk_text_or(ignore, own);
    STK_TRY(stk_err_if_null(path, err));
    int rc = stk_file_read(path, MAX_IGNORE_BYTES, &text, &len, err);
    if (rc != STK_E_NOT_FOUND || ignore != NULL) {
        STK_TRY(rc);
    }
    STK_TRY(stk_image_ignore_read(stk_text_or(text, ""), context->arena, &patterns, err));
    struct stat st = {0};
    bool keeps_shut = stat(folder, &st) == 0 && !stk_private_is_shut(st.st_mode);
    const walk w = {context, &patterns, prefix, with_private, keeps_shut, err};
    return go(&w, folder, "", 0);
}

static int by_file_name(const void *a, const void *b)
{
    return strcmp(((const stk_image_file *)a)->name, ((const stk_image_file *)b)->name);
}

void stk_image_context_sort(stk_image_context *context)
{
    if (context->n > 1) {
        qsort(context->files, context->n, sizeof *context->files, by_file_name);
    }
}

/* --- its content --- */

/* Gives the file's bytes to `to`; a file that is shorter than when it was listed is an error. */
static int each_block(const stk_image_file *f, int (*to)(void *arg, const void *data, size_t n),
                      void *arg, stk_err *err)
{
    if (f->text != NULL) {
        return to(arg, f->text, (size_t)f->size);
    }
    STK_FD_AUTO fd = stk_file_open_regular(f->path, O_RDONLY, 0);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "opening %s for the build's context", f->path);
    }
    char data[64 << 10];
    for (int64_t left = f->size; left > 0;) {
        ssize_t n = read(fd, data, (size_t)MIN(left, (int64_t)sizeof data));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return stk_err_set(err, STK_E_SYS, "%s changed while a build read it", f->path);
        }
        STK_TRY(to(arg, data, (size_t)n));
        left -= n;
    }
    return 0;
}

static int to_sha(void *arg, const void *data, size_t n)
{
    stk_sha256_add(arg, data, n);
    return 0;
}

int stk_image_context_digest(const stk_image_context *context, stk_sha256 *sha, stk_err *err)
{
    for (uint32_t i = 0; i < context->n; i++) {
        const stk_image_file *f = &context->files[i];
        char head[64];
        (void)snprintf(head, sizeof head, "%o %lld ", (unsigned)f->mode, (long long)f->size);
        stk_sha256_add(sha, head, strlen(head));
        stk_sha256_add(sha, f->name, strlen(f->name) + 1);
        if (f->target != NULL) {
            stk_sha256_add(sha, f->target, strlen(f->target) + 1);
        }
        if (S_ISREG(f->mode)) {
            STK_TRY(each_block(f, to_sha, sha, err));
        }
    }
    return 0;
}

/* --- tar --- */

typedef struct tar {
    stk_tar to;
    stk_err *err;
} tar;

static int to_tar(void *arg, const void *data, size_t n)
{
    const tar *t = arg;
    return stk_tar_data(&t->to, data, n, t->err);
}

static int put_entry(tar *t, const stk_image_file *f)
{
    STK_TRY(stk_tar_entry(&t->to, f->name, f->target, f->mode, f->size, t->err));
    if (!S_ISREG(f->mode)) {
        return 0;
    }
    STK_TRY(each_block(f, to_tar, t, t->err));
    return stk_tar_pad(&t->to, f->size, t->err);
}

int stk_image_context_tar(const stk_image_context *context, int *ret_fd, stk_err *err)
{
    const char *folder = getenv("TMPDIR");
    if (folder == NULL || *folder != '/') {
        folder = "/tmp";
    }
    STK_FD_AUTO fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making a temporary file in %s", folder);
    }
    tar t = {{fd, "the build's context to a temporary file"}, err};
    for (uint32_t i = 0; i < context->n; i++) {
        STK_TRY(put_entry(&t, &context->files[i]));
    }
    STK_TRY(stk_tar_end(&t.to, err));
    if (lseek(fd, 0, SEEK_SET) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "rewinding the build's context");
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}
