/* Watches jobs: one squeue for all of them, their logs in the share, and how they ended. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/slurm/slurm_driver.h"
#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/file.h"

enum {
    LOG_AT_ONCE = 64 << 10,
    LOG_TURNS = 16,
    LOG_TAIL = 4096,
    MISSING = 2,
    TELL_START_MS = 10 * 60 * 1000
};

/* --- logs --- */

static void follow_node(slurm_driver *d, slurm_job *job, const char *path, uint32_t node)
{
    char data[LOG_AT_ONCE];
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    for (int i = 0; fd >= 0 && i < LOG_TURNS; i++) {
        ssize_t n = pread(fd, data, sizeof data, job->log_at[node]);
        if (n <= 0) {
            return;
        }
        job->log_at[node] += n;
        stk_remote_report r = {.state = STK_REMOTE_LOG,
                               .id = job->spec->id,
                               .attempt = job->spec->attempt,
                               .node = node,
                               .data = data,
                               .n = (size_t)n};
        d->base.say(d->base.say_arg, &r);
    }
}

static const char *log_of_node(const slurm_driver *d, const slurm_job *job, uint32_t node,
                               stk_arena *arena)
{
    if (job->array == NULL) {
        return stk_slurm_log_path(&d->config, job->spec, node, arena);
    }
    return stk_slurm_array_log_path(&d->config, job->array, job->index, arena);
}

void stk_slurm_follow_logs(slurm_driver *d, slurm_job *job)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (uint32_t node = 0; node < job->spec->nodes; node++) {
        const char *path = log_of_node(d, job, node, arena);
        if (path != NULL) {
            follow_node(d, job, path, node);
        }
    }
}

/* --- its end --- */

/* Slurm without control groups (JobAcctGatherParams=OverMemoryKill) calls such a job FAILED, and
 * only its log says why. */
static bool exceeded_memory(slurm_driver *d, const slurm_job *job)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    bool is = false;
    for (uint32_t node = 0; node < job->spec->nodes && !is; node++) {
        char tail[LOG_TAIL + 1];
        const char *path = log_of_node(d, job, node, arena);
        STK_FD_AUTO fd = path == NULL ? -1 : stk_file_open_regular(path, O_RDONLY, 0);
        off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
        ssize_t n = fd < 0 ? 0 : pread(fd, tail, LOG_TAIL, MAX(size - LOG_TAIL, 0));
        tail[MAX(n, 0)] = '\0';
        is = strstr(tail, "error: Exceeded job memory limit") != NULL ||
             strstr(tail, "error: Exceeded step memory limit") != NULL;
    }
    return is;
}

void stk_slurm_report_end(slurm_driver *d, slurm_job *job, const char *state, const char *exit_code)
{
    stk_remote_report r = {.id = job->spec->id, .attempt = job->spec->attempt};
    stk_slurm_end(job->id, state, exit_code, &r);
    if (r.signal == SIGKILL && exceeded_memory(d, job)) {
        stk_slurm_end(job->id, "OUT_OF_MEMORY", NULL, &r);
    }
    if (job->is_stopped) {
        r.state = STK_REMOTE_FAILED;
        r.failure = job->why;
        (void)snprintf(r.text, sizeof r.text, "%s", job->why_text);
    }
    if (job->is_running && job->leads == NULL) {
        stk_slurm_follow_logs(d, job);
    }
    job->state = SLURM_DONE;
    stk_slurm_report(d, job, &r);
}

/* --- looks --- */

static void check_deadline(slurm_driver *d, slurm_job *job)
{
    char span[32];
    int64_t now = stk_slurm_now_ms(), waited = now - job->since_ms;
    if (d->config.pending_ms <= 0 || waited < d->config.pending_ms || job->is_stopped) {
        return;
    }
    (void)snprintf(job->why_text, sizeof job->why_text, "waited in Slurm's queue for %s: %.500s",
                   stk_units_format_duration(waited, span, sizeof span),
                   stk_text_or(stk_text_if_any(job->told), "Slurm gives no reason"));
    job->is_stopped = true;
    job->why = STK_FAIL_RESOURCES;
    job->stop_ms = job->kill_ms = now;
}

/* Somebody else, or a failed node, sent the job back to the queue under its number. Its next run
 * would find that the attempt has begun already, so it is cancelled, and the engine begins another
 * attempt, as after a preemption. */
void stk_slurm_was_requeued(slurm_driver *d, slurm_job *job)
{
    int64_t now = stk_slurm_now_ms();
    (void)snprintf(job->why_text, sizeof job->why_text,
                   "job %s was requeued while it ran; another job goes on", job->id);
    job->is_stopped = true;
    job->why = STK_FAIL_PREEMPTED;
    job->stop_ms = job->kill_ms = now;
    d->next_look_ms = now;
}

