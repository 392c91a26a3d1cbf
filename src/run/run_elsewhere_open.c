/* Steps on other machines: checks that their engines would accept them, and opens the backends. */
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote.h"
#include "base/text.h"
#include "run/run_carry.h"
#include "run/run_containers.h"
#include "run/run_elsewhere.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { ASK_AGAIN_MS = 30000 };

#define CARRY_AT "/stoker"

void stk_run_driver_config(const stk_stack *stack, const char *run, stk_driver_config *ret)
{
    *ret = (stk_driver_config){.stack = stack->name,
                               .options = stk_text_or(stack->options, "{}"),
                               .run = run,
                               .carry = stack->carry,
                               .runner_image = stack->runner_image,
                               .carry_volume = stack->carry_volume,
                               .share_url = stack->store,
                               .store_volume = stack->store_volume,
                               .pending_ms = stack->pending_ms};
}

static int driver_of(const stk_run_elsewhere *e, uint32_t k, const char *run,
                     const stk_driver_kind **ret_kind, stk_driver_config *ret, stk_err *err)
{
    const char *word = stk_place_word(e->stacks[k]->kind);
    *ret_kind = e->drivers == NULL ? NULL : e->drivers(word);
    stk_run_driver_config(e->stacks[k], run, ret);
    if (*ret_kind == NULL) {
        return stk_err_set(err, STK_E_ENV, "this build has no driver for %s", word);
    }
    return 0;
}

/* The attempt folder that a step's first attempt would have, in the run "RUN". */
static int find_attempt(const stk_run_elsewhere *e, const stk_spec *spec, const stk_step *step,
                        const char **ret_store, const char **ret_dir, stk_err *err)
{
    STK_TEXT_AUTO store = NULL;
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &store, err));
    *ret_store = stk_arena_dup(e->arena, store);
    *ret_dir = stk_arena_printf(e->arena, "%s/runs/RUN/%s/%u/1", store, step->name,
                                stk_spec_grows(spec) ? 1u : 0u);
    return *ret_store == NULL ? stk_err_nomem(err) : stk_err_if_null(*ret_dir, err);
}

int stk_run_elsewhere_documents(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i,
                                void (*note)(void *arg, const char *text), void *arg,
                                const char ***ret_documents, uint32_t *ret_n, stk_err *err)
{
    static const char *const nothing[] = {NULL};
    const stk_step *step = stk_spec_step(spec, i);
    const stk_settings *s = step->settings;
    const stk_place *place = &e->steps[i];
    const char *argv[] = {"-", NULL}; /* the agent reads the command from its job.json */
    const char **pairs = stk_arena_array(e->arena, (size_t)s->n_secrets + 1, sizeof *pairs);
    const char **names = stk_arena_array(e->arena, (size_t)s->n_secrets + 1, sizeof *names);
    const char *store = NULL, *dir = NULL;
    STK_TRY(find_attempt(e, spec, step, &store, &dir, err));
    stk_remote_config config = {
        .share_url = place->stack->store,
        .store_path = store,
        .run = "RUN",
        .pipeline = stk_spec_name(spec),
        .code_root = stk_run_project(spec, stk_run_main_file(spec, e->arena), e->arena),
        .carry_at = CARRY_AT};
    if (pairs == NULL || names == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t k = 0; k < s->n_secrets; k++) {
        names[k] = s->secrets[k];
        pairs[k] = stk_arena_printf(e->arena, "%s=", s->secrets[k]);
        STK_TRY(stk_err_if_null(pairs[k], err));
    }
    stk_job_elsewhere away = {.backend = e->away[i].place,
                              .image = place->image,
                              .image_named = place->image,
                              .options = stk_text_or(place->options, "{}"),
                              .resources = place->resources,
                              .is_many = step->in_foreach};
    stk_job job = {.id = i,
                   .attempt = 1,
                   .step = step->name,
                   .gang = s->gang.ranks != 0,
                   .nodes = (uint32_t)MAX(s->gang.nodes, 1),
                   .dir = dir,
                   .argv = argv,
                   .env = nothing,
                   .timeout_ms = s->timeout_ms,
                   .grace_ms = s->grace_ms,
                   .elsewhere = &away};
    if (e->images != NULL) {
        away.image = e->images[i];
    }
    if (s->n_secrets > 0) {
        away.secrets = names;
        job.env = pairs;
    }
    if (s->timeout_ms > 0) {
        job.notice_ms = s->timeout_notice_ms;
    }
    int rc = driver_of(e, e->away[i].place - 1, "RUN", &config.kind, &config.driver, err);
    if (rc == 0) {
        config.driver.note = note;
        config.driver.note_arg = arg;
        rc = stk_remote_preview(&config, &job, e->arena, ret_documents, ret_n, err);
    }
    if (rc < 0 &&
        strncmp(err->text, "step '", 6) != 0) { /* some drivers name the step themselves */
        return stk_err_context(err, "step '%s'", step->name);
    }
    return rc;
}

