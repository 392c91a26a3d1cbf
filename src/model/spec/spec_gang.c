/* gang: how many ranks a step's program runs as, and what happens when a rank fails. */
#include <sys/param.h>

#include "base/units.h"
#include "model/spec/spec_read.h"

enum { MAX_RANKS = STK_LIMIT_RANKS, MAX_RESTARTS = 1000, MAX_NODES = 1024 };

typedef struct gang_reader {
    stk_gang_ask ask;
    int64_t least; /* the minimum from "ranks: min:max", or 0 */
} gang_reader;

static int read_ranks(stk_spec_reader *r, const stk_json *node, const char *label, void *reader)
{
    gang_reader *g = reader;
    const char *text = stk_json_text(node);
    int64_t max = 0;
    if (stk_json_is(node, "gpus")) {
        g->ask.ranks = STK_GANG_GPUS;
        return 0;
    }
    if (text != NULL && stk_units_parse_range(text, &g->least, &max) && max <= MAX_RANKS) {
        g->ask.ranks = max;
        return 0;
    }
    if (node->kind != STK_JSON_INT) {
        return stk_spec_wrong(r, node, label,
                              "a number of processes up to 1024, min:max (2:4 starts 4, and a "
                              "restart may go on with 2), or gpus for one process on each device");
    }
    return stk_spec_read_int(r, node, label, 1, MAX_RANKS, &g->ask.ranks);
}

static const stk_spec_field fields[] = {
    {.label = "gang.ranks", .read = read_ranks},
    {.label = "gang.restarts",
     .kind = STK_SPEC_INT,
     .at = offsetof(gang_reader, ask.restarts),
     .max = MAX_RESTARTS},
    {.label = "gang.min_ranks",
     .kind = STK_SPEC_INT,
     .at = offsetof(gang_reader, ask.min_ranks),
     .min = 1,
     .max = MAX_RANKS},
    {.label = "gang.port",
     .kind = STK_SPEC_INT,
     .at = offsetof(gang_reader, ask.port),
     .min = 1,
     .max = 65535},
    {.label = "gang.hang", .kind = STK_SPEC_DURATION, .at = offsetof(gang_reader, ask.hang_ms)},
    {.label = "gang.nodes",
     .kind = STK_SPEC_INT,
     .at = offsetof(gang_reader, ask.nodes),
     .min = 1,
     .max = MAX_NODES}};

int stk_spec_read_gang(stk_spec_reader *r, const stk_json *node, stk_gang_ask *gang)
{
    if (node->kind == STK_JSON_BOOL && !node->truth) { /* `false` overrides the pipeline's */
        *gang = (stk_gang_ask){0};
        return 0;
    }
    gang_reader g = {.ask = *gang};
    int rc = stk_spec_read_fields(r, node, "gang", fields, STK_SPEC_N(fields), &g);
    if (node->kind != STK_JSON_MAP && node->kind != STK_JSON_LIST) {
        stk_err_hint(r->err, "for two ranks write gang: {ranks: 2}");
    }
    STK_TRY(rc);
    *gang = g.ask;
    if (gang->ranks == 0) {
        return stk_spec_fail(r, node, "'gang' needs 'ranks': the number of processes, or gpus");
    }
    if (g.least > 0 && gang->min_ranks > 0 && gang->min_ranks != g.least) {
        return stk_spec_fail(r, node, "'gang.min_ranks' is %lld, but 'gang.ranks' is %lld:%lld",
                             (long long)gang->min_ranks, (long long)g.least,
                             (long long)gang->ranks);
    }
    gang->min_ranks = MAX(g.least, gang->min_ranks);
    if (gang->ranks > 0 && gang->min_ranks > gang->ranks) {
        return stk_spec_fail(r, node,
                             "'gang.min_ranks' is %lld, more than the %lld of 'gang.ranks'",
                             (long long)gang->min_ranks, (long long)gang->ranks);
    }
    return 0;
}
