/* Parses the payloads of tasks on demand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "store/view/view_private.h"

const char *stk_view_artifact_path(stk_arena *arena, const char *store, const char *digest)
{
    if (store == NULL || digest == NULL || strlen(digest) < 3) {
        return "";
    }
    return stk_arena_printf(arena, "%s/artifacts/%.2s/%s", store, digest, digest + 2);
}

static stk_view_amounts unknown_amounts(void)
{
    return (stk_view_amounts){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, NULL, 0};
}

static stk_view_amounts asked_of(const stk_step *step)
{
    stk_view_amounts asked = unknown_amounts();
    if (step != NULL && step->settings != NULL) {
        const stk_resources *r = &step->settings->resources;
        asked.cpus = r->cpu_milli < 0 ? -1 : (double)r->cpu_milli / 1000;
        asked.memory_bytes = r->memory_bytes;
        stk_alternative wants[STK_LIMIT_ASKS];
        if (stk_spec_alternatives(r, wants) > 0) {
            asked.n_devices = wants[0].gpu_count;
            asked.n_alternatives = r->n_any_of;
            asked.share_bytes = MAX(wants[0].gpu_memory_bytes, -1);
        } else if (stk_spec_asks_none(r)) {
            asked.n_devices = 0; /* known to be none */
        }
    }
    return asked;
}

static stk_view_amounts granted_of(const stk_json *granted)
{
    stk_view_amounts amounts = unknown_amounts();
    const stk_json *cpus = stk_json_get(granted, "cpus");
    amounts.cpus = stk_json_get_number(granted, "cpu_count", -1);
    if (amounts.cpus < 0 && stk_json_n_items(cpus) > 0) {
        amounts.cpus = (double)stk_json_n_items(cpus); /* of an older store */
    }
    int64_t memory = stk_json_get_whole(granted, "memory_bytes", -1);
    const stk_json *devices = stk_json_get(granted, "devices");
    if (memory > 0) {
        amounts.memory_bytes = memory;
    }
    if (stk_json_is_list(devices)) {
        amounts.n_devices = devices->n;
    }
    amounts.share_bytes = stk_json_get_whole(stk_json_item(devices, 0), "share_bytes", -1);
    return amounts;
}

static stk_view_amounts used_of(const stk_json *used)
{
    stk_view_amounts amounts = unknown_amounts();
    amounts.cpu_s = stk_json_get_number(used, "cpu_s", -1);
    amounts.wall_s = stk_json_get_number(used, "wall_s", -1);
    amounts.memory_bytes = stk_json_get_whole(used, "peak_memory_bytes", -1);
    /* Below some milliseconds the ratio is noise. */
    if (amounts.cpu_s >= 0 && amounts.wall_s >= 0.05) {
        amounts.cpus = amounts.cpu_s / amounts.wall_s;
    }
    amounts.n_devices = stk_json_get_whole(stk_json_get(used, "verdict"), "used", -1);
    amounts.gpu_held_s = stk_json_get_number(used, "gpu_held_s", -1);
    amounts.gpu_busy_s = stk_json_get_number(used, "gpu_busy_s", -1);
    amounts.energy_j = stk_json_get_number(used, "energy_j", -1);
    amounts.read_bytes = stk_json_get_whole(used, "read_bytes", -1);
    amounts.write_bytes = stk_json_get_whole(used, "write_bytes", -1);
    return amounts;
}

static const stk_json *device_of(const stk_json *devices, const char *uuid)
{
    for (uint32_t i = 0; i < stk_json_n_items(devices); i++) {
        const stk_json *device = stk_json_item(devices, i);
        const char *other = stk_json_get_text(device, "uuid");
        if (uuid != NULL && other != NULL && strcmp(uuid, other) == 0) {
            return device;
        }
    }
    return NULL;
}

static int known_bool(const stk_json *object, const char *key)
{
    const stk_json *value = stk_json_get(object, key);
    if (!stk_json_is_kind(value, STK_JSON_BOOL)) {
        return -1;
    }
    return stk_json_is_true(value);
}

