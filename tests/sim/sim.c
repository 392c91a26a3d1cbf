/* sim: simulated runs, each from one seed.
 *
 *     sim [--seeds A..B] [--seed N --runs K] [--tasks N] [-v]
 *
 * Without seeds: as many as STOKER_SIM_SEEDS says, from 1, or 2000. Exit status 1 if a rule was
 * broken; the report names the seed and the command that repeats it. */
#include "sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    uint64_t first, n_runs;
    uint32_t n_tasks;
    bool is_verbose;
} options;

typedef struct totals {
    uint64_t n_failed, n_events, n_tasks, n_kills;
} totals;

static int usage(void)
{
    (void)fprintf(stderr, "usage: sim [--seeds A..B | --seed N] [--runs K] [--tasks N<%d] [-v]\n",
                  SIM_TASKS_MAX);
    return 2;
}

static int parse(int argc, char **argv, options *ret)
{
    const char *seeds = getenv("STOKER_SIM_SEEDS");
    *ret = (options){.first = 1, .n_runs = seeds != NULL ? strtoull(seeds, NULL, 10) : 2000};
    for (int i = 1; i < argc; i++) {
        uint64_t a = 0, b = 0;
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "-v") == 0) {
            ret->is_verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--seeds") == 0 &&
            sscanf(value, "%" SCNu64 "..%" SCNu64, &a, &b) == 2 && a <= b) {
            ret->first = a;
            ret->n_runs = b - a + 1;
        } else if (sscanf(value, "%" SCNu64, &a) != 1) {
            return -1;
        } else if (strcmp(argv[i], "--seed") == 0) {
            ret->first = a;
        } else if (strcmp(argv[i], "--runs") == 0) {
            ret->n_runs = a;
        } else if (strcmp(argv[i], "--tasks") == 0 && a > 0 && a < SIM_TASKS_MAX) {
            ret->n_tasks = (uint32_t)a;
        } else {
            return -1;
        }
        i++;
    }
    return ret->n_runs > 0 ? 0 : -1;
}

static void run_one(const options *o, uint64_t seed, totals *total)
{
    static sim s;
    sim_task *tasks = calloc(SIM_TASKS_MAX, sizeof *tasks);
    if (tasks == NULL) {
        abort();
    }
    s = (sim){.seed = seed, .is_verbose = o->is_verbose, .tasks = tasks};
    sim_draw_world(&s, o->n_tasks);
    sim_run(&s);
    if (s.is_broken) {
        char size[32] = "";
        if (o->n_tasks > 0) {
            (void)snprintf(size, sizeof size, " --tasks %u", o->n_tasks);
        }
        total->n_failed++;
        printf("seed %" PRIu64 ": %s\n  repeat: build/tests/sim/sim --seed %" PRIu64
               " --runs 1%s -v\n",
               seed, s.why, seed, size);
    }
    total->n_events += s.n_log;
    total->n_tasks += s.n_tasks;
    total->n_kills += s.n_kills;
    free(s.log);
    free(tasks);
}

int main(int argc, char **argv)
{
    options o;
    totals total = {0};
    if (parse(argc, argv, &o) < 0) {
        return usage();
    }
    for (uint64_t i = 0; i < o.n_runs && total.n_failed < 20; i++) {
        run_one(&o, o.first + i, &total);
    }
    printf("%" PRIu64 " runs: %" PRIu64 " tasks, %" PRIu64 " events, %" PRIu64 " kills\n", o.n_runs,
           total.n_tasks, total.n_events, total.n_kills);
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", o.n_runs - total.n_failed, total.n_failed);
    return total.n_failed > 0 ? 1 : 0;
}
