#include "base/json.h"
#include "show/plan.h"

static void put_devices(const stk_devset *set, const char *key, stk_buf *out)
{
    stk_json_open(out, key, '[');
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        if (stk_devset_has(set, i)) {
            stk_json_put_whole(out, NULL, i);
        }
    }
    stk_json_close(out, ']');
}

static void put_asks(const stk_run_plan *p, const stk_request *r, stk_buf *out)
{
    stk_devset devices;
    stk_json_open(out, "asks", '[');
    for (uint32_t k = 0; k < r->n_asks; k++) {
        const stk_pack_ask *ask = &r->asks[k];
        stk_json_open(out, NULL, '{');
        stk_json_put_whole(out, "count", ask->n);
        stk_json_put_int(out, "share_bytes",
                         ask->share_mib > 0 ? (int64_t)ask->share_mib << 20 : -1);
        put_devices(&ask->wanted, "of", out);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    if (stk_show_plan_devices(p, r, &devices)) {
        put_devices(&devices, "placed", out);
    } else {
        stk_json_put_text(out, "placed", NULL);
    }
}

static void put_image(const stk_run_plan *p, uint32_t i, stk_buf *out)
{
    const stk_place *place = &p->containers.places[i];
    const char *id = NULL;
    if (stk_place_is_elsewhere(place->kind)) {
        id = p->elsewhere.images[i];
    } else if (p->containers.ids != NULL) {
        id = p->containers.ids[i];
    }
    stk_json_put_text(out, "image", place->image);
    stk_json_put_text(out, "image_id", id);
}

/* Where the tasks of a growing document come from. */
static void put_way(const stk_spec *spec, uint32_t i_step, stk_buf *out)
{
    static const char *const words[] = {NULL, "all", "foreach", "parallel", "switch"};
    stk_json_put_bool(out, "join", stk_spec_step(spec, i_step)->is_join);
    stk_json_open(out, "from", '[');
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *from = stk_spec_step(spec, i);
        if (!stk_step_leads_to(from, i_step)) {
            continue;
        }
        bool is_counted = from->grows == STK_NEXT_PARALLEL && from->num_parallel > 0;
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "step", from->name);
        stk_json_put_text(out, "grows", words[from->grows]);
        stk_json_put_text(out, "on", from->on);
        stk_json_put_int(out, "n", is_counted ? (int64_t)from->num_parallel : -1);
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
}

static void put_step(const stk_run_plan *p, uint32_t i, stk_buf *out)
{
    const stk_request *r = stk_plan_request(p->plan, i);
    const stk_place *place = &p->containers.places[i];
    uint32_t n = 0;
    const uint32_t *needs = stk_plan_needs(p->plan, i, &n);
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "step", stk_spec_step(p->spec, i)->name);
    stk_json_put_text(out, "title", stk_spec_title(p->spec, i));
    stk_json_open(out, "needs", '[');
    for (uint32_t k = 0; k < n; k++) {
        stk_json_put_text(out, NULL, stk_spec_step(p->spec, needs[k])->name);
    }
    stk_json_close(out, ']');
    stk_json_put_text(out, "backend", stk_place_word(place->kind));
    stk_json_put_real(out, "cpu_count", (double)r->cpu_milli / 1000);
    stk_json_put_whole(out, "memory_bytes", r->memory_bytes);
    stk_json_put_whole(out, "gpu_count", r->n_devices);
    if (r->place > 0) {
        stk_json_put_text(out, "stack", place->stack->name);
    }
    put_image(p, i, out);
    if (stk_spec_grows(p->spec)) {
        put_way(p->spec, i, out);
    }
    put_asks(p, r, out);
    stk_json_put_bool(out, "clamped", r->clamped);
    stk_json_put_bool(out, "cached", p->hits[i]);
    stk_json_put_text(out, "miss", p->misses[i]);
    stk_json_put_known_text(out, "reads", p->reads[i]);
    stk_json_close(out, '}');
}

void stk_show_plan_json(const stk_run_plan *p, stk_buf *out)
{
    const uint32_t *order = stk_plan_order(p->plan);
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "pipeline", stk_spec_name(p->spec));
    stk_json_open(out, "steps", '[');
    for (uint32_t i = 0; i < stk_spec_n_steps(p->spec); i++) {
        put_step(p, order[i], out);
    }
    stk_json_close(out, ']');
    stk_json_put_whole(out, "cached", p->n_hits);
    stk_json_open(out, "notes", '[');
    for (uint32_t i = 0; i < p->n_notes; i++) {
        stk_json_put_text(out, NULL, p->notes[i]);
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_buf_char(out, '\n');
}
