/* A growing run as JSON: steps with their tasks counted, single tasks, and what each of them
 * sees. */
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/map.h"
#include "base/text.h"
#include "show/show_json.h"
#include "show/show_private.h"
#include "show/show_task_card.h"

static void put_count(stk_buf *out, const stk_view_step *step)
{
    stk_json_open(out, "tasks", '{');
    stk_json_put_int(out, "n", step->n);
    for (int state = 0; state < STK_TASK_N; state++) {
        if (step->by_state[state] > 0) {
            stk_json_put_int(out, stk_state_word((stk_task_state)state), step->by_state[state]);
        }
    }
    stk_buf_char(out, '}');
}

static uint32_t first_failed(const stk_view *view, uint32_t i_step)
{
    uint32_t n = stk_view_get_step(view, i_step)->by_state[STK_TASK_FAILED], found = UINT32_MAX;
    for (uint32_t i = n > 0 ? stk_view_get_step(view, i_step)->first : stk_view_n_tasks(view);
         i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->i_step == i_step && task->state == STK_TASK_FAILED &&
            (found == UINT32_MAX || task->ended_ms < stk_view_get_task(view, found)->ended_ms)) {
            found = i;
        }
    }
    return found;
}

/* The members that every step has, for a step with several tasks or none. */
static int put_many(const stk_view *view, uint32_t i_step, const stk_view_sums *sums,
                    stk_arena *arena, stk_buf *out, stk_err *err)
{
    const stk_view_step *step = stk_view_get_step(view, i_step);
    const stk_step *spec = stk_spec_step(stk_view_spec(view), i_step);
    stk_task_state worst = stk_view_worst(step);
    bool cached = step->n > 0 && step->by_state[STK_TASK_CACHED] == step->n;
    uint32_t failed = first_failed(view, i_step);
    stk_view_details d = {.asked = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL, 0}};
    if (step->n > 0) {
        STK_TRY(
            stk_show_details(view, failed == UINT32_MAX ? step->first : failed, arena, &d, err));
    }
    stk_json_put_text(out, "status", stk_state_word(worst));
    stk_json_put_bool(out, "cached", cached);
    stk_json_put_text(out, "cached_from", NULL);
    stk_json_put_int(out, "attempts", step->most_attempts);
    stk_json_put_int(out, "started_ms", step->started_ms);
    stk_json_put_int(out, "ended_ms", stk_show_n_final(step) == step->n ? step->ended_ms : 0);
    stk_show_asked(out, &d.asked, spec);
    stk_show_raw(out, "granted", NULL, "{}");
    stk_json_open(out, "used", '{');
    stk_show_put_amount(out, "cpu_s", sums->cpu_s);
    if (sums->peak_memory_bytes >= 0) {
        stk_json_put_int(out, "peak_memory_bytes", sums->peak_memory_bytes);
    }
    stk_show_put_amount(out, "gpu_held_s", sums->gpu_held_s);
    stk_json_close(out, '}');
    stk_show_raw(out, "inputs", NULL, "{}");
    stk_show_raw(out, "outputs", NULL, "{}");
    stk_show_raw(out, "metadata", NULL, "{}");
    stk_json_put_text(out, "miss", NULL);
    if (failed != UINT32_MAX) {
        stk_show_error(out, stk_view_get_task(view, failed), &d, arena);
    } else {
        stk_show_raw(out, "error", NULL, "null");
    }
    stk_show_raw(out, "warnings", NULL, "[]");
    stk_json_open(out, "logs", '{');
    stk_json_put_text(out, "stdout", NULL);
    stk_json_put_text(out, "stderr", NULL);
    stk_json_close(out, '}');
    stk_json_put_text(out, "source", spec->source);
    stk_json_put_text(out, "dir", NULL);
    return 0;
}

/* --- one task --- */

static void put_ids(const stk_view_task *task, stk_buf *out)
{
    stk_json_open(out, "parents", '[');
    for (uint32_t i = 0; i < task->n_parents; i++) {
        stk_buf_printf(out, i > 0 ? ",%u" : "%u", task->parents[i] + 1);
    }
    stk_buf_char(out, ']');
}

