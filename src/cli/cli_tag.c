/* stoker tag: shows and changes the tags of a run, even while it runs. */
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "sys/clock.h"

enum { LONGEST = 500, MOST = 1000, TRIES = 20 };

static bool has_tag(const stk_json *tags, const char *tag)
{
    for (size_t i = 0; i < stk_json_n_items(tags); i++) {
        if (stk_json_is(&tags->items[i], tag)) {
            return true;
        }
    }
    return false;
}

static int add_tag(stk_json *tags, const char *tag, stk_arena *arena, stk_err *err)
{
    if (*tag == '\0' || strlen(tag) > LONGEST) {
        return stk_err_set(err, STK_E_USAGE, "tag '%.60s%s' has %zu bytes; a tag has 1 to %d", tag,
                           stk_text_when(strlen(tag) > 60, "…"), strlen(tag), LONGEST);
    }
    if (has_tag(tags, tag)) {
        return 0;
    }
    if (stk_json_n_items(tags) >= MOST) {
        return stk_err_set(err, STK_E_LIMIT, "a run has at most %d tags", MOST);
    }
    if (!stk_json_is_utf8(tag, strlen(tag))) {
        return stk_err_set(err, STK_E_USAGE, "tag '%s' is not UTF-8 text", tag);
    }
    return stk_err_if_null(stk_json_append(arena, tags, stk_json_of_text(tag)), err);
}

/* First --replace, which drops all old tags, then --remove, then --add. */
static int change_tags(const stk_cli *cli, const stk_json *old, stk_arena *arena,
                       stk_json *ret_tags, stk_err *err)
{
    bool replaces = stk_cli_value(cli, "replace") != NULL;
    stk_json tags = stk_json_of_list();
    const char *tag;
    for (int i = 0; (tag = stk_cli_value_at(cli, "replace", i)) != NULL; i++) {
        STK_TRY(add_tag(&tags, tag, arena, err));
    }
    for (size_t i = 0; !replaces && i < stk_json_n_items(old); i++) {
        if (stk_json_append(arena, &tags, old->items[i]) == NULL) {
            return stk_err_nomem(err);
        }
    }
    for (int i = 0; (tag = stk_cli_value_at(cli, "remove", i)) != NULL; i++) {
        stk_json rest = stk_json_of_list();
        for (size_t at = 0; at < tags.n; at++) {
            if (!stk_json_is(&tags.items[at], tag) &&
                stk_json_append(arena, &rest, tags.items[at]) == NULL) {
                return stk_err_nomem(err);
            }
        }
        tags = rest;
    }
    for (int i = 0; (tag = stk_cli_value_at(cli, "add", i)) != NULL; i++) {
        STK_TRY(add_tag(&tags, tag, arena, err));
    }
    *ret_tags = tags;
    return 0;
}

/* One try; STK_E_BUSY: another process changed the tags. *ret_tags: the tags afterwards. */
static int try_tag(const stk_cli *cli, stk_store *store, const char *run, bool changes,
                   stk_arena *arena, stk_json *ret_tags, stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    STK_TRY(stk_view_load(store, run, &view, err));
    const stk_json *old = stk_json_read(arena, stk_text_or(stk_view_get_run(view)->tags, "[]"));
    STK_TRY(stk_err_if_null(old, err));
    *ret_tags = *old;
    if (!changes) {
        return 0;
    }
    STK_TRY(change_tags(cli, old, arena, ret_tags, err));
    const char *before = stk_json_dump_in(old, arena), *after = stk_json_dump_in(ret_tags, arena);
    if (before == NULL || after == NULL) {
        return stk_err_nomem(err);
    }
    if (strcmp(before, after) == 0) {
        return 0;
    }
    return stk_store_tag_run(store, run, before, after, stk_clock_wall_ms(&stk_clock_real), err);
}

static int run_tag(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    const char *text = stk_cli_arg(cli, 0);
    bool changes =
        stk_cli_flag(cli, "add") || stk_cli_flag(cli, "remove") || stk_cli_flag(cli, "replace");
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char run[40];
    stk_json tags;
    if (text == NULL) {
        return stk_cli_usage(cli, err, "a run is missing: stoker tag RUN --add TAG");
    }
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_store(changes ? 0 : STK_STORE_READONLY, &store, err));
    STK_TRY(stk_store_resolve_run(store, text, run, err));
    if (changes) {
        STK_TRY(stk_run_shared_may_add(store, run, err));
    }
    int rc = STK_E_BUSY;
    for (int i = 0; rc == STK_E_BUSY && i <= TRIES; i++) {
        rc = try_tag(cli, store, run, changes, arena, &tags, err);
    }
    STK_TRY(rc);
    if (changes) {
        stk_cli_shared_added(store, run);
    }
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "run", run);
        stk_json_put(out, "tags", &tags);
        stk_json_close(out, '}');
        return 0;
    }
    for (size_t i = 0; i < stk_json_n_items(&tags); i++) { /* NULL: the tag has a zero byte */
        stk_text_safe(out, stk_text_or(stk_json_text(&tags.items[i]), "?"), "");
        stk_buf_char(out, '\n');
    }
    return 0;
}

static const stk_option options[] = {
    {"add", 'a', "TAG", "add a tag (may be given several times, like the others)", true},
    {"remove", 'r', "TAG", "remove a tag; a missing one is no error", true},
    {"replace", 0, "TAG", "replace all tags of the run by these", true},
    {NULL}};

const stk_command stk_cmd_tag = {
    .name = "tag",
    .summary = "show or change the tags of a run",
    .usage = "[options] RUN",
    .text = "Prints the run's tags, one per line, as they are after the change; without options it "
            "changes nothing. A run can be tagged while it runs and after its end. --replace comes "
            "first, then --remove, then --add, in one change. 'stoker runs --tag TAG' lists the "
            "runs with a tag. If machines share the run's store, the others see the change. RUN as "
            "in 'stoker show'.",
    .options = options,
    .max_args = 1,
    .run = run_tag};
