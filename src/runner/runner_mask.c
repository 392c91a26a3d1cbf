/* Secrets that a step let out: their known values become stars in its logs and its result, before
 * anything of these is kept. Best effort: a value that the step changed is not known. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/limits.h"
#include "runner/runner.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { CHUNK = 1 << 20 };

/* Overwrites every occurrence of `value`; same length, so nobody's offsets move. True if there was
 * one. */
static bool mask_bytes(char *data, size_t len, const char *value)
{
    size_t n = strlen(value);
    bool any = false;
    for (char *at = data; (at = memmem(at, len - (size_t)(at - data), value, n)) != NULL; at += n) {
        memset(at, '*', n);
        any = true;
    }
    return any;
}

static void mask_file(const char *path, const char *value)
{
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDWR, 0);
    size_t n = strlen(value);
    STK_TEXT_AUTO data = fd < 0 ? NULL : malloc(CHUNK + n);
    /* Read, not mapped: somebody may cut it short meanwhile. Holes, of any size, are passed over.
     */
    for (off_t at = 0; data != NULL && (at = lseek(fd, at, SEEK_DATA)) >= 0;) {
        ssize_t got = pread(fd, data, CHUNK + n - 1, at); /* what begins in one chunk ends in it */
        if (got <= 0 ||
            (mask_bytes(data, (size_t)got, value) && pwrite(fd, data, (size_t)got, at) != got)) {
            return;
        }
        at += got < CHUNK ? got : CHUNK;
    }
}

/* In every string of a document, keys too. Depth is limited by the parser. */
static json_t *mask_json(json_t *node, const char *value)
{
    if (json_is_string(node)) {
        char *text = strdup(json_string_value(node));
        json_t *masked = NULL;
        if (text != NULL && mask_bytes(text, strlen(text), value)) {
            masked = json_string_nocheck(text);
        }
        free(text);
        return masked != NULL ? masked : json_incref(node);
    }
    if (json_is_array(node)) {
        json_t *list = json_array();
        size_t i;
        json_t *item;
        json_array_foreach(node, i, item)
        {
            (void)json_array_append_new(list, mask_json(item, value));
        }
        return list;
    }
    if (json_is_object(node)) {
        json_t *map = json_object();
        const char *key;
        json_t *item;
        json_object_foreach(node, key, item)
        {
            char *name = strdup(key);
            if (name != NULL) {
                (void)mask_bytes(name, strlen(name), value);
                (void)json_object_set_new_nocheck(map, name, mask_json(item, value));
            }
            free(name);
        }
        return map;
    }
    return json_incref(node);
}

/* JSON writes a value in more than one way, so the document is read, masked and written again. */
static void mask_result(const char *path, const char *const *values, uint32_t n)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (n == 0 || stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) < 0) {
        return;
    }
    json_t *doc = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (doc == NULL) { /* refused as it is; its bytes are kept, though */
        for (uint32_t i = 0; i < n; i++) {
            mask_file(path, values[i]);
        }
        return;
    }
    json_t *masked = json_incref(doc);
    for (uint32_t i = 0; i < n; i++) {
        json_t *next = mask_json(masked, values[i]);
        json_decref(masked);
        masked = next;
    }
    char *out = json_equal(doc, masked) ? NULL : json_dumps(masked, JSON_ENCODE_ANY);
    if (out != NULL) {
        (void)stk_file_write_atomic(path, out, strlen(out), 0644, NULL);
    }
    free(out);
    json_decref(masked);
    json_decref(doc);
}

/* What one process, or an attempt, has written of itself. */
static void mask_folder(const char *dir, const char *const *values, uint32_t n, stk_arena *arena)
{
    static const char *const logs[] = {"stdout.log", "stderr.log", "gang.json", "stack.txt"};
    static const char *const results[] = {"result.json", "hook.json"};
    for (size_t k = 0; k < sizeof logs / sizeof *logs; k++) {
        const char *log = stk_arena_printf(arena, "%s/%s", dir, logs[k]);
        for (uint32_t i = 0; log != NULL && i < n; i++) {
            mask_file(log, values[i]);
        }
    }
    for (size_t k = 0; k < sizeof results / sizeof *results; k++) {
        const char *result = stk_arena_printf(arena, "%s/%s", dir, results[k]);
        if (result != NULL) {
            mask_result(result, values, n);
        }
    }
}

/* Those of a gang: rank-K, whatever K. */
static void mask_ranks(const char *dir, const char *const *values, uint32_t n, stk_arena *arena)
{
    STK_DIR_AUTO list = {0};
    int rc = stk_dir_read(dir, &list, NULL);
    for (uint32_t i = 0; rc == 0 && i < list.n; i++) {
        if (strncmp(list.items[i].name, "rank-", 5) == 0) {
            const char *rank = stk_arena_printf(arena, "%s/%s", dir, list.items[i].name);
            if (rank != NULL) {
                mask_folder(rank, values, n, arena);
            }
        }
    }
}

void stk_runner_mask(const char *dir, const char *const *values, uint32_t n, stk_arena *arena)
{
    if (n > 0) {
        mask_folder(dir, values, n, arena);
        mask_ranks(dir, values, n, arena);
    }
}
