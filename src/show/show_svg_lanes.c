/* What each device and the CPUs did during a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "host/runner/runner_samples.h"
#include "show/show_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"

enum {
    LANES_WIDTH = 1060,
    LANES_LABEL = 170,
    LANE_HEIGHT = 34,
    LANE_GAP = 8,
    LANES_AXIS = 26,
    LANES_TOP = 12,
    LANES_MOST = 32,
    ATTEMPTS_MOST = 400, /* whose samples are read */
    BUCKETS = 240,
    LETTER = 7
};

/* An attempt of a task. */
typedef struct lane_attempt {
    const stk_view_task *task;
    uint32_t number;
    int64_t from_ms, to_ms;
    const char *state; /* its colour */
    const char *class; /* of its failure, or NULL */
    bool is_last;
    const stk_json *devices; /* granted; or NULL */
    stk_samples samples;
} lane_attempt;

typedef struct lane {
    const char *uuid; /* NULL: the CPUs */
    const char *label;
} lane;

typedef struct lanes {
    const stk_view *view;
    stk_arena *arena;
    int64_t now_ms;
    lane_attempt *attempts;
    uint32_t n, cap;
    uint32_t n_read;
    lane lanes[LANES_MOST + 1];
    uint32_t n_lanes;
    double cpus[BUCKETS]; /* busy, by time */
    bool has_cpus;
    stk_svg_span span;
    stk_buf *out;
} lanes;

/* --- gathering --- */

static void read_samples_of(lanes *l, lane_attempt *a)
{
    const stk_view_run *run = stk_view_get_run(l->view);
    if (run->store == NULL || l->n_read >= ATTEMPTS_MOST) {
        return;
    }
    const char *path = stk_arena_printf(l->arena, "%s/runs/%s/%s/%u/%u/samples.bin", run->store,
                                        run->id, a->task->name, a->task->id, a->number);
    if (path == NULL || stk_samples_load(path, l->arena, &a->samples, NULL) < 0) {
        a->samples = (stk_samples){0};
    }
    l->n_read += a->samples.n > 0;
}

static void add_lane(lanes *l, const stk_json *device)
{
    const char *uuid = stk_json_get_text(device, "uuid");
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        if (stk_text_same(l->lanes[i].uuid, uuid)) {
            return;
        }
    }
    if (uuid != NULL && l->n_lanes < LANES_MOST) {
        const char *noun = stk_text_or(stk_json_get_text(device, "noun"), "GPU");
        int64_t index = stk_json_get_whole(device, "index", l->n_lanes);
        l->lanes[l->n_lanes++] =
            (lane){uuid, stk_arena_printf(l->arena, "%s %lld", noun, (long long)index)};
    }
}

static int add_attempt(lanes *l, const lane_attempt *one, const char *start, const char *end)
{
    lane_attempt *all = stk_arena_grow(l->arena, l->attempts, l->n, sizeof *all, &l->cap);
    if (all == NULL) {
        return STK_E_NOMEM;
    }
    l->attempts = all;
    lane_attempt *a = &all[l->n++];
    *a = *one;
    a->class = stk_json_get_text(stk_json_read(l->arena, end), "class");
    a->devices = stk_json_get(stk_json_get(stk_json_read(l->arena, start), "granted"), "devices");
    for (uint32_t i = 0; i < stk_json_n_items(a->devices); i++) {
        add_lane(l, stk_json_item(a->devices, i));
    }
    read_samples_of(l, a);
    return 0;
}

static int add_attempts_of_task(lanes *l, uint32_t i_task)
{
    const stk_view_task *task = stk_view_get_task(l->view, i_task);
    int64_t took = stk_show_took_ms(task->started_ms, task->ended_ms, l->now_ms);
    if (task->started_ms == 0 || task->attempt == 0) {
        return 0;
    }
    lane_attempt last = {.task = task,
                         .number = task->attempt,
                         .from_ms = task->started_ms,
                         .to_ms = task->started_ms + took,
                         .state = stk_state_word(task->state),
                         .is_last = task->state != STK_TASK_BACKOFF};
    for (const stk_view_attempt *one = task->earlier; one != NULL; one = one->before) {
        lane_attempt a = {
            task, one->number, one->started_ms, one->ended_ms, "retrying", NULL, false, NULL, {0}};
        STK_TRY(add_attempt(l, &a, one->start_data, one->end_data));
    }
    return add_attempt(l, &last, task->start_data, task->end_data);
}

static void find_lane_span(lanes *l)
{
    int64_t from = stk_view_get_run(l->view)->started_ms, to = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        from = from == 0 ? l->attempts[i].from_ms : MIN(from, l->attempts[i].from_ms);
        to = MAX(to, l->attempts[i].to_ms);
    }
    to = MAX(to, from + 1);
    l->span = (stk_svg_span){from, (double)(to - from) / 1000, LANES_LABEL,
                             LANES_WIDTH - LANES_LABEL - 24};
}

