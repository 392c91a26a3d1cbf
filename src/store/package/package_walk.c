/* Lists the files of a project that are not left out. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/package/package_private.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/private.h"

enum { DEPTH_MAX = 100, FILES_MAX = 1000000 };

typedef struct walker {
    package_list *list;
    stk_arena *arena;
    stk_map tracked;   /* paths that git tracks, and their folders */
    ignore_list *ours; /* .stokerignore, with the highest priority */
    ignore_list *gits;
    bool only_tracked;  /* inside an ignored folder that has tracked files */
    bool is_wanted;     /* inside a private folder that a '!' names */
    struct stat folder; /* the folder being read */
    struct {
        dev_t dev;
        ino_t ino;
    } above[DEPTH_MAX]; /* the enclosing folders: following a link to one would never end */
    stk_err *err;
} walker;

static bool is_left_out(const walker *w, const char *path, const char *name, bool is_folder)
{
    if (strcmp(name, ".git") == 0 || strcmp(path, w->list->store) == 0 ||
        strcmp(name, STK_PACKAGE_MANIFEST) == 0 ||
        (is_folder && (strcmp(name, ".stoker") == 0 || strcmp(name, "__pycache__") == 0))) {
        return true;
    }
    int says = stk_ignore_ask(w->ours, path, is_folder);
    if (says >= 0) {
        return says == 1;
    }
    bool ignored = w->only_tracked || stk_ignore_ask(w->gits, path, is_folder) == 1;
    return ignored && !stk_map_get(&w->tracked, path, NULL);
}

/* True if the file is private by its name, or its link target's; or by its mode, unless git tracks
 * it. */
static bool is_private(const walker *w, const char *path, const struct stat *st, bool is_link)
{
    char real[PATH_MAX];
    bool is_folder = S_ISDIR(st->st_mode);
    if (w->is_wanted || stk_ignore_names(w->ours, path, is_folder)) {
        return false;
    }
    return stk_private_by_name(path, st) ||
           (is_link && realpath(path, real) != NULL && stk_private_by_name(real, st)) ||
           (stk_private_by_mode(&w->folder, st) && !stk_map_get(&w->tracked, path, NULL));
}

static int leave_out(walker *w, const char *path, bool is_folder)
{
    package_list *list = w->list;
    const char **names = stk_arena_grow(w->arena, list->left_out, list->n_left_out, sizeof *names,
                                        &list->cap_left_out);
    const char *name = path + strlen(list->root) + 1;
    if (is_folder) {
        name = stk_arena_printf(w->arena, "%s/", name);
    }
    if (names == NULL || name == NULL) {
        return stk_err_nomem(w->err);
    }
    list->left_out = names;
    names[list->n_left_out++] = name;
    return 0;
}

