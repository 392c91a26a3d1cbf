/* `stoker launch --config-file FILE`: accelerate's settings in a file stand for options that the
 * command line doesn't have. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/limits.h"
#include "base/text.h"
#include "base/yaml.h"
#include "cli/cli_launch.h"
#include "cli/cli_parse.h"
#include "sys/file.h"

enum { MAX_GIVEN = 512, FIELDS_BYTES = 8 << 10 };

typedef struct reader {
    const char *path;
    const stk_cli *cli;
    stk_cli *more; /* with room for MAX_GIVEN options */
    stk_arena *arena;
    stk_buf fields; /* of deepspeed_config */
    stk_err *err;
} reader;

/* Keys of the file's top level that are no options, and those with another name. */
static const char *const renamed[][2] = {{"use_cpu", "cpu"},
                                         {"tpu_use_cluster", "tpu-cluster"},
                                         {"tpu_vm", "vm"},
                                         {"tpu_env", "env"},
                                         {"tpu_name", "vm"},
                                         {"tpu_zone", "vm"},
                                         {"command_file", "tpu-cluster"},
                                         {"commands", "tpu-cluster"}};
/* Their keys may leave out the prefix. */
static const char *const sections[][2] = {{"fsdp_config", "fsdp_"},     {"fp8_config", "fp8_"},
                                          {"dynamo_config", "dynamo_"}, {"deepspeed_config", ""},
                                          {"megatron_lm_config", ""},   {"parallelism_config", ""},
                                          {"mpirun_config", ""}};
static const char *const kinds[][2] = {{"NO", NULL},
                                       {"MULTI_CPU", "cpu"},
                                       {"MULTI_GPU", "multi-gpu"},
                                       {"FSDP", "use-fsdp"},
                                       {"DEEPSPEED", "use-deepspeed"},
                                       {"MEGATRON_LM", "use-megatron-lm"},
                                       {"XLA", "tpu"},
                                       {"TPU", "tpu"},
                                       {"MULTI_XPU", "multi-gpu"},
                                       {"MULTI_NPU", "multi-gpu"},
                                       {"MULTI_HPU", "multi-gpu"},
                                       {"MULTI_MLU", "multi-gpu"}};

static const stk_option *find_launch_option(const char *name)
{
    for (const stk_option *o = stk_cli_launch_table; o->name != NULL; o++) {
        const char *also = o->also == NULL ? NULL : strstr(o->also, name);
        size_t n = strlen(name);
        if (strcmp(o->name, name) == 0 || (also != NULL && (also[n] == ' ' || also[n] == '\0') &&
                                           (also == o->also || also[-1] == ' '))) {
            return o;
        }
    }
    return NULL;
}

/* Whether a value says that there is nothing of the kind: null, false, 'no', [], {}. */
static bool says_none(const stk_json *value)
{
    const char *text = stk_json_text(value);
    return stk_json_is_kind(value, STK_JSON_NULL) ||
           (stk_json_is_kind(value, STK_JSON_BOOL) && !value->truth) ||
           ((stk_json_is_kind(value, STK_JSON_LIST) || stk_json_is_kind(value, STK_JSON_MAP)) &&
            value->n == 0) ||
           (text != NULL && (strcasecmp(text, "no") == 0 || strcasecmp(text, "false") == 0));
}

static int refuse_at(reader *r, const stk_json *node, const char *why, const char *word)
{
    int rc = stk_err_set(r->err, STK_E_SPEC, "'%s' %s", word, why);
    stk_err_at(r->err, r->path, (int)node->line);
    return rc;
}

static int add_option(reader *r, const char *name, const char *value)
{
    if (r->more->n_given >= MAX_GIVEN) {
        return stk_err_set(r->err, STK_E_LIMIT, "%s: more than %d settings", r->path, MAX_GIVEN);
    }
    r->more->given[r->more->n_given++] =
        (stk_cli_given){.name = name, .value = value, .word = name};
    return 0;
}

static int take_setting(reader *r, const char *prefix, const stk_json *key, const stk_json *value)
{
    char name[128];
    const char *word = stk_text_or(stk_json_text(key), "?");
    bool whole = strncmp(word, prefix, strlen(prefix)) == 0;
    (void)snprintf(name, sizeof name, "%s%.90s", whole ? "" : prefix, word);
    for (char *c = name; *c != '\0'; c++) {
        if (*c == '_') {
            *c = '-';
        }
    }
    const stk_option *o = find_launch_option(name);
    if (o == NULL) {
        return refuse_at(r, key, "is no setting that accelerate's config files have", word);
    }
    bool is_bool = stk_json_is_kind(value, STK_JSON_BOOL);
    if (stk_json_is_kind(value, STK_JSON_NULL) ||
        ((o->arg == NULL || stk_cli_launch_is_foreign(o->name)) && says_none(value)) ||
        (strcmp(name, "main-training-function") == 0 && stk_json_is(value, "main")) ||
        (strcmp(name, "num-processes") == 0 && stk_cli_flag(r->cli, "ranks"))) {
        return 0;
    }
    if (o->arg == NULL) {
        return add_option(r, o->name, "");
    }
    if (is_bool && value->truth) {
        return add_option(r, o->name, "True");
    }
    if (is_bool) {
        return add_option(r, o->name, stk_text_when(!stk_cli_launch_is_truth(o->name), "False"));
    }
    if (stk_json_is_kind(value, STK_JSON_LIST) || stk_json_is_kind(value, STK_JSON_MAP)) {
        return refuse_at(r, value, "is a list or a map, not one value", word);
    }
    const char *text = value->text;
    if (strcmp(o->name, "dynamo-backend") == 0) { /* in capitals there */
        char lower[64];
        stk_cli_print_case(text, false, lower, sizeof lower);
        text = stk_arena_dup(r->arena, lower);
    }
    return add_option(r, o->name, stk_text_or(text, ""));
}

