/* The list of a folder's files in a shared store (share_artifact.c), as text from anybody. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "away/share/share_private.h"
#include "store/store_digest.h"

void stk_share_tree_done(stk_share_tree *tree)
{
    free(tree->files);
    free(tree->rest);
    *tree = (stk_share_tree){0};
}

/* No way out of the folder that it is put into, and none that no folder here could have. */
static bool is_below(const char *path)
{
    int depth = 0;
    for (const char *part = path;; part++, depth++) {
        size_t n = strcspn(part, "/");
        if (n == 0 || n > NAME_MAX || (n <= 2 && strncmp(part, "..", n) == 0) ||
            depth > STK_TREE_DEPTH) {
            return false;
        }
        part += n;
        if (*part == '\0') {
            return part - path < PATH_MAX;
        }
    }
}

static int wrong(uint64_t line, const char *what, stk_err *err)
{
    return stk_err_set(err, STK_E_STORE, "line %llu %s", (unsigned long long)line + 2, what);
}

/* "DIGEST SIZE PATH" */
static bool read_file_line(char *line, stk_share_tree_file *ret)
{
    char *path = NULL;
    if (strspn(line, "0123456789abcdef") != STK_DIGEST_HEX || line[STK_DIGEST_HEX] != ' ') {
        return false;
    }
    const char *size = line + STK_DIGEST_HEX + 1;
    line[STK_DIGEST_HEX] = '\0';
    *ret = (stk_share_tree_file){.digest = line, .size = strtoll(size, &path, 10)};
    ret->path = path + 1;
    bool is_number = *size >= '1' && *size <= '9'; /* as we write it */
    is_number = is_number || (size[0] == '0' && size[1] == ' ');
    return is_number && *path == ' ' && ret->size < INT64_MAX && is_below(ret->path);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const stk_share_tree_file *)a)->path, ((const stk_share_tree_file *)b)->path);
}

static bool is_file(const stk_share_tree *tree, const char *path)
{
    stk_share_tree_file wanted = {.path = path};
    return tree->n > 0 &&
           bsearch(&wanted, tree->files, tree->n, sizeof *tree->files, by_path) != NULL;
}

/* Is one of the folders that it lies in a file of the list? Such a folder is nowhere. */
static bool is_in_file(const stk_share_tree *tree, const char *path)
{
    char folder[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(folder, path, (size_t)(slash - path));
        folder[slash - path] = '\0';
        if (is_file(tree, folder)) {
            return true;
        }
    }
    return false;
}

/* Could a folder have exactly these, and would we write it so? */
static int check_paths(const stk_share_tree *tree, stk_err *err)
{
    for (uint64_t i = 1; i < tree->n; i++) {
        if (by_path(&tree->files[i - 1], &tree->files[i]) >= 0) {
            return wrong(i, "is out of order", err);
        }
    }
    for (uint64_t i = 0; i < tree->n; i++) {
        if (is_in_file(tree, tree->files[i].path)) {
            return wrong(i, "lies in a file", err);
        }
    }
    for (uint64_t i = 0; i < tree->n_rest; i++) {
        const char *path = tree->rest[i] + 3;
        bool wants_file = tree->rest[i][1] == 'x';
        if (is_file(tree, path) == wants_file && !is_in_file(tree, path)) {
            continue;
        }
        return wrong(
            tree->n + i,
            wants_file ? "is the mode of a missing file" : "is a folder in place of a file", err);
    }
    return 0;
}

/* How many of either kind: memory is asked for once, and not before that is known. */
static int count(const char *text, stk_share_tree *ret, stk_err *err)
{
    for (const char *line = text; *line != '\0'; line++) {
        *(*line == '+' ? &ret->n_rest : &ret->n) += 1;
        line = strchr(line, '\n');
        if (line == NULL) {
            return stk_err_set(err, STK_E_STORE, "it is truncated");
        }
    }
    if (ret->n + ret->n_rest > 2 * (uint64_t)STK_TREE_FILES || ret->n > STK_TREE_FILES) {
        return stk_err_set(err, STK_E_STORE, "it has more than %d files", (int)STK_TREE_FILES);
    }
    ret->files = calloc(ret->n + 1, sizeof *ret->files);
    ret->rest = calloc(ret->n_rest + 1, sizeof *ret->rest);
    if (ret->files == NULL || ret->rest == NULL) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int read_lines(char *text, stk_share_tree *ret, stk_err *err)
{
    uint64_t n = 0;
    uint64_t n_rest = 0;
    for (char *line = text; *line != '\0';) {
        char *end = strchr(line, '\n');
        bool is_rest = *line == '+';
        *end = '\0';
        if (is_rest) {
            bool is_known = (line[1] == 'x' || line[1] == 'd') && line[2] == ' ';
            if (!is_known || !is_below(line + 3)) {
                return wrong(n + n_rest, "is neither a mode of a file nor a folder", err);
            }
            ret->rest[n_rest++] = line;
        } else if (n_rest > 0 || !read_file_line(line, &ret->files[n])) {
            return wrong(n + n_rest, "isn't a file", err);
        } else {
            n++;
        }
        line = end + 1;
    }
    return 0;
}

int stk_share_tree_read(char *text, size_t len, const char *digest, stk_share_tree *ret,
                        stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    size_t n_head = strlen(SHARE_TREE_HEAD);
    *ret = (stk_share_tree){0};
    if (len < n_head || strlen(text) != len || strncmp(text, SHARE_TREE_HEAD, n_head) != 0) {
        return stk_err_set(err, STK_E_STORE, "it has no valid beginning");
    }
    const char *more = strstr(text, "\n+");
    stk_tree_digest_bytes(text, more == NULL ? len : (size_t)(more + 1 - text), hex);
    if (strcmp(hex, digest) != 0) {
        return stk_err_set(err, STK_E_STORE, "it was changed");
    }
    STK_SHARE_TREE_AUTO tree = {0};
    STK_TRY(count(text + n_head, &tree, err));
    STK_TRY(read_lines(text + n_head, &tree, err));
    STK_TRY(check_paths(&tree, err));
    *ret = tree;
    tree = (stk_share_tree){0};
    return 0;
}
