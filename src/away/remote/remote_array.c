#include "away/remote/remote_array.h"

#include <stdio.h>
#include <string.h>

#include "away/remote/remote_order.h"
#include "base/digest.h"

enum { LIST_BYTES = 4 << 20, NAME_DIGITS = 32 };

/* "s-<run>-<step>-<task>-<attempt>" → "s-<run>-<step>-array-<which>" */
static int name_array(const char *run, const char *job, const char *which, stk_arena *arena,
                      stk_remote_array *ret, stk_err *err)
{
    size_t n = strlen(job);
    for (int parts = 0; n > 0 && parts < 2; parts += job[n] == '-') {
        n--;
    }
    ret->name = stk_arena_printf(arena, "%.*s-array-%s", (int)n, job, which);
    STK_TRY(stk_err_if_null(ret->name, err));
    ret->key = stk_arena_printf(arena, "runs/%s/arrays/%s.json", run, ret->name);
    return stk_err_if_null(ret->key, err);
}

int stk_remote_array_make(const char *run, const char *job, const char *const *keys, uint32_t n,
                          stk_arena *arena, stk_remote_array *ret, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(LIST_BYTES);
    char digest[STK_DIGEST_HEX + 1];
    *ret = (stk_remote_array){0};
    STK_TRY(stk_remote_list_write(keys, n, &text, err));
    stk_digest_of(text.data, text.len, digest);
    digest[NAME_DIGITS] = '\0';
    ret->text = stk_buf_keep(&text, arena);
    STK_TRY(stk_err_if_null(ret->text, err));
    return name_array(run, job, digest, arena, ret, err);
}

int stk_remote_array_preview(const char *run, const char *job, stk_arena *arena,
                             stk_remote_array *ret, stk_err *err)
{
    *ret = (stk_remote_array){0};
    return name_array(run, job, "(digest of its list)", arena, ret, err);
}

int stk_remote_array_put(stk_share *share, const stk_remote_array *array, stk_err *err)
{
    int rc = stk_share_put(share, array->key, array->text, strlen(array->text), true, err);
    /* its name is its content's digest, so the share has the same object */
    return rc == STK_E_BUSY ? 0 : rc;
}

/* --- reading --- */

static int add_list(stk_share *share, const char *key, stk_arena *arena, stk_map *into,
                    stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(LIST_BYTES);
    const char **keys = NULL;
    uint32_t n = 0;
    STK_TRY(stk_share_get(share, key, &text, err));
    STK_TRY(stk_remote_list_read(text.data, text.len, arena, &keys, &n, err));
    const char *name = key;
    if (strrchr(key, '/') != NULL) {
        name = strrchr(key, '/') + 1;
    }
    const char *array = stk_arena_dupn(arena, name, strlen(name) - strlen(".json"));
    stk_remote_child *children = stk_arena_array(arena, (size_t)n + 1, sizeof *children);
    STK_TRY(stk_err_if_null(array, err));
    STK_TRY(stk_err_if_null(children, err));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t other = 0;
        (void)stk_map_get(into, keys[i], &other);
        children[i] = (stk_remote_child){
            .next = (const stk_remote_child *)(uintptr_t)other, .array = array, .index = i};
        if (stk_map_put(into, keys[i], (uintptr_t)&children[i]) < 0) {
            return stk_err_nomem(err);
        }
    }
    return 0;
}

typedef struct found_keys {
    stk_arena *arena;
    const char **keys;
    uint32_t n, cap;
} found_keys;

static int each_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    found_keys *f = arg;
    size_t n = strlen(key);
    (void)size;
    (void)mtime_ms;
    if (n < 5 || strcmp(key + n - 5, ".json") != 0) {
        return 0;
    }
    const char **keys = stk_arena_grow(f->arena, f->keys, f->n, sizeof *keys, &f->cap);
    const char *copy = stk_arena_dup(f->arena, key);
    if (keys == NULL || copy == NULL) {
        return STK_E_NOMEM;
    }
    f->keys = keys;
    keys[f->n++] = copy;
    return 0;
}

int stk_remote_arrays_read(stk_share *share, const char *run, stk_arena *arena, stk_map *children,
                           stk_err *err)
{
    found_keys found = {.arena = arena};
    const char *prefix = stk_arena_printf(arena, "runs/%s/arrays/", run);
    STK_TRY(stk_err_if_null(prefix, err));
    STK_TRY(stk_share_list(share, prefix, NULL, each_key, &found, err));
    for (uint32_t i = 0; i < found.n; i++) {
        STK_TRY(add_list(share, found.keys[i], arena, children, err));
    }
    return 0;
}
