/* Outputs: what the program left in out/ becomes artifacts of the share, and result.json names them
 * by their digests. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/dir.h"
#include "sys/file.h"

typedef struct outputs {
    agent *a;
    const char *base; /* the attempt directory, or a rank's */
    stk_buf *buf;     /* the new result.json */
    bool is_ok;       /* what the result says */
    const char **digests;
    uint32_t n, cap;
    stk_err *err;
} outputs;

static int keep_digest(outputs *o, const char *digest)
{
    const char **digests = stk_arena_grow(o->a->arena, o->digests, o->n, sizeof *digests, &o->cap);
    const char *copy = stk_arena_dup(o->a->arena, digest);
    if (digests == NULL || copy == NULL) {
        return stk_err_nomem(o->err);
    }
    o->digests = digests;
    digests[o->n++] = copy;
    return 0;
}

/* The members but digest, size and `known`. */
static void put_unmeasured(outputs *o, const stk_json *about, const char *known)
{
    for (uint32_t i = 0; i < stk_json_n_members(about); i++) {
        const char *key = stk_json_key(about, i)->text;
        if (strcmp(key, known) != 0 && strcmp(key, "digest") != 0 && strcmp(key, "size") != 0) {
            stk_json_put(o->buf, key, stk_json_value(about, i));
        }
    }
}

/* Of an attempt that failed nothing goes to the share: what it says of contents is no more than a
 * claim, and whoever reads the result would take it for ours. */
static void put_claim(outputs *o, const char *name, const stk_json *about)
{
    if (!stk_json_is_map(about)) {
        stk_json_put(o->buf, name, about);
        return;
    }
    stk_json_open(o->buf, name, '{');
    put_unmeasured(o, about, "");
    stk_json_close(o->buf, '}');
}

/* One output: what the result says of it, and what it is in the share. */
static int put_output(outputs *o, const char *name, const stk_json *about, const char *path)
{
    stk_artifact made;
    const char *claimed = stk_json_get_text(about, "digest");
    char at[PATH_MAX];
    (void)snprintf(at, sizeof at, "%s/%s", o->base, path);
    int rc = stk_store_add_path_until(o->a->store, at, NULL, &o->a->is_stopped, &made, o->err);
    if (rc == 0 && claimed != NULL && strcmp(claimed, made.digest) != 0) {
        rc = stk_err_set(o->err, STK_E_PROTOCOL,
                         "result.json gives digest %.12s…, but its content has %.12s…", claimed,
                         made.digest);
    }
    if (rc < 0 || (rc = keep_digest(o, made.digest)) < 0) {
        return stk_err_context(o->err, "output '%s'", name);
    }
    stk_json_open(o->buf, name, '{');
    stk_json_put_text(o->buf, "path", path);
    stk_json_put_text(o->buf, "digest", made.digest);
    stk_json_put_int(o->buf, "size", made.size);
    if (made.is_dir && stk_json_get(about, "format") == NULL) {
        stk_json_put_text(o->buf, "format", "dir");
    }
    put_unmeasured(o, about, "path");
    stk_json_close(o->buf, '}');
    return 0;
}

/* A value has no content of its own before the engine makes it an artifact; where there is no
 * engine, later steps and people read it from the share. */
static int put_json(outputs *o, const char *name, const stk_json *about)
{
    const char *text = stk_json_dump_in(stk_json_get(about, "value"), o->a->arena);
    stk_artifact made;
    STK_TRY(stk_err_if_null(text, o->err));
    STK_TRY(stk_store_add_bytes(o->a->store, text, strlen(text), &made, o->err));
    STK_TRY(keep_digest(o, made.digest));
    stk_json_open(o->buf, name, '{');
    stk_json_put_text(o->buf, "path", stk_arena_printf(o->a->arena, "out/%s", name));
    stk_json_put_text(o->buf, "digest", made.digest);
    stk_json_put_int(o->buf, "size", made.size);
    if (stk_json_get(about, "format") == NULL) {
        stk_json_put_text(o->buf, "format", "json");
    }
    put_unmeasured(o, about, "value");
    stk_json_close(o->buf, '}');
    return 0;
}

static int put_value(outputs *o, const char *name, const stk_json *about)
{
    const char *path = stk_json_get_text(about, "path");
    if (o->is_ok && stk_agent_has_refs() && stk_json_get(about, "value") != NULL) {
        return put_json(o, name, about);
    }
    if (o->is_ok && path != NULL && stk_remote_is_below(path)) {
        return put_output(o, name, about, path);
    }
    put_claim(o, name, about);
    return 0;
}

static int put_outputs(outputs *o, const stk_json *map)
{
    for (uint32_t i = 0; i < stk_json_n_members(map); i++) {
        STK_TRY(put_value(o, stk_json_key(map, i)->text, stk_json_value(map, i)));
    }
    return 0;
}

/* A command's declared outputs that its result doesn't mention: out/NAME, as at home. What isn't
 * there the engine misses. */
static int put_declared(outputs *o, const stk_json *outputs_of_result)
{
    const stk_json *names = stk_json_get(&o->a->task, "outputs");
    if (stk_json_get(&o->a->task, "command") == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < stk_json_n_items(names); i++) {
        const char *name = stk_json_text(&names->items[i]);
        char path[300], at[PATH_MAX];
        struct stat st;
        (void)snprintf(path, sizeof path, "out/%s", stk_text_or(name, ""));
        (void)snprintf(at, sizeof at, "%s/%s", o->base, path);
        if (name != NULL && stk_json_get(outputs_of_result, name) == NULL && lstat(at, &st) == 0) {
            STK_TRY(put_output(o, name, NULL, path));
        }
    }
    return 0;
}

