#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "show/plan.h"

enum { WIDTH = 28 }; /* columns for a step's request */

bool stk_show_plan_devices(const stk_run_plan *p, const stk_request *r, stk_devset *ret_devices)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    stk_pack_host host = {devices, p->capacity.n_devices, p->capacity.links};
    if (!stk_accel_is_simulated(p->accel)) {
        return false;
    }
    stk_plan_pack_devices(&p->capacity, devices);
    for (uint32_t k = 0; k < r->n_asks; k++) {
        if (stk_pack_choose(&host, &r->asks[k], NULL, ret_devices)) {
            return true;
        }
    }
    return false;
}

static void put_needs(const stk_run_plan *p, uint32_t i, const char *before, stk_buf *out)
{
    uint32_t n = 0;
    const uint32_t *needs = stk_plan_needs(p->plan, i, &n);
    uint32_t shown = n <= 4 ? n : 3;
    for (uint32_t k = 0; k < shown; k++) {
        stk_buf_printf(out, "%s%s", before, stk_spec_title(p->spec, needs[k]));
        before = ", ";
    }
    if (shown < n) {
        stk_buf_printf(out, " and %u more", n - shown);
    }
}

/* "10 GB of a GPU", "2 GPUs of 4 × NVIDIA L4". Names the devices only if not all of them fit. */
static void put_ask(const stk_run_plan *p, const stk_pack_ask *ask, stk_buf *out)
{
    const stk_capacity *c = &p->capacity;
    const char *noun = NULL;
    bool all = true;
    char memory[32];
    for (uint32_t i = 0; i < c->n_devices; i++) {
        bool wanted = stk_devset_has(&ask->wanted, i);
        if (wanted && noun == NULL) {
            noun = c->devices[i].noun;
        }
        all = all && wanted == c->devices[i].usable;
    }
    noun = stk_text_or(noun, "device");
    (void)stk_units_format_memory((int64_t)ask->share_mib << 20, memory, sizeof memory);
    if (ask->share_mib == 0) {
        stk_buf_printf(out, "%u %s%s", ask->n, noun, stk_text_plural(ask->n));
    } else if (ask->n == 1) {
        stk_buf_printf(out, "%s of a %s", memory, noun);
    } else {
        stk_buf_printf(out, "%s of each of %u %ss", memory, ask->n, noun);
    }
    const char *which = NULL;
    if (!all) {
        which = stk_plan_inventory(c, &ask->wanted, p->arena);
    }
    if (which != NULL) {
        stk_buf_printf(out, " of %s", which);
    }
}

/* "0-3, 6" */
static void put_devices(const stk_devset *set, stk_buf *out)
{
    const char *before = "";
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        uint32_t first = i;
        if (!stk_devset_has(set, i)) {
            continue;
        }
        while (stk_devset_has(set, i + 1)) {
            i++;
        }
        stk_buf_printf(out, i > first ? "%s%u-%u" : "%s%u", before, first, i);
        before = ", ";
    }
}

static void put_request(const stk_run_plan *p, const stk_request *r, bool placed, stk_buf *out)
{
    char memory[32];
    stk_devset devices;
    if (r->cpu_milli > 0 || r->place == 0) {
        stk_buf_printf(out, "%g CPU%s", (double)r->cpu_milli / 1000,
                       stk_text_when(r->cpu_milli != 1000, "s"));
    }
    if (r->memory_bytes > 0) {
        stk_buf_separate(out, ", ");
        stk_buf_text(out, stk_units_format_memory(r->memory_bytes, memory, sizeof memory));
    }
    if (r->place > 0 && r->n_devices > 0) {
        stk_buf_separate(out, ", ");
        stk_buf_printf(out, "%u device%s", r->n_devices, stk_text_plural(r->n_devices));
    }
    for (uint32_t k = 0; k < r->n_asks; k++) {
        stk_buf_text(out, k == 0 ? ", " : " or ");
        put_ask(p, &r->asks[k], out);
    }
    if (r->gpu_memory_auto && r->n_asks > 0) {
        bool known = r->asks[0].share_mib > 0;
        stk_buf_text(out, known ? " (as earlier runs needed)"
                                : " (no earlier run says how much it needs)");
    }
    if (placed && r->n_asks > 0 && stk_show_plan_devices(p, r, &devices)) {
        stk_buf_text(out, ": ");
        put_devices(&devices, out);
    }
    if (r->clamped) {
        stk_buf_text(out, " (less than asked)");
    }
}

