/* Steps on other machines (docs/decisions/0010-elsewhere.md): finds their inputs, makes the job for
 * the backend, reads what the job was granted, and handles attempts that outlive an engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

enum { GRANTED_BYTES = 256 << 10 };

/* The number of the task's place; 0: this machine. */
static uint32_t number_of_place(const stk_exec *x, uint32_t task)
{
    return stk_plan_request(x->config.plan, x->tasks[task].i_step)->place;
}

bool stk_exec_is_away(const stk_exec *x, uint32_t task)
{
    return x->config.elsewhere != NULL && number_of_place(x, task) > 0;
}

static const stk_capacity_place *place_of(const stk_exec *x, uint32_t task)
{
    return &x->config.capacity->places[number_of_place(x, task) - 1];
}

const char *stk_exec_away_image(const stk_exec *x, uint32_t task)
{
    return x->config.elsewhere->images[x->tasks[task].i_step];
}

uint32_t stk_exec_n_devices(const stk_exec *x, uint32_t task)
{
    const exec_slot *slot = x->tasks[task].slot;
    if (stk_exec_is_away(x, task)) {
        return stk_plan_request(x->config.plan, x->tasks[task].i_step)->n_devices;
    }
    return slot == NULL ? 0 : slot->lease.n;
}

/* --- inputs --- */

int stk_exec_artifact(stk_exec *x, bool is_away, const char *digest, stk_arena *arena,
                      const char **ret_path, int64_t *ret_size, stk_err *err)
{
    bool comes = false;
    STK_TRY(stk_exec_sum_artifact(x->sum, x->config.store, digest, &comes, err));
    if (!comes && !is_away) {
        STK_TRY(stk_exec_sum_fetch(x->sum, digest, &comes, err));
    }
    if (comes) { /* a thread brings it: the launch is put aside, and keeps the links that it made */
        *ret_path = stk_arena_printf(arena, "%s/artifacts/%.2s/%s", stk_store_path(x->config.store),
                                     digest, digest + 2);
        return stk_err_if_null(*ret_path, err);
    }
    if (is_away) {
        return stk_store_locate(x->config.store, digest, arena, ret_path, ret_size, err);
    }
    return stk_store_artifact(x->config.store, digest, arena, ret_path, ret_size, err);
}

/* Copies a file into the store. *ret without a digest: a thread is copying it, and the launch is
 * put aside. */
static int copy_file(stk_exec *x, const char *path, stk_artifact *ret, stk_err *err)
{
    stk_store_work *work = NULL;
    bool leaves = false;
    *ret = (stk_artifact){.size = 0};
    if (!stk_exec_sum_is_long(x->sum, x->config.store, EXEC_SUM_COPY, path, NULL)) {
        return stk_store_copy_path(x->config.store, path, ret, err);
    }
    STK_TRY(stk_exec_sum_ask(x->sum, x->config.store, EXEC_SUM_COPY, path, NULL, &work, err));
    if (work == NULL) {
        return 0;
    }
    STK_TRY(stk_store_work_take(x->config.store, work, ret, &leaves, err));
    if (!leaves) {
        return 0;
    }
    return stk_store_work_run(work, err);
}

/* Makes the file an artifact, so that the other machine can read it. */
static int store_file(stk_exec *x, uint32_t task, const char *path, const char **ret_path,
                      const char **ret_digest, stk_err *err)
{
    stk_artifact artifact;
    const char *digest = stk_exec_file_digest(&x->lookup, path, err);
    if (digest == NULL) {
        return err->code;
    }
    if (stk_store_locate(x->config.store, digest, x->scratch, ret_path, NULL, NULL) < 0) {
        STK_TRY(copy_file(x, path, &artifact, err));
        if (artifact.digest[0] == '\0') { /* the launch is put aside */
            *ret_path = path;
            *ret_digest = digest;
            return 0;
        }
        digest = stk_arena_dup(x->arena, artifact.digest); /* of the content that was copied */
        STK_TRY(stk_err_if_null(digest, err));
        STK_TRY(stk_store_locate(x->config.store, digest, x->scratch, ret_path, NULL, err));
    }
    *ret_digest = digest;
    stk_ref_row row = {.digest = digest, .task = task, .output = "in"};
    return stk_exec_push_ref(x, &row, err);
}

int stk_exec_file(stk_exec *x, uint32_t task, bool is_away, const char *text, const char **ret_path,
                  const char **ret_digest, stk_err *err)
{
    const char *digest = NULL;
    *ret_path = stk_exec_absolute(x->spec, text, x->scratch);
    STK_TRY(stk_err_if_null(*ret_path, err));
    if (is_away) {
        STK_TRY(store_file(x, task, *ret_path, ret_path, &digest, err));
    } else if (ret_digest != NULL) {
        digest = stk_exec_file_digest(&x->lookup, *ret_path, err);
        if (digest == NULL) {
            return err->code;
        }
    }
    if (ret_digest != NULL) {
        *ret_digest = digest;
    }
    return 0;
}

