/* Which attempts may share a pilot, and how one is opened for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/random.h>

#include "away/remote/remote_lines.h"
#include "away/slurm/slurm_pilot.h"
#include "base/text.h"
#include "sys/file.h"

enum {
    PILOTS = 4,      /* at once, of one kind of attempts */
    QUIET_MS = 100,  /* time without a new attempt that needs GPUs, after which a pilot opens */
    GATHER_MS = 500, /* … and the most time for which they gather: they say how many it asks for */
    FRESH_MS = 5000  /* what Slurm has said of its nodes' GPUs holds for so long */
};

static int read_options(const slurm_driver *d, const slurm_job *job, stk_arena *arena,
                        stk_slurm_options *ret, stk_err *err)
{
    return stk_slurm_options_read(job->spec->step, job->spec->options, d->config.options, arena,
                                  ret, err);
}

/* --- kinds of attempts --- */

/* The kind of GPUs: a pilot has one, and the size of its request is its own. */
static int put_kind(const slurm_job *job, const stk_slurm_options *options, stk_arena *arena,
                    stk_buf *all, stk_err *err)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    stk_slurm_gpus gpus;
    STK_TRY(stk_slurm_gpus_of(job->spec, options, true, arena, &gpus, err));
    if (gpus.n > 0 && stk_spec_alternatives(job->spec->resources, wants) > 0) {
        stk_buf_printf(all, "gpu:%s:%s:%s", stk_text_or(gpus.type, ""),
                       stk_text_or(wants[0].gpu_class, ""),
                       stk_text_or(stk_spec_vendor_of(&wants[0]), ""));
    }
    return 0;
}

int stk_slurm_pilot_form(const slurm_driver *d, slurm_job *job, stk_err *err)
{
    const stk_slurm_flight none = {.name = "", .key = ""};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO all = STK_BUF_INIT(16 << 20);
    stk_slurm_options options;
    const char *script = NULL;
    job->pilot_form[0] = '\0';
    STK_TRY(read_options(d, job, arena, &options, err));
    if (!stk_slurm_may_fly(job->spec, &options)) {
        return 0;
    }
    job->load = stk_slurm_load_of(job->spec);
    job->max_pilots = MAX((uint32_t)stk_slurm_number(&options, "pilots", PILOTS), 1);
    STK_TRY(stk_slurm_pilot_script(&d->config, job->spec, &none, arena, &script, err));
    stk_buf_text(&all, script);
    STK_TRY(put_kind(job, &options, arena, &all, err));
    for (const char *const *pair = job->spec->secret; pair != NULL && *pair != NULL; pair++) {
        (void)stk_buf_add(&all, *pair, strlen(*pair) + 1);
    }
    STK_TRY(stk_buf_check(&all, err));
    stk_digest_of(all.data, all.len, job->pilot_form);
    return 0;
}

/* --- its size --- */

/* What waits and may share a pilot. */
typedef struct crowd {
    uint32_t gpus; /* that it needs */
    bool shares;   /* … and parts of some */
    int64_t first_ms, last_ms;
} crowd;

static crowd crowd_of(const slurm_driver *d, const slurm_job *first)
{
    crowd c = {.first_ms = first->came_ms, .last_ms = first->came_ms};
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        const slurm_job *job = d->jobs[i];
        if (!stk_slurm_waits_for_pilot(job) || strcmp(job->pilot_form, first->pilot_form) != 0) {
            continue;
        }
        c.first_ms = MIN(c.first_ms, job->came_ms);
        c.last_ms = MAX(c.last_ms, job->came_ms);
        c.gpus += job->load.gpu_bytes > 0 ? 0 : job->load.gpus;
        c.shares = c.shares || job->load.gpu_bytes > 0;
    }
    return c;
}

static void take_sinfo(slurm_driver *d, const char *out, const stk_err *why)
{
    const char *of = d->gpus_wanted;
    d->gpus_wanted = NULL;
    if (why != NULL && stk_slurm_wait_out(d, why)) {
        return;
    }
    stk_arena_free(d->gpus_arena);
    d->gpus_arena = stk_arena_new(0);
    d->gpus_of = stk_arena_dup(d->gpus_arena, of);
    d->gpus_lines = stk_arena_dup(d->gpus_arena, out);
    d->gpus_ms = stk_slurm_now_ms();
}

int64_t stk_slurm_ask_gpus(slurm_driver *d)
{
    char of[300];
    const char *argv[] = {"sinfo", "--noheader", "--format=%P|%G", NULL, NULL};
    if (d->gpus_wanted != NULL) {
        (void)snprintf(of, sizeof of, "--partition=%s", d->gpus_wanted);
        argv[3] = d->gpus_wanted[0] == '\0' ? NULL : of;
        stk_slurm_ask(d, argv, NULL, NULL, NULL, 0, take_sinfo);
    }
    return INT64_MAX;
}

/* The most GPUs for which a job can ask; false: Slurm is asked first. */
static bool know_most_gpus(slurm_driver *d, const slurm_job *first, uint32_t *ret)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_slurm_options options;
    stk_slurm_gpus gpus;
    stk_err err = {0};
    *ret = 0; /* as many as an attempt needs */
    if (read_options(d, first, arena, &options, &err) < 0 ||
        stk_slurm_gpus_of(first->spec, &options, true, arena, &gpus, &err) < 0) {
        return true;
    }
    *ret = (uint32_t)stk_slurm_number(&options, "pilot_gpus", 0);
    if (*ret > 0 || first->load.gpus == 0) {
        return true;
    }
    const char *of = stk_text_or(stk_slurm_text(&options, "partition"), "");
    bool is_fresh = d->gpus_of != NULL && strcmp(d->gpus_of, of) == 0 &&
                    stk_slurm_now_ms() < d->gpus_ms + FRESH_MS;
    if (!is_fresh) {
        if (d->gpus_wanted == NULL) {
            d->gpus_wanted = stk_arena_dup(d->arena, of);
        }
        return false;
    }
    *ret = stk_slurm_most_gpus(d->gpus_lines, gpus.type, of[0] == '\0');
    return true;
}

