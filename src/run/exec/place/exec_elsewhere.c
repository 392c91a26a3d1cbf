/* Steps on other machines (docs/decisions/0010-elsewhere.md): where their inputs are, what the
 * backend is asked to run, what came of it, and attempts that outlive an engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_start.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_bring.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

enum { GRANTED_BYTES = 256 << 10 };

uint32_t stk_exec_place(const stk_exec *x, uint32_t task)
{
    return stk_plan_request(x->config.plan, x->tasks[task].i_step)->place;
}

bool stk_exec_is_away(const stk_exec *x, uint32_t task)
{
    return x->config.elsewhere != NULL && stk_exec_place(x, task) > 0;
}

static const stk_capacity_place *place_of(const stk_exec *x, uint32_t task)
{
    return &x->config.capacity->places[stk_exec_place(x, task) - 1];
}

const char *stk_exec_away_image(const stk_exec *x, uint32_t task)
{
    return x->config.elsewhere->images[x->tasks[task].i_step];
}

uint32_t stk_exec_n_devices(const stk_exec *x, uint32_t task)
{
    const exec_slot *slot = x->tasks[task].slot;
    return stk_exec_is_away(x, task)
               ? stk_plan_request(x->config.plan, x->tasks[task].i_step)->n_devices
           : slot == NULL ? 0
                          : slot->lease.n;
}

/* --- inputs --- */

int stk_exec_artifact(stk_exec *x, bool is_away, const char *digest, stk_arena *arena,
                      const char **ret_path, int64_t *ret_size, stk_err *err)
{
    bool comes = false;
    int rc = stk_exec_sum_artifact(x->sum, x->config.store, digest, &comes, err);
    STK_TRY(rc);
    if (comes) { /* the launch is put aside: nothing of this counts */
        *ret_size = 0;
        *ret_path = stk_store_path(x->config.store);
        return 0;
    }
    if (is_away) {
        return stk_store_locate(x->config.store, digest, arena, ret_path, ret_size, err);
    }
    if (x->bring != NULL) {
        *ret_size = 0;
        *ret_path = stk_arena_printf(arena, "%s/artifacts/%.2s/%s", stk_store_path(x->config.store),
                                     digest, digest + 2);
        rc = *ret_path == NULL ? stk_err_nomem(err)
                               : stk_exec_bring_ask(x->bring, digest, *ret_path, &comes, err);
        if (rc < 0 || comes) {
            return rc;
        }
    }
    return stk_store_artifact(x->config.store, digest, arena, ret_path, ret_size, err);
}

/* No digest: it is being copied, and the launch is put aside. */
static int copy_file(stk_exec *x, const char *path, stk_artifact *ret, stk_err *err)
{
    stk_store_work *work = NULL;
    bool leaves = false;
    *ret = (stk_artifact){.size = 0};
    if (!stk_exec_sum_is_long(x->sum, x->config.store, EXEC_SUM_COPY, path, NULL)) {
        return stk_store_copy_path(x->config.store, path, ret, err);
    }
    int rc = stk_exec_sum_ask(x->sum, x->config.store, EXEC_SUM_COPY, path, NULL, &work, err);
    if (rc < 0 || work == NULL) {
        return rc;
    }
    rc = stk_store_work_take(x->config.store, work, ret, &leaves, err);
    return rc < 0 || !leaves ? rc : stk_store_work_run(work, err);
}

/* A file becomes an artifact, which the other machine can have. */
static int store_file(stk_exec *x, uint32_t task, const char *path, const char **ret_path,
                      const char **ret_digest, stk_err *err)
{
    stk_artifact artifact;
    int64_t size = 0;
    const char *digest = stk_exec_file_digest(&x->lookup, path, err);
    if (digest == NULL) {
        return err->code;
    }
    if (stk_store_locate(x->config.store, digest, x->scratch, ret_path, &size, NULL) < 0) {
        int rc = copy_file(x, path, &artifact, err);
        if (rc == 0 && artifact.digest[0] == '\0') { /* put aside */
            *ret_path = path;
            *ret_digest = digest;
            return 0;
        }
        digest = rc < 0 ? NULL : stk_arena_dup(x->arena, artifact.digest); /* as it is now */
        rc = rc == 0 && digest == NULL ? stk_err_nomem(err) : rc;
        rc = rc < 0 ? rc
                    : stk_store_locate(x->config.store, digest, x->scratch, ret_path, &size, err);
        STK_TRY(rc);
    }
    *ret_digest = digest;
    stk_ref_row row = {.digest = digest, .task = task, .output = "in"};
    return stk_exec_push_ref(x, &row, err);
}