/* --- the job --- */

/* The environment of a step on another machine, and the names of variables whose values refer to
 * the image's environment. */
typedef struct away_env {
    exec_env env;
    const char **expand;
    uint32_t n_expand, cap_expand;
} away_env;

/* Appends a name; NULL ends the list. */
static void add_expand(away_env *a, const char *key)
{
    const char **names =
        stk_arena_grow(a->env.arena, a->expand, a->n_expand, sizeof *names, &a->cap_expand);
    a->env.failed = a->env.failed || names == NULL;
    if (names != NULL) {
        a->expand = names;
        names[a->n_expand] = key;
        a->n_expand += key != NULL;
    }
}

static void put_away_env(void *arg, const char *key, const char *value, bool expands)
{
    away_env *a = arg;
    stk_exec_env_set(&a->env, key, value);
    if (expands) {
        add_expand(a, key);
    }
}

/* The request of the step's place, with the memory that this attempt asks for. */
static const stk_resources *resources_of(stk_exec *x, uint32_t task, const stk_place *place)
{
    const stk_resources *own = &stk_exec_step(x, task)->settings->resources;
    stk_resources *r = stk_arena_alloc(x->scratch, sizeof *r);
    int64_t memory = stk_exec_memory_limit(x, task);
    if (r == NULL) {
        return NULL;
    }
    *r = place->resources != NULL ? *place->resources : *own;
    if (memory > 0) {
        r->memory_bytes = memory;
    }
    return r;
}

/* Chooses the task's place again if it asks for more memory than before, because it ran out of
 * memory. Another pool of the stack may have that much; or none has. */
static int place_anew(stk_exec *x, uint32_t task, const stk_place **place, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    int64_t memory = stk_exec_memory_limit(x, task);
    const stk_resources *first = (*place)->resources;
    if ((*place)->stack == NULL || first == NULL || memory <= first->memory_bytes) {
        return 0;
    }
    stk_settings settings = *step->settings;
    stk_place *grown = stk_arena_alloc(x->scratch, sizeof *grown);
    settings.resources.memory_bytes = memory;
    STK_TRY(stk_err_if_null(grown, err));
    STK_TRY(stk_stack_place((*place)->stack, step->name, &settings, x->scratch, grown, err));
    if (grown->kind == (*place)->kind) {
        *place = grown;
    }
    return 0;
}

static void is_literal(away_env *a, const char *key)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_expand; i++) {
        if (strcmp(a->expand[i], key) != 0) {
            a->expand[n++] = a->expand[i];
        }
    }
    a->n_expand = n;
}

/* The user's own variables win over the image's settings. */
static int set_env(stk_exec *x, const exec_in_image *in, exec_env *env, stk_job *job,
                   stk_job_elsewhere *away, stk_err *err)
{
    away_env whole = {.env.arena = env->arena};
    const char *args = getenv("STOKER_MAIN_ARGS");
    STK_TRY(stk_exec_in_image_env(x, in, put_away_env, &whole, err));
    for (uint32_t i = 0; i < env->n; i++) {
        size_t n_key = strcspn(env->items[i], "=");
        const char *key = stk_arena_dupn(env->arena, env->items[i], n_key);
        STK_TRY(stk_err_if_null(key, err));
        stk_exec_env_set(&whole.env, key, env->items[i] + n_key + 1);
        is_literal(&whole, key);
    }
    if (args != NULL) {
        stk_exec_env_set(&whole.env, "STOKER_MAIN_ARGS", args);
    }
    add_expand(&whole, NULL);
    job->env = whole.env.items;
    away->expand = whole.expand;
    if (!whole.env.failed) {
        return 0;
    }
    return stk_err_nomem(err);
}

static int new_away(stk_exec *x, uint32_t task, const stk_place *place, stk_job_elsewhere **ret,
                    stk_err *err)
{
    stk_job_elsewhere *away = stk_arena_alloc(x->scratch, sizeof *away);
    STK_TRY(stk_err_if_null(away, err));
    *away = (stk_job_elsewhere){.backend = number_of_place(x, task),
                                .image = stk_exec_away_image(x, task),
                                .image_named = place->image,
                                .options = stk_text_or(place->options, "{}"),
                                .resources = resources_of(x, task, place),
                                .attach = x->tasks[task].attach};
    *ret = away;
    return stk_err_if_null(away->resources, err);
}

