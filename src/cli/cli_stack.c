/* stoker stack: what stoker.yaml says of places, and whether they can be used. */
#include "cli/cli_stack.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/units.h"
#include "cli/cli_read.h"
#include "cli/cli_run.h"
#include "image/stack/stack.h"
#include "sys/file.h"

/* --- as JSON --- */

static void set_text(json_t *to, const char *key, const char *text)
{
    json_object_set_new(to, key, text == NULL ? json_null() : json_string(text));
}

static json_t *holds_json(const stk_resources *r)
{
    json_t *doc = json_object();
    if (r->cpu_milli >= 0) {
        json_object_set_new(doc, "cpu_count", json_real((double)r->cpu_milli / 1000));
    }
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"memory_bytes", r->memory_bytes},
                   {"gpu_count", r->base.gpu_count},
                   {"gpu_memory_bytes", r->base.gpu_memory_bytes}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].value >= 0) {
            json_object_set_new(doc, numbers[i].key, json_integer(numbers[i].value));
        }
    }
    if (r->base.gpu_class != NULL) {
        set_text(doc, "gpu_class", r->base.gpu_class);
    }
    if (r->base.gpu_vendor != NULL) {
        set_text(doc, "gpu_vendor", r->base.gpu_vendor);
    }
    return doc;
}

static json_t *pool_json(const stk_pool *p)
{
    json_t *doc = json_object();
    set_text(doc, "name", p->name);
    json_object_set_new(doc, "nodes", p->nodes < 0 ? json_null() : json_integer(p->nodes));
    json_object_set_new(doc, "holds", holds_json(&p->holds));
    json_object_set_new(doc, "price", p->price < 0 ? json_null() : json_real(p->price));
    json_object_set_new(doc, "options",
                        p->options == NULL ? json_object() : json_loads(p->options, 0, NULL));
    return doc;
}

static json_t *stack_json(const stk_stack *s)
{
    json_t *doc = json_object(), *map = json_object();
    set_text(doc, "name", s->name);
    set_text(doc, "backend", stk_place_word(s->kind));
    set_text(doc, "file", s->file);
    set_text(doc, "default_image", s->default_image);
    for (uint32_t i = 0; i < s->n_image_map; i++) {
        set_text(map, s->image_map[i].key, s->image_map[i].value);
    }
    json_object_set_new(doc, "image_map", map);
    set_text(doc, "registry", s->registry);
    set_text(doc, "socket", s->socket);
    if (stk_place_is_elsewhere(s->kind)) {
        json_t *pools = json_array();
        for (uint32_t i = 0; i < s->n_pools; i++) {
            json_array_append_new(pools, pool_json(&s->pools[i]));
        }
        set_text(doc, "store", s->store);
        set_text(doc, "store_from", s->store_from);
        set_text(doc, "store_volume", s->store_volume);
        set_text(doc, "carry", s->carry);
        set_text(doc, "runner_image", s->runner_image);
        set_text(doc, "carry_volume", s->carry_volume);
        json_object_set_new(doc, "max_jobs", json_integer(s->max_jobs));
        json_object_set_new(doc, "pending_ms", json_integer(s->pending_ms));
        json_object_set_new(doc, "options",
                            s->said == NULL ? json_object() : json_loads(s->said, 0, NULL));
        json_t *inherited = json_object();
        for (uint32_t i = 0; i < s->n_inherited; i++) {
            const stk_inherited *one = &s->inherited[i];
            json_object_set_new(inherited, one->name,
                                json_pack("{s:s,s:s}", "value", one->value, "from", one->from));
        }
        json_object_set_new(doc, "inherited", inherited);
        json_object_set_new(doc, "resources",
                            s->defaults == NULL ? json_object() : holds_json(s->defaults));
        json_object_set_new(doc, "limits",
                            s->limits == NULL ? json_object() : holds_json(s->limits));
        json_object_set_new(doc, "pools", pools);
    }
    return doc;
}

static int put_json(json_t *doc, stk_buf *out, stk_err *err)
{
    char *text = doc == NULL ? NULL : json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    if (text == NULL) {
        return stk_err_nomem(err);
    }
    stk_buf_text(out, text);
    stk_buf_char(out, '\n');
    free(text);
    return 0;
}

/* --- for people --- */

