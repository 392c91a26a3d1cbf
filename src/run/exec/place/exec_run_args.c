/* The container's part of task.json that options of `backend.docker` and docker-py's `run_args` ask
 * for (src/tbl/run_args.def). */
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/place/exec_place.h"

int stk_exec_put_volumes(stk_exec *x, const stk_json *options, stk_buf *buf, stk_err *err)
{
    stk_spec_volumes all;
    if (!stk_spec_all_volumes(options, x->scratch, &all)) {
        return stk_err_nomem(err);
    }
    stk_json_open(buf, "volumes", '[');
    for (uint32_t i = 0; i < all.n; i++) {
        const stk_spec_volume *v = &all.items[i];
        stk_json_open(buf, NULL, '{');
        stk_json_put_text(buf, "kind", v->kind);
        stk_json_put_known_text(buf, "from", v->from);
        stk_json_put_known_text(buf, "to", v->to);
        stk_json_put_text(buf, "how", v->how);
        stk_json_put_bool(buf, "write", v->write);
        stk_json_close(buf, '}');
    }
    stk_json_close(buf, ']');
    return 0;
}

/* The i-th pair of {KEY: VALUE} or of ["KEY=VALUE"]; a key alone has the value "". A boolean is
 * written as Python does. Returns false: no such pair, or no memory. */
static bool get_pair(const stk_json *pairs, uint32_t i, stk_arena *arena, const char **ret_key,
                     const char **ret_value)
{
    if (i < stk_json_n_members(pairs)) {
        const stk_json *value = stk_json_value(pairs, i);
        *ret_key = stk_json_key(pairs, i)->text;
        *ret_value = value->kind == STK_JSON_NULL ? "" : value->text;
        if (value->kind == STK_JSON_BOOL) {
            *ret_value = value->truth ? "True" : "False";
        }
        return true;
    }
    const char *text = stk_json_text(stk_json_item(pairs, i));
    const char *equal = text == NULL ? NULL : strchr(text, '=');
    if (text == NULL) {
        return false;
    }
    *ret_key = equal == NULL ? text : stk_arena_dupn(arena, text, (size_t)(equal - text));
    *ret_value = equal == NULL ? "" : equal + 1;
    return *ret_key != NULL;
}

static bool settings_give(const exec_in_image *in, const char *name)
{
    bool is_ours = strcmp(name, "STOKER_BIN") == 0 ||
                   (in->step->python != NULL && strcmp(name, "PYTHONPATH") == 0);
    return is_ours || stk_json_get(stk_json_get(&in->docker, "environment"), name) != NULL ||
           stk_json_get(stk_json_get(&in->docker, "runtime_environment"), name) != NULL;
}

void stk_exec_put_environment(stk_exec *x, const exec_in_image *in, stk_buf *buf)
{
    const stk_json *pairs = stk_spec_docker_option(&in->options, "environment");
    const char *key, *value;
    for (uint32_t i = 0; get_pair(pairs, i, x->scratch, &key, &value); i++) {
        if (!settings_give(in, key)) {
            stk_json_put_text(buf, key, value);
        }
    }
}

const char *stk_exec_asked_variable(stk_exec *x, const stk_json *options, const char *name)
{
    const stk_json *pairs = stk_spec_docker_option(options, "environment");
    const char *key, *value;
    for (uint32_t i = 0; get_pair(pairs, i, x->scratch, &key, &value); i++) {
        if (strcmp(key, name) == 0) {
            return value;
        }
    }
    return NULL;
}

bool stk_exec_sets(stk_exec *x, const exec_in_image *in, const char *name)
{
    return settings_give(in, name) || stk_exec_asked_variable(x, &in->options, name) != NULL;
}

void stk_exec_put_labels(stk_exec *x, const stk_json *options, stk_buf *buf)
{
    const stk_json *pairs = stk_spec_docker_option(options, "labels");
    const char *key, *value;
    for (uint32_t i = 0; get_pair(pairs, i, x->scratch, &key, &value); i++) {
        if (strncmp(key, "stoker.", 7) != 0) { /* we find our containers by them */
            stk_json_put_text(buf, key, value);
        }
    }
}

void stk_exec_put_run_args(const stk_json *options, stk_buf *buf)
{
    static const char *const names[] = {
#define X(how, name, kind, words) ROW_##how(name)
#define ROW_ENGINE(name) name,
#define ROW_GIVEN(name)
#define ROW_SAME(name)
#define ROW_NONE(name)
#include "tbl/run_args.def"
#undef X
    };
    stk_json_open(buf, "run_args", '{');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const stk_json *value = stk_spec_docker_option(options, names[i]);
        if (value != NULL) {
            stk_json_put(buf, names[i], value);
        }
    }
    stk_json_close(buf, '}');
}

static int64_t smaller(int64_t own, int64_t asked)
{
    return own > 0 && asked > 0 ? MIN(own, asked) : MAX(own, asked);
}

int64_t stk_exec_asked_memory(const stk_json *options, int64_t own_bytes)
{
    int64_t bytes = 0;
    (void)stk_spec_container_bytes(stk_spec_docker_option(options, "mem_limit"), &bytes);
    return smaller(own_bytes, bytes);
}

int64_t stk_exec_asked_cpu(const stk_json *options, int64_t own_milli)
{
    int64_t nano = stk_json_whole(stk_spec_docker_option(options, "nano_cpus"), 0);
    int64_t quota = stk_json_whole(stk_spec_docker_option(options, "cpu_quota"), 0);
    int64_t period = stk_json_whole(stk_spec_docker_option(options, "cpu_period"), 100000);
    int64_t milli = smaller(own_milli, nano / 1000000);
    return period <= 0 ? milli : smaller(milli, (int64_t)(1000.0 * (double)quota / (double)period));
}

const char *stk_exec_asked_network(const stk_json *options)
{
    const char *name = stk_json_text(stk_spec_docker_option(options, "network"));
    if (name == NULL && stk_json_is_true(stk_spec_docker_option(options, "network_disabled"))) {
        return "none";
    }
    if (name == NULL) {
        name = stk_json_text(stk_spec_docker_option(options, "network_mode"));
    }
    return stk_text_or(name, "host");
}
