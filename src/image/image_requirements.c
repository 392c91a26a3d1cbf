/* What is to be installed into an image, gathered from all that DockerSettings may say: the local
 * environment, integrations, a pyproject.toml, requirements. */
#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "image/image_private.h"
#include "image/image_recipe.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum { MAX_BYTES = 8 << 20, MAX_NESTED = 16 };

typedef struct gather {
    const stk_image_recipe *recipe;
    const stk_image_settings *settings;
    stk_arena *arena;
    stk_image_packages *packages;
    uint32_t n;
    stk_buf *notes;
    stk_err *err;
} gather;

/* --- lines --- */

/* `line` without blanks around it and its comment. */
static size_t trim(const char **line, size_t n)
{
    const char *from = *line;
    while (n > 0 && isspace((unsigned char)*from)) {
        from++;
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        if (from[i] == '#' && (i == 0 || isspace((unsigned char)from[i - 1]))) {
            n = i;
        }
    }
    while (n > 0 && isspace((unsigned char)from[n - 1])) {
        n--;
    }
    *line = from;
    return n;
}

/* "-r other.txt", "--requirement=other.txt" → "other.txt"; NULL: no such line. */
static const char *included(const gather *g, const char *line, size_t n, const char *letter,
                            const char *word)
{
    size_t skip = strlen(word);
    if (n > skip && strncmp(line, word, skip) == 0 && (line[skip] == '=' || line[skip] == ' ')) {
        skip++;
    } else if (n > 2 && strncmp(line, letter, 2) == 0) {
        skip = 2;
    } else {
        return NULL;
    }
    const char *path = line + skip;
    size_t size = trim(&path, n - skip);
    return stk_arena_dupn(g->arena, path, size);
}

static int add_lines(gather *g, const char *text, const char *folder, const char *where,
                     stk_buf *out, int level);

static int add_nested(gather *g, const char *name, const char *folder, stk_buf *out, int level)
{
    STK_TEXT_AUTO path = stk_file_below(folder, name);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (level >= MAX_NESTED) {
        return stk_err_set(g->err, STK_E_SPEC,
                           "requirements: '%s' includes itself, or files nest too deep", name);
    }
    STK_TRY(stk_err_need(path, "for requirements", g->err));
    STK_TRY(stk_file_read(path, MAX_BYTES, &text, &len, g->err));
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        folder = stk_arena_dupn(g->arena, path, (size_t)(slash - path));
    }
    return add_lines(g, text, folder, path, out, level + 1);
}

static int add_line(gather *g, const char *line, size_t n, const char *folder, const char *where,
                    stk_buf *out, int level)
{
    const char *nested = included(g, line, n, "-r", "--requirement");
    if (nested != NULL) {
        return add_nested(g, nested, folder, out, level);
    }
    bool editable = strncmp(line, "-e", 2) == 0 || strncmp(line, "--editable", 10) == 0;
    /* Never NULL, which a compiler that adds sanitizers can't see. */
    bool local = *line == '.' || strncmp(line, "file:", 5) == 0 ||
                 (editable && line != NULL && memmem(line, n, "://", 3) == NULL);
    if (local || strncmp(line, "-c", 2) == 0 || strncmp(line, "--constraint", 12) == 0) {
        stk_err_set(
            g->err, STK_E_SPEC,
            "docker: '%.*s' in %s names a file of this host, which doesn't exist in the image",
            (int)n, line, where);
        stk_err_hint(g->err, "the project's code needs no installation; to install something, use "
                             "local_project_install_command");
        return STK_E_SPEC;
    }
    if (stk_image_is_zenml(line, n)) {
        stk_buf_printf(g->notes,
                       "%.*s is left out: Stoker provides its own Python package at run time\n",
                       (int)n, line);
        return 0;
    }
    stk_buf_printf(out, "%.*s\n", (int)n, line);
    return 0;
}

static int add_lines(gather *g, const char *text, const char *folder, const char *where,
                     stk_buf *out, int level)
{
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        const char *from = line;
        size_t size = trim(&from, n);
        if (size > 0) {
            STK_TRY(add_line(g, from, size, folder, where, out, level));
        }
        line += n + (line[n] == '\n');
    }
    return 0;
}

/* Lines → a file of the context, unless nothing is left of them. */
static int add_file(gather *g, const char *file, const char *title, const char *text,
                    const char *where)
{
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_BYTES);
    const char *folder = stk_text_or(g->recipe->folder, ".");
    STK_TRY(add_lines(g, text, folder, where, &out, 0));
    if (out.len == 0) {
        return 0;
    }
    stk_image_packages *p = &g->packages[g->n++];
    *p = (stk_image_packages){file, title, stk_arena_dup(g->arena, out.data)};
    if (out.failed || p->text == NULL) {
        return stk_err_set(g->err, STK_E_NOMEM, "out of memory for %s", where);
    }
    return 0;
}

