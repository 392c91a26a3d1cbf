/* gang: how many ranks a step's program runs as, and what becomes of them when one fails. */
#include "base/units.h"
#include "model/spec/spec_read.h"

enum { MAX_RANKS = STK_LIMIT_RANKS, MAX_RESTARTS = 1000, MAX_NODES = 1024 };

/* `ret_min` is written only where the range says it. */
static int read_ranks(stk_spec_reader *r, const stk_json *node, int64_t *ret, int64_t *ret_min)
{
    const char *text = stk_json_text(node);
    int64_t max = 0;
    if (stk_json_is(node, "gpus")) {
        *ret = STK_GANG_GPUS;
        return 0;
    }
    if (text != NULL && stk_units_parse_range(text, ret_min, &max) && max <= MAX_RANKS) {
        *ret = max;
        return 0;
    }
    if (node->kind != STK_JSON_INT) {
        return stk_spec_wrong(r, node, "gang.ranks",
                              "a number of processes up to 1024, min:max (2:4 starts 4; a restart "
                              "may leave out 2), or gpus: one for each device");
    }
    return stk_spec_read_int(r, node, "gang.ranks", 1, MAX_RANKS, ret);
}

int stk_spec_read_gang(stk_spec_reader *r, const stk_json *node, stk_gang_ask *gang)
{
    static const char *const keys[] = {"ranks", "restarts", "min_ranks", "port", "hang", "nodes"};
    if (node->kind == STK_JSON_BOOL && !node->truth) { /* not what the pipeline says */
        *gang = (stk_gang_ask){0};
        return 0;
    }
    int64_t least = 0; /* that ranks' own min:max says */
    int rc = stk_spec_read_map(r, node, "gang");
    if (rc < 0 && node->kind != STK_JSON_LIST) {
        stk_err_hint(r->err, "two ranks are gang: {ranks: 2}");
    }
    for (uint32_t i = 0; rc == 0 && i < node->n; i++) {
        const stk_json *value = stk_json_value(node, i);
        int key = stk_spec_key(r, stk_json_key(node, i), keys, 6, "gang");
        if (key < 0) {
            return key;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        switch (key) {
        case 0:
            rc = read_ranks(r, value, &gang->ranks, &least);
            break;
        case 1:
            rc = stk_spec_read_int(r, value, "gang.restarts", 0, MAX_RESTARTS, &gang->restarts);
            break;
        case 2:
            rc = stk_spec_read_int(r, value, "gang.min_ranks", 1, MAX_RANKS, &gang->min_ranks);
            break;
        case 3:
            rc = stk_spec_read_int(r, value, "gang.port", 1, 65535, &gang->port);
            break;
        case 4:
            rc = stk_spec_read_duration(r, value, "gang.hang", &gang->hang_ms);
            break;
        default:
            rc = stk_spec_read_int(r, value, "gang.nodes", 1, MAX_NODES, &gang->nodes);
        }
    }
    if (rc == 0 && gang->ranks == 0) {
        return stk_spec_fail(r, node, "'gang' needs 'ranks': how many processes, or gpus");
    }
    if (rc == 0 && least > 0 && gang->min_ranks > 0 && gang->min_ranks != least) {
        return stk_spec_fail(r, node, "'gang.min_ranks' is %lld, but its ranks say %lld:%lld",
                             (long long)gang->min_ranks, (long long)least, (long long)gang->ranks);
    }
    if (least > 0) {
        gang->min_ranks = least;
    }
    if (rc == 0 && gang->ranks > 0 && gang->min_ranks > gang->ranks) {
        return stk_spec_fail(r, node, "'gang.min_ranks' is %lld, more than its %lld ranks",
                             (long long)gang->min_ranks, (long long)gang->ranks);
    }
    return rc;
}