static int take_section(reader *r, const char *name, const char *prefix, const stk_json *map)
{
    for (uint32_t i = 0; stk_json_is_kind(map, STK_JSON_MAP) && i < map->n; i++) {
        const stk_json *key = &map->items[2 * i];
        STK_TRY(take_setting(r, prefix, key, key + 1));
        if (strcmp(name, "deepspeed_config") == 0) {
            stk_buf_separate(&r->fields, ",");
            stk_buf_text(&r->fields, stk_json_text(key));
        }
    }
    if (strcmp(name, "parallelism_config") == 0 && !says_none(map)) {
        return add_option(r, "use-parallelism-config", "");
    }
    return 0;
}

static int take_kind(reader *r, const stk_json *kind)
{
    static const char *const own[] = {"multi-gpu", "use-deepspeed", "use-fsdp", "use-megatron-lm",
                                      "cpu"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (stk_cli_flag(r->cli, own[i])) {
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (stk_json_is(kind, kinds[i][0])) {
            if (kinds[i][1] != NULL) {
                return add_option(r, kinds[i][1], "");
            }
            return 0;
        }
    }
    return stk_err_set(r->err, STK_E_SPEC, "%s: distributed_type '%s' is not known here", r->path,
                       stk_text_or(stk_json_text(kind), "?"));
}

static int take_key(reader *r, const stk_json *key, const stk_json *value)
{
    const char *word = stk_text_or(stk_json_text(key), "?");
    stk_json other = *key;
    if (strcmp(word, "compute_environment") == 0) {
        if (stk_json_is(value, "LOCAL_MACHINE")) {
            return 0;
        }
        return refuse_at(r, value, "must be LOCAL_MACHINE (docs/batch.md has jobs on AWS)", word);
    }
    if (strcmp(word, "distributed_type") == 0) {
        return take_kind(r, value);
    }
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (strcmp(word, sections[i][0]) == 0) {
            return take_section(r, word, sections[i][1], value);
        }
    }
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
        if (strcmp(word, renamed[i][0]) == 0) {
            other = stk_json_of_text(renamed[i][1]);
        }
    }
    other.line = key->line;
    return take_setting(r, "", &other, value);
}

static int add_fields(reader *r, const stk_json *root)
{
    const char *precision = stk_json_get_text(root, "mixed_precision");
    if (precision != NULL && !stk_cli_flag(r->cli, "mixed-precision")) {
        stk_buf_separate(&r->fields, ",");
        stk_buf_text(&r->fields, "mixed_precision");
    }
    return add_option(r, STK_CLI_DS_FIELDS, stk_text_or(stk_buf_keep(&r->fields, r->arena), ""));
}

int stk_cli_launch_config(const stk_cli **cli, stk_arena *arena, stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, 10000, 20};
    const char *path = stk_cli_value(*cli, "config-file");
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json root;
    if (path == NULL) {
        return 0;
    }
    STK_TRY(stk_file_read(path, STK_LIMIT_SPEC_BYTES, &text, &len, err));
    STK_TRY(stk_yaml_or_json_parse(text, len, path, &limits, arena, &root, err));
    stk_cli *more = stk_arena_alloc(arena, sizeof *more);
    stk_cli_given *given =
        stk_arena_array(arena, MAX_GIVEN + (size_t)(*cli)->n_given, sizeof *given);
    if (more == NULL || given == NULL) {
        return stk_err_nomem(err);
    }
    *more = **cli;
    more->given = given;
    more->n_given = 0;
    reader r = {.path = path,
                .cli = *cli,
                .more = more,
                .arena = arena,
                .fields = STK_BUF_INIT(FIELDS_BYTES),
                .err = err};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && stk_json_is_kind(&root, STK_JSON_MAP) && i < root.n; i++) {
        rc = take_key(&r, &root.items[2 * i], &root.items[2 * i + 1]);
    }
    if (rc == 0) {
        rc = add_fields(&r, &root);
    }
    stk_buf_done(&r.fields);
    STK_TRY(rc); /* the command line comes last, and wins */
    memcpy(given + more->n_given, (*cli)->given, (size_t)(*cli)->n_given * sizeof *given);
    more->n_given += (*cli)->n_given;
    *cli = more;
    return 0;
}