static void read_both_devices(const stk_json *granted, const stk_json *used, stk_arena *arena,
                              stk_view_details *d)
{
    const stk_json *list = stk_json_get(granted, "devices");
    const stk_json *seen = stk_json_get(used, "devices");
    const stk_json *verdict = stk_json_get(used, "verdict");
    stk_view_device *devices = stk_arena_array(arena, stk_json_n_items(list) + 1, sizeof *devices);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *g = stk_json_item(list, i);
        const char *uuid = stk_json_get_text(g, "uuid");
        const stk_json *u = device_of(seen, uuid);
        if (devices == NULL) {
            return;
        }
        devices[d->n_devices++] = (stk_view_device){
            .uuid = stk_arena_dup(arena, uuid),
            .model = stk_arena_dup(arena, stk_json_get_text(g, "model")),
            .noun = stk_arena_dup(arena, stk_json_get_text(g, "noun")),
            .index = stk_json_get_whole(g, "index", -1),
            .memory_bytes = stk_json_get_whole(g, "memory_bytes", -1),
            .share_bytes = stk_json_get_whole(g, "share_bytes", 0),
            .context = known_bool(u, "context"),
            .busy_percent = stk_json_get_number(u, "busy_percent_mean", -1),
            .busy_s = stk_json_get_number(u, "busy_s", -1),
            .throttled_s = stk_json_get_number(u, "throttled_s", -1),
            .energy_j = stk_json_get_number(u, "energy_j", -1),
            .peak_memory_bytes = stk_json_get_whole(u, "peak_memory_bytes", -1),
            .peak_temperature_c = stk_json_get_whole(u, "peak_temperature_c", -1)};
    }
    d->devices = devices;
    d->verdict = stk_arena_dup(arena, stk_json_get_text(verdict, "text"));
    d->verdict_cause = stk_arena_dup(arena, stk_json_get_text(verdict, "cause"));
    d->n_devices_used = stk_json_get_whole(verdict, "used", -1);
}

/* The metadata that the step reported at its end, plus what was logged later. */
static const char *all_metadata(const stk_view *view, uint32_t i_task, const char *output,
                                const stk_json *own, stk_arena *arena)
{
    const stk_json *later = stk_view_logged(view, i_task, output);
    if (later == NULL || !stk_json_is_map(own)) {
        const stk_json *only = later != NULL ? later : own;
        if (!stk_json_is_map(only)) {
            return NULL;
        }
        return stk_json_dump_in(only, arena);
    }
    stk_json both = *own;
    if (!stk_json_update(arena, &both, later)) {
        return NULL;
    }
    return stk_json_dump_in(&both, arena);
}

static void read_outputs(const stk_view *view, uint32_t i_task, const stk_json *outputs,
                         stk_arena *arena, stk_view_details *d)
{
    size_t n = stk_json_n_members(outputs);
    stk_view_ref *refs = stk_arena_array(arena, n + 1, sizeof *refs);
    if (refs == NULL) {
        return;
    }
    for (uint32_t k = 0; k < stk_json_n_members(outputs); k++) {
        const char *name = stk_json_key(outputs, k)->text;
        const stk_json *ref = stk_json_value(outputs, k);
        refs[d->n_outputs++] = (stk_view_ref){
            .name = stk_arena_dup(arena, name),
            .digest = stk_arena_dup(arena, stk_json_get_text(ref, "digest")),
            .format = stk_arena_dup(arena, stk_json_get_text(ref, "format")),
            .type = stk_arena_dup(arena, stk_json_get_text(ref, "type")),
            .meta = stk_json_dump_in(stk_json_get(ref, "meta"), arena),
            .metadata = all_metadata(view, i_task, name, stk_json_get(ref, "metadata"), arena),
            .tags = stk_json_dump_in(stk_json_get(ref, "tags"), arena),
            .value = stk_json_dump_in(stk_json_get(ref, "value"), arena),
            .preview = stk_arena_dup(arena, stk_json_get_text(ref, "preview")),
            .artifact_name = stk_arena_dup(arena, stk_json_get_text(ref, "name")),
            .artifact_version = stk_arena_dup(arena, stk_json_get_text(ref, "version")),
            .size = stk_json_get_whole(ref, "size", -1)};
    }
    d->outputs = refs;
}

/* The digest of `output` of task i_task, from the memo. */
static const char *output_digest(const stk_view *view, uint32_t i_task, const char *output)
{
    const char *data = view->tasks[i_task].end_data;
    if (data == NULL) {
        return NULL;
    }
    if (view->memo->data != data) {
        stk_arena_free(view->memo->arena);
        view->memo->arena = stk_arena_new(0);
        view->memo->json = stk_json_read(view->memo->arena, data);
        view->memo->data = data;
    }
    const stk_json *outputs = stk_json_get(view->memo->json, "outputs");
    return stk_json_get_text(stk_json_get(outputs, output), "digest");
}

