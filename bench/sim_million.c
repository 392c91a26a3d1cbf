/* sim_million: one run of many tasks, scheduled but not executed.
 *
 *     sim_million [N_TASKS]        default 1,000,000
 *
 * A machine with 64 CPUs, 256 GB and 8 GPUs; each task needs up to three of the 2,000 before it,
 * asks the cache (and misses), makes one of 14 requests, lasts up to a simulated second, and one
 * attempt in a hundred fails and is retried with a backoff. Prints one line of JSON: seconds of
 * wall-clock time for adding the graph and for the whole schedule, and the process's peak memory.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "model/sched/sched.h"

enum { N_ACTIONS = 256, N_WORKERS = 128 };

typedef struct job {
    int64_t end_ms;
    uint32_t task;
} job;

typedef struct world {
    stk_sched *sched;
    int64_t now_ms;
    job running[N_WORKERS]; /* a heap by end_ms */
    uint32_t n_running;
    uint64_t random;
    uint64_t n_attempts, n_events;
    int64_t cpu_ms; /* CPU time × 1000 that running tasks held */
} world;

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint32_t below(world *w, uint32_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->random >> 33) % n);
}

static void check(int r, const stk_err *err)
{
    if (r < 0) {
        (void)fprintf(stderr, "sim_million: %s\n", err->text);
        exit(3);
    }
}

static void fold(world *w, stk_sched_event event)
{
    stk_err err;
    w->n_events++;
    check(stk_sched_fold(w->sched, &event, &err), &err);
}

static void add_graph(world *w, uint32_t n_tasks)
{
    static const stk_pack_ask one = {.n = 1, .wanted = {{0xff}}};
    for (uint32_t i = 0; i < n_tasks; i++) {
        stk_sched_task task = {.cpu_milli = 1000 * (1 + (int64_t)below(w, 4)),
                               .memory_bytes = (int64_t)(1 + below(w, 3)) << 30,
                               .asks = &one,
                               .n_asks = below(w, 50) == 0,
                               .max_retries = 5,
                               .delay_ms = 100,
                               .backoff = 2,
                               .jitter = 0.1,
                               .lookup = true};
        uint32_t needs[3], n_needs = i == 0 ? 0 : below(w, 4);
        for (uint32_t k = 0; k < n_needs; k++) {
            needs[k] = i - 1 - below(w, i < 2000 ? i : 2000);
        }
        if (task.n_asks > 0) {
            task.cpu_milli = 8000;
            task.memory_bytes = (int64_t)(1 + below(w, 2)) << 34;
        }
        stk_err err;
        check(stk_sched_add(w->sched, &task, needs, n_needs, NULL, &err), &err);
    }
}

static void job_put(world *w, uint32_t task, int64_t end_ms)
{
    uint32_t i = w->n_running++;
    for (; i > 0 && w->running[(i - 1) / 2].end_ms > end_ms; i = (i - 1) / 2) {
        w->running[i] = w->running[(i - 1) / 2];
    }
    w->running[i] = (job){end_ms, task};
}

static job job_take(world *w)
{
    job first = w->running[0], moved = w->running[--w->n_running];
    uint32_t i = 0, child;
    while ((child = 2 * i + 1) < w->n_running) {
        child +=
            child + 1 < w->n_running && w->running[child + 1].end_ms < w->running[child].end_ms;
        if (w->running[child].end_ms >= moved.end_ms) {
            break;
        }
        w->running[i] = w->running[child];
        i = child;
    }
    w->running[i] = moved;
    return first;
}

static void end_one(world *w)
{
    job ended = job_take(w);
    w->now_ms = ended.end_ms;
    if (below(w, 100) > 0) {
        fold(w, (stk_sched_event){.kind = STK_EV_TASK_SUCCEEDED, .task = ended.task});
        return;
    }
    stk_sched_retrying retrying;
    bool is_again = stk_sched_retry(w->sched, ended.task, STK_FAIL_EXIT, false, &retrying);
    fold(w, (stk_sched_event){.kind = STK_EV_TASK_FAILED,
                              .task = ended.task,
                              .failure = STK_FAIL_EXIT,
                              .is_final = !is_again});
    if (is_again) {
        fold(w, (stk_sched_event){.kind = STK_EV_TASK_RETRYING,
                                  .task = ended.task,
                                  .at_ms = w->now_ms + retrying.delay_ms});
    }
}