/* Checks that the store of a stack can be used. */
static int check_store(const stk_stack *stack, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(stack->store, &share, err));
    return stk_share_check(share, err);
}

/* Checks that there is an engine and, unless `soft`, a writable store. Errors that concern every
 * step are reported once, before a step starts. */
static int check_place(const stk_run_elsewhere *e, uint32_t k, bool soft, stk_err *err)
{
    const stk_driver_kind *kind = NULL;
    stk_driver_config config;
    stk_driver *driver = NULL;
    int rc = driver_of(e, k, "check", &kind, &config, err);
    if (rc == 0) {
        rc = kind->open(&config, &driver, err);
    }
    if (driver != NULL) {
        driver->ops->close(driver);
    }
    if (rc == 0 && !soft) {
        rc = check_store(e->stacks[k], err);
    }
    if (rc < 0) {
        return stk_err_context(err, "stack '%s'", e->stacks[k]->name);
    }
    return 0;
}

/* A refusal ends a run; for a plan it becomes a note. */
static int refuse_or_note(int rc, bool soft, const stk_err *why, stk_plan *plan, stk_err *err)
{
    char text[1200];
    if (rc < 0 && soft && rc != STK_E_NOMEM) {
        return stk_plan_remark(plan, err, "refused: %s",
                               stk_err_format(why, text, (int)sizeof text));
    }
    if (rc < 0) {
        *err = *why;
    }
    return rc;
}

/* Asks the machines of a place whether they can hold what its steps ask for that have no result
 * yet. */
