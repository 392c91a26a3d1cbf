/* stoker tag: the tags of a run, also of one that still runs. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli_read.h"
#include "cli/cli_shared.h"
#include "run/run_shared.h"
#include "sys/clock.h"

enum { LONGEST = 500, MOST = 1000, TRIES = 20 };

static bool has(const json_t *tags, const char *tag, size_t *ret_at)
{
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const char *one = json_string_value(json_array_get(tags, i));
        if (one != NULL && strcmp(one, tag) == 0) {
            *ret_at = i;
            return true;
        }
    }
    return false;
}

static int add_tag(json_t *tags, const char *tag, stk_err *err)
{
    size_t at;
    if (*tag == '\0' || strlen(tag) > LONGEST) {
        return stk_err_set(err, STK_E_USAGE, "tag '%.60s%s' has %zu bytes; a tag has 1 to %d", tag,
                           strlen(tag) > 60 ? "…" : "", strlen(tag), LONGEST);
    }
    if (has(tags, tag, &at)) {
        return 0;
    }
    if (json_array_size(tags) >= MOST) {
        return stk_err_set(err, STK_E_LIMIT, "a run has at most %d tags", MOST);
    }
    return json_array_append_new(tags, json_string(tag)) == 0
               ? 0
               : stk_err_set(err, STK_E_USAGE, "tag '%s' is not UTF-8 text", tag);
}

/* First --replace, which leaves nothing of what was, then --remove, then --add. */
static int change(const stk_cli *cli, const json_t *old, json_t **ret_tags, stk_err *err)
{
    bool replaces = stk_cli_value(cli, "replace") != NULL;
    json_t *tags = json_array();
    int rc = tags == NULL ? stk_err_nomem(err) : 0;
    for (size_t i = 0; rc == 0 && !replaces && i < json_array_size(old); i++) {
        rc = json_array_append(tags, json_array_get(old, i)) == 0 ? 0 : stk_err_nomem(err);
    }
    const char *tag;
    for (int i = 0; rc == 0 && (tag = stk_cli_value_at(cli, "replace", i)) != NULL; i++) {
        rc = add_tag(tags, tag, err);
    }
    for (int i = 0; rc == 0 && (tag = stk_cli_value_at(cli, "remove", i)) != NULL; i++) {
        size_t at;
        if (has(tags, tag, &at)) {
            (void)json_array_remove(tags, at);
        }
    }
    for (int i = 0; rc == 0 && (tag = stk_cli_value_at(cli, "add", i)) != NULL; i++) {
        rc = add_tag(tags, tag, err);
    }
    if (rc < 0) {
        json_decref(tags);
        return rc;
    }
    *ret_tags = tags;
    return 0;
}

/* One try: STK_E_BUSY, somebody else was quicker. *ret_tags: what the run has then, JSON. */
static int try_tag(const stk_cli *cli, stk_store *store, const char *run, bool changes,
                   char **ret_tags, stk_err *err)
{
    stk_view *view = NULL;
    int rc = stk_view_load(store, run, &view, err);
    if (rc < 0) {
        return rc;
    }
    json_t *old = json_loads(stk_view_get_run(view)->tags ? stk_view_get_run(view)->tags : "[]",
                             JSON_ALLOW_NUL, NULL);
    json_t *tags = json_incref(old);
    if (changes) {
        json_decref(tags);
        tags = NULL;
        rc = change(cli, old, &tags, err);
    }
    char *before = json_dumps(old, JSON_COMPACT);
    char *after = rc == 0 ? json_dumps(tags, JSON_COMPACT) : NULL;
    if (rc == 0 && (before == NULL || after == NULL)) {
        rc = stk_err_nomem(err);
    }
    if (rc == 0 && strcmp(before, after) != 0) {
        rc = stk_store_tag_run(store, run, before, after, stk_clock_wall_ms(&stk_clock_real), err);
    }
    free(before);
    json_decref(old);
    json_decref(tags);
    stk_view_free(view);
    if (rc < 0) {
        free(after);
        return rc;
    }
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
    char *tags = NULL;
    int rc = stk_store_resolve_run(store, text, run, &err);
    rc = rc < 0 || !changes ? rc : stk_run_shared_may_add(store, run, &err);
    for (int i = 0; rc == 0 && tags == NULL; i++) {
        rc = try_tag(cli, store, run, changes, &tags, &err);
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
        json_t *list = json_loads(tags, 0, NULL);
        for (size_t i = 0; i < json_array_size(list); i++) {
            stk_text_safe(&out, json_string_value(json_array_get(list, i)), "");
            stk_buf_char(&out, '\n');
        }
        json_decref(list);
    }
    status = stk_cli_answer(cli, rc, &out, &err);
    free(tags);
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
