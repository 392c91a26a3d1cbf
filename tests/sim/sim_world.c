/* What the seed decides: machine, graph, fates. */
#include <stdio.h>
#include <string.h>

#include "sim.h"

uint64_t sim_hash(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = seed * 0x9E3779B97F4A7C15u + a * 0xD1B54A32D192ED03u + b * 0x8CB92BA72F3D8DD7u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

uint32_t sim_below(sim *s, uint32_t n)
{
    return (uint32_t)(sim_hash(s->seed, ++s->random, 1) % n);
}

bool sim_one_in(sim *s, uint32_t n)
{
    return n > 0 && sim_below(s, n) == 0;
}

static uint32_t pick(sim *s, const uint32_t *values, uint32_t n)
{
    return values[sim_below(s, n)];
}
#define PICK(s, ...)                                                                               \
    pick(s, (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

void sim_draw_task(sim *s, uint32_t task)
{
    sim_task *t = &s->tasks[task];
    *t = (sim_task){.state = STK_TASK_WAITING};
    /* A few sizes, so that kinds have several members; sometimes the whole machine. */
    uint32_t n_cpus = (uint32_t)(s->config.cpu_milli / 1000);
    t->ask.cpu_milli = 1000 * (int64_t)(sim_one_in(s, 8) ? n_cpus : sim_below(s, (n_cpus + 3) / 2));
    t->ask.memory_bytes = sim_one_in(s, 3) ? s->config.memory_bytes / PICK(s, 1, 2, 4) : 0;
    if (s->config.host.n > 0 && sim_one_in(s, 3)) {
        t->devices.n = sim_one_in(s, 4) ? s->config.host.n : 1;
        memset(&t->devices.wanted, 0xff, sizeof t->devices.wanted);
        t->ask.asks = &t->devices;
        t->ask.n_asks = 1;
    }
    if (s->config.max_away[0] > 0 && sim_one_in(s, 3)) {
        t->ask.place = 1 + sim_below(s, 2); /* the second has no limit */
        t->ask.cpu_milli = 0;
        t->ask.memory_bytes *= 5; /* more than there is here */
        t->ask.asks = NULL;
        t->ask.n_asks = 0;
        t->devices.n = 0;
    }
    t->ask.max_retries = PICK(s, 0, 0, 1, 3);
    t->ask.delay_ms = PICK(s, 0, 1, 20, 500);
    t->ask.backoff = PICK(s, 1, 1, 2);
    t->ask.jitter = (double)PICK(s, 0, 0, 25, 100) / 100;
    t->ask.lookup = sim_one_in(s, 2);
    t->ask.fallback = sim_one_in(s, 4);
    if (task == 0) {
        return;
    }
    static const uint32_t reaches[] = {1, 3, 10, SIM_TASKS_MAX};
    uint32_t reach = reaches[sim_hash(s->seed, 4, 4) % 4];
    uint32_t wanted = sim_hash(s->seed, 5, 5) % 4 == 0 ? 0 : sim_below(s, 4);
    wanted = sim_one_in(s, 30) ? SIM_NEEDS_MAX : wanted;
    for (; t->n_needs < wanted; t->n_needs++) {
        t->needs[t->n_needs] = task - 1 - sim_below(s, reach < task ? reach : task);
    }
}

uint32_t sim_n_devices(const sim_task *task)
{
    return task->ask.n_asks > 0 ? task->devices.n : 0;
}

void sim_draw_world(sim *s, uint32_t n_tasks)
{
    static const stk_pack_device devices[8]; /* memory unknown: whole ones only */
    if (n_tasks == 0) {
        n_tasks = sim_one_in(s, 40) ? 300 : 1 + sim_below(s, 30);
    }
    s->config = (stk_sched_config){.cpu_milli = 1000 * (int64_t)PICK(s, 1, 2, 4, 9),
                                   .memory_bytes = 1000,
                                   .host = {devices, PICK(s, 0, 1, 2, 8), NULL},
                                   .max_workers = PICK(s, 0, 1, 3, 12),
                                   .max_away = {PICK(s, 0, 1, 3)},
                                   .mode = (stk_mode)sim_below(s, 3),
                                   .seed = s->seed};
    s->kill_one_in = PICK(s, 0, 0, 150, 25);
    s->cancel_one_in = PICK(s, 0, 0, 0, 60);
    s->fail_percent = PICK(s, 0, 5, 30);
    s->cached_percent = PICK(s, 0, 20, 90);
    s->busy_percent = PICK(s, 0, 0, 40);
    s->n_grow = PICK(s, 0, 0, 1, 4) * n_tasks / 4;
    for (uint32_t i = 0; i < n_tasks; i++) {
        s->n_tasks++;
        sim_draw_task(s, i);
    }
}

bool sim_is_cached(const sim *s, uint32_t task)
{
    return sim_hash(s->seed, task, 77) % 100 < s->cached_percent;
}

stk_fake_fate sim_fate(void *arg, const stk_job *job)
{
    const sim *s = arg;
    uint64_t h = sim_hash(s->seed, job->id, 1000 + job->attempt);
    stk_fake_fate fate = {.after_ms = (int64_t)(h % 64), .outcome = {.ok = true}};
    if ((h >> 8) % 100 < s->fail_percent) {
        static const stk_failure failures[] = {STK_FAIL_EXIT, STK_FAIL_LOST, STK_FAIL_HOST_OOM,
                                               STK_FAIL_RESOURCES, STK_FAIL_TIMEOUT};
        fate.outcome.ok = false;
        fate.outcome.failure = failures[(h >> 20) % 5];
        fate.start_error = (h >> 32) % 6 == 0 ? STK_E_SYS : 0;
    }
    return fate;
}
