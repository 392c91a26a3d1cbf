/* Where one step runs, and in which image. */
#include "image/stack/stack.h"

#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "image/stack/stack_private.h"
#include "model/spec/spec_read.h"

static const stk_json_limits setting_limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                               STK_LIMIT_DEPTH};

const char *stk_stack_map(const stk_stack *stack, const char *image, stk_arena *arena)
{
    for (uint32_t i = 0; i < stack->n_image_map; i++) {
        const stk_pair *p = &stack->image_map[i];
        size_t n = strlen(p->key);
        bool part = strchr("/:@", p->key[n - 1]) != NULL || strchr("/:@", image[n]) != NULL;
        if (strncmp(image, p->key, n) == 0 && part) { /* `python` is no part of `pythonista` */
            return stk_arena_printf(arena, "%s%s", p->value, image + n);
        }
    }
    size_t n = strcspn(image, "/"), n_name = strcspn(image, ".:/");
    bool has_registry = image[n] == '/' && (n_name < n || strncmp(image, "localhost/", 10) == 0);
    if (stack->image_registry != NULL && !has_registry) {
        size_t end = strlen(stack->image_registry);
        end -= stack->image_registry[end - 1] == '/';
        return stk_arena_printf(arena, "%.*s/%s", (int)end, stack->image_registry, image);
    }
    return image;
}

/* What a step says about its place and image. */
typedef struct wish {
    stk_json backend, docker; /* NULL nodes: nothing */
    const char *name;         /* its backend as a plain name */
    const char *stack;        /* a stack that needn't be there, or NULL */
    int kind;                 /* that it names or has options for; -1: none, or a stack's name */
    bool only_options;        /* for other machines, without saying that it is to go there */
} wish;

static int parse_setting(const char *json, stk_arena *arena, stk_json *ret, stk_err *err)
{
    if (json == NULL) {
        return 0;
    }
    return stk_json_parse(json, strlen(json), NULL, &setting_limits, arena, ret, err);
}

static const stk_stack *named(const stk_stack *run, const char *name)
{
    for (uint32_t i = 0; name != NULL && i < run->n_all; i++) {
        if (strcmp(run->all[i].name, name) == 0) {
            return &run->all[i];
        }
    }
    return NULL;
}

