/* Settings: reads one level over another. docs/formats/spec.md has the keys. */
#include <math.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "model/spec/spec_read.h"

enum {
    S_RESOURCES,
    S_RETRY,
    S_TIMEOUT,
    S_GRACE,
    S_CACHE,
    S_ENVIRONMENT,
    S_SECRETS,
    S_DOCKER,
    S_BACKEND,
    S_ISOLATION,
    S_HOOKS,
    S_TAGS,
    S_EXTRA,
    S_ON_OOM,
    S_XID,
    S_SAMPLE,
    S_GPU_PROFILE,
    S_GANG,
    S_TIMEOUT_NOTICE,
    S_KEEP_CHECKPOINTS,
    S_N
};
static const char *const settings_keys[S_N] = {[S_RESOURCES] = "resources",
                                               [S_RETRY] = "retry",
                                               [S_TIMEOUT] = "timeout",
                                               [S_GRACE] = "grace",
                                               [S_CACHE] = "cache",
                                               [S_ENVIRONMENT] = "environment",
                                               [S_SECRETS] = "secrets",
                                               [S_DOCKER] = "docker",
                                               [S_BACKEND] = "backend",
                                               [S_ISOLATION] = "isolation",
                                               [S_HOOKS] = "hooks",
                                               [S_TAGS] = "tags",
                                               [S_EXTRA] = "extra",
                                               [S_ON_OOM] = "on_oom",
                                               [S_XID] = "xid",
                                               [S_SAMPLE] = "sample",
                                               [S_GPU_PROFILE] = "gpu_profile",
                                               [S_GANG] = "gang",
                                               [S_TIMEOUT_NOTICE] = "timeout_notice",
                                               [S_KEEP_CHECKPOINTS] = "keep_checkpoints"};

int stk_spec_is_setting(const stk_json *key)
{
    return stk_spec_find_key(key, settings_keys, S_N) >= 0;
}

size_t stk_spec_setting_names(const char *const **ret_names)
{
    *ret_names = settings_keys;
    return S_N;
}

void stk_spec_default_settings(stk_spec_base *ret_base)
{
    *ret_base = (stk_spec_base){.s = {.resources = STK_RESOURCES_UNSET,
                                      .retry = {.backoff = 1.0},
                                      .gpu_profile = {.with_card = true,
                                                      .include_artifacts = true,
                                                      .artifact_prefix = "gpu_profile_",
                                                      .interval_ms = 1000},
                                      .grace_ms = 5000,
                                      .cache = {.enabled = true, .reuse = true}}};
    ret_base->said = ret_base->s.resources;
}

/* --- resources --- */

enum { R_CPU, R_GPU, R_MEMORY, R_GPU_MEMORY, R_CLASS, R_VENDOR, R_ANY_OF, R_MORE };
static const char *const resources_keys[] = {
    [R_CPU] = "cpu_count",
    [R_GPU] = "gpu_count",
    [R_MEMORY] = "memory",
    [R_CLASS] = "gpu_class",
    [R_VENDOR] = "gpu_vendor",
    [R_GPU_MEMORY] = "gpu_memory",
    [R_ANY_OF] = "any_of",
    /* ZenML's other fields, kept for backends that know them. */
    [R_MORE] = "resources",
    "reclaim_tolerance",
    "preemptible",
    "pool_resources",
    "allocation_wait_timeout_seconds",
    "initialization_lease_seconds",
    "min_replicas",
    "max_replicas",
    "autoscaling_metric",
    "autoscaling_target",
    "max_concurrency",
};
enum { R_N = sizeof resources_keys / sizeof *resources_keys };

static int read_memory(stk_spec_reader *r, const stk_json *node, int64_t *ret_bytes)
{
    int64_t bytes;
    const char *text = stk_json_text(node);
    if (text != NULL ? stk_units_parse_memory(text, &bytes, r->err) < 0
                     : !stk_json_int(node, &bytes)) {
        return stk_spec_wrong(r, node, "resources.memory", "an amount like 16GB, 8 GiB or 1.5GB");
    }
    if (bytes < STK_LIMIT_MEMORY_MIN) {
        return stk_spec_fail(r, node,
                             "'resources.memory' is %.40s%s, but a step needs at least %lld MiB to "
                             "start; write an amount like 16GB, 8 GiB or 1.5GB",
                             node->text, stk_text_when(text == NULL, " bytes"),
                             STK_LIMIT_MEMORY_MIN >> 20);
    }
    *ret_bytes = bytes;
    return 0;
}