/* Spreads CPU time over the buckets between two moments. */
static void add_cpu_time(lanes *l, double from_ms, double to_ms, double cpu_ms)
{
    double width = l->span.seconds * 1000 / BUCKETS;
    int first = (int)((from_ms - (double)l->span.from_ms) / width);
    int last = (int)((to_ms - (double)l->span.from_ms) / width);
    first = MIN(MAX(first, 0), BUCKETS - 1);
    last = MIN(MAX(last, first), BUCKETS - 1);
    for (int i = first; i <= last; i++) {
        l->cpus[i] += cpu_ms / (last - first + 1) / width;
    }
    l->has_cpus = true;
}

static void sum_cpus(lanes *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const stk_samples *s = &l->attempts[i].samples;
        double before_ms = (double)s->start_ms, before_cpu = 0;
        for (uint32_t k = 0; k < s->n; k++) {
            double at = (double)(s->start_ms + s->samples[k].time_ms);
            double cpu = (double)s->samples[k].cpu_us / 1000;
            if (cpu > before_cpu) {
                add_cpu_time(l, before_ms, at, cpu - before_cpu);
            }
            before_ms = at;
            before_cpu = MAX(cpu, before_cpu);
        }
    }
}

static int by_label(const void *a, const void *b)
{
    const lane *x = a, *y = b;
    return strverscmp(x->label, y->label);
}

/* --- drawing --- */

static double lane_top(uint32_t i)
{
    return LANES_TOP + i * (double)(LANE_HEIGHT + LANE_GAP);
}

static void put_lane(const lanes *l, uint32_t i)
{
    stk_svg_row_label(l->lanes[i].label, LANES_LABEL - 10, lane_top(i) + LANE_HEIGHT / 2.0 + 4,
                      l->out);
    stk_buf_printf(l->out,
                   "<rect class=\"lane\" x=\"%d\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
                   "rx=\"3\"/>\n",
                   LANES_LABEL, lane_top(i), l->span.width, LANE_HEIGHT);
}

/* How busy the device was, as an area below a line of steps. */
static void put_busy_area(const lanes *l, const lane_attempt *a, uint32_t i_device, double top)
{
    const stk_samples *s = &a->samples;
    uint32_t stride = (s->n + BUCKETS - 1) / BUCKETS;
    double bottom = top + LANE_HEIGHT - 1, last = stk_svg_x_of(&l->span, a->from_ms);
    bool any = false;
    for (uint32_t i = 0; i < s->n; i += stride) {
        int32_t busy = -1;
        uint32_t k = i;
        for (; k < s->n && k < i + stride; k++) {
            busy = MAX(busy, s->samples[k].devices[i_device].busy_percent);
        }
        double x = stk_svg_x_of(&l->span, s->start_ms + s->samples[k - 1].time_ms);
        if (!any) {
            stk_buf_printf(l->out, "<path class=\"busy\" d=\"M%.1f %.1f", last, bottom);
            any = true;
        }
        double y = bottom - MAX(busy, 0) / 100.0 * (LANE_HEIGHT - 2);
        stk_buf_printf(l->out, "L%.1f %.1fL%.1f %.1f", last, y, x, y);
        last = x;
    }
    if (any) {
        stk_buf_printf(l->out, "L%.1f %.1fZ\"/>", last, bottom);
    }
}

static void put_holder(const lanes *l, const lane_attempt *a, double top)
{
    char took[32];
    double x = stk_svg_x_of(&l->span, a->from_ms), w = stk_svg_x_of(&l->span, a->to_ms) - x;
    stk_buf_printf(l->out,
                   "<g class=\"s-%s\"><rect class=\"held\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%d\" rx=\"3\"><title>",
                   a->state, x, top, MAX(w, 2), LANE_HEIGHT);
    stk_buf_html(l->out, a->task->title);
    stk_buf_printf(l->out, ", attempt %u: %s</title></rect>", a->number,
                   stk_units_format_duration(a->to_ms - a->from_ms, took, sizeof took));
}

static void put_holder_name(const lanes *l, const lane_attempt *a, double top)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(4096);
    double x = stk_svg_x_of(&l->span, a->from_ms), w = stk_svg_x_of(&l->span, a->to_ms) - x;
    int letters = (int)((w - 10) / LETTER);
    if (letters >= 3) {
        stk_text_fit(&cut, a->task->title, letters, false, true);
        stk_buf_printf(l->out, "<text class=\"holder\" x=\"%.1f\" y=\"%.1f\">", x + 5, top + 13);
        stk_buf_html(l->out, stk_text_or(cut.data, ""));
        stk_buf_text(l->out, "</text>");
    }
}

static bool is_out_of_memory(const char *class)
{
    return stk_text_same(class, "host_oom") || stk_text_same(class, "device_oom") ||
           stk_text_same(class, "gpu_share");
}

