/* simulate: how well does a placement policy serve a workload on a cluster? Pure except that it
 * reads the two files: the same input and seed give the same answer.
 *
 * A cluster consists of groups of equal nodes; a workload consists of jobs with an arrival time.
 * Jobs with a duration wait in a queue until they are placed (first come, first served, with
 * backfill, but no job is passed over more than STK_SIMULATE_PATIENCE times) and end. Jobs without
 * a duration never end, and a job that doesn't fit is refused: they fill the cluster, and what
 * stays free is fragmentation. */
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
    int64_t cpu_milli;    /* of one node; -1: no limit */
    int64_t memory_bytes; /* of one node; -1: no limit */
    stk_accel *accel;
} stk_machine;

typedef struct stk_cluster {
    stk_machine *machines;
    uint32_t n_machines;
    uint32_t n_nodes;
    double n_devices; /* a whole device counts 1, and so does a slice */
} stk_cluster;

typedef struct stk_sim_job {
    double arrival_s;
    double duration_s; /* 0: the job never ends */
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

/* Adds machines to the cluster. `text`: a file (CSV `nodes,machine,cpus,memory`, or JSON: a list of
 * objects with these keys), or "16*8xH100". */
int stk_cluster_add(stk_cluster *cluster, const char *text, stk_arena *arena, stk_err *err);
void stk_cluster_done(stk_cluster *cluster);

/* Reads a file: CSV with some of the columns
 * `arrival,duration,gpus,gpu_memory,gpu_class,cpus,memory,count`, or JSON with these keys. Times in
 * seconds. */
int stk_workload_load(const char *path, stk_arena *arena, stk_workload *ret, stk_err *err);
/* Makes jobs in random order until they ask for `load` × the cluster's devices; simulate_read.c has
 * the mix of whole and fractional requests. mean_s 0: jobs never end; else durations are
 * exponential with that mean, and arrivals such that `load` × the devices would be in use. */
int stk_workload_make(const stk_cluster *cluster, double load, double mean_s, uint64_t seed,
                      stk_arena *arena, stk_workload *ret, stk_err *err);

typedef struct stk_sim_result {
    double devices; /* of the cluster */
    double asked;   /* devices and parts of devices in all requests */
    /* granted devices and parts: at the end if jobs never end, else the mean to the last arrival */
    double in_use_percent;
    /* free at the end but useless to this workload's jobs, weighted by their frequency */
    double fragment_percent;
    uint32_t placed, refused;
    double mean_wait_s, p95_wait_s, makespan_s; /* -1 if jobs never end */
    double decide_us;                           /* mean time of one placement decision */
} stk_sim_result;

/* Whether a device suits a job's class. */
typedef bool (*stk_sim_fits)(const char *gpu_class, const stk_device *device);
int stk_simulate(const stk_cluster *cluster, const stk_workload *workload, stk_pack_policy policy,
                 uint64_t seed, stk_sim_fits fits, stk_sim_result *ret, stk_err *err);

#endif
