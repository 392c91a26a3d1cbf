/* Checks what a document says about containers: `docker` (DockerSettings) and the options of the
 * backend `docker`. It checks everything when the document is read, so that no typing error waits
 * until a container starts. Code that needs a value reads it from the settings' JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "model/spec/spec_read.h"

typedef enum kind {
    TEXT,
    TRUTH,
    TEXTS,       /* a list of them */
    TEXT_S,      /* one text, or a list */
    VALUES,      /* a mapping of texts, numbers and booleans */
    ARGUMENTS,   /* of an installer: any value, by name */
    BUILD,       /* a build configuration */
    OPTIONS,     /* of a build */
    BYTES,       /* 64m, 8GB or a number */
    WHOLE_BYTES, /* a number only, as the engine takes it */
    SWAP,        /* BYTES, or -1 for any amount */
    NUMBER,      /* a whole one */
    WORDS,       /* a list of texts and numbers */
    PAIRS,       /* a mapping of values, or a list of "KEY=VALUE" */
    HOSTS,       /* the same, or a list of "NAME:ADDRESS" */
    MOUNTED,     /* spec_volumes.c */
    DEVICES,
    PLATFORM,
    ULIMITS,
    WORD, /* one of `words` */
    ARGS, /* docker-py's arguments, in which ZenML's options for a local Docker are written */
    ANY
} kind;

typedef struct known {
    const char *name;
    kind kind;
    const char *const *words; /* NULL-terminated */
} known;

static const char *const networks[] = {"host", "bridge", "none", NULL};
static const char *const ipc_modes[] = {"host", "private", "shareable", "none", NULL};
static const char *const entrypoints[] = {"bypass", "keep", NULL};
static const char *const installers[] = {"pip", "uv", NULL};

/* The fields of DockerSettings in all versions of ZenML, and `entrypoint`. */
static const known settings[] = {{"parent_image", TEXT, NULL},
                                 {"image_tag", TEXT, NULL},
                                 {"dockerfile", TEXT, NULL},
                                 {"build_context_root", TEXT, NULL},
                                 {"parent_image_build_config", BUILD, NULL},
                                 {"skip_build", TRUTH, NULL},
                                 {"prevent_build_reuse", TRUTH, NULL},
                                 {"target_repository", TEXT, NULL},
                                 {"python_package_installer", WORD, installers},
                                 {"python_package_installer_cache_mount", TEXT, NULL},
                                 {"python_package_installer_args", ARGUMENTS, NULL},
                                 {"disable_automatic_requirements_detection", TRUTH, NULL},
                                 {"replicate_local_python_environment", ANY, NULL},
                                 {"pyproject_path", TEXT, NULL},
                                 {"pyproject_export_command", TEXT_S, NULL},
                                 {"requirements", TEXT_S, NULL},
                                 {"required_integrations", TEXTS, NULL},
                                 {"install_stack_requirements", TRUTH, NULL},
                                 {"install_deployment_requirements", TRUTH, NULL},
                                 {"local_project_install_command", TEXT, NULL},
                                 {"apt_packages", TEXTS, NULL},
                                 {"environment", VALUES, NULL},
                                 {"runtime_environment", VALUES, NULL},
                                 {"user", TEXT, NULL},
                                 {"build_config", BUILD, NULL},
                                 {"allow_including_files_in_images", TRUTH, NULL},
                                 {"allow_download_from_code_repository", TRUTH, NULL},
                                 {"allow_download_from_artifact_store", TRUTH, NULL},
                                 {"build_options", OPTIONS, NULL},
                                 {"dockerignore", TEXT, NULL},
                                 {"copy_files", TRUTH, NULL},
                                 {"copy_global_config", TRUTH, NULL},
                                 {"source_files", ANY, NULL},
                                 {"required_hub_plugins", TEXTS, NULL},
                                 {"entrypoint", WORD, entrypoints}};

static const known build_config[] = {{"build_options", OPTIONS, NULL},
                                     {"dockerignore", TEXT, NULL}};

/* The engine's build options, by its names, docker-py's and DockerBuildOptions'. The engine
 * silently ignores others. */