int stk_exec_file(stk_exec *x, uint32_t task, bool is_away, const char *text, const char **ret_path,
                  const char **ret_digest, stk_err *err)
{
    const char *digest = NULL;
    const char *path = text[0] == '/'
                           ? text
                           : stk_arena_printf(x->scratch, "%s/%s", stk_spec_folder(x->spec), text);
    STK_TRY(stk_err_if_null(path, err));
    int rc = 0;
    if (is_away) {
        rc = store_file(x, task, path, &path, &digest, err);
    } else if (ret_digest != NULL) {
        digest = stk_exec_file_digest(&x->lookup, path, err);
        rc = digest == NULL ? err->code : 0;
    }
    *ret_path = path;
    if (ret_digest != NULL) {
        *ret_digest = digest;
    }
    return rc;
}

/* --- the job --- */

/* The environment of a step elsewhere, and the names of it that are a Dockerfile's. */
typedef struct away_env {
    exec_env env;
    const char **expand;
    uint32_t n_expand, cap_expand;
} away_env;

/* NULL: that is all. */
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

static void put_env(void *arg, const char *key, const char *value, bool expands)
{
    away_env *a = arg;
    stk_exec_env_set(&a->env, key, value);
    if (expands) {
        add_expand(a, key);
    }
}

/* What the step asks for, and of memory what it asks for by now. */
static const stk_resources *resources_of(stk_exec *x, uint32_t task, const stk_place *place)
{
    stk_resources *r = stk_arena_alloc(x->scratch, sizeof *r);
    if (r != NULL) {
        *r = place->resources != NULL ? *place->resources
                                      : stk_exec_step(x, task)->settings->resources;
        int64_t memory = stk_exec_memory_limit(x, task);
        if (memory > 0) {
            r->memory_bytes = memory;
        }
    }
    return r;
}

/* After it ran out of memory it asks for more than it was placed with: another pool of the stack
 * may be the one that has so much, or none. */
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
    int rc = grown == NULL
                 ? stk_err_nomem(err)
                 : stk_stack_place((*place)->stack, step->name, &settings, x->scratch, grown, err);
    if (rc == 0 && grown->kind == (*place)->kind) {
        *place = grown;
    }
    return rc;
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
static int set_env(stk_exec *x, const exec_inside *in, exec_env *env, stk_job *job,
                   stk_job_elsewhere *away, stk_err *err)
{
    away_env whole = {.env.arena = env->arena};
    const char *args = getenv("STOKER_MAIN_ARGS");
    int rc = stk_exec_inside_env(x, in, put_env, &whole, err);
    for (uint32_t i = 0; i < env->n && rc == 0; i++) {
        const char *eq = strchr(env->items[i], '=');
        const char *key = stk_arena_dupn(env->arena, env->items[i], (size_t)(eq - env->items[i]));
        rc = key == NULL ? stk_err_nomem(err) : 0;
        if (rc == 0) {
            stk_exec_env_set(&whole.env, key, eq + 1);
            is_literal(&whole, key);
        }
    }
    if (rc == 0 && args != NULL) {
        stk_exec_env_set(&whole.env, "STOKER_MAIN_ARGS", args);
    }
    add_expand(&whole, NULL);
    job->env = whole.env.items;
    away->expand = whole.expand;
    return rc == 0 && whole.env.failed ? stk_err_nomem(err) : rc;
}

int stk_exec_away_job(stk_exec *x, uint32_t task, const char *dir, exec_env *env, stk_job *job,
                      stk_err *err)
{
    const stk_exec_elsewhere *all = x->config.elsewhere;
    uint32_t i_step = x->tasks[task].i_step;
    const stk_place *place = &all->places[i_step];
    const stk_settings *s = stk_exec_step(x, task)->settings;
    exec_inside in = {.at = all->carry_at,
                      .dir = dir,
                      .root = all->has_code ? all->root : NULL,
                      .main_file = all->main_file,
                      .python_path = all->python_paths == NULL ? NULL : all->python_paths[i_step],
                      .has_program = true};
    stk_job_elsewhere *away = stk_arena_alloc(x->scratch, sizeof *away);
    const char **secrets = stk_arena_array(x->scratch, (size_t)s->n_secrets + 1, sizeof *secrets);
    int rc =
        away == NULL || secrets == NULL ? stk_err_nomem(err) : place_anew(x, task, &place, err);
    rc = rc < 0 ? rc : stk_exec_inside_open(x, task, place, &in, err);
    for (uint32_t i = 0; rc == 0 && i < s->n_secrets; i++) {
        secrets[i] = s->secrets[i];
    }
    STK_TRY(rc);
    *away = (stk_job_elsewhere){.backend = stk_exec_place(x, task),
                                .image = stk_exec_away_image(x, task),
                                .options = stk_text_or(place->options, "{}"),
                                .resources = resources_of(x, task, place),
                                .secrets = s->n_secrets > 0 ? secrets : NULL,
                                .attach = x->tasks[task].attach};
    STK_TRY(set_env(x, &in, env, job, away, err));
    x->tasks[task].attach = false;
    const stk_request *r = stk_plan_request(x->config.plan, i_step);
    job->elsewhere = away;
    job->argv = stk_exec_inside_argv(x, &in);
    job->cwd = stk_exec_inside_cwd(x, &in);
    job->python = NULL;
    job->unset = NULL;
    job->cpus = NULL;
    job->n_cpus = 0;
    job->threads = (uint32_t)((r->cpu_milli + 999) / 1000);
    return job->argv == NULL || away->resources == NULL ? stk_err_nomem(err) : 0;
}

