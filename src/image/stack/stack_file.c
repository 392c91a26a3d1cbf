/* `stoker.yaml`: the stacks that it names, and those that are there anyway. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/yaml.h"
#include "image/stack/stack_metaflow.h"
#include "image/stack/stack_private.h"
#include "model/spec/spec_read.h"
#include "sys/file.h"
#include "sys/trust.h"

enum { FILE_BYTES = 1 << 20, FILE_NODES = 20000, STACKS_MAX = 256, FILE_VERSION = 1 };

static const stk_json_limits file_limits = {FILE_BYTES, FILE_NODES, STK_LIMIT_DEPTH};

static const char *const words[STK_PLACE_N] = {
    [STK_PLACE_LOCAL] = "local",           [STK_PLACE_DOCKER] = "docker",
    [STK_PLACE_KUBERNETES] = "kubernetes", [STK_PLACE_BATCH] = "batch",
    [STK_PLACE_SLURM] = "slurm",           [STK_PLACE_SSH] = "ssh"};

enum { MAX_JOBS = 1000, PENDING_MS = 30 * 60 * 1000 };

const char *stk_place_word(stk_place_kind kind)
{
    return words[kind];
}

int stk_stack_kind(const char *word)
{
    for (int i = 0; i < STK_PLACE_N; i++) {
        if (word != NULL && strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* --- the file --- */

enum {
    K_BACKEND,
    K_IMAGE,
    K_MAP,
    K_REGISTRY,
    K_SOCKET,
    K_PRICES,
    K_STORE,
    K_STORE_VOLUME,
    K_HOSTS,
    K_OPTIONS,
    K_CARRY,
    K_RUNNER,
    K_VOLUME,
    K_JOBS,
    K_PENDING,
    K_DEFAULTS,
    K_LIMITS,
    K_POOLS,
    K_N
};
static const char *const stack_keys[K_N] = {
    [K_BACKEND] = "backend",     [K_IMAGE] = "default_image",
    [K_MAP] = "image_map",       [K_REGISTRY] = "registry",
    [K_SOCKET] = "socket",       [K_PRICES] = "prices",
    [K_STORE] = "store",         [K_STORE_VOLUME] = "store_volume",
    [K_HOSTS] = "hosts",         [K_OPTIONS] = "options",
    [K_CARRY] = "carry",         [K_RUNNER] = "runner_image",
    [K_VOLUME] = "carry_volume", [K_JOBS] = "max_jobs",
    [K_PENDING] = "pending",     [K_DEFAULTS] = "resources",
    [K_LIMITS] = "limits",       [K_POOLS] = "pools"};

static int longer_first(const void *a, const void *b)
{
    size_t x = strlen(((const stk_pair *)a)->key);
    size_t y = strlen(((const stk_pair *)b)->key);
    if (x != y) {
        return x > y ? -1 : 1;
    }
    return strcmp(((const stk_pair *)a)->key, ((const stk_pair *)b)->key);
}

static int read_map(stk_spec_reader *r, const stk_json *node, stk_stack *stack)
{
    STK_TRY(stk_spec_read_map(r, node, "image_map"));
    stk_pair *pairs = stk_arena_array(r->arena, node->n + 1, sizeof *pairs);
    STK_TRY(stk_err_if_null(pairs, r->err));
    for (uint32_t i = 0; i < node->n; i++) {
        const char *to = NULL;
        const stk_json *key = stk_json_key(node, i);
        if (key->n == 0) {
            return stk_spec_fail(r, key, "image_map: a name is empty and would match every image");
        }
        STK_TRY(stk_spec_read_text(r, stk_json_value(node, i), key->text, &to));
        pairs[i] = (stk_pair){.key = key->text, .value = to};
    }
    qsort(pairs, node->n, sizeof *pairs, longer_first);
    stack->image_map = pairs;
    stack->n_image_map = node->n;
    return 0;
}