static const known build_options[] = {{"pull", ANY, NULL},
                                      {"rm", TRUTH, NULL},
                                      {"forcerm", TRUTH, NULL},
                                      {"force_rm", TRUTH, NULL},
                                      {"nocache", TRUTH, NULL},
                                      {"no_cache", TRUTH, NULL},
                                      {"quiet", TRUTH, NULL},
                                      {"squash", TRUTH, NULL},
                                      {"shm_size", WHOLE_BYTES, NULL},
                                      {"shmsize", WHOLE_BYTES, NULL},
                                      {"labels", VALUES, NULL},
                                      {"buildargs", VALUES, NULL},
                                      {"build_args", VALUES, NULL},
                                      {"cache_from", TEXTS, NULL},
                                      {"cachefrom", TEXTS, NULL},
                                      {"target", TEXT, NULL},
                                      {"network", TEXT, NULL},
                                      {"network_mode", TEXT, NULL},
                                      {"networkmode", TEXT, NULL},
                                      {"platform", PLATFORM, NULL},
                                      {"extra_hosts", ANY, NULL},
                                      {"extrahosts", ANY, NULL},
                                      {"isolation", TEXT, NULL},
                                      {"memory", WHOLE_BYTES, NULL},
                                      {"memswap", ANY, NULL},
                                      {"cpushares", ANY, NULL},
                                      {"cpusetcpus", TEXT, NULL},
                                      {"cpuperiod", ANY, NULL},
                                      {"cpuquota", ANY, NULL},
                                      {"container_limits", ANY, NULL},
                                      {"outputs", ANY, NULL},
                                      {"timeout", ANY, NULL},
                                      {"use_config_proxy", TRUTH, NULL}};

#define ROW(name, kind, words) {name, kind, words},
#define NO_ROW(name, kind, words)
#define X(how, name, kind, words) ROW_##how(name, kind, words)
#define ROW_GIVEN ROW
#define ROW_ENGINE ROW
#define ROW_SAME NO_ROW
#define ROW_NONE NO_ROW
static const known options[] = {
    {"image", TEXT, NULL},
    {"python", TEXT, NULL},
    {"run_args", ARGS, NULL},
#include "tbl/run_args.def"
};
#undef ROW_SAME
#undef ROW_NONE
#define ROW_SAME ROW
#define ROW_NONE ROW
static const known run_args[] = {
#include "tbl/run_args.def"
};
#undef ROW_GIVEN
#undef ROW_ENGINE
#undef ROW_SAME
#define ROW_GIVEN NO_ROW
#define ROW_ENGINE NO_ROW
#define ROW_SAME NO_ROW
static const known no_effect[] = {
#include "tbl/run_args.def"
};
#undef ROW_SAME
#undef ROW_NONE
#define ROW_SAME ROW
#define ROW_NONE NO_ROW
static const known always[] = {
#include "tbl/run_args.def"
};
#undef X

static const known backends[] = {
    {"local", ANY, NULL}, {"docker", ANY, NULL}, {"kubernetes", ANY, NULL}, {"batch", ANY, NULL},
    {"slurm", ANY, NULL}, {"ssh", ANY, NULL},    {"stack", ANY, NULL}};

enum { NAMES_MAX = 128 };
#define N(table) (int)(sizeof(table) / sizeof *(table))

static const known *find_known(stk_spec_reader *r, const stk_json *key, const known *table, int n,
                               const char *where)
{
    const char *names[NAMES_MAX];
    for (int i = 0; i < n; i++) {
        names[i] = table[i].name;
    }
    int i = stk_spec_key(r, key, names, n, where);
    return i < 0 ? NULL : &table[i];
}

/* --- values --- */

bool stk_spec_container_bytes(const stk_json *node, int64_t *ret_bytes)
{
    static const char units[] = "bkmgt";
    const char *text = stk_json_text(node);
    if (stk_json_int(node, ret_bytes)) {
        return *ret_bytes > 0;
    }
    if (text == NULL) {
        return false;
    }
    char *end = NULL;
    double number = strtod(text, &end);
    const char *unit = end + strspn(end, " ");
    bool is_letter = *unit != '\0' && unit[1] == '\0';
    const char *at = strchr(units, *unit | 0x20);
    if (is_letter && at != NULL && end != text && number > 0 && number < 1e9) {
        *ret_bytes = (int64_t)(number * (double)((int64_t)1 << (10 * (at - units))));
        return *ret_bytes > 0;
    }
    return stk_units_parse_memory(text, ret_bytes, NULL) == 0 && *ret_bytes > 0;
}

