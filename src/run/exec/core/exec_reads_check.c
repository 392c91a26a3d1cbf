/* Digests of what steps read, and whether it is unchanged. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_reads.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { NAMES_MOST = 16 << 20, SUM_MOST = 8 << 20 };

static bool begins_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* --- digests --- */

int64_t stk_reads_mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

void stk_reads_sum_file(const char *path, int64_t size, char hex[STK_DIGEST_HEX + 1])
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    (void)strcpy(hex, "-");
    if (size <= SUM_MOST && stk_file_read(path, SUM_MOST, &text, &len, NULL) == 0) {
        stk_digest_of(text, len, hex);
    }
}

void stk_reads_sum_variable(const char *name, char ret[STK_DIGEST_HEX + 8])
{
    char hex[STK_DIGEST_HEX + 1];
    const char *value = getenv(name);
    if (value == NULL) {
        (void)strcpy(ret, "unset");
        return;
    }
    stk_digest_of(value, strlen(value), hex);
    (void)snprintf(ret, STK_DIGEST_HEX + 8, "set %s", hex);
}

int stk_reads_sum_folder(const char *path, const char *own, char hex[STK_DIGEST_HEX + 1])
{
    STK_DIR_AUTO dir = {0};
    stk_err ignored = {0};
    STK_BUF_AUTO names = STK_BUF_INIT(NAMES_MOST);
    STK_TRY(stk_dir_read(path, &dir, &ignored));
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        size_t n = strlen(name);
        const char *at = own;
        while ((at = strstr(at, name)) != NULL && !((at == own || at[-1] == '/') && at[n] == '/')) {
            at++;
        }
        if (at == NULL && strcmp(name, "__pycache__") != 0) {
            stk_buf_add(&names, name, n + 1);
        }
    }
    stk_digest_of(stk_text_or(names.data, ""), names.len, hex);
    return names.failed ? STK_E_NOMEM : 0;
}

/* --- is it unchanged? --- */

const char *stk_exec_reads_unseen(const char *seen, stk_arena *arena)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = seen == NULL ? NULL : stk_json_read(scratch, seen);
    const char *text = stk_json_get_text(doc, "?");
    if (text == NULL) {
        return NULL;
    }
    return stk_arena_dup(arena, text);
}

const char *stk_exec_reads_list(const char *seen, stk_arena *arena)
{
    enum { SHOWN = 4 };
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_BUF_AUTO list = STK_BUF_INIT(1u << 16);
    STK_TEXT_AUTO here = stk_file_absolute(".");
    const stk_json *doc = seen == NULL ? NULL : stk_json_read(scratch, seen);
    size_t n_here = strlen(stk_text_or(here, ""));
    uint32_t n = 0;
    for (uint32_t i = 0; doc != NULL && i < stk_json_n_members(doc); i++) {
        const char *key = stk_json_key(doc, i)->text;
        const char *value = stk_text_or(stk_json_text(stk_json_value(doc, i)), "");
        bool is_read = begins_with(value, "set ") || begins_with(value, "file ") ||
                       begins_with(value, "folder ") || key[0] == '@';
        if (is_read && n++ < SHOWN) {
            stk_buf_separate(&list, ", ");
            bool is_below = n_here > 0 && strncmp(key, here, n_here) == 0 && key[n_here] == '/';
            const char *shown = is_below ? key + n_here + 1 : key;
            stk_buf_text(&list, *shown == '\0' ? "./" : shown);
        }
    }
    if (n > SHOWN) {
        stk_buf_printf(&list, " and %u more", n - SHOWN);
    }
    if (n == 0) {
        return NULL;
    }
    return stk_buf_keep(&list, arena);
}

static bool is_file_same(const char *path, const char *value)
{
    int64_t size = 0, mtime = 0;
    uint64_t inode = 0;
    char was[STK_DIGEST_HEX + 1] = "", is[STK_DIGEST_HEX + 1];
    struct stat st;
    if (sscanf(value, "file %" SCNd64 " %" SCNd64 " %" SCNu64 " %64s", &size, &mtime, &inode,
               was) != 4 ||
        stat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != size) {
        return false;
    }
    if (mtime != 0 && stk_reads_mtime_ns(&st) == mtime && st.st_ino == inode) {
        return true;
    }
    stk_reads_sum_file(path, size, is);
    return was[0] != '-' && strcmp(was, is) == 0;
}

