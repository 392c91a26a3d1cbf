/* Outputs: what the program left in out/ becomes artifacts of the share, and result.json names them
 * by their digests. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/clock.h"
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

static int keep(outputs *o, const char *digest)
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

/* The members of one output: what was said of it, and what it is in the share. */
static int put_output(outputs *o, const char *name, const stk_json *said, const char *path)
{
    stk_artifact made;
    const char *claimed = stk_json_text(stk_json_get(said, "digest"));
    char at[PATH_MAX];
    (void)snprintf(at, sizeof at, "%s/%s", o->base, path);
    int rc = stk_store_add_path_until(o->a->store, at, NULL, &o->a->is_stopped, &made, o->err);
    if (rc == 0 && claimed != NULL && strcmp(claimed, made.digest) != 0) {
        rc = stk_err_set(o->err, STK_E_PROTOCOL,
                         "it claims digest %.12s… in result.json, but its content has %.12s…",
                         claimed, made.digest);
    }
    rc = rc < 0 ? rc : keep(o, made.digest);
    if (rc < 0) {
        return stk_err_context(o->err, "output '%s'", name);
    }
    stk_buf_char(o->buf, '{');
    stk_json_put_text(o->buf, "path", path);
    stk_json_put_text(o->buf, "digest", made.digest);
    stk_json_put_int(o->buf, "size", made.size);
    if (made.is_dir && stk_json_get(said, "format") == NULL) {
        stk_json_put_text(o->buf, "format", "dir");
    }
    for (uint32_t i = 0; said != NULL && i < said->n; i++) {
        const char *key = stk_json_key(said, i)->text;
        if (strcmp(key, "path") != 0 && strcmp(key, "digest") != 0 && strcmp(key, "size") != 0) {
            stk_json_put_key(o->buf, key);
            stk_json_dump(stk_json_value(said, i), o->buf);
        }
    }
    return stk_buf_char(o->buf, '}');
}

/* Of an attempt that failed nothing goes to the share: what it says of contents there is no more
 * than a claim, and whoever reads the result would take it for ours. */
static void put_unsummed(outputs *o, const stk_json *said)
{
    if (said->kind != STK_JSON_MAP) {
        stk_json_dump(said, o->buf);
        return;
    }
    stk_buf_char(o->buf, '{');
    for (uint32_t i = 0; i < said->n; i++) {
        const char *key = stk_json_key(said, i)->text;
        if (strcmp(key, "digest") != 0 && strcmp(key, "size") != 0) {
            stk_json_put_key(o->buf, key);
            stk_json_dump(stk_json_value(said, i), o->buf);
        }
    }
    stk_buf_char(o->buf, '}');
}

static int put_outputs(outputs *o, const stk_json *map)
{
    int rc = 0;
    stk_buf_char(o->buf, '{');
    for (uint32_t i = 0; map != NULL && map->kind == STK_JSON_MAP && i < map->n && rc == 0; i++) {
        const char *name = stk_json_key(map, i)->text;
        const stk_json *said = stk_json_value(map, i);
        const char *path = stk_json_text(stk_json_get(said, "path"));
        stk_json_put_key(o->buf, name);
        if (o->is_ok && path != NULL && stk_remote_is_below(path)) {
            rc = put_output(o, name, said, path);
        } else {
            put_unsummed(o, said);
        }
    }
    return rc;
}

/* A command's declared outputs that its result doesn't mention: out/NAME, as at home. What isn't
 * there the engine misses. */
static int put_declared(outputs *o, const stk_json *said)
{
    const stk_json *names = stk_json_get(&o->a->task, "outputs");
    bool is_command = stk_json_get(&o->a->task, "command") != NULL;
    int rc = 0;
    for (uint32_t i = 0;
         is_command && names != NULL && names->kind == STK_JSON_LIST && i < names->n && rc == 0;
         i++) {
        const char *name = stk_json_text(&names->items[i]);
        char path[300], at[PATH_MAX];
        struct stat st;
        (void)snprintf(path, sizeof path, "out/%s", stk_text_or(name, ""));
        (void)snprintf(at, sizeof at, "%s/%s", o->base, path);
        if (name == NULL || stk_json_get(said, name) != NULL || lstat(at, &st) < 0) {
            continue;
        }
        stk_json_put_key(o->buf, name);
        rc = put_output(o, name, NULL, path);
    }
    return rc;
}

