/* Which pilots there are, and which attempts they get. */
#include "away/slurm/slurm_pilot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote_lines.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/file.h"

enum {
    LOOK_MS = 50,      /* between two looks at a pilot's news */
    LEAD_MS = 400,     /* a pilot has as many attempts as it runs in that time, … */
    SHORT_MS = 5000,   /* … if they are shorter than this, … */
    MOST_GIVEN = 4096, /* … but no more than these */
    TRY_MS = 3000,     /* nothing is known of its attempts' times before */
    GROW_MS = 30000,   /* another pilot is worth its start if work for so long waits */
    STAY_MS = 60000,   /* … for so long at a time, lest they stay for a dead engine */
    SPARE_MS = 5000    /* a pilot that waits is cancelled if nobody needed it for so long */
};

/* --- giving --- */

static bool takes(const slurm_pilot *p, const slurm_job *job)
{
    return !p->is_over && !p->only_reads && p->closed_at < 0 &&
           strcmp(p->form, job->pilot_form) == 0 && job->load.cpu_milli <= p->cpu_milli &&
           (int64_t)job->load.gpus * 1000 <= p->gpu_milli &&
           (p->memory_bytes > 0 ? job->load.memory_bytes <= p->memory_bytes
                                : job->load.memory_bytes == 0);
}

/* Of this pilot's GPUs: how large they are is known once it has them. */
static int64_t gpu_milli_of(const slurm_pilot *p, const slurm_job *job)
{
    int64_t each = 1000;
    if (job->load.gpu_bytes > 0 && p->gpu_bytes > 0) {
        each = MAX(job->load.gpu_bytes * 1000 / p->gpu_bytes, 1);
    }
    return job->load.gpus * MIN(each, 1000);
}

/* How many times its room it gets: a short task is over before news of it is read. */
static int64_t depth_of(const slurm_pilot *p)
{
    if (p->n_ended == 0 || p->ended_ms / p->n_ended >= SHORT_MS) {
        return 1;
    }
    return 1 + LEAD_MS / MAX(p->ended_ms / p->n_ended, 1);
}

static bool has_room(const slurm_pilot *p, const slurm_job *job)
{
    int64_t depth = depth_of(p);
    return p->at[0] != '\0' && p->n_given < MOST_GIVEN &&
           p->given_cpu + job->load.cpu_milli <= p->cpu_milli * depth &&
           p->given_gpu + gpu_milli_of(p, job) <= p->gpu_milli * depth &&
           (p->memory_bytes == 0 ||
            p->given_memory + job->load.memory_bytes <= p->memory_bytes * depth);
}

static void put_gpus(stk_buf *out, const slurm_job *job)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    if (stk_spec_alternatives(job->spec->resources, wants) > 0) {
        stk_json_put_int(out, "gpu_count", wants[0].gpu_count);
        stk_json_put_int(out, "gpu_memory", job->load.gpu_bytes);
        stk_json_put_known_text(out, "gpu_class", wants[0].gpu_class);
        stk_json_put_known_text(out, "gpu_vendor", stk_spec_vendor_of(&wants[0]));
    }
}

static void give(slurm_pilot *p, slurm_job *job)
{
    stk_json_open(&p->orders, NULL, '{');
    stk_json_put_text(&p->orders, "run", job->spec->key);
    stk_json_put_int(&p->orders, "cpu_milli", job->load.cpu_milli);
    stk_json_put_int(&p->orders, "memory", job->load.memory_bytes);
    put_gpus(&p->orders, job);
    stk_json_close(&p->orders, '}');
    stk_buf_char(&p->orders, '\n');
    stk_slurm_pilot_has(p, job);
}

void stk_slurm_pilot_has(slurm_pilot *p, slurm_job *job)
{
    job->state = SLURM_FLIES;
    job->pilot = p;
    job->order_at = p->orders_at + (int64_t)p->orders.len;
    job->gpu_milli = gpu_milli_of(p, job);
    p->given_cpu += job->load.cpu_milli;
    p->given_memory += job->load.memory_bytes;
    p->given_gpu += job->gpu_milli;
    p->n_given++;
}

