/* job.json: written by the engine, read by the agent. */
#include "away/remote/remote_order.h"

#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"

int stk_remote_each_digest(const stk_json *node,
                           int (*each)(void *arg, const char *digest, stk_err *err), void *arg,
                           stk_err *err)
{
    const char *digest = stk_json_get_text(node, "digest");
    if (digest != NULL && strlen(digest) == STK_DIGEST_HEX) {
        return each(arg, digest, err);
    }
    for (uint32_t i = 0; i < stk_json_n_items(node); i++) {
        STK_TRY(stk_remote_each_digest(&node->items[i], each, arg, err));
    }
    for (uint32_t i = 0; i < stk_json_n_members(node); i++) {
        STK_TRY(stk_remote_each_digest(stk_json_value(node, i), each, arg, err));
    }
    return 0;
}

static void put_links(stk_buf *buf, const stk_remote_link *links, uint32_t n)
{
    stk_json_open(buf, "links", '{');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_text(buf, links[i].at, links[i].target);
    }
    stk_json_close(buf, '}');
}

/* JSON can't have bytes that aren't UTF-8, and the program would get other values. */
static int put_variables(stk_buf *buf, const char *const *env, stk_err *err)
{
    stk_json_open(buf, "env", '{');
    for (uint32_t i = 0; env != NULL && env[i] != NULL; i++) {
        size_t n = strcspn(env[i], "=");
        char name[512];
        if (n == 0 || n >= sizeof name || env[i][n] == '\0') {
            return stk_err_set(err, STK_E_LIMIT,
                               "the name of variable '%.40s…' is longer than 511 bytes", env[i]);
        }
        memcpy(name, env[i], n);
        name[n] = '\0';
        stk_json_put_text(buf, name, env[i] + n + 1);
    }
    stk_json_close(buf, '}');
    return 0;
}

static void put_code(stk_buf *buf, const stk_remote_order *o)
{
    if (o->code_digest == NULL) {
        stk_json_put_text(buf, "code", NULL);
        return;
    }
    stk_json_open(buf, "code", '{');
    stk_json_put_text(buf, "digest", o->code_digest);
    stk_json_put_text(buf, "root", o->code_root);
    stk_json_close(buf, '}');
}

static void put_asked_devices(stk_buf *buf, const stk_remote_order *o)
{
    if (o->n_devices == 0) {
        stk_json_put_text(buf, "asked_devices", NULL);
        return;
    }
    stk_json_open(buf, "asked_devices", '{');
    stk_json_put_text(buf, "vendor", o->device_vendor);
    stk_json_put_int(buf, "count", o->n_devices);
    if (o->device_classes != NULL) {
        stk_json_put_texts(buf, "classes", o->device_classes);
    }
    stk_json_close(buf, '}');
}

int stk_remote_order_write(const stk_remote_order *o, stk_buf *buf, stk_err *err)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_int(buf, "stoker", 1);
    stk_json_put_text(buf, "run", o->run);
    stk_json_put_text(buf, "step", o->step);
    stk_json_put_int(buf, "task", o->task);
    stk_json_put_int(buf, "attempt", o->attempt);
    stk_json_put_text(buf, "dir", o->dir);
    stk_json_put_text(buf, "store", o->store);
    stk_json_put_texts(buf, "argv", o->argv);
    stk_json_put_text(buf, "cwd", o->cwd);
    STK_TRY(put_variables(buf, o->env, err));
    if (o->expand != NULL && o->expand[0] != NULL) {
        stk_json_put_texts(buf, "expand", o->expand);
    }
    stk_json_put_texts(buf, "pass", o->pass);
    put_links(buf, o->links, o->n_links);
    put_code(buf, o);
    stk_json_put_int(buf, "timeout_ms", o->timeout_ms);
    stk_json_put_int(buf, "notice_ms", o->notice_ms);
    stk_json_put_int(buf, "grace_ms", o->grace_ms);
    stk_json_put_int(buf, "sample_ms", o->sample_ms);
    stk_json_put_bool(buf, "reads_samples", o->reads_samples);
    stk_json_put_bool(buf, "gang", o->gang);
    stk_json_put_text(buf, "checkpoints", o->checkpoints);
    stk_json_put_int(buf, "nodes", o->nodes);
    stk_json_put_int(buf, "threads", o->threads);
    put_asked_devices(buf, o);
    stk_json_put_raw(buf, "task_json", o->task_json);
    stk_json_close(buf, '}');
    if (buf->failed) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the job of step '%s'", o->step);
    }
    return 0;
}

