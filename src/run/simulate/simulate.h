/* simulate: how would a cluster of such machines serve such a workload, by which placement policy?
 * Pure but for reading the two files: same input and seed, same answer.
 *
 * A cluster is groups of equal nodes; a workload is jobs with an arrival. Jobs that say how long
 * they take come and go, and wait in a queue (first come, first served, with backfill; a job that
 * was passed over STK_SIMULATE_PATIENCE times is overtaken no more). Jobs without a duration stay
 * for ever, and one that doesn't fit is refused: so a cluster is filled, and what stays free is
 * fragmentation.
 */
#ifndef STK_SIMULATE_H
#define STK_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "host/accel/accel.h"
#include "model/pack/pack.h"

enum { STK_SIMULATE_PATIENCE = 64, STK_SIMULATE_NODES = 100000, STK_SIMULATE_JOBS = 10000000 };

typedef struct stk_machine {
    const char *spec; /* "8xH100": a simulated machine (accel.h) */
    uint32_t n_nodes;
    int64_t cpu_milli;    /* of one node; -1: not rationed */
    int64_t memory_bytes; /* likewise */
    stk_accel *accel;
} stk_machine;

typedef struct stk_cluster {
    stk_machine *machines;
    uint32_t n_machines;
    uint32_t n_nodes;
    double n_devices; /* whole ones and slices as parts of theirs are both 1 */
} stk_cluster;

typedef struct stk_sim_job {
    double arrival_s;
    double duration_s; /* 0: for ever */
    uint32_t n_devices;
    int64_t share_bytes;   /* of each device; 0: whole devices */
    const char *gpu_class; /* or NULL */
    int64_t cpu_milli;
    int64_t memory_bytes;
} stk_sim_job;

typedef struct stk_workload {
    stk_sim_job *jobs; /* in order of arrival */
    uint32_t n;
} stk_workload;

/* `text`: a file (CSV `nodes,machine,cpus,memory`, or JSON: a list of objects with these keys), or
 * "16*8xH100". May be called again to add to the cluster. */
int stk_cluster_add(stk_cluster *cluster, const char *text, stk_arena *arena, stk_err *err);
void stk_cluster_done(stk_cluster *cluster);

/* A file (CSV with a header of some of
 * `arrival,duration,gpus,gpu_memory,gpu_class,cpus,memory,count`, or JSON likewise), in seconds. */
int stk_workload_load(const char *path, stk_arena *arena, stk_workload *ret, stk_err *err);
/* Mixed whole and fractional requests (the mix is in simulate_read.c) until they ask for `load` ×
 * the cluster's devices, in random order. mean_s 0: jobs stay for ever; else durations are
 * exponential with that mean and arrivals are such that `load` × the devices would be in use. */
int stk_workload_make(const stk_cluster *cluster, double load, double mean_s, uint64_t seed,
                      stk_arena *arena, stk_workload *ret, stk_err *err);

typedef struct stk_sim_result {
    double devices;        /* of the cluster */
    double asked;          /* devices (and parts) that the jobs asked for in all */
    double in_use_percent; /* devices and parts given out: at the end when jobs stay, else the mean
                              over the time until the last arrival */
    double fragment_percent; /* free at the end, but of no use to the jobs of this workload, by
                                weight */
    uint32_t placed, refused;
    double mean_wait_s, p95_wait_s, makespan_s; /* -1 where jobs stay */
    double decide_us;                           /* mean time of one placement decision */
} stk_sim_result;

/* Does a device suit a job's class? */
typedef bool (*stk_sim_fits)(const char *gpu_class, const stk_device *device);
int stk_simulate(const stk_cluster *cluster, const stk_workload *workload, stk_pack_policy policy,
                 uint64_t seed, stk_sim_fits fits, stk_sim_result *ret, stk_err *err);

#endif
