#include "show/show_alike.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/text.h"
#include "show/show_private.h"

/* --- groups --- */

/* The name without digits ("work_#") or, of a function's calls, without "_2". */
static const char *stem_of(const char *name, bool is_call, stk_arena *arena)
{
    char *stem = stk_arena_dup(arena, name), *to = stem;
    if (stem == NULL) {
        return NULL;
    }
    char *end = strrchr(stem, '_');
    if (is_call) {
        if (end != NULL && end > stem && end[1] != '\0' &&
            end[1 + strspn(end + 1, "0123456789")] == '\0') {
            *end = '\0';
        }
        return stem;
    }
    for (const char *s = name; *s != '\0'; s++) {
        bool is_digit = *s >= '0' && *s <= '9';
        if (!is_digit) {
            *to++ = *s;
        } else if (to == stem || to[-1] != '#') {
            *to++ = '#';
        }
    }
    *to = '\0';
    return stem;
}

static const char *key_of(const stk_view *view, const stk_view_task *task, stk_arena *arena)
{
    if (stk_view_grows(view)) {
        return task->name;
    }
    if (task->step->python != NULL) { /* a step's name has no ':' */
        return task->step->python;
    }
    return stem_of(task->name, false, arena);
}

/* While groups are made: all tasks by key. */
typedef struct kind {
    const char *name;
    uint32_t n, first, at; /* at: in the array of all tasks */
} kind;

/* The name that all calls of the function share, else the function's. */
static int name_kind(const stk_view_task *task, kind *k, stk_arena *arena)
{
    const char *python = task->step->python;
    const char *stem = stem_of(task->name, python != NULL, arena);
    STK_TRY(stem == NULL ? STK_E_NOMEM : 0);
    if (k->name == NULL) {
        k->name = stem;
    } else if (strcmp(k->name, stem) != 0) {
        k->name = stk_text_behind(stk_text_behind(python, ':'), '.');
    }
    return 0;
}

static int find_kinds(const stk_view *view, stk_arena *arena, kind *kinds, uint32_t *kind_of,
                      uint32_t *ret_n)
{
    STK_MAP_AUTO known = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        const char *key = key_of(view, task, arena);
        uint64_t k = n;
        if (key == NULL) {
            return STK_E_NOMEM;
        }
        if (!stk_map_get(&known, key, &k)) {
            STK_TRY(stk_map_put(&known, key, n));
            kinds[n++] = (kind){.first = i};
        }
        kinds[k].n++;
        kind_of[i] = (uint32_t)k;
        if (stk_view_grows(view)) {
            kinds[k].name = task->name;
        } else {
            STK_TRY(name_kind(task, &kinds[k], arena));
        }
    }
    *ret_n = n;
    return 0;
}

static void add_to_sum(const stk_view_task *task, uint32_t i_task, stk_view_step *sum)
{
    uint32_t extra = task->attempt > 1 ? task->attempt - 1 : 0;
    if (sum->n++ == 0) {
        sum->first = i_task;
    }
    sum->by_state[task->state]++;
    sum->n_extra += extra;
    sum->most_attempts = MAX(task->attempt, sum->most_attempts);
    if (task->first_ms > 0 && (sum->started_ms == 0 || task->first_ms < sum->started_ms)) {
        sum->started_ms = task->first_ms;
    }
    sum->ended_ms = MAX(task->ended_ms, sum->ended_ms);
}