int stk_exec_away_job(stk_exec *x, uint32_t task, const char *dir, exec_env *env, stk_job *job,
                      stk_err *err)
{
    const stk_exec_elsewhere *all = x->config.elsewhere;
    uint32_t i_step = x->tasks[task].i_step;
    const stk_place *place = &all->places[i_step];
    const stk_settings *s = stk_exec_step(x, task)->settings;
    exec_in_image in = {
        .at = all->carry_at, .dir = dir, .main_file = all->main_file, .has_program = true};
    stk_job_elsewhere *away = NULL;
    if (all->has_code) {
        in.root = all->root;
    }
    if (all->python_paths != NULL) {
        in.python_path = all->python_paths[i_step];
    }
    STK_TRY(place_anew(x, task, &place, err));
    STK_TRY(stk_exec_in_image_open(x, task, place, &in, err));
    STK_TRY(new_away(x, task, place, &away, err));
    if (s->n_secrets > 0) {
        const char **secrets = stk_arena_array(x->scratch, s->n_secrets + 1, sizeof *secrets);
        STK_TRY(stk_err_if_null(secrets, err));
        memcpy(secrets, s->secrets, s->n_secrets * sizeof *secrets);
        away->secrets = secrets;
    }
    STK_TRY(set_env(x, &in, env, job, away, err));
    x->tasks[task].attach = false;
    const stk_request *r = stk_plan_request(x->config.plan, i_step);
    job->elsewhere = away;
    job->argv = stk_exec_in_image_argv(x, &in);
    job->cwd = stk_exec_in_image_cwd(x, &in);
    job->python = NULL;
    job->unset = NULL;
    job->cpus = NULL;
    job->n_cpus = 0;
    job->threads = (uint32_t)((r->cpu_milli + 999) / 1000);
    return stk_err_if_null(job->argv, err);
}

int stk_exec_away_end(stk_exec *x, uint32_t task, const char *dir, stk_job *job, stk_err *err)
{
    static const char *const argv[] = {"-", NULL}, *const none[] = {NULL};
    const stk_step *step = stk_exec_step(x, task);
    stk_gang_ask gang = stk_exec_gang(x, task);
    stk_job_elsewhere *away = NULL;
    STK_TRY(new_away(x, task, &x->config.elsewhere->places[x->tasks[task].i_step], &away, err));
    away->attach = away->only_to_end = true;
    *job = (stk_job){.id = task,
                     .attempt = stk_exec_attempt(x, task),
                     .step = step->name,
                     .dir = dir,
                     .gang = gang.ranks != 0,
                     .nodes = (uint32_t)MAX(gang.nodes, 1),
                     .argv = argv,
                     .env = none,
                     .checkpoints = stk_exec_checkpoints(x, task, x->scratch),
                     .grace_ms = step->settings->grace_ms,
                     .elsewhere = away};
    x->tasks[task].attach = false;
    return 0;
}

/* --- what the job was granted --- */

void stk_exec_put_away_granted(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_request *r = stk_plan_request(x->config.plan, x->tasks[task].i_step);
    int64_t memory = stk_exec_memory_limit(x, task);
    const char *image = stk_exec_away_image(x, task);
    const char *named =
        stk_text_or(x->config.elsewhere->places[x->tasks[task].i_step].image, image);
    stk_json_open(buf, "granted", '{');
    stk_json_put_text(buf, "backend", place_of(x, task)->backend);
    stk_json_put_text(buf, "stack", place_of(x, task)->stack);
    if (named != NULL) {
        stk_json_open(buf, "image", '{');
        stk_json_put_text(buf, "name", named);
        if (!stk_text_same(named, image)) {
            stk_json_put_text(buf, "pinned", image);
        }
        stk_json_close(buf, '}');
    }
    if (r->limit_cpu) {
        stk_json_put_real(buf, "cpu_count", (double)r->cpu_milli / 1000);
    }
    if (memory > 0) {
        stk_json_put_whole(buf, "memory_bytes", memory);
    }
    int64_t nodes = stk_exec_gang(x, task).nodes;
    if (nodes > 1) {
        stk_json_put_whole(buf, "nodes", nodes);
    }
    stk_json_put_n_texts(buf, "devices", NULL, 0);
    stk_json_close(buf, '}');
}

const char *stk_exec_away_got(stk_exec *x, uint32_t task, const char *dir)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (!stk_exec_is_away(x, task)) {
        return NULL;
    }
    const char *path = stk_arena_printf(x->scratch, "%s/granted.json", dir);
    if (path == NULL || stk_file_read_untrusted(path, GRANTED_BYTES, &text, &len, NULL) < 0) {
        return NULL;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_readn(scratch, text, len);
    if (!stk_json_is_map(doc)) {
        return NULL;
    }
    return stk_json_dump_in(doc, x->scratch);
}

