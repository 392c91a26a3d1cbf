/* Clusters and workloads: read from files or a text such as 16*8xH100, or generated. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/simulate/simulate_private.h"

/* --- the cluster --- */

static int add_machine(stk_cluster *cluster, const stk_machine *machine, stk_arena *arena,
                       stk_err *err)
{
    char provider[512];
    stk_machine *machines =
        stk_arena_array(arena, (size_t)cluster->n_machines + 1, sizeof *machines);
    STK_TRY(stk_err_if_null(machines, err));
    if ((uint64_t)cluster->n_nodes + machine->n_nodes > STK_SIMULATE_NODES) {
        return stk_err_set(err, STK_E_LIMIT, "a cluster of more than %d nodes", STK_SIMULATE_NODES);
    }
    if (cluster->n_machines > 0) {
        memcpy(machines, cluster->machines, cluster->n_machines * sizeof *machines);
    }
    stk_machine *m = &machines[cluster->n_machines];
    *m = *machine;
    (void)snprintf(provider, sizeof provider, "sim:%s", m->spec);
    STK_TRY(stk_accel_open(provider, &m->accel, err));
    cluster->machines = machines;
    cluster->n_machines++;
    cluster->n_nodes += m->n_nodes;
    for (uint32_t i = 0; i < stk_accel_n_devices(m->accel); i++) {
        cluster->n_devices += stk_accel_device(m->accel, i)->usable ? m->n_nodes : 0;
    }
    return 0;
}

static int read_machine(stk_cluster *cluster, const stk_table *t, uint32_t row, stk_arena *arena,
                        stk_err *err)
{
    double n_nodes = 1;
    double cpus = -1;
    stk_machine m = {.spec = stk_table_cell(t, row, 1), .cpu_milli = -1, .memory_bytes = -1};
    STK_TRY(stk_table_number(t, row, 0, 1, STK_SIMULATE_NODES, &n_nodes, err));
    STK_TRY(stk_table_number(t, row, 2, 0.001, 1e6, &cpus, err));
    STK_TRY(stk_table_memory(t, row, 3, &m.memory_bytes, err));
    m.n_nodes = (uint32_t)n_nodes;
    if (cpus >= 0) {
        m.cpu_milli = (int64_t)(cpus * 1000);
    }
    if (m.spec == NULL) {
        return stk_err_set(err, STK_E_USAGE, "the row names no machine, such as 8xH100");
    }
    return add_machine(cluster, &m, arena, err);
}

static int load_cluster(stk_cluster *cluster, const char *path, stk_arena *arena, stk_err *err)
{
    static const char *const columns[] = {"nodes", "machine", "cpus", "memory", NULL};
    stk_table table;
    STK_TRY(stk_table_load(path, columns, arena, &table, err));
    for (uint32_t i = 0; i < table.n_rows; i++) {
        int rc = read_machine(cluster, &table, i, arena, err);
        if (rc < 0 && err != NULL && err->file[0] == '\0') {
            stk_err_at(err, path, table.lines[i]);
        }
        STK_TRY(rc);
    }
    return 0;
}

int stk_cluster_add(stk_cluster *cluster, const char *text, stk_arena *arena, stk_err *err)
{
    if (access(text, F_OK) == 0) {
        return load_cluster(cluster, text, arena, err);
    }
    size_t n_digits = strspn(text, "0123456789");
    unsigned long n = 1;
    const char *spec = text;
    if (n_digits > 0 && text[n_digits] == '*') {
        n = strtoul(text, NULL, 10);
        spec = text + n_digits + 1;
    }
    if (n < 1 || n > STK_SIMULATE_NODES) {
        return stk_err_set(err, STK_E_LIMIT, "cluster '%s': nodes must be 1 to %d", text,
                           STK_SIMULATE_NODES);
    }
    stk_machine m = {.spec = stk_arena_dup(arena, spec),
                     .n_nodes = (uint32_t)n,
                     .cpu_milli = -1,
                     .memory_bytes = -1};
    STK_TRY(stk_err_if_null(m.spec, err));
    int rc = add_machine(cluster, &m, arena, err);
    if (rc < 0 && strpbrk(text, "/.") != NULL) {
        stk_err_hint(err, "there is no file '%s'; name a file, or write the cluster like 16*8xH100",
                     text);
    }
    return rc;
}

