/* A pilot's orders and news, and what becomes of its attempts. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "away/remote/remote_lines.h"
#include "away/slurm/slurm_pilot.h"
#include "base/text.h"
#include "sys/dir.h"
#include "sys/file.h"

static void path_of(const slurm_pilot *p, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, "%s/%s", p->folder, name);
}

int stk_slurm_write_orders(slurm_pilot *p, stk_err *err)
{
    char path[PATH_MAX];
    if (p->orders.len == 0) {
        return 0;
    }
    path_of(p, "orders", path);
    STK_TRY(stk_remote_lines_add(path, &p->orders, err));
    p->orders_at += (int64_t)p->orders.len;
    stk_buf_done(&p->orders);
    p->orders = (stk_buf)STK_BUF_INIT(64 << 20);
    return 0;
}

/* Did an agent claim the attempt? */
static bool is_claimed(const slurm_driver *d, const slurm_job *job)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s/claim", d->config.share_url, job->spec->key);
    return stk_file_exists(path);
}

static const char *job_number(const slurm_pilot *p)
{
    return p->job == NULL ? "(unknown)" : p->job->id;
}

/* --- news --- */

typedef struct reading {
    slurm_driver *d;
    slurm_pilot *p;
    stk_map jobs; /* by key */
} reading;

static slurm_job *find_by_key(reading *r, const char *key)
{
    uint64_t i = 0;
    bool is_made = r->jobs.n > 0;
    for (uint32_t k = 0; !is_made && k < r->d->n_jobs; k++) {
        if (r->d->jobs[k]->pilot == r->p) {
            (void)stk_map_put(&r->jobs, r->d->jobs[k]->spec->key, k);
        }
    }
    if (key == NULL || !stk_map_get(&r->jobs, key, &i) || r->d->jobs[i]->pilot != r->p) {
        return NULL;
    }
    return r->d->jobs[i];
}

static void has_begun(reading *r, slurm_job *job)
{
    char text[128];
    if (!job->is_running) {
        job->is_running = true;
        (void)snprintf(text, sizeof text, "%s, in pilot %s", r->p->at, job_number(r->p));
        stk_slurm_say(r->d, job, STK_REMOTE_RUNNING, text);
    }
}

/* Others have its devices. */
static void has_to_wait(reading *r, slurm_job *job, const char *text)
{
    if (!job->is_running) { /* else the line is an old one, read again */
        stk_slurm_say(r->d, job, STK_REMOTE_QUEUED, text);
    }
}

static void has_ended(reading *r, slurm_job *job, const stk_json *line)
{
    stk_remote_report report = {.state = STK_REMOTE_ENDED,
                                .id = job->spec->id,
                                .attempt = job->spec->attempt,
                                .exit_status = (int)stk_json_get_whole(line, "status", 0)};
    r->p->n_ended++;
    r->p->ended_ms += stk_json_get_whole(line, "ms", 0);
    if (job->is_stopped) {
        report.state = STK_REMOTE_FAILED;
        report.failure = job->why;
    }
    stk_slurm_pilot_leaves(job);
    job->state = SLURM_DONE;
    stk_slurm_report(r->d, job, &report);
}

static int take_news(void *arg, const stk_json *line, int64_t end, stk_err *err)
{
    reading *r = arg;
    slurm_job *job = NULL;
    (void)end;
    (void)err;
    if (stk_json_get(line, "at") != NULL) {
        r->p->runs_ms = stk_slurm_now_ms();
        (void)snprintf(r->p->at, sizeof r->p->at, "node %.50s",
                       stk_text_or(stk_json_get_text(line, "at"), "?"));
        r->p->gpu_bytes = stk_json_get_whole(line, "gpu_memory", 0);
    } else if (stk_json_get(line, "closed") != NULL) {
        r->p->closed_at = stk_json_get_whole(line, "closed", 0);
    } else if ((job = find_by_key(r, stk_json_get_text(line, "began"))) != NULL) {
        has_begun(r, job);
    } else if ((job = find_by_key(r, stk_json_get_text(line, "waits"))) != NULL) {
        has_to_wait(r, job, stk_text_or(stk_json_get_text(line, "text"), ""));
    } else if ((job = find_by_key(r, stk_json_get_text(line, "ended"))) != NULL) {
        has_ended(r, job, line);
    } else if ((job = find_by_key(r, stk_json_get_text(line, "stopped"))) != NULL) {
        stk_slurm_pilot_leaves(job);
        stk_slurm_fail(r->d, job, job->why, "stopped before its program started");
    }
    return 0;
}