static const char *source_of(const stk_view *view, const stk_input *input, stk_arena *arena)
{
    switch (input->kind) {
    case STK_INPUT_OUTPUT: {
        const stk_step *step = stk_spec_step(view->spec, input->step);
        return stk_arena_printf(arena, "%s.%s", step->name, step->outputs[input->output].name);
    }
    case STK_INPUT_PARAM:
        return stk_arena_printf(arena, "parameter %s", input->text);
    case STK_INPUT_FILE:
        return stk_arena_printf(arena, "file %s", input->text);
    case STK_INPUT_ARTIFACT:
        return "artifact";
    case STK_INPUT_ITEM:
        return "item";
    case STK_INPUT_LIST:
        if (input->n_items > 0 && input->items[0].kind == STK_INPUT_OUTPUT) {
            return stk_arena_printf(arena, "list of %u, %s …", input->n_items,
                                    source_of(view, &input->items[0], arena));
        }
        return stk_arena_printf(arena, "list of %u", input->n_items);
    case STK_INPUT_VALUE:
        break;
    }
    return "value";
}

/* The task of `i_step` that produced i_task's input; UINT32_MAX: no single one (a join has many).
 */
static uint32_t maker_of(const stk_view *view, uint32_t i_task, uint32_t i_step)
{
    const stk_view_task *task = &view->tasks[i_task];
    if (!view->grows) {
        return i_step;
    }
    return task->n_parents == 1 && view->tasks[task->parents[0]].i_step == i_step ? task->parents[0]
                                                                                  : UINT32_MAX;
}

static void read_inputs(const stk_view *view, uint32_t i_task, const stk_json *digests,
                        stk_arena *arena, stk_view_details *d)
{
    const stk_step *step = view->tasks[i_task].step;
    stk_view_input *inputs = stk_arena_array(arena, (size_t)step->n_inputs + 1, sizeof *inputs);
    for (uint32_t i = 0; inputs != NULL && i < step->n_inputs; i++) {
        const stk_input *input = &step->inputs[i];
        const char *digest = stk_json_get_text(digests, input->name);
        uint32_t maker =
            input->kind == STK_INPUT_OUTPUT ? maker_of(view, i_task, input->step) : UINT32_MAX;
        if (digest == NULL && maker != UINT32_MAX) {
            const stk_step *from = stk_spec_step(view->spec, input->step);
            digest = output_digest(view, maker, from->outputs[input->output].name);
        } else if (input->kind == STK_INPUT_ARTIFACT) {
            digest = input->text;
        }
        const char *value = NULL;
        if (input->kind == STK_INPUT_VALUE) {
            value = input->text;
        } else if (input->kind == STK_INPUT_PARAM) {
            value = stk_json_dump_in(stk_json_get(view->parameters, input->text), arena);
            if (!value) {
                value = stk_spec_param(view->spec, input->i_param)->value;
            }
        }
        inputs[i] = (stk_view_input){input, source_of(view, input, arena),
                                     stk_arena_dup(arena, digest), value};
    }
    d->inputs = inputs;
    d->n_inputs = inputs != NULL ? step->n_inputs : 0;
}

static void read_warnings(const stk_json *warnings, stk_arena *arena, stk_view_details *d)
{
    size_t n = stk_json_n_items(warnings);
    const char **texts = stk_arena_array(arena, n + 1, sizeof *texts);
    for (size_t i = 0; texts != NULL && i < n; i++) {
        const char *text = stk_json_text(stk_json_item(warnings, i));
        if (text != NULL) {
            texts[d->n_warnings++] = stk_arena_dup(arena, text);
        }
    }
    d->warnings = texts;
}