/* --- programs of the user's --- */

static int run_program(const gather *g, const char *const *argv, stk_buf *out)
{
    const stk_spawn spawn = {
        .argv = argv, .cwd = g->recipe->folder, .stdin_fd = -1, .stderr_fd = STDERR_FILENO};
    int status = 0;
    int rc = stk_image_capture(&spawn, -1, out, &status, g->err);
    if (status != 0 || out->failed) {
        return stk_err_set(g->err, STK_E_ENV,
                           "docker: '%s', the command that lists packages, failed (see above)",
                           argv[0]);
    }
    return rc;
}

/* A list of words; "{directory}" becomes the folder of `path`. */
static int run_list(gather *g, const stk_json *list, const char *key, const char *directory,
                    stk_buf *out)
{
    const char **argv = stk_arena_array(g->arena, (size_t)list->n + 1, sizeof *argv);
    if (argv == NULL || list->n == 0) {
        return stk_err_set(g->err, STK_E_SPEC, "docker: %s is an empty command", key);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        const char *word = stk_json_text(&list->items[i]);
        if (word == NULL) {
            return stk_err_set(g->err, STK_E_SPEC, "docker: %s must be a list of strings", key);
        }
        const char *at = strstr(word, "{directory}");
        argv[i] = word;
        if (at != NULL) {
            argv[i] = stk_arena_printf(g->arena, "%.*s%s%s", (int)(at - word), word, directory,
                                       at + strlen("{directory}"));
        }
    }
    return run_program(g, argv, out);
}

/* --- the local environment --- */

/* How a distribution came: NULL: by its version, "": not at all from elsewhere, else "@ url". */
static const char *direct_url(const gather *g, const char *folder, const char *entry)
{
    static const stk_json_limits limits = {64 << 10, 1000, 16};
    const char *path = stk_arena_printf(g->arena, "%s/%s/direct_url.json", folder, entry);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json root;
    if (path == NULL || stk_file_read(path, 64 << 10, &text, &len, NULL) < 0 ||
        stk_json_parse(text, len, path, &limits, g->arena, &root, NULL) < 0) {
        return NULL;
    }
    const char *url = stk_json_get_text(&root, "url");
    const stk_json *vcs = stk_json_get(&root, "vcs_info");
    const char *kind = stk_json_get_text(vcs, "vcs");
    const char *commit = stk_json_get_text(vcs, "commit_id");
    if (url == NULL || strncmp(url, "file:", 5) == 0) {
        return "";
    }
    if (kind != NULL && commit != NULL) {
        return stk_arena_printf(g->arena, "%s+%s@%s", kind, url, commit);
    }
    return stk_arena_dup(g->arena, url);
}

static void freeze_one(gather *g, const char *folder, const char *entry, stk_buf *seen,
                       stk_buf *out)
{
    static const char *const skipped[] = {"pip", "setuptools", "wheel",
                                          "uv",  "stoker",     "pkg_resources"};
    size_t size = strlen(entry);
    const char *end = entry + MAX(size, 10) - 10;
    const char *dash = strchr(entry, '-');
    if (strcmp(end, ".dist-info") != 0 || dash == NULL || dash > end) {
        return;
    }
    char name[160], mark[168];
    (void)snprintf(name, sizeof name, "%.*s", (int)(dash - entry), entry);
    (void)snprintf(mark, sizeof mark, "\n%s\n", name);
    bool skip = seen->data != NULL && strcasestr(seen->data, mark) != NULL;
    for (size_t i = 0; i < sizeof skipped / sizeof skipped[0]; i++) {
        skip = skip || strcasecmp(name, skipped[i]) == 0;
    }
    if (skip) {
        return;
    }
    stk_buf_printf(seen, "\n%s\n", name);
    const char *url = direct_url(g, folder, entry);
    if (url != NULL && *url == '\0') {
        stk_buf_printf(g->notes, "%s is left out: it was installed from a folder of this host\n",
                       name);
    } else if (url != NULL) {
        stk_buf_printf(out, "%s @ %s\n", name, url);
    } else {
        stk_buf_printf(out, "%s==%.*s\n", name, (int)(end - dash - 1), dash + 1);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcasecmp(*(const char *const *)a, *(const char *const *)b);
}

/* The lines of `out` sorted, so that the order of a folder's entries doesn't change the digest. */
static int sort_lines(const gather *g, stk_buf *out)
{
    const char **lines = NULL;
    uint32_t n = 0, cap = 0;
    const char *text = stk_arena_dup(g->arena, stk_text_or(out->data, ""));
    while (text != NULL && *text != '\0') {
        size_t len = strcspn(text, "\n");
        lines = stk_arena_grow(g->arena, lines, n, sizeof *lines, &cap);
        STK_TRY(stk_err_need(lines, "for the environment's packages", g->err));
        lines[n++] = stk_arena_dupn(g->arena, text, len);
        text += len + (text[len] == '\n');
    }
    stk_buf_clear(out);
    if (n > 0) {
        qsort(lines, n, sizeof *lines, by_text);
    }
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_printf(out, "%s\n", lines[i]);
    }
    return 0;
}

