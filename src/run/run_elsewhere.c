#include "run/run_elsewhere.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/text.h"
#include "image/image.h"
#include "run/run_check.h"
#include "run/run_containers.h"

/* --- places of steps --- */

/* Of several bounds on jobs at once the smallest counts. */
static int place_of(stk_run_elsewhere *e, const stk_place *step, uint32_t *ret_place, stk_err *err)
{
    const stk_stack *stack = step->stack;
    uint32_t k = 0, most = 0;
    if (step->max_jobs > 0 && step->max_jobs < UINT32_MAX) {
        most = (uint32_t)step->max_jobs;
    }
    while (k < e->n_places &&
           (strcmp(e->stacks[k]->name, stack->name) != 0 || e->stacks[k]->kind != stack->kind)) {
        k++;
    }
    if (k == STK_PLAN_PLACES) {
        stk_err_set(err, STK_E_LIMIT, "the steps of this run go to more than %d stacks",
                    STK_PLAN_PLACES);
        stk_err_hint(err, "give some of them the same stack");
        return STK_E_LIMIT;
    }
    if (k == e->n_places) {
        e->stacks[k] = stack;
        e->places[k] =
            (stk_capacity_place){.backend = stk_place_word(stack->kind), .stack = stack->name};
        e->n_places++;
    }
    if (most > 0 && (e->places[k].max_jobs == 0 || most < e->places[k].max_jobs)) {
        e->places[k].max_jobs = most;
    }
    *ret_place = k + 1;
    return 0;
}

int stk_run_elsewhere_find(const stk_spec *spec, const stk_place *steps, stk_driver_find drivers,
                           stk_arena *arena, stk_run_elsewhere *e, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    *e = (stk_run_elsewhere){.arena = arena, .steps = steps, .drivers = drivers};
    for (uint32_t i = 0; i < n; i++) {
        e->n += stk_place_is_elsewhere(steps[i].kind);
    }
    if (e->n == 0) {
        return 0;
    }
    e->away = stk_arena_array(arena, n, sizeof *e->away);
    STK_TRY(stk_err_if_null(e->away, err));
    for (uint32_t i = 0; i < n; i++) {
        if (stk_place_is_elsewhere(steps[i].kind)) {
            e->away[i].resources = steps[i].resources;
            STK_TRY(place_of(e, &steps[i], &e->away[i].place, err));
        }
    }
    return 0;
}

void stk_run_elsewhere_tell(const stk_run_elsewhere *e, stk_capacity *capacity)
{
    if (e->n > 0) {
        capacity->places = e->places;
        capacity->n_places = e->n_places;
        capacity->away = e->away;
    }
}

stk_policy stk_run_elsewhere_policy(const stk_run_elsewhere *e, const stk_run_options *options)
{
    return e->n > 0 && !options->has_policy ? STK_POLICY_STRICT : options->policy;
}

bool stk_run_is_away(const stk_run_elsewhere *e, uint32_t i_step)
{
    return e->away != NULL && e->away[i_step].place > 0;
}

/* Returns "an image that is made for …" if by its name and configuration the image isn't for the
 * requested devices; NULL: it may fit. */
static const char *made_for_others(const stk_image_facts *facts, const char *asked)
{
    static const char *const vendors[] = {[STK_IMAGE_FOR_NVIDIA] = "nvidia",
                                          [STK_IMAGE_FOR_AMD] = "amd",
                                          [STK_IMAGE_FOR_INTEL] = "intel",
                                          [STK_IMAGE_FOR_AWS] = "aws",
                                          [STK_IMAGE_FOR_GOOGLE] = "google"};
    const char *vendor = NULL;
    if (facts->made_for == STK_IMAGE_FOR_CPU) {
        return "CPUs";
    }
    if (facts->made_for < sizeof vendors / sizeof *vendors) {
        vendor = vendors[facts->made_for];
    }
    if (vendor == NULL || asked == NULL || strcmp(vendor, asked) == 0) {
        return NULL;
    }
    return vendor;
}

