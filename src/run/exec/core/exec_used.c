/* Writes an attempt's use as JSON, and compares it with the grant. */
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "host/runner/runner_verdict.h"
#include "run/exec/core/exec_end.h"

/* These leave out a member whose value is unknown. */
static void put_real(stk_buf *buf, const char *key, int decimals, double value)
{
    if (value >= 0) {
        stk_json_put_key(buf, key);
        stk_buf_printf(buf, "%.*f", decimals, value);
    }
}

static void put_device(stk_buf *buf, const stk_outcome_device *d)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "uuid", stk_text_or(d->uuid, ""));
    stk_json_put_known_text(buf, "model", d->model);
    put_real(buf, "busy_percent_mean", 1, d->busy_percent_mean);
    put_real(buf, "busy_s", 3, d->busy_s);
    stk_json_put_known_whole(buf, "peak_memory_bytes", d->peak_memory_bytes);
    if (d->share_bytes > 0) {
        stk_json_put_whole(buf, "share_bytes", d->share_bytes);
    }
    if (d->context >= 0) {
        stk_json_put_bool(buf, "context", d->context == 1);
    }
    put_real(buf, "energy_j", 3, d->energy_j);
    stk_json_put_known_whole(buf, "peak_temperature_c", d->peak_temperature_c);
    put_real(buf, "throttled_s", 3, d->throttled_s);
    stk_json_close(buf, '}');
}

static void add_known(double *sum, double part)
{
    if (part >= 0) {
        *sum = MAX(*sum, 0) + part;
    }
}

/* Sums over devices; known if one is. A share counts by its part of the device's memory. */
static void put_sums(stk_buf *buf, const stk_outcome *o)
{
    double held = -1, busy = -1, energy = -1;
    for (uint32_t i = 0; i < o->n_devices; i++) {
        const stk_outcome_device *d = &o->devices[i];
        double part = 1;
        if (d->share_bytes > 0 && d->memory_bytes > 0) {
            part = (double)d->share_bytes / (double)d->memory_bytes;
        }
        add_known(&held, (double)o->wall_ms / 1000 * part);
        add_known(&busy, d->busy_s);
        add_known(&energy, d->energy_j);
    }
    put_real(buf, "gpu_held_s", 3, held);
    put_real(buf, "gpu_busy_s", 3, busy);
    put_real(buf, "energy_j", 3, energy);
}

/* Judges the use of devices, with the frameworks' reports if there is a result. Returns false if no
 * device was granted. */
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
    stk_json_open(buf, "verdict", '{');
    stk_json_put_whole(buf, "granted", v->granted);
    stk_json_put_known_whole(buf, "used", v->used);
    stk_json_put_text(buf, "cause", stk_cause_word(v->cause));
    stk_json_put_text(buf, "text", v->text);
    stk_json_close(buf, '}');
}

const char *stk_exec_used_json(const stk_outcome *o, const stk_result *result, stk_arena *arena,
                               const char **ret_remark)
{
    stk_verdict verdict;
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_json_open(&buf, NULL, '{');
    put_real(&buf, "wall_s", 3, (double)o->wall_ms / 1000);
    put_real(&buf, "cpu_s", 4, (double)o->cpu_us / 1e6);
    stk_json_put_known_whole(&buf, "peak_memory_bytes", o->peak_memory_bytes);
    stk_json_put_known_whole(&buf, "read_bytes", o->read_bytes);
    stk_json_put_known_whole(&buf, "write_bytes", o->write_bytes);
    stk_json_put_known_whole(&buf, "exit_status", o->exit_status);
    if (o->signal > 0) {
        stk_json_put_whole(&buf, "signal", o->signal);
    }
    stk_json_open(&buf, "devices", '[');
    for (uint32_t i = 0; i < o->n_devices; i++) {
        put_device(&buf, &o->devices[i]);
    }
    stk_json_close(&buf, ']');
    put_sums(&buf, o);
    if (judge(o, result, arena, &verdict)) {
        put_verdict(&buf, &verdict);
        bool less = verdict.used >= 0 && (uint32_t)verdict.used < verdict.granted;
        if (less || o->other_device != NULL) {
            *ret_remark = verdict.text;
        }
    }
    stk_json_close(&buf, '}');
    return stk_buf_keep(&buf, arena);
}