/* An engine that takes the run up hasn't seen the first run of such a job. Slurm lets it wait for
 * its begin time, so only those are asked about. */
static bool is_doubtful(const slurm_job *job, const stk_slurm_seen *s)
{
    return strcmp(s->reason, "BeginTime") == 0 && !job->asked_restarts;
}

/* Slurm expects another start each time that it plans, and of each job that waits: only a new
 * reason is worth a word at once. */
static bool says_more(slurm_job *job, const char *text)
{
    int64_t now = stk_slurm_now_ms();
    if (!stk_slurm_is_other_wait(job->told, text) &&
        (strcmp(text, job->told) == 0 || now - job->told_ms < TELL_START_MS)) {
        return false;
    }
    job->told_ms = now;
    return true;
}

static void seen(slurm_driver *d, slurm_job *job, const stk_slurm_seen *s)
{
    char text[512];
    stk_slurm_phase phase = stk_slurm_phase_of(s->state);
    job->n_missing = 0;
    if (phase == SLURM_WAITS && !job->is_stopped && job->is_running) {
        stk_slurm_was_requeued(d, job);
        return;
    }
    if (phase == SLURM_WAITS && !job->is_stopped && is_doubtful(job, s)) {
        job->doubt = DOUBT_RESTARTS;
        return;
    }
    if (phase == SLURM_WAITS) {
        stk_slurm_reason(s, text, sizeof text);
        bool is_known = strcmp(s->reason, "None") != 0; /* Slurm hasn't looked at it yet */
        if (is_known && says_more(job, text)) {
            (void)snprintf(job->told, sizeof job->told, "%s", text);
            stk_slurm_say(d, job, STK_REMOTE_QUEUED, text);
        }
        check_deadline(d, job);
        return;
    }
    bool has_run = s->nodes[0] != '\0';
    if (!job->is_running && has_run) {
        (void)snprintf(text, sizeof text, "node %s", s->nodes);
        job->is_running = true;
        stk_slurm_say(d, job, STK_REMOTE_RUNNING, text);
    }
    if (phase == SLURM_OVER && strcmp(s->state, "COMPLETED") == 0) {
        stk_slurm_report_end(d, job, s->state, NULL);
    } else if (phase == SLURM_OVER) {
        (void)snprintf(job->end_state, sizeof job->end_state, "%s", s->state);
        job->doubt = DOUBT_END;
    }
}

static int look_at_lines(slurm_driver *d, char *text, stk_err *err)
{
    STK_MAP_AUTO by_id = {0};
    uint64_t i_job = 0;
    uint32_t n = d->n_jobs;
    for (uint32_t i = 0; i < n; i++) {
        d->jobs[i]->is_seen = d->jobs[i]->state != SLURM_LIVE || d->jobs[i]->doubt != DOUBT_NONE;
        if (!d->jobs[i]->is_seen && stk_map_put(&by_id, d->jobs[i]->id, i) < 0) {
            return stk_err_nomem(err);
        }
    }
    for (char *line = strtok_r(text, "\n", &text); line != NULL;
         line = strtok_r(NULL, "\n", &text)) {
        stk_slurm_seen one;
        if (stk_slurm_seen_read(line, &one) && stk_map_get(&by_id, one.id, &i_job)) {
            d->jobs[i_job]->is_seen = true;
            seen(d, d->jobs[i_job], &one);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        slurm_job *job = d->jobs[i];
        /* Slurm forgets jobs some minutes after their end (MinJobAge) */
        if (!job->is_seen && ++job->n_missing >= MISSING) {
            job->doubt = DOUBT_GONE;
        }
    }
    return 0;
}

static void take_squeue(slurm_driver *d, const char *out, const stk_err *why)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    char *text = stk_arena_dup(arena, out);
    d->next_look_ms = stk_slurm_now_ms() + d->poll_ms;
    if (why != NULL || text == NULL) {
        stk_slurm_is_unanswered(d, why == NULL ? &err : why);
        return;
    }
    d->is_away = false;
    (void)look_at_lines(d, text, &err);
}

/* One request for all jobs: --me leaves the choice to Slurm's controller. */
int64_t stk_slurm_look(slurm_driver *d)
{
    static const char *const argv[] = {
        "squeue", "--me", "--array", "--states=all", "--noheader", "-o", stk_slurm_look_format,
        NULL};
    int64_t now = stk_slurm_now_ms();
    if (!stk_slurm_has_in(d, SLURM_LIVE)) {
        return INT64_MAX;
    }
    if (now < d->next_look_ms) {
        return d->next_look_ms;
    }
    stk_slurm_ask(d, argv, NULL, NULL, NULL, 0, take_squeue);
    return INT64_MAX;
}