/* Checks the image by its name and configuration; this machine doesn't know the driver of those. */
static int check_image(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i,
                       const stk_image_config *config, const stk_plan *plan, stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i);
    const stk_place *place = &e->steps[i];
    uint32_t n = stk_plan_request(plan, i)->n_devices;
    stk_alternative wants[STK_LIMIT_ASKS];
    const char *asked = NULL;
    stk_image_facts facts;
    STK_TRY(stk_image_facts_of(place->image, config, e->arena, &facts, err));
    if (n == 0 || stk_run_allows_cpu_build(step)) {
        return 0;
    }
    if (place->resources != NULL && stk_spec_alternatives(place->resources, wants) > 0) {
        asked = stk_spec_vendor_of(&wants[0]);
    }
    const char *others = made_for_others(&facts, asked);
    if (others == NULL) {
        return 0;
    }
    bool is_cpu = facts.made_for == STK_IMAGE_FOR_CPU;
    const char *better = NULL;
    if (is_cpu) {
        better = stk_image_suggest(place->image, facts.framework, 0, e->arena);
    }
    const char *gap = stk_text_when(asked != NULL, " ");
    stk_err_set(
        err, STK_E_RESOURCES,
        "step '%s' asks for %u %s%sdevice%s on %s, but image '%s' is made for %s%s (%s says so)",
        step->name, n, stk_text_or(asked, ""), gap, stk_text_plural(n), stk_place_word(place->kind),
        place->image, others, stk_text_when(!is_cpu, "'s"), facts.source);
    stk_err_hint(err, "take %s, or set STOKER_ALLOW_CPU_BUILD=1 in the step's environment",
                 stk_text_or(better, "another image"));
    return STK_E_RESOURCES;
}

static bool is_grace(const char *class)
{
    return class != NULL &&
           (strcasestr(class, "GH200") != NULL || strcasestr(class, "GB200") != NULL ||
            strcasestr(class, "GB300") != NULL);
}

static bool asks_for_grace(const stk_resources *resources)
{
    stk_alternative wants[STK_LIMIT_ASKS];
    uint32_t n = resources == NULL ? 0 : stk_spec_alternatives(resources, wants);
    bool all = n > 0;
    for (uint32_t i = 0; i < n; i++) {
        all = all && is_grace(wants[i].gpu_class);
    }
    return all;
}

/* The architecture that a step's place requires, in Docker's words; NULL: any. */
static const char *arch_of(const stk_place *place)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *options = stk_json_read(scratch, place->options);
    const stk_json *pod = stk_json_get(options, "pod_settings");
    const stk_json *selectors[] = {stk_json_get(options, "node_selector"),
                                   stk_json_get(options, "node_selectors"),
                                   stk_json_get(pod, "node_selectors")};
    const char *said = stk_json_get_text(options, "arch");
    for (size_t i = 0; said == NULL && i < sizeof selectors / sizeof *selectors; i++) {
        said = stk_json_get_text(selectors[i], "kubernetes.io/arch");
    }
    if (said != NULL) {
        bool is_arm = strcasecmp(said, "arm64") == 0 || strcasecmp(said, "aarch64") == 0;
        return is_arm ? "arm64" : "amd64";
    }
    const char *class = stk_json_get_text(options, "gpu_type");
    bool is_arm = class != NULL ? is_grace(class) : asks_for_grace(place->resources);
    return is_arm ? "arm64" : NULL;
}

static int refuse_arch(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i,
                       const char *what, const char *hint, stk_err *err)
{
    stk_err_set(err, STK_E_RESOURCES, "step '%s' runs on %s machines of stack '%s', but %s",
                stk_spec_step(spec, i)->name, arch_of(&e->steps[i]), e->steps[i].stack->name,
                stk_text_or(what, "its image is for other ones"));
    stk_err_hint(err, "%s", hint);
    return STK_E_RESOURCES;
}

/* Asks the registry whether it has the image for the place's architecture. STK_E_RESOURCES: it
 * doesn't; another error: unknown. */