/* --- reading --- */

typedef struct reader {
    const stk_json *doc;
    stk_arena *arena;
    stk_err *err;
    int rc;
} reader;

static void wrong(reader *r, const char *key)
{
    if (r->rc == 0) {
        r->rc = stk_err_set(r->err, STK_E_PROTOCOL, "job.json: '%s' is missing or invalid", key);
    }
}

static const char *text_of(reader *r, const char *key)
{
    const char *text = stk_json_get_text(r->doc, key);
    if (text == NULL) {
        wrong(r, key);
    }
    return text;
}

static int64_t int_of(reader *r, const char *key, int64_t max)
{
    int64_t number = 0;
    const stk_json *node = stk_json_get(r->doc, key);
    if (node != NULL && node->kind != STK_JSON_NULL &&
        (!stk_json_int(node, &number) || number < 0 || number > max)) {
        wrong(r, key);
    }
    return number;
}

/* The number of members of a list or map; 0 if it is missing. */
static uint32_t count_of(reader *r, const char *key, stk_json_kind kind)
{
    const stk_json *node = stk_json_get(r->doc, key);
    if (stk_json_is_kind(node, kind)) {
        return node->n;
    }
    if (node != NULL) {
        wrong(r, key);
    }
    return 0;
}

static const char *const *texts_of(reader *r, const char *key)
{
    const stk_json *list = stk_json_get(r->doc, key);
    uint32_t n = count_of(r, key, STK_JSON_LIST);
    const char **texts = stk_arena_array(r->arena, (size_t)n + 1, sizeof *texts);
    for (uint32_t i = 0; texts != NULL && i < n; i++) {
        texts[i] = stk_json_text(&list->items[i]);
        if (texts[i] == NULL) {
            wrong(r, key);
        }
    }
    if (texts == NULL) {
        wrong(r, key);
    }
    return texts;
}

static const char *const *env_of(reader *r)
{
    const stk_json *map = stk_json_get(r->doc, "env");
    uint32_t n = count_of(r, "env", STK_JSON_MAP);
    const char **env = stk_arena_array(r->arena, (size_t)n + 1, sizeof *env);
    for (uint32_t i = 0; env != NULL && i < n; i++) {
        const char *value = stk_json_text(stk_json_value(map, i));
        if (value != NULL) {
            env[i] = stk_arena_printf(r->arena, "%s=%s", stk_json_key(map, i)->text, value);
        }
        if (env[i] == NULL) {
            wrong(r, "env");
        }
    }
    if (env == NULL) {
        wrong(r, "env");
    }
    return env;
}

static const stk_remote_link *links_of(reader *r, const char *key, uint32_t *ret_n)
{
    const stk_json *map = stk_json_get(r->doc, key);
    uint32_t n = count_of(r, key, STK_JSON_MAP);
    stk_remote_link *links = stk_arena_array(r->arena, (size_t)n + 1, sizeof *links);
    for (uint32_t i = 0; links != NULL && i < n; i++) {
        links[i].at = stk_json_key(map, i)->text;
        links[i].target = stk_json_text(stk_json_value(map, i));
        if (links[i].target == NULL || strncmp(links[i].at, "in/", 3) != 0 ||
            !stk_remote_is_below(links[i].at)) {
            wrong(r, key);
        }
    }
    *ret_n = links == NULL ? 0 : n;
    return links;
}

bool stk_remote_is_below(const char *path)
{
    for (const char *part = path; part != NULL; part = strchr(part, '/')) {
        part += part == path ? 0 : 1;
        size_t n = strcspn(part, "/");
        if (n == 0 || (n <= 2 && strncmp(part, "..", n) == 0)) {
            return false;
        }
    }
    return true;
}