/* What nobody has claimed, and its pilot won't, is anybody's. */
static void take_back(slurm_driver *d, slurm_pilot *p)
{
    for (uint32_t i = 0; i < d->n_jobs && p->n_given > 0; i++) {
        slurm_job *job = d->jobs[i];
        if (job->pilot != p || (job->order_at <= p->closed_at && is_claimed(d, job))) {
            continue;
        }
        stk_slurm_pilot_leaves(job);
        job->state = SLURM_NEW;
        if (job->is_stopped) {
            stk_slurm_fail(d, job, job->why, "stopped before its program started");
        }
    }
}

void stk_slurm_read_news(slurm_driver *d, slurm_pilot *p)
{
    char path[PATH_MAX];
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    reading r = {.d = d, .p = p};
    bool may_have =
        p->job == NULL || p->job->is_running || p->at[0] != '\0' || p->job->state == SLURM_DONE;
    path_of(p, "news", path);
    if (may_have) {
        (void)stk_remote_lines_read(path, &p->news_at, arena, take_news, &r, &err);
    }
    stk_map_done(&r.jobs);
    if (p->closed_at >= 0 && p->n_given > 0) {
        take_back(d, p);
    }
}

/* --- its own job --- */

static bool has_its_form(const slurm_pilot *p, const slurm_job *job)
{
    return stk_slurm_is_fresh(job) && strcmp(job->pilot_form, p->form) == 0;
}

/* A smaller pilot may be there for it. */
static bool asks_less(const slurm_pilot *p, const slurm_job *job)
{
    return job->load.gpus < p->asked.gpus || job->load.memory_bytes < p->asked.memory_bytes;
}

/* It never took work, and another one wouldn't either. */
static void fail_waiting(slurm_driver *d, const slurm_pilot *p, const stk_remote_report *why)
{
    bool is_too_large = why->state == STK_REMOTE_FAILED && why->failure == STK_FAIL_RESOURCES;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        slurm_job *job = d->jobs[i];
        if (has_its_form(p, job) && !(is_too_large && asks_less(p, job))) {
            stk_remote_report r = *why;
            r.state = STK_REMOTE_FAILED;
            r.id = job->spec->id;
            r.attempt = job->spec->attempt;
            if (why->state == STK_REMOTE_ENDED) {
                r.failure = STK_FAIL_START;
                (void)snprintf(r.text, sizeof r.text,
                               "its pilot ended before it took work (exit status %d): "
                               "%.700s/slurm.log says why",
                               why->exit_status, p->folder);
            }
            job->state = SLURM_DONE;
            stk_slurm_report(d, job, &r);
        }
    }
}

/* No attempt of a pilot is charged for its end. */
static void fail_flying(slurm_driver *d, slurm_pilot *p, const stk_remote_report *why)
{
    stk_failure class = STK_FAIL_LOST;
    if (why->state == STK_REMOTE_FAILED &&
        (why->failure == STK_FAIL_PREEMPTED || why->failure == STK_FAIL_TIMEOUT)) {
        class = STK_FAIL_PREEMPTED;
    }
    for (uint32_t i = 0; i < d->n_jobs && p->n_given > 0; i++) {
        slurm_job *job = d->jobs[i];
        if (job->pilot == p) {
            stk_slurm_pilot_leaves(job);
            stk_slurm_fail(d, job, job->is_stopped ? job->why : class,
                           "its pilot, job %s of Slurm, has ended: %.600s", job_number(p),
                           stk_text_or(stk_text_if_any(why->text), "without a reason"));
        }
    }
}

void stk_slurm_pilot_heard(slurm_driver *d, slurm_job *job, const stk_remote_report *report)
{
    slurm_pilot *p = job->leads;
    if (report->state == STK_REMOTE_QUEUED) {
        (void)snprintf(p->waits, sizeof p->waits, "%s", report->text);
    }
    if (report->state != STK_REMOTE_ENDED && report->state != STK_REMOTE_FAILED) {
        return;
    }
    job->state = SLURM_DONE;
    stk_slurm_read_news(d, p);
    p->is_over = true;
    if (p->closed_at < 0) {
        p->closed_at = INT64_MAX; /* it claims nothing any more */
    }
    take_back(d, p);
    fail_flying(d, p, report);
    if (p->at[0] == '\0' && p->script != NULL) {
        fail_waiting(d, p, report);
    }
}

