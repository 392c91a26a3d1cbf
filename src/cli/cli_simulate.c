/* stoker simulate: places a workload on a simulated cluster by several policies. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/cli_read.h"
#include "model/plan/plan.h"
#include "run/simulate/simulate.h"

static const struct {
    const char *name;
    stk_pack_policy policy;
} policies[] = {{"stoker", STK_PACK_STOKER},
                {"best-fit", STK_PACK_BEST_FIT},
                {"fragment", STK_PACK_FRAGMENT},
                {"random", STK_PACK_RANDOM}};
enum { N_POLICIES = sizeof policies / sizeof policies[0] };

typedef struct wish {
    bool policies[N_POLICIES];
    double load, mean_s;
    int64_t seed;
} wish;

static bool fits(const char *gpu_class, const stk_device *device)
{
    /* Only its profile names a slice: a job that asks for the model wants a whole device. */
    const stk_capacity_device d = {.vendor = device->vendor,
                                   .noun = device->noun,
                                   .model = device->profile != NULL ? NULL : device->model,
                                   .profile = device->profile,
                                   .memory_bytes = device->memory_bytes};
    return stk_plan_device_fits(gpu_class, NULL, &d);
}

static int read_real(const stk_cli *cli, const char *name, double min, double max, double *ret,
                     stk_err *err)
{
    const char *text = stk_cli_value(cli, name);
    char *end = NULL;
    if (text == NULL) {
        return 0;
    }
    double number = strtod(text, &end);
    if (end == text || *end != '\0' || !(number >= min && number <= max)) {
        return stk_err_set(err, STK_E_USAGE, "--%s '%s' is not a number from %g to %g", name, text,
                           min, max);
    }
    *ret = number;
    return 0;
}

static int read_policies(const stk_cli *cli, wish *w, stk_err *err)
{
    const char *names[N_POLICIES];
    const char *name;
    for (int i = 0; i < N_POLICIES; i++) {
        names[i] = policies[i].name;
        w->policies[i] = stk_cli_value(cli, "policy") == NULL;
    }
    for (int k = 0; (name = stk_cli_value_at(cli, "policy", k)) != NULL; k++) {
        int i = 0;
        while (i < N_POLICIES && strcmp(name, names[i]) != 0) {
            i++;
        }
        if (i == N_POLICIES) {
            const char *near = stk_units_nearest(name, names, N_POLICIES);
            stk_err_set(err, STK_E_USAGE, "unknown placement policy '%s'", name);
            if (near != NULL) {
                stk_err_hint(err, "did you mean '%s'?", near);
            } else {
                stk_err_hint(err, "the policies are stoker, best-fit, fragment and random");
            }
            return STK_E_USAGE;
        }
        w->policies[i] = true;
    }
    return 0;
}

static int read_wish(const stk_cli *cli, wish *w, stk_err *err)
{
    int64_t mean_ms = 0;
    const char *mean = stk_cli_value(cli, "mean");
    *w = (wish){.load = 1.3, .seed = 1};
    STK_TRY(read_policies(cli, w, err));
    STK_TRY(read_real(cli, "load", 0.01, 100, &w->load, err));
    STK_TRY(stk_cli_number(cli, "seed", 0, INT64_MAX, &w->seed, err));
    if (mean != NULL) {
        STK_TRY(stk_units_parse_duration(mean, &mean_ms, err));
        if (mean_ms == 0) {
            return stk_err_set(err, STK_E_USAGE,
                               "--mean '%s': the mean duration must be longer than 0", mean);
        }
    }
    w->mean_s = (double)mean_ms / 1000;
    if (stk_cli_value(cli, "cluster") == NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "a cluster is missing: --cluster takes a file or 16*8xH100");
    }
    if (stk_cli_value(cli, "workload") != NULL &&
        (stk_cli_value(cli, "load") != NULL || mean != NULL)) {
        return stk_err_set(
            err, STK_E_USAGE,
            "--load and --mean are for a made-up workload: leave them out with --workload");
    }
    return 0;
}

/* --- answers --- */

static void put_number(stk_buf *out, double value, int width, int digits)
{
    if (value < 0) {
        stk_buf_printf(out, "%*s", width, "-");
    } else {
        stk_buf_printf(out, "%*.*f", width, digits, value);
    }
}

static void put_result(const char *policy, const stk_sim_result *r, stk_buf *out)
{
    stk_buf_printf(out, "%-10s", policy);
    put_number(out, r->in_use_percent, 10, 2);
    put_number(out, r->fragment_percent, 12, 2);
    stk_buf_printf(out, "%10u%10u", r->placed, r->refused);
    put_number(out, r->mean_wait_s, 12, 1);
    put_number(out, r->p95_wait_s, 12, 1);
    put_number(out, r->makespan_s, 13, 1);
    put_number(out, r->decide_us, 12, 1);
    stk_buf_char(out, '\n');
}