static void put_holds(stk_buf *out, const stk_resources *r)
{
    char size[32];
    const char *comma = "";
    if (r->cpu_milli >= 0) {
        stk_buf_printf(out, "%g CPUs", (double)r->cpu_milli / 1000);
        comma = ", ";
    }
    if (r->memory_bytes >= 0) {
        stk_buf_printf(out, "%s%s", comma,
                       stk_units_format_memory(r->memory_bytes, size, sizeof size));
        comma = ", ";
    }
    uint32_t n_devices = stk_spec_n_devices(r);
    if (n_devices > 0 || r->base.gpu_count == 0) {
        stk_buf_printf(out, "%s%u × %s", comma, n_devices,
                       r->base.gpu_class != NULL    ? r->base.gpu_class
                       : r->base.gpu_vendor != NULL ? r->base.gpu_vendor
                                                    : "GPU");
        comma = ", ";
    }
    if (r->base.gpu_memory_bytes > 0) {
        stk_buf_printf(out, " of %s",
                       stk_units_format_memory(r->base.gpu_memory_bytes, size, sizeof size));
    }
    stk_buf_text(out, *comma == '\0' ? "not said\n" : "\n");
}

static void put_line(stk_buf *out, const char *key, const char *value)
{
    if (value != NULL) {
        stk_buf_printf(out, "  %-13s ", key);
        stk_text_safe(out, value, "");
        stk_buf_char(out, '\n');
    }
}

static void put_stack(stk_buf *out, const stk_stack *s)
{
    char text[64];
    stk_text_safe(out, s->name, "");
    stk_buf_printf(out, " (%s)\n", stk_place_word(s->kind));
    put_line(out, "from", s->file != NULL ? s->file : "Stoker's defaults");
    put_line(out, "default image", s->default_image);
    for (uint32_t i = 0; i < s->n_image_map; i++) {
        stk_buf_printf(out, "  %-14s%s → %s\n", i == 0 ? "image map" : "", s->image_map[i].key,
                       s->image_map[i].value);
    }
    put_line(out, "registry", s->registry);
    put_line(out, "socket", s->socket);
    if (!stk_place_is_elsewhere(s->kind)) {
        return;
    }
    put_line(out, "store", s->store != NULL ? s->store : "none: no step can run there yet");
    put_line(out, "  from", s->store_from);
    put_line(out, "store volume", s->store_volume);
    put_line(out, "carry", s->carry);
    put_line(out, "runner image", s->runner_image);
    put_line(out, "volume", s->carry_volume);
    put_line(out, "options", s->said);
    for (uint32_t i = 0; i < s->n_inherited; i++) {
        put_line(out, s->inherited[i].name, s->inherited[i].value);
        put_line(out, "  from", s->inherited[i].from);
    }
    stk_buf_printf(out, "  %-14s%lld\n", "jobs at once", (long long)s->max_jobs);
    put_line(out, "pending",
             s->pending_ms == 0 ? "as long as it takes"
                                : stk_units_format_duration(s->pending_ms, text, sizeof text));
    if (s->defaults != NULL) {
        stk_buf_printf(out, "  %-14s", "a step gets");
        put_holds(out, s->defaults);
    }
    if (s->limits != NULL) {
        stk_buf_printf(out, "  %-14s", "at most");
        put_holds(out, s->limits);
    }
    for (uint32_t i = 0; i < s->n_pools; i++) {
        const stk_pool *p = &s->pools[i];
        stk_buf_printf(out, "  pool %s: ", p->name);
        if (p->nodes >= 0) {
            stk_buf_printf(out, "%lld nodes of ", (long long)p->nodes);
        }
        put_holds(out, &p->holds);
        if (p->price >= 0) {
            stk_buf_printf(out, "    %g an hour each\n", p->price);
        }
    }
}

/* Every stack that could be named, those of the file first. */
static int gather(const char *folder, stk_arena *arena, stk_stack **ret, uint32_t *ret_n,
                  stk_err *err)
{
    stk_stack here;
    int rc = stk_stack_find(folder, NULL, arena, &here, err);
    stk_stack *all = rc < 0 ? NULL : stk_arena_array(arena, here.n_all + STK_PLACE_N, sizeof *all);
    uint32_t n = 0;
    if (all == NULL) {
        STK_TRY(rc);
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < here.n_all; i++) {
        all[n++] = here.all[i];
    }
    for (int k = 0; k < STK_PLACE_N && rc == 0; k++) {
        const char *word = stk_place_word((stk_place_kind)k);
        bool is_there = false;
        for (uint32_t i = 0; i < here.n_all; i++) {
            is_there = is_there || strcmp(here.all[i].name, word) == 0;
        }
        if (!is_there) {
            rc = stk_stack_find(folder, word, arena, &all[n++], err);
        }
    }
    *ret = all;
    *ret_n = n;
    return rc;
}