/* True for an absolute path without "..". */
static bool is_path(const char *text)
{
    for (const char *up = text; up != NULL && (up = strstr(up, "/..")) != NULL; up += 3) {
        if (up[3] == '/' || up[3] == '\0') {
            return false;
        }
    }
    return text != NULL && text[0] == '/';
}

/* NULL: any class. */
static const char *const *classes_of(reader *r, const stk_json *list)
{
    if (list == NULL) {
        return NULL;
    }
    bool is_list = list->kind == STK_JSON_LIST && list->n > 0 && list->n <= STK_LIMIT_ASKS;
    const char **classes = stk_arena_array(r->arena, STK_LIMIT_ASKS + 1, sizeof *classes);
    for (uint32_t i = 0; is_list && classes != NULL && i < list->n; i++) {
        classes[i] = stk_json_text(&list->items[i]);
        is_list = classes[i] != NULL;
    }
    if (!is_list || classes == NULL) {
        wrong(r, "asked_devices");
        return NULL;
    }
    return classes;
}

/* Reads parts that are either complete or null. */
static void read_parts(reader *r, stk_remote_order *o)
{
    const stk_json *code = stk_json_get(r->doc, "code");
    const stk_json *devices = stk_json_get(r->doc, "asked_devices");
    if (code != NULL && code->kind != STK_JSON_NULL) {
        o->code_digest = stk_json_get_text(code, "digest");
        o->code_root = stk_json_get_text(code, "root");
        if (o->code_digest == NULL || !is_path(o->code_root)) {
            wrong(r, "code");
        }
    }
    if (devices != NULL && devices->kind != STK_JSON_NULL) {
        const stk_json *vendor = stk_json_get(devices, "vendor"); /* null: any vendor */
        int64_t count = 0;
        o->device_vendor = stk_json_text(vendor);
        o->device_classes = classes_of(r, stk_json_get(devices, "classes"));
        if (!stk_json_int(stk_json_get(devices, "count"), &count) || count < 1 ||
            count > STK_LIMIT_DEVICES ||
            (o->device_vendor == NULL && !stk_json_is_kind(vendor, STK_JSON_NULL))) {
            wrong(r, "asked_devices");
            return;
        }
        o->n_devices = (uint32_t)count;
    }
}

int stk_remote_order_read(const char *text, size_t len, stk_arena *arena, stk_remote_order *ret,
                          stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES * 2, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    stk_json doc;
    STK_TRY(stk_json_parse(text, len, "job.json", &limits, arena, &doc, err));
    reader r = {.doc = &doc, .arena = arena, .err = err};
    int64_t format = int_of(&r, "stoker", INT64_MAX);
    if (format != 1) {
        return stk_err_set(err, STK_E_VERSION,
                           "job.json has format %lld, which this Stoker doesn't know",
                           (long long)format);
    }
    stk_remote_order o = {.run = text_of(&r, "run"),
                          .step = text_of(&r, "step"),
                          .task = (uint32_t)int_of(&r, "task", UINT32_MAX),
                          .attempt = (uint32_t)int_of(&r, "attempt", UINT32_MAX),
                          .dir = text_of(&r, "dir"),
                          .store = text_of(&r, "store"),
                          .argv = texts_of(&r, "argv"),
                          .cwd = stk_json_get_text(&doc, "cwd"),
                          .env = env_of(&r),
                          .pass = texts_of(&r, "pass"),
                          .timeout_ms = int_of(&r, "timeout_ms", STK_LIMIT_TIMEOUT_MS),
                          .notice_ms = int_of(&r, "notice_ms", STK_LIMIT_TIMEOUT_MS),
                          .grace_ms = int_of(&r, "grace_ms", STK_LIMIT_TIMEOUT_MS),
                          .sample_ms = int_of(&r, "sample_ms", STK_LIMIT_SAMPLE_MS_MAX),
                          .reads_samples = stk_json_is_true(stk_json_get(&doc, "reads_samples")),
                          .gang = stk_json_is_true(stk_json_get(&doc, "gang")),
                          .checkpoints = stk_json_get_text(&doc, "checkpoints"),
                          .nodes = (uint32_t)int_of(&r, "nodes", STK_LIMIT_RANKS),
                          .threads = (uint32_t)int_of(&r, "threads", UINT32_MAX)};
    if (stk_json_get(&doc, "expand") != NULL) {
        o.expand = texts_of(&r, "expand");
    }
    o.links = links_of(&r, "links", &o.n_links);
    read_parts(&r, &o);
    const stk_json *task = stk_json_get(&doc, "task_json");
    if (stk_json_is_map(task)) {
        o.task_json = stk_json_dump_in(task, arena);
    }
    if (o.task_json == NULL) {
        wrong(&r, "task_json");
    }
    if (o.nodes == 0) {
        wrong(&r, "nodes");
    }
    if (o.argv == NULL || o.argv[0] == NULL) {
        wrong(&r, "argv");
    }
    if (!is_path(o.store)) {
        wrong(&r, "store");
    }
    if (r.rc == 0 && (!is_path(o.dir) || stk_remote_key(o.store, o.dir) == NULL)) {
        wrong(&r, "dir");
    }
    if (o.checkpoints != NULL && !is_path(o.checkpoints)) {
        wrong(&r, "checkpoints");
    }
    *ret = o;
    return r.rc;
}

