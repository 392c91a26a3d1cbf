#include "show/stack.h"

#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_text.h"

/* --- for programs --- */

/* Writes a number as JSON does: 4.0 even if it is whole. */
static void put_exactly(stk_buf *out, const char *key, double number)
{
    char text[32];
    stk_json_format_real(number, text);
    stk_json_put_raw(out, key, text);
}

/* `r` NULL: the stack gives none. */
static void put_holds_json(const stk_resources *r, const char *key, stk_buf *out)
{
    if (r == NULL) {
        stk_json_put_raw(out, key, "{}");
        return;
    }
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"memory_bytes", r->memory_bytes},
                   {"gpu_count", r->base.gpu_count},
                   {"gpu_memory_bytes", r->base.gpu_memory_bytes}};
    stk_json_open(out, key, '{');
    if (r->cpu_milli >= 0) {
        put_exactly(out, "cpu_count", (double)r->cpu_milli / 1000);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value >= 0) {
            stk_json_put_whole(out, numbers[i].key, numbers[i].value);
        }
    }
    if (r->base.gpu_class != NULL) {
        stk_json_put_text(out, "gpu_class", r->base.gpu_class);
    }
    if (r->base.gpu_vendor != NULL) {
        stk_json_put_text(out, "gpu_vendor", r->base.gpu_vendor);
    }
    stk_json_close(out, '}');
}

static void put_pool_json(const stk_pool *p, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", p->name);
    stk_json_put_int(out, "nodes", p->nodes);
    put_holds_json(&p->holds, "holds", out);
    if (p->price < 0) {
        stk_json_put_text(out, "price", NULL);
    } else {
        put_exactly(out, "price", p->price);
    }
    stk_json_put_raw(out, "options", stk_text_or(p->options, "{}"));
    stk_json_close(out, '}');
}

