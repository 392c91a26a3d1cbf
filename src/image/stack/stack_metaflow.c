#include "image/stack/stack_metaflow.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/file.h"

enum { FILE_BYTES = 1 << 20, NODES = 10000 };

/* The nearest .metaflow/config.json, then the user's: the first that has a member counts. */
enum { LOCAL, GLOBAL, N_FILES };
static pthread_once_t once = PTHREAD_ONCE_INIT;
static stk_arena *arena; /* of the process */
static struct {
    const char *path;
    stk_json root;
} files[N_FILES];
static stk_err trouble;

/* Of the nearest .metaflow at or above the current folder, whether or not that has one. */
static void find_local(void)
{
    char at[PATH_MAX];
    for (char *end = getcwd(at, sizeof at); end != NULL; *end = '\0') {
        const char *folder = stk_arena_printf(arena, "%s/.metaflow", at);
        if (folder != NULL && stk_file_exists(folder)) {
            files[LOCAL].path = stk_arena_printf(arena, "%s/config.json", folder);
            return;
        }
        end = strrchr(at, '/');
        if (end == NULL) {
            return;
        }
    }
}

static void find_global(void)
{
    const char *home = stk_text_or(stk_text_if_any(getenv("METAFLOW_HOME")), "~/.metaflowconfig");
    const char *profile = stk_text_if_any(getenv("METAFLOW_PROFILE"));
    const char *before = "";
    if (strncmp(home, "~/", 2) == 0) {
        before = stk_text_or(stk_text_if_any(getenv("HOME")), "");
        home++;
    }
    if (profile == NULL) {
        files[GLOBAL].path = stk_arena_printf(arena, "%s%s/config.json", before, home);
    } else {
        files[GLOBAL].path = stk_arena_printf(arena, "%s%s/config_%s.json", before, home, profile);
    }
    if (profile != NULL && files[GLOBAL].path != NULL && !stk_file_exists(files[GLOBAL].path)) {
        (void)stk_err_set(&trouble, STK_E_NOT_FOUND,
                          "METAFLOW_PROFILE is '%s', but %s doesn't exist", profile,
                          files[GLOBAL].path);
        stk_err_hint(&trouble, "unset it, or create that file");
    }
}

static void load_settings(void)
{
    static const stk_json_limits limits = {FILE_BYTES, NODES, STK_LIMIT_DEPTH};
    arena = stk_arena_new(0);
    if (arena == NULL) {
        (void)stk_err_nomem(&trouble);
        return;
    }
    find_local();
    find_global();
    for (int i = 0; i < N_FILES; i++) {
        const char *path = files[i].path;
        STK_TEXT_AUTO text = NULL;
        size_t len = 0;
        stk_json root = {0};
        if (path == NULL || !stk_file_exists(path)) {
            continue;
        }
        if (stk_file_read(path, FILE_BYTES, &text, &len, &trouble) == 0 &&
            stk_json_parse(text, len, path, &limits, arena, &root, &trouble) == 0) {
            files[i].root = root;
            if (root.kind != STK_JSON_MAP) {
                (void)stk_err_set(&trouble, STK_E_SPEC, "%s isn't a JSON object", path);
            }
        }
    }
}

const char *stk_metaflow_setting(const char *name, const char **ret_from)
{
    const char *value = getenv(name); /* also an empty one stands before the files */
    const char *from = NULL;
    if (value != NULL) {
        from = name;
    }
    (void)pthread_once(&once, load_settings);
    for (int i = 0; i < N_FILES && from == NULL; i++) {
        const stk_json *node = stk_json_get(&files[i].root, name);
        if (node != NULL && node->kind != STK_JSON_NULL) {
            value = stk_json_text(node);
            if (value == NULL) {
                value = stk_json_dump_in(node, arena);
            }
            from = files[i].path;
        }
    }
    if (value == NULL || *value == '\0') {
        value = from = NULL;
    }
    if (ret_from != NULL) {
        *ret_from = from;
    }
    return value;
}

int stk_metaflow_check(stk_err *err)
{
    (void)pthread_once(&once, load_settings);
    if (err != NULL) {
        *err = trouble;
    }
    return trouble.code;
}