void stk_cluster_done(stk_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n_machines; i++) {
        stk_accel_close(cluster->machines[i].accel);
    }
    *cluster = (stk_cluster){0};
}

/* --- workloads from files --- */

enum { ARRIVAL, DURATION, GPUS, GPU_MEMORY, GPU_CLASS, CPUS, MEMORY, COUNT };

static int by_arrival(const void *a, const void *b)
{
    const stk_sim_job *x = a;
    const stk_sim_job *y = b;
    return (x->arrival_s > y->arrival_s) - (x->arrival_s < y->arrival_s);
}

static int read_job(const stk_table *t, uint32_t row, stk_sim_job *ret, double *ret_count,
                    stk_err *err)
{
    double gpus = stk_table_cell(t, row, GPU_MEMORY) != NULL ? 1 : 0;
    double cpus = 0;
    *ret = (stk_sim_job){.gpu_class = stk_table_cell(t, row, GPU_CLASS)};
    *ret_count = 1;
    STK_TRY(stk_table_number(t, row, ARRIVAL, 0, 1e12, &ret->arrival_s, err));
    STK_TRY(stk_table_number(t, row, DURATION, 0, 1e12, &ret->duration_s, err));
    STK_TRY(stk_table_number(t, row, GPUS, 0, STK_LIMIT_DEVICES, &gpus, err));
    STK_TRY(stk_table_number(t, row, CPUS, 0, 1e6, &cpus, err));
    STK_TRY(stk_table_memory(t, row, GPU_MEMORY, &ret->share_bytes, err));
    STK_TRY(stk_table_memory(t, row, MEMORY, &ret->memory_bytes, err));
    STK_TRY(stk_table_number(t, row, COUNT, 1, STK_SIMULATE_JOBS, ret_count, err));
    if (gpus != floor(gpus)) {
        stk_err_set(err, STK_E_USAGE,
                    "gpus %g is not a whole number; for a part of a GPU set gpu_memory", gpus);
        stk_err_at(err, t->path, t->lines[row]);
        return STK_E_USAGE;
    }
    ret->n_devices = (uint32_t)gpus;
    ret->cpu_milli = (int64_t)(cpus * 1000);
    return 0;
}

static int make_jobs(stk_workload *w, uint32_t n, uint32_t *cap, stk_arena *arena, stk_err *err)
{
    if ((uint64_t)w->n + n > STK_SIMULATE_JOBS) {
        return stk_err_set(err, STK_E_LIMIT, "a workload of more than %d jobs", STK_SIMULATE_JOBS);
    }
    if (w->n + n > *cap) {
        uint32_t bigger = (w->n + n) * 2;
        stk_sim_job *jobs = stk_arena_array(arena, bigger, sizeof *jobs);
        STK_TRY(stk_err_if_null(jobs, err));
        if (w->n > 0) {
            memcpy(jobs, w->jobs, w->n * sizeof *jobs);
        }
        w->jobs = jobs;
        *cap = bigger;
    }
    return 0;
}

static int refuse_workload(const char *path, const char *why, stk_err *err)
{
    stk_err_set(err, STK_E_USAGE, "%s", why);
    stk_err_at(err, path, 0);
    return STK_E_USAGE;
}

int stk_workload_load(const char *path, stk_arena *arena, stk_workload *ret, stk_err *err)
{
    static const char *const columns[] = {"arrival", "duration", "gpus",  "gpu_memory", "gpu_class",
                                          "cpus",    "memory",   "count", NULL};
    stk_table table;
    uint32_t cap = 0;
    *ret = (stk_workload){0};
    STK_TRY(stk_table_load(path, columns, arena, &table, err));
    for (uint32_t i = 0; i < table.n_rows; i++) {
        stk_sim_job job;
        double count;
        STK_TRY(read_job(&table, i, &job, &count, err));
        STK_TRY(make_jobs(ret, (uint32_t)count, &cap, arena, err));
        for (uint32_t k = 0; k < (uint32_t)count; k++) {
            ret->jobs[ret->n++] = job;
        }
    }
    if (ret->n == 0) {
        return refuse_workload(path, "the workload has no jobs", err);
    }
    for (uint32_t i = 1; i < ret->n; i++) {
        if ((ret->jobs[i].duration_s > 0) != (ret->jobs[0].duration_s > 0)) {
            return refuse_workload(path, "some jobs have a duration and some have none", err);
        }
    }
    qsort(ret->jobs, ret->n, sizeof *ret->jobs, by_arrival);
    return 0;
}