static int read_word(stk_spec_reader *r, const stk_json *node, const char *key,
                     const char *const *words)
{
    const char *text = stk_json_text(node);
    char list[128] = "";
    size_t n = 0;
    for (; words[n] != NULL; n++) {
        if (text != NULL && strcmp(text, words[n]) == 0) {
            return 0;
        }
        size_t at = strlen(list);
        const char *before = words[n + 1] == NULL ? " or " : ", ";
        if (n == 0) {
            before = "";
        }
        (void)snprintf(list + at, sizeof list - at, "%s%s", before, words[n]);
    }
    int rc = stk_spec_wrong(r, node, key, list);
    if (text != NULL) {
        stk_spec_did_you_mean(r, text, words, n);
    }
    return rc;
}

/* linux/amd64, linux/arm64/v8 */
static bool is_platform(const char *text)
{
    size_t n = 0;
    for (; text != NULL && *text != '\0'; n++) {
        size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_.");
        if (len == 0 || (text[len] != '/' && text[len] != '\0')) {
            return false;
        }
        text += len + (text[len] == '/');
        if (*text == '\0' && text[-1] == '/') {
            return false;
        }
    }
    return n == 2 || n == 3;
}

static int read_values(stk_spec_reader *r, const stk_json *node, const char *key)
{
    STK_TRY(stk_spec_read_map(r, node, key));
    for (uint32_t i = 0; i < node->n; i++) {
        const stk_json *value = stk_json_value(node, i);
        bool nested = value->kind == STK_JSON_MAP || value->kind == STK_JSON_LIST;
        if (nested) {
            return stk_spec_wrong(r, value, stk_json_key(node, i)->text, "text or a number");
        }
    }
    return 0;
}

/* A list of texts and numbers; of pairs also a mapping, and each text is one. */
static int read_pairs(stk_spec_reader *r, const stk_json *node, const known *key)
{
    bool pairs = key->kind != WORDS;
    if (pairs && node->kind == STK_JSON_MAP) {
        return read_values(r, node, key->name);
    }
    if (node->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, node, key->name, pairs ? "a mapping or a list" : "a list");
    }
    for (uint32_t i = 0; i < node->n; i++) {
        const char *text = stk_json_text(&node->items[i]);
        if (key->kind == HOSTS && (text == NULL || strpbrk(text, "=:") == NULL)) {
            return stk_spec_wrong(r, &node->items[i], key->name,
                                  "a list of texts like NAME:ADDRESS");
        }
        if (text == NULL && (pairs || !stk_json_is_number(&node->items[i]))) {
            return stk_spec_wrong(r, &node->items[i], key->name, "a list of texts or numbers");
        }
    }
    return 0;
}

static int read_table(stk_spec_reader *r, const stk_json *map, const char *where,
                      const known *table, int n);