static void read_end(const stk_view *view, uint32_t i_task, const stk_json *end, stk_arena *arena,
                     stk_view_details *d)
{
    const stk_view_task *task = &view->tasks[i_task];
    const stk_json *used = stk_json_get(end, "used");
    d->used = used_of(used);
    if (d->used.wall_s < 0 && task->started_ms > 0 && task->ended_ms >= task->started_ms) {
        d->used.wall_s = (double)(task->ended_ms - task->started_ms) / 1000;
    }
    d->used_json = stk_json_dump_in(used, arena);
    d->metadata = all_metadata(view, i_task, "", stk_json_get(end, "metadata"), arena);
    d->cached_from = stk_arena_dup(arena, stk_json_get_text(end, "from_run"));
    d->unseen = stk_arena_dup(arena, stk_json_get_text(end, "unseen"));
    d->from_task = stk_json_get_whole(end, "from_task", -1);
    const char *because = stk_json_get_text(end, "because");
    uint32_t cause = 0;
    if (because != NULL && !view->grows && stk_view_find(view, because, &cause)) {
        because = view->tasks[cause].title;
    }
    d->because = stk_arena_dup(arena, because);
    d->traceback = stk_arena_dup(arena, stk_json_get_text(end, "traceback"));
    d->where = stk_arena_dup(arena, stk_json_get_text(end, "where"));
    d->rank = stk_json_get_whole(end, "rank", -1);
    d->noticed_us = stk_json_get_whole(end, "noticed_us", -1);
    const char *class = stk_json_get_text(end, "class");
    if (class != NULL) {
        d->error_class = stk_arena_dup(arena, class);
        const char *text = stk_json_get_text(end, "text");
        d->error_text = stk_arena_dup(arena, stk_text_or(text, class));
    } else if (task->state == STK_TASK_SKIPPED) {
        d->error_class = "upstream";
        d->error_text =
            stk_arena_printf(arena, "'%s' did not succeed", stk_text_or(d->because, "?"));
    } else if (task->state == STK_TASK_CANCELLED) {
        const char *text = stk_json_get_text(end, "text");
        d->error_class = "cancelled";
        d->error_text = stk_arena_dup(arena, stk_text_or(text, "cancelled"));
    }
    read_outputs(view, i_task, stk_json_get(end, "outputs"), arena, d);
    read_warnings(stk_json_get(end, "warnings"), arena, d);
}

static void find_checkpoints(const stk_view *view, const stk_view_task *task, stk_arena *arena,
                             stk_view_details *d)
{
    stk_checkpoints found = {.n = 0};
    bool succeeded = task->state == STK_TASK_SUCCEEDED || task->state == STK_TASK_CACHED;
    if (succeeded && task->step != NULL && !task->step->settings->keep_checkpoints) {
        return; /* removed when success was committed */
    }
    const char *path = stk_arena_printf(arena, "%s/runs/%s/%s/%u/checkpoints", view->run.store,
                                        view->run.id, task->name, task->id);
    if (path != NULL) {
        stk_store_checkpoints_look(path, &found);
    }
    if (found.n > 0) {
        d->checkpoints_path = path;
        d->n_checkpoints = found.n;
        d->checkpoint_bytes = stk_store_checkpoints_bytes(path);
    }
}

const char *stk_view_dir(const stk_view *view, const stk_view_task *task, stk_arena *arena)
{
    if (task->attempt == 0 || view->run.store == NULL) {
        return NULL;
    }
    return stk_arena_printf(arena, "%s/runs/%s/%s/%u/%u", view->run.store, view->run.id, task->name,
                            task->id, task->attempt);
}

bool stk_view_has_devices(const stk_view_task *task)
{
    const char *at = NULL;
    if (task->start_data != NULL) {
        at = strstr(task->start_data, "\"devices\":[");
    }
    return at != NULL && at[sizeof "\"devices\":[" - 1] != ']';
}