int stk_exec_away_end(stk_exec *x, uint32_t task, const char *dir, stk_job *job, stk_err *err)
{
    static const char *const argv[] = {"-", NULL}, *const none[] = {NULL};
    const stk_step *step = stk_exec_step(x, task);
    const stk_place *place = &x->config.elsewhere->places[x->tasks[task].i_step];
    stk_gang_ask gang = stk_exec_gang(x, task);
    stk_job_elsewhere *away = stk_arena_alloc(x->scratch, sizeof *away);
    STK_TRY(stk_err_if_null(away, err));
    *away = (stk_job_elsewhere){.backend = stk_exec_place(x, task),
                                .image = stk_exec_away_image(x, task),
                                .options = stk_text_or(place->options, "{}"),
                                .resources = resources_of(x, task, place),
                                .attach = true,
                                .only_to_end = true};
    *job = (stk_job){.id = task,
                     .attempt = stk_exec_attempt(x, task),
                     .step = step->name,
                     .dir = dir,
                     .gang = gang.ranks != 0,
                     .nodes = gang.nodes > 1 ? (uint32_t)gang.nodes : 1,
                     .argv = argv,
                     .env = none,
                     .checkpoints = stk_exec_checkpoints(x, task, x->scratch),
                     .grace_ms = step->settings->grace_ms,
                     .elsewhere = away};
    x->tasks[task].attach = false;
    return stk_err_if_null(away->resources, err);
}

/* --- what it was granted --- */

void stk_exec_away_granted(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_request *r = stk_plan_request(x->config.plan, x->tasks[task].i_step);
    int64_t memory = stk_exec_memory_limit(x, task);
    stk_buf_text(buf, "{\"backend\":");
    stk_buf_json(buf, place_of(x, task)->backend);
    stk_buf_text(buf, ",\"stack\":");
    stk_buf_json(buf, place_of(x, task)->stack);
    stk_buf_text(buf, ",\"image\":{\"name\":");
    const char *image = stk_exec_away_image(x, task);
    const char *named = x->config.elsewhere->places[x->tasks[task].i_step].image;
    stk_buf_json(buf, stk_text_or(named, image));
    if (named != NULL && strcmp(named, image) != 0) {
        stk_buf_text(buf, ",\"pinned\":");
        stk_buf_json(buf, image);
    }
    stk_buf_char(buf, '}');
    if (r->limit_cpu) {
        stk_buf_printf(buf, ",\"cpu_count\":%g", (double)r->cpu_milli / 1000);
    }
    if (memory > 0) {
        stk_buf_printf(buf, ",\"memory_bytes\":%lld", (long long)memory);
    }
    stk_buf_text(buf, ",\"devices\":[]}");
}

const char *stk_exec_away_got(stk_exec *x, uint32_t task, const char *dir)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    const char *path =
        !stk_exec_is_away(x, task) ? NULL : stk_arena_printf(x->scratch, "%s/granted.json", dir);
    if (path == NULL || stk_file_read_untrusted(path, GRANTED_BYTES, &text, &len, NULL) < 0) {
        return NULL;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_readn(scratch, text, len);
    return stk_json_is_map(doc) ? stk_json_dump_in(doc, x->scratch) : NULL;
}

bool stk_exec_away_saved(stk_exec *x, uint32_t task, const char *dir, uint32_t *ret_n)
{
    const char *text = stk_exec_away_got(x, task, dir);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, text);
    const stk_json *checkpoints = stk_json_get(doc, "checkpoints");
    int64_t n = stk_json_get_whole(checkpoints, "n", 0);
    bool saved = stk_json_is_true(stk_json_get(checkpoints, "saved"));
    *ret_n = n > 0 ? (uint32_t)n : 0;
    return saved;
}

