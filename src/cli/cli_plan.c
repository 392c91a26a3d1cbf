/* `stoker plan`: what would run, on what, and why it would not come from the cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/units.h"
#include "cli/cli_plan_grow.h"
#include "cli/cli_read.h"
#include "cli/cli_run.h"
#include "host/accel/accel.h"
#include "run/exec/exec.h"
#include "run/run_check.h"
#include "run/run_containers.h"
#include "run/run_elsewhere.h"
#include "sys/file.h"

typedef struct planning {
    stk_arena *arena;
    stk_accel *accel;
    stk_capacity capacity;
    stk_findings devices; /* what speaks against them */
    stk_spec *spec;
    stk_run_containers containers;
    stk_run_elsewhere elsewhere;
    stk_plan *plan;
    stk_store *store;
    stk_forecast *forecast; /* NULL: no store yet, nothing can hit */
    const int64_t *peaks;
    stk_policy policy;
    uint32_t n_own_notes; /* the plan's own notes; those about the host follow */
    bool *hits;           /* by step: it comes from the cache */
} planning;

static int open_machine(planning *p, stk_err *err)
{
    int rc = stk_accel_open(getenv("STOKER_ACCEL"), &p->accel, err);
    p->devices.arena = p->arena;
    rc = rc < 0 ? rc : stk_run_check_devices(p->spec, p->accel, &p->devices, err);
    rc = rc < 0 ? rc : stk_exec_capacity(p->accel, p->arena, &p->capacity, err);
    if (rc == 0 && stk_accel_is_simulated(p->accel)) {
        p->capacity.where = "the simulated machine";
    }
    return rc;
}

static int open_planning(const stk_cli *cli, const stk_run_options *options, planning *p,
                         stk_err *err)
{
    const int64_t *peaks = NULL;
    char *path = NULL;
    p->arena = stk_arena_new(0);
    int rc = p->arena == NULL ? stk_err_nomem(err) : 0;
    rc = rc < 0 ? rc : stk_cli_load_spec(cli, &p->spec, err);
    rc = rc < 0 ? rc : stk_cli_params(cli, p->spec, err);
    rc = rc < 0 ? rc : stk_run_places(p->spec, options, p->arena, &p->containers, err);
    rc = rc < 0 ? rc
                : stk_run_elsewhere_find(p->spec, p->containers.places, options->drivers, p->arena,
                                         &p->elsewhere, err);
    rc = rc < 0 ? rc : open_machine(p, err);
    stk_run_elsewhere_tell(&p->elsewhere, &p->capacity);
    p->policy = stk_run_elsewhere_policy(&p->elsewhere, options);
    rc = rc < 0 ? rc : stk_run_gpu_peaks(p->spec, p->arena, &peaks, err);
    rc = rc < 0 ? rc : stk_plan_new(p->spec, &p->capacity, peaks, p->policy, &p->plan, err);
    p->peaks = peaks;
    p->n_own_notes = rc < 0 ? 0 : stk_plan_n_notes(p->plan);
    p->hits = stk_arena_array(p->arena, rc < 0 ? 1 : stk_spec_n_steps(p->spec), sizeof *p->hits);
    rc = rc == 0 && p->hits == NULL ? stk_err_nomem(err) : rc;
    rc = rc < 0 ? rc
                : stk_run_check_steps(p->spec, options, p->containers.places, p->accel, &p->devices,
                                      p->plan, err);
    rc = rc < 0
             ? rc
             : stk_run_images(&p->containers, p->spec, options, NULL, p->accel, p->plan, true, err);
    rc = rc < 0
             ? rc
             : stk_run_elsewhere_images(&p->elsewhere, p->spec, options, NULL, p->plan, true, err);
    rc = rc < 0 ? rc : stk_run_elsewhere_check(&p->elsewhere, p->spec, p->plan, true, err);
    rc = rc < 0 ? rc : stk_store_find(".", STK_STORE_CREATE, &path, err);
    rc = rc < 0 ? rc : stk_cli_private_note(&p->containers, p->spec, path, p->plan, err);
    if (rc == 0 && stk_file_exists(path)) {
        rc = stk_store_open(path, STK_STORE_READONLY, &p->store, err);
        if (rc == 0) {
            stk_run_elsewhere_forecast(&p->elsewhere, p->store);
        }
        rc = rc < 0 ? rc : stk_forecast_new(p->store, p->plan, &p->forecast, err);
    }
    free(path);
    return rc;
}

