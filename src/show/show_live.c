/* What running tasks use, by their samples: the engine records it only when they end. */
#include <sys/param.h>

#include "base/json.h"
#include "host/runner/runner_samples.h"
#include "show/show_private.h"

static void add_samples(stk_view_amounts *used, const stk_samples *samples)
{
    const stk_sample *last = &samples->samples[samples->n - 1];
    used->cpu_s = (double)MAX(last->cpu_us, 0) / 1e6;
    used->wall_s = (double)last->time_ms / 1000;
    used->cpus = used->wall_s >= 0.05 ? used->cpu_s / used->wall_s : -1;
    used->read_bytes = last->read_bytes;
    used->write_bytes = last->write_bytes;
    for (uint32_t i = 0; i < samples->n; i++) {
        used->memory_bytes = MAX(samples->samples[i].rss_bytes, used->memory_bytes);
    }
}

/* The same as the engine will record it (docs/formats/engine-command-line.md). */
static const char *used_json(const stk_view_amounts *used, stk_arena *arena)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(1024);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_real(&buf, "cpu_s", used->cpu_s);
    stk_json_put_real(&buf, "wall_s", used->wall_s);
    stk_json_put_known_whole(&buf, "peak_memory_bytes", used->memory_bytes);
    stk_json_put_known_whole(&buf, "read_bytes", used->read_bytes);
    stk_json_put_known_whole(&buf, "write_bytes", used->write_bytes);
    stk_json_close(&buf, '}');
    return stk_buf_keep(&buf, arena);
}

int stk_show_details(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_view_details *ret,
                     stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    STK_TRY(stk_view_get_details(view, i_task, arena, ret, err));
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_samples samples = {0};
    if (task->state != STK_TASK_RUNNING || ret->dir == NULL || scratch == NULL) {
        return 0;
    }
    const char *path = stk_arena_printf(scratch, "%s/samples.bin", ret->dir);
    if (path != NULL && stk_samples_load(path, scratch, &samples, NULL) == 0 && samples.n > 0) {
        add_samples(&ret->used, &samples);
        ret->used_json = used_json(&ret->used, arena);
    }
    return 0;
}

int stk_show_total(const stk_view *view, stk_store *store, int64_t now_ms, stk_view_totals *ret,
                   stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_view_total(view, store, now_ms, ret, err));
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        stk_view_details d;
        if (stk_view_get_task(view, i)->state == STK_TASK_RUNNING) {
            STK_TRY(stk_show_details(view, i, arena, &d, err));
            ret->cpu_s += MAX(d.used.cpu_s, 0);
            ret->peak_bytes = MAX(d.used.memory_bytes, ret->peak_bytes);
            stk_arena_reset(arena);
        }
    }
    return 0;
}
