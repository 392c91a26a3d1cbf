/* Device settings: shares and alternatives in `resources`, and what follows when a step runs out of
 * memory or its device fails. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/limits.h"
#include "base/units.h"
#include "model/spec/spec_read.h"

/* --- resources --- */

static int read_count(stk_spec_reader *r, const stk_json *node, int64_t *ret_count)
{
    if (node->kind == STK_JSON_REAL) {
        return stk_spec_fail(r, node,
                             "'resources.gpu_count' is %.40s; it must be a whole number. For a "
                             "part of a device ask for its memory: gpu_memory: 10GB",
                             node->text);
    }
    return stk_spec_read_int(r, node, "resources.gpu_count", 0, 1000000, ret_count);
}

static int read_memory(stk_spec_reader *r, const stk_json *node, int64_t *ret_bytes)
{
    int64_t bytes;
    const char *text = stk_json_text(node);
    if (text != NULL && strcasecmp(text, "auto") == 0) {
        *ret_bytes = STK_GPU_MEMORY_AUTO;
        return 0;
    }
    if (text != NULL ? stk_units_parse_memory(text, &bytes, r->err) < 0
                     : !stk_json_int(node, &bytes)) {
        return stk_spec_wrong(r, node, "resources.gpu_memory",
                              "an amount like 10GB or 8 GiB, or auto");
    }
    if (bytes <= 0) {
        return stk_spec_fail(r, node, "'resources.gpu_memory' is %.40s; it must be more than 0",
                             node->text);
    }
    if (bytes < 1 << 20) { /* so small that the unit must be missing */
        return stk_spec_fail(r, node,
                             "'resources.gpu_memory' is %.40s, less than 1 MiB; write an amount "
                             "with its unit, like %sGB",
                             node->text, bytes <= 256 ? node->text : "10");
    }
    *ret_bytes = bytes;
    return 0;
}

/* Accepts the maker, its brand, or a common name of the device. */
static int read_vendor(stk_spec_reader *r, const stk_json *node, const char **ret_vendor)
{
    static const struct {
        const char *word, *vendor;
    } words[] = {{"nvidia", "nvidia"}, {"cuda", "nvidia"},    {"amd", "amd"},
                 {"rocm", "amd"},      {"intel", "intel"},    {"xpu", "intel"},
                 {"aws", "aws"},       {"neuron", "aws"},     {"trainium", "aws"},
                 {"amazon", "aws"},    {"inferentia", "aws"}, {"google", "google"},
                 {"tpu", "google"},    {"habana", "habana"},  {"gaudi", "habana"}};
    enum { N = sizeof words / sizeof *words };
    const char *names[N];
    const char *text;
    STK_TRY(stk_spec_read_text(r, node, "resources.gpu_vendor", &text));
    for (size_t i = 0; i < N; i++) {
        names[i] = words[i].word;
        if (strcasecmp(text, words[i].word) == 0) {
            *ret_vendor = words[i].vendor;
            return 0;
        }
    }
    int rc = stk_spec_wrong(r, node, "resources.gpu_vendor",
                            "nvidia, amd, intel, aws (neuron), google (tpu) or habana (gaudi)");
    stk_spec_did_you_mean(r, text, names, N);
    return rc;
}

int stk_spec_read_device(stk_spec_reader *r, const stk_json *node, int key, stk_alternative *ret)
{
    switch (key) {
    case STK_SPEC_GPU_COUNT:
        return read_count(r, node, &ret->gpu_count);
    case STK_SPEC_GPU_MEMORY:
        return read_memory(r, node, &ret->gpu_memory_bytes);
    case STK_SPEC_GPU_CLASS:
        return stk_spec_read_text(r, node, "resources.gpu_class", &ret->gpu_class);
    default:
        return read_vendor(r, node, &ret->gpu_vendor);
    }
}

static int read_alternative(stk_spec_reader *r, const stk_json *map, stk_alternative *ret)
{
    static const char *const keys[] = {[STK_SPEC_GPU_COUNT] = "gpu_count",
                                       [STK_SPEC_GPU_MEMORY] = "gpu_memory",
                                       [STK_SPEC_GPU_CLASS] = "gpu_class",
                                       [STK_SPEC_GPU_VENDOR] = "gpu_vendor"};
    *ret = (stk_alternative){.gpu_count = -1, .gpu_memory_bytes = -1};
    if (map->kind != STK_JSON_MAP) {
        return stk_spec_wrong(r, map, "resources.any_of", "a list of mappings");
    }
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 4, "resources.any_of");
        STK_TRY(key);
        if (value->kind != STK_JSON_NULL) {
            STK_TRY(stk_spec_read_device(r, value, key, ret));
        }
        if (key == STK_SPEC_GPU_COUNT && ret->gpu_count == 0) {
            return stk_spec_fail(r, value,
                                 "'resources.any_of' has an alternative of 0 devices; remove it, "
                                 "and use --policy fit to run without devices");
        }
    }
    return 0;
}