static int read_cpu(stk_spec_reader *r, const stk_json *node, int64_t *ret_milli)
{
    double cpus;
    if (!stk_json_real(node, &cpus)) {
        return stk_spec_wrong(r, node, "resources.cpu_count", "a number of CPUs");
    }
    if (!(cpus > 0 && cpus <= 1e6)) {
        return stk_spec_fail(r, node,
                             "'resources.cpu_count' is %.40s; it must be more than 0 and at most "
                             "1000000",
                             node->text);
    }
    int64_t milli = llround(cpus * 1000);
    *ret_milli = MAX(milli, 1);
    return 0;
}

static int read_device(stk_spec_reader *r, const stk_json *node, int key, stk_resources *res,
                       bool *said)
{
    said[key] = true;
    return stk_spec_read_device(r, node, key, &res->base);
}

static bool asks_pools(const stk_json *key)
{
    return strcmp(key->text, "resources") == 0 || strcmp(key->text, "pool_resources") == 0;
}

static int read_resources(stk_spec_reader *r, const stk_json *map, stk_spec_base *base)
{
    stk_resources *res = &base->s.resources;
    STK_TRY(stk_spec_read_map(r, map, "resources"));
    stk_json *more = stk_arena_array(r->arena, 2 * (size_t)map->n, sizeof *more);
    uint32_t n_more = 0;
    bool said[4] = {false};
    bool says_any_of = false;
    int rc = stk_spec_if_null(r, more);
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), resources_keys, R_N, "resources");
        if (key < 0) {
            return key;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        switch (key) {
        case R_CPU:
            rc = read_cpu(r, value, &res->cpu_milli);
            break;
        case R_GPU:
            rc = read_device(r, value, STK_SPEC_GPU_COUNT, res, said);
            break;
        case R_GPU_MEMORY:
            rc = read_device(r, value, STK_SPEC_GPU_MEMORY, res, said);
            break;
        case R_MEMORY:
            rc = read_memory(r, value, &res->memory_bytes);
            break;
        case R_CLASS:
            rc = read_device(r, value, STK_SPEC_GPU_CLASS, res, said);
            break;
        case R_VENDOR:
            rc = read_device(r, value, STK_SPEC_GPU_VENDOR, res, said);
            break;
        case R_ANY_OF:
            rc = stk_spec_read_any_of(r, value, res);
            says_any_of = true;
            break;
        default:
            more[2 * n_more] = *stk_json_key(map, i);
            more[2 * n_more + 1] = *value;
            n_more++;
            res->of_pools = res->of_pools || (value->n > 0 && asks_pools(stk_json_key(map, i)));
        }
    }
    if (rc == 0 && !says_any_of) {
        rc = stk_spec_say_over_any_of(r, said, res);
    }
    if (rc == 0 && n_more > 0) {
        stk_json own = {.items = more, .n = n_more, .kind = STK_JSON_MAP, .line = map->line};
        STK_TRY(stk_spec_merge(r, &base->more, &own, &base->more));
        return stk_spec_read_json(r, &base->more, &res->more);
    }
    return rc;
}

int stk_spec_read_resources(stk_spec_reader *r, const stk_json *map, stk_resources *ret)
{
    stk_spec_base base;
    stk_spec_default_settings(&base);
    int rc = read_resources(r, map, &base);
    if (rc == 0 && base.s.resources.n_any_of > 0) {
        rc = stk_spec_fail(r, map, "'any_of' isn't possible here; name the resources that exist");
    }
    *ret = base.s.resources;
    return rc;
}

/* --- retry, cache, hooks --- */

static const stk_spec_field retry_fields[] = {
    {.label = "retry.max_retries",
     .kind = STK_SPEC_COUNT,
     .at = offsetof(stk_retry, max_retries),
     .max = STK_LIMIT_RETRIES},
    {.label = "retry.delay", .kind = STK_SPEC_DURATION, .at = offsetof(stk_retry, delay_ms)},
    {.label = "retry.backoff",
     .kind = STK_SPEC_REAL,
     .at = offsetof(stk_retry, backoff),
     .max = 1000},
    {.label = "retry.jitter", .kind = STK_SPEC_REAL, .at = offsetof(stk_retry, jitter), .max = 1}};