/* --- opening --- */

static const char *const *copy_texts(const char *const *from, stk_arena *arena)
{
    size_t n = 0;
    while (from != NULL && from[n] != NULL) {
        n++;
    }
    const char **texts = stk_arena_array(arena, n + 1, sizeof *texts);
    for (size_t i = 0; texts != NULL && i < n; i++) {
        texts[i] = stk_arena_dup(arena, from[i]);
    }
    return texts;
}

slurm_pilot *stk_slurm_pilot_new(slurm_driver *d, const char *name)
{
    stk_arena *arena = stk_arena_new(0);
    slurm_pilot *p = arena == NULL ? NULL : stk_arena_alloc(arena, sizeof *p);
    if (p == NULL) {
        stk_arena_free(arena);
        return NULL;
    }
    *p = (slurm_pilot){
        .next = d->pilots, .arena = arena, .closed_at = -1, .orders = STK_BUF_INIT(64 << 20)};
    p->spec = (stk_remote_job){.run = d->config.run,
                               .step = "",
                               .name = stk_arena_dup(arena, name),
                               .options = "{}",
                               .nodes = 1};
    p->spec.key = stk_arena_printf(arena, "runs/%s/pilots/%s", d->config.run, name);
    p->folder = stk_arena_printf(arena, "%s/%s", d->config.share_url, p->spec.key);
    p->since_ms = p->needed_ms = stk_slurm_now_ms();
    if (p->spec.name == NULL || p->spec.key == NULL || p->folder == NULL ||
        stk_slurm_add_pilot_job(d, p) < 0) {
        stk_arena_free(arena);
        return NULL;
    }
    d->pilots = p;
    return p;
}

static int size_pilot(slurm_driver *d, const slurm_job *first, uint32_t most, slurm_pilot *p,
                      stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_slurm_options options;
    const crowd c = crowd_of(d, first);
    STK_TRY(read_options(d, first, arena, &options, err));
    /* how many share a GPU is known once the pilot has one */
    bool takes_all = c.shares && stk_slurm_number(&options, "pilot_gpus", 0) > 0;
    stk_slurm_flight flight =
        stk_slurm_flight_of(first->spec, &options, takes_all ? most : c.gpus, most);
    flight.name = p->spec.name;
    flight.key = p->spec.key;
    p->cpu_milli = flight.cpu_milli;
    p->memory_bytes = flight.memory_bytes;
    p->gpu_milli = (int64_t)flight.gpus * 1000;
    p->asked = first->load;
    (void)snprintf(p->form, sizeof p->form, "%s", first->pilot_form);
    p->secret = copy_texts(first->spec->secret, p->arena);
    STK_TRY(stk_err_if_null(p->secret, err));
    return stk_slurm_pilot_script(&d->config, first->spec, &flight, p->arena, &p->script, err);
}

/* Its folder says of itself what a later engine has to know. */
static int lay_folder(slurm_pilot *p, stk_err *err)
{
    STK_TRY(stk_file_mkdirs(p->folder, 0755, err));
    stk_json_open(&p->orders, NULL, '{');
    stk_json_put_text(&p->orders, "form", p->form);
    stk_json_put_int(&p->orders, "cpu_milli", p->cpu_milli);
    stk_json_put_int(&p->orders, "memory", p->memory_bytes);
    stk_json_put_int(&p->orders, "gpus", p->gpu_milli / 1000);
    stk_json_close(&p->orders, '}');
    stk_buf_char(&p->orders, '\n');
    return stk_slurm_write_orders(p, err);
}

static void open_pilot(slurm_driver *d, slurm_job *first, uint32_t most)
{
    char name[64];
    uint32_t random = 0;
    stk_err err = {0};
    (void)getrandom(&random, sizeof random, 0);
    /* "s-<8 of the run>-…" of an attempt's name */
    (void)snprintf(name, sizeof name, "%.10s-pilot-%08x", first->spec->name, random);
    slurm_pilot *p = stk_slurm_pilot_new(d, name);
    if (p == NULL) {
        stk_slurm_fail(d, first, STK_FAIL_START, "out of memory");
        return;
    }
    int rc = size_pilot(d, first, most, p, &err);
    if (rc == 0) {
        rc = lay_folder(p, &err);
    }
    if (rc < 0) {
        stk_slurm_pilot_gone(d, p);
        stk_slurm_fail(d, first, STK_FAIL_START, "can't open a pilot: %s", err.text);
    }
}

int64_t stk_slurm_pilot_open(slurm_driver *d, slurm_job *first)
{
    int64_t now = stk_slurm_now_ms();
    uint32_t most = 0;
    if (first->load.gpus > 0) {
        const crowd c = crowd_of(d, first);
        int64_t due = MIN(c.last_ms + QUIET_MS, c.first_ms + GATHER_MS);
        if (MAX(due, d->again_ms) > now) {
            return MAX(due, d->again_ms);
        }
        if (!know_most_gpus(d, first, &most)) {
            return INT64_MAX;
        }
    }
    open_pilot(d, first, most);
    return 0;
}