static int ask_registry(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i,
                        const stk_image_ref *ref, stk_image_config *ret, stk_err *err)
{
    const char *arch = arch_of(&e->steps[i]), *what = NULL;
    int rc = stk_image_remote(ref, stk_text_or(arch, "amd64"), e->arena, ret, err);
    if (rc == STK_E_RESOURCES && arch == NULL) {
        return STK_E_NOT_FOUND; /* the nodes may have that architecture */
    }
    if (rc == STK_E_RESOURCES) {
        what = stk_arena_dup(e->arena, err->text);
    } else if (rc < 0 || arch == NULL || ret->arch == NULL || strcmp(ret->arch, arch) == 0) {
        return rc;
    } else {
        what = stk_arena_printf(e->arena, "image %s is for %s", stk_image_text(ref, e->arena),
                                ret->arch);
    }
    return refuse_arch(e, spec, i, what, "take an image built for it", err);
}

/* The image that brings our program is for certain architectures, too. */
static int check_carry(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i, stk_err *err)
{
    const stk_stack *stack = e->steps[i].stack;
    const char *arch = arch_of(&e->steps[i]);
    stk_image_config config = {0};
    stk_image_ref ref;
    stk_err why = {0};
    if (arch == NULL) {
        return 0;
    }
    if (strcmp(stack->carry, "store") == 0 && strcmp(arch, stk_image_arch()) != 0) {
        return refuse_arch(
            e, spec, i,
            stk_arena_printf(e->arena, "this machine, whose Stoker is carried there, is %s",
                             stk_image_arch()),
            "set `carry: volume`, with the output of `stoker carry` on such a machine", err);
    }
    if (strcmp(stack->carry, "image") != 0 || stack->runner_image == NULL ||
        stk_image_parse(stack->runner_image, e->arena, &ref, &why) < 0 ||
        ask_registry(e, spec, i, &ref, &config, &why) != STK_E_RESOURCES) {
        return 0;
    }
    return refuse_arch(e, spec, i,
                       stk_arena_printf(e->arena, "runner_image %s isn't", stack->runner_image),
                       "make it by `stoker carry --image` on such a machine", err);
}

static int note_unseen(const stk_image_ref *ref, const stk_err *why, stk_arena *arena,
                       stk_plan *plan, stk_err *err)
{
    const char *name = stk_image_text(ref, arena), *text = why->text;
    STK_TRY(stk_err_if_null(name, err));
    if (why->code == STK_E_ENV && why->sys == EACCES) {
        return stk_plan_remark(plan, err, "%s; the nodes need a right of their own to pull it: %s",
                               text, why->hint);
    }
    if (why->code == STK_E_NOT_FOUND) {
        return stk_plan_remark(plan, err, "%s; only nodes that already hold it can run it", text);
    }
    if (why->code == STK_E_ENV) {
        return stk_plan_remark(plan, err, "image %s isn't checked: %s can't be reached from here",
                               name, ref->registry);
    }
    const char *head = stk_arena_printf(arena, "image %s", name);
    size_t n = head == NULL ? 0 : strlen(head);
    if (n > 0 && strncmp(text, head, n) == 0) {
        text += n;
    }
    return stk_plan_remark(plan, err, "image %s isn't checked: %s", name,
                           text + strspn(text, ": "));
}

static int refuse_build(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i, stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i);
    stk_err_set(err, STK_E_SPEC,
                "step '%s' needs a built image, but stack '%s' names no registry from which %s "
                "could pull it",
                step->name, e->steps[i].stack->name, stk_place_word(e->steps[i].kind));
    stk_err_hint(err,
                 "add `registry: HOST/REPOSITORY` to the stack, or name an image that has what "
                 "it needs (docker: {parent_image: …, skip_build: true})");
    return STK_E_SPEC;
}

/* Uses an earlier step's answer, so that a registry is asked once for each image. */
static bool take_earlier(stk_run_elsewhere *e, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (stk_run_is_away(e, k) && e->images[k] != NULL &&
            stk_text_same(e->steps[k].image, e->steps[i].image) &&
            stk_text_same(arch_of(&e->steps[k]), arch_of(&e->steps[i]))) {
            e->images[i] = e->images[k];
            e->paths[i] = e->paths[k];
            return true;
        }
    }
    return false;
}