static int put_next_tasks(outputs *o, const stk_json *next)
{
    stk_json_open(o->buf, "next", '{');
    for (uint32_t i = 0; i < stk_json_n_members(next); i++) {
        const char *key = stk_json_key(next, i)->text;
        if (strcmp(key, "items") == 0) {
            STK_TRY(put_value(o, key, stk_json_value(next, i)));
        } else {
            put_claim(o, key, stk_json_value(next, i));
        }
    }
    stk_json_close(o->buf, '}');
    return 0;
}

/* Of one folder: its result.json again, with digests. */
static int rewrite_result(outputs *o)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    char path[PATH_MAX];
    size_t len = 0;
    stk_json doc = {.kind = STK_JSON_MAP};
    (void)snprintf(path, sizeof path, "%s/result.json", o->base);
    int rc = stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, o->err);
    bool is_there = rc == 0;
    if (!is_there && (rc != STK_E_NOT_FOUND || !o->a->outcome.ok)) {
        return stk_err_but(rc, STK_E_NOT_FOUND);
    }
    if (is_there && (stk_json_parse(text, len, path, &limits, o->a->arena, &doc, o->err) < 0 ||
                     !stk_json_is_map(&doc))) {
        return 0; /* the engine refuses it, in its words */
    }
    const stk_json *status = stk_json_get(&doc, "status");
    const stk_json *outputs_of_result = stk_json_get(&doc, "outputs");
    /* A Python task's own word counts first; a command's where it ended well. */
    o->is_ok = (status == NULL || stk_json_is(status, "ok")) &&
               (o->a->outcome.ok || stk_json_get(&o->a->task, "command") == NULL);
    o->buf = &buf;
    stk_json_open(&buf, NULL, '{');
    if (!is_there) {
        stk_json_put_int(&buf, "stoker", 1);
        stk_json_put_text(&buf, "status", "ok");
    }
    for (uint32_t i = 0; i < stk_json_n_members(&doc); i++) {
        const char *key = stk_json_key(&doc, i)->text;
        const stk_json *value = stk_json_value(&doc, i);
        if (strcmp(key, "next") == 0 && stk_json_is_map(value)) {
            STK_TRY(put_next_tasks(o, value));
        } else if (strcmp(key, "outputs") != 0) {
            stk_json_put(&buf, key, value);
        }
    }
    stk_json_open(&buf, "outputs", '{');
    STK_TRY(put_outputs(o, outputs_of_result));
    if (o->is_ok) {
        STK_TRY(put_declared(o, outputs_of_result));
    }
    stk_json_close(&buf, '}');
    stk_json_close(&buf, '}');
    STK_TRY(stk_buf_check(&buf, o->err));
    return stk_file_write_atomic(path, buf.data, buf.len, 0644, o->err);
}

/* Each rank of a gang that num_parallel opened has a result of its own; a command's has its out/.
 */
static int rewrite_ranks(outputs *o)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_if(o->a->order.dir, &dir, o->err);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        const char *name = dir.items[i].name;
        char path[PATH_MAX], out[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/%s/result.json", o->a->order.dir, name);
        (void)snprintf(out, sizeof out, "%s/%s/out", o->a->order.dir, name);
        if (strncmp(name, "rank-", 5) == 0 && (stk_file_exists(path) || stk_file_exists(out))) {
            *strrchr(path, '/') = '\0';
            o->base = path;
            rc = rewrite_result(o);
        }
    }
    return rc;
}

/* The program's own word says that it is well: it has to be taken back where an output can't be
 * kept. */
static void put_failed_result(const agent *a, stk_failure class, const stk_err *why)
{
    char text[1200], path[PATH_MAX];
    STK_BUF_AUTO buf = STK_BUF_INIT(64 << 10);
    (void)snprintf(path, sizeof path, "%s/result.json", a->order.dir);
    if (!stk_file_exists(path)) {
        return;
    }
    if (class == STK_FAIL_OUTPUT) {
        class = STK_FAIL_SERIALIZE;
    }
    stk_json_open(&buf, NULL, '{');
    stk_json_put_int(&buf, "stoker", 1);
    stk_json_put_text(&buf, "status", "failed");
    stk_json_open(&buf, "error", '{');
    stk_json_put_text(&buf, "class", stk_failure_word(class));
    stk_json_put_text(&buf, "message", stk_err_format(why, text, (int)sizeof text));
    stk_json_close(&buf, '}');
    stk_json_close(&buf, '}');
    (void)stk_file_write_atomic(path, buf.data, buf.len, 0644, NULL);
}

/* The work is done: a share that is out of reach for a while doesn't cost it. */
static int push_all(outputs *o)
{
    int64_t since_ms = 0;
    for (;;) {
        int rc = stk_agent_move(o->a, o->digests, o->n, stk_share_push, o->err);
        if (rc == 0 || !stk_agent_try_again(o->a, &since_ms, o->err)) {
            return rc;
        }
    }
}

static int keep_all(outputs *o)
{
    if (o->a->node == 0) { /* the attempt's own are node 0's */
        STK_TRY(rewrite_result(o));
    }
    return rewrite_ranks(o);
}

int stk_agent_outputs(agent *a, stk_failure *ret_class, stk_err *err)
{
    outputs o = {.a = a, .base = a->order.dir, .err = err};
    *ret_class = STK_FAIL_OUTPUT;
    int rc = keep_all(&o);
    if (rc == 0 && (rc = push_all(&o)) < 0 && stk_share_is_at_fault(rc)) {
        *ret_class = STK_FAIL_STORE;
    }
    if (rc < 0) {
        if (atomic_load(&a->is_stopped)) {
            *ret_class = STK_FAIL_PREEMPTED;
        }
        put_failed_result(a, *ret_class, err);
    }
    return rc;
}