int stk_spec_read_any_of(stk_spec_reader *r, const stk_json *list, stk_resources *res)
{
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, "resources.any_of", "a list of mappings");
    }
    if (list->n > STK_LIMIT_ASKS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, list,
                                  "'resources.any_of' has %u alternatives; %d is the limit",
                                  (unsigned)list->n, STK_LIMIT_ASKS);
    }
    stk_alternative *any_of = stk_arena_array(r->arena, list->n, sizeof *any_of);
    if (any_of == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        STK_TRY(read_alternative(r, &list->items[i], &any_of[i]));
    }
    res->any_of = any_of;
    res->n_any_of = list->n;
    return 0;
}

int stk_spec_say_over_any_of(stk_spec_reader *r, const bool said[4], stk_resources *res)
{
    if (said[STK_SPEC_GPU_CLASS] || said[STK_SPEC_GPU_VENDOR]) {
        res->any_of = NULL;
        res->n_any_of = 0;
    }
    if (res->n_any_of == 0 || (!said[STK_SPEC_GPU_COUNT] && !said[STK_SPEC_GPU_MEMORY])) {
        return 0;
    }
    stk_alternative *any_of = stk_arena_array(r->arena, res->n_any_of, sizeof *any_of);
    if (any_of == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < res->n_any_of; i++) {
        any_of[i] = res->any_of[i];
        if (said[STK_SPEC_GPU_COUNT]) {
            any_of[i].gpu_count = -1;
        }
        if (said[STK_SPEC_GPU_MEMORY]) {
            any_of[i].gpu_memory_bytes = -1;
        }
    }
    res->any_of = any_of;
    return 0;
}

/* --- when something runs out or fails --- */

/* Reads 2, or the forms "x2", "2x", "×2". */
static int read_factor(stk_spec_reader *r, const stk_json *node, const char *key, void *ret)
{
    static const char *const times[] = {"x", "X", "×"};
    double factor = 0;
    const char *text = stk_json_text(node);
    bool ok = stk_json_real(node, &factor);
    for (size_t i = 0; text != NULL && i < 3; i++) {
        size_t n = strlen(times[i]);
        bool before = strncmp(text, times[i], n) == 0;
        const char *digits = before ? text + n : text;
        size_t len = strspn(digits, "0123456789.");
        char *end = NULL;
        double number = 0;
        if (isdigit((unsigned char)digits[0])) {
            number = strtod(digits, &end);
        }
        if (end == digits + len && strcmp(end, before ? "" : times[i]) == 0) {
            factor = number;
            ok = true;
        }
    }
    if (!ok) {
        return stk_spec_wrong(r, node, key, "a factor like 2 or x2");
    }
    if (!(factor > 1 && factor <= 1000)) {
        return stk_spec_fail(r, node, "'%s' is %.40s; it must be more than 1 and at most 1000", key,
                             node->text);
    }
    *(double *)ret = factor;
    return 0;
}

static const stk_spec_field on_oom_fields[] = {
    {.label = "on_oom.memory", .at = offsetof(stk_on_oom, memory), .read = read_factor},
    {.label = "on_oom.gpu_memory", .at = offsetof(stk_on_oom, gpu_memory), .read = read_factor},
    {.label = "on_oom.max_retries",
     .kind = STK_SPEC_COUNT,
     .at = offsetof(stk_on_oom, max_retries),
     .max = STK_LIMIT_RETRIES}};

int stk_spec_read_on_oom(stk_spec_reader *r, const stk_json *map, stk_on_oom *on_oom)
{
    on_oom->max_retries =
        MAX(on_oom->max_retries, 1); /* a setting for this case implies at least one retry */
    STK_TRY(
        stk_spec_read_fields(r, map, "on_oom", on_oom_fields, STK_SPEC_N(on_oom_fields), on_oom));
    if (!(on_oom->memory > 0) && !(on_oom->gpu_memory > 0)) {
        return stk_spec_fail(r, map,
                             "'on_oom' needs 'memory' or 'gpu_memory', the factor by which the "
                             "next attempt asks for more: {gpu_memory: 2}");
    }
    return 0;
}