/* A sum with 10 digits: 3.3, not 3.3000000000000003. */
static void put_sum(stk_buf *out, const char *key, double sum)
{
    stk_json_put_key(out, key);
    stk_buf_printf(out, "%.10g", sum);
}

static void put_result_json(const char *policy, const stk_sim_result *r, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "policy", policy);
    stk_json_put_whole(out, "placed", r->placed);
    stk_json_put_whole(out, "refused", r->refused);
    stk_json_put_real(out, "in_use_percent", r->in_use_percent);
    stk_json_put_real(out, "fragment_percent", r->fragment_percent);
    stk_json_put_real(out, "mean_wait_s", r->mean_wait_s);
    stk_json_put_real(out, "p95_wait_s", r->p95_wait_s);
    stk_json_put_real(out, "makespan_s", r->makespan_s);
    stk_json_put_real(out, "decide_us", r->decide_us);
    stk_json_close(out, '}');
}

static void put_cluster(const stk_cli *cli, const stk_cluster *c, const stk_workload *w,
                        const stk_sim_result *r, stk_buf *out)
{
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_whole(out, "nodes", c->n_nodes);
        put_sum(out, "devices", r->devices);
        stk_json_put_whole(out, "jobs", w->n);
        put_sum(out, "asked_devices", r->asked);
        stk_json_open(out, "policies", '[');
        return;
    }
    stk_buf_printf(out, "%u nodes with %.0f devices; %u jobs ask for %.1f devices (%.0f %%)\n\n",
                   c->n_nodes, r->devices, w->n, r->asked, 100 * r->asked / r->devices);
    stk_buf_text(out, "policy      in use %  fragments %    placed   refused  wait mean s   "
                      "wait p95 s   makespan s   decide us\n");
}

static int simulate_all(const stk_cli *cli, const wish *w, const stk_cluster *cluster,
                        const stk_workload *workload, stk_buf *out, stk_err *err)
{
    for (int i = 0; i < N_POLICIES; i++) {
        stk_sim_result r;
        if (!w->policies[i]) {
            continue;
        }
        STK_TRY(
            stk_simulate(cluster, workload, policies[i].policy, (uint64_t)w->seed, fits, &r, err));
        if (out->len == 0) {
            put_cluster(cli, cluster, workload, &r, out);
        }
        if (stk_cli_json(cli)) {
            put_result_json(policies[i].name, &r, out);
        } else {
            put_result(policies[i].name, &r, out);
        }
    }
    return stk_buf_text(out, stk_text_when(stk_cli_json(cli), "]}"));
}

static int run_simulate(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    wish w;
    __attribute__((cleanup(stk_cluster_done))) stk_cluster cluster = {0};
    stk_workload workload = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *text, *path = stk_cli_value(cli, "workload");
    STK_TRY(read_wish(cli, &w, err));
    for (int i = 0; (text = stk_cli_value_at(cli, "cluster", i)) != NULL; i++) {
        STK_TRY(stk_cluster_add(&cluster, text, arena, err));
    }
    if (path != NULL) {
        STK_TRY(stk_workload_load(path, arena, &workload, err));
    } else {
        STK_TRY(
            stk_workload_make(&cluster, w.load, w.mean_s, (uint64_t)w.seed, arena, &workload, err));
    }
    return simulate_all(cli, &w, &cluster, &workload, out, err);
}

static const stk_option options[] = {
    {"cluster", 'c', "FILE|SPEC", "nodes: a file, or as 16*8xH100; may be given several times",
     true},
    {"workload", 'w', "FILE", "jobs (CSV or JSON); without it a mixed workload is made up"},
    {"load", 0, "FACTOR", "made-up workload: devices asked for over devices (default 1.3)"},
    {"mean", 0, "TIME", "made-up workload: mean duration; without it jobs never end"},
    {"policy", 'p', "NAME",
     "stoker, best-fit, fragment, random; may be given several times (default all)", true},
    {"seed", 0, "N", "seed of everything that is random (default 1)"},
    {NULL}};

const stk_command stk_cmd_simulate = {
    .name = "simulate",
    .summary = "try placement policies on a cluster that isn't here",
    .usage = "[options]",
    .text =
        "Places the jobs of a workload on the devices of a cluster by each policy, and says how "
        "much of the cluster is in use. Jobs without a duration never end: jobs that don't fit are "
        "refused, and what stays free is too small for the jobs that come (fragments). Jobs with a "
        "duration wait in line, with backfill.\n\n"
        "A cluster file is CSV with the header nodes,machine,cpus,memory (16,8xH100,128,1TB) or a "
        "JSON list of objects with these keys. A workload file has some of "
        "arrival,duration,gpus,gpu_memory,gpu_class,cpus,memory,count; times are seconds, "
        "gpu_memory is a share of each device. Lines that begin with # are comments.\n\n"
        "Policies: stoker (what runs use here: gaps first, near neighbours, whole devices and "
        "machines kept whole), best-fit (the fullest node and device that still fit), fragment "
        "(least growth of fragmentation for this workload's own mix), random.",
    .options = options,
    .run = run_simulate};
