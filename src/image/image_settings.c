/* The docker setting of a step: DockerSettings as JSON → values. Keys that say how a container runs
 * (runtime_environment, entrypoint …) are read by who starts it. */
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "image/image_private.h"
#include "image/image_recipe.h"

typedef struct reader {
    const stk_json *root;
    stk_arena *arena;
    stk_err *err;
    int rc;
} reader;

static int wrong_setting(reader *r, const char *key, const stk_json *value, const char *wanted)
{
    r->rc = stk_err_set(r->err, STK_E_SPEC, "docker: %s must be %s, not %s", key, wanted,
                        stk_json_kind_words((stk_json_kind)value->kind));
    return r->rc;
}

/* NULL: not given, or null. */
static const stk_json *get_setting(reader *r, const stk_json *map, const char *key)
{
    if (r->rc < 0) {
        return NULL;
    }
    const stk_json *value = stk_json_get(map, key);
    return value == NULL || value->kind == STK_JSON_NULL ? NULL : value;
}

static const char *setting_text(reader *r, const stk_json *map, const char *key)
{
    const stk_json *value = get_setting(r, map, key);
    const char *text = stk_json_text(value);
    if (value != NULL && text == NULL) {
        wrong_setting(r, key, value, "text");
    }
    return stk_text_if_any(text);
}

static bool truth_of(reader *r, const char *key, bool otherwise)
{
    const stk_json *value = get_setting(r, r->root, key);
    if (value == NULL) {
        return otherwise;
    }
    if (value->kind != STK_JSON_BOOL) {
        wrong_setting(r, key, value, "true or false");
        return otherwise;
    }
    return value->truth;
}

static const stk_json *map_of(reader *r, const stk_json *map, const char *key)
{
    const stk_json *value = get_setting(r, map, key);
    if (value != NULL && value->kind != STK_JSON_MAP) {
        wrong_setting(r, key, value, "a mapping");
        return NULL;
    }
    return value != NULL && value->n == 0 ? NULL : value;
}

static const char *const *texts_of(reader *r, const char *key, const stk_json *value)
{
    uint32_t n = 0;
    if (stk_json_is_list(value)) {
        n = value->n;
    } else if (value != NULL) {
        wrong_setting(r, key, value, "a list of strings");
    }
    const char **texts = stk_arena_array(r->arena, (size_t)n + 1, sizeof *texts);
    if (texts == NULL) {
        r->rc = stk_err_set(r->err, STK_E_NOMEM, "out of memory for docker.%s", key);
        return NULL;
    }
    for (uint32_t i = 0; i < n; i++) {
        texts[i] = stk_json_text(&value->items[i]);
        if (texts[i] == NULL) {
            wrong_setting(r, key, &value->items[i], "a list of strings");
            texts[i] = "";
        }
    }
    return texts;
}

bool stk_image_is_zenml(const char *line, size_t n)
{
    while (n > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        n--;
    }
    return n >= 5 && strncasecmp(line, "zenml", 5) == 0 &&
           (n == 5 || memchr("[=<>!~ \t;@#\r", line[5], 13) != NULL);
}

const char *stk_image_quote(const char *text, stk_arena *arena)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=@%+,";
    if (*text != '\0' && text[strspn(text, plain)] == '\0') {
        return text;
    }
    char *quoted = stk_arena_alloc(arena, 4 * strlen(text) + 3), *out = quoted;
    if (quoted == NULL) {
        return NULL;
    }
    *out++ = '\'';
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'') {
            memcpy(out, "'\\''", 4);
            out += 4;
        } else {
            *out++ = *c;
        }
    }
    *out++ = '\'';
    *out = '\0';
    return quoted;
}

/* --- the installer's arguments --- */