/* What `pip freeze` would say, from the files: an environment made by uv has no pip to ask. */
static int freeze(gather *g, stk_buf *out)
{
    STK_BUF_AUTO seen = STK_BUF_INIT(MAX_BYTES);
    stk_environment environment = {0};
    const char *python = stk_text_or(g->recipe->python, "python3");
    STK_TRY(stk_preflight_environment(python, g->arena, &environment, g->err));
    for (uint32_t i = 0; environment.sys_path[i] != NULL; i++) {
        STK_DIR_AUTO dir = {0};
        STK_TRY(stk_dir_read_if(environment.sys_path[i], &dir, g->err));
        for (uint32_t k = 0; k < dir.n; k++) {
            freeze_one(g, environment.sys_path[i], dir.items[k].name, &seen, out);
        }
    }
    STK_TRY(sort_lines(g, out));
    if (seen.failed || out->failed) {
        return stk_err_set(g->err, STK_E_LIMIT, "the list of packages of %s is too long", python);
    }
    return 0;
}

static int gather_local(gather *g)
{
    static const char key[] = "replicate_local_python_environment";
    const stk_json *how = g->settings->replicate;
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_BYTES);
    if (how == NULL) {
        return 0;
    }
    if (how->kind == STK_JSON_LIST) {
        STK_TRY(run_list(g, how, key, "", &out));
    } else if (how->kind == STK_JSON_BOOL || stk_json_is(how, "pip_freeze")) {
        STK_TRY(freeze(g, &out));
    } else if (stk_json_is(how, "poetry_export")) {
        static const char *const argv[] = {"poetry", "export", "--format=requirements.txt", NULL};
        STK_TRY(run_program(g, argv, &out));
    } else {
        return stk_err_set(g->err, STK_E_SPEC,
                           "docker: %s is '%s'; it must be true, \"pip_freeze\", \"poetry_export\" "
                           "or a command as a list",
                           key, stk_text_or(stk_json_text(how), "?"));
    }
    return add_file(g, "local-environment.txt", "the packages of the local environment",
                    stk_text_or(out.data, ""), key);
}

/* --- integrations --- */

static int gather_integrations(gather *g)
{
    static const struct {
        const char *name, *packages;
    } known[] = {
#define X(name, packages) {name, packages},
#include "tbl/integrations.def"
#undef X
    };
    enum { N = sizeof known / sizeof known[0] };
    STK_BUF_AUTO out = STK_BUF_INIT(64 << 10);
    for (uint32_t i = 0; g->settings->integrations[i] != NULL; i++) {
        const char *name = g->settings->integrations[i];
        const char *names[N];
        size_t k = 0;
        for (size_t m = 0; m < N; m++) {
            names[m] = known[m].name;
        }
        while (k < N && strcmp(known[k].name, name) != 0) {
            k++;
        }
        if (k == N) {
            const char *near = stk_units_nearest(name, names, N);
            const char *asked = NULL;
            if (near != NULL) {
                asked = stk_arena_printf(g->arena, "; did you mean '%s'?", near);
            }
            stk_err_set(g->err, STK_E_SPEC,
                        "docker: required_integrations: unknown integration '%s'%s", name,
                        stk_text_or(asked, ""));
            stk_err_hint(g->err, "list its packages under requirements");
            return STK_E_SPEC;
        }
        for (const char *word = known[k].packages; *word != '\0';) {
            size_t n = strcspn(word, " ");
            stk_buf_printf(&out, "%.*s\n", (int)n, word);
            word += n + (word[n] == ' ');
        }
    }
    return add_file(g, "integrations.txt", "required_integrations", stk_text_or(out.data, ""),
                    "required_integrations");
}

/* --- pyproject.toml --- */