/* --- a generated workload --- */

uint64_t stk_sim_random(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double stk_sim_uniform(uint64_t *state)
{
    return (double)((stk_sim_random(state) >> 11) + 1) / 9007199254740992.0;
}

/* The mix of requests for whole GPUs and parts: weight, devices, part. Modelled on the public
 * traces of Alibaba's clusters: most jobs ask for at most one GPU, a few for a whole machine. */
static const struct {
    double weight;
    uint32_t n_devices;
    double part; /* of each device's memory; 0: whole */
} mix[] = {{12, 1, 0.1}, {10, 1, 0.25}, {8, 1, 0.4}, {10, 1, 0.5}, {6, 1, 0.75},
           {44, 1, 0},   {4, 2, 0},     {3, 4, 0},   {3, 8, 0}};
enum { N_MIX = sizeof mix / sizeof mix[0] };

static double devices_of(uint32_t i_mix)
{
    return mix[i_mix].part > 0 ? mix[i_mix].part : mix[i_mix].n_devices;
}

static int64_t smallest_memory(const stk_cluster *cluster, uint32_t *ret_most_devices)
{
    int64_t least = -1;
    *ret_most_devices = 0;
    for (uint32_t k = 0; k < cluster->n_machines; k++) {
        uint32_t n_usable = 0;
        for (uint32_t i = 0; i < stk_accel_n_devices(cluster->machines[k].accel); i++) {
            const stk_device *d = stk_accel_device(cluster->machines[k].accel, i);
            n_usable += d->usable;
            if (d->usable && d->memory_bytes > 0 && (least < 0 || d->memory_bytes < least)) {
                least = d->memory_bytes;
            }
        }
        if (n_usable > *ret_most_devices) {
            *ret_most_devices = n_usable;
        }
    }
    return least;
}

int stk_workload_make(const stk_cluster *cluster, double load, double mean_s, uint64_t seed,
                      stk_arena *arena, stk_workload *ret, stk_err *err)
{
    uint32_t most = 0;
    uint32_t cap = 0;
    int64_t memory = smallest_memory(cluster, &most);
    double sum = 0;
    double asked = 0;
    double now = 0;
    double mean_ask = 0;
    *ret = (stk_workload){0};
    if (most == 0) {
        return stk_err_set(err, STK_E_USAGE, "the cluster has no usable device");
    }
    uint32_t able[N_MIX]; /* the requests of the mix that this cluster can serve */
    uint32_t n_able = 0;
    for (uint32_t i = 0; i < N_MIX; i++) {
        if (mix[i].n_devices <= most && (mix[i].part == 0 || memory > 0)) {
            able[n_able++] = i;
            sum += mix[i].weight;
            mean_ask += mix[i].weight * devices_of(i);
        }
    }
    mean_ask /= sum;
    /* Jobs that end keep up the load for twenty mean durations. */
    double rate = mean_s > 0 ? load * cluster->n_devices / mean_ask / mean_s : 1;
    double until = mean_s > 0 ? 20 * load * cluster->n_devices : load * cluster->n_devices;
    while (asked < until) {
        double at = stk_sim_uniform(&seed) * sum;
        uint32_t k = 0;
        while (k + 1 < n_able && (at -= mix[able[k]].weight) > 0) {
            k++;
        }
        uint32_t i = able[k];
        STK_TRY(make_jobs(ret, 1, &cap, arena, err));
        now += -log(stk_sim_uniform(&seed)) / rate;
        ret->jobs[ret->n++] =
            (stk_sim_job){.arrival_s = now,
                          .duration_s = mean_s > 0 ? -mean_s * log(stk_sim_uniform(&seed)) : 0,
                          .n_devices = mix[i].n_devices,
                          .share_bytes = (int64_t)(mix[i].part * (double)memory)};
        asked += devices_of(i);
    }
    return 0;
}