bool stk_exec_away_saved(stk_exec *x, uint32_t task, const char *dir, uint32_t *ret_n)
{
    const char *text = stk_exec_away_got(x, task, dir);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, text);
    const stk_json *checkpoints = stk_json_get(doc, "checkpoints");
    *ret_n = (uint32_t)MAX(stk_json_get_whole(checkpoints, "n", 0), 0);
    return stk_json_is_true(stk_json_get(checkpoints, "saved"));
}

/* --- attempts that outlive an engine --- */

static void count(exec_left_tasks *left, uint32_t task)
{
    if (left->n++ == 0) {
        left->first = task;
    }
}

int stk_exec_leave(stk_exec *x, uint32_t task, stk_err *err)
{
    const stk_backend_ops *ops = x->config.backend->ops;
    bool goes_on = ops->leave != NULL && ops->leave(x->config.backend, task);
    count(goes_on ? &x->left.running : &x->left.unborn, task);
    stk_exec_release(x, task);
    /* Only the scheduler sees this event: in the log the task goes on, so that resume finds it. */
    return stk_exec_fold(x->sched, STK_EV_TASK_CANCELLED, task, err);
}

/* Emits one note for several tasks: "step 'a' and 2 more VERB on …END", and empties the list.
 * `verbs`: for one task, for more. */
static int note_left(stk_exec *x, exec_left_tasks *left, const char *const verbs[2],
                     const char *end, stk_err *err)
{
    exec_left_tasks all = *left;
    char more[32] = "";
    *left = (exec_left_tasks){0};
    if (all.n == 0) {
        return 0;
    }
    if (all.n > 1) {
        (void)snprintf(more, sizeof more, " and %u more", all.n - 1);
    }
    const char *who = stk_exec_who(x, all.first, x->scratch);
    const stk_capacity_place *place = place_of(x, all.first);
    STK_TRY(stk_err_if_null(who, err));
    STK_TRY(stk_err_if_null(end, err));
    return stk_exec_emit_note(x,
                              stk_arena_printf(x->scratch, "%s%s %s on %s (stack '%s')%s", who,
                                               more, verbs[all.n > 1], place->backend, place->stack,
                                               end),
                              err);
}

int stk_exec_note_left(stk_exec *x, stk_err *err)
{
    static const char *const runs[] = {"goes on running", "go on running"};
    static const char *const waits[] = {"was not started", "were not started"};
    const char *run = x->config.run;
    const char *running = x->left.running.n > 1 ? "them" : "it";
    const char *unborn = x->left.unborn.n > 1 ? "them" : "it";
    STK_TRY(note_left(
        x, &x->left.running, runs,
        stk_arena_printf(x->scratch, ": 'stoker resume %s' goes on with %s", run, running), err));
    return note_left(x, &x->left.unborn, waits,
                     stk_arena_printf(x->scratch, ": 'stoker resume %s' starts %s", run, unborn),
                     err);
}

int stk_exec_note_attached(stk_exec *x, stk_err *err)
{
    static const char *const verbs[] = {"is picked up again", "are picked up again"};
    return note_left(x, &x->left.attached, verbs, "", err);
}

int stk_exec_check_place(const stk_exec *x, uint32_t task, const char *stack, stk_err *err)
{
    const char *now = stk_exec_is_away(x, task) ? place_of(x, task)->stack : NULL;
    if (stack == NULL || (now != NULL && strcmp(now, stack) == 0)) {
        return 0;
    }
    stk_err_set(err, STK_E_USAGE,
                "step '%s' was started on the machines of stack '%s' and may still run there, so "
                "it can't continue %s",
                stk_exec_step(x, task)->name, stack, now != NULL ? "on other ones" : "here");
    stk_err_hint(err, "resume with --stack %s, or start a new run: finished steps are reused",
                 stack);
    return STK_E_USAGE;
}

int stk_exec_attach(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    /* a task that is only to be ended needs no key, and its inputs may be on another machine */
    if (!x->config.cancelled) {
        STK_TRY(stk_exec_key_of(x, task, err));
    }
    count(&x->left.attached, task);
    t->slot = stk_exec_slot_new(x);
    STK_TRY(stk_err_if_null(t->slot, err));
    t->attempt_base--; /* that attempt is the first one of this scheduler */
    t->attach = true;
    t->hook_started = true; /* the hook ran before that attempt began */
    t->stopped = false;
    STK_TRY(stk_exec_fold_begun(x->sched, task, err));
    return stk_exec_push_launch(x, task, err);
}