/* --- attempts that outlive an engine --- */

int stk_exec_leave(stk_exec *x, uint32_t task, stk_err *err)
{
    const stk_backend_ops *ops = x->config.backend->ops;
    if (ops->leave != NULL && ops->leave(x->config.backend, task)) {
        if (x->left.n_left++ == 0) {
            x->left.first_left = task;
        }
    } else {
        if (x->left.n_unborn++ == 0) {
            x->left.first_unborn = task;
        }
    }
    stk_exec_release(x, task);
    /* Not on record: there it goes on, for who resumes the run. */
    return stk_sched_fold(x->sched, &(stk_sched_event){.kind = STK_EV_TASK_CANCELLED, .task = task},
                          err);
}

/* One sentence for `n` tasks, the first of which is `task`: "step 'a' and 2 more VERB on …". */
static int note(stk_exec *x, uint32_t task, uint32_t n, const char *one, const char *many,
                const char *end, stk_err *err)
{
    char more[32] = "";
    if (n == 0) {
        return 0;
    }
    (void)snprintf(more, sizeof more, " and %u more", n - 1);
    const char *who = stk_exec_who(x, task, x->scratch);
    const stk_capacity_place *place = place_of(x, task);
    const char *text =
        who == NULL || end == NULL
            ? NULL
            : stk_arena_printf(x->scratch, "%s%s %s on %s (stack '%s')%s", who, n > 1 ? more : "",
                               n > 1 ? many : one, place->backend, place->stack, end);
    return stk_exec_emit_note(x, text, err);
}

int stk_exec_note_left(stk_exec *x, stk_err *err)
{
    uint32_t n = x->left.n_left, n_unborn = x->left.n_unborn;
    x->left.n_left = x->left.n_unborn = 0;
    STK_TRY(note(x, x->left.first_left, n, "goes on running", "go on running",
                 stk_arena_printf(x->scratch, ": 'stoker resume %s' goes on with %s", x->config.run,
                                  n > 1 ? "them" : "it"),
                 err));
    return note(x, x->left.first_unborn, n_unborn, "was not begun", "were not begun",
                stk_arena_printf(x->scratch, ": 'stoker resume %s' takes %s up again",
                                 x->config.run, n_unborn > 1 ? "them" : "it"),
                err);
}

int stk_exec_note_attached(stk_exec *x, stk_err *err)
{
    uint32_t n = x->left.n_attached;
    x->left.n_attached = 0;
    return note(x, x->left.first_attached, n, "is taken up again", "are taken up again", "", err);
}

int stk_exec_check_place(const stk_exec *x, uint32_t task, const char *stack, stk_err *err)
{
    const char *now = stk_exec_is_away(x, task) ? place_of(x, task)->stack : NULL;
    if (stack == NULL || (now != NULL && strcmp(now, stack) == 0)) {
        return 0;
    }
    stk_err_set(err, STK_E_USAGE,
                "step '%s' was started on the machines of stack '%s' and may run there still; it "
                "can't be taken up %s",
                stk_exec_step(x, task)->name, stack, now != NULL ? "on other ones" : "here");
    stk_err_hint(err, "resume with --stack %s, or start a new run: finished steps are reused",
                 stack);
    return STK_E_USAGE;
}

int stk_exec_attach(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    /* what is only to be ended is looked up by nobody later, and its inputs may be elsewhere */
    int rc = x->config.cancelled ? 0 : stk_exec_key_of(x, task, err);
    if (x->left.n_attached++ == 0) {
        x->left.first_attached = task;
    }
    t->slot = stk_exec_slot_new(x);
    t->attempt_base--; /* the scheduler's first attempt is that one */
    t->attach = true;
    t->hook_started = true; /* what comes before an attempt came before it began */
    t->stopped = false;
    STK_TRY(stk_err_if_null(t->slot, err));
    stk_sched_event started = {
        .kind = STK_EV_TASK_STARTED, .task = task, .attempt = 1, .i_ask = STK_SCHED_NO_ASK};
    rc = rc < 0 ? rc
                : stk_sched_fold(x->sched, &(stk_sched_event){.kind = STK_SE_MISSED, .task = task},
                                 err);
    rc = rc < 0 ? rc : stk_sched_fold(x->sched, &started, err);
    STK_TRY(rc);
    return stk_exec_push_launch(x, task, err);
}