static void close_planning(planning *p)
{
    stk_forecast_free(p->forecast);
    stk_store_close(p->store);
    stk_plan_free(p->plan);
    stk_spec_free(p->spec);
    stk_accel_close(p->accel);
    stk_arena_free(p->arena);
}

static void needs_text(const planning *p, uint32_t i, bool json, stk_buf *out)
{
    uint32_t n = 0;
    const uint32_t *needs = stk_plan_needs(p->plan, i, &n);
    uint32_t shown = json || n <= 4 ? n : 3;
    for (uint32_t k = 0; k < shown; k++) {
        const char *name = stk_spec_step(p->spec, needs[k])->name;
        stk_buf_text(out, k > 0 ? (json ? "," : ", ") : "");
        if (json) {
            stk_buf_json(out, name);
        } else {
            stk_buf_text(out, name);
        }
    }
    if (shown < n) {
        stk_buf_printf(out, " and %u more", n - shown);
    }
}

/* "10 GB of a GPU", "2 GPUs of 4 × NVIDIA L4": what, and of which where not of all that are here.
 */
static void ask_text(const planning *p, const stk_pack_ask *ask, stk_buf *out)
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
    noun = noun != NULL ? noun : "device";
    if (ask->share_mib > 0) {
        (void)stk_units_format_memory((int64_t)ask->share_mib << 20, memory, sizeof memory);
        if (ask->n == 1) {
            stk_buf_printf(out, "%s of a %s", memory, noun);
        } else {
            stk_buf_printf(out, "%s of each of %u %ss", memory, ask->n, noun);
        }
    } else {
        stk_buf_printf(out, "%u %s%s", ask->n, noun, ask->n == 1 ? "" : "s");
    }
    const char *which = all ? NULL : stk_plan_inventory(c, &ask->wanted, p->arena);
    if (which != NULL) {
        stk_buf_printf(out, " of %s", which);
    }
}

/* The devices that a step would get if it ran alone: those of the first ask that fits. */
static bool place(const planning *p, const stk_request *r, stk_devset *ret_devices)
{
    stk_pack_device devices[STK_LIMIT_DEVICES];
    stk_pack_host host = {devices, p->capacity.n_devices, p->capacity.links};
    stk_plan_pack_devices(&p->capacity, devices);
    for (uint32_t k = 0; k < r->n_asks; k++) {
        if (stk_pack_choose(&host, &r->asks[k], NULL, ret_devices)) {
            return true;
        }
    }
    return false;
}

static void set_text(const stk_devset *set, bool json, stk_buf *out)
{
    const char *before = "";
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        uint32_t last = i;
        while (!json && stk_devset_has(set, i) && stk_devset_has(set, last + 1)) {
            last++;
        }
        if (stk_devset_has(set, i)) {
            stk_buf_printf(out, last > i ? "%s%u-%u" : "%s%u", before, i, last);
            before = json ? "," : ", ";
        }
        i = last;
    }
}

static void request_text(const planning *p, const stk_request *r, bool placed, stk_buf *out)
{
    char memory[32];
    stk_devset devices;
    if (r->cpu_milli > 0 || r->place == 0) {
        stk_buf_printf(out, "%g CPU%s", (double)r->cpu_milli / 1000,
                       r->cpu_milli == 1000 ? "" : "s");
    }
    if (r->memory_bytes > 0) {
        stk_buf_printf(out, "%s%s", out->len > 0 ? ", " : "",
                       stk_units_format_memory(r->memory_bytes, memory, sizeof memory));
    }
    if (r->place > 0 && r->n_devices > 0) {
        stk_buf_printf(out, "%s%u device%s", out->len > 0 ? ", " : "", r->n_devices,
                       r->n_devices == 1 ? "" : "s");
    }
    for (uint32_t k = 0; k < r->n_asks; k++) {
        stk_buf_text(out, k == 0 ? ", " : " or ");
        ask_text(p, &r->asks[k], out);
    }
    if (r->gpu_memory_auto && r->n_asks > 0) {
        stk_buf_text(out, r->asks[0].share_mib > 0 ? " (as earlier runs needed)"
                                                   : " (no earlier run says how much it needs)");
    }
    if (placed && r->n_asks > 0 && stk_accel_is_simulated(p->accel) && place(p, r, &devices)) {
        stk_buf_text(out, ": ");
        set_text(&devices, false, out);
    }
    stk_buf_text(out, r->clamped ? " (less than asked)" : "");
}

