/* What would an installation replace? Asked of the resolver itself, in a container of the parent,
 * before anything is built: `pip install` replaces a CUDA build of torch by another one without a
 * word, and then the step runs on the CPU or not at all. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_private.h"
#include "image/image_recipe.h"
#include "sys/file.h"

#define INSIDE "/stoker/requirements"

enum { MAX_PLAN = 16 << 20, MAX_PLANNED = 4096 };

/* A distribution that decides for which devices a framework is built. */
static const struct {
    const char *distribution, *framework; /* prefix where it ends in '*' */
} builds[] = {{"torch", "torch"},
              {"tensorflow", "tensorflow"},
              {"tensorflow-cpu", "tensorflow"},
              {"tensorflow-gpu", "tensorflow"},
              {"tf-nightly*", "tensorflow"},
              {"jaxlib", "jax"},
              {"jax-cuda*", "jax"},
              {"cupy*", "cupy"}};

/* --- reading --- */

static void add_planned(stk_image_planned *ret, uint32_t n_max, uint32_t *n, const char *name,
                        const char *version)
{
    if (name != NULL && version != NULL && *n < n_max) {
        ret[(*n)++] = (stk_image_planned){name, version};
    }
}

static bool read_report(const char *text, stk_arena *arena, stk_image_planned *ret, uint32_t n_max,
                        uint32_t *n)
{
    static const stk_json_limits limits = {MAX_PLAN, 2000000, STK_LIMIT_DEPTH};
    const char *begin = strchr(text, '{');
    stk_json root;
    if (begin == NULL ||
        stk_json_parse(begin, strlen(begin), "report", &limits, arena, &root, NULL) < 0) {
        return false;
    }
    const stk_json *list = stk_json_get(&root, "install");
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *metadata = stk_json_get(&list->items[i], "metadata");
        if (metadata != NULL) {
            add_planned(ret, n_max, n, stk_json_get_text(metadata, "name"),
                        stk_json_get_text(metadata, "version"));
        }
    }
    return list != NULL;
}

/* uv: " + torch==2.9.0", " ~ torch==2.9.0 (from …)". */
static bool read_lines(const char *text, stk_arena *arena, stk_image_planned *ret, uint32_t n_max,
                       uint32_t *n)
{
    bool known = strstr(text, "Would ") != NULL || strstr(text, "Audited ") != NULL;
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *equals = memmem(line, len, "==", 2);
        if (equals != NULL && len >= 5 && line[0] == ' ' && (line[1] == '+' || line[1] == '~') &&
            line[2] == ' ') {
            size_t left = (size_t)(line + len - equals - 2);
            size_t size = strcspn(equals + 2, " \r\n");
            add_planned(ret, n_max, n, stk_arena_dupn(arena, line + 3, (size_t)(equals - line - 3)),
                        stk_arena_dupn(arena, equals + 2, MIN(size, left)));
        }
        line += len + (line[len] == '\n');
    }
    return known || *n > 0;
}

bool stk_image_plan_read(const char *text, stk_arena *arena, stk_image_planned *ret, uint32_t n_max,
                         uint32_t *ret_n)
{
    *ret_n = 0;
    return read_report(text, arena, ret, n_max, ret_n) ||
           read_lines(text, arena, ret, n_max, ret_n);
}

/* --- judging --- */

/* Names are equal whatever their case, '_' for '-'. */
static bool is_named(const char *name, const char *pattern)
{
    size_t n = strcspn(pattern, "*");
    for (size_t i = 0; i < n; i++) {
        char c = (char)tolower((unsigned char)name[i]);
        if (c == '_' || c == '.') {
            c = '-';
        }
        if (c != pattern[i]) {
            return false;
        }
    }
    return pattern[n] == '*' || name[n] == '\0';
}

static const stk_framework *replaced_by(const stk_image_planned *p,
                                        const stk_image_contents *contents)
{
    for (size_t i = 0; i < sizeof builds / sizeof builds[0]; i++) {
        for (uint32_t k = 0;
             is_named(p->name, builds[i].distribution) && k < contents->n_frameworks; k++) {
            const stk_framework *f = &contents->frameworks[k];
            if (strcmp(f->name, builds[i].framework) == 0 &&
                (f->build == STK_BUILD_CUDA || f->build == STK_BUILD_ROCM)) {
                return f;
            }
        }
    }
    return NULL;
}