/* The target of a link as written, if it lies inside the project. */
static const char *inner_link(const walker *w, const char *path)
{
    char target[PATH_MAX];
    char real[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    size_t root = strlen(w->list->root);
    if (n <= 0 || target[0] == '/' || realpath(path, real) == NULL ||
        strncmp(real, w->list->root, root) != 0 || (real[root] != '/' && real[root] != '\0')) {
        return NULL;
    }
    target[n] = '\0';
    if (strchr(target, '\n') != NULL) {
        return NULL;
    }
    return stk_arena_dup(w->arena, target);
}

static int add_item(walker *w, const char *path, const struct stat *st, const char *link)
{
    package_list *list = w->list;
    package_file *files = stk_arena_grow(w->arena, list->files, list->n, sizeof *files, &list->cap);
    STK_TRY(stk_err_if_null(files, w->err));
    if (list->n == FILES_MAX) {
        stk_err_set(w->err, STK_E_LIMIT, "%s has more than %d files", list->root, FILES_MAX);
        stk_err_hint(w->err, "list files that aren't code in %s/.stokerignore", list->root);
        return STK_E_LIMIT;
    }
    list->files = files;
    files[list->n++] = (package_file){.path = path + strlen(list->root) + 1,
                                      .link = link,
                                      .st = *st,
                                      .is_shut = link == NULL && stk_private_is_shut(st->st_mode)};
    if (link == NULL) {
        list->bytes += st->st_size;
    }
    return 0;
}

static int walk(walker *w, const char *folder, int depth);

static int see(walker *w, const char *folder, const char *name, int depth)
{
    const char *path = stk_arena_printf(w->arena, "%s/%s", folder, name);
    const char *link = NULL;
    struct stat own;
    struct stat st;
    STK_TRY(stk_err_if_null(path, w->err));
    if (lstat(path, &own) < 0) {
        return 0; /* removed meanwhile */
    }
    st = own;
    if (is_left_out(w, path, name, S_ISDIR(own.st_mode))) {
        return 0;
    }
    if (S_ISLNK(own.st_mode)) {
        link = inner_link(w, path);
        if (stat(path, &st) < 0) {
            return 0; /* a dangling link */
        }
    }
    bool is_folder = S_ISDIR(st.st_mode);
    if (link == NULL && !is_folder && !S_ISREG(st.st_mode)) {
        return 0;
    }
    if (link == NULL && is_private(w, path, &st, S_ISLNK(own.st_mode))) {
        return leave_out(w, path, is_folder);
    }
    if (link != NULL || !is_folder) {
        return add_item(w, path, &st, link);
    }
    bool was_wanted = w->is_wanted;
    bool before = w->only_tracked;
    struct stat folder_before = w->folder;
    w->is_wanted = was_wanted || stk_ignore_names(w->ours, path, true);
    w->only_tracked = stk_ignore_ask(w->ours, path, true) != 0 &&
                      (before || stk_ignore_ask(w->gits, path, true) == 1);
    int rc = walk(w, path, depth + 1);
    w->only_tracked = before;
    w->is_wanted = was_wanted;
    w->folder = folder_before;
    return rc;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int names_in(walker *w, const char *folder, const char ***ret, uint32_t *ret_n)
{
    STK_DIR_AUTO dir = {0};
    STK_TRY(stk_dir_read(folder, &dir, w->err));
    const char **names = stk_arena_array(w->arena, (size_t)dir.n + 1, sizeof *names);
    STK_TRY(stk_err_if_null(names, w->err));
    for (uint32_t i = 0; i < dir.n; i++) {
        names[i] = stk_arena_dup(w->arena, dir.items[i].name);
        STK_TRY(stk_err_if_null(names[i], w->err));
    }
    *ret = names;
    *ret_n = dir.n;
    return 0;
}

static bool has_name(const char **names, uint32_t n, const char *name)
{
    return n > 0 && bsearch(&name, names, n, sizeof *names, compare_keys) != NULL;
}

static int walk(walker *w, const char *folder, int depth)
{
    struct stat st;
    const char **names;
    uint32_t n;
    if (stat(folder, &st) < 0) {
        return 0;
    }
    for (int i = 0; i < depth; i++) {
        if (w->above[i].dev == st.st_dev && w->above[i].ino == st.st_ino) {
            return 0;
        }
    }
    if (depth == DEPTH_MAX) {
        return stk_err_set(w->err, STK_E_LIMIT, "%s: folders are nested more than %d deep", folder,
                           DEPTH_MAX);
    }
    w->folder = st;
    w->above[depth].dev = st.st_dev;
    w->above[depth].ino = st.st_ino;
    int rc = names_in(w, folder, &names, &n);
    if (rc < 0 || (depth > 0 && has_name(names, n, "pyvenv.cfg"))) {
        return rc; /* the image provides virtual environments */
    }
    ignore_list *gits = w->gits;
    ignore_list *ours = w->ours;
    if (depth > 0 && has_name(names, n, ".gitignore")) {
        rc = stk_ignore_read(folder, ".gitignore", gits, w->arena, &w->gits, w->err);
    }
    if (rc == 0 && has_name(names, n, ".stokerignore")) {
        rc = stk_ignore_read(folder, ".stokerignore", ours, w->arena, &w->ours, w->err);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = see(w, folder, names[i], depth);
    }
    w->gits = gits;
    w->ours = ours;
    return rc;
}

/* Reads the repository around `root`: its ignore rules, from its top down to `root`, and its index.
 */
static int read_repository(walker *w, const char *root)
{
    const char *tops[DEPTH_MAX] = {root};
    int n = 0;
    bool found = false;
    char *at = stk_arena_dup(w->arena, root);
    STK_TRY(stk_err_if_null(at, w->err));
    while (n < DEPTH_MAX && !found) {
        const char *git = stk_arena_printf(w->arena, "%s/.git", at);
        tops[n] = stk_arena_dup(w->arena, at);
        if (git == NULL || tops[n++] == NULL) {
            return stk_err_nomem(w->err);
        }
        found = stk_file_exists(git);
        char *slash = strrchr(at, '/');
        if (slash == NULL || slash == at) {
            break;
        }
        *slash = '\0';
    }
    if (!found) {
        n = 1; /* without a repository, only the project's own ignore file counts */
    }
    const char *top = tops[n - 1];
    int rc = stk_ignore_read(top, ".git/info/exclude", NULL, w->arena, &w->gits, w->err);
    if (rc == 0 && w->gits != NULL) {
        w->gits->base = top;
    }
    for (int i = n - 1; i >= 0 && rc == 0; i--) {
        rc = stk_ignore_read(tops[i], ".gitignore", w->gits, w->arena, &w->gits, w->err);
    }
    if (rc < 0 || !found) {
        return rc;
    }
    return stk_ignore_tracked(top, w->arena, &w->tracked, w->err);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const package_file *)a)->path, ((const package_file *)b)->path);
}

/* The files of list->only: what leaves a file out of the whole leaves it out here, too. */
static int see_each(walker *w)
{
    for (const char *const *one = w->list->only; *one != NULL; one++) {
        char *folder = stk_arena_printf(w->arena, "%s/%s", w->list->root, *one);
        STK_TRY(stk_err_if_null(folder, w->err));
        char *slash = strrchr(folder, '/');
        *slash = '\0';
        if (stat(folder, &w->folder) == 0) {
            STK_TRY(see(w, folder, slash + 1, 1));
        }
    }
    return 0;
}

int stk_package_walk(package_list *list, stk_arena *arena, stk_err *err)
{
    walker w = {.list = list, .arena = arena, .err = err};
    int rc = 0;
    if (list->only != NULL) {
        rc = stk_ignore_read(list->root, ".stokerignore", NULL, arena, &w.ours, err);
        rc = rc < 0 ? rc : see_each(&w);
    } else {
        rc = read_repository(&w, list->root);
        rc = rc < 0 ? rc : walk(&w, list->root, 0);
    }
    if (rc == 0 && list->n > 0) {
        qsort(list->files, list->n, sizeof *list->files, by_path);
    }
    stk_map_done(&w.tracked);
    return rc;
}
