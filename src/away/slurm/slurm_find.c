/* Finds jobs that an earlier engine, or an sbatch with a lost answer, may have submitted: as
 * children of arrays, which the run's lists in the share name, and by their own names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_pilot.h"
#include "base/text.h"

static bool must_look(const slurm_job *job)
{
    return job->state == SLURM_NEW && job->must_look;
}

bool stk_slurm_must_look(const slurm_driver *d)
{
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (must_look(d->jobs[i])) {
            return true;
        }
    }
    return false;
}

/* All of our jobs by name: what Slurm still knows, ended ones too. The youngest of a name wins. */
static int ids_by_name(const char *out, stk_arena *arena, stk_map *ids, stk_err *err)
{
    char *text = stk_arena_dup(arena, out);
    STK_TRY(stk_err_if_null(text, err));
    for (char *line = strtok_r(text, "\n", &text); line != NULL;
         line = strtok_r(NULL, "\n", &text)) {
        stk_slurm_seen seen;
        uint64_t before = 0, id = 0;
        if (!stk_slurm_seen_read(line, &seen) || sscanf(seen.id, "%" SCNu64, &id) != 1) {
            continue;
        }
        if (!stk_map_get(ids, seen.name, &before) || before < id) {
            STK_TRY(stk_map_put(ids, seen.name, id) < 0 ? stk_err_nomem(err) : 0);
        }
    }
    return 0;
}

static bool has_child(slurm_driver *d, slurm_job *job, const stk_map *ids, const char *array,
                      uint32_t index)
{
    uint64_t id = 0;
    char text[48];
    if (!stk_map_get(ids, array, &id)) {
        return false;
    }
    (void)snprintf(text, sizeof text, "%" PRIu64 "_%u", id, index);
    stk_slurm_live(d, job, text);
    return true;
}

/* As a child of the array with which it was submitted, or of one that a list names. */
static bool find_as_child(slurm_driver *d, slurm_job *job, const stk_map *ids)
{
    uint64_t first = 0;
    if (job->array != NULL) {
        return has_child(d, job, ids, job->array->name, job->index);
    }
    if (job->spec->key == NULL || !stk_map_get(&d->children, job->spec->key, &first)) {
        return false;
    }
    for (const stk_remote_child *c = (const stk_remote_child *)(uintptr_t)first; c != NULL;
         c = c->next) {
        stk_remote_array *array = stk_arena_alloc(d->arena, sizeof *array);
        if (array != NULL && has_child(d, job, ids, c->array, c->index)) {
            *array = (stk_remote_array){.name = c->array,
                                        .key = stk_arena_printf(d->arena, "runs/%s/arrays/%s.json",
                                                                d->config.run, c->array)};
            job->array = array->key == NULL ? NULL : array;
            job->index = c->index;
            return true;
        }
    }
    return false;
}

static void found_or_not(slurm_driver *d, slurm_job *job, const stk_map *ids)
{
    uint64_t id = 0;
    char text[32];
    job->must_look = false;
    if (job->leads == NULL && (stk_slurm_pilot_attach(d, job) || find_as_child(d, job, ids))) {
        return;
    }
    job->array = NULL;
    if (stk_map_get(ids, job->spec->name, &id)) {
        (void)snprintf(text, sizeof text, "%" PRIu64, id);
        stk_slurm_live(d, job, text);
    } else if (job->is_stopped) {
        stk_slurm_fail(d, job, job->why, "stopped before its submission");
    } else if (job->spec->attach || job->spec->reads) {
        job->doubt = DOUBT_ACCOUNT;
    }
}

/* The lists of this engine's own arrays aren't needed: their children know them. */
static int read_lists(slurm_driver *d, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    if (d->lists_arena != NULL) {
        return 0;
    }
    STK_TRY(stk_share_open(d->config.share_url, &share, err));
    stk_arena *arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    int rc = stk_remote_arrays_read(share, d->config.run, arena, &d->children, err);
    if (rc < 0) {
        stk_map_done(&d->children);
        d->children = (stk_map){0};
        stk_arena_free(arena);
        return rc;
    }
    d->lists_arena = arena;
    return 0;
}

static int find_pilots(slurm_driver *d, stk_err *err)
{
    bool only_reads = false;
    if (d->has_found_pilots) {
        return 0;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        only_reads = only_reads || d->jobs[i]->spec->reads;
    }
    STK_TRY(stk_slurm_pilots_find(d, only_reads, err));
    d->has_found_pilots = true;
    return 0;
}

static void cant_tell(slurm_driver *d, slurm_job *const *jobs, uint32_t n, const stk_err *why)
{
    for (uint32_t i = 0; i < n; i++) {
        if (jobs[i] != NULL && must_look(jobs[i])) {
            stk_slurm_fail(d, jobs[i], STK_FAIL_LOST, "can't tell whether it was submitted: %s",
                           why->text);
        }
    }
}

static void take_names(slurm_driver *d, const char *out, const stk_err *why)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_MAP_AUTO ids = {0};
    stk_err err = {0};
    const slurm_question *q = &d->asked;
    if (why != NULL && stk_slurm_wait_out(d, why)) {
        return;
    }
    if (why == NULL && ids_by_name(out, arena, &ids, &err) < 0) {
        why = &err;
    }
    if (why != NULL) {
        cant_tell(d, q->jobs, q->n_jobs, why);
        return;
    }
    for (int of_attempts = 0; of_attempts < 2; of_attempts++) { /* they ask for their pilots' */
        for (uint32_t i = 0; i < q->n_jobs; i++) {
            slurm_job *job = q->jobs[i];
            if (job != NULL && must_look(job) && (job->leads == NULL) == of_attempts) {
                found_or_not(d, job, &ids);
            }
        }
    }
}

int64_t stk_slurm_find_jobs(slurm_driver *d)
{
    static const char *const argv[] = {
        "squeue", "--me", "--states=all", "--noheader", "-o", stk_slurm_look_format, NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = {0};
    if (!stk_slurm_must_look(d)) {
        return INT64_MAX;
    }
    int rc = read_lists(d, &err);
    if (rc == 0) {
        rc = find_pilots(d, &err);
    }
    slurm_job **jobs = stk_arena_array(arena, d->n_jobs, sizeof(slurm_job *));
    uint32_t n = 0;
    for (uint32_t i = 0; jobs != NULL && i < d->n_jobs; i++) {
        if (must_look(d->jobs[i])) {
            jobs[n++] = d->jobs[i];
        }
    }
    if (rc < 0) {
        cant_tell(d, jobs, n, &err);
    } else {
        stk_slurm_ask(d, argv, NULL, NULL, jobs, n, take_names);
    }
    return INT64_MAX;
}