/* "+cu126", "+rocm6.2": somebody asked for just that build. */
static bool is_chosen(const char *version)
{
    const char *plus = strchr(version, '+');
    return plus != NULL && (strncmp(plus, "+cu", 3) == 0 || strncmp(plus, "+rocm", 5) == 0);
}

static void say_build(const stk_framework *f, char *text, size_t size)
{
    static const char *const words[] = {[STK_BUILD_UNKNOWN] = "an unknown build",
                                        [STK_BUILD_CPU] = "a CPU build",
                                        [STK_BUILD_CUDA] = "a CUDA build",
                                        [STK_BUILD_ROCM] = "a ROCm build",
                                        [STK_BUILD_OTHER] = "another build"};
    if (f->build == STK_BUILD_CUDA && f->cuda > 0) {
        (void)snprintf(text, size, "built for CUDA %d.%d", f->cuda / 1000, f->cuda % 1000 / 10);
    } else {
        (void)snprintf(text, size, "%s", words[f->build]);
    }
}

/* What the image has can be had: that version of that distribution. Of torch also the asked version
 * for the image's own CUDA, since its builds are named so. */
static void hint_at(const stk_framework *f, const char *distribution, const char *version,
                    stk_err *err)
{
    char more[128] = "";
    bool own = strcmp(f->name, "torch") == 0 || strcmp(f->name, "tensorflow") == 0;
    if (strcmp(f->name, "torch") == 0 && f->build == STK_BUILD_CUDA && f->cuda > 0) {
        (void)snprintf(more, sizeof more, ", or ask for the build for its CUDA (torch==%.*s+cu%d)",
                       (int)strcspn(version, "+"), version, f->cuda / 100 + f->cuda % 1000 / 10);
    }
    stk_err_hint(
        err,
        "pin the version of the image (%s==%s), or remove the requirement that asks for another%s",
        own ? f->name : distribution, stk_text_or(f->version, version), more);
}

int stk_image_plan_compare(const stk_image_contents *parent, const stk_image_contents *built,
                           const char *name, stk_err *err)
{
    for (uint32_t i = 0; i < parent->n_frameworks; i++) {
        const stk_framework *was = &parent->frameworks[i];
        for (uint32_t k = 0; k < built->n_frameworks; k++) {
            const stk_framework *is = &built->frameworks[k];
            bool has_build = was->build == STK_BUILD_CUDA || was->build == STK_BUILD_ROCM;
            bool same = is->build == was->build && is->cuda == was->cuda;
            const char *version = stk_text_or(is->version, "?");
            if (strcmp(was->name, is->name) != 0 || !has_build || same || is_chosen(version)) {
                continue;
            }
            char before[64], after[64];
            say_build(was, before, sizeof before);
            say_build(is, after, sizeof after);
            stk_err_set(err, STK_E_RESOURCES, "the build on %s replaces its %s %s, %s, with %s, %s",
                        name, was->name, stk_text_or(was->version, "?"), before, version, after);
            hint_at(was, was->name, version, err);
            return STK_E_RESOURCES;
        }
    }
    return 0;
}

int stk_image_plan_judge(const stk_image_planned *planned, uint32_t n,
                         const stk_image_contents *contents, const char *parent, stk_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const stk_framework *f = replaced_by(&planned[i], contents);
        if (f == NULL || is_chosen(planned[i].version)) {
            continue;
        }
        char built[64];
        say_build(f, built, sizeof built);
        stk_err_set(
            err, STK_E_RESOURCES,
            "the requirements would replace %s %s of %s, %s, with %s %s, which is another build",
            f->name, stk_text_or(f->version, "?"), parent, built, planned[i].name,
            planned[i].version);
        hint_at(f, planned[i].name, planned[i].version, err);
        return STK_E_RESOURCES;
    }
    return 0;
}

