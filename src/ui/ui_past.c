/* What devices did before anybody looked: by what the stores keep of the tasks that had them. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "host/runner/runner_samples.h"
#include "ui/ui_private.h"

enum { RUNS_MOST = 50, TASKS_MOST = 5000, LOOK_MS = 1000 };

typedef struct past {
    const stk_gpus *gpus;
    ui_look *looks; /* `kept` of each device, the newest last */
    uint32_t kept;
    int64_t now_ms, first_ms; /* of the earliest task */
} past;

/* The look at this time; UINT32_MAX: before the first, or not yet. */
static uint32_t index_of(const past *p, int64_t ms)
{
    int64_t back = (p->now_ms - ms) / LOOK_MS;
    if (ms > p->now_ms || back >= p->kept) {
        return UINT32_MAX;
    }
    return p->kept - 1 - (uint32_t)back;
}

static void lay_use(const past *p, uint32_t device, const stk_samples *samples)
{
    const stk_device *d = p->gpus->rows[device].device;
    for (uint32_t k = 0; k < samples->n_devices; k++) {
        for (uint32_t i = 0; i < samples->n && stk_text_same(samples->uuids[k], d->uuid); i++) {
            const stk_sample *one = &samples->samples[i];
            uint32_t at = index_of(p, samples->start_ms + one->time_ms);
            if (at != UINT32_MAX) {
                ui_look *look = &p->looks[(size_t)device * p->kept + at];
                look->busy = one->devices[k].busy_percent;
                if (one->devices[k].device_memory_bytes >= 0 && d->memory_bytes > 0) {
                    look->memory =
                        (int32_t)(one->devices[k].device_memory_bytes * 100 / d->memory_bytes);
                }
            }
        }
    }
}

static void lay_holder(past *p, uint32_t device, const stk_view *view, const stk_view_task *task)
{
    int64_t end_ms = task->ended_ms > 0 ? task->ended_ms : p->now_ms;
    p->first_ms = MIN(p->first_ms, task->started_ms);
    for (uint32_t at = 0; at < p->kept; at++) {
        ui_look *look = &p->looks[(size_t)device * p->kept + at];
        if (look->ms >= task->started_ms && look->ms <= end_ms) {
            (void)snprintf(look->holder, sizeof look->holder, "run %s step %s",
                           stk_view_get_run(view)->id, task->label);
        }
    }
}

static void lay_task(past *p, const stk_view *view, uint32_t i_task)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const stk_json *start = stk_json_read(arena, task->start_data);
    const stk_json *devices = stk_json_get(stk_json_get(start, "granted"), "devices");
    stk_samples samples = {0};
    const char *dir = stk_view_dir(view, task, arena);
    const char *path = dir == NULL ? NULL : stk_arena_printf(arena, "%s/samples.bin", dir);
    if (path == NULL || stk_samples_load(path, arena, &samples, NULL) < 0) {
        samples = (stk_samples){0};
    }
    for (uint32_t k = 0; k < stk_json_n_items(devices); k++) {
        const char *uuid = stk_json_get_text(stk_json_item(devices, k), "uuid");
        for (uint32_t i = 0; uuid != NULL && i < p->gpus->n; i++) {
            if (stk_text_same(p->gpus->rows[i].device->uuid, uuid)) {
                lay_holder(p, i, view, task);
                lay_use(p, i, &samples);
            }
        }
    }
}

static void lay_run(past *p, stk_store *store, const char *run)
{
    STK_VIEW_AUTO view = NULL;
    if (stk_view_load(store, run, &view, NULL) < 0) {
        return; /* it has gone */
    }
    int64_t since_ms = p->now_ms - (int64_t)p->kept * LOOK_MS;
    bool is_live = stk_view_is_live(view);
    for (uint32_t i = 0; i < MIN(stk_view_n_tasks(view), TASKS_MOST); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        bool has_run = task->started_ms > 0 &&
                       (task->ended_ms >= since_ms || (is_live && task->ended_ms == 0));
        if (has_run && stk_view_has_devices(task) && !stk_view_get_run(view)->simulated) {
            lay_task(p, view, i);
        }
    }
}

uint32_t stk_ui_past(const stk_ui *ui, const stk_gpus *gpus, int64_t now_ms, ui_look *looks,
                     uint32_t kept)
{
    past p = {.gpus = gpus, .looks = looks, .kept = kept, .now_ms = now_ms, .first_ms = now_ms};
    for (uint32_t i = 0; i < gpus->n * kept; i++) {
        looks[i] = (ui_look){
            .ms = now_ms - (int64_t)(kept - 1 - i % kept) * LOOK_MS, .busy = -1, .memory = -1};
    }
    for (uint32_t i = 0; i < ui->n_stores; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_run_row *rows = NULL;
        uint32_t n = 0;
        if (stk_store_list_runs(ui->stores[i].store, NULL, NULL, RUNS_MOST, arena, &rows, &n,
                                NULL) < 0) {
            continue;
        }
        for (uint32_t k = n; k-- > 0;) { /* the newest last */
            if (rows[k].ended_ms == 0 || rows[k].ended_ms >= now_ms - (int64_t)kept * LOOK_MS) {
                lay_run(&p, ui->stores[i].store, rows[k].id);
            }
        }
    }
    return (uint32_t)MIN((now_ms - p.first_ms) / LOOK_MS, kept);
}