static int find_image(stk_run_elsewhere *e, const stk_spec *spec, uint32_t i, stk_plan *plan,
                      stk_err *err)
{
    stk_image_config config = {0};
    stk_image_ref ref;
    stk_err why = {0};
    STK_TRY(check_carry(e, spec, i, err));
    if (take_earlier(e, i)) {
        return check_image(e, spec, i, NULL, plan, err);
    }
    STK_TRY(stk_image_parse(e->steps[i].image, e->arena, &ref, err));
    e->images[i] = e->steps[i].image;
    int rc = ask_registry(e, spec, i, &ref, &config, &why);
    if (rc == STK_E_RESOURCES) {
        *err = why;
        return rc;
    }
    if (rc < 0) {
        STK_TRY(note_unseen(&ref, &why, e->arena, plan, err));
        return check_image(e, spec, i, NULL, plan, err);
    }
    e->paths[i] = stk_run_env_value(config.env, "PYTHONPATH");
    if (config.digest != NULL && ref.digest == NULL) { /* the checked image is the one that runs */
        ref.digest = config.digest;
        ref.tag = NULL;
        e->images[i] = stk_image_text(&ref, e->arena);
        STK_TRY(stk_err_if_null(e->images[i], err));
    }
    return check_image(e, spec, i, &config, plan, err);
}

/* Builds with this machine's container engine and pushes to the stack's registry. */
static int build_image(stk_run_elsewhere *e, const stk_spec *spec, const stk_run_options *options,
                       const char *logs, uint32_t i, stk_plan *plan, bool soft, stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i);
    const stk_place *place = &e->steps[i];
    if (place->stack->registry == NULL) {
        return refuse_build(e, spec, i, err);
    }
    if (soft) {
        e->images[i] = place->image;
        return stk_plan_remark(plan, err, "the image of step '%s' is built before the run",
                               step->name);
    }
    stk_engine engine;
    stk_findings findings = {.arena = e->arena};
    stk_image_want want = {
        .step = step->name,
        .image = place->image,
        .docker = place->docker,
        .allows_cpu_build = true,
        .use = {.python = step->python != NULL, .arch = stk_text_or(arch_of(place), "amd64")}};
    const stk_image_prepare how = {.folder = stk_spec_folder(spec),
                                   .python = options->python,
                                   .registry = place->stack->registry,
                                   .logs = logs,
                                   .say = options->say,
                                   .arg = options->arg};
    STK_TRY(stk_engine_find(place->stack->socket, e->arena, &engine, err));
    STK_TRY(stk_image_make_ready(&engine, &how, &want, 1, NULL, &findings, err));
    if (want.pinned == NULL) {
        return stk_err_set(err, STK_E_ENV, "step '%s': its image was built, but not pushed to '%s'",
                           step->name, place->stack->registry);
    }
    e->images[i] = want.pinned;
    e->paths[i] = stk_run_env_value(want.env, "PYTHONPATH");
    return 0;
}

int stk_run_elsewhere_images(stk_run_elsewhere *e, const stk_spec *spec,
                             const stk_run_options *options, const char *logs, stk_plan *plan,
                             bool soft, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    if (e->n == 0) {
        return 0;
    }
    e->images = stk_arena_array(e->arena, n, sizeof *e->images);
    e->paths = stk_arena_array(e->arena, n, sizeof *e->paths);
    if (e->images == NULL || e->paths == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_place *place = &e->steps[i];
        const char *how = NULL;
        if (!stk_run_is_away(e, i)) {
            continue;
        }
        if (!stk_place_in_image(place)) {
            STK_TRY(check_carry(e, spec, i, err));
        } else if (stk_image_builds(place->docker) || place->image == NULL) {
            STK_TRY(build_image(e, spec, options, logs, i, plan, soft, err));
        } else {
            STK_TRY(find_image(e, spec, i, plan, err));
        }
        STK_TRY(stk_run_how_it_runs(place, e->arena, &how, err));
        if (e->images[i] != NULL) {
            STK_TRY(stk_plan_set_image(plan, i, e->images[i], how, err));
        }
    }
    return 0;
}