static int read_backend(stk_spec_reader *r, const stk_json *node, stk_stack *stack)
{
    int kind = stk_stack_kind(stk_json_text(node));
    if (kind < 0) {
        stk_spec_wrong(r, node, "backend", "docker, kubernetes, batch, slurm, ssh or local");
        if (stk_json_text(node) != NULL) {
            stk_spec_did_you_mean(r, stk_json_text(node), words, STK_PLACE_N);
        }
        return STK_E_SPEC;
    }
    stack->kind = (stk_place_kind)kind;
    return 0;
}

static int read_options(stk_spec_reader *r, const stk_json *node, const char *key, const char **ret)
{
    STK_TRY(stk_spec_read_map(r, node, key));
    return stk_spec_read_json(r, node, ret);
}

static int read_holds(stk_spec_reader *r, const stk_json *node, const stk_resources **ret)
{
    stk_resources *holds = stk_arena_array(r->arena, 1, sizeof *holds);
    *ret = holds;
    STK_TRY(stk_err_if_null(holds, r->err));
    return stk_spec_read_resources(r, node, holds);
}

#define CREDENTIALS                                                                                \
    "the store's URL has credentials, which would end up in logs; write s3://BUCKET/PREFIX "       \
    "and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"

/* "scheme://key:secret@bucket": of what is behind the bucket an @ may be part. A user of SSH is no
 * secret, a password behind a colon is one. */
static bool has_credentials(const char *url)
{
    const char *host = strstr(url, "://");
    if (stk_stack_is_on_a_host(url)) {
        size_t n = strcspn(host + 3, ":/@");
        return host[3 + n] == ':' && host[3 + strcspn(host + 3, "/@")] == '@';
    }
    return host != NULL && host[3 + strcspn(host + 3, "/@")] == '@';
}

static int read_store(stk_spec_reader *r, const stk_json *node, const char **ret)
{
    STK_TRY(stk_spec_read_text(r, node, "store", ret));
    if ((*ret)[0] == '/') {
        return 0;
    }
    if (has_credentials(*ret)) {
        return stk_spec_fail(r, node, "%s", CREDENTIALS);
    }
    if (strncmp(*ret, "s3://", 5) == 0 && (*ret)[5] != '\0') {
        return 0;
    }
    if (stk_stack_is_on_a_host(*ret)) {
        return 0;
    }
    int rc = stk_spec_fail(r, node,
                           "'store' is %.200s; it must be s3://BUCKET/PREFIX, the absolute path "
                           "of a folder that all machines have, or ssh://HOST/PATH",
                           *ret);
    if (strncasecmp(*ret, "s3:", 3) == 0) {
        const char *rest = *ret + 3 + strspn(*ret + 3, "/");
        stk_err_hint(r->err, "did you mean 's3://%.200s'?",
                     stk_text_or(stk_text_if_any(rest), "BUCKET"));
    }
    return rc;
}

static int read_carry(stk_spec_reader *r, const stk_json *node, const char **ret)
{
    static const char *const ways[] = {"image", "volume", "store"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (stk_json_is(node, ways[i])) {
            *ret = ways[i];
            return 0;
        }
    }
    return stk_spec_wrong(r, node, "carry", "image, volume or store");
}

static int read_pool(stk_spec_reader *r, const stk_json *name, const stk_json *map, stk_pool *pool)
{
    enum { NODES, HOLDS, PRICE, OPTIONS };
    static const char *const keys[] = {"nodes", "holds", "price", "options"};
    const stk_resources *holds = NULL;
    *pool = (stk_pool){.name = name->text, .nodes = -1, .price = -1, .holds = STK_RESOURCES_UNSET};
    STK_TRY(stk_spec_read_map(r, map, name->text));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 4, name->text);
        STK_TRY(key);
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (key == NODES) {
            STK_TRY(stk_spec_read_int(r, value, "nodes", 1, INT32_MAX, &pool->nodes));
        } else if (key == HOLDS) {
            STK_TRY(read_holds(r, value, &holds));
            pool->holds = *holds;
        } else if (key == PRICE) {
            STK_TRY(stk_spec_read_real(r, value, "price", 0, 1e9, &pool->price));
        } else if (key == OPTIONS) {
            STK_TRY(read_options(r, value, "options", &pool->options));
        }
    }
    return 0;
}