/* What a step is granted, and where it runs. */
static void put_grant(const stk_run_plan *p, uint32_t i, stk_buf *out)
{
    const stk_request *r = stk_plan_request(p->plan, i);
    const stk_place *place = &p->containers.places[i];
    const char *image = stk_text_or(place->image, "an image of its own");
    uint32_t ranks = 1;
    if (stk_spec_grows(p->spec)) {
        ranks = stk_run_plan_ranks(p->spec, i);
    }
    STK_BUF_AUTO ask = STK_BUF_INIT(1024);
    if (ranks > 1) {
        stk_buf_printf(&ask, "%u times ", ranks);
    }
    put_request(p, r, ranks == 1, &ask);
    if (place->kind == STK_PLACE_DOCKER) {
        stk_buf_printf(&ask, ", in %s", image);
    }
    if (r->place > 0) {
        stk_buf_separate(&ask, ", ");
        stk_buf_printf(&ask, "on %s (stack '%s')", stk_place_word(place->kind), place->stack->name);
        if (stk_place_in_image(place)) {
            stk_buf_printf(&ask, ", in %s", image);
        }
    }
    if (ask.len > WIDTH) { /* on a new line, so that the reasons stay aligned */
        stk_buf_printf(out, "%s\n%55s", ask.data, "");
    } else {
        stk_buf_printf(out, "%-*s", WIDTH, ask.data);
    }
}

static void put_step(const stk_run_plan *p, uint32_t i, stk_buf *out)
{
    stk_buf_printf(out, "  %-24s ", stk_spec_title(p->spec, i));
    if (stk_spec_grows(p->spec)) {
        put_grant(p, i, out);
        stk_buf_char(out, ' ');
        stk_show_plan_way(p->spec, i, out);
    } else if (p->hits[i]) {
        stk_buf_printf(out, "%-*s", WIDTH, "cached");
        size_t n = out->len;
        put_needs(p, i, " after ", out);
        if (p->reads[i] != NULL) {
            stk_buf_printf(out, "%s reads %s", stk_text_when(out->len > n, ";"), p->reads[i]);
        }
    } else {
        put_grant(p, i, out);
        stk_buf_printf(out, " runs: %s", stk_text_or(p->misses[i], ""));
        put_needs(p, i, "; after ", out);
    }
    stk_buf_char(out, '\n');
}

static void put_title(const stk_run_plan *p, stk_buf *out)
{
    const char *devices = stk_plan_inventory(&p->capacity, NULL, p->arena);
    uint32_t n_away = p->elsewhere.n, n_here = stk_spec_n_steps(p->spec) - n_away;
    if (devices == NULL || strcmp(devices, "none") == 0) {
        devices = "no GPUs";
    }
    stk_buf_printf(out, "%s: ", stk_spec_name(p->spec));
    if (n_away > 0) {
        stk_buf_printf(out, "%u step%s on other machines, ", n_away, stk_text_plural(n_away));
    }
    stk_buf_printf(out, "%u step%s on %s (%g CPUs, %s)\n", n_here, stk_text_plural(n_here),
                   p->capacity.where, (double)p->capacity.cpu_milli / 1000, devices);
}

void stk_show_plan_text(const stk_run_plan *p, stk_buf *out)
{
    const uint32_t *order = stk_plan_order(p->plan);
    uint32_t n = stk_spec_n_steps(p->spec);
    put_title(p, out);
    for (uint32_t i = 0; i < n; i++) {
        put_step(p, order[i], out);
    }
    if (stk_spec_grows(p->spec)) {
        stk_buf_text(out, "the run finds out how many tasks each of them has\n");
    } else {
        stk_buf_printf(out, "%u of %u step%s come%s from the cache\n", p->n_hits, n,
                       stk_text_plural(n), stk_text_when(n == 1, "s"));
    }
    for (uint32_t i = 0; i < p->n_notes; i++) {
        stk_buf_printf(out, "note: %s\n", p->notes[i]);
    }
}