int stk_spec_read_xid(stk_spec_reader *r, const stk_json *map, stk_spec_base *base)
{
    static const char *const words[] = {
#define X(name, word) word,
#include "tbl/xid_actions.def"
#undef X
    };
    enum { N = sizeof words / sizeof *words };
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 20);
    STK_TRY(stk_spec_read_map(r, map, "xid"));
    STK_TRY(stk_spec_merge(r, &base->xid, map, &base->xid));
    for (uint32_t i = 0; i < base->xid.n; i++) {
        const stk_json *key = stk_json_key(&base->xid, i);
        const stk_json *value = stk_json_value(&base->xid, i);
        const char *word = stk_json_text(value);
        bool known = false;
        for (size_t k = 0; word != NULL && k < N; k++) {
            known = known || strcmp(word, words[k]) == 0;
        }
        if (key->text[0] == '0' || strlen(key->text) > 5 ||
            key->text[strspn(key->text, "0123456789")] != '\0' || key->n == 0) {
            return stk_spec_fail(r, key, "'xid' has '%.40s', but an Xid is a number like 109",
                                 key->text);
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (!known) {
            char name[16];
            (void)snprintf(name, sizeof name, "xid.%.8s", key->text);
            int rc = stk_spec_wrong(r, value, name, "ignore, restart, quarantine or node");
            if (word != NULL) {
                stk_spec_did_you_mean(r, word, words, N);
            }
            return rc;
        }
        stk_buf_separate(&text, ",");
        stk_buf_printf(&text, "%s=%s", key->text, word);
    }
    if (text.len == 0) {
        return 0;
    }
    base->s.xid = stk_buf_keep(&text, r->arena);
    return stk_spec_if_null(r, base->s.xid);
}

int stk_spec_read_sample(stk_spec_reader *r, const stk_json *node, const char *key, int64_t *ret_ms)
{
    int64_t ms = 0;
    STK_TRY(stk_spec_read_duration(r, node, key, &ms));
    if (ms < STK_LIMIT_SAMPLE_MS_MIN || ms > STK_LIMIT_SAMPLE_MS_MAX) {
        return stk_spec_fail(r, node, "'%s' is %.40s; it must be between %g and %d seconds", key,
                             node->text, STK_LIMIT_SAMPLE_MS_MIN / 1000.0,
                             STK_LIMIT_SAMPLE_MS_MAX / 1000);
    }
    *ret_ms = ms;
    return 0;
}

static int read_prefix(stk_spec_reader *r, const stk_json *value, const char *label, void *at)
{
    if (stk_json_text(value) == NULL || !stk_units_is_name(value->text, true)) {
        return stk_spec_wrong(r, value, label, "the prefix of a name: letters, digits and _ . -");
    }
    *(const char **)at = value->text;
    return 0;
}

static int read_interval(stk_spec_reader *r, const stk_json *value, const char *label, void *at)
{
    return stk_spec_read_sample(r, value, label, at);
}

static const stk_spec_field profile_fields[] = {
    {.label = "gpu_profile.with_card",
     .kind = STK_SPEC_BOOL,
     .at = offsetof(stk_gpu_profile, with_card)},
    {.label = "gpu_profile.include_artifacts",
     .kind = STK_SPEC_BOOL,
     .at = offsetof(stk_gpu_profile, include_artifacts)},
    {.label = "gpu_profile.artifact_prefix",
     .at = offsetof(stk_gpu_profile, artifact_prefix),
     .read = read_prefix},
    {.label = "gpu_profile.interval",
     .at = offsetof(stk_gpu_profile, interval_ms),
     .read = read_interval}};

int stk_spec_read_gpu_profile(stk_spec_reader *r, const stk_json *node, stk_settings *s)
{
    if (node->kind == STK_JSON_BOOL) {
        s->gpu_profile.enabled = node->truth;
        return 0;
    }
    if (node->kind != STK_JSON_MAP) {
        return stk_spec_wrong(r, node, "gpu_profile", "true, false or a mapping");
    }
    s->gpu_profile.enabled = true;
    return stk_spec_read_fields(r, node, "gpu_profile", profile_fields, STK_SPEC_N(profile_fields),
                                &s->gpu_profile);
}