static int read_pools(stk_spec_reader *r, const stk_json *node, stk_stack *stack)
{
    STK_TRY(stk_spec_read_map(r, node, "pools"));
    stk_pool *pools = stk_arena_array(r->arena, node->n + 1, sizeof *pools);
    STK_TRY(stk_err_if_null(pools, r->err));
    for (uint32_t i = 0; i < node->n; i++) {
        STK_TRY(read_pool(r, stk_json_key(node, i), stk_json_value(node, i), &pools[i]));
    }
    stack->pools = pools;
    stack->n_pools = node->n;
    return 0;
}

static int read_key(stk_spec_reader *r, int key, const stk_json *value, stk_stack *stack)
{
    const char **texts[K_N] = {
        [K_IMAGE] = &stack->default_image, [K_REGISTRY] = &stack->registry,
        [K_SOCKET] = &stack->socket,       [K_RUNNER] = &stack->runner_image,
        [K_VOLUME] = &stack->carry_volume, [K_STORE_VOLUME] = &stack->store_volume};
    switch (key) {
    case K_BACKEND:
        return read_backend(r, value, stack);
    case K_MAP:
        return read_map(r, value, stack);
    case K_STORE:
        return read_store(r, value, &stack->store);
    case K_HOSTS:
        return stk_stack_read_hosts(r, value, stack);
    case K_OPTIONS:
        return read_options(r, value, "options", &stack->options);
    case K_CARRY:
        return read_carry(r, value, &stack->carry);
    case K_JOBS:
        return stk_spec_read_int(r, value, "max_jobs", 1, STK_LIMIT_TASKS, &stack->max_jobs);
    case K_PENDING:
        return stk_spec_read_duration(r, value, "pending", &stack->pending_ms);
    case K_DEFAULTS:
        return read_holds(r, value, &stack->defaults);
    case K_LIMITS:
        return read_holds(r, value, &stack->limits);
    case K_POOLS:
        return read_pools(r, value, stack);
    case K_PRICES:
        return stk_stack_read_prices(r, value, true, &stack->prices);
    default:
        return stk_spec_read_text(r, value, stack_keys[key], texts[key]);
    }
}

/* Keys of ways in which Stoker gets into images; ssh brings it to hosts. */
static bool is_of_carry(int key)
{
    return key == K_CARRY || key == K_RUNNER || key == K_VOLUME;
}

static bool is_of_pods(int key)
{
    return key == K_RUNNER || key == K_STORE_VOLUME;
}

static bool is_of_images(int key)
{
    return key == K_IMAGE || key == K_MAP || key == K_REGISTRY;
}

/* What a stack says that its backend has no use for: a mistake that would be silent. */
static int check_kind(stk_spec_reader *r, const stk_json *map, const stk_stack *stack)
{
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *key = stk_json_key(map, i);
        int k = stk_spec_find_key(key, stack_keys, K_N);
        bool of_elsewhere = k >= K_STORE;
        if (stk_json_value(map, i)->kind != STK_JSON_NULL &&
            ((of_elsewhere && !stk_place_is_elsewhere(stack->kind)) ||
             (k == K_SOCKET && stk_place_is_elsewhere(stack->kind)) ||
             (is_of_pods(k) && stack->kind == STK_PLACE_SLURM) ||
             ((is_of_pods(k) || is_of_images(k) || is_of_carry(k)) &&
              stack->kind == STK_PLACE_SSH) ||
             (k == K_HOSTS && stack->kind != STK_PLACE_SSH))) {
            return stk_spec_fail(r, key, "stack '%.80s': '%s' has no meaning for backend %s",
                                 stack->name, key->text, words[stack->kind]);
        }
    }
    return 0;
}

