/* Masks files that are shown or that others can read. */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "host/runner/runner_mask.h"
#include "sys/dir.h"
#include "sys/file.h"

/* A card of the user's class: HTML. */
static bool hide_in_page(const stk_mask *mask, const char *text, size_t n, stk_buf *out)
{
    stk_mask_stream stream = {.mask = mask};
    stk_buf_clear(out);
    int rc = stk_mask_push(&stream, text, n, out);
    stk_mask_end(&stream, out);
    return rc == 0 && !out->failed;
}

static void hide_in_card(const stk_mask *mask, const char *path)
{
    STK_TEXT_AUTO text = NULL;
    STK_BUF_AUTO out = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 4ul);
    size_t len = 0;
    if (stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) == 0 &&
        (stk_mask_json(mask, text, len, &out) || hide_in_page(mask, text, len, &out)) &&
        (out.len != len || memcmp(out.data, text, len) != 0)) {
        (void)stk_file_write_atomic(path, out.data, out.len, 0600, NULL);
    }
}

/* Masks the cards in the folder of an attempt or of one of its ranks. */
static int hide_in_folder(const stk_mask *mask, const char *dir, stk_arena *arena, stk_err *err)
{
    STK_DIR_AUTO list = {0};
    const char *folder = stk_arena_printf(arena, "%s/cards", dir);
    if (folder == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the cards");
    }
    STK_TRY(stk_dir_read_if(folder, &list, err));
    for (uint32_t i = 0; i < list.n; i++) {
        const char *path = stk_arena_printf(arena, "%s/%s", folder, list.items[i].name);
        if (path != NULL) {
            hide_in_card(mask, path);
        }
    }
    return 0;
}

int stk_mask_in_cards(const stk_mask *mask, const char *dir, stk_arena *arena, stk_err *err)
{
    STK_DIR_AUTO list = {0};
    if (mask == NULL) {
        return 0;
    }
    STK_TRY(hide_in_folder(mask, dir, arena, err));
    STK_TRY(stk_dir_read_if(dir, &list, err));
    for (uint32_t i = 0; i < list.n; i++) {
        const char *rank = NULL;
        if (strncmp(list.items[i].name, "rank-", 5) == 0) {
            rank = stk_arena_printf(arena, "%s/%s", dir, list.items[i].name);
        }
        if (rank != NULL) {
            STK_TRY(hide_in_folder(mask, rank, arena, err));
        }
    }
    return 0;
}

void stk_mask_in_errors(const stk_mask *mask, const char *path)
{
    static const char *const shown[] = {"error", "warnings"};
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t len = 0;
    bool any = false;
    if (mask == NULL ||
        stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) < 0) {
        return;
    }
    stk_json *doc = (stk_json *)(uintptr_t)stk_json_readn(arena, text, len);
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const stk_json *node = stk_json_get(doc, shown[i]);
        if (node == NULL) {
            continue;
        }
        stk_json masked = *node;
        if (stk_mask_node(mask, &masked, arena) == 0 && !stk_json_equal(node, &masked)) {
            any = stk_json_set(arena, doc, shown[i], masked) != NULL || any;
        }
    }
    const char *out = any ? stk_json_dump_in(doc, arena) : NULL;
    if (out != NULL) {
        (void)stk_file_write_atomic(path, out, strlen(out), 0600, NULL);
    }
}
