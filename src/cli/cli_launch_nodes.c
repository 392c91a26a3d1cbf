/* `stoker launch`: which nodes there are, and which of them this is. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/cli_launch.h"

enum { LAST_CALL_MS = 30000 }; /* torchrun's */

int stk_cli_launch_duration(const stk_cli *cli, const char *name, int64_t *ret_ms, stk_err *err)
{
    const char *text = stk_cli_value(cli, name);
    stk_err why = {0};
    if (text != NULL && stk_units_parse_duration(text, ret_ms, &why) < 0) {
        return stk_err_set(err, STK_E_USAGE, "--%s '%s' is not a time such as 5, 90s or 10m", name,
                           text);
    }
    return 0;
}

/* On one node, an address of it and number 0 say nothing new: torchrun's lines have them. */
static bool says_nothing_new(const char *name, const char *value)
{
    return strcmp(name, "rdzv") == 0 ? stk_launch_is_here(value) : strcmp(value, "0") == 0;
}

/* Checks that the options describe nodes that can find each other. */
static int check_nodes(const stk_cli *cli, const stk_launch_config *c, bool is_ranked, stk_err *err)
{
    static const char *const lone[] = {"rdzv", "node-rank"};
    bool is_gang = stk_cli_value(cli, "gang") != NULL;
    for (int i = 0; i < 2 && !is_gang && stk_cli_value(cli, "nnodes") == NULL; i++) {
        const char *value = stk_cli_value(cli, lone[i]);
        if (value != NULL && !says_nothing_new(lone[i], value)) {
            char word[128];
            return stk_err_set(err, STK_E_USAGE, "%s is for several nodes: add --nnodes N",
                               stk_cli_spelling(cli, lone[i], word, sizeof word));
        }
    }
    if (c->nodes > 1 && is_ranked && c->rdzv == NULL) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--nnodes %u with --node-rank needs --rdzv HOST:PORT, the address of node 0 as the "
            "others reach it; without both this is node 0 and starts the others itself",
            c->nodes);
    }
    if (c->nodes > 1 && stk_cli_flag(cli, "standalone")) {
        return stk_err_set(err, STK_E_USAGE, "--standalone means one node, but --nnodes is %u",
                           c->nodes);
    }
    if (c->min_nodes > 0 && c->rdzv == NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "--nnodes %u:%u needs --rdzv HOST:PORT, the address of the node that "
                           "leads: nodes that join find the others there",
                           c->min_nodes, c->nodes);
    }
    if (!is_gang && c->node != STK_LAUNCH_ANY_NODE && c->node >= c->nodes) {
        return stk_err_set(err, STK_E_USAGE,
                           "--node-rank %u is not below --nnodes %u; nodes count from 0", c->node,
                           c->nodes);
    }
    return 0;
}

static int read_count(const stk_cli *cli, stk_launch_config *c, stk_err *err)
{
    int64_t nodes = 1, min = 0;
    char word[128];
    const char *text = stk_cli_value(cli, "nnodes");
    const char *colon = NULL;
    if (text != NULL) {
        colon = strchr(text, ':');
    }
    if (colon == NULL) {
        STK_TRY(stk_cli_number(cli, "nnodes", 1, 1024, &nodes, err));
    } else if ((size_t)(colon - text) == strlen(colon + 1) &&
               strncmp(text, colon + 1, strlen(colon + 1)) == 0) { /* 2:2 */
        char *end;
        nodes = strtol(colon + 1, &end, 10);
        if (*end != '\0' || nodes < 1 || nodes > 1024) {
            return stk_err_set(err, STK_E_USAGE, "--nnodes: '%s' is not a number of nodes", text);
        }
    } else if (!stk_units_parse_range(text, &min, &nodes)) {
        return stk_err_set(err, STK_E_USAGE, "%s: '%s' is not N or MIN:MAX, the smaller one first",
                           stk_cli_spelling(cli, "nnodes", word, sizeof word), text);
    } else if (nodes > 1024) {
        return stk_err_set(err, STK_E_USAGE, "--nnodes %s: a gang has 1 to 1024 nodes", text);
    }
    c->nodes = (uint32_t)nodes;
    c->min_nodes = (uint32_t)min;
    return 0;
}

