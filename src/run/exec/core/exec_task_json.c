/* Writes task.json of an attempt: its identity, inputs and grant. */
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_hook.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"

static int add_artifact(stk_exec *x, uint32_t task, const exec_ref *ref, stk_buf *buf, stk_err *err)
{
    const char *path = NULL;
    STK_TRY(
        stk_exec_artifact(x, stk_exec_is_away(x, task), ref->digest, x->scratch, &path, NULL, err));
    stk_json_put_key(buf, NULL); /* the ref's object, with the path added */
    stk_buf_add(buf, ref->json, strlen(ref->json) - 1);
    stk_json_put_text(buf, "path", path);
    stk_json_close(buf, '}');
    return 0;
}

static void add_value(stk_buf *buf, const char *json)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_raw(buf, "value", json);
    stk_json_close(buf, '}');
}

static void open_list(stk_buf *buf)
{
    stk_json_open(buf, NULL, '{');
    stk_json_open(buf, "list", '[');
}

static void close_list(stk_buf *buf)
{
    stk_json_close(buf, ']');
    stk_json_close(buf, '}');
}

/* In a graph that grows: the parent's artifact, for a join those of all inputs. */
static int add_from(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const exec_artifact **found = NULL;
    uint32_t n = 0;
    STK_TRY(stk_exec_scope_from(x, task, in, &found, &n, err));
    if (!stk_exec_step(x, task)->is_join) {
        return add_artifact(x, task, &found[0]->ref, buf, err);
    }
    open_list(buf);
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(add_artifact(x, task, &found[i]->ref, buf, err));
    }
    close_list(buf);
    return 0;
}

static int add_item(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err)
{
    const char *item = NULL;
    uint32_t index = 0;
    STK_TRY(stk_exec_scope_item(x, task, &item, &index, err));
    add_value(buf, item);
    return 0;
}

/* Adds a project file in the form of an artifact. */
static int add_file(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const char *path = NULL, *digest = NULL;
    STK_TRY(stk_exec_file(x, task, stk_exec_is_away(x, task), in->text, &path, &digest, err));
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "digest", digest);
    stk_json_put_text(buf, "format", "file");
    stk_json_put_text(buf, "type", "file");
    stk_json_put_raw(buf, "meta", "{}");
    stk_json_put_text(buf, "path", path);
    stk_json_close(buf, '}');
    return 0;
}

/* Adds a stored artifact by its digest; `about` has its other members. */
static int add_stored(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const char *path = NULL;
    const char *about = stk_text_or(in->about, "{}");
    int64_t size = 0;
    STK_TRY(
        stk_exec_artifact(x, stk_exec_is_away(x, task), in->text, x->scratch, &path, &size, err));
    stk_json_put_key(buf, NULL);
    stk_buf_add(buf, about, strlen(about) - 1);
    stk_json_put_text(buf, "digest", in->text);
    stk_json_put_whole(buf, "size", size);
    stk_json_put_text(buf, "path", path);
    stk_json_close(buf, '}');
    return 0;
}

static int add_input(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    switch (in->kind) {
    case STK_INPUT_VALUE:
    case STK_INPUT_PARAM:
        add_value(buf, stk_exec_literal(x->spec, in));
        return 0;
    case STK_INPUT_OUTPUT:
        if (x->graph.grow != NULL) {
            return add_from(x, task, in, buf, err);
        }
        return add_artifact(x, task, &x->tasks[in->step].outputs[in->output], buf, err);
    case STK_INPUT_FILE:
        return add_file(x, task, in, buf, err);
    case STK_INPUT_ARTIFACT:
        return add_stored(x, task, in, buf, err);
    case STK_INPUT_ITEM:
        return add_item(x, task, buf, err);
    case STK_INPUT_LIST:
        open_list(buf);
        for (uint32_t i = 0; i < in->n_items; i++) {
            STK_TRY(add_input(x, task, &in->items[i], buf, err));
        }
        close_list(buf);
        return 0;
    }
    return stk_err_set(err, STK_E_BUG, "unknown kind of input");
}

static void add_hooks(const stk_settings *s, stk_buf *buf)
{
    stk_json_open(buf, "hooks", '{');
    for (int i = 0; i < STK_HOOK_N; i++) {
        if (s->hooks[i].python != NULL) {
            stk_json_open(buf, stk_exec_hook_names[i], '{');
            stk_json_put_text(buf, "python", s->hooks[i].python);
            stk_json_close(buf, '}');
        }
    }
    stk_json_close(buf, '}');
}

