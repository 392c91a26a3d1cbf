/* Jobs of `stoker export slurm-script` (STOKER_REFS), which run without an engine. Their orders
 * were written before any step ran, so an input that another step makes has a digest that stands
 * for it: refs/<digest> in the share says whose output it is. Here that output takes its place, and
 * a step's own outputs are laid out where people look for them. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/agent/agent_private.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/file.h"

typedef struct ref {
    const char *stands; /* the digest in the order */
    const char *digest; /* what was made */
    const stk_json *about;
} ref;

typedef struct refs {
    agent *a;
    ref *items;
    uint32_t n, cap;
} refs;

bool stk_agent_has_refs(void)
{
    return getenv("STOKER_REFS") != NULL;
}

static const stk_json *get_json(agent *a, const char *key, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(AGENT_END_BYTES);
    if (stk_share_get(a->share, key, &text, err) < 0) {
        return NULL;
    }
    const stk_json *doc = stk_json_readn(a->arena, text.data, text.len);
    if (doc == NULL) {
        stk_err_set(err, STK_E_PROTOCOL, "%s isn't JSON", key);
    }
    return doc;
}

/* What the step behind `key` says of its outputs. */
static const stk_json *read_result(agent *a, const char *key, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(AGENT_END_BYTES);
    stk_remote_end end;
    const char *at = stk_arena_printf(a->arena, "%s/end.json", key);
    if (stk_share_get(a->share, at, &text, err) < 0 ||
        stk_remote_end_read(text.data, text.len, a->arena, &end, err) < 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < end.n_files; i++) {
        const stk_remote_file *f = &end.files[i];
        if (strcmp(f->name, "result.json") != 0) {
            continue;
        }
        return f->data == NULL ? get_json(a, f->key, err)
                               : stk_json_readn(a->arena, f->data, (size_t)f->size);
    }
    stk_err_set(err, STK_E_PROTOCOL, "%s has no result", at);
    return NULL;
}

static int find_ref(void *arg, const char *digest, stk_err *err)
{
    refs *all = arg;
    agent *a = all->a;
    stk_err why = {0};
    const stk_json *to = get_json(a, stk_arena_printf(a->arena, "refs/%.64s", digest), &why);
    if (to == NULL && why.code == STK_E_NOT_FOUND) {
        return 0; /* it was there before the first step */
    }
    if (to == NULL) {
        *err = why;
        return err->code;
    }
    const char *key = stk_json_get_text(to, "key"), *name = stk_json_get_text(to, "output");
    if (key == NULL || name == NULL) {
        return stk_err_set(err, STK_E_PROTOCOL, "refs/%.64s names no output", digest);
    }
    const stk_json *result = read_result(a, key, err);
    if (result == NULL) {
        return stk_err_context(err, "output '%s' of %s", name, key);
    }
    const stk_json *about = stk_json_get(stk_json_get(result, "outputs"), name);
    const char *made = stk_json_get_text(about, "digest");
    if (made == NULL || strlen(made) != STK_DIGEST_HEX) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s made no output '%s'", key, name);
    }
    ref *items = stk_arena_grow(a->arena, all->items, all->n, sizeof *items, &all->cap);
    STK_TRY(stk_err_if_null(items, err));
    all->items = items;
    items[all->n++] = (ref){.stands = digest, .digest = made, .about = about};
    return 0;
}

/* Every input with that digest gets what the step said of its output. */
static int describe(agent *a, stk_json *node, const ref *r, stk_err *err)
{
    static const char *const keys[] = {"size", "format", "type", "meta"};
    if (stk_json_is_list(node)) {
        for (uint32_t i = 0; i < stk_json_n_items(node); i++) {
            STK_TRY(describe(a, (stk_json *)(uintptr_t)stk_json_item(node, i), r, err));
        }
        return 0;
    }
    if (!stk_json_is_map(node)) {
        return 0;
    }
    if (!stk_json_is(stk_json_get(node, "digest"), r->stands)) {
        for (uint32_t i = 0; i < stk_json_n_members(node); i++) {
            STK_TRY(describe(a, (stk_json *)(uintptr_t)stk_json_value(node, i), r, err));
        }
        return 0;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const stk_json *value = stk_json_get(r->about, keys[i]);
        if (value != NULL) {
            STK_TRY(stk_err_if_null(stk_json_set(a->arena, node, keys[i], *value), err));
        }
    }
    return 0;
}