static stk_stack blank(const char *name, const char *file, stk_place_kind kind)
{
    return (stk_stack){.name = name,
                       .file = file,
                       .kind = kind,
                       .max_jobs = MAX_JOBS,
                       .pending_ms = -1,
                       .prices = STK_PRICES_UNSET};
}

/* What isn't said, of other machines. */
static int complete(stk_stack *stack, stk_arena *arena, stk_err *err)
{
    const char *share = getenv("STOKER_SHARE");
    if (stack->pending_ms < 0 && stack->kind == STK_PLACE_SLURM) {
        stack->pending_ms = 0; /* waiting for days is what its queues are for */
    } else if (stack->pending_ms < 0) {
        stack->pending_ms = PENDING_MS;
    }
    if (!stk_place_is_elsewhere(stack->kind)) {
        return 0;
    }
    if (stack->carry == NULL && stack->carry_volume != NULL) {
        stack->carry = "volume";
    } else if (stack->carry == NULL) {
        stack->carry = stack->kind == STK_PLACE_KUBERNETES ? "image" : "store";
    }
    if (stack->kind == STK_PLACE_SSH) {
        stack->carry = "ssh";
    }
    if (stack->store == NULL && share != NULL && *share != '\0') {
        if (has_credentials(share)) {
            return stk_err_set(err, STK_E_USAGE, "STOKER_SHARE: %s", CREDENTIALS);
        }
        stack->store = stk_arena_dup(arena, share);
        stack->store_from = "STOKER_SHARE";
        STK_TRY(stk_err_if_null(stack->store, err));
    }
    STK_TRY(stk_stack_lay_hosts(stack, arena, err));
    const char *from = NULL, *metaflow = NULL;
    if (stack->store == NULL && stack->kind != STK_PLACE_SSH) {
        metaflow = stk_metaflow_setting("METAFLOW_DATASTORE_SYSROOT_S3", &from);
    }
    if (metaflow != NULL) {
        size_t n = strlen(metaflow);
        n -= metaflow[n - 1] == '/';
        stack->store = stk_arena_printf(arena, "%.*s/stoker", (int)n, metaflow);
        stack->store_from = from;
        STK_TRY(stk_err_if_null(stack->store, err));
    }
    return stk_stack_inherit(stack, arena, err);
}

static int read_stack(stk_spec_reader *r, const stk_json *name, const stk_json *map, stk_stack *ret)
{
    const stk_json *backend = stk_json_get(map, "backend");
    int kind = stk_stack_kind(name->text);
    STK_TRY(stk_spec_read_map(r, map, name->text));
    if ((backend == NULL || backend->kind == STK_JSON_NULL) && kind < 0) {
        return stk_spec_fail(
            r, name,
            "stack '%.80s' has no backend; add `backend: docker`, `kubernetes`, `batch`, "
            "`slurm`, `ssh` or `local`",
            name->text);
    }
    if (kind < 0) {
        kind = STK_PLACE_LOCAL; /* until its key is read */
    }
    stk_stack stack = blank(name->text, r->path, (stk_place_kind)kind);
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), stack_keys, K_N, name->text);
        STK_TRY(key);
        if (value->kind != STK_JSON_NULL) {
            STK_TRY(read_key(r, key, value, &stack));
        }
    }
    STK_TRY(check_kind(r, map, &stack));
    STK_TRY(complete(&stack, r->arena, r->err));
    *ret = stack;
    return 0;
}

/* A file of blanks and comments only marks the project's folder. */
static bool says_nothing(const char *text)
{
    for (text += strspn(text, " \t\r\n"); *text == '#'; text += strspn(text, " \t\r\n")) {
        text += strcspn(text, "\n");
    }
    return *text == '\0';
}

