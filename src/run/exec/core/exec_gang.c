/* What the launcher of a step's ranks tells beyond result.json. */
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_state.h"
#include "sys/file.h"

static int64_t number(const stk_json *map, const char *key)
{
    int64_t value = -1;
    const stk_json *node = map == NULL ? NULL : stk_json_get(map, key);
    return node != NULL && stk_json_int(node, &value) && value >= 0 ? value : -1;
}

bool stk_exec_gang_read(stk_exec *x, const char *dir, exec_gang *ret_gang)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json doc;
    const char *path = stk_arena_printf(x->scratch, "%s/gang.json", dir);
    if (path == NULL ||
        stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) < 0 ||
        stk_json_parse(text, len, path, &limits, x->scratch, &doc, NULL) < 0) {
        return false;
    }
    const stk_json *attempts = stk_json_get(&doc, "attempts");
    bool some = attempts != NULL && attempts->kind == STK_JSON_LIST && attempts->n > 0;
    const stk_json *last = some ? &attempts->items[attempts->n - 1] : NULL;
    *ret_gang = (exec_gang){.first = number(last, "first"),
                            .others = number(last, "others"),
                            .noticed_us = number(last, "noticed_us")};
    return some;
}

const char *stk_exec_gang_oom(stk_exec *x, const exec_gang *gang, const char *text)
{
    const char *way_out = stk_runner_way_out(STK_FAIL_HOST_OOM);
    size_t n = strlen(text);
    size_t n_way = strlen(way_out);
    bool ends_so = n > n_way && strcmp(text + n - n_way, way_out) == 0;
    if (gang->first < 0) {
        return text;
    }
    const char *others =
        gang->others <= 0
            ? ""
            : stk_arena_printf(x->scratch, "; %lld other rank%s ended because of it",
                               (long long)gang->others, gang->others == 1 ? " was" : "s were");
    return others == NULL ? NULL
                          : stk_arena_printf(x->scratch, "rank %lld: %.*s%s%s",
                                             (long long)gang->first, (int)(ends_so ? n - n_way : n),
                                             text, others, ends_so ? way_out : "");
}
