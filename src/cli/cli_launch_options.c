/* `stoker launch`: turns its options into the launcher's configuration. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "cli/cli_launch.h"
#include "host/launch/launch_hold.h"

/* The number of usable devices, but at least one. */
static int count_devices(stk_arena *arena, stk_launch_config *c, int64_t *ret, stk_err *err)
{
    uint32_t n = 0;
    STK_TRY(stk_launch_see_devices(arena, c, &n, err));
    if (n == 0) {
        fprintf(stderr, "stoker launch: -n gpus: this host has no usable device: starting one "
                        "rank, on the CPU\n");
    }
    *ret = MAX(n, 1);
    return 0;
}

static int read_duration(const stk_cli *cli, const char *name, int64_t *ret_ms, stk_err *err)
{
    const char *text = stk_cli_value(cli, name);
    stk_err why = {0};
    if (text != NULL && stk_units_parse_duration(text, ret_ms, &why) < 0) {
        return stk_err_set(err, STK_E_USAGE, "--%s '%s' is not a time such as 5, 90s or 10m", name,
                           text);
    }
    return 0;
}

/* Checks that the options describe nodes that can find each other. */
static int check_nodes(const stk_cli *cli, const stk_launch_config *c, bool is_ranked, stk_err *err)
{
    bool is_gang = stk_cli_value(cli, "gang") != NULL;
    const char *lone = stk_cli_value(cli, "rdzv") != NULL ? "rdzv" : "node-rank";
    if (stk_cli_value(cli, lone) != NULL && !is_gang && stk_cli_value(cli, "nnodes") == NULL) {
        char word[128];
        return stk_err_set(err, STK_E_USAGE, "%s is for several nodes: add --nnodes N",
                           stk_cli_spelling(cli, lone, word, sizeof word));
    }
    if (c->nodes > 1 && is_ranked != (c->rdzv != NULL)) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--nnodes %u needs --node-rank (0 … %u, another one on each node) and --rdzv "
            "HOST:PORT, the address of node 0 as the others reach it; or neither, then this is "
            "node 0 and starts the others itself",
            c->nodes, c->nodes - 1);
    }
    if (!is_gang && c->node >= c->nodes) {
        return stk_err_set(err, STK_E_USAGE,
                           "--node-rank %u is not below --nnodes %u; nodes count from 0", c->node,
                           c->nodes);
    }
    if (c->nodes > 1 && stk_cli_flag(cli, "standalone")) {
        return stk_err_set(err, STK_E_USAGE, "--standalone means one node, but --nnodes is %u",
                           c->nodes);
    }
    return 0;
}

static int read_nodes(const stk_cli *cli, stk_launch_config *c, stk_err *err)
{
    int64_t nodes = 1, node = -1;
    const char *join = getenv("STOKER_GANG_JOIN");
    const char *here = getenv("STOKER_GANG_NODE"); /* set by the starter of a gang's nodes */
    STK_TRY(stk_cli_number(cli, "nnodes", 1, 1024, &nodes, err));
    STK_TRY(stk_cli_number(cli, "node-rank", 0, 1023, &node, err));
    STK_TRY(read_duration(cli, "join", &c->join_ms, err));
    if (join != NULL && stk_cli_value(cli, "join") == NULL) {
        STK_TRY(stk_units_parse_duration(join, &c->join_ms, err));
    }
    if (node < 0 && here != NULL) {
        node = strtol(here, NULL, 10);
    }
    c->nodes = (uint32_t)nodes;
    c->node = (uint32_t)MAX(node, 0);
    c->rdzv = stk_text_or(stk_cli_value(cli, "rdzv"), getenv("STOKER_GANG_RDZV"));
    c->leash = getenv("STOKER_GANG_LEASH") != NULL;
    STK_TRY(check_nodes(cli, c, node >= 0, err));
    if (c->nodes > 1) {
        c->run_id = "none";
    }
    c->run_id = stk_text_or(stk_cli_value(cli, "rdzv-id"), c->run_id);
    return 0;
}

/* -n MIN:MAX */
static int read_range(const stk_cli *cli, const char *text, int64_t *ret_min, int64_t *ret_max,
                      stk_err *err)
{
    char word[128];
    if (!stk_units_parse_range(text, ret_min, ret_max) || *ret_max > STK_LAUNCH_MAX_RANKS) {
        return stk_err_set(err, STK_E_USAGE,
                           "%s: '%s' is not MIN:MAX, two whole numbers from 1 to %d, the smaller "
                           "one first; -n 2:4 starts 4 ranks",
                           stk_cli_spelling(cli, "ranks", word, sizeof word), text,
                           STK_LAUNCH_MAX_RANKS);
    }
    if (stk_cli_value(cli, "min-ranks") != NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "-n %s and --min-ranks both set the fewest ranks: leave one out", text);
    }
    return 0;
}