static int read_track(stk_spec_reader *r, const stk_json *value, const char *label, void *at)
{
    stk_track *track = at;
    if (value->kind == STK_JSON_BOOL) {
        *track = value->truth ? STK_TRACK_ON : STK_TRACK_OFF;
        return 0;
    }
    if (strcmp(stk_text_or(stk_json_text(value), ""), "strict") != 0) {
        return stk_spec_wrong(r, value, label, "true, false or 'strict'");
    }
    *track = STK_TRACK_STRICT;
    return 0;
}

static const stk_spec_field cache_fields[] = {
    {.label = "cache.enabled", .kind = STK_SPEC_BOOL, .at = offsetof(stk_cache_policy, enabled)},
    {.label = "cache.reuse", .kind = STK_SPEC_BOOL, .at = offsetof(stk_cache_policy, reuse)},
    {.label = "cache.expires",
     .kind = STK_SPEC_DURATION,
     .at = offsetof(stk_cache_policy, expires_ms)},
    {.label = "cache.ignore_inputs",
     .kind = STK_SPEC_TEXTS,
     .at = offsetof(stk_cache_policy, ignore_inputs)},
    {.label = "cache.files", .kind = STK_SPEC_TEXTS, .at = offsetof(stk_cache_policy, files)},
    {.label = "cache.salt", .kind = STK_SPEC_TEXT, .at = offsetof(stk_cache_policy, salt)},
    {.label = "cache.track",
     .kind = STK_SPEC_OWN,
     .at = offsetof(stk_cache_policy, track),
     .read = read_track}};

static int read_cache(stk_spec_reader *r, const stk_json *node, stk_cache_policy *cache)
{
    cache->is_asked = true;
    if (node->kind == STK_JSON_BOOL) {
        cache->enabled = node->truth;
        return 0;
    }
    if (node->kind != STK_JSON_MAP) {
        return stk_spec_wrong(r, node, "cache", "true, false or a mapping");
    }
    return stk_spec_read_fields(r, node, "cache", cache_fields, STK_SPEC_N(cache_fields), cache);
}

static int read_hook(stk_spec_reader *r, const stk_json *map, const char *key, stk_hook *ret_hook)
{
    static const char *const keys[] = {"run", "python"};
    stk_hook hook = {0};
    STK_TRY(stk_spec_read_map(r, map, key));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int which = stk_spec_key(r, stk_json_key(map, i), keys, 2, key);
        STK_TRY(which);
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (which == 0) {
            STK_TRY(stk_spec_read_text(r, value, key, &hook.run));
        } else {
            STK_TRY(stk_spec_read_entry(r, value, key, &hook.python));
        }
    }
    if ((hook.run == NULL) == (hook.python == NULL)) {
        return stk_spec_fail(r, map, "'%s' needs exactly one of 'run' and 'python'", key);
    }
    *ret_hook = hook;
    return 0;
}

static int read_hooks(stk_spec_reader *r, const stk_json *map, stk_hook hooks[STK_HOOK_N])
{
    static const char *const keys[STK_HOOK_N] = {[STK_HOOK_START] = "on_start",
                                                 [STK_HOOK_SUCCESS] = "on_success",
                                                 [STK_HOOK_FAILURE] = "on_failure",
                                                 [STK_HOOK_END] = "on_end"};
    STK_TRY(stk_spec_read_map(r, map, "hooks"));
    for (uint32_t i = 0; i < map->n; i++) {
        int key = stk_spec_key(r, stk_json_key(map, i), keys, STK_HOOK_N, "hooks");
        STK_TRY(key);
        if (stk_json_value(map, i)->kind != STK_JSON_NULL) {
            STK_TRY(read_hook(r, stk_json_value(map, i), keys[key], &hooks[key]));
        }
    }
    return 0;
}

/* --- environment, secrets, the rest --- */

/* True for the variables that identify a task, to itself and to whoever searches for its processes.
 */