static int read_known(stk_spec_reader *r, const stk_json *node, const known *key)
{
    const char *text = NULL;
    const char *const *texts = NULL;
    uint32_t n = 0;
    int64_t number = 0;
    bool truth = false;
    switch (key->kind) {
    case TEXT:
        return stk_spec_read_text(r, node, key->name, &text);
    case TRUTH:
        return stk_spec_read_bool(r, node, key->name, &truth);
    case TEXT_S:
        if (node->kind == STK_JSON_TEXT) {
            return stk_spec_read_text(r, node, key->name, &text);
        }
        return stk_spec_read_texts(r, node, key->name, &texts, &n);
    case TEXTS:
        return stk_spec_read_texts(r, node, key->name, &texts, &n);
    case VALUES:
        return read_values(r, node, key->name);
    case ARGUMENTS:
        return stk_spec_read_map(r, node, key->name);
    case BUILD:
        return read_table(r, node, key->name, build_config, N(build_config));
    case OPTIONS:
        return read_table(r, node, key->name, build_options, N(build_options));
    case ARGS:
        return read_table(r, node, key->name, run_args, N(run_args));
    case BYTES:
        if (!stk_spec_container_bytes(node, &number)) {
            return stk_spec_wrong(r, node, key->name, "a size above 0, like 64m or 8GB");
        }
        return 0;
    case WHOLE_BYTES:
        return stk_spec_read_int(r, node, key->name, 1, INT64_MAX, &number);
    case SWAP:
        if (!(stk_json_int(node, &number) && number == -1) &&
            !stk_spec_container_bytes(node, &number)) {
            return stk_spec_wrong(r, node, key->name, "a size like 8GB, or -1 for any amount");
        }
        return 0;
    case NUMBER:
        return stk_spec_read_int(r, node, key->name, INT64_MIN, INT64_MAX, &number);
    case WORDS:
    case PAIRS:
    case HOSTS:
        return read_pairs(r, node, key);
    case MOUNTED:
    case DEVICES:
        return stk_spec_check_mounted(r, node, key->name);
    case PLATFORM:
        if (!is_platform(stk_json_text(node))) {
            return stk_spec_wrong(r, node, key->name, "a platform like linux/amd64");
        }
        return 0;
    case ULIMITS:
        return stk_spec_check_ulimits(r, node, key->name);
    case WORD:
        return read_word(r, node, key->name, key->words);
    case ANY:
        break;
    }
    return 0;
}

static int read_table(stk_spec_reader *r, const stk_json *map, const char *where,
                      const known *table, int n)
{
    STK_TRY(stk_spec_read_map(r, map, where));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        const known *key = find_known(r, stk_json_key(map, i), table, n, where);
        if (key == NULL) {
            return STK_E_SPEC;
        }
        if (value->kind != STK_JSON_NULL) {
            STK_TRY(read_known(r, value, key));
        }
    }
    return 0;
}

/* --- the two settings --- */

int stk_spec_check_docker(stk_spec_reader *r, const stk_json *map)
{
    return read_table(r, map, "docker", settings, N(settings));
}

int stk_spec_check_backend(stk_spec_reader *r, const stk_json *map)
{
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        const known *backend =
            find_known(r, stk_json_key(map, i), backends, N(backends), "backend");
        if (backend == NULL) {
            return STK_E_SPEC;
        }
        if (strcmp(backend->name, "stack") == 0) {
            const char *name = NULL;
            if (value->kind != STK_JSON_NULL) {
                STK_TRY(stk_spec_read_text(r, value, "backend.stack", &name));
            }
            continue;
        }
        if (value->kind != STK_JSON_NULL && value->kind != STK_JSON_MAP) {
            return stk_spec_wrong(r, value, backend->name, "a mapping of the backend's options");
        }
        if (value->kind == STK_JSON_MAP && strcmp(backend->name, "docker") == 0) {
            STK_TRY(read_table(r, value, "backend.docker", options, N(options)));
        }
    }
    return 0;
}

/* Not given, or the value that means the same. */
static bool says_nothing(const stk_json *value)
{
    bool empty =
        (value->kind == STK_JSON_TEXT || stk_json_is_list(value) || stk_json_is_map(value)) &&
        value->n == 0;
    return empty || value->kind == STK_JSON_NULL || stk_json_is_false(value);
}

static bool is_known_name(const known *table, int n, const char *name)
{
    for (int k = 0; k < n; k++) {
        if (strcmp(name, table[k].name) == 0) {
            return true;
        }
    }
    return false;
}

void stk_spec_unused_run_args(const stk_json *args, stk_buf *ret_names)
{
    for (uint32_t i = 0; i < stk_json_n_members(args); i++) {
        const char *name = stk_json_key(args, i)->text;
        const stk_json *value = stk_json_value(args, i);
        if ((is_known_name(no_effect, N(no_effect), name) && !says_nothing(value)) ||
            (is_known_name(always, N(always), name) && stk_json_is_false(value))) {
            stk_buf_separate(ret_names, ", ");
            stk_buf_printf(ret_names, "'%s'", name);
        }
    }
}
