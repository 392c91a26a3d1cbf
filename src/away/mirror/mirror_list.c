/* Which runs a share has, and which of them are here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/mirror/mirror_private.h"
#include "base/text.h"

int stk_mirror_get_run(stk_mirror *m, const char *id, mirror_run **ret)
{
    uint64_t at = 0;
    if (stk_map_get(&m->by_id, id, &at)) {
        *ret = (mirror_run *)(uintptr_t)at;
        return 0;
    }
    mirror_run *run = calloc(1, sizeof *run);
    if (run == NULL || stk_array_reserve(&m->runs, &m->cap, (uint64_t)m->n + 1, sizeof run) < 0) {
        free(run);
        return STK_E_NOMEM;
    }
    (void)snprintf(run->id, sizeof run->id, "%s", id);
    m->runs[m->n++] = *ret = run; /* in no order until they are listed */
    return stk_map_put(&m->by_id, run->id, (uintptr_t)run);
}

static int note_listed(void *arg, const char *name)
{
    stk_mirror *m = arg;
    mirror_run *run = NULL;
    if (strlen(name) >= sizeof run->id) { /* not a run */
        return 0;
    }
    STK_TRY(stk_mirror_get_run(m, name, &run));
    run->is_listed = true;
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const mirror_run *const *one = a, *const *two = b;
    return strcmp((*one)->id, (*two)->id);
}

/* What an earlier program has brought. */
static int note_own(stk_mirror *m, stk_err *err)
{
    enum { ALL = 10000000 };
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_row *rows = NULL;
    uint32_t n = 0;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_store_list_runs(m->store, NULL, NULL, ALL, arena, &rows, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        mirror_run *run = NULL;
        if (stk_mirror_get_run(m, rows[i].id, &run) < 0) {
            return stk_err_nomem(err);
        }
        run->is_here = true;
    }
    return 0;
}

/* Removes what the share doesn't have any more. */
static int drop_gone(stk_mirror *m, stk_err *err)
{
    for (uint32_t i = 0; i < m->n; i++) {
        mirror_run *run = m->runs[i];
        if (run->is_listed || !run->is_here) {
            continue;
        }
        STK_TRY(stk_mirror_begin_write(m, err));
        int rc = stk_mirror_drop_run(m, run->id, err);
        stk_mirror_end_write(m);
        STK_TRY(rc);
        run->is_here = run->is_ended = false;
    }
    return 0;
}

void stk_mirror_note_counts(stk_mirror *m)
{
    uint32_t n_listed = 0, n_here = 0, n_coming = 0, n_damaged = 0;
    const char *damage = "";
    for (uint32_t i = 0; i < m->n; i++) {
        const mirror_run *run = m->runs[i];
        if (!run->is_listed) {
            continue;
        }
        n_listed++;
        n_here += run->is_here;
        n_coming += !run->is_here && run->damage == NULL;
        n_damaged += run->damage != NULL;
        damage = stk_text_or(run->damage, damage);
    }
    pthread_mutex_lock(&m->lock);
    stk_mirror_state *s = &m->state;
    bool is_same = s->n_runs == n_listed && s->n_here == n_here && s->n_coming == n_coming &&
                   s->n_damaged == n_damaged && strcmp(s->damage, damage) == 0 && s->is_complete;
    s->n_runs = n_listed;
    s->n_here = n_here;
    s->n_coming = n_coming;
    s->n_damaged = n_damaged;
    (void)snprintf(s->damage, sizeof s->damage, "%s", damage);
    s->is_complete = true;
    s->version += !is_same;
    pthread_mutex_unlock(&m->lock);
}

/* Does a share that lists nothing look as if its file system weren't mounted? */
static bool may_be_away(const stk_mirror *m)
{
    const char *folder = stk_share_folder(m->share);
    if (folder != NULL) {
        return !stk_mirror_is_share(folder);
    }
    return strncmp(stk_share_url(m->share), "s3://", 5) != 0;
}

static int check_listed(const stk_mirror *m, stk_err *err)
{
    bool any_listed = false, any_here = false;
    for (uint32_t i = 0; i < m->n; i++) {
        any_listed = any_listed || m->runs[i]->is_listed;
        any_here = any_here || m->runs[i]->is_here;
    }
    if (!any_listed && any_here && may_be_away(m)) {
        return stk_err_set(err, STK_E_ENV,
                           "'%s' has no runs any more; is it the right place, and mounted?",
                           stk_share_url(m->share));
    }
    return 0;
}

int stk_mirror_list_runs(stk_mirror *m, bool *ret_is_listed, stk_err *err)
{
    if (!m->has_own) {
        STK_TRY(note_own(m, err));
        m->has_own = true;
    }
    for (uint32_t i = 0; i < m->n; i++) {
        m->runs[i]->is_listed = false;
    }
    int rc = stk_share_list_folders(m->share, "runs/", note_listed, m, err);
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    STK_TRY(rc);
    STK_TRY(check_listed(m, err));
    if (ret_is_listed != NULL) {
        *ret_is_listed = true;
    }
    if (m->n > 1) {
        qsort(m->runs, m->n, sizeof *m->runs, by_id);
    }
    stk_mirror_note_counts(m);
    return drop_gone(m, err);
}