static int check_room(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t k, stk_plan *plan,
                      bool soft, stk_err *err)
{
    const stk_driver_kind *kind = NULL;
    stk_driver_config config;
    uint32_t n_steps = stk_spec_n_steps(spec), n = 0;
    stk_remote_ask *asks = stk_arena_array(e->arena, n_steps, sizeof *asks);
    stk_err *whys = stk_arena_array(e->arena, n_steps, sizeof *whys);
    uint32_t *steps = stk_arena_array(e->arena, n_steps, sizeof *steps);
    if (asks == NULL || whys == NULL || steps == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(driver_of(e, k, "check", &kind, &config, err));
    for (uint32_t i = 0; i < n_steps; i++) {
        const stk_settings *s = stk_spec_step(spec, i)->settings;
        if (e->away[i].place == k + 1 && !stk_plan_request(plan, i)->is_settled) {
            const stk_resources *own = e->away[i].resources;
            asks[n] = (stk_remote_ask){.resources = own != NULL ? own : &s->resources,
                                       .options = stk_text_or(e->steps[i].options, "{}"),
                                       .nodes = (uint32_t)MAX(s->gang.nodes, 1)};
            steps[n++] = i;
        }
    }
    if (kind->holds == NULL || n == 0) {
        return 0;
    }
    STK_TRY(kind->holds(&config, asks, n, whys, err));
    for (uint32_t i = 0; i < n; i++) {
        if (whys[i].code != 0) {
            (void)stk_err_context(&whys[i], "step '%s'", stk_spec_step(spec, steps[i])->name);
        }
        STK_TRY(refuse_or_note(whys[i].code, soft, &whys[i], plan, err));
    }
    return 0;
}

int stk_run_elsewhere_check(const stk_run_elsewhere *e, const stk_spec *spec, stk_plan *plan,
                            bool soft, stk_err *err)
{
    for (uint32_t i = 0; e->n > 0 && i < stk_spec_n_steps(spec); i++) {
        stk_err why = {0};
        const char **documents = NULL;
        uint32_t n = 0;
        if (stk_run_is_away(e, i)) {
            int rc = stk_run_elsewhere_documents(e, spec, i, NULL, NULL, &documents, &n, &why);
            STK_TRY(refuse_or_note(rc, soft, &why, plan, err));
        }
    }
    for (uint32_t k = 0; k < e->n_places; k++) {
        stk_err why = {0};
        int rc = check_place(e, k, soft, &why);
        STK_TRY(refuse_or_note(rc, soft, &why, plan, err));
        if (rc == 0) {
            STK_TRY(check_room(e, spec, k, plan, soft, err));
        }
    }
    return 0;
}

/* Fetches it from the first share that has it. */
static int fetch(void *arg, stk_store *store, const char *digest, stk_err *err)
{
    stk_run_elsewhere *e = arg;
    int rc = STK_E_NOT_FOUND;
    for (uint32_t k = 0; k < e->n_places && rc == STK_E_NOT_FOUND; k++) {
        bool again = k > 0 && strcmp(e->stacks[k]->store, e->stacks[k - 1]->store) == 0;
        rc = again ? STK_E_NOT_FOUND : stk_share_pull(e->shares[k], store, digest, err);
    }
    return rc;
}

static void fetch_cancel(void *arg)
{
    stk_run_elsewhere *e = arg;
    for (uint32_t k = 0; k < e->n_places; k++) {
        stk_share_cancel(e->shares[k]);
    }
}

/* The engine's own thread calls it for look-ups in the cache. A share that doesn't answer soon
 * counts as not having the artifact, and isn't asked again for a while. */
static int share_has(void *arg, const char *digest, bool *ret_has, stk_err *err)
{
    stk_run_elsewhere *e = arg;
    int rc = 0;
    *ret_has = false;
    if (stk_clock_mono_ms(&stk_clock_real) < e->ask_again_ms) {
        return stk_err_set(err, STK_E_ENV, "the store didn't answer a moment ago");
    }
    for (uint32_t k = 0; k < e->n_places && rc == 0 && !*ret_has; k++) {
        if (e->asked[k] == NULL) {
            rc = stk_share_open(e->stacks[k]->store, &e->asked[k], err);
        }
        if (rc == 0) {
            stk_share_hurry(e->asked[k]);
            rc = stk_share_has(e->asked[k], digest, ret_has, err);
        }
    }
    if (rc < 0) {
        e->ask_again_ms = stk_clock_mono_ms(&stk_clock_real) + ASK_AGAIN_MS;
    }
    return rc;
}

/* In the container the project's and the store's folders are empty until the agent fills them from
 * the share, so the share must not be in one of them. */
static int check_share(const stk_stack *stack, const char *root, const stk_store *store,
                       stk_err *err)
{
    const char *const taken[] = {root, stk_store_path(store)};
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(stack->store, &share, err));
    const char *folder = stk_share_folder(share);
    for (size_t i = 0; i < 2 && folder != NULL; i++) {
        size_t n = strlen(taken[i]);
        if (strncmp(folder, taken[i], n) == 0 && (folder[n] == '/' || folder[n] == '\0')) {
            stk_err_set(err, STK_E_SPEC,
                        "the store of stack '%s' is %s, within %s, but each of its machines has "
                        "its own copy of that folder",
                        stack->name, folder, taken[i]);
            stk_err_hint(err, "name a folder outside it that all of them mount");
            return STK_E_SPEC;
        }
    }
    return 0;
}

int stk_run_elsewhere_code(stk_run_elsewhere *e, const stk_spec *spec, const char *main_file,
                           stk_plan *plan, stk_store *store, stk_err *err)
{
    if (e->n == 0) {
        return 0;
    }
    stk_artifact package;
    const char *root = stk_run_project(spec, main_file, e->arena);
    STK_TRY(stk_err_if_null(root, err));
    STK_TRY(stk_run_check_project(root, false, err));
    STK_TRY(stk_run_package(store, spec, root, plan, &package, err));
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (stk_run_is_away(e, i) && step->python != NULL) {
            STK_TRY(stk_run_check_python(spec, step, main_file, err));
        }
    }
    for (uint32_t k = 0; k < e->n_places; k++) {
        STK_TRY(check_share(e->stacks[k], root, store, err));
        STK_TRY(stk_run_share_keep(store, e->stacks[k]->store, err));
        STK_TRY(stk_share_open(e->stacks[k]->store, &e->shares[k], err));
    }
    e->code = stk_arena_dup(e->arena, package.digest);
    e->exec = (stk_exec_elsewhere){.places = e->steps,
                                   .images = e->images,
                                   .python_paths = e->paths,
                                   .carry_at = CARRY_AT,
                                   .root = root,
                                   .has_code = true,
                                   .main_file = main_file,
                                   .fetch = fetch,
                                   .fetch_cancel = fetch_cancel,
                                   .fetch_arg = e};
    stk_store_set_origin(store, fetch, e);
    stk_store_set_origin_has(store, share_has);
    return stk_err_if_null(e->code, err);
}