static void put_elsewhere_json(const stk_stack *s, stk_buf *out)
{
    stk_json_put_text(out, "store", s->store);
    stk_json_put_text(out, "store_from", s->store_from);
    stk_json_put_text(out, "store_volume", s->store_volume);
    stk_json_put_text(out, "carry", s->carry);
    stk_json_put_text(out, "runner_image", s->runner_image);
    stk_json_put_text(out, "carry_volume", s->carry_volume);
    stk_json_put_whole(out, "max_jobs", s->max_jobs);
    stk_json_put_whole(out, "pending_ms", s->pending_ms);
    stk_json_put_raw(out, "options", stk_text_or(s->own_options, "{}"));
    stk_json_open(out, "inherited", '{');
    for (uint32_t i = 0; i < s->n_inherited; i++) {
        stk_json_open(out, s->inherited[i].name, '{');
        stk_json_put_text(out, "value", s->inherited[i].value);
        stk_json_put_text(out, "from", s->inherited[i].from);
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
    put_holds_json(s->defaults, "resources", out);
    put_holds_json(s->limits, "limits", out);
    stk_json_open(out, "pools", '[');
    for (uint32_t i = 0; i < s->n_pools; i++) {
        put_pool_json(&s->pools[i], out);
    }
    stk_json_close(out, ']');
}

void stk_show_stack_json(const stk_stack *s, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", s->name);
    stk_json_put_text(out, "backend", stk_place_word(s->kind));
    stk_json_put_text(out, "file", s->file);
    stk_json_put_text(out, "default_image", s->default_image);
    stk_json_open(out, "image_map", '{');
    for (uint32_t i = 0; i < s->n_image_map; i++) {
        stk_json_put_text(out, s->image_map[i].key, s->image_map[i].value);
    }
    stk_json_close(out, '}');
    stk_json_put_text(out, "registry", s->registry);
    stk_json_put_text(out, "socket", s->socket);
    stk_json_put_known_raw(out, "prices", s->prices.json);
    if (stk_place_is_elsewhere(s->kind)) {
        put_elsewhere_json(s, out);
    }
    stk_json_close(out, '}');
}

/* --- for people --- */

static void put_holds(stk_buf *out, const stk_resources *r)
{
    char size[32];
    const char *comma = "";
    if (r->cpu_milli >= 0) {
        stk_buf_printf(out, "%g CPUs", (double)r->cpu_milli / 1000);
        comma = ", ";
    }
    if (r->memory_bytes >= 0) {
        stk_buf_printf(out, "%s%s", comma,
                       stk_units_format_memory(r->memory_bytes, size, sizeof size));
        comma = ", ";
    }
    uint32_t n_devices = stk_spec_n_devices(r);
    if (n_devices > 0 || stk_spec_asks_none(r)) {
        stk_buf_printf(out, "%s%u × %s", comma, n_devices,
                       stk_text_or(r->base.gpu_class, stk_text_or(r->base.gpu_vendor, "GPU")));
        comma = ", ";
    }
    if (r->base.gpu_memory_bytes > 0) {
        stk_buf_printf(out, " of %s",
                       stk_units_format_memory(r->base.gpu_memory_bytes, size, sizeof size));
    }
    stk_buf_text(out, *comma == '\0' ? "not set\n" : "\n");
}

static void put_line(stk_buf *out, const char *key, const char *value)
{
    if (value != NULL) {
        stk_buf_printf(out, "  %-13s ", key);
        stk_text_safe(out, value, "");
        stk_buf_char(out, '\n');
    }
}

void stk_show_stack_text(const stk_stack *s, stk_buf *out)
{
    char text[64] = "without a limit";
    stk_text_safe(out, s->name, "");
    stk_buf_printf(out, " (%s)\n", stk_place_word(s->kind));
    put_line(out, "from", stk_text_or(s->file, "Stoker's defaults"));
    put_line(out, "default image", s->default_image);
    for (uint32_t i = 0; i < s->n_image_map; i++) {
        stk_buf_printf(out, "  %-14s%s → %s\n", stk_text_when(i == 0, "image map"),
                       s->image_map[i].key, s->image_map[i].value);
    }
    put_line(out, "registry", s->registry);
    put_line(out, "socket", s->socket);
    put_line(out, "prices", s->prices.json);
    if (!stk_place_is_elsewhere(s->kind)) {
        return;
    }
    put_line(out, "store", stk_text_or(s->store, "none: no step can run there yet"));
    put_line(out, "  from", s->store_from);
    put_line(out, "store volume", s->store_volume);
    put_line(out, "carry", s->carry);
    put_line(out, "runner image", s->runner_image);
    put_line(out, "volume", s->carry_volume);
    put_line(out, "options", s->own_options);
    for (uint32_t i = 0; i < s->n_inherited; i++) {
        put_line(out, s->inherited[i].name, s->inherited[i].value);
        put_line(out, "  from", s->inherited[i].from);
    }
    stk_buf_printf(out, "  %-14s%lld\n", "jobs at once", (long long)s->max_jobs);
    if (s->pending_ms != 0) {
        (void)stk_units_format_duration(s->pending_ms, text, sizeof text);
    }
    put_line(out, "pending", text);
    if (s->defaults != NULL) {
        stk_buf_printf(out, "  %-14s", "a step gets");
        put_holds(out, s->defaults);
    }
    if (s->limits != NULL) {
        stk_buf_printf(out, "  %-14s", "at most");
        put_holds(out, s->limits);
    }
    for (uint32_t i = 0; i < s->n_pools; i++) {
        const stk_pool *p = &s->pools[i];
        stk_buf_printf(out, "  pool %s: ", p->name);
        if (p->nodes >= 0) {
            stk_buf_printf(out, "%lld nodes of ", (long long)p->nodes);
        }
        put_holds(out, &p->holds);
        if (p->price >= 0) {
            stk_buf_printf(out, "    %g an hour each\n", p->price);
        }
    }
}

void stk_show_stack_lines(const stk_stack *stacks, uint32_t n, stk_buf *out)
{
    int width = 5;
    for (uint32_t i = 0; i < n; i++) {
        int len = (int)strlen(stacks[i].name);
        width = MAX(len, width);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_stack *s = &stacks[i];
        bool lacks = stk_place_is_elsewhere(s->kind) && s->store == NULL;
        const char *store = lacks ? "no store yet" : s->store;
        stk_buf_printf(out, "%-*s  %-10s  ", width, s->name, stk_place_word(s->kind));
        if (store != NULL) {
            stk_text_safe(out, store, "");
            stk_buf_text(out, "  ");
        }
        stk_buf_printf(out, "%s\n", stk_text_or(s->file, "(default)"));
    }
}
