/* Reads the launcher's report on a step's ranks, besides result.json. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "sys/file.h"

static int64_t count_of(const stk_json *attempt, const char *key)
{
    return MAX(stk_json_get_whole(attempt, key, -1), -1);
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
    const stk_json *last = stk_json_item(attempts, (size_t)stk_json_n_items(attempts) - 1);
    *ret_gang = (exec_gang){.first = count_of(last, "first"),
                            .others = count_of(last, "others"),
                            .noticed_us = count_of(last, "noticed_us")};
    return last != NULL;
}

const char *stk_exec_gang_oom(stk_exec *x, const exec_gang *gang, const char *text)
{
    const char *way_out = stk_runner_way_out(STK_FAIL_HOST_OOM);
    size_t n = strlen(text);
    size_t n_way = strlen(way_out);
    char others[64] = "";
    if (gang->first < 0) {
        return text;
    }
    if (n > n_way && strcmp(text + n - n_way, way_out) == 0) {
        n -= n_way;
    } else {
        way_out = "";
    }
    if (gang->others > 0) {
        (void)snprintf(others, sizeof others, "; %lld other rank%s ended because of it",
                       (long long)gang->others,
                       stk_text_noun((uint64_t)gang->others, " was", "s were"));
    }
    return stk_arena_printf(x->scratch, "rank %lld: %.*s%s%s", (long long)gang->first, (int)n, text,
                            others, way_out);
}