/* For a forecast, which fetches nothing. */
static int fetch_nothing(void *arg, stk_store *store, const char *digest, stk_err *err)
{
    (void)arg, (void)store, (void)digest, (void)err;
    return STK_E_NOT_FOUND;
}

void stk_run_elsewhere_forecast(const stk_run_elsewhere *e, stk_store *store)
{
    if (e->n > 0) {
        stk_store_set_origin(store, fetch_nothing, NULL);
    }
}

int stk_run_elsewhere_to_end(stk_run_elsewhere *e, const stk_spec *spec, stk_store *store,
                             stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    if (e->n == 0) {
        return 0;
    }
    e->only_to_end = true;
    e->images = stk_arena_array(e->arena, n, sizeof *e->images);
    for (uint32_t i = 0; e->images != NULL && i < n; i++) {
        if (stk_place_in_image(&e->steps[i])) {
            e->images[i] = stk_text_or(e->steps[i].image, "image");
        }
    }
    e->exec = (stk_exec_elsewhere){.places = e->steps, .images = e->images, .carry_at = CARRY_AT};
    stk_store_set_origin(store, fetch, e);
    stk_store_set_origin_has(store, share_has);
    return stk_err_if_null(e->images, err);
}

/* Puts our program into the share, from where the containers get it. */
static int carry_program(const char *program, const stk_run_elsewhere *e, uint32_t k, bool lays_out,
                         const char **ret_digest, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(e->stacks[k]->store, &share, err));
    STK_TRY(stk_run_carry_tar(program, share, e->arena, ret_digest, err));
    const char *folder = stk_share_folder(share);
    if (folder == NULL || !lays_out) {
        return 0;
    }
    return stk_run_carry_lay(program, folder, *ret_digest, e->arena, err);
}

static int open_place(const stk_run_elsewhere *e, uint32_t k, const char *program,
                      const stk_spec *spec, stk_store *store, const char *run, stk_backend **ret,
                      stk_err *err)
{
    stk_remote_config config = {.store_path = stk_store_path(store),
                                .share_url = e->stacks[k]->store,
                                .run = run,
                                .pipeline = stk_spec_name(spec),
                                .code_digest = e->code,
                                .code_root = e->exec.root,
                                .carry_at = CARRY_AT,
                                .log = e->log};
    STK_TRY(driver_of(e, k, run, &config.kind, &config.driver, err));
    if (!e->only_to_end && strcmp(config.driver.carry, "store") == 0) {
        STK_TRY(carry_program(program, e, k, config.kind->starts_in_share,
                              &config.driver.carry_digest, err));
    }
    return stk_remote_open(&config, ret, err);
}

int stk_run_elsewhere_open(stk_run_elsewhere *e, const char *program, const stk_spec *spec,
                           stk_store *store, const char *run, stk_backend *local, stk_backend **ret,
                           stk_err *err)
{
    stk_backend *all[1 + STK_PLAN_PLACES] = {local};
    uint32_t n = 1;
    int rc = 0;
    if (e->n_places == 0) {
        *ret = local;
        return 0;
    }
    for (uint32_t k = 0; k < e->n_places && rc == 0; k++) {
        rc = open_place(e, k, program, spec, store, run, &all[n], err);
        n += rc == 0;
    }
    if (rc == 0) {
        return stk_backend_mux_open(all, n, ret, err);
    }
    for (uint32_t k = 0; k < n; k++) {
        all[k]->ops->close(all[k]);
    }
    return rc;
}

void stk_run_elsewhere_close(stk_run_elsewhere *e)
{
    for (uint32_t k = 0; k < STK_PLAN_PLACES; k++) {
        stk_share_close(e->shares[k]);
        stk_share_close(e->asked[k]);
        e->shares[k] = e->asked[k] = NULL;
    }
}