/* --- asking --- */

static int write_files(const stk_image_make *make, const char *folder, stk_buf *words, stk_err *err)
{
    for (uint32_t i = 0; i < make->n_packages; i++) {
        const char *text = make->packages[i].text;
        STK_TEXT_AUTO path = stk_file_join(folder, make->packages[i].file);
        STK_TRY(stk_err_need(path, "for requirements", err));
        STK_TRY(stk_file_write(path, text, strlen(text), 0644, err));
        stk_buf_printf(words, " -r " INSIDE "/%s", make->packages[i].file);
    }
    return 0;
}

/* In the parent's own shell, with the parent's own environment. */
static void put_script(const stk_image_make *make, const char *files, stk_buf *script)
{
    const stk_image_settings *s = &make->settings;
    if (s->uses_uv) {
        stk_buf_printf(script,
                       "if command -v uv > /dev/null; then uv pip install --dry-run --python "
                       "\"$(command -v python3)\" --break-system-packages%s%s 2>&1; exit; fi\n",
                       s->installer_args, files);
    }
    stk_buf_printf(script,
                   "PIP_BREAK_SYSTEM_PACKAGES=1 exec python3 -m pip install --dry-run --quiet "
                   "--disable-pip-version-check --report -%s%s\n",
                   s->installer_args, files);
}

static int ask_resolver(const stk_engine *engine, const stk_image_make *make, const char *parent_id,
                        const char *folder, stk_arena *arena, stk_buf *out, stk_buf *log,
                        int *status, stk_err *err)
{
    STK_BUF_AUTO files = STK_BUF_INIT(64 << 10);
    STK_BUF_AUTO script = STK_BUF_INIT(256 << 10);
    STK_TRY(write_files(make, folder, &files, err));
    put_script(make, files.data, &script);
    const char *bind = stk_arena_printf(arena, "%s:" INSIDE ":ro", folder);
    const char *const argv[] = {"/bin/sh", "-c", script.data, NULL};
    const char *const binds[] = {bind, NULL};
    const stk_image_try what = {.id = parent_id, .argv = argv, .binds = binds, .network = "host"};
    STK_TRY(stk_err_need(bind, "for requirements", err));
    STK_TRY(stk_buf_check(&script, err));
    return stk_image_run(engine, &what, arena, out, log, status, err);
}

int stk_image_plan_check(const stk_engine *engine, const stk_image_make *make, const char *parent,
                         const char *parent_id, stk_arena *arena, stk_err *err)
{
    stk_image_contents contents = {0};
    bool built = false;
    if (make->n_packages == 0) {
        return 0;
    }
    STK_TRY(stk_image_look_inside(engine, parent_id, false, arena, &contents, err));
    for (uint32_t i = 0; i < contents.n_frameworks; i++) {
        built = built || contents.frameworks[i].build == STK_BUILD_CUDA ||
                contents.frameworks[i].build == STK_BUILD_ROCM;
    }
    if (!built) {
        return 0; /* nothing that could be broken */
    }
    char folder[] = "/tmp/stoker-plan-XXXXXX";
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_PLAN);
    STK_BUF_AUTO log = STK_BUF_INIT(MAX_PLAN);
    stk_image_planned *planned = stk_arena_array(arena, MAX_PLANNED, sizeof *planned);
    uint32_t n = 0;
    int status = 0;
    if (planned == NULL || mkdtemp(folder) == NULL) {
        return stk_err_set(err, STK_E_SYS, "no folder for requirements below /tmp");
    }
    int rc = ask_resolver(engine, make, parent_id, folder, arena, &out, &log, &status, err);
    (void)stk_file_remove_tree(folder, NULL);
    if (rc == 0 && status == 0 &&
        stk_image_plan_read(stk_text_or(out.data, ""), arena, planned, MAX_PLANNED, &n)) {
        rc = stk_image_plan_judge(planned, n, &contents, parent, err);
    }
    /* a resolver that fails now fails in the build as well, with its log; one that is too old to
     * plan (pip before 22.2) leaves it to the look into what was built */
    return rc;
}