static bool is_own_setting(const char *key)
{
    static const char *const names[] = {"STOKER_RUN",    "STOKER_PIPELINE", "STOKER_STEP",
                                        "STOKER_TASK",   "STOKER_ATTEMPT",  "STOKER_TASK_DIR",
                                        "STOKER_INPUT",  "STOKER_OUTPUT",   "STOKER_CHECKPOINT_DIR",
                                        "STOKER_METRICS"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(key, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static int read_environment(stk_spec_reader *r, const stk_json *node, stk_spec_base *base)
{
    STK_TRY(stk_spec_read_map(r, node, "environment"));
    STK_TRY(stk_spec_merge(r, &base->environment, node, &base->environment));
    const stk_json *map = &base->environment;
    if (map->n > STK_LIMIT_ENV) {
        return stk_spec_fail_code(r, STK_E_LIMIT, node,
                                  "'environment' has %u entries; %d is the limit", (unsigned)map->n,
                                  STK_LIMIT_ENV);
    }
    stk_pair *env = stk_arena_array(r->arena, map->n, sizeof *env);
    if (env == NULL) {
        return stk_spec_no_memory(r);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *key = stk_json_key(map, i);
        const stk_json *value = stk_json_value(map, i);
        if (key->n == 0 || strchr(key->text, '=') != NULL) {
            return stk_spec_fail(r, key, "'%.80s' isn't a valid name of an environment variable",
                                 key->text);
        }
        if (is_own_setting(key->text)) {
            return stk_spec_fail(r, key, "'%s' is set by Stoker for every step; take another name",
                                 key->text);
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        env[n].key = key->text;
        if (value->kind == STK_JSON_BOOL) {
            env[n].value = value->truth ? "true" : "false";
        } else if (value->kind == STK_JSON_INT || value->kind == STK_JSON_REAL) {
            env[n].value = value->text;
        } else {
            STK_TRY(stk_spec_read_text(r, value, key->text, &env[n].value));
        }
        n++;
    }
    base->s.env = env;
    base->s.n_env = n;
    return 0;
}

/* A step's secrets add to the pipeline's: a step may need more, never fewer. */
static int read_secrets(stk_spec_reader *r, const stk_json *node, stk_settings *s)
{
    const char *const *own;
    uint32_t n_own;
    STK_TRY(stk_spec_read_texts(r, node, "secrets", &own, &n_own));
    const char **all = stk_arena_array(r->arena, (size_t)s->n_secrets + n_own, sizeof *all);
    if (all == NULL) {
        return stk_spec_no_memory(r);
    }
    uint32_t n = 0;
    for (; n < s->n_secrets; n++) {
        all[n] = s->secrets[n];
    }
    for (uint32_t i = 0; i < n_own; i++) {
        bool there = false;
        if (!stk_units_is_name(own[i], true)) {
            return stk_spec_fail(r, &node->items[i],
                                 "secret '%.80s': a name is made of letters, digits and _ . -",
                                 own[i]);
        }
        for (uint32_t j = 0; j < n && !there; j++) {
            there = strcmp(all[j], own[i]) == 0;
        }
        if (!there) {
            all[n++] = own[i];
        }
        if (n > STK_LIMIT_ENV) {
            return stk_spec_fail_code(r, STK_E_LIMIT, node, "'secrets' has more than %d names",
                                      STK_LIMIT_ENV);
        }
    }
    s->secrets = all;
    s->n_secrets = n;
    return 0;
}

static int read_backend(stk_spec_reader *r, const stk_json *node, stk_spec_base *base)
{
    if (node->kind == STK_JSON_MAP) {
        STK_TRY(stk_spec_check_backend(r, node));
    } else if (stk_json_text(node) == NULL || node->n == 0) {
        return stk_spec_wrong(r, node, "backend", "a name, or a mapping of names to options");
    }
    STK_TRY(stk_spec_merge(r, &base->backend, node, &base->backend));
    return stk_spec_read_json(r, &base->backend, &base->s.backend);
}

static int read_isolation(stk_spec_reader *r, const stk_json *node, stk_isolation *ret_isolation)
{
    if (stk_json_is(node, "fork")) {
        *ret_isolation = STK_ISOLATION_FORK;
    } else if (stk_json_is(node, "spawn")) {
        *ret_isolation = STK_ISOLATION_SPAWN;
    } else {
        return stk_spec_wrong(r, node, "isolation", "fork or spawn");
    }
    return 0;
}

static int read_merged(stk_spec_reader *r, const stk_json *node, const char *key, stk_json *kept,
                       const char **ret_json)
{
    STK_TRY(stk_spec_read_map(r, node, key));
    STK_TRY(stk_spec_merge(r, kept, node, kept));
    return stk_spec_read_json(r, kept, ret_json);
}

/* Backends whose options can ask for devices. */
static const char *const asking[] = {"kubernetes", "batch", "slurm", "ssh"};

int stk_spec_read_settings(stk_spec_reader *r, const stk_spec_base *base, const stk_json *map,
                           stk_spec_base *ret_settings)
{
    stk_spec_base own = *base;
    stk_settings *s = &own.s;
    int rc = 0;
    s->resources = own.said;
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        switch (stk_spec_find_key(stk_json_key(map, i), settings_keys, S_N)) {
        case S_RESOURCES:
            rc = read_resources(r, value, &own);
            break;
        case S_RETRY:
            s->retry.max_retries =
                MAX(s->retry.max_retries, 1); /* a retry setting implies at least one */
            rc = stk_spec_read_fields(r, value, "retry", retry_fields, STK_SPEC_N(retry_fields),
                                      &s->retry);
            break;
        case S_TIMEOUT:
            rc = stk_spec_read_duration(r, value, "timeout", &s->timeout_ms);
            break;
        case S_GRACE:
            rc = stk_spec_read_duration(r, value, "grace", &s->grace_ms);
            break;
        case S_TIMEOUT_NOTICE:
            rc = stk_spec_read_duration(r, value, "timeout_notice", &s->timeout_notice_ms);
            break;
        case S_KEEP_CHECKPOINTS:
            rc = stk_spec_read_bool(r, value, "keep_checkpoints", &s->keep_checkpoints);
            break;
        case S_CACHE:
            rc = read_cache(r, value, &s->cache);
            break;
        case S_ENVIRONMENT:
            rc = read_environment(r, value, &own);
            break;
        case S_SECRETS:
            rc = read_secrets(r, value, s);
            break;
        case S_DOCKER:
            STK_TRY(stk_spec_check_docker(r, value));
            rc = read_merged(r, value, "docker", &own.docker, &s->docker);
            break;
        case S_BACKEND:
            rc = read_backend(r, value, &own);
            break;
        case S_ISOLATION:
            rc = read_isolation(r, value, &s->isolation);
            break;
        case S_HOOKS:
            rc = read_hooks(r, value, s->hooks);
            break;
        case S_TAGS:
            rc = stk_spec_read_texts(r, value, "tags", &s->tags, &s->n_tags);
            break;
        case S_EXTRA:
            rc = read_merged(r, value, "extra", &own.extra, &s->extra);
            break;
        case S_ON_OOM:
            rc = stk_spec_read_on_oom(r, value, &s->on_oom);
            break;
        case S_XID:
            rc = stk_spec_read_xid(r, value, &own);
            break;
        case S_SAMPLE:
            rc = stk_spec_read_sample(r, value, "sample", &own.sample_ms);
            break;
        case S_GPU_PROFILE:
            rc = stk_spec_read_gpu_profile(r, value, s);
            break;
        case S_GANG:
            rc = stk_spec_read_gang(r, value, &s->gang);
            break;
        default:
            break; /* a key of the pipeline or the step; its reader checks it */
        }
    }
    own.said = s->resources;
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++) {
        stk_spec_lay_options(stk_json_get(&own.backend, asking[i]), &s->resources);
    }
    /* Curves can't have more points than the measurements. */
    s->sample_ms = own.sample_ms;
    if (s->gpu_profile.enabled &&
        (s->sample_ms == 0 || s->sample_ms > s->gpu_profile.interval_ms)) {
        s->sample_ms = s->gpu_profile.interval_ms;
    }
    if (rc == 0 && s->timeout_ms > 0 && s->timeout_notice_ms >= s->timeout_ms) {
        rc = stk_spec_fail(
            r, map,
            "'timeout_notice' is %lld ms, but 'timeout' is %lld ms; make 'timeout_notice' shorter",
            (long long)s->timeout_notice_ms, (long long)s->timeout_ms);
    }
    if (rc == 0) {
        *ret_settings = own;
    }
    return rc;
}