static uint32_t n_ranks(const stk_exec *x, uint32_t task)
{
    stk_gang_ask gang = stk_exec_gang(x, task);
    if (gang.ranks != STK_GANG_GPUS) {
        return (uint32_t)gang.ranks;
    }
    uint32_t n_devices = stk_exec_n_devices(x, task);
    return MAX(n_devices, 1);
}

static void add_gang(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_settings *s = stk_exec_step(x, task)->settings;
    stk_gang_ask gang = stk_exec_gang(x, task);
    if (gang.ranks == 0) {
        return;
    }
    int64_t ranks = n_ranks(x, task);
    stk_json_open(buf, "gang", '{');
    stk_json_put_whole(buf, "ranks", ranks);
    stk_json_put_whole(buf, "min_ranks", gang.min_ranks > 0 ? MIN(gang.min_ranks, ranks) : ranks);
    stk_json_put_whole(buf, "restarts", gang.restarts);
    stk_json_put_whole(buf, "nodes", MAX(gang.nodes, 1));
    stk_json_put_int(buf, "port", gang.port > 0 ? gang.port : -1);
    stk_json_put_whole(buf, "hang_ms", gang.hang_ms);
    stk_json_put_whole(buf, "grace_ms", s->grace_ms);
    stk_json_put_whole(buf, "notice_ms", s->timeout_ms > 0 ? s->timeout_notice_ms : 0);
    stk_json_put_whole(buf, "devices_per_rank", stk_exec_n_devices(x, task) / ranks);
    stk_json_close(buf, '}');
}

int stk_exec_put_task(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                      const char *const *env, stk_buf *buf, stk_failure *ret_class, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    stk_json_open(buf, NULL, '{');
    stk_json_put_whole(buf, "stoker", 1);
    stk_json_put_text(buf, "run", x->config.run);
    if (x->config.name != NULL && strcmp(x->config.name, x->config.run) != 0) {
        stk_json_put_text(buf, "run_name", x->config.name);
    }
    stk_json_put_text(buf, "pipeline", stk_spec_name(x->spec));
    stk_json_put_text(buf, "step", step->name);
    stk_json_put_whole(buf, "task", stk_exec_id(x, task));
    stk_json_put_whole(buf, "attempt", attempt);
    stk_json_put_bool(buf, "last_attempt", stk_sched_is_last_attempt(x->sched, task));
    stk_json_put_text(buf, "store", stk_store_path(x->config.store));
    stk_json_put_text(buf, "kind", step->python != NULL ? "python" : "command");
    if (step->python != NULL) {
        bool spawns = step->settings->isolation == STK_ISOLATION_SPAWN || step->interpreter != NULL;
        stk_json_put_text(buf, "entry", step->python);
        stk_json_put_text(buf, "isolation", spawns ? "spawn" : "fork");
        if (step->settings->timeout_ms > 0) {
            stk_json_put_whole(buf, "timeout_ms", step->settings->timeout_ms);
        }
    } else {
        stk_json_put_n_texts(buf, "command", step->argv, step->n_argv);
    }
    stk_json_open(buf, "inputs", '{');
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        stk_json_put_key(buf, step->inputs[i].name);
        int rc = add_input(x, task, &step->inputs[i], buf, err);
        if (rc < 0) {
            *ret_class = STK_FAIL_LOAD;
            return stk_err_context(err, "input '%s'", step->inputs[i].name);
        }
    }
    stk_json_close(buf, '}');
    stk_json_open(buf, "outputs", '[');
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        stk_json_put_text(buf, NULL, step->outputs[i].name);
    }
    stk_json_close(buf, ']');
    stk_exec_put_asked(&step->settings->resources, buf);
    stk_exec_put_granted(x, task, buf);
    if (step->uses != NULL) { /* an empty list is an answer too */
        stk_json_put_n_texts(buf, "uses", step->uses, step->n_uses);
    }
    add_hooks(step->settings, buf);
    if (step->settings->n_secrets > 0) { /* only names; the environment has the values */
        stk_json_put_n_texts(buf, "secrets", step->settings->secrets, step->settings->n_secrets);
    }
    add_gang(x, task, buf);
    if (x->graph.grow != NULL && stk_exec_put_scope(x, task, buf, err) < 0) {
        *ret_class = STK_FAIL_LOAD;
        return err->code;
    }
    if (stk_exec_is_contained(x, task) &&
        stk_exec_put_container(x, task, attempt, dir, env, buf, err) < 0) {
        return err->code;
    }
    stk_json_put_whole(buf, "rank", 0);
    stk_json_put_whole(buf, "world", 1);
    stk_json_put_raw(buf, "extra", stk_text_or(step->settings->extra, "{}"));
    stk_json_close(buf, '}');
    return stk_buf_check(buf, err);
}
