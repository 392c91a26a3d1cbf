/* stoker tag: the tags of a run, also of one that still runs. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "sys/clock.h"

enum { LONGEST = 500, MOST = 1000, TRIES = 20 };

static bool has(const stk_json *tags, const char *tag, size_t *ret_at)
{
    for (size_t i = 0; i < stk_json_n_items(tags); i++) {
        const char *one = stk_json_text(stk_json_item(tags, i));
        if (one != NULL && strcmp(one, tag) == 0) {
            *ret_at = i;
            return true;
        }
    }
    return false;
}

static int add_tag(stk_json *tags, const char *tag, stk_arena *arena, stk_err *err)
{
    size_t at;
    if (*tag == '\0' || strlen(tag) > LONGEST) {
        return stk_err_set(err, STK_E_USAGE, "tag '%.60s%s' has %zu bytes; a tag has 1 to %d", tag,
                           strlen(tag) > 60 ? "…" : "", strlen(tag), LONGEST);
    }
    if (has(tags, tag, &at)) {
        return 0;
    }
    if (stk_json_n_items(tags) >= MOST) {
        return stk_err_set(err, STK_E_LIMIT, "a run has at most %d tags", MOST);
    }
    if (!stk_json_is_utf8(tag, strlen(tag))) {
        return stk_err_set(err, STK_E_USAGE, "tag '%s' is not UTF-8 text", tag);
    }
    return stk_json_append(arena, tags, stk_json_of_text(tag)) != NULL ? 0 : stk_err_nomem(err);
}

/* First --replace, which leaves nothing of what was, then --remove, then --add. */
static int change(const stk_cli *cli, const stk_json *old, stk_arena *arena, stk_json *ret_tags,
                  stk_err *err)
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

/* One try: STK_E_BUSY, somebody else was quicker. *ret_tags: what the run has then, JSON. */
static int try_tag(const stk_cli *cli, stk_store *store, const char *run, bool changes,
                   stk_arena *arena, const char **ret_tags, stk_err *err)
{
    stk_view *view = NULL;
    STK_TRY(stk_view_load(store, run, &view, err));
    const stk_json *old = stk_json_read(arena, stk_text_or(stk_view_get_run(view)->tags, "[]"));
    stk_json tags = old != NULL ? *old : stk_json_of_list();
    int rc = old == NULL ? stk_err_nomem(err) : 0;
    if (rc == 0 && changes) {
        rc = change(cli, old, arena, &tags, err);
    }
    const char *before = stk_json_dump_in(old, arena), *after = stk_json_dump_in(&tags, arena);
    if (rc == 0 && (before == NULL || after == NULL)) {
        rc = stk_err_nomem(err);
    }
    if (rc == 0 && strcmp(before, after) != 0) {
        rc = stk_store_tag_run(store, run, before, after, stk_clock_wall_ms(&stk_clock_real), err);
    }
    stk_view_free(view);
    STK_TRY(rc);
    *ret_tags = after;
    return 0;
}

static int run_tag(stk_cli *cli)
{
    stk_err err = {0};
    const char *text = stk_cli_arg(cli, 0);
    int status = stk_cli_at_most(cli, 1);
    if (status != 0 || text == NULL) {
        return status != 0 ? status : stk_cli_usage(cli, "which run? stoker tag RUN --add TAG");
    }
    bool changes = stk_cli_value(cli, "add") != NULL || stk_cli_value(cli, "remove") != NULL ||
                   stk_cli_value(cli, "replace") != NULL;
    stk_store *store = NULL;
    if ((status = stk_cli_store(cli, changes ? 0 : STK_STORE_READONLY, &store)) != 0) {
        return status;
    }
    char run[40];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *tags = NULL;
    int rc = stk_store_resolve_run(store, text, run, &err);
    rc = rc < 0 || !changes ? rc : stk_run_shared_may_add(store, run, &err);
    for (int i = 0; rc == 0 && tags == NULL; i++) {
        rc = try_tag(cli, store, run, changes, arena, &tags, &err);
        rc = rc == STK_E_BUSY && i < TRIES ? 0 : rc;
    }
    if (rc == 0 && changes) {
        stk_cli_shared_added(store, run);
    }
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 26);
    if (rc == 0 && stk_cli_json(cli)) {
        stk_json_open(&out, NULL, '{');
        stk_json_put_text(&out, "run", run);
        stk_json_put_raw(&out, "tags", tags);
        stk_json_close(&out, '}');
        stk_buf_char(&out, '\n');
    } else if (rc == 0) {
        const stk_json *list = stk_json_read(arena, tags);
        for (size_t i = 0; i < stk_json_n_items(list); i++) {
            stk_text_safe(&out, stk_json_text(stk_json_item(list, i)), "");
            stk_buf_char(&out, '\n');
        }
    }
    status = stk_cli_answer(cli, rc, &out, &err);
    stk_store_close(store);
    return status;
}

static const stk_option options[] = {
    {"add", 'a', "TAG", "add a tag (may be said several times, as the others)", true},
    {"remove", 'r', "TAG", "take a tag away; one that isn't there is fine", true},
    {"replace", 0, "TAG", "these tags instead of all that the run has", true},
    {NULL}};

const stk_command stk_cmd_tag = {
    .name = "tag",
    .summary = "show or change the tags of a run",
    .usage = "[options] RUN",
    .text = "Prints the run's tags, one a line, as they are after the change; without an option "
            "nothing is changed. A run can be tagged while it runs and after its end. First "
            "--replace is done, then --remove, then --add, all at once. 'stoker runs --tag TAG' "
            "lists the runs that have one. Where machines share the run's store, the others are "
            "told. RUN as in 'stoker show'.",
    .options = options,
    .run = run_tag};
