/* Finds the folders in which a project's files are searched. */
#include <string.h>
#include <sys/stat.h>

#include "sys/file.h"
#include "sys/trust.h"

/* Cuts off the last part; false: it was "/". */
static bool go_up(char *at)
{
    char *slash = strrchr(at, '/');
    if (slash == NULL || at[1] == '\0') {
        return false;
    }
    slash[slash == at] = '\0';
    return true;
}

static bool has_mark(const char *folder, const char *name)
{
    STK_TEXT_AUTO path = stk_file_join(folder, name);
    struct stat st;
    return path != NULL && lstat(path, &st) == 0;
}

/* A marker file that another user put into a folder of ours (a lab's, or a shared one) does not
 * make it a project. */
static bool is_root(const char *folder)
{
    static const char *const marks[] = {"stoker.yaml", ".git", "pyproject.toml"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        STK_TEXT_AUTO path = stk_file_join(folder, marks[i]);
        if (has_mark(folder, marks[i]) && path != NULL && stk_trust_path(path, NULL) == 0 &&
            stk_trust_path(folder, NULL) == 0) {
            return true;
        }
    }
    return false;
}

int stk_project_root(const char *folder, char **ret_root, stk_err *err)
{
    STK_TEXT_AUTO start = stk_file_absolute(folder);
    STK_TRY(stk_err_if_null(start, err));
    STK_TEXT_AUTO at = strdup(start);
    STK_TRY(stk_err_if_null(at, err));
    do {
        if (is_root(at)) {
            *ret_root = at;
            at = NULL;
            return 0;
        }
    } while (go_up(at));
    *ret_root = start;
    start = NULL;
    return 0;
}

int stk_project_find(const char *folder, const char *name, char **ret_path, char **ret_beyond,
                     stk_err *err)
{
    STK_TEXT_AUTO root = NULL;
    STK_TEXT_AUTO at = stk_file_absolute(folder);
    STK_TRY(stk_err_if_null(at, err));
    STK_TRY(stk_project_root(folder, &root, err));
    size_t n_root = strlen(root);
    *ret_path = NULL;
    if (ret_beyond != NULL) {
        *ret_beyond = NULL;
    }
    do {
        bool is_inside = strlen(at) >= n_root;
        char **to = is_inside ? ret_path : ret_beyond;
        if (to != NULL && has_mark(at, name)) {
            *to = stk_file_join(at, name);
            return stk_err_if_null(*to, err);
        }
    } while (go_up(at));
    return 0;
}
