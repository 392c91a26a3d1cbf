/* Which other tools hear of a run: three keys of `stoker.yaml`, and variables that win over them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "image/stack/stack_private.h"
#include "sys/file.h"

static const char *const trackers[] = {
#define X(name) #name,
#include "tbl/trackers.def"
#undef X
};
enum { N_TRACKERS = sizeof trackers / sizeof *trackers };

#define TRACKERS_ARE "mlflow, wandb or tensorboard"

static bool is_tracker(const char *name, size_t n)
{
    for (int i = 0; i < N_TRACKERS; i++) {
        if (strlen(trackers[i]) == n && strncmp(trackers[i], name, n) == 0) {
            return true;
        }
    }
    return false;
}

/* One name, or a list of them, as "mlflow,wandb". */
static int read_trackers(stk_spec_reader *r, const stk_json *node, const char **ret)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(node, &items);
    STK_BUF_AUTO names = STK_BUF_INIT(1024);
    for (uint32_t i = 0; i < n; i++) {
        const char *name = stk_json_text(&items[i]);
        if (name == NULL || !is_tracker(name, strlen(name))) {
            stk_spec_wrong(r, &items[i], "trackers", TRACKERS_ARE ", or a list of these");
            if (name != NULL) {
                stk_spec_did_you_mean(r, name, trackers, N_TRACKERS);
            }
            return STK_E_SPEC;
        }
        stk_buf_separate(&names, ",");
        stk_buf_text(&names, name);
    }
    *ret = stk_buf_keep(&names, r->arena);
    return stk_buf_check(&names, r->err);
}

/* An http(s) URL, or a file as an absolute path: relative ones start at `folder` (NULL: the current
 * one). Sets *ret_wrong instead if it is neither. */
static int find_target(const char *text, const char *folder, stk_arena *arena, const char **ret,
                       const char **ret_wrong, stk_err *err)
{
    const char *host = strstr(text, "://");
    *ret_wrong = NULL;
    if (host == NULL) {
        STK_TEXT_AUTO below = stk_file_below(folder, text);
        STK_TEXT_AUTO path = stk_file_absolute(stk_text_or(below, text));
        *ret = stk_arena_dup(arena, path);
        return stk_err_if_null(*ret, err);
    }
    if (strncmp(text, "http://", 7) != 0 && strncmp(text, "https://", 8) != 0) {
        *ret_wrong = "is neither an http(s) URL nor the path of a file";
    } else if (host[3 + strcspn(host + 3, "/@")] == '@') {
        *ret_wrong = "has credentials in its URL, which would end up in logs; they belong into "
                     "OPENLINEAGE_API_KEY or OTEL_EXPORTER_OTLP_HEADERS";
    }
    *ret = stk_arena_dup(arena, text);
    return stk_err_if_null(*ret, err);
}

static int read_target(stk_spec_reader *r, const stk_json *node, const char *key, const char **ret)
{
    const char *text = NULL;
    const char *wrong = NULL;
    STK_TRY(stk_spec_read_text(r, node, key, &text));
    const char *end = strrchr(r->path, '/');
    const char *folder = ".";
    if (end != NULL) {
        folder = stk_arena_dupn(r->arena, r->path, (size_t)(end - r->path) + 1);
        STK_TRY(stk_err_if_null(folder, r->err));
    }
    STK_TRY(find_target(text, folder, r->arena, ret, &wrong, r->err));
    return wrong == NULL ? 0 : stk_spec_fail(r, node, "'%s' %s", key, wrong);
}

int stk_stack_read_tools(stk_spec_reader *r, stk_tools_key key, const stk_json *node,
                         stk_tools *tools)
{
    switch (key) {
    case STK_TOOLS_TRACKERS:
        return read_trackers(r, node, &tools->trackers);
    case STK_TOOLS_OPENLINEAGE:
        return read_target(r, node, "openlineage", &tools->openlineage);
    default:
        return read_target(r, node, "opentelemetry", &tools->opentelemetry);
    }
}

/* "off" and an empty text turn off what the file says. */
static bool is_off(const char *text)
{
    return *text == '\0' || strcmp(text, "off") == 0;
}

static int ask_target(const char *variable, stk_arena *arena, const char **ret, stk_err *err)
{
    const char *text = getenv(variable);
    const char *wrong = NULL;
    if (text == NULL) {
        return 0;
    }
    *ret = NULL;
    if (is_off(text)) {
        return 0;
    }
    STK_TRY(find_target(text, NULL, arena, ret, &wrong, err));
    return wrong == NULL ? 0 : stk_err_set(err, STK_E_USAGE, "%s %s", variable, wrong);
}

static int ask_trackers(stk_arena *arena, const char **ret, stk_err *err)
{
    const char *text = getenv("STOKER_TRACKERS");
    if (text == NULL) {
        return 0;
    }
    *ret = NULL;
    if (is_off(text)) {
        return 0;
    }
    for (const char *name = text; name != NULL; name = stk_text_behind_first(name, ',')) {
        size_t n = strcspn(name, ",");
        if (!is_tracker(name, n)) {
            return stk_err_set(err, STK_E_USAGE,
                               "STOKER_TRACKERS names '%.*s'; a tracker is " TRACKERS_ARE
                               ", several stand with commas between",
                               (int)(n < 80 ? n : 80), name);
        }
    }
    *ret = stk_arena_dup(arena, text);
    return stk_err_if_null(*ret, err);
}

int stk_stack_ask_tools(stk_tools *tools, stk_arena *arena, stk_err *err)
{
    STK_TRY(ask_trackers(arena, &tools->trackers, err));
    STK_TRY(ask_target("STOKER_OPENLINEAGE", arena, &tools->openlineage, err));
    return ask_target("STOKER_OPENTELEMETRY", arena, &tools->opentelemetry, err);
}
