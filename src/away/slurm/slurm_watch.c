/* Watches jobs: one squeue for all of them, their logs in the share, and how they ended. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "away/slurm/slurm_driver.h"
#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/file.h"

enum { LOG_AT_ONCE = 64 << 10, LOG_TURNS = 16, MISSING = 2 };

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

void stk_slurm_follow_logs(slurm_driver *d, slurm_job *job)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (uint32_t node = 0; node < job->spec->nodes; node++) {
        const char *path = stk_slurm_log_path(&d->config, job->spec, node, arena);
        if (path != NULL) {
            follow_node(d, job, path, node);
        }
    }
}

/* --- its end --- */

static void report_end(slurm_driver *d, slurm_job *job, const char *state, const char *exit_code)
{
    stk_remote_report r = {.id = job->spec->id, .attempt = job->spec->attempt};
    stk_slurm_end(job->id, state, exit_code, &r);
    if (job->is_stopped) {
        r.state = STK_REMOTE_FAILED;
        r.failure = job->why;
        (void)snprintf(r.text, sizeof r.text, "%s", job->why_text);
    }
    if (job->is_running) {
        stk_slurm_follow_logs(d, job);
    }
    job->state = SLURM_DONE;
    d->base.say(d->base.say_arg, &r);
}

/* Asks the controller for one job; false: it has forgotten it, or doesn't answer. */
static bool ask_controller(const slurm_job *job, char state[40], char code[40])
{
    const char *const argv[] = {"scontrol", "show", "job", "--oneliner", job->id, NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *out = NULL;
    stk_err err = {0};
    return stk_slurm_call(argv, NULL, NULL, arena, &out, &err) == 0 &&
           stk_slurm_field(out, "JobState", state, 40) &&
           stk_slurm_field(out, "ExitCode", code, 40);
}

/* … and the accounting database, where there is one. */
static bool ask_accounting(const slurm_job *job, char state[40], char code[40])
{
    const char *const argv[] = {
        "sacct",  "--noheader", "--parsable2", "--allocations", "--format=State,ExitCode",
        "--jobs", job->id,      NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *out = NULL;
    stk_err err = {0};
    return stk_slurm_call(argv, NULL, NULL, arena, &out, &err) == 0 &&
           sscanf(out, "%39[^|]|%39s", state, code) == 2;
}

static void ended(slurm_driver *d, slurm_job *job, const char *seen_state)
{
    char state[40] = "", code[40] = "";
    if (strcmp(seen_state, "COMPLETED") == 0 || ask_controller(job, state, code)) {
        report_end(d, job, seen_state, code[0] == '\0' ? NULL : code);
        return;
    }
    report_end(d, job, seen_state, NULL);
}

/* Slurm forgets jobs some minutes after their end (MinJobAge). */
static void missing(slurm_driver *d, slurm_job *job)
{
    char state[40] = "", code[40] = "";
    if (++job->n_missing < MISSING) {
        return;
    }
    if (ask_controller(job, state, code)) {
        if (stk_slurm_phase_of(state) == SLURM_OVER) {
            report_end(d, job, state, code);
        }
    } else if (ask_accounting(job, state, code)) {
        report_end(d, job, state, code);
    } else {
        stk_slurm_fail(d, job, STK_FAIL_LOST, "Slurm no longer knows its job %s", job->id);
    }
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

static void seen(slurm_driver *d, slurm_job *job, const stk_slurm_seen *s)
{
    char text[512];
    stk_slurm_phase phase = stk_slurm_phase_of(s->state);
    job->n_missing = 0;
    if (phase == SLURM_WAITS) {
        stk_slurm_reason(s, text, sizeof text);
        bool is_known = strcmp(s->reason, "None") != 0; /* Slurm hasn't looked at it yet */
        if (is_known && strcmp(text, job->told) != 0) {
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
    if (phase == SLURM_OVER) {
        ended(d, job, s->state);
    }
}

static int look_at_lines(slurm_driver *d, char *text, stk_err *err)
{
    STK_MAP_AUTO by_id = {0};
    uint64_t i_job = 0;
    uint32_t n = d->n_jobs;
    for (uint32_t i = 0; i < n; i++) {
        d->jobs[i]->is_seen = d->jobs[i]->state != SLURM_LIVE;
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
        if (!d->jobs[i]->is_seen) {
            missing(d, d->jobs[i]);
        }
    }
    return 0;
}

/* One request for all jobs: --me leaves the choice to Slurm's controller. */
void stk_slurm_look(slurm_driver *d)
{
    static const char *const argv[] = {
        "squeue", "--me", "--states=all", "--noheader", "-o", stk_slurm_look_format, NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *out = NULL;
    stk_err err = {0};
    int rc = stk_slurm_call(argv, NULL, NULL, arena, &out, &err);
    char *text = rc < 0 ? NULL : stk_arena_dup(arena, out);
    d->next_look_ms = stk_slurm_now_ms() + d->poll_ms;
    if (text == NULL) {
        (void)stk_slurm_wait_out(d, &err);
        return;
    }
    d->is_away = false;
    (void)look_at_lines(d, text, &err);
}