void stk_slurm_pilot_leaves(slurm_job *job)
{
    slurm_pilot *p = job->pilot;
    p->given_cpu -= job->load.cpu_milli;
    p->given_memory -= job->load.memory_bytes;
    p->given_gpu -= job->gpu_milli;
    p->n_given--;
    p->needed_ms = stk_slurm_now_ms();
    job->pilot = NULL;
}

/* The pilots that may take it: how many there are, and what is left of the first one's work. */
typedef struct choice {
    slurm_pilot *with_room;
    uint32_t n;
    bool any_starts; /* one of them is too young to say more */
    int64_t mean_ms, cpu_milli, gpu_milli;
    int64_t gpu_asked; /* thousandths of GPUs that the attempt takes */
} choice;

static choice choose_pilot(const slurm_driver *d, const slurm_job *job)
{
    choice c = {0};
    int64_t n = 0, ms = 0, now = stk_slurm_now_ms();
    for (slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        if (!takes(p, job)) {
            continue;
        }
        c.n++;
        c.cpu_milli += p->cpu_milli;
        c.gpu_milli += p->gpu_milli;
        c.gpu_asked = gpu_milli_of(p, job);
        bool starts = p->at[0] == '\0' && now - p->since_ms < GROW_MS;
        bool is_unknown = p->at[0] != '\0' && p->n_ended == 0 && now - p->runs_ms < TRY_MS;
        c.any_starts = c.any_starts || starts || is_unknown;
        n += p->n_ended;
        if (p->n_ended > 0) {
            ms += p->ended_ms;
        } else if (p->at[0] != '\0') { /* the first ones take that long at least */
            ms += now - p->runs_ms;
        }
        if (c.with_room == NULL && has_room(p, job)) {
            c.with_room = p;
        }
        p->needed_ms = now;
    }
    c.mean_ms = ms / MAX(n, 1);
    return c;
}

/* Another pilot is worth its start where the work that waits takes the others for long. */
static bool needs_pilot(const slurm_job *job, const choice *c, uint32_t n_waiting, bool is_silent)
{
    if (c->n == 0) {
        return true;
    }
    int64_t of_cpus = job->load.cpu_milli * 1000 / MAX(c->cpu_milli, 1);
    int64_t of_gpus = c->gpu_asked * 1000 / MAX(c->gpu_milli, 1);
    int64_t work_ms = n_waiting * c->mean_ms * MAX(of_cpus, of_gpus) / 1000;
    return !is_silent && !c->any_starts && work_ms > GROW_MS && c->n < job->max_pilots;
}

bool stk_slurm_waits_for_pilot(const slurm_job *job)
{
    return stk_slurm_is_fresh(job) && job->pilot_form[0] != '\0';
}

static void tell_wait(slurm_driver *d, slurm_job *job)
{
    for (const slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        if (takes(p, job) && p->at[0] == '\0' && p->waits[0] != '\0' &&
            strcmp(job->told, p->waits) != 0) {
            (void)snprintf(job->told, sizeof job->told, "%s", p->waits);
            stk_slurm_say(d, job, STK_REMOTE_QUEUED, job->told);
        }
    }
}

/* With `opens` also opens pilots; returns when another one is due, or INT64_MAX. */
static int64_t give_all(slurm_driver *d, bool opens)
{
    uint32_t n_waiting = 0;
    int64_t next = INT64_MAX;
    const char *gathers = NULL; /* the kind of attempts for which a pilot is due then */
    const bool is_silent = stk_slurm_is_silent(d, stk_slurm_now_ms());
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        n_waiting += stk_slurm_waits_for_pilot(d->jobs[i]);
    }
    for (uint32_t i = 0; i < d->n_jobs && n_waiting > 0; i++) {
        slurm_job *job = d->jobs[i];
        if (!stk_slurm_waits_for_pilot(job)) {
            continue;
        }
        choice c = choose_pilot(d, job);
        if (c.with_room != NULL) {
            give(c.with_room, job);
            n_waiting -= n_waiting > 0;
        } else if (gathers != NULL && strcmp(gathers, job->pilot_form) == 0) {
            continue;
        } else if (opens && needs_pilot(job, &c, n_waiting, is_silent)) {
            int64_t due = stk_slurm_pilot_open(d, job);
            if (due > 0) {
                gathers = job->pilot_form;
                next = MIN(next, due);
            }
        } else {
            tell_wait(d, job);
        }
    }
    return next;
}