static void asks_json(const planning *p, const stk_request *r, stk_buf *out)
{
    stk_devset devices;
    stk_buf_text(out, "\"asks\":[");
    for (uint32_t k = 0; k < r->n_asks; k++) {
        const stk_pack_ask *ask = &r->asks[k];
        stk_buf_printf(out, "%s{\"count\":%u,\"share_bytes\":", k > 0 ? "," : "", ask->n);
        if (ask->share_mib > 0) {
            stk_buf_printf(out, "%lld,\"of\":[", (long long)ask->share_mib << 20);
        } else {
            stk_buf_text(out, "null,\"of\":[");
        }
        set_text(&ask->wanted, true, out);
        stk_buf_text(out, "]}");
    }
    stk_buf_text(out, "],\"placed\":");
    if (stk_accel_is_simulated(p->accel) && place(p, r, &devices)) {
        stk_buf_char(out, '[');
        set_text(&devices, true, out);
        stk_buf_text(out, "],");
    } else {
        stk_buf_text(out, "null,");
    }
}

static void image_json(const planning *p, uint32_t i, stk_buf *out)
{
    const stk_place *place = &p->containers.places[i];
    const char *id = stk_place_is_elsewhere(place->kind) ? p->elsewhere.images[i]
                     : p->containers.ids == NULL         ? NULL
                                                         : p->containers.ids[i];
    const char *texts[2] = {place->image, id};
    for (int k = 0; k < 2; k++) {
        stk_buf_text(out, k == 0 ? "\"image\":" : "\"image_id\":");
        if (texts[k] != NULL) {
            stk_buf_json(out, texts[k]);
        } else {
            stk_buf_text(out, "null");
        }
        stk_buf_char(out, ',');
    }
}

static int plan_step(planning *p, uint32_t i, bool json, stk_buf *out, uint32_t *n_hits,
                     stk_err *err)
{
    const stk_step *step = stk_spec_step(p->spec, i);
    const stk_request *r = stk_plan_request(p->plan, i);
    const stk_place *place = &p->containers.places[i];
    bool grows = stk_spec_grows(p->spec); /* then the run finds out what comes from the cache */
    bool hit = false;
    const char *miss = grows ? NULL : "never ran before";
    int rc = p->forecast == NULL || grows ? 0 : stk_forecast_step(p->forecast, i, &hit, &miss, err);
    if (rc < 0) {
        return rc;
    }
    *n_hits += hit;
    p->hits[i] = hit;
    if (json) {
        stk_buf_text(out, "{\"step\":");
        stk_buf_json(out, step->name);
        stk_buf_text(out, ",\"needs\":[");
        needs_text(p, i, true, out);
        stk_buf_printf(out,
                       "],\"backend\":\"%s\",\"cpu_count\":%g,\"memory_bytes\":%lld,\"gpu_"
                       "count\":%u,",
                       stk_place_word(place->kind), (double)r->cpu_milli / 1000,
                       (long long)r->memory_bytes, r->n_devices);
        if (r->place > 0) {
            stk_buf_text(out, "\"stack\":");
            stk_buf_json(out, place->stack->name);
            stk_buf_char(out, ',');
        }
        image_json(p, i, out);
        if (grows) {
            stk_cli_plan_way_json(p->spec, i, out);
        }
        asks_json(p, r, out);
        stk_buf_printf(out, "\"clamped\":%s,\"cached\":%s,\"miss\":", r->clamped ? "true" : "false",
                       hit ? "true" : "false");
        if (hit || miss == NULL) {
            stk_buf_text(out, "null");
        } else {
            stk_buf_json(out, miss);
        }
        return stk_buf_char(out, '}');
    }
    stk_buf_printf(out, "  %-24s %-28s", step->name, hit ? "cached" : "");
    if (!hit) {
        out->len -= 28;
        STK_BUF_AUTO ask = STK_BUF_INIT(1024);
        uint32_t ranks = grows ? stk_cli_plan_ranks(p->spec, i) : 1;
        if (ranks > 1) {
            stk_buf_printf(&ask, "%u times ", ranks);
        }
        request_text(p, r, ranks == 1, &ask);
        if (place->kind == STK_PLACE_DOCKER) {
            stk_buf_printf(&ask, ", in %s",
                           place->image != NULL ? place->image : "an image of its own");
        }
        if (r->place > 0) {
            stk_buf_printf(&ask, "%son %s (stack '%s'), in %s", ask.len > 0 ? ", " : "",
                           stk_place_word(place->kind), place->stack->name,
                           place->image != NULL ? place->image : "an image of its own");
        }
        if (ask.len > 28) { /* reasons stay one below the other */
            stk_buf_printf(out, "%s\n%55s", ask.data, "");
        } else {
            stk_buf_printf(out, "%-28s", ask.data);
        }
        stk_buf_text(out, grows ? " " : " runs: ");
        stk_buf_text(out, miss != NULL ? miss : "");
    }
    if (grows) {
        stk_cli_plan_way(p->spec, i, out);
        return stk_buf_char(out, '\n');
    }
    uint32_t n = 0;
    (void)stk_plan_needs(p->plan, i, &n);
    if (n > 0) {
        stk_buf_text(out, hit ? " after " : "; after ");
        needs_text(p, i, false, out);
    }
    return stk_buf_char(out, '\n');
}

