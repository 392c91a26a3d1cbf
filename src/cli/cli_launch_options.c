/* `stoker launch`: turns its options into the launcher's configuration. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/units.h"
#include "cli/cli_launch.h"
#include "host/launch/launch_hold.h"
#include "sys/proc.h"

/* The number of usable devices, but at least one; `or_cpus`: of CPUs if there is no device. */
static int count_devices(stk_arena *arena, stk_launch_config *c, bool or_cpus, int64_t *ret,
                         stk_err *err)
{
    uint32_t n = 0;
    STK_TRY(stk_launch_see_devices(arena, c, &n, err));
    if (n == 0 && or_cpus) {
        *ret = stk_proc_n_cpus();
        return 0;
    }
    if (n == 0) {
        fprintf(stderr, "stoker launch: -n gpus: this host has no usable device: starting one "
                        "rank, on the CPU\n");
    }
    *ret = MAX(n, 1);
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

/* -n: 4, 2:4, gpus, cpu or auto. */
static int read_ranks(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, int64_t *ret_min,
                      int64_t *ret_max, stk_err *err)
{
    static const char *const words[] = {"gpus", "gpu", "xpu", "auto"};
    const char *n = stk_cli_value(cli, "ranks");
    char word[128];
    if (n == NULL && stk_cli_launch_wants_devices(cli)) {
        n = "gpus";
    }
    if (n != NULL && strchr(n, ':') != NULL) {
        return read_range(cli, n, ret_min, ret_max, err);
    }
    for (size_t i = 0; n != NULL && i < sizeof words / sizeof *words; i++) {
        if (strcmp(n, words[i]) == 0) {
            return count_devices(arena, c, strcmp(n, "auto") == 0, ret_max, err);
        }
    }
    if (n != NULL && strcmp(n, "cpu") == 0) {
        *ret_max = stk_proc_n_cpus();
        return 0;
    }
    if (n != NULL && (*n == '\0' || strspn(n, "0123456789") != strlen(n))) {
        return stk_err_set(err, STK_E_USAGE,
                           "%s: '%s' is neither a number of ranks (4), nor MIN:MAX (2:4), "
                           "nor gpus (one on each device), cpu or auto",
                           stk_cli_spelling(cli, "ranks", word, sizeof word), n);
    }
    return stk_cli_number(cli, "ranks", 1, STK_LAUNCH_MAX_RANKS, ret_max, err);
}

/* --num-processes counts the ranks of all nodes. */
static int read_total(const stk_cli *cli, uint32_t nodes, int64_t *ret_ranks, stk_err *err)
{
    int64_t total = 0;
    STK_TRY(stk_cli_number(cli, "num-processes", 1, INT32_MAX, &total, err));
    if (total == 0) {
        return 0;
    }
    if (stk_cli_value(cli, "ranks") != NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "--num-processes and -n both set the number of ranks: leave one out");
    }
    if (total % nodes != 0 || total / nodes > STK_LAUNCH_MAX_RANKS) {
        return stk_err_set(err, STK_E_USAGE,
                           "--num-processes %lld counts the ranks of all nodes, and %u nodes can't "
                           "share them evenly, at most %d each",
                           (long long)total, nodes, STK_LAUNCH_MAX_RANKS);
    }
    *ret_ranks = total / nodes;
    return 0;
}

static int read_ranks_of_nodes(const stk_cli *cli, stk_arena *arena, stk_launch_config *c,
                               stk_err *err)
{
    int64_t ranks = 1, min = -1;
    stk_cli_launch_mask(cli);
    if (stk_cli_value(cli, "num-processes") != NULL) {
        STK_TRY(read_total(cli, c->nodes, &ranks, err));
    } else {
        STK_TRY(read_ranks(cli, arena, c, &min, &ranks, err));
    }
    STK_TRY(stk_cli_number(cli, "min-ranks", 1, ranks, &min, err));
    if (min < 0) {
        min = ranks;
    }
    c->ranks = (uint32_t)ranks;
    c->min_ranks = (uint32_t)min;
    return 0;
}

int stk_cli_launch_options(const stk_cli *cli, stk_arena *arena, stk_launch_config *c, stk_err *err)
{
    int64_t restarts = 0, port = 0, server = -1;
    STK_TRY(stk_cli_launch_foreign(cli, err));
    STK_TRY(stk_cli_number(cli, "restarts", 0, 1000, &restarts, err));
    STK_TRY(stk_cli_number(cli, "port", 0, 65535, &port, err));
    STK_TRY(stk_cli_number(cli, "forkserver-fd", 0, 1 << 20, &server, err));
    STK_TRY(stk_cli_launch_duration(cli, "grace", &c->grace_ms, err));
    STK_TRY(stk_cli_launch_duration(cli, "hang", &c->hang_ms, err));
    STK_TRY(stk_cli_launch_nodes(cli, arena, c, err));
    STK_TRY(read_ranks_of_nodes(cli, arena, c, err));
    c->max_restarts = (uint32_t)restarts;
    c->port = (int32_t)port;
    c->server_fd = (int)server;
    c->no_prefix = stk_cli_flag(cli, "no-prefix");
    c->no_bind = stk_cli_flag(cli, "no-bind");
    c->virtual_rank = stk_cli_flag(cli, "virtual-local-rank");
    c->role = stk_cli_value(cli, "role");
    STK_TRY(stk_cli_launch_streams(cli, arena, c, err));
    STK_TRY(stk_cli_launch_signals(cli, arena, c, err));
    if (stk_cli_launch_is_accelerate(cli)) {
        return stk_cli_launch_accelerate(cli, c->ranks * c->nodes, err);
    }
    return 0;
}