static void write_all_orders(slurm_driver *d)
{
    for (slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        stk_err err = {0}; /* it is tried again */
        if (p->orders.len == 0) {
            continue;
        }
        STK_FAILPOINT("slurm.orders.before");
        if (stk_slurm_write_orders(p, &err) == 0) {
            STK_FAILPOINT("slurm.orders.after");
        }
    }
}

static void read_all_news(slurm_driver *d)
{
    for (slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        stk_slurm_read_news(d, p);
    }
}

/* --- the end of pilots --- */

/* Without its controller Slurm starts no other one, so those that are there stay. */
static void keep_pilots(slurm_driver *d)
{
    int64_t now = stk_slurm_now_ms();
    bool is_silent = stk_slurm_is_silent(d, now);
    for (slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        bool is_due = is_silent ? now >= p->stay_ms : p->stay_ms > 0;
        if (!is_due || p->is_over || p->only_reads || p->closed_at >= 0 || p->at[0] == '\0') {
            continue;
        }
        stk_json_open(&p->orders, NULL, '{');
        stk_json_put_int(&p->orders, "stay_ms", is_silent ? STAY_MS : 0);
        stk_json_close(&p->orders, '}');
        stk_buf_char(&p->orders, '\n');
        p->stay_ms = is_silent ? now + STAY_MS / 3 : 0;
    }
}

/* One that waits in the queue, and that nobody needs any more. */
static void cancel_spare(slurm_driver *d, slurm_pilot *p)
{
    (void)d;
    slurm_job *job = p->job;
    int64_t now = stk_slurm_now_ms();
    if (job != NULL && !p->only_reads && job->state == SLURM_LIVE && !job->is_running &&
        !job->is_stopped && p->n_given == 0 && now - p->needed_ms >= SPARE_MS) {
        job->is_stopped = true;
        job->why = STK_FAIL_CANCELLED;
        job->stop_ms = job->kill_ms = now;
    }
}

static void free_pilots(slurm_driver *d, bool all)
{
    for (slurm_pilot **at = &d->pilots; *at != NULL;) {
        slurm_pilot *p = *at;
        if (!all && !(p->is_over && p->n_given == 0)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        stk_slurm_drop_pilot_job(d, p);
        stk_buf_done(&p->orders);
        stk_arena_free(p->arena);
    }
}

int64_t stk_slurm_pilots_turn(slurm_driver *d)
{
    read_all_news(d);
    int64_t next = give_all(d, !stk_slurm_must_look(d)), now = stk_slurm_now_ms();
    keep_pilots(d);
    write_all_orders(d);
    for (slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        cancel_spare(d, p);
        bool is_there = p->job != NULL && p->job->state == SLURM_LIVE;
        if (is_there || p->orders.len > 0) {
            bool is_busy = p->n_given > 0 || (p->at[0] == '\0' && is_there && p->job->is_running);
            next = MIN(next, now + (is_busy ? LOOK_MS : SPARE_MS / 5));
        }
    }
    free_pilots(d, false);
    return next;
}

void stk_slurm_pilots_close(slurm_driver *d)
{
    for (slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        stk_err err = {0};
        if (p->only_reads || p->n_given > 0 || p->job == NULL || p->is_over) {
            continue;
        }
        const char *const argv[] = {"scancel", p->job->id, NULL};
        STK_ARENA_AUTO arena = stk_arena_new(0);
        const char *out = NULL;
        bool waits = p->job->state == SLURM_LIVE && !p->job->is_running;
        if (!waits || stk_slurm_call(argv, NULL, NULL, arena, &out, &err) < 0) {
            stk_json_open(&p->orders, NULL, '{');
            stk_json_put_bool(&p->orders, "end", true);
            stk_json_close(&p->orders, '}');
            stk_buf_char(&p->orders, '\n');
            (void)stk_slurm_write_orders(p, &err);
        }
    }
    free_pilots(d, true);
}