/* Those that pip knows as well as uv: where to look, and with which certificates. */
static bool says_where(const char *name)
{
    static const char *const names[] = {"index-url", "extra-index-url", "find-links",
                                        "no-index",  "trusted-host",    "cert"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void add_argument(reader *r, const char *name, const stk_json *value, stk_buf *out)
{
    if (value->kind == STK_JSON_BOOL && !value->truth) {
        return;
    }
    stk_buf_printf(out, " --%s", name);
    if (value->kind == STK_JSON_NULL || value->kind == STK_JSON_BOOL) {
        return; /* a bare flag */
    }
    const char *text = NULL;
    if (value->kind == STK_JSON_TEXT || value->kind == STK_JSON_INT ||
        value->kind == STK_JSON_REAL) {
        text = stk_arena_dupn(r->arena, value->text, value->n);
    }
    if (text != NULL) {
        text = stk_image_quote(text, r->arena);
    }
    if (text == NULL) {
        wrong_setting(r, "python_package_installer_args", value,
                      "of strings, numbers, lists or null");
        return;
    }
    stk_buf_printf(out, "=%s", text);
}

static void read_arguments(reader *r, stk_image_settings *s)
{
    const stk_json *args = map_of(r, r->root, "python_package_installer_args");
    STK_BUF_AUTO all = STK_BUF_INIT(64 << 10), where = STK_BUF_INIT(64 << 10);
    const stk_json flag = {.kind = STK_JSON_NULL},
                   timeout = {.text = "60", .n = 2, .kind = STK_JSON_INT};
    if (s->cache_mount == NULL && stk_json_get(args, "no-cache-dir") == NULL) {
        add_argument(r, "no-cache-dir", &flag, &all);
    }
    if (!s->uses_uv && stk_json_get(args, "default-timeout") == NULL) {
        add_argument(r, "default-timeout", &timeout, &all);
    }
    for (uint32_t i = 0; args != NULL && i < args->n; i++) {
        const char *name = stk_json_key(args, i)->text;
        const stk_json *value = stk_json_value(args, i);
        if (name[strspn(name,
                        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")] !=
            '\0') {
            r->rc = stk_err_set(r->err, STK_E_SPEC,
                                "docker: python_package_installer_args: '%s' isn't a valid name of "
                                "an option; write it without leading dashes, as {name: value}",
                                name);
            return;
        }
        const stk_json *items;
        uint32_t n = stk_json_as_list(value, &items);
        for (uint32_t k = 0; k < n; k++) {
            add_argument(r, name, &items[k], &all);
            if (says_where(name)) {
                add_argument(r, name, &items[k], &where);
            }
        }
    }
    s->installer_args = stk_arena_dup(r->arena, stk_text_or(all.data, ""));
    s->source_args = stk_arena_dup(r->arena, stk_text_or(where.data, ""));
    if (r->rc == 0 &&
        (all.failed || where.failed || s->installer_args == NULL || s->source_args == NULL)) {
        r->rc = stk_err_set(r->err, STK_E_NOMEM, "out of memory for the installer's arguments");
    }
}

/* --- all of it --- */

static void read_build(reader *r, stk_image_settings *s)
{
    const char *key = "build_config";
    if (s->dockerfile != NULL && get_setting(r, r->root, "parent_image_build_config") != NULL) {
        key = "parent_image_build_config";
    }
    const stk_json *config = map_of(r, r->root, key);
    const stk_json *old = map_of(r, r->root, "build_options");
    s->dockerignore = setting_text(r, config, "dockerignore");
    s->build_options = map_of(r, config, "build_options");
    if (s->dockerignore == NULL) {
        s->dockerignore = setting_text(r, r->root, "dockerignore");
    }
    if (s->build_options == NULL) {
        s->build_options = old;
    }
}

static void read_packages(reader *r, stk_image_settings *s)
{
    const stk_json *requirements = get_setting(r, r->root, "requirements");
    const char *installer = setting_text(r, r->root, "python_package_installer");
    if (installer != NULL && strcmp(installer, "uv") != 0 && strcmp(installer, "pip") != 0) {
        r->rc = stk_err_set(r->err, STK_E_SPEC,
                            "docker: python_package_installer '%s' is neither 'pip' nor 'uv'",
                            installer);
    }
    s->uses_uv = installer == NULL || strcmp(installer, "uv") == 0;
    s->cache_mount = setting_text(r, r->root, "python_package_installer_cache_mount");
    if (requirements != NULL && requirements->kind == STK_JSON_TEXT) {
        s->requirements_file = setting_text(r, r->root, "requirements");
        requirements = NULL;
    }
    s->requirements = texts_of(r, "requirements", requirements);
    s->integrations =
        texts_of(r, "required_integrations", get_setting(r, r->root, "required_integrations"));
    s->apt_packages = texts_of(r, "apt_packages", get_setting(r, r->root, "apt_packages"));
    s->pyproject_path = setting_text(r, r->root, "pyproject_path");
    s->export_command = get_setting(r, r->root, "pyproject_export_command");
    s->local_install = setting_text(r, r->root, "local_project_install_command");
    s->replicate = get_setting(r, r->root, "replicate_local_python_environment");
    if (s->replicate != NULL && s->replicate->kind == STK_JSON_BOOL && !s->replicate->truth) {
        s->replicate = NULL;
    }
    s->detects = !truth_of(r, "disable_automatic_requirements_detection", true);
    if (r->rc == 0) {
        read_arguments(r, s);
    }
}

int stk_image_settings_read(const char *docker, stk_arena *arena, stk_image_settings *ret,
                            stk_err *err)
{
    static const stk_json_limits limits = {16 << 20, 1 << 20, STK_LIMIT_DEPTH};
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    const char *text = stk_text_or(docker, "{}");
    STK_TRY(stk_err_need(root, "for the docker setting", err));
    STK_TRY(stk_json_parse(text, strlen(text), "docker", &limits, arena, root, err));
    reader r = {.root = root, .arena = arena, .err = err};
    if (root->kind != STK_JSON_MAP) {
        return stk_err_set(err, STK_E_SPEC, "docker must be a mapping, not %s",
                           stk_json_kind_words((stk_json_kind)root->kind));
    }
    stk_image_settings s = {.parent_image = setting_text(&r, root, "parent_image"),
                            .image_tag = setting_text(&r, root, "image_tag"),
                            .dockerfile = setting_text(&r, root, "dockerfile"),
                            .build_context_root = setting_text(&r, root, "build_context_root"),
                            .target_repository = setting_text(&r, root, "target_repository"),
                            .user = setting_text(&r, root, "user"),
                            .skip_build = truth_of(&r, "skip_build", false),
                            .prevent_build_reuse = truth_of(&r, "prevent_build_reuse", false),
                            .environment = map_of(&r, root, "environment")};
    read_build(&r, &s);
    read_packages(&r, &s);
    if (r.rc == 0 && s.skip_build && s.parent_image == NULL) {
        return stk_err_set(err, STK_E_SPEC,
                           "docker: skip_build needs parent_image, the image to use unchanged; set "
                           "it, or remove skip_build");
    }
    *ret = s;
    return r.rc;
}

bool stk_image_builds(const char *docker)
{
    if (docker == NULL) {
        return false;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_image_settings s;
    if (arena == NULL || stk_image_settings_read(docker, arena, &s, NULL) < 0 || s.skip_build) {
        return false; /* what is wrong with it is said when the image is made ready */
    }
    bool packages = s.requirements_file != NULL || s.pyproject_path != NULL ||
                    s.replicate != NULL || s.detects || s.local_install != NULL ||
                    s.integrations[0] != NULL || s.apt_packages[0] != NULL;
    for (uint32_t i = 0; !packages && s.requirements[i] != NULL; i++) {
        packages = !stk_image_is_zenml(s.requirements[i], strlen(s.requirements[i]));
    }
    return packages || s.dockerfile != NULL || s.environment != NULL;
}