/* `text` with digests in place of those that stand for them, also where they are a path below
 * artifacts/. NULL: out of memory. */
static const char *put_digests(const refs *all, const char *text)
{
    char *copy = stk_arena_dup(all->a->arena, text);
    for (uint32_t i = 0; copy != NULL && i < all->n; i++) {
        const ref *r = &all->items[i];
        char stands[STK_DIGEST_HEX + 2], digest[STK_DIGEST_HEX + 2];
        for (char *at = copy; (at = strstr(at, r->stands)) != NULL; at += STK_DIGEST_HEX) {
            memcpy(at, r->digest, STK_DIGEST_HEX);
        }
        (void)snprintf(stands, sizeof stands, "%.2s/%s", r->stands, r->stands + 2);
        (void)snprintf(digest, sizeof digest, "%.2s/%s", r->digest, r->digest + 2);
        for (char *at = copy; (at = strstr(at, stands)) != NULL; at += STK_DIGEST_HEX + 1) {
            memcpy(at, digest, STK_DIGEST_HEX + 1);
        }
    }
    return copy;
}

int stk_agent_refs(agent *a, stk_err *err)
{
    refs all = {.a = a};
    stk_json *inputs = (stk_json *)(uintptr_t)stk_json_get(&a->task, "inputs");
    STK_TRY(stk_remote_each_digest(inputs, find_ref, &all, err));
    for (uint32_t i = 0; i < all.n; i++) {
        STK_TRY(describe(a, inputs, &all.items[i], err));
    }
    const char *text = stk_json_dump_in(&a->task, a->arena);
    STK_TRY(stk_err_if_null(text, err));
    a->order.task_json = put_digests(&all, text);
    STK_TRY(stk_err_if_null(a->order.task_json, err));
    const stk_json *task = stk_json_read(a->arena, a->order.task_json);
    STK_TRY(stk_err_if_null(task, err));
    a->task = *task;
    const char **env = (const char **)(uintptr_t)a->order.env;
    for (uint32_t i = 0; env != NULL && env[i] != NULL; i++) {
        env[i] = put_digests(&all, env[i]);
        STK_TRY(stk_err_if_null(env[i], err));
    }
    stk_remote_link *links = (stk_remote_link *)(uintptr_t)a->order.links;
    for (uint32_t i = 0; i < a->order.n_links; i++) {
        links[i].target = put_digests(&all, links[i].target);
        STK_TRY(stk_err_if_null(links[i].target, err));
    }
    return 0;
}

/* results/STEP/OUTPUT, whole or not at all. */
static int lay_out(const agent *a, const char *name, const char *digest, stk_err *err)
{
    char step[PATH_MAX], to[PATH_MAX], made[PATH_MAX];
    const char *path = NULL;
    STK_TRY(stk_store_locate(a->store, digest, a->arena, &path, NULL, err));
    (void)snprintf(step, sizeof step, "%s/results/%s", stk_share_folder(a->share), a->order.step);
    if (snprintf(to, sizeof to, "%s/%s", step, name) >= PATH_MAX ||
        snprintf(made, sizeof made, "%s/.%s", step, name) >= PATH_MAX) {
        return stk_err_set(err, STK_E_LIMIT, "the path of output '%s' is too long", name);
    }
    STK_TRY(stk_file_mkdirs(step, 0755, err));
    STK_TRY(stk_file_remove_tree(made, err));
    STK_TRY(stk_file_remove_tree(to, err));
    STK_TRY(stk_file_copy_tree(path, made, err));
    if (rename(made, to) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", to);
    }
    return 0;
}

int stk_agent_results(agent *a, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    char path[PATH_MAX];
    size_t len = 0;
    if (a->node > 0 || stk_share_folder(a->share) == NULL) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/result.json", a->order.dir);
    int rc = stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, err);
    if (rc < 0) {
        return stk_err_but(rc, STK_E_NOT_FOUND);
    }
    const stk_json *outputs = stk_json_get(stk_json_readn(a->arena, text, len), "outputs");
    for (uint32_t i = 0; i < stk_json_n_members(outputs); i++) {
        const char *digest = stk_json_get_text(stk_json_value(outputs, i), "digest");
        if (digest != NULL) {
            STK_TRY(lay_out(a, stk_json_key(outputs, i)->text, digest, err));
        }
    }
    return 0;
}