void stk_slurm_pilot_gone(slurm_driver *d, slurm_pilot *p)
{
    const stk_remote_report r = {.state = STK_REMOTE_FAILED, .failure = STK_FAIL_LOST};
    p->script = NULL;
    stk_slurm_pilot_heard(d, p->job, &r);
}

void stk_slurm_pilot_stop(slurm_driver *d, slurm_job *job, int64_t grace_ms)
{
    stk_buf *b = &job->pilot->orders;
    (void)d;
    stk_json_open(b, NULL, '{');
    stk_json_put_text(b, "stop", job->spec->key);
    stk_json_put_int(b, "grace_ms", grace_ms);
    stk_json_put_text(b, "why", stk_failure_word(job->why));
    stk_json_close(b, '}');
    stk_buf_char(b, '\n');
}

/* --- an earlier engine's --- */

typedef struct finding {
    slurm_driver *d;
    slurm_pilot *p;
} finding;

static int take_old_order(void *arg, const stk_json *line, int64_t end, stk_err *err)
{
    finding *f = arg;
    const char *form = stk_json_get_text(line, "form"), *run = stk_json_get_text(line, "run");
    if (form != NULL) {
        (void)snprintf(f->p->form, sizeof f->p->form, "%s", form);
        f->p->cpu_milli = stk_json_get_whole(line, "cpu_milli", 0);
        f->p->memory_bytes = stk_json_get_whole(line, "memory", 0);
        f->p->gpu_milli = stk_json_get_whole(line, "gpus", 0) * 1000;
    }
    if (run == NULL) {
        return 0;
    }
    slurm_flown *flown = stk_arena_alloc(f->p->arena, sizeof *flown);
    const char *key = stk_arena_dup(f->d->arena, run);
    if (flown == NULL || key == NULL) {
        return stk_err_nomem(err);
    }
    *flown = (slurm_flown){.pilot = f->p, .order_at = end};
    return stk_map_put(&f->d->flown, key, (uintptr_t)flown) < 0 ? stk_err_nomem(err) : 0;
}

static int find_pilot(slurm_driver *d, const char *name, bool only_reads, stk_err *err)
{
    char path[PATH_MAX];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    slurm_pilot *p = stk_slurm_pilot_new(d, name);
    STK_TRY(stk_err_if_null(p, err));
    finding f = {.d = d, .p = p};
    p->only_reads = only_reads;
    p->spec.attach = true;
    p->spec.reads = only_reads;
    p->job->must_look = true;
    path_of(p, "orders", path);
    return stk_remote_lines_read(path, &p->orders_at, arena, take_old_order, &f, err);
}

static bool is_known(const slurm_driver *d, const char *name)
{
    for (const slurm_pilot *p = d->pilots; p != NULL; p = p->next) {
        if (strcmp(p->spec.name, name) == 0) {
            return true;
        }
    }
    return false;
}

int stk_slurm_pilots_find(slurm_driver *d, bool only_reads, stk_err *err)
{
    char path[PATH_MAX];
    STK_DIR_AUTO list = {0};
    (void)snprintf(path, sizeof path, "%s/runs/%s/pilots", d->config.share_url, d->config.run);
    STK_TRY(stk_dir_read_if(path, &list, err));
    for (uint32_t i = 0; i < list.n; i++) {
        if (list.items[i].name[0] != '.' && !is_known(d, list.items[i].name)) {
            STK_TRY(find_pilot(d, list.items[i].name, only_reads, err));
        }
    }
    return 0;
}

bool stk_slurm_pilot_attach(slurm_driver *d, slurm_job *job)
{
    uint64_t at = 0;
    if (job->spec->key == NULL || !stk_map_get(&d->flown, job->spec->key, &at)) {
        return false;
    }
    const slurm_flown *flown = (const slurm_flown *)(uintptr_t)at;
    slurm_pilot *p = flown->pilot;
    if (p->is_over && !is_claimed(d, job)) {
        return false;
    }
    if (p->is_over) {
        stk_slurm_fail(d, job, job->is_stopped ? job->why : STK_FAIL_LOST,
                       "its pilot has ended, and Slurm has forgotten it");
        return true;
    }
    stk_slurm_pilot_has(p, job);
    job->order_at = flown->order_at;
    p->news_at = 0; /* once more for this attempt */
    p->n_ended = p->ended_ms = 0;
    if (job->is_stopped && !p->only_reads) {
        stk_slurm_pilot_stop(d, job, job->spec->grace_ms);
    }
    return true;
}