/* Where an attempt ended before its time. */
static void put_end_mark(const lanes *l, const lane_attempt *a, double top)
{
    const char *class = "again", *word = "retry";
    double x = stk_svg_x_of(&l->span, a->to_ms);
    if (is_out_of_memory(a->class)) {
        class = "oom";
        word = "OOM";
    } else if (stk_text_same(a->class, "preempted")) {
        class = "taken";
        word = "preempted";
    } else if (a->is_last) {
        return;
    }
    stk_buf_printf(l->out,
                   "<line class=\"end-mark %s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" "
                   "y2=\"%.1f\"/><text class=\"end-word %s\" x=\"%.1f\" y=\"%.1f\">%s<title>",
                   class, x, top - 3, x, top + LANE_HEIGHT + 3, class, x - 4, top + LANE_HEIGHT - 5,
                   word);
    stk_buf_html(l->out, a->task->title);
    stk_buf_printf(l->out, ", attempt %u: ", a->number);
    stk_buf_html(l->out, stk_text_or(a->class, "its end is unknown"));
    stk_buf_text(l->out, "</title></text>\n");
}

static int64_t sampled_device(const stk_samples *s, const char *uuid)
{
    for (uint32_t i = 0; i < s->n_devices; i++) {
        if (strcmp(s->uuids[i], uuid) == 0) {
            return i;
        }
    }
    return -1;
}

static void put_holders(const lanes *l, uint32_t i_lane)
{
    const char *uuid = l->lanes[i_lane].uuid;
    double top = lane_top(i_lane);
    for (uint32_t i = 0; i < l->n; i++) {
        const lane_attempt *a = &l->attempts[i];
        bool holds = false;
        for (uint32_t k = 0; k < stk_json_n_items(a->devices); k++) {
            holds = holds ||
                    stk_text_same(stk_json_get_text(stk_json_item(a->devices, k), "uuid"), uuid);
        }
        if (holds) {
            int64_t i_device = sampled_device(&a->samples, uuid);
            put_holder(l, a, top);
            if (i_device >= 0) {
                put_busy_area(l, a, (uint32_t)i_device, top);
            }
            put_holder_name(l, a, top);
            put_end_mark(l, a, top);
            stk_buf_text(l->out, "</g>\n");
        }
    }
}

static void put_cpu_lane(const lanes *l, uint32_t i_lane, double n_cpus)
{
    double top = lane_top(i_lane), bottom = top + LANE_HEIGHT, width = l->span.width / BUCKETS;
    stk_buf_printf(l->out, "<path class=\"busy cpus\" d=\"M%d %.1f", LANES_LABEL, bottom);
    for (int i = 0; i < BUCKETS; i++) {
        double y = bottom - MIN(l->cpus[i] / n_cpus, 1) * LANE_HEIGHT;
        stk_buf_printf(l->out, "L%.1f %.1fL%.1f %.1f", LANES_LABEL + i * width, y,
                       LANES_LABEL + (i + 1) * width, y);
    }
    stk_buf_printf(l->out, "L%.1f %.1fZ\"/>\n", LANES_LABEL + l->span.width, bottom);
    for (uint32_t i = 0; i < l->n; i++) { /* those of devices are marked there */
        if (stk_json_n_items(l->attempts[i].devices) == 0) {
            put_end_mark(l, &l->attempts[i], top);
        }
    }
}

static void draw_lanes(lanes *l)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *host = stk_json_read(scratch, stk_view_get_run(l->view)->host);
    double n_cpus = (double)MAX(stk_json_get_whole(host, "cpus", 1), 1);
    uint32_t n_devices = l->n_lanes;
    qsort(l->lanes, n_devices, sizeof *l->lanes, by_label);
    if (l->has_cpus) {
        l->lanes[l->n_lanes++] = (lane){NULL, stk_arena_printf(l->arena, "%.0f CPU%s", n_cpus,
                                                               stk_text_plural((uint64_t)n_cpus))};
    }
    double height = lane_top(l->n_lanes);
    stk_buf_printf(l->out,
                   "<svg class=\"timeline\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
                   "aria-label=\"what devices and CPUs did\">\n",
                   LANES_WIDTH, height + LANES_AXIS);
    for (uint32_t i = 0; i < l->n_lanes; i++) {
        put_lane(l, i);
    }
    stk_svg_axis(&l->span, height, l->out);
    for (uint32_t i = 0; i < n_devices; i++) {
        put_holders(l, i);
    }
    if (l->has_cpus) {
        put_cpu_lane(l, n_devices, n_cpus);
    }
    stk_buf_text(l->out, "</svg>\n");
}

int stk_svg_lanes(const stk_view *view, int64_t now_ms, stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    lanes l = {.view = view, .arena = arena, .now_ms = now_ms, .out = out};
    STK_TRY(stk_err_if_null(arena, err));
    for (uint32_t i = 0; i < stk_view_n_tasks(view) && l.n < 4 * ATTEMPTS_MOST; i++) {
        if (add_attempts_of_task(&l, i) < 0) {
            return stk_err_nomem(err);
        }
    }
    find_lane_span(&l);
    sum_cpus(&l);
    if (l.n_lanes > 0 || l.has_cpus) {
        draw_lanes(&l);
    }
    return 0;
}
