#include "sys/metaflow.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/limits.h"
#include "sys/file.h"

enum { FILE_BYTES = 1 << 20, NODES = 10000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static stk_arena *arena; /* of the process */
static const char *path;
static stk_json root;
static stk_err trouble;

static const char *own(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static void find(void)
{
    const char *home = own("METAFLOW_HOME"), *profile = own("METAFLOW_PROFILE");
    const char *user = own("HOME");
    const char *before = "";
    if (home == NULL || strncmp(home, "~/", 2) == 0) {
        before = user != NULL ? user : "";
        home = home == NULL ? "/.metaflowconfig" : home + 1;
    }
    path = profile == NULL ? stk_arena_printf(arena, "%s%s/config.json", before, home)
                           : stk_arena_printf(arena, "%s%s/config_%s.json", before, home, profile);
}

static void load(void)
{
    static const stk_json_limits limits = {FILE_BYTES, NODES, STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    arena = stk_arena_new(0);
    if (arena != NULL) {
        find();
    }
    if (path == NULL) {
        (void)stk_err_set(&trouble, STK_E_NOMEM, "out of memory");
    } else if (!stk_file_exists(path)) {
        if (own("METAFLOW_PROFILE") != NULL) {
            (void)stk_err_set(&trouble, STK_E_NOT_FOUND,
                              "METAFLOW_PROFILE is '%s', and there is no %s",
                              own("METAFLOW_PROFILE"), path);
            stk_err_hint(&trouble, "unset it, or make that file");
        }
    } else if (stk_file_read(path, FILE_BYTES, &text, &len, &trouble) == 0 &&
               stk_json_parse(text, len, path, &limits, arena, &root, &trouble) == 0 &&
               root.kind != STK_JSON_MAP) {
        (void)stk_err_set(&trouble, STK_E_SPEC, "%s is no JSON object", path);
    }
    if (trouble.code != 0) {
        root = (stk_json){0};
    }
}

const char *stk_metaflow_setting(const char *name, const char **ret_from)
{
    const char *value = getenv(name); /* also an empty one stands before the file */
    const char *from = NULL;
    (void)pthread_once(&once, load);
    if (value != NULL) {
        from = name;
    } else if (root.kind == STK_JSON_MAP) {
        const stk_json *node = stk_json_get(&root, name);
        const char *text = stk_json_text(node);
        value = text != NULL || node == NULL || node->kind == STK_JSON_NULL
                    ? text
                    : stk_json_dump_in(node, arena);
        from = path;
    }
    if (ret_from != NULL) {
        *ret_from = value != NULL ? from : NULL;
    }
    return value != NULL && *value != '\0' ? value : NULL;
}

int stk_metaflow_check(stk_err *err)
{
    (void)pthread_once(&once, load);
    if (err != NULL) {
        *err = trouble;
    }
    return trouble.code;
}