/* The texts of `dependencies = [ … ]` in the table [project]. False: it has none. */
static bool read_dependencies(const char *text, stk_buf *out)
{
    bool in_project = false;
    for (const char *line = text; line != NULL; line = stk_text_next_line(line)) {
        const char *at = line + strspn(line, " \t");
        if (*at == '[') {
            in_project = strncmp(at, "[project]", 9) == 0;
        }
        size_t key = strlen("dependencies");
        if (!in_project || strncmp(at, "dependencies", key) != 0) {
            continue;
        }
        at += key + strspn(at + key, " \t");
        if (*at == '=') {
            at = at + 1 + strspn(at + 1, " \t");
        }
        if (*at != '[') {
            return false;
        }
        for (at++; *at != '\0' && *at != ']';) {
            if (*at == '"' || *at == '\'') {
                const char *end = strchr(at + 1, *at);
                if (end == NULL) {
                    return false;
                }
                stk_buf_printf(out, "%.*s\n", (int)(end - at - 1), at + 1);
                at = end + 1;
            } else if (*at == '#') {
                at += strcspn(at, "\n");
            } else {
                at++;
            }
        }
        return true;
    }
    return false;
}

static int gather_pyproject(gather *g, const char *path)
{
    STK_TEXT_AUTO full = stk_file_below(g->recipe->folder, path);
    STK_TEXT_AUTO text = NULL;
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_BYTES);
    size_t len = 0;
    const stk_json *command = g->settings->export_command;
    STK_TRY(stk_err_if_null(full, g->err));
    STK_TRY(stk_file_read(full, MAX_BYTES, &text, &len, g->err));
    if (command != NULL && command->kind != STK_JSON_LIST) {
        return stk_err_set(g->err, STK_E_SPEC,
                           "docker: pyproject_export_command must be a list of strings");
    }
    if (command != NULL) {
        const char *folder = stk_arena_dupn(g->arena, full, (size_t)(strrchr(full, '/') - full));
        STK_TRY(run_list(g, command, "pyproject_export_command", folder, &out));
    } else if (!read_dependencies(text, &out)) {
        stk_err_set(g->err, STK_E_SPEC, "%s has no [project] with dependencies", full);
        stk_err_hint(g->err, "set pyproject_export_command to a command that lists them, for "
                             "example [\"poetry\", \"export\", \"--directory\", \"{directory}\"]");
        return STK_E_SPEC;
    }
    return add_file(g, "pyproject.txt", "dependencies of pyproject.toml", stk_text_or(out.data, ""),
                    full);
}

/* --- requirements --- */

static int gather_file(gather *g, const char *name)
{
    STK_TEXT_AUTO path = stk_file_below(g->recipe->folder, name);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    STK_TRY(stk_err_if_null(path, g->err));
    if (stk_file_read(path, MAX_BYTES, &text, &len, g->err) < 0) {
        return stk_err_context(g->err, "docker: requirements");
    }
    return add_file(g, "requirements.txt", "requirements", text, path);
}

static int gather_list(gather *g)
{
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_BYTES);
    for (uint32_t i = 0; g->settings->requirements[i] != NULL; i++) {
        stk_buf_printf(&out, "%s\n", g->settings->requirements[i]);
    }
    return add_file(g, "requirements.txt", "requirements", stk_text_or(out.data, ""),
                    "requirements");
}

/* disable_automatic_requirements_detection=False: what lies in the project's folder. */
static int detect(gather *g)
{
    STK_TEXT_AUTO requirements = stk_file_below(g->recipe->folder, "requirements.txt");
    STK_TEXT_AUTO pyproject = stk_file_below(g->recipe->folder, "pyproject.toml");
    if (requirements != NULL && stk_file_exists(requirements)) {
        return gather_file(g, "requirements.txt");
    }
    if (pyproject != NULL && stk_file_exists(pyproject)) {
        return gather_pyproject(g, "pyproject.toml");
    }
    return 0;
}

int stk_image_gather(const stk_image_recipe *recipe, const stk_image_settings *settings,
                     stk_arena *arena, stk_image_packages ret[STK_IMAGE_PACKAGES], uint32_t *ret_n,
                     stk_buf *notes, stk_err *err)
{
    gather g = {recipe, settings, arena, ret, 0, notes, err};
    bool named = settings->requirements_file != NULL || settings->requirements[0] != NULL ||
                 settings->pyproject_path != NULL || settings->replicate != NULL;
    STK_TRY(gather_local(&g));
    STK_TRY(gather_integrations(&g));
    if (settings->pyproject_path != NULL) {
        STK_TRY(gather_pyproject(&g, settings->pyproject_path));
    }
    if (settings->requirements_file != NULL) {
        STK_TRY(gather_file(&g, settings->requirements_file));
    }
    STK_TRY(gather_list(&g));
    if (settings->detects && !named) {
        STK_TRY(detect(&g));
    }
    *ret_n = g.n;
    return 0;
}