int stk_view_get_details(const stk_view *view, uint32_t i_task, stk_arena *arena,
                         stk_view_details *ret_details, stk_err *err)
{
    const stk_view_task *task = &view->tasks[i_task];
    stk_view_details d = {.asked = asked_of(task->step)};
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *start = stk_json_read(scratch, task->start_data);
    const stk_json *end = stk_json_read(scratch, task->end_data); /* damaged: nothing is known */
    const stk_json *granted = stk_json_get(start, "granted");
    stk_json both;
    if (stk_json_is_map(granted)) { /* elsewhere: adds what its agent found to the request */
        both = *granted;
        (void)stk_json_update(scratch, &both, stk_json_get(end, "granted"));
        granted = &both;
    }
    d.granted = granted_of(granted);
    d.granted_json = stk_json_dump_in(granted, arena);
    d.image = stk_arena_dup(arena, stk_json_get_text(stk_json_get(granted, "image"), "name"));
    d.miss = stk_arena_dup(arena, stk_json_get_text(start, "miss"));
    read_end(view, i_task, end, arena, &d);
    read_both_devices(granted, stk_json_get(end, "used"), arena, &d);
    const char *noun = d.n_devices > 0 ? d.devices[0].noun : NULL;
    if (noun != NULL && strcmp(noun, "GPU") != 0) {
        d.asked.noun = d.granted.noun = d.used.noun = noun;
    }
    if (noun != NULL && view->run.simulated) {
        d.granted.noun = d.used.noun = stk_arena_printf(arena, "simulated %s", noun);
    }
    read_inputs(view, i_task, stk_json_get(end, "inputs"), arena, &d);
    if (task->attempt > 0 && view->run.store != NULL) {
        d.dir = stk_view_dir(view, task, arena);
        d.stdout_path = stk_arena_printf(arena, "%s/stdout.log", d.dir);
        d.stderr_path = stk_arena_printf(arena, "%s/stderr.log", d.dir);
        if (d.stderr_path == NULL) {
            return stk_err_set(err, STK_E_NOMEM, "out of memory while reading a run");
        }
        find_checkpoints(view, task, arena, &d);
    }
    *ret_details = d;
    return 0;
}

/* --- totals --- */

/* The run and task that produced a cached result. */
struct origin {
    const char *run;
    uint32_t task;
};

static int origin_order(const void *a, const void *b)
{
    const struct origin *x = a, *y = b;
    int by_run = strcmp(x->run, y->run);
    return by_run != 0 ? by_run : (x->task > y->task) - (x->task < y->task);
}

/* The tasks of one run that produced cached results, sorted; their durations come from the events'
 * times. */
struct saving {
    const struct origin *origins;
    size_t n;
    int64_t *started_ms;
    int64_t saved_ms;
};

static int add_saving(void *arg, const stk_event_row *row)
{
    struct saving *saving = arg;
    if (row->kind != STK_EV_TASK_STARTED && row->kind != STK_EV_TASK_SUCCEEDED) {
        return 0;
    }
    size_t lo = 0, hi = saving->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (saving->origins[mid].task < row->task) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    for (; lo < saving->n && saving->origins[lo].task == row->task; lo++) {
        if (row->kind == STK_EV_TASK_STARTED) {
            saving->started_ms[lo] = row->time_ms;
        } else if (saving->started_ms[lo] > 0 && row->time_ms > saving->started_ms[lo]) {
            saving->saved_ms += row->time_ms - saving->started_ms[lo];
        }
    }
    return 0;
}

/* The cache entry names the run and task that made the result; that run's history has the task's
 * duration. Above this many cached steps, computing the savings takes too long. */
enum { MAX_SAVINGS = 1000 };

static double saved_seconds(const stk_view *view, stk_store *store)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    uint32_t n_cached = view->run.n[STK_TASK_CACHED];
    if (arena == NULL || store == NULL || n_cached == 0 || n_cached > MAX_SAVINGS) {
        return 0;
    }
    struct origin *origins = stk_arena_array(arena, n_cached, sizeof *origins);
    int64_t *started = stk_arena_array(arena, n_cached, sizeof *started);
    size_t n = 0;
    for (uint32_t i = 0; origins && started && i < view->n_tasks && n < n_cached; i++) {
        if (view->tasks[i].state != STK_TASK_CACHED) {
            continue;
        }
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *data = stk_json_read(scratch, view->tasks[i].end_data);
        const char *key = stk_json_get_text(data, "key");
        stk_cache_row row = {0};
        if (key != NULL && stk_store_cache_get(store, key, arena, &row, NULL) == 0 && row.run) {
            origins[n++] = (struct origin){row.run, row.task};
        }
    }
    if (n == 0) {
        return 0;
    }
    qsort(origins, n, sizeof *origins, origin_order);
    int64_t saved_ms = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && strcmp(origins[end].run, origins[i].run) == 0;) {
            end++;
        }
        struct saving saving = {origins + i, end - i, started + i, 0};
        if (stk_store_events(store, origins[i].run, 0, add_saving, &saving, NULL) == 0) {
            saved_ms += saving.saved_ms;
        }
    }
    return (double)saved_ms / 1000;
}

static void add_known(double *sum, double amount)
{
    if (amount >= 0) {
        *sum = (*sum < 0 ? 0 : *sum) + amount;
    }
}