static void put_note(const char *text, bool json, bool first, stk_buf *out)
{
    if (json) {
        stk_buf_text(out, first ? "" : ",");
        stk_buf_json(out, text);
    } else {
        stk_buf_printf(out, "note: %s\n", text);
    }
}

/* What ranks ask for all at once must be there: NULL, or how it isn't. */
static const char *too_many(const planning *p, uint32_t i)
{
    const stk_request *r = stk_plan_request(p->plan, i);
    uint32_t ranks = stk_cli_plan_ranks(p->spec, i);
    uint32_t n = 0;
    for (uint32_t k = 0; k < p->capacity.n_devices; k++) {
        n += p->capacity.devices[k].usable;
    }
    if (ranks == 1 || r->n_asks == 0 || r->n_devices * ranks <= n) {
        return NULL;
    }
    return stk_arena_printf(p->arena,
                            "step '%s': its %u ranks ask for %u devices, all at once, and %s has "
                            "%u: it would fail; lower num_parallel, or what the step asks for",
                            stk_spec_step(p->spec, i)->name, ranks, r->n_devices * ranks,
                            p->capacity.where, n);
}

/* Of the steps that would run, and of the host. */
static int put_notes(const planning *p, bool json, stk_buf *out, stk_err *err)
{
    stk_plan *rest = NULL;
    uint32_t n = 0;
    int rc = stk_plan_new_rest(p->spec, &p->capacity, p->peaks, p->policy, p->hits, &rest, err);
    for (uint32_t i = 0; rc == 0 && i < stk_plan_n_notes(rest); i++) {
        put_note(stk_plan_note(rest, i), json, n++ == 0, out);
    }
    for (uint32_t i = p->n_own_notes; rc == 0 && i < stk_plan_n_notes(p->plan); i++) {
        put_note(stk_plan_note(p->plan, i), json, n++ == 0, out);
    }
    for (uint32_t i = 0; rc == 0 && stk_spec_grows(p->spec) && i < stk_spec_n_steps(p->spec); i++) {
        const char *text = too_many(p, i);
        if (text != NULL) {
            put_note(text, json, n++ == 0, out);
        }
    }
    stk_plan_free(rest);
    return rc;
}