/* --- lists of arrays --- */

/* The length of the step's part of a key: "runs/<run>/<step>". */
static size_t step_of(const char *key)
{
    size_t n = strlen(key);
    for (int parts = 0; n > 0 && parts < 2; parts += key[n] == '/') {
        n--;
    }
    return n;
}

int stk_remote_list_write(const char *const *keys, uint32_t n, stk_buf *buf, stk_err *err)
{
    STK_BUF_AUTO at = STK_BUF_INIT(4096);
    size_t n_step = n > 0 ? step_of(keys[0]) : 0;
    if (n > 0) {
        stk_buf_add(&at, keys[0], n_step);
    }
    STK_TRY(stk_buf_check(&at, err));
    stk_json_open(buf, NULL, '{');
    stk_json_put_int(buf, "stoker", 1);
    stk_json_put_text(buf, "at", stk_text_or(at.data, ""));
    stk_json_open(buf, "keys", '[');
    for (uint32_t i = 0; i < n; i++) {
        if (step_of(keys[i]) != n_step || strncmp(keys[i], keys[0], n_step) != 0) {
            return stk_err_set(err, STK_E_BUG, "%s and %s belong to different steps", keys[0],
                               keys[i]);
        }
        stk_json_put_text(buf, NULL, keys[i] + n_step + 1);
    }
    stk_json_close(buf, ']');
    stk_json_close(buf, '}');
    return stk_buf_check(buf, err);
}

int stk_remote_list_read(const char *text, size_t len, stk_arena *arena, const char ***ret_keys,
                         uint32_t *ret_n, stk_err *err)
{
    static const stk_json_limits limits = {4 << 20, 100000, 8};
    stk_json doc;
    STK_TRY(stk_json_parse(text, len, "the list of an array job", &limits, arena, &doc, err));
    const char *at = stk_json_get_text(&doc, "at");
    const stk_json *list = stk_json_get(&doc, "keys");
    if (at == NULL || !stk_json_is_list(list)) {
        return stk_err_set(err, STK_E_PROTOCOL, "the list of an array job lacks \"at\" or \"keys");
    }
    const char **keys = stk_arena_array(arena, (size_t)list->n + 1, sizeof *keys);
    STK_TRY(stk_err_if_null(keys, err));
    for (uint32_t i = 0; i < list->n; i++) {
        const char *key = stk_json_text(&list->items[i]);
        if (key == NULL) {
            return stk_err_set(err, STK_E_PROTOCOL,
                               "the list of an array job: key %u isn't a string", i);
        }
        keys[i] = stk_arena_printf(arena, "%s/%s", at, key);
        STK_TRY(stk_err_if_null(keys[i], err));
    }
    *ret_keys = keys;
    *ret_n = list->n;
    return 0;
}