static int put_next(outputs *o, const stk_json *next)
{
    int rc = 0;
    stk_buf_char(o->buf, '{');
    for (uint32_t i = 0; i < next->n && rc == 0; i++) {
        const char *key = stk_json_key(next, i)->text;
        const stk_json *value = stk_json_value(next, i);
        const char *path = stk_json_text(stk_json_get(value, "path"));
        stk_json_put_key(o->buf, key);
        if (strcmp(key, "items") == 0 && o->is_ok && path != NULL && stk_remote_is_below(path)) {
            rc = put_output(o, key, value, path);
        } else {
            put_unsummed(o, value);
        }
    }
    stk_buf_char(o->buf, '}');
    return rc;
}

/* Of one folder: its result.json again, with digests. */
static int rewrite(outputs *o)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    STK_TEXT_AUTO text = NULL;
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    size_t len = 0;
    stk_json doc = {.kind = STK_JSON_MAP};
    const char *path = stk_arena_printf(o->a->arena, "%s/result.json", o->base);
    o->buf = &buf;
    int rc = path == NULL ? stk_err_nomem(o->err)
                          : stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, o->err);
    bool is_there = rc == 0;
    if (rc == 0) {
        rc = stk_json_parse(text, len, path, &limits, o->a->arena, &doc, o->err);
    }
    if (rc == STK_E_NOT_FOUND && !o->a->outcome.ok) {
        return 0;
    }
    if (rc < 0 && rc != STK_E_NOT_FOUND) {
        return is_there ? 0 : rc; /* one that is wrong is refused by the engine, in its words */
    }
    const stk_json *status = stk_json_get(&doc, "status");
    /* A Python task's own word counts first; a command's where it ended well. */
    o->is_ok = (status == NULL || stk_json_is(status, "ok")) &&
               (o->a->outcome.ok || stk_json_get(&o->a->task, "command") == NULL);
    stk_buf_text(&buf, is_there ? "{" : "{\"stoker\":1,\"status\":\"ok\"");
    rc = 0;
    for (uint32_t i = 0; i < doc.n && rc == 0; i++) {
        const char *key = stk_json_key(&doc, i)->text;
        const stk_json *value = stk_json_value(&doc, i);
        if (strcmp(key, "outputs") != 0) {
            stk_json_put_key(&buf, key);
            if (strcmp(key, "next") == 0 && value->kind == STK_JSON_MAP) {
                rc = put_next(o, value);
            } else {
                stk_json_dump(value, &buf);
            }
        }
    }
    if (rc == 0) {
        const stk_json *said = stk_json_get(&doc, "outputs");
        stk_json_put_key(&buf, "outputs");
        rc = put_outputs(o, said);
        rc = rc < 0 || !o->is_ok ? rc : put_declared(o, said);
        stk_buf_text(&buf, "}}");
    }
    STK_TRY(rc);
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
            rc = rewrite(o);
        }
    }
    return rc;
}

/* The program's own word says that it is well: it has to be taken back where an output can't be
 * kept. */
static void take_back(agent *a, stk_failure class, const stk_err *why)
{
    char text[1200];
    STK_BUF_AUTO buf = STK_BUF_INIT(64 << 10);
    const char *path = stk_arena_printf(a->arena, "%s/result.json", a->order.dir);
    if (path != NULL && stk_file_exists(path)) {
        stk_buf_text(&buf, "{\"stoker\":1,\"status\":\"failed\",\"error\":{");
        stk_json_put_text(&buf, "class",
                          stk_failure_word(class == STK_FAIL_OUTPUT ? STK_FAIL_SERIALIZE : class));
        stk_json_put_text(&buf, "message", stk_err_format(why, text, (int)sizeof text));
        stk_buf_text(&buf, "}}");
        (void)stk_file_write_atomic(path, buf.data, buf.len, 0644, NULL);
    }
}

/* The work is done: a share that is out of reach for a while doesn't cost it. */
static int push_all(outputs *o)
{
    int64_t since_ms = 0;
    for (;;) {
        int rc = stk_agent_move(o->a, o->digests, o->n, true, o->err);
        if (rc == 0 || !stk_agent_try_again(o->a, &since_ms, o->err)) {
            return rc;
        }
    }
}

int stk_agent_outputs(agent *a, stk_failure *ret_class, stk_err *err)
{
    outputs o = {.a = a, .base = a->order.dir, .err = err};
    int rc = a->node == 0 ? rewrite(&o) : 0; /* the attempt's own are node 0's */
    rc = rc < 0 ? rc : rewrite_ranks(&o);
    *ret_class = STK_FAIL_OUTPUT;
    if (rc == 0 && (rc = push_all(&o)) < 0 && stk_share_is_at_fault(rc)) {
        *ret_class = STK_FAIL_STORE;
    }
    if (rc < 0) {
        if (atomic_load(&a->is_stopped)) {
            *ret_class = STK_FAIL_PREEMPTED;
        }
        take_back(a, *ret_class, err);
    }
    return rc;
}
