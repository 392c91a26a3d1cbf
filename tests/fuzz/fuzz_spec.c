/* Any bytes as a pipeline document: refused with a sentence, or read, planned and read again from
 * the text that a run would store, which must then be its own canonical form. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "fuzz.h"
#include "model/grow/grow.h"
#include "model/plan/plan.h"
#include "model/spec/spec.h"

static void use(const stk_spec *spec)
{
    /* One of each kind: whole, split, a slice, not shared, broken. */
    static const stk_capacity_device devices[] = {
        {"nvidia", "GPU", "NVIDIA A100-SXM4-80GB", NULL, 85899345920, 0, -1, true, NULL},
        {"nvidia", "GPU", "NVIDIA A100-SXM4-80GB", NULL, 85899345920, 0, -1, false, NULL},
        {"nvidia", "MIG slice", "NVIDIA A100-SXM4-80GB", "1g.10gb", 10737418240, 0, 1, true, NULL},
        {"google", "TPU chip", "Google TPU v5e", NULL, 17179869184, -1, -1, true, NULL},
        {"amd", "GPU", "AMD Instinct MI300X", NULL, -1, -1, -1, false, "gone"}};
    enum { N_DEVICES = sizeof devices / sizeof *devices };
    static const stk_capacity small = {.where = "this machine",
                                       .backend = "local",
                                       .cpu_milli = 2000,
                                       .memory_bytes = 1000000000,
                                       .devices = devices,
                                       .n_devices = N_DEVICES};
    stk_plan *plan = NULL;
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int rc = stk_plan_new(spec, &small, NULL, STK_POLICY_FIT, &plan, &err);
    fuzz_require(rc == 0 || (rc == err.code && err.text[0] != '\0'), "a plan's error says why");
    for (uint32_t i = 0; rc == 0 && i < stk_spec_n_steps(spec); i++) {
        const stk_step *step = stk_spec_step(spec, i);
        const stk_request *request = stk_plan_request(plan, i);
        for (uint32_t k = 0; k < request->n_asks; k++) {
            const stk_pack_ask *ask = &request->asks[k];
            fuzz_require(ask->n > 0 && ask->share_mib >= 0 &&
                             ask->wanted.words[0] >> N_DEVICES == 0 &&
                             !stk_devset_has(&ask->wanted, 1) && !stk_devset_has(&ask->wanted, 4) &&
                             stk_devset_count(&ask->wanted) >= ask->n,
                         "what is asked for can be given");
        }
        const char **digests = stk_arena_array(arena, step->n_inputs, sizeof *digests);
        const char **files = stk_arena_array(arena, step->settings->cache.n_files, sizeof *files);
        stk_key key;
        uint32_t n;
        const uint32_t *needs = stk_plan_needs(plan, i, &n);
        for (uint32_t k = 0; k < n; k++) {
            fuzz_require(needs[k] < i || stk_spec_grows(spec), "a step needs only steps before it");
        }
        for (uint32_t k = 0; k < step->n_inputs; k++) {
            digests[k] = "d";
        }
        for (uint32_t k = 0; k < step->settings->cache.n_files; k++) {
            files[k] = "f";
        }
        if (stk_plan_key(plan, i, digests, files, arena, &key, &err) == 0) {
            const char *json = stk_plan_key_json(&key, arena);
            const char *miss = stk_plan_miss(&key, json, arena);
            fuzz_require(strcmp(miss, "its stored result has expired or was removed") == 0,
                         "a key doesn't differ from itself");
        }
    }
    stk_plan_free(plan);
}

enum { FEW = 300 };

/* Every document that is accepted can be run: whatever its steps choose as the next one is accepted
 * in any order, and the run ends or goes on for ever. */
static void play(const stk_spec *spec)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_grow *grow = NULL;
    stk_err err = {0};
    stk_grow_adding first;
    uint32_t open[8 * FEW];
    uint32_t n_open = 1;
    bool has_ended = false;
    fuzz_require(stk_grow_new(spec, &grow, &err) == 0, err.text);
    stk_grow_begin(grow, &first);
    fuzz_require(stk_grow_add(grow, &first, &err) == 0, err.text);
    open[0] = 0;
    for (uint32_t round = 0; n_open > 0 && round < FEW; round++) {
        uint32_t at = round % 3 == 0 ? 0 : n_open - 1;
        uint32_t task = open[at];
        open[at] = open[--n_open];
        const stk_step *step = stk_spec_step(spec, stk_grow_get(grow, task).i_step);
        stk_grow_next next = {.n = step->num_parallel > 0 ? step->num_parallel : 1 + round % 3};
        if (step->grows == STK_NEXT_SWITCH) {
            next.steps = step->next + round % step->n_next;
            next.n_steps = 1;
        }
        stk_grow_adding *adding = NULL;
        uint32_t n = 0;
        fuzz_require(stk_grow_done(grow, task, &next, arena, &adding, &n, &err) == 0, err.text);
        has_ended = has_ended || step->n_next == 0;
        for (uint32_t i = 0; i < n; i++) {
            fuzz_require(stk_grow_add(grow, &adding[i], &err) == 0, err.text);
            for (uint32_t k = 0; k < adding[i].n && n_open < 8 * FEW; k++) {
                open[n_open++] = adding[i].first + k;
            }
        }
        if (stk_grow_n_tasks(grow) > 4 * FEW) {
            n_open = 0; /* wide graphs: enough is seen */
            has_ended = true;
        }
        has_ended = has_ended || round + 1 == FEW;
    }
    fuzz_require(has_ended, "a run comes to an end of its graph");
    stk_grow_free(grow);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    stk_spec *spec = NULL;
    stk_spec *again = NULL;
    stk_err err = {0};
    int rc = stk_spec_parse((const char *)data, size,
                            &(stk_spec_place){.path = "/f/p.yaml", .folder = "/f"}, &spec, &err);
    if (rc < 0) {
        fuzz_require(rc == err.code && err.text[0] != '\0', "a refusal says why");
        return 0;
    }
    use(spec);
    if (stk_spec_grows(spec)) {
        play(spec);
    }
    size_t len;
    const char *text = stk_spec_text(spec, &len);
    rc = stk_spec_parse(text, len,
                        &(stk_spec_place){.path = "/elsewhere/p.json", .folder = "/elsewhere"},
                        &again, &err);
    fuzz_require(rc == 0, err.text);
    fuzz_require(strcmp(stk_spec_text(again, NULL), text) == 0, "stored text is canonical");
    fuzz_require(strcmp(stk_spec_folder(again), stk_spec_folder(spec)) == 0, "and of one folder");
    stk_spec_free(spec);
    stk_spec_free(again);
    return 0;
}