static void add_noun(char *noun, size_t size, const char *its)
{
    (void)snprintf(noun, size, "%s", *noun == '\0' || strcmp(noun, its) == 0 ? its : "device");
}

/* Tracks the most devices of one step, and their name, for the totals. */
static void add_devices(const stk_view_task *task, stk_view_totals *totals)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *start = stk_json_read(scratch, task->start_data);
    const stk_json *devices = stk_json_get(stk_json_get(start, "granted"), "devices");
    char noun[sizeof totals->noun] = "";
    for (uint32_t i = 0; i < stk_json_n_items(devices); i++) {
        const stk_json *one = stk_json_item(devices, i);
        const char *its = stk_json_get_text(one, "noun");
        add_noun(noun, sizeof noun, stk_text_or(its, "GPU"));
    }
    if ((int64_t)stk_json_n_items(devices) > totals->most_devices) {
        totals->most_devices = (int64_t)stk_json_n_items(devices);
        (void)strcpy(totals->most_noun, noun);
    }
    add_noun(totals->noun, sizeof totals->noun, noun);
}

int stk_view_total(const stk_view *view, stk_store *store, int64_t now_ms,
                   stk_view_totals *ret_totals, stk_err *err)
{
    (void)err; /* damaged payloads are not counted */
    const stk_view_run *run = &view->run;
    stk_view_totals totals = {.n_tasks = view->n_tasks,
                              .gpu_held_s = -1,
                              .gpu_busy_s = -1,
                              .energy_j = -1,
                              .peak_bytes = -1};
    int64_t start_ms = run->started_ms ? run->started_ms : run->created_ms;
    int64_t end_ms = run->ended_ms ? run->ended_ms : now_ms;
    totals.wall_s = start_ms > 0 && end_ms > start_ms ? (double)(end_ms - start_ms) / 1000 : 0;
    for (int state = 0; state < STK_TASK_N; state++) {
        if (stk_state_is_final(state)) {
            totals.n_done += run->n[state];
        }
    }
    for (uint32_t i = 0; i < view->n_tasks; i++) {
        const stk_view_task *task = &view->tasks[i];
        if (task->started_ms > 0 && stk_view_has_devices(task)) {
            add_devices(task, &totals);
        }
        if (task->started_ms == 0 || task->end_data == NULL) {
            continue;
        }
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *end =
            stk_json_read(scratch, task->end_data); /* damaged: nothing is known */
        stk_view_amounts used = used_of(stk_json_get(end, "used"));
        totals.cpu_s += MAX(used.cpu_s, 0);
        totals.task_s += MAX(used.wall_s, 0);
        totals.peak_bytes = MAX(used.memory_bytes, totals.peak_bytes);
        add_known(&totals.gpu_held_s, used.gpu_held_s);
        add_known(&totals.gpu_busy_s, used.gpu_busy_s);
        add_known(&totals.energy_j, used.energy_j);
    }
    if (totals.noun[0] == '\0') {
        (void)strcpy(totals.noun, "GPU");
    }
    totals.saved_s = saved_seconds(view, store);
    *ret_totals = totals;
    return 0;
}

int stk_view_sum_steps(const stk_view *view, stk_arena *arena, stk_view_sums **ret_sums,
                       stk_err *err)
{
    uint32_t n = stk_spec_n_steps(view->spec);
    stk_view_sums *sums = stk_arena_array(arena, (size_t)n + 1, sizeof *sums);
    if (sums == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory while reading a run");
    }
    for (uint32_t i = 0; i < n; i++) {
        sums[i] = (stk_view_sums){-1, -1, -1, -1};
    }
    for (uint32_t i = 0; i < view->n_tasks; i++) {
        const stk_view_task *task = &view->tasks[i];
        if (task->started_ms == 0 || task->end_data == NULL) {
            continue;
        }
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *end =
            stk_json_read(scratch, task->end_data); /* damaged: nothing is known */
        stk_view_amounts used = used_of(stk_json_get(end, "used"));
        stk_view_sums *sum = &sums[task->i_step];
        add_known(&sum->cpu_s, used.cpu_s);
        add_known(&sum->task_s, used.wall_s);
        add_known(&sum->gpu_held_s, used.gpu_held_s);
        sum->peak_memory_bytes = MAX(used.memory_bytes, sum->peak_memory_bytes);
    }
    *ret_sums = sums;
    return 0;
}