static int unknown_backend(const stk_stack *run, const char *step, const char *name,
                           stk_arena *arena, stk_err *err)
{
    STK_BUF_AUTO list = STK_BUF_INIT(400);
    const char **names = stk_arena_array(arena, run->n_all + STK_PLACE_N, sizeof *names);
    uint32_t n = 0;
    STK_TRY(stk_err_if_null(names, err));
    for (uint32_t i = 0; i < run->n_all; i++) {
        names[n++] = run->all[i].name;
    }
    for (int i = 0; i < STK_PLACE_N; i++) {
        if (named(run, stk_place_word((stk_place_kind)i)) == NULL) {
            names[n++] = stk_place_word((stk_place_kind)i);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_separate(&list, ", ");
        stk_buf_printf(&list, "%.80s", names[i]);
    }
    stk_err_set(err, STK_E_SPEC, "step '%s': unknown backend '%.80s'; the backends are %.300s",
                step, name, stk_text_or(list.data, "local"));
    stk_spec_reader r = {.arena = arena, .err = err};
    stk_spec_did_you_mean(&r, name, names, n);
    return STK_E_SPEC;
}

static int read_wish(const stk_stack *run, const char *step, const stk_settings *settings,
                     stk_arena *arena, wish *ret, stk_err *err)
{
    wish w = {.kind = -1};
    STK_TRY(parse_setting(settings->backend, arena, &w.backend, err));
    STK_TRY(parse_setting(settings->docker, arena, &w.docker, err));
    w.name = stk_json_text(&w.backend);
    w.stack = stk_json_get_text(&w.backend, "stack");
    w.kind = stk_stack_kind(w.name);
    /* of several that it has options for: a container here before here itself before elsewhere */
    static const stk_place_kind order[] = {STK_PLACE_DOCKER, STK_PLACE_LOCAL, STK_PLACE_KUBERNETES,
                                           STK_PLACE_BATCH,  STK_PLACE_SLURM, STK_PLACE_SSH};
    for (size_t i = 0; w.name == NULL && w.kind < 0 && i < sizeof order / sizeof *order; i++) {
        if (stk_json_get(&w.backend, stk_place_word(order[i])) != NULL) {
            w.kind = (int)order[i];
            w.only_options = stk_place_is_elsewhere(order[i]);
            /* of both, the run's own */
            if (w.only_options && stk_place_is_elsewhere(run->kind) &&
                stk_json_get(&w.backend, stk_place_word(run->kind)) != NULL) {
                w.kind = (int)run->kind;
            }
        }
    }
    bool is_known = w.name == NULL || w.kind >= 0 || named(run, w.name) != NULL;
    *ret = w;
    if (is_known) {
        return 0;
    }
    return unknown_backend(run, step, w.name, arena, err);
}

/* The file's only stack of this backend, or the one that has its name; NULL: none, or several. */
static const stk_stack *of_kind(const stk_stack *run, stk_place_kind kind)
{
    const stk_stack *found = named(run, stk_place_word(kind));
    uint32_t n = 0;
    if (found != NULL && found->kind == kind) {
        return found;
    }
    for (uint32_t i = 0; i < run->n_all; i++) {
        if (run->all[i].kind == kind) {
            found = &run->all[i];
        }
        n += run->all[i].kind == kind;
    }
    return n == 1 ? found : NULL;
}

/* Whose machines a step runs on. *ret_stays: it names others, which there aren't. */
static const stk_stack *serving(const stk_stack *run, const wish *w, bool *ret_stays)
{
    const stk_stack *own = named(run, stk_text_or(w->stack, w->name));
    *ret_stays = own == NULL && w->stack != NULL;
    if (own != NULL) {
        return own;
    }
    if (*ret_stays || w->kind < 0 || !stk_place_is_elsewhere((stk_place_kind)w->kind) ||
        run->kind == (stk_place_kind)w->kind || (w->only_options && run->is_chosen)) {
        return run;
    }
    own = of_kind(run, (stk_place_kind)w->kind);
    *ret_stays = own == NULL;
    return own != NULL ? own : run;
}

/* The image of steps that name none; `pool` may be NULL. */
static const char *stack_image(const stk_stack *stack, const stk_pool *pool, stk_arena *arena)
{
    const char *image = NULL;
    if (pool != NULL && pool->options != NULL) {
        image = stk_json_get_text(stk_json_read(arena, pool->options), "image");
    }
    if (image == NULL && stk_place_is_elsewhere(stack->kind) && stack->options != NULL) {
        image = stk_json_get_text(stk_json_read(arena, stack->options), "image");
    }
    return stk_text_or(image, stack->default_image);
}

/* The image as somebody wrote it; NULL: nobody did. */
static const char *written_image(const wish *w, const stk_stack *stack, const stk_pool *pool,
                                 stk_arena *arena, const char **ret_source)
{
    static const char *const holders[] = {"docker", "kubernetes", "batch"};
    const char *image = NULL;
    *ret_source = "the step";
    if (stk_json_get_text(&w->docker, "dockerfile") != NULL) {
        return NULL; /* which names its own parent */
    }
    if (stk_place_is_elsewhere(stack->kind)) { /* what is said of just this place */
        const stk_json *own = stk_json_get(&w->backend, stk_place_word(stack->kind));
        image = stk_json_get_text(own, "image");
    }
    if (image == NULL) {
        image = stk_json_get_text(&w->docker, "parent_image");
    }
    for (size_t i = 0; image == NULL && i < sizeof holders / sizeof *holders; i++) {
        image = stk_json_get_text(stk_json_get(&w->backend, holders[i]), "image");
    }
    if (image == NULL) {
        image = stack_image(stack, pool, arena);
        *ret_source = stk_arena_printf(arena, "stack '%s'", stack->name);
    }
    return image;
}

static int keep_options(const stk_json *options, stk_arena *arena, stk_place *place, stk_err *err)
{
    if (!stk_json_is_map(options) || options->n == 0) {
        return 0;
    }
    place->options = stk_json_dump_in(options, arena);
    return stk_err_if_null(place->options, err);
}

static int set_note(stk_place *place, const char *note, const char *many, stk_err *err)
{
    place->note = note;
    place->note_many = many;
    STK_TRY(stk_err_if_null(note, err));
    return stk_err_if_null(many, err);
}

/* --- in a container of this machine --- */

static int place_inside(const stk_stack *stack, const char *step, const wish *w, stk_arena *arena,
                        stk_place *place, stk_err *err)
{
    place->written = written_image(w, stack, NULL, arena, &place->source);
    bool builds = stk_json_get_text(&w->docker, "dockerfile") != NULL;
    if (place->written == NULL && !builds && w->kind == STK_PLACE_DOCKER) {
        stk_err_set(err, STK_E_SPEC, "step '%s' runs in a container, but names no image", step);
        stk_err_hint(err, "add `docker: {parent_image: …}` to it, or default_image to its stack");
        return STK_E_SPEC;
    }
    const stk_json *options = stk_json_get(&w->backend, "docker");
    STK_BUF_AUTO unused = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    stk_spec_unused_run_args(stk_json_get(options, "run_args"), &unused);
    STK_TRY(keep_options(options, arena, place, err));
    STK_TRY(stk_buf_check(&unused, err));
    if (unused.len > 0) {
        place->note = stk_arena_printf(arena, "step '%s': run_args: %s ha%s no effect here", step,
                                       unused.data, strchr(unused.data, ',') == NULL ? "s" : "ve");
        STK_TRY(stk_err_if_null(place->note, err));
    }
    if (place->written == NULL && !builds) {
        place->options = NULL;
        return set_note(
            place,
            stk_arena_printf(arena,
                             "step '%s' names no image and stack '%s' has no default_image, so it "
                             "runs on this machine without a container",
                             step, stack->name),
            stk_arena_printf(arena,
                             "name no image and stack '%s' has no default_image, so they run on "
                             "this machine without a container",
                             stack->name),
            err);
    }
    place->kind = STK_PLACE_DOCKER;
    return 0;
}

/* --- on other machines --- */

static stk_resources *with_defaults(const stk_stack *stack, const stk_resources *own,
                                    stk_arena *arena)
{
    stk_resources *all = stk_arena_array(arena, 1, sizeof *all);
    const stk_resources *d = stack->defaults;
    if (all == NULL) {
        return NULL;
    }
    *all = *own;
    if (d != NULL) {
        if (own->cpu_milli < 0) {
            all->cpu_milli = d->cpu_milli;
        }
        if (own->memory_bytes < 0) {
            all->memory_bytes = d->memory_bytes;
        }
        bool asks = stk_spec_n_devices(own) > 0;
        if (!asks && own->base.gpu_count < 0) {
            all->base.gpu_count = d->base.gpu_count;
            all->base.gpu_memory_bytes = d->base.gpu_memory_bytes;
        }
        /* a kind is one thing: one that the step names itself is not mixed with another's */
        if (own->base.gpu_class == NULL && own->base.gpu_vendor == NULL && own->n_any_of == 0) {
            all->base.gpu_class = d->base.gpu_class;
            all->base.gpu_vendor = d->base.gpu_vendor;
        }
    }
    return all;
}

static int lay_options(const char *options, stk_arena *arena, stk_resources *res, stk_err *err)
{
    stk_json node = {0};
    int rc = parse_setting(options, arena, &node, err);
    if (rc == 0 && options != NULL) {
        stk_spec_lay_options(&node, res);
    }
    return rc;
}

/* What is inherited, over it the stack's, over them the pool's, over them the step's own. */
static int merge_options(const stk_stack *stack, const wish *w, stk_arena *arena, stk_place *place,
                         stk_err *err)
{
    stk_spec_reader r = {.arena = arena, .err = err};
    stk_json all = {0}, over = {0};
    const stk_json *own = stk_json_get(&w->backend, stk_place_word(stack->kind));
    STK_TRY(parse_setting(stack->own_options, arena, &all, err));
    if (place->pool != NULL && place->pool->options != NULL) {
        STK_TRY(parse_setting(place->pool->options, arena, &over, err));
        STK_TRY(stk_spec_merge(&r, &all, &over, &all));
    }
    if (stk_json_is_map(own)) {
        STK_TRY(stk_spec_merge(&r, &all, own, &all));
    }
    STK_TRY(stk_stack_lay_over(stack, &all, arena, &all, err));
    place->max_jobs = stk_stack_whole_option(stack, &all, "max_jobs", stack->max_jobs);
    return keep_options(&all, arena, place, err);
}

/* What a step says of its image would be lost where steps run without one. */
static int refuse_docker(const stk_stack *stack, const char *step, const wish *w, stk_err *err)
{
    if (!stk_json_is_map(&w->docker) || w->docker.n == 0) {
        return 0;
    }
    stk_err_set(err, STK_E_SPEC,
                "step '%s' has `docker` settings, but on %s (stack '%.80s') it runs on the node's "
                "own system, without a container",
                step, stk_place_word(stack->kind), stack->name);
    stk_err_hint(err,
                 "%sremove `docker` from it, and prepare what it needs on the nodes (for "
                 "example an environment that the option `python` names)",
                 stk_text_when(stack->kind == STK_PLACE_SLURM, "add `parent_image`, or "));
    return STK_E_SPEC;
}

int stk_stack_check_store(const stk_stack *stack, stk_err *err)
{
    bool has_jobs_of_its_own = stack->kind == STK_PLACE_KUBERNETES ||
                               stack->kind == STK_PLACE_BATCH || stack->kind == STK_PLACE_SLURM;
    if (stack->store == NULL || !has_jobs_of_its_own || strncmp(stack->store, "ssh://", 6) != 0) {
        return 0;
    }
    stk_err_set(err, STK_E_SPEC,
                "the store of stack '%.80s' is %.200s, which your ssh reaches; jobs on %s have no "
                "keys of yours",
                stack->name, stack->store, stk_place_word(stack->kind));
    stk_err_hint(err, "%s", stk_place_store_way(stack->kind));
    return STK_E_SPEC;
}

static int place_elsewhere(const stk_stack *stack, const char *step, const stk_settings *settings,
                           const wish *w, stk_arena *arena, stk_place *place, stk_err *err)
{
    place->kind = stack->kind;
    bool builds = stk_json_get_text(&w->docker, "dockerfile") != NULL;
    int64_t nodes = MAX(settings->gang.nodes, 1);
    stk_resources *asked = with_defaults(stack, &settings->resources, arena);
    place->resources = asked;
    STK_TRY(stk_err_if_null(asked, err));
    STK_TRY(lay_options(stack->options, arena, asked, err));
    STK_TRY(stk_stack_fit(stack, step, asked, nodes, arena, &place->pool, err));
    if (place->pool != NULL) {
        STK_TRY(lay_options(place->pool->options, arena, asked, err));
    }
    if (stk_place_has_image(stack->kind) || stack->kind == STK_PLACE_SLURM) {
        place->written = written_image(w, stack, place->pool, arena, &place->source);
    }
    if (!stk_place_has_image(stack->kind) && place->written == NULL) {
        STK_TRY(refuse_docker(stack, step, w, err));
    }
    if (stk_place_has_image(stack->kind) && place->written == NULL && !builds) {
        stk_err_set(err, STK_E_SPEC, "step '%s' runs on %s (stack '%.80s'), but names no image",
                    step, stk_place_word(stack->kind), stack->name);
        stk_err_hint(err,
                     "add `docker: {parent_image: …}` or `@%s(image=…)` to it, or default_image to "
                     "the stack",
                     stk_place_word(stack->kind));
        return STK_E_SPEC;
    }
    if (stack->store == NULL) {
        stk_err_set(err, STK_E_SPEC,
                    "step '%s' runs on %s (stack '%.80s'), but the stack has no store that its "
                    "machines share with this one",
                    step, stk_place_word(stack->kind), stack->name);
        stk_err_hint(err, "%s to the stack in stoker.yaml, or set STOKER_SHARE",
                     stk_place_store_way(stack->kind));
        return STK_E_SPEC;
    }
    STK_TRY(stk_stack_check_store(stack, err));
    return merge_options(stack, w, arena, place, err);
}

/* "'a', 'b'": the file's stacks of a backend; NULL: it has none, or no memory. */
static const char *names_of_kind(const stk_stack *run, stk_place_kind kind, stk_arena *arena)
{
    STK_BUF_AUTO names = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    for (uint32_t i = 0; i < run->n_all; i++) {
        if (run->all[i].kind == kind) {
            stk_buf_separate(&names, ", ");
            stk_buf_printf(&names, "'%s'", run->all[i].name);
        }
    }
    return stk_arena_dup(arena, names.data);
}

static int stay(const stk_stack *run, const char *step, const wish *w, stk_arena *arena,
                stk_place *place, stk_err *err)
{
    const char *where =
        run->kind == STK_PLACE_LOCAL ? "on this machine" : "where the run's other steps do";
    const char *what = NULL, *remedy = "add it to stoker.yaml";
    if (w->stack != NULL) {
        what = stk_arena_printf(arena, "stack '%s', but this project has no such stack", w->stack);
    } else {
        const char *word = stk_place_word((stk_place_kind)w->kind);
        const char *several = names_of_kind(run, (stk_place_kind)w->kind, arena);
        if (several == NULL) {
            what = stk_arena_printf(arena, "%s, but this project has no stack with that backend",
                                    word);
            remedy = stk_arena_printf(arena, "use --with %s, or add a stack to stoker.yaml", word);
        } else {
            what = stk_arena_printf(
                arena, "%s, but this project has several stacks with that backend (%s)", word,
                several);
            remedy = "use --with STACK, or name the stack as the step's backend";
        }
    }
    STK_TRY(stk_err_if_null(what, err));
    STK_TRY(stk_err_if_null(remedy, err));
    return set_note(place,
                    stk_arena_printf(arena, "step '%s' asks for %s; it runs %s (%s)", step, what,
                                     where, remedy),
                    stk_arena_printf(arena, "ask for %s; they run %s (%s)", what, where, remedy),
                    err);
}

int stk_stack_place(const stk_stack *run, const char *step, const stk_settings *settings,
                    stk_arena *arena, stk_place *ret, stk_err *err)
{
    wish w = {0};
    bool stays = false;
    STK_TRY(read_wish(run, step, settings, arena, &w, err));
    const stk_stack *stack = serving(run, &w, &stays);
    stk_place place = {.docker = settings->docker, .stack = stack};
    bool is_here =
        (w.kind == STK_PLACE_LOCAL || w.kind == STK_PLACE_DOCKER) && (w.stack == NULL || stays);
    if (stk_place_is_elsewhere(stack->kind) && !is_here) {
        STK_TRY(place_elsewhere(stack, step, settings, &w, arena, &place, err));
    } else if (w.kind == STK_PLACE_DOCKER ||
               (w.kind != STK_PLACE_LOCAL && stack->kind == STK_PLACE_DOCKER)) {
        STK_TRY(place_inside(stack, step, &w, arena, &place, err));
    }
    if (stays && place.note == NULL) {
        STK_TRY(stay(run, step, &w, arena, &place, err));
    }
    STK_TRY(stk_stack_note_unused(&w.backend, step, &settings->resources, arena, &place, err));
    if (place.kind != STK_PLACE_LOCAL && place.written != NULL) {
        place.image = stk_stack_map(stack, place.written, arena);
        STK_TRY(stk_err_if_null(place.image, err));
    }
    *ret = place;
    return 0;
}
