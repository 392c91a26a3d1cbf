/* The cards of a task. */
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "show/show_html_private.h"
#include "show/show_task_card.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { MAX_CARDS = 1000, MAX_CARD_FILE = 64 << 20 };

/* The folder with the cards of the task's last attempt (or of its rank > 0); NULL: none started. */
static const char *cards_dir(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *dir = NULL;
    if (task->attempt > 0) {
        dir = stk_view_dir(view, task, arena);
    }
    if (dir == NULL) {
        return NULL;
    }
    if (rank > 0) {
        return stk_arena_printf(arena, "%s/rank-%lld/cards", dir, (long long)rank);
    }
    return stk_arena_printf(arena, "%s/cards", dir);
}

const stk_json *stk_show_read_card(const char *path, stk_arena *arena)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (stk_file_read_untrusted(path, MAX_CARD_FILE, &text, &len, NULL) < 0) {
        return NULL;
    }
    return stk_json_readn(arena, text, len);
}

static bool is_card(const char *name)
{
    const char *dot = strrchr(name, '.');
    return *name != '.' && dot != NULL && strcmp(dot, ".json") == 0;
}

static void read_one(const char *folder, const char *file, stk_arena *arena, stk_task_card *ret)
{
    const char *path = stk_arena_printf(arena, "%s/%s", folder, file);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *card = stk_show_read_card(path, scratch);
    const char *html = stk_json_get_text(card, "html");
    *ret = (stk_task_card){.name = stk_arena_dupn(arena, file, strlen(file) - 5),
                           .id = stk_arena_dup(arena, stk_json_get_text(card, "id")),
                           .type = stk_arena_dup(arena, stk_json_get_text(card, "type")),
                           .title = stk_arena_dup(arena, stk_json_get_text(card, "title"))};
    /* Accepts only a plain name: a path could lead out of this folder. */
    if (html != NULL && strchr(html, '/') == NULL && *html != '.') {
        ret->html = stk_arena_printf(arena, "%s/%s", folder, html);
    }
    ret->path = stk_text_or(ret->html, path);
}

int stk_task_cards(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena,
                   stk_task_card **ret_cards, uint32_t *ret_n, stk_err *err)
{
    const char *folder = cards_dir(view, i_task, rank, arena);
    const stk_step *step = stk_view_get_task(view, i_task)->step;
    stk_task_card *cards = stk_arena_array(arena, MAX_CARDS + 1, sizeof *cards);
    STK_DIR_AUTO found = {0};
    uint32_t k = 0;
    STK_TRY(stk_err_if_null(cards, err));
    if (folder != NULL) {
        STK_TRY(stk_dir_read_if(folder, &found, err));
    }
    for (uint32_t i = 0; i < found.n && k < MAX_CARDS; i++) {
        if (is_card(found.items[i].name)) {
            read_one(folder, found.items[i].name, arena, &cards[k++]);
        }
    }
    if (step != NULL && step->settings != NULL && step->settings->gpu_profile.enabled &&
        step->settings->gpu_profile.with_card) {
        const char *dir = stk_view_dir(view, stk_view_get_task(view, i_task), arena);
        const char *path = stk_arena_printf(arena, "%s/samples.bin", stk_text_or(dir, ""));
        if (dir != NULL && path != NULL && access(path, F_OK) == 0) {
            cards[k++] = (stk_task_card){.name = "gpu_profile",
                                         .id = "gpu_profile",
                                         .type = "gpu_profile",
                                         .title = "Devices",
                                         .path = path};
        }
    }
    *ret_cards = cards;
    *ret_n = k;
    return 0;
}

int stk_task_cards_json(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena,
                        stk_buf *out, stk_err *err)
{
    stk_task_card *cards = NULL;
    uint32_t n = 0;
    STK_TRY(stk_task_cards(view, i_task, rank, arena, &cards, &n, err));
    stk_buf_char(out, '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "id", cards[i].id);
        stk_json_put_text(out, "name", cards[i].name);
        stk_json_put_text(out, "type", cards[i].type);
        stk_json_put_text(out, "title", cards[i].title);
        stk_json_put_text(out, "path", cards[i].path);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    return 0;
}