/* All of it is read, whichever stack is asked for: a mistake is seen when it is made. */
static int read_stacks(stk_spec_reader *r, const stk_json *root, stk_tools *tools,
                       stk_prices *prices, stk_stack *stacks, uint32_t *ret_n)
{
    static const char *const keys[] = {"stoker",      "stacks",        "trackers",
                                       "openlineage", "opentelemetry", "prices"};
    int64_t version = FILE_VERSION;
    const stk_json *list = NULL;
    *ret_n = 0;
    if (root->kind != STK_JSON_MAP) {
        return stk_spec_fail(r, root, "stoker.yaml must be a mapping with `stacks`, not %s",
                             stk_json_kind_words(root->kind));
    }
    for (uint32_t i = 0; i < root->n; i++) {
        const stk_json *value = stk_json_value(root, i);
        int key = stk_spec_key(r, stk_json_key(root, i), keys, STK_SPEC_N(keys), NULL);
        STK_TRY(key);
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (key == 0) {
            STK_TRY(stk_spec_read_int(r, value, "stoker", 1, INT32_MAX, &version));
        } else if (key == 1) {
            STK_TRY(stk_spec_read_map(r, value, "stacks"));
            list = value;
        } else if (key == STK_SPEC_N(keys) - 1) {
            STK_TRY(stk_stack_read_prices(r, value, false, prices));
        } else {
            STK_TRY(stk_stack_read_tools(r, (stk_tools_key)(key - 2), value, tools));
        }
        if (version > FILE_VERSION) {
            return stk_spec_fail_code(
                r, STK_E_VERSION, value,
                "the file has format %lld, but this Stoker reads formats up to %d; upgrade Stoker",
                (long long)version, FILE_VERSION);
        }
    }
    if (list != NULL && list->n > STACKS_MAX) {
        return stk_spec_fail_code(r, STK_E_LIMIT, list, "more than %d stacks", STACKS_MAX);
    }
    for (uint32_t i = 0; list != NULL && i < list->n; i++) {
        const stk_json *name = stk_json_key(list, i);
        STK_TRY(read_stack(r, name, stk_json_value(list, i), &stacks[i]));
        *ret_n = i + 1;
    }
    return 0;
}

/* The project's stoker.yaml; *ret NULL: there is none. *ret_beyond: one above the project, which is
 * not used, or NULL. */