static int print_plan(const stk_cli *cli, planning *p, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 30);
    bool json = stk_cli_json(cli);
    uint32_t n = stk_spec_n_steps(p->spec);
    uint32_t n_hits = 0;
    const uint32_t *order = stk_plan_order(p->plan);
    if (json) {
        stk_buf_text(&out, "{\"pipeline\":");
        stk_buf_json(&out, stk_spec_name(p->spec));
        stk_buf_text(&out, ",\"steps\":[");
    } else {
        const char *devices = stk_plan_inventory(&p->capacity, NULL, p->arena);
        bool none = devices == NULL || strcmp(devices, "none") == 0;
        uint32_t n_here = n - p->elsewhere.n;
        stk_buf_printf(&out, "%s: ", stk_spec_name(p->spec));
        if (p->elsewhere.n > 0) {
            stk_buf_printf(&out, "%u step%s on other machines, ", p->elsewhere.n,
                           p->elsewhere.n == 1 ? "" : "s");
        }
        stk_buf_printf(&out, "%u step%s on %s (%g CPUs, %s)\n", n_here, n_here == 1 ? "" : "s",
                       p->capacity.where, (double)p->capacity.cpu_milli / 1000,
                       none ? "no GPUs" : devices);
    }
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_text(&out, json && i > 0 ? "," : "");
        int rc = plan_step(p, order[i], json, &out, &n_hits, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (json) {
        stk_buf_printf(&out, "],\"cached\":%u,\"notes\":[", n_hits);
    } else if (stk_spec_grows(p->spec)) {
        stk_buf_text(&out, "the run finds out how many tasks each of them has\n");
    } else {
        stk_buf_printf(&out, "%u of %u step%s come%s from the cache\n", n_hits, n,
                       n == 1 ? "" : "s", n == 1 ? "s" : "");
    }
    int rc_notes = put_notes(p, json, &out, err);
    if (rc_notes < 0) {
        return rc_notes;
    }
    stk_buf_text(&out, json ? "]}\n" : "");
    if (out.failed) {
        return stk_err_nomem(err);
    }
    (void)fwrite(out.data, 1, out.len, stdout);
    return 0;
}

/* What would be built: nothing else is looked at. */
static int run_dockerfile(stk_cli *cli, bool piped)
{
    stk_err err = {0};
    stk_spec *spec = NULL;
    int rc = stk_cli_load_spec(cli, &spec, &err);
    rc = rc < 0 ? rc : stk_cli_print_dockerfiles(cli, spec, stk_cli_arg(cli, piped ? 0 : 1), &err);
    stk_spec_free(spec);
    return rc < 0 ? stk_cli_fail(cli, &err) : 0;
}

static void add_note(void *arg, const char *text)
{
    (void)stk_buf_printf(arg, "# %s\n", text);
}

/* Of STEP, or of all steps elsewhere: JSON documents with `---` and whose they are between them, as
 * `kubectl apply -f` takes them. */
static int print_manifests(const stk_cli *cli, const planning *p, const char *only, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 30);
    uint32_t n_steps = stk_spec_n_steps(p->spec), n_found = 0;
    int64_t wanted = only == NULL ? -1 : stk_spec_find(p->spec, only);
    if (only != NULL && wanted < 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "there is no step '%s'", only);
    }
    int rc = 0;
    for (uint32_t i = 0; i < n_steps && rc == 0; i++) {
        const char **documents = NULL;
        uint32_t n = 0;
        STK_BUF_AUTO notes = STK_BUF_INIT(64 << 10);
        if (!stk_place_is_elsewhere(p->containers.places[i].kind) || (wanted >= 0 && i != wanted)) {
            continue;
        }
        n_found++;
        rc = stk_run_elsewhere_documents(&p->elsewhere, p->spec, i, add_note, &notes, &documents,
                                         &n, err);
        for (uint32_t k = 0; k < n && rc == 0; k++) {
            if (k == 0) {
                stk_buf_printf(&out, "# step '%s', on %s (stack '%s')\n",
                               stk_spec_step(p->spec, i)->name,
                               stk_place_word(p->containers.places[i].kind),
                               p->containers.places[i].stack->name);
                stk_buf_add(&out, notes.data, notes.len);
            }
            stk_buf_printf(&out, "---\n%s\n", documents[k]);
        }
    }
    if (rc == 0 && n_found == 0) {
        stk_err_set(err, STK_E_USAGE, "%s%s%s runs on this machine: there is nothing to submit",
                    only != NULL ? "step '" : "every step", only != NULL ? only : "",
                    only != NULL ? "'" : "");
        stk_err_hint(err, "name a stack: --with kubernetes");
        return STK_E_USAGE;
    }
    (void)cli;
    if (rc == 0) {
        fputs(out.data, stdout);
    }
    return rc;
}