static bool is_folder_same(const char *path, const char *value)
{
    int64_t mtime = 0;
    uint64_t inode = 0;
    int n = 0;
    char was[STK_DIGEST_HEX + 1] = "", is[STK_DIGEST_HEX + 1];
    struct stat st;
    if (sscanf(value, "folder %" SCNd64 " %" SCNu64 " %64s %n", &mtime, &inode, was, &n) != 3 ||
        stat(path, &st) < 0) {
        return false;
    }
    if (mtime != 0 && stk_reads_mtime_ns(&st) == mtime && st.st_ino == inode) {
        return true;
    }
    return was[0] != '-' && stk_reads_sum_folder(path, value + n, is) == 0 && strcmp(was, is) == 0;
}

bool stk_exec_reads_names(const char *seen)
{
    return seen != NULL && strstr(seen, "\"@") != NULL;
}

/* What became of an artifact that the step looked up; NULL: it is the same. */
static const char *changed_artifact(const exec_lookup *lookup, const char *key, const char *value)
{
    char was[STK_DIGEST_HEX + 1] = "";
    stk_named_row *rows = NULL;
    uint32_t n_rows = 0;
    int n = 0;
    stk_err err = {0};
    const char *version = NULL;
    char *name = stk_arena_dup(lookup->arena, key + 1);
    (void)sscanf(value, "%*s %64s %n", was, &n);
    if (name != NULL && begins_with(value, "version ") && strlen(name) > strlen(value + n)) {
        version = value + n;
        name[strlen(name) - strlen(version) - 1] = '\0'; /* the colon before it */
    }
    if (name == NULL || stk_store_list_named(lookup->store, name, version, 1, lookup->arena, &rows,
                                             &n_rows, &err) < 0) {
        return "an artifact that it looked up can't be found";
    }
    if (n_rows == 0) {
        return stk_arena_printf(lookup->arena, "artifact '%s', which it looked up, is gone",
                                key + 1);
    }
    if (strcmp(rows[0].digest, was) != 0) {
        return stk_arena_printf(lookup->arena, "artifact '%s', which it looked up, has changed",
                                key + 1);
    }
    return NULL;
}

/* What became of a file, a folder or a variable; NULL: it is the same. */
static const char *changed_read(const char *key, const char *value, stk_arena *arena)
{
    char variable[STK_DIGEST_HEX + 8];
    if (key[0] == '$') {
        stk_reads_sum_variable(key + 1, variable);
        if (strcmp(variable, value) != 0) {
            return stk_arena_printf(
                arena, "the environment variable %s, which it read, has changed", key + 1);
        }
    } else if (strcmp(value, "absent") == 0) {
        if (stk_file_exists(key)) {
            return stk_arena_printf(arena, "%s, which it looked for, exists", key);
        }
    } else if (begins_with(value, "file ")) {
        if (!is_file_same(key, value)) {
            return stk_arena_printf(arena, "%s, which it read, has changed", key);
        }
    } else if (begins_with(value, "folder ") && !is_folder_same(key, value)) {
        return stk_arena_printf(arena, "the entries of %s, which it listed, have changed", key);
    }
    return NULL;
}

bool stk_exec_reads_check(const exec_lookup *lookup, const char *key, const char *value, bool track,
                          const char **ret_change)
{
    *ret_change = NULL;
    if (value == NULL) {
        return false;
    }
    if (key[0] == '@') {
        *ret_change = changed_artifact(lookup, key, value);
        return true;
    }
    bool is_read = key[0] == '$' || strcmp(key, "?") == 0 || strcmp(value, "absent") == 0 ||
                   begins_with(value, "file ") || begins_with(value, "folder ");
    if (is_read && track && strcmp(key, "?") != 0) {
        *ret_change = changed_read(key, value, lookup->arena);
    }
    return is_read;
}