static int find_file(const char *folder, stk_arena *arena, const char **ret,
                     const char **ret_beyond, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    STK_TEXT_AUTO beyond = NULL;
    STK_TRY(stk_project_find(folder, "stoker.yaml", &path, &beyond, err));
    *ret = stk_arena_dup(arena, path);
    *ret_beyond = stk_arena_dup(arena, beyond);
    if ((path != NULL && *ret == NULL) || (beyond != NULL && *ret_beyond == NULL)) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int not_there(const char *name, const char *file, const char *beyond,
                     const stk_stack *stacks, uint32_t n, stk_arena *arena, stk_err *err)
{
    const char *names[STACKS_MAX + STK_PLACE_N];
    STK_BUF_AUTO list = STK_BUF_INIT(400);
    uint32_t n_names = 0;
    for (uint32_t i = 0; i < n; i++) {
        names[n_names++] = stacks[i].name;
    }
    for (int i = 0; i < STK_PLACE_N; i++) {
        names[n_names++] = words[i];
    }
    for (uint32_t i = 0; i < n_names; i++) {
        stk_buf_separate(&list, ", ");
        stk_buf_printf(&list, "%.80s", names[i]);
    }
    const char *of = "";
    if (file != NULL) {
        of = stk_text_or(stk_arena_printf(arena, " (of %s)", file), "");
    }
    stk_err_set(err, STK_E_NOT_FOUND, "unknown stack '%.80s'; the stacks are %.300s%.205s", name,
                stk_text_or(list.data, "local"), of);
    stk_spec_reader r = {.arena = arena, .err = err};
    stk_spec_did_you_mean(&r, name, names, n_names);
    if (err != NULL && err->hint[0] == '\0' && file == NULL && beyond != NULL) {
        stk_err_hint(err, "'%.150s' isn't used, because it belongs to another project or user",
                     beyond);
    } else if (err != NULL && err->hint[0] == '\0') {
        stk_err_hint(err, "name one of these, or add it under `stacks` of a stoker.yaml");
    }
    return STK_E_NOT_FOUND;
}

/* "NAME:OPTIONS", unless a stack has just this name. */
static int cut_options(const char **want, const stk_stack *stacks, uint32_t n, const char **given,
                       stk_arena *arena, stk_err *err)
{
    const char *colon = strchr(*want, ':');
    for (uint32_t i = 0; i < n; i++) {
        colon = strcmp(stacks[i].name, *want) == 0 ? NULL : colon;
    }
    if (colon != NULL) {
        *given = colon + 1;
        *want = stk_arena_dupn(arena, *want, (size_t)(colon - *want));
    }
    return stk_err_if_null(*want, err);
}

/* "ssh" without hosts is the file's only stack of this backend; NULL: it has none, or several. */
static const stk_stack *only_with_hosts(const stk_stack *stacks, uint32_t n, const char *given)
{
    const stk_stack *only = NULL;
    uint32_t n_of_ssh = 0;
    bool sets_hosts = given != NULL && strstr(given, "hosts=") != NULL;
    for (uint32_t i = 0; i < n && !sets_hosts; i++) {
        if (stacks[i].kind == STK_PLACE_SSH) {
            only = &stacks[i];
            n_of_ssh++;
        }
    }
    return n_of_ssh == 1 ? only : NULL;
}

int stk_stack_find(const char *folder, const char *name, stk_arena *arena, stk_stack *ret,
                   stk_err *err)
{
    const char *file = NULL;
    const char *beyond = NULL;
    const char *want = stk_text_or(name, "local"), *given = NULL;
    stk_stack *stacks = stk_arena_array(arena, STACKS_MAX, sizeof *stacks);
    stk_tools tools = {0};
    stk_prices prices = STK_PRICES_UNSET;
    uint32_t n = 0;
    STK_TRY(stk_err_if_null(stacks, err));
    STK_TRY(find_file(folder, arena, &file, &beyond, err));
    if (file != NULL) {
        STK_TEXT_AUTO text = NULL;
        size_t len = 0;
        stk_json root = {0};
        stk_spec_reader r = {.arena = arena, .path = file, .err = err};
        STK_TRY(stk_trust_read(file, FILE_BYTES, &text, &len, err));
        if (!says_nothing(text)) {
            STK_TRY(stk_yaml_or_json_parse(text, len, file, &file_limits, arena, &root, err));
            STK_TRY(read_stacks(&r, &root, &tools, &prices, stacks, &n));
        }
    }
    STK_TRY(cut_options(&want, stacks, n, &given, arena, err));
    int kind = stk_stack_kind(want);
    for (uint32_t i = 0; i < n; i++) { /* a step's own stack knows the others, too */
        stacks[i].all = stacks;
        stacks[i].n_all = n;
        if (strcmp(stacks[i].name, want) == 0) {
            *ret = stacks[i];
            kind = -2;
        }
    }
    const stk_stack *only = kind == STK_PLACE_SSH ? only_with_hosts(stacks, n, given) : NULL;
    if (only != NULL) {
        *ret = *only;
        kind = -2;
    }
    if (kind == -1) {
        return not_there(want, file, beyond, stacks, n, arena, err);
    }
    if (kind >= 0) {
        *ret = blank(stk_arena_dup(arena, want), NULL, (stk_place_kind)kind);
        STK_TRY(stk_err_if_null(ret->name, err));
        STK_TRY(complete(ret, arena, err));
    }
    if (given != NULL) {
        STK_TRY(stk_stack_take_given(ret, given, name, arena, err));
        STK_TRY(complete(ret, arena, err));
    }
    STK_TRY(stk_stack_ask_tools(&tools, arena, err));
    ret->tools = tools;
    ret->file_prices = prices;
    ret->all = stacks;
    ret->n_all = n;
    ret->is_chosen = name != NULL;
    return 0;
}
