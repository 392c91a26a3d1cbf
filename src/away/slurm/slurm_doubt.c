/* What squeue leaves open about single jobs: scontrol tells it, and the accounting database, where
 * there is one. */
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_driver.h"
#include "base/map.h"
#include "base/text.h"

/* --- the accounting database --- */

typedef struct ended {
    char id[32], name[64], state[40], code[40];
} ended;

/* Is the line the job's: by its number, by its name, or as a child of an array? */
static bool is_of(const slurm_driver *d, const slurm_job *job, const ended *e)
{
    uint64_t first = 0;
    const char *child = strchr(e->id, '_');
    if (job->id[0] != '\0') {
        return strcmp(e->id, job->id) == 0;
    }
    if (strcmp(e->name, job->spec->name) == 0 && child == NULL) {
        return true;
    }
    if (child == NULL || job->spec->key == NULL ||
        !stk_map_get(&d->children, job->spec->key, &first)) {
        return false;
    }
    for (const stk_remote_child *c = (const stk_remote_child *)(uintptr_t)first; c != NULL;
         c = c->next) {
        char end[32];
        (void)snprintf(end, sizeof end, "_%u", c->index);
        if (strcmp(e->name, c->array) == 0 && strcmp(child, end) == 0) {
            return true;
        }
    }
    return false;
}

/* The youngest comes last. */
static bool find_line(const slurm_driver *d, const slurm_job *job, const char *out, ended *ret)
{
    bool found = false;
    for (const char *line = out; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        ended e;
        line += strspn(line, "\n");
        if (sscanf(line, "%31[^|]|%63[^|]|%39[^|]|%39s", e.id, e.name, e.state, e.code) == 4 &&
            is_of(d, job, &e)) {
            *ret = e;
            found = true;
        }
    }
    return found;
}

static void is_lost(slurm_driver *d, slurm_job *job)
{
    stk_failure class = job->is_stopped ? job->why : STK_FAIL_LOST;
    if (job->id[0] == '\0') {
        stk_slurm_fail(d, job, class, "Slurm has no job %s", job->spec->name);
    } else {
        stk_slurm_fail(d, job, class, "Slurm no longer knows its job %s", job->id);
    }
}

static void take_sacct(slurm_driver *d, const char *out, const stk_err *why)
{
    slurm_job *job = d->asked.jobs[0];
    ended e;
    if (job == NULL) {
        return;
    }
    job->doubt = DOUBT_NONE;
    if (why != NULL || !find_line(d, job, out, &e) || stk_slurm_phase_of(e.state) != SLURM_OVER) {
        is_lost(d, job);
        return;
    }
    (void)snprintf(job->id, sizeof job->id, "%s", e.id);
    stk_slurm_report_end(d, job, e.state, e.code);
}

static void ask_accounting(slurm_driver *d, slurm_job *job)
{
    const char *argv[] = {"sacct",
                          "--noheader",
                          "--parsable2",
                          "--allocations",
                          "--format=JobID,JobName,State,ExitCode",
                          "--jobs",
                          job->id,
                          NULL,
                          NULL};
    enum { N_ALWAYS = 5 };
    STK_BUF_AUTO names = STK_BUF_INIT(1 << 20);
    uint64_t first = 0;
    if (job->id[0] == '\0') {
        stk_buf_text(&names, job->spec->name);
        bool is_child = job->spec->key != NULL && stk_map_get(&d->children, job->spec->key, &first);
        const stk_remote_child *c = (const stk_remote_child *)(uintptr_t)first;
        for (; is_child && c != NULL; c = c->next) {
            stk_buf_printf(&names, ",%s", c->array);
        }
        argv[N_ALWAYS] = "--starttime=now-60days";
        argv[N_ALWAYS + 1] = "--name";
        argv[N_ALWAYS + 2] = stk_text_or(names.data, job->spec->name);
    }
    stk_slurm_ask(d, argv, NULL, NULL, &job, 1, take_sacct);
}

/* --- the controller --- */

static void take_scontrol(slurm_driver *d, const char *out, const stk_err *why)
{
    slurm_job *job = d->asked.jobs[0];
    char state[40] = "", code[40] = "", restarts[40] = "";
    if (job == NULL || (why != NULL && stk_slurm_wait_out(d, why))) {
        return;
    }
    bool is_known = why == NULL && stk_slurm_field(out, "JobState", state, sizeof state) &&
                    stk_slurm_field(out, "ExitCode", code, sizeof code);
    slurm_doubt doubt = job->doubt;
    job->doubt = DOUBT_NONE;
    job->n_missing = 0;
    if (doubt == DOUBT_END) {
        stk_slurm_report_end(d, job, job->end_state, is_known ? code : NULL);
    } else if (doubt == DOUBT_RESTARTS) {
        job->asked_restarts = is_known;
        if (is_known && stk_slurm_field(out, "Restarts", restarts, sizeof restarts) &&
            strcmp(restarts, "0") != 0) {
            stk_slurm_was_requeued(d, job);
        }
    } else if (!is_known) {
        job->doubt = DOUBT_ACCOUNT;
    } else if (stk_slurm_phase_of(state) == SLURM_OVER) {
        stk_slurm_report_end(d, job, state, code);
    }
}

int64_t stk_slurm_ask_doubts(slurm_driver *d)
{
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        slurm_job *job = d->jobs[i];
        if (job->doubt == DOUBT_ACCOUNT) {
            ask_accounting(d, job);
            break;
        }
        if (job->doubt != DOUBT_NONE) {
            const char *const argv[] = {"scontrol", "show", "job", "--oneliner", job->id, NULL};
            stk_slurm_ask(d, argv, NULL, NULL, &job, 1, take_scontrol);
            break;
        }
    }
    return INT64_MAX;
}