/* What stands behind a Python file is its program's: an option of ours there would do nothing. */
static const char *misplaced(stk_cli *cli)
{
    for (char **word = stk_cli_args(cli) + 1; word[-1] != NULL && *word != NULL; word++) {
        bool is_ours = strcmp(*word, "--manifest") == 0 || strcmp(*word, "--dockerfile") == 0;
        if (is_ours && !stk_cli_flag(cli, *word + 2)) {
            return *word;
        }
    }
    return NULL;
}

static int run_plan(stk_cli *cli)
{
    stk_err err = {0};
    stk_cli_run how;
    planning p = {0};
    bool piped = stk_cli_value(cli, "spec-fd") != NULL;
    if (stk_cli_arg(cli, 0) == NULL && !piped) {
        return stk_cli_usage(cli, "which pipeline? give a pipeline.yaml or a Python file");
    }
    int rc = stk_cli_run_options(cli, &how, &err);
    if (rc == 0 && !piped && stk_cli_is_python(stk_cli_arg(cli, 0))) {
        if (misplaced(cli) != NULL) {
            return stk_cli_usage(cli,
                                 "%s stands behind %s, where words are the program's: write it "
                                 "before the file",
                                 misplaced(cli), stk_cli_arg(cli, 0));
        }
        how.plan = true;
        return stk_cli_exec_python(cli, &how, stk_cli_arg(cli, 0), stk_cli_args(cli) + 1);
    }
    int most = (piped ? 0 : 1) +
               (stk_cli_flag(cli, "dockerfile") || stk_cli_flag(cli, "manifest") ? 1 : 0);
    if (rc == 0 && stk_cli_n_args(cli) > most) {
        return stk_cli_at_most(cli, most);
    }
    if (rc == 0 && stk_cli_flag(cli, "dockerfile")) {
        return run_dockerfile(cli, piped);
    }
    rc = rc < 0 ? rc : open_planning(cli, &how.options, &p, &err);
    if (rc == 0 && stk_cli_flag(cli, "manifest")) {
        rc = print_manifests(cli, &p, stk_cli_arg(cli, piped ? 0 : 1), &err);
    } else if (rc == 0) {
        rc = print_plan(cli, &p, &err);
    }
    int status = rc < 0 ? stk_cli_fail(cli, &err) : 0;
    close_planning(&p);
    return status;
}

static const stk_option options_of_plan[] = {
    {"param", 'p', "NAME=VALUE", "set a parameter of the pipeline", true},
    {"policy", 0, "fit|strict", "as for 'stoker run'", false},
    {"with", 0, "STACK",
     "where steps would run: local, docker, kubernetes, batch, or a stack of stoker.yaml", false},
    {"stack", 0, "STACK", "the same", false},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')", false},
    {"python", 0, "EXE", "interpreter for Python files", false},
    {"dockerfile", 0, NULL, "print what would be built for the steps' images instead", false},
    {"manifest", 0, NULL, "print what would be submitted for steps on other machines instead",
     false},
    {"spec-fd", 0, "FD", "a document from an open descriptor (for front ends)", false},
    {NULL}};

const stk_command stk_cmd_plan = {
    .name = "plan",
    .summary = "show what would run, where, and what the cache has",
    .usage = "[options] pipeline.yaml | --dockerfile|--manifest pipeline.yaml [STEP] | "
             "[--dockerfile|--manifest] file.py",
    .text = "Nothing is started. For each step: what it would be given, "
            "whether its result is known, and if not, what changed. "
            "With --simulate also which of the machine's devices it "
            "would get if it ran alone.\n\n--dockerfile prints the "
            "Dockerfiles that the steps' docker settings come to, of STEP or "
            "of all; a step whose image runs as it is has none.\n\n--manifest prints what would be "
            "submitted for steps on other machines, of STEP or of all.",
    .options = options_of_plan,
    .stop_at = stk_cli_is_program,
    .run = run_plan};