/* -n: 4, 2:4 or gpus. */
static int read_ranks(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, int64_t *ret_min,
                      int64_t *ret_max, stk_err *err)
{
    const char *n = stk_cli_value(cli, "ranks");
    char word[128];
    if (n != NULL && strchr(n, ':') != NULL) {
        return read_range(cli, n, ret_min, ret_max, err);
    }
    if (n != NULL && (strcmp(n, "gpus") == 0 || strcmp(n, "gpu") == 0)) {
        return count_devices(arena, c, ret_max, err);
    }
    if (n != NULL && (*n == '\0' || strspn(n, "0123456789") != strlen(n))) {
        return stk_err_set(err, STK_E_USAGE,
                           "%s: '%s' is neither a number of ranks (4), nor MIN:MAX (2:4), "
                           "nor gpus (one on each device)",
                           stk_cli_spelling(cli, "ranks", word, sizeof word), n);
    }
    return stk_cli_number(cli, "ranks", 1, STK_LAUNCH_MAX_RANKS, ret_max, err);
}

int stk_cli_launch_options(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    int64_t ranks = 1, min = -1, restarts = 0, port = 0, server = -1;
    STK_TRY(read_ranks(cli, arena, c, &min, &ranks, err));
    STK_TRY(stk_cli_number(cli, "min-ranks", 1, ranks, &min, err));
    STK_TRY(stk_cli_number(cli, "restarts", 0, 1000, &restarts, err));
    STK_TRY(stk_cli_number(cli, "port", 1, 65535, &port, err));
    STK_TRY(stk_cli_number(cli, "forkserver-fd", 0, 1 << 20, &server, err));
    STK_TRY(read_duration(cli, "grace", &c->grace_ms, err));
    STK_TRY(read_duration(cli, "hang", &c->hang_ms, err));
    STK_TRY(read_nodes(cli, c, err));
    c->ranks = (uint32_t)ranks;
    c->min_ranks = (uint32_t)(min < 0 ? ranks : min);
    c->max_restarts = (uint32_t)restarts;
    c->port = (int32_t)port;
    c->server_fd = (int)server;
    c->no_prefix = stk_cli_flag(cli, "no-prefix");
    c->no_bind = stk_cli_flag(cli, "no-bind");
    if (stk_cli_value(cli, "ranks") == NULL && stk_cli_value(cli, "gang") == NULL) {
        return stk_err_set(
            err, STK_E_USAGE,
            "the number of ranks is missing: -n 4, or -n gpus for one on each device");
    }
    return 0;
}

const stk_option stk_cli_launch_table[] = {
    {"ranks", 'n', "N",
     "number of processes; MIN:MAX: as -n MAX --min-ranks MIN; gpus: one for each usable device",
     false, "nproc-per-node ?num-processes"},
    {"min-ranks", 0, "N", "a restart may leave out failed ranks, down to N ranks"},
    {"restarts", 0, "N", "restart all ranks after a failure, at most N times (0)", false,
     "max-restarts"},
    {"port", 0, "PORT", "where ranks meet (MASTER_PORT; default: a free one)", false,
     "master-port ?main-process-port"},
    {"grace", 0, "TIME", "time between SIGTERM and SIGKILL when ranks are ended (5s)"},
    {"hang", 0, "TIME", "end all ranks if none makes progress for TIME, and say where each stood"},
    {"log-dir", 0, "DIR", "write rank-K/stdout.log, rank-K/stderr.log and gang.json there"},
    {"no-prefix", 0, NULL, "print the ranks' lines without \"[K] \" before them"},
    {"no-bind", 0, NULL, "let each rank use every CPU (else they are split)"},
    {"standalone", 0, NULL, "on this node alone (the default)"},
    {"module", 'm', NULL, "PROGRAM is a Python module (python -m)"},
    {"nnodes", 0, "N", "run on N nodes (see above)", false, "?num-machines"},
    {"node-rank", 0, "K", "which of them this is, from 0; node 0 leads and has rank 0", false,
     "?machine-rank"},
    {"rdzv", 0, "HOST:PORT", "node 0 as the others reach it (port 29400)", false,
     "rdzv-endpoint master-addr ?main-process-ip"},
    {"rdzv-id", 0, "ID", "the gang's name; nodes of another gang are refused"},
    {"join", 0, "TIME", "how long nodes wait for each other (10m)"},
    {"gang", 0, "TASK.JSON", "the gang of a step (for the engine)"},
    {"hold", 0, "N", "lease N devices and become PROGRAM (for nodes that a gang's leader starts)"},
    {"forkserver-fd", 0, "FD", "start ranks with a fork server (for Python steps)"},
    {NULL}};