static int list(const stk_cli *cli, const char *folder, stk_arena *arena, stk_buf *out,
                stk_err *err)
{
    stk_stack *all = NULL;
    uint32_t n = 0;
    int rc = gather(folder, arena, &all, &n, err);
    if (rc == 0 && stk_cli_json(cli)) {
        json_t *doc = json_array();
        for (uint32_t i = 0; i < n; i++) {
            json_array_append_new(doc, stack_json(&all[i]));
        }
        return put_json(doc, out, err);
    }
    int width = 5;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        int len = (int)strlen(all[i].name);
        width = MAX(len, width);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const stk_stack *s = &all[i];
        bool lacks = stk_place_is_elsewhere(s->kind) && s->store == NULL;
        stk_buf_printf(out, "%-*s  %-10s  ", width, s->name, stk_place_word(s->kind));
        stk_text_safe(out, s->store != NULL ? s->store : lacks ? "no store yet" : "", "");
        stk_buf_printf(out, "%s%s\n", s->store != NULL || lacks ? "  " : "",
                       s->file != NULL ? s->file : "(default)");
    }
    return rc;
}

/* Where a run looks for stoker.yaml: from the folder of its document on, of a Python program from
 * the current one. */
static int find_folder(const stk_cli *cli, stk_arena *arena, const char **ret, stk_err *err)
{
    const char *file = stk_cli_value(cli, "file");
    *ret = ".";
    if (file == NULL || stk_cli_is_python(file)) {
        return 0;
    }
    const char *slash = strrchr(file, '/');
    if (!stk_file_exists(file)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "there is no file %s", file);
    }
    if (slash != NULL) {
        *ret = slash == file ? "/" : stk_arena_dupn(arena, file, (size_t)(slash - file));
    }
    return *ret == NULL ? stk_err_nomem(err) : 0;
}

static int run_stack(stk_cli *cli)
{
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    const char *word = stk_cli_arg(cli, 0), *name = stk_cli_arg(cli, 1);
    int status = stk_cli_at_most(cli, 2);
    bool lists = word == NULL || strcmp(word, "list") == 0;
    bool shows = word != NULL && strcmp(word, "show") == 0;
    bool checks = word != NULL && strcmp(word, "check") == 0;
    if (status != 0) {
        return status;
    }
    if (!lists && !shows && !checks) {
        return stk_cli_usage(cli, "stoker stack %s: there are list, show and check", word);
    }
    if (lists ? name != NULL : name == NULL) {
        return stk_cli_usage(cli, lists ? "stoker stack list takes no name; did you mean show?"
                                        : "which stack? stoker stack list shows them");
    }
    const char *folder = NULL;
    int rc = arena == NULL ? stk_err_nomem(&err) : find_folder(cli, arena, &folder, &err);
    if (rc == 0 && lists) {
        rc = list(cli, folder, arena, &out, &err);
        return stk_cli_answer(cli, rc, &out, &err);
    }
    stk_stack stack;
    rc = rc < 0 ? rc : stk_stack_find(folder, name, arena, &stack, &err);
    if (rc == 0 && checks) {
        return stk_cli_stack_check(cli, &stack, arena);
    }
    if (rc == 0 && stk_cli_json(cli)) {
        rc = put_json(stack_json(&stack), &out, &err);
    } else if (rc == 0) {
        put_stack(&out, &stack);
    }
    return stk_cli_answer(cli, rc, &out, &err);
}

static const stk_option options[] = {
    {"file", 0, "FILE", "look where a run of this pipeline document looks", false}, {NULL}};

const stk_command stk_cmd_stack = {
    .name = "stack",
    .summary = "where steps can run: list, show, check",
    .usage = "[options] [list | show NAME | check NAME]",
    .text =
        "A stack is a place where steps run, with its settings: containers of this machine, "
        "Kubernetes, AWS Batch. They are named in stoker.yaml, in the current folder or above it "
        "up to "
        "the project's (the nearest folder that is yours and has stoker.yaml, .git or "
        "pyproject.toml); a run of a pipeline document begins to look in the document's folder. "
        "One of each backend is there without being named, with defaults. A run goes to one by "
        "'--with NAME', a step by its own 'backend'.\n\n"
        "'list' shows all that can be named, 'show' all that one says. 'check' tries it: is its "
        "engine there, may we do there what a run does, are its options known, is its store "
        "reachable for reading and writing. Exit status 3 where something stands in the way of a "
        "run.\n\n"
        "The least that a stoker.yaml says of a cluster (runner_image is made by 'make "
        "runner-image'), and of a queue of AWS Batch:\n\n"
        "stacks: {prod: {backend: kubernetes, store: 's3://BUCKET/PREFIX', runner_image: IMAGE, "
        "default_image: IMAGE}}\n\n"
        "stacks: {aws: {backend: batch, store: 's3://BUCKET/PREFIX', default_image: IMAGE, "
        "options: {queue: QUEUE}}}",
    .options = options,
    .run = run_stack};
