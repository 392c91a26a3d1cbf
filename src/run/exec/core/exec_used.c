/* What an attempt used, as JSON for the record; and whether that was what it was given. */

#include <sys/param.h>

#include "base/buf.h"
#include "base/text.h"
#include "host/runner/runner_verdict.h"
#include "run/exec/core/exec_end.h"

/* A key that is left out where its value is unknown. */
static void put_real(stk_buf *buf, const char *key, double value)
{
    if (value >= 0) {
        stk_buf_printf(buf, ",\"%s\":%.3f", key, value);
    }
}

static void put_number(stk_buf *buf, const char *key, int64_t value)
{
    if (value >= 0) {
        stk_buf_printf(buf, ",\"%s\":%lld", key, (long long)value);
    }
}

static void put_device(stk_buf *buf, const stk_outcome_device *d)
{
    stk_buf_text(buf, "{\"uuid\":");
    stk_buf_json(buf, stk_text_or(d->uuid, ""));
    if (d->model != NULL) {
        stk_buf_text(buf, ",\"model\":");
        stk_buf_json(buf, d->model);
    }
    if (d->busy_percent_mean >= 0) {
        stk_buf_printf(buf, ",\"busy_percent_mean\":%.1f", d->busy_percent_mean);
    }
    put_real(buf, "busy_s", d->busy_s);
    put_number(buf, "peak_memory_bytes", d->peak_memory_bytes);
    put_number(buf, "share_bytes", d->share_bytes > 0 ? d->share_bytes : -1);
    if (d->context >= 0) {
        stk_buf_printf(buf, ",\"context\":%s", d->context == 1 ? "true" : "false");
    }
    put_real(buf, "energy_j", d->energy_j);
    put_number(buf, "peak_temperature_c", d->peak_temperature_c);
    put_real(buf, "throttled_s", d->throttled_s);
    stk_buf_char(buf, '}');
}

/* Sums over devices; known where one is. A share of a device is held as much as it is of its
 * memory. */
static void put_sums(stk_buf *buf, const stk_outcome *o)
{
    double held = o->n_devices > 0 ? 0 : -1;
    double busy = -1;
    double energy = -1;
    for (uint32_t i = 0; i < o->n_devices; i++) {
        const stk_outcome_device *d = &o->devices[i];
        double part = d->share_bytes > 0 && d->memory_bytes > 0
                          ? (double)d->share_bytes / (double)d->memory_bytes
                          : 1;
        held += (double)o->wall_ms / 1000 * part;
        busy = d->busy_s < 0 ? busy : MAX(busy, 0) + d->busy_s;
        energy = d->energy_j < 0 ? energy : MAX(energy, 0) + d->energy_j;
    }
    put_real(buf, "gpu_held_s", held);
    put_real(buf, "gpu_busy_s", busy);
    put_real(buf, "energy_j", energy);
}

/* The frameworks' own words, where the task left a result. False: no device was granted. */
static bool judge(const stk_outcome *o, const stk_result *result, stk_arena *arena,
                  stk_verdict *ret)
{
    uint32_t n = result != NULL ? result->n_frameworks : 0;
    stk_framework_report *reports = stk_arena_array(arena, n + 1, sizeof *reports);
    for (uint32_t i = 0; reports != NULL && i < n; i++) {
        const stk_result_framework *f = &result->frameworks[i];
        reports[i] = (stk_framework_report){.name = f->name,
                                            .version = f->version,
                                            .build = f->build,
                                            .available = f->available,
                                            .initialized = f->initialized,
                                            .device_count = f->device_count,
                                            .reason = f->reason,
                                            .peak_bytes = f->peak_bytes,
                                            .n_peak_bytes = f->n_peak_bytes};
    }
    const char *noun = o->n_devices > 0 ? o->devices[0].noun : NULL;
    stk_outcome seen = *o;
    seen.mask_changed = o->mask_changed || (result != NULL && result->mask_changed);
    return reports != NULL &&
           stk_runner_verdict(&seen, reports, n, stk_text_or(noun, "GPU"), arena, ret);
}

static void put_verdict(stk_buf *buf, const stk_verdict *v)
{
    stk_buf_printf(buf, ",\"verdict\":{\"granted\":%u", v->granted);
    put_number(buf, "used", v->used);
    stk_buf_printf(buf, ",\"cause\":\"%s\",\"text\":", stk_cause_word(v->cause));
    stk_buf_json(buf, v->text);
    stk_buf_char(buf, '}');
}

const char *stk_exec_used_json(const stk_outcome *o, const stk_result *result, stk_arena *arena,
                               const char **ret_remark)
{
    stk_verdict verdict;
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_buf_printf(&buf, "{\"wall_s\":%.3f", (double)o->wall_ms / 1000);
    if (o->cpu_us >= 0) {
        stk_buf_printf(&buf, ",\"cpu_s\":%.4f", (double)o->cpu_us / 1e6);
    }
    put_number(&buf, "peak_memory_bytes", o->peak_memory_bytes);
    put_number(&buf, "read_bytes", o->read_bytes);
    put_number(&buf, "write_bytes", o->write_bytes);
    put_number(&buf, "exit_status", o->exit_status);
    put_number(&buf, "signal", o->signal > 0 ? o->signal : -1);
    stk_buf_text(&buf, ",\"devices\":[");
    for (uint32_t i = 0; i < o->n_devices; i++) {
        stk_buf_text(&buf, i > 0 ? "," : "");
        put_device(&buf, &o->devices[i]);
    }
    stk_buf_char(&buf, ']');
    put_sums(&buf, o);
    if (judge(o, result, arena, &verdict)) {
        put_verdict(&buf, &verdict);
        bool less = verdict.used >= 0 && (uint32_t)verdict.used < verdict.granted;
        if (less || o->other_device != NULL) {
            *ret_remark = verdict.text;
        }
    }
    stk_buf_char(&buf, '}');
    return buf.failed ? NULL : stk_arena_dup(arena, buf.data);
}