static int read_conf_pair(const char *key, const char *value, stk_launch_config *c, bool joins,
                          stk_err *err)
{
    /* torchrun's own protocol; here a lost connection is seen by the kernel. */
    static const char *const without[] = {"read_timeout",
                                          "close_timeout",
                                          "heartbeat_timeout",
                                          "keep_alive_interval",
                                          "keep_alive_max_attempt",
                                          "use_libuv",
                                          "rank"};
    char *end;
    long number = strtol(value, &end, 10);
    bool is_number = end != value && *end == '\0' && number >= 0;
    if (strcmp(key, "join_timeout") == 0 || strcmp(key, "timeout") == 0) {
        if (is_number && !joins) { /* --join wins */
            c->join_ms = (int64_t)number * 1000;
        }
        if (is_number) {
            return 0;
        }
        return stk_err_set(err, STK_E_USAGE,
                           "--rdzv-conf: %s '%s' is not a whole number of seconds", key, value);
    }
    if (strcmp(key, "last_call_timeout") == 0 && is_number) {
        c->last_call_ms = (int64_t)number * 1000;
        return 0;
    }
    if (strcmp(key, "is_host") == 0 && (stk_cli_is_true(value) || stk_cli_is_false(value))) {
        c->leads = stk_cli_is_true(value);
        return 0;
    }
    if (strcmp(key, "store_type") == 0 && strcmp(value, "tcp") == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        if (strcmp(key, without[i]) == 0) {
            return 0;
        }
    }
    return stk_err_set(err, STK_E_USAGE,
                       "--rdzv-conf %s=%s has no meaning here: nodes meet at node 0; join_timeout "
                       "(seconds) and is_host (true or false) are understood",
                       key, value);
}

static int read_conf(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    bool joins = stk_cli_value(cli, "join") != NULL;
    char *rest = stk_arena_dup(arena, stk_text_or(stk_cli_value(cli, "rdzv-conf"), ""));
    STK_TRY(stk_err_if_null(rest, err));
    for (char *pair; (pair = strsep(&rest, ",")) != NULL;) {
        char *value = strchr(pair, '=');
        if (*pair == '\0') {
            continue;
        }
        if (value == NULL) {
            return stk_err_set(err, STK_E_USAGE, "--rdzv-conf: '%s' is not KEY=VALUE", pair);
        }
        *value++ = '\0';
        STK_TRY(read_conf_pair(pair, value, c, joins, err));
    }
    return 0;
}

int stk_cli_launch_nodes(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    int64_t node = -1;
    const char *join = getenv("STOKER_GANG_JOIN");
    const char *here = getenv("STOKER_GANG_NODE"); /* set by the starter of a gang's nodes */
    c->leads = -1;
    c->last_call_ms = LAST_CALL_MS;
    STK_TRY(read_count(cli, c, err));
    STK_TRY(stk_cli_number(cli, "node-rank", 0, 1023, &node, err));
    STK_TRY(stk_cli_launch_duration(cli, "join", &c->join_ms, err));
    if (join != NULL && stk_cli_value(cli, "join") == NULL) {
        STK_TRY(stk_units_parse_duration(join, &c->join_ms, err));
    }
    STK_TRY(read_conf(cli, arena, c, err));
    if (node < 0 && here != NULL) {
        node = strtol(here, NULL, 10);
    }
    c->node = (uint32_t)MAX(node, 0);
    c->rdzv = stk_text_or(stk_cli_value(cli, "rdzv"), getenv("STOKER_GANG_RDZV"));
    c->local_addr = stk_cli_value(cli, "local-addr");
    c->leash = getenv("STOKER_GANG_LEASH") != NULL;
    if (c->nodes > 1 && node < 0 && c->rdzv != NULL) {
        c->node = STK_LAUNCH_ANY_NODE;
    }
    STK_TRY(check_nodes(cli, c, node >= 0, err));
    if (c->nodes > 1) {
        c->run_id = "none";
    }
    c->run_id = stk_text_or(stk_cli_value(cli, "rdzv-id"), c->run_id);
    return 0;
}