static int put_frames(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                      stk_err *err)
{
    stk_view_frame *frames;
    uint32_t n = 0;
    STK_TRY(stk_view_foreach(view, i_task, arena, &frames, &n, err));
    stk_json_open(out, "foreach", '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_open(out, NULL, '[');
        stk_json_put_text(out, NULL, stk_view_get_task(view, frames[i].task)->name);
        stk_buf_printf(out, ",%u,%u]", frames[i].index, frames[i].n);
    }
    stk_json_close(out, ']');
    return 0;
}

/* The refs of several tasks, each listed once. */
typedef struct shared {
    stk_map numbers;
    stk_arena *keep;
    stk_buf *out;
    uint32_t n;
} shared;

static void put_ref(const stk_view *view, const stk_view_artifact *one, stk_arena *arena,
                    stk_buf *out)
{
    size_t len = strlen(one->ref);
    stk_buf_add(out, one->ref, MAX(len, 1) - 1); /* all but its closing brace */
    stk_json_put_text(out, "path",
                      stk_view_artifact_path(arena, stk_view_get_run(view)->store, one->digest));
    stk_buf_char(out, '}');
}

static int put_number(const stk_view *view, const stk_view_artifact *one, stk_arena *arena,
                      shared *refs, stk_buf *out, stk_err *err)
{
    uint64_t number = 0;
    if (!stk_map_get(&refs->numbers, one->ref, &number)) {
        const char *key = stk_arena_dup(refs->keep, one->ref);
        number = refs->n++;
        if (key == NULL || stk_map_put(&refs->numbers, key, number) < 0) {
            return stk_err_nomem(err);
        }
        if (number > 0) {
            stk_buf_text(refs->out, ",\n");
        }
        put_ref(view, one, arena, refs->out);
    }
    stk_buf_printf(out, "%u", (uint32_t)number);
    return 0;
}

/* refs: the list to add the artifacts to, with numbers here; NULL: writes them here in full. */
static int put_artifacts(const stk_view *view, const stk_view_scope *scope, stk_arena *arena,
                         shared *refs, stk_buf *out, stk_err *err)
{
    stk_json_open(out, "artifacts", '{');
    for (uint32_t i = 0; i < scope->n; i++) {
        const stk_view_artifact *one = &scope->items[i];
        stk_json_put_key(out, one->name);
        if (refs != NULL) {
            STK_TRY(put_number(view, one, arena, refs, out, err));
        } else {
            put_ref(view, one, arena, out);
        }
    }
    stk_json_close(out, '}');
    return 0;
}

static int put_scope(const stk_view *view, uint32_t i_task, uint32_t rank, stk_arena *arena,
                     shared *refs, stk_buf *out, stk_err *err)
{
    stk_view_scope scope;
    STK_TRY(stk_view_get_scope(view, i_task, rank, arena, &scope, err));
    return put_artifacts(view, &scope, arena, refs, out, err);
}

/* What the attempts before the last had made, by rank; the newest first. */
static int put_earlier(const stk_view *view, uint32_t i_task, stk_arena *arena, shared *refs,
                       stk_buf *out, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    stk_json_open(out, "earlier", '[');
    for (const stk_view_attempt *one = task->earlier; one != NULL; one = one->before) {
        stk_json_open(out, NULL, '{');
        stk_json_put_whole(out, "attempt", one->number);
        stk_json_put_whole(out, "ended_ms", one->ended_ms);
        stk_json_open(out, "ranks", '[');
        for (uint32_t k = 0; k < MAX(task->ranks, 1); k++) {
            stk_view_scope scope;
            STK_TRY(stk_view_attempt_scope(view, i_task, k, one, arena, &scope, err));
            stk_json_open(out, NULL, '{');
            STK_TRY(put_artifacts(view, &scope, arena, refs, out, err));
            stk_json_close(out, '}');
        }
        stk_json_close(out, ']');
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    return 0;
}

/* The members that only the document of a single step or task has. */
static int put_inside(const stk_view *view, uint32_t i_task, const stk_view_details *d,
                      stk_arena *arena, shared *refs, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *used = stk_json_read(scratch, d->used_json);
    const char *verdict = stk_json_dump_in(stk_json_get(used, "verdict"), arena);
    uint32_t n_ranks = stk_view_get_task(view, i_task)->ranks;
    STK_TRY(put_scope(view, i_task, 0, arena, refs, out, err));
    stk_show_raw(out, "metadata", d->metadata, "{}");
    stk_show_raw(out, "granted", d->granted_json, "{}");
    stk_show_raw(out, "used", d->used_json, "{}");
    stk_show_raw(out, "verdict", verdict, "null");
    stk_json_put_text(out, "miss", d->miss);
    stk_show_put_texts(out, "warnings", d->warnings, d->n_warnings);
    stk_json_put_key(out, "cards");
    STK_TRY(stk_task_cards_json(view, i_task, -1, arena, out, err));
    stk_json_open(out, "ranks", '[');
    for (uint32_t k = 0; k < n_ranks; k++) {
        stk_json_open(out, NULL, '{');
        STK_TRY(put_scope(view, i_task, k, arena, refs, out, err));
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    return put_earlier(view, i_task, arena, refs, out, err);
}

static int put_one(const stk_view *view, uint32_t i_task, bool inside, stk_arena *arena,
                   shared *refs, stk_buf *out, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    stk_view_details d = {.from_task = -1};
    /* Reading the payload of each succeeded task would be slow: there may be ten thousand. */
    bool dull = !inside && (task->state == STK_TASK_SUCCEEDED || task->end_data == NULL);
    if (!dull) {
        STK_TRY(stk_show_details(view, i_task, arena, &d, err));
    }
    const char *dir = NULL, *out_path = NULL, *err_path = NULL;
    if (task->attempt > 0 && stk_view_get_run(view)->store != NULL) {
        dir = stk_arena_printf(arena, "%s/runs/%s/%s/%u", stk_view_get_run(view)->store,
                               stk_view_get_run(view)->id, task->label, task->attempt);
        out_path = stk_arena_printf(arena, "%s/stdout.log", dir);
        err_path = stk_arena_printf(arena, "%s/stderr.log", dir);
    }
    d.dir = dir;
    stk_buf_char(out, '{');
    stk_json_put_int(out, "id", task->id);
    stk_json_put_text(out, "step", task->name);
    stk_json_put_text(out, "status", stk_view_status(view, task, false));
    stk_json_put_bool(out, "cached", task->state == STK_TASK_CACHED);
    stk_json_put_text(out, "from_run", d.cached_from);
    stk_json_put_int(out, "from_task", d.from_task < 0 ? -1 : d.from_task + 1);
    stk_json_put_int(out, "attempts", task->attempt);
    stk_json_put_int(out, "started_ms", task->first_ms ? task->first_ms : task->ended_ms);
    stk_json_put_int(out, "ended_ms", task->ended_ms);
    put_ids(task, out);
    STK_TRY(put_frames(view, i_task, arena, out, err));
    stk_json_put_int(out, "split", task->split == UINT32_MAX ? -1 : (int64_t)task->split + 1);
    stk_json_put_int(out, "branch", task->branch);
    if (!inside) {
        stk_json_put_int(out, "ranks", task->ranks);
    }
    stk_show_error(out, task, &d, arena);
    stk_json_put_text(out, "dir", dir);
    stk_json_open(out, "logs", '{');
    stk_json_put_text(out, "stdout", out_path);
    stk_json_put_text(out, "stderr", err_path);
    stk_json_close(out, '}');
    if (inside) {
        STK_TRY(put_inside(view, i_task, &d, arena, refs, out, err));
    }
    stk_json_close(out, '}');
    return 0;
}

/* --- all --- */

int stk_show_put_grown(const stk_view *view, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO keep = stk_arena_new(0);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_sums *sums = NULL;
    if (keep == NULL || arena == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_view_sum_steps(view, keep, &sums, err));
    for (uint32_t i = 0; i < stk_spec_n_steps(stk_view_spec(view)); i++) {
        const stk_view_step *step = stk_view_get_step(view, i);
        stk_arena_reset(arena);
        stk_json_open(out, stk_spec_step(stk_view_spec(view), i)->name, '{');
        if (step->n == 1) {
            STK_TRY(stk_show_task_members(view, step->first, arena, out, err));
        } else {
            STK_TRY(put_many(view, i, &sums[i], arena, out, err));
        }
        put_count(out, step);
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
    stk_json_open(out, "tasks", '[');
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        stk_arena_reset(arena);
        if (i > 0) {
            stk_buf_text(out, ",\n");
        }
        STK_TRY(put_one(view, i, false, arena, NULL, out, err));
    }
    stk_json_close(out, ']');
    return 0;
}

int stk_show_json_step(const stk_view *view, uint32_t i_step, uint32_t i_task, bool by_number,
                       stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_ARENA_AUTO keep = stk_arena_new(0);
    STK_BUF_AUTO listed = STK_BUF_INIT(out->max);
    shared refs = {.keep = keep, .out = &listed};
    if (arena == NULL || keep == NULL) {
        return stk_err_nomem(err);
    }
    shared *by = by_number ? &refs : NULL;
    int rc = 0;
    const char *comma = "";
    stk_buf_char(out, '{');
    stk_json_put_text(out, "run", stk_view_get_run(view)->id);
    stk_json_put_text(out, "step", stk_spec_step(stk_view_spec(view), i_step)->name);
    stk_json_open(out, "tasks", '[');
    for (uint32_t i = 0; rc == 0 && i < stk_view_n_tasks(view); i++) {
        bool is_asked = i == i_task;
        if (i_task == UINT32_MAX) {
            is_asked = stk_view_get_task(view, i)->i_step == i_step;
        }
        if (is_asked) {
            stk_arena_reset(arena);
            stk_buf_text(out, comma);
            rc = put_one(view, i, true, arena, by, out, err);
            comma = ",\n";
        }
    }
    stk_map_done(&refs.numbers);
    stk_buf_char(out, ']');
    if (by_number) {
        stk_json_open(out, "refs", '[');
        stk_buf_add(out, stk_text_or(listed.data, ""), listed.len);
        stk_buf_char(out, ']');
        out->failed = out->failed || listed.failed;
    }
    stk_buf_text(out, "}\n");
    STK_TRY(rc);
    return stk_show_check(out, err);
}