/* False when the run has ended. */
static bool act(world *w, const stk_action *a)
{
    switch (a->kind) {
    case STK_ACT_LOOKUP:
        fold(w, (stk_sched_event){.kind = STK_SE_MISSED, .task = a->task});
        break;
    case STK_ACT_START:
        w->n_attempts++;
        fold(w, (stk_sched_event){.kind = STK_EV_TASK_STARTED,
                                  .task = a->task,
                                  .attempt = a->attempt,
                                  .i_ask = a->i_ask,
                                  .devices = a->devices});
        job_put(w, a->task, w->now_ms + 1 + below(w, 1000));
        break;
    case STK_ACT_SKIP:
        fold(w, (stk_sched_event){.kind = STK_EV_TASK_SKIPPED, .task = a->task});
        break;
    case STK_ACT_END:
        return false;
    default:
        (void)fprintf(stderr, "sim_million: unexpected action %d\n", (int)a->kind);
        exit(3);
    }
    return true;
}

static void schedule(world *w)
{
    stk_action actions[N_ACTIONS];
    int64_t held = 0;
    for (;;) {
        uint32_t n;
        int64_t wake_ms, before_ms = w->now_ms;
        (void)stk_sched_next(w->sched, w->now_ms, actions, N_ACTIONS, &n, &wake_ms);
        for (uint32_t i = 0; i < n; i++) {
            if (!act(w, &actions[i])) {
                return;
            }
        }
        if (n > 0) {
            continue;
        }
        stk_sched_counts counts;
        stk_sched_count(w->sched, &counts);
        held = counts.cpu_used;
        if (w->n_running > 0 && (wake_ms < 0 || w->running[0].end_ms <= wake_ms)) {
            end_one(w);
        } else {
            w->now_ms = wake_ms;
        }
        w->cpu_ms += held * (w->now_ms - before_ms);
    }
}

int main(int argc, char **argv)
{
    uint32_t n_tasks = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1000000;
    stk_pack_device devices[8];
    for (int i = 0; i < 8; i++) {
        devices[i] = (stk_pack_device){.total_mib = 81920, .numa = i / 4};
    }
    stk_sched_config config = {.cpu_milli = 64000,
                               .memory_bytes = (int64_t)256 << 30,
                               .host = {devices, 8, NULL},
                               .max_workers = N_WORKERS,
                               .mode = STK_MODE_CONTINUE,
                               .seed = 1};
    world w = {.random = 1};
    double start = seconds();
    w.sched = stk_sched_new(&config);
    if (w.sched == NULL) {
        return 3;
    }
    add_graph(&w, n_tasks);
    double added = seconds();
    schedule(&w);
    double done = seconds();

    stk_sched_counts counts;
    struct rusage usage;
    stk_sched_count(w.sched, &counts);
    (void)getrusage(RUSAGE_SELF, &usage);
    printf("{\"tasks\": %u, \"attempts\": %" PRIu64 ", \"events\": %" PRIu64
           ", \"succeeded\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"skipped\": %" PRIu64
           ", \"add_s\": %.3f, \"schedule_s\": %.3f, \"seconds\": %.3f, \"mb\": %.1f"
           ", \"simulated_s\": %.0f, \"cpu_use\": %.3f}\n",
           n_tasks, w.n_attempts, w.n_events, counts.n[STK_TASK_SUCCEEDED],
           counts.n[STK_TASK_FAILED], counts.n[STK_TASK_SKIPPED], added - start, done - added,
           done - start, (double)usage.ru_maxrss / 1000, (double)w.now_ms / 1e3,
           (double)w.cpu_ms / (double)config.cpu_milli / (double)(w.now_ms > 0 ? w.now_ms : 1));
    stk_sched_free(w.sched);
    return 0;
}