int stk_alike_find(const stk_view *view, uint32_t min, stk_arena *arena, stk_alike *ret,
                   stk_err *err)
{
    uint32_t n = stk_view_n_tasks(view), n_kinds = 0, at = 0;
    kind *kinds = stk_arena_array(arena, (size_t)n + 1, sizeof *kinds);
    uint32_t *tasks = stk_arena_array(arena, (size_t)n + 1, sizeof *tasks);
    uint32_t *of = stk_arena_array(arena, (size_t)n + 1, sizeof *of);
    if (kinds == NULL || tasks == NULL || of == NULL ||
        find_kinds(view, arena, kinds, of, &n_kinds) < 0) {
        return stk_err_nomem(err);
    }
    stk_alike_group *groups = stk_arena_array(arena, (size_t)n_kinds + 1, sizeof *groups);
    uint32_t *group_of = stk_arena_array(arena, (size_t)n_kinds + 1, sizeof *group_of);
    if (groups == NULL || group_of == NULL) {
        return stk_err_nomem(err);
    }
    *ret = (stk_alike){.groups = groups, .of = of};
    for (uint32_t k = 0; k < n_kinds; k++) {
        group_of[k] = UINT32_MAX;
        if (kinds[k].n >= min) {
            group_of[k] = ret->n;
            groups[ret->n++] = (stk_alike_group){
                .name = kinds[k].name, .tasks = &tasks[at], .first = kinds[k].first};
            kinds[k].at = at;
            at += kinds[k].n;
        }
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < n; i++) {
            const stk_view_task *task = stk_view_get_task(view, i);
            if ((task->state == STK_TASK_FAILED) == (pass == 0) && group_of[of[i]] != UINT32_MAX) {
                tasks[kinds[of[i]].at++] = i;
                add_to_sum(task, i, &groups[group_of[of[i]]].sum);
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        of[i] = group_of[of[i]];
    }
    return 0;
}

/* --- distributions --- */

typedef struct value {
    double amount;
    bool is_failed;
} value;

static int by_amount(const void *a, const void *b)
{
    const value *x = a, *y = b;
    return (x->amount > y->amount) - (x->amount < y->amount);
}

static void spread_of(value *values, uint32_t n, stk_alike_spread *ret)
{
    *ret = (stk_alike_spread){.n = n};
    if (n == 0) {
        return;
    }
    qsort(values, n, sizeof *values, by_amount);
    ret->min = values[0].amount;
    ret->max = values[n - 1].amount;
    ret->median = (values[(n - 1) / 2].amount + values[n / 2].amount) / 2;
    bool is_wide = ret->max - ret->min > 0.01 * ret->max; /* else they are all the same */
    for (uint32_t i = 0; i < n; i++) {
        double part = 0.5;
        if (is_wide) {
            part = (values[i].amount - ret->min) / (ret->max - ret->min);
        }
        int bin = (int)(part * STK_ALIKE_BINS);
        bin = MIN(bin, STK_ALIKE_BINS - 1);
        ret->bins[bin]++;
        ret->failed[bin] += values[i].is_failed;
    }
}

int stk_alike_measure(const stk_view *view, const stk_alike_group *group, stk_alike_use *ret,
                      stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    value *seconds = stk_arena_array(arena, (size_t)group->sum.n + 1, sizeof *seconds);
    value *memory = stk_arena_array(arena, (size_t)group->sum.n + 1, sizeof *memory);
    uint32_t n_seconds = 0, n_memory = 0;
    ret->cpu_s = -1;
    if (scratch == NULL || seconds == NULL || memory == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < group->sum.n; i++) {
        const stk_view_task *task = stk_view_get_task(view, group->tasks[i]);
        bool is_failed = task->state == STK_TASK_FAILED;
        if (task->started_ms == 0 || task->end_data == NULL || !stk_state_is_final(task->state) ||
            task->state == STK_TASK_CACHED || task->state == STK_TASK_SKIPPED) {
            continue;
        }
        int64_t ms = stk_show_took_ms(task->started_ms, task->ended_ms, 0);
        seconds[n_seconds++] = (value){(double)ms / 1000, is_failed};
        const stk_json *used = stk_json_get(stk_json_read(scratch, task->end_data), "used");
        int64_t bytes = stk_json_get_whole(used, "peak_memory_bytes", -1);
        double cpu_s = stk_json_get_number(used, "cpu_s", -1);
        if (bytes >= 0) {
            memory[n_memory++] = (value){(double)bytes, is_failed};
        }
        if (cpu_s >= 0) {
            ret->cpu_s = cpu_s + MAX(ret->cpu_s, 0);
        }
        stk_arena_reset(scratch);
    }
    spread_of(seconds, n_seconds, &ret->seconds);
    spread_of(memory, n_memory, &ret->memory);
    return 0;
}
