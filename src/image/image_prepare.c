/* The images of a run, before its first task: here or pulled, checked, built. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "image/image_private.h"
#include "sys/file.h"

typedef struct prepare {
    const stk_engine *engine;
    const stk_image_prepare *how;
    stk_accel *accel;
    stk_findings *findings;
    stk_arena *arena;
    stk_err *err;
} prepare;

static void say_progress(const prepare *p, const char *fmt, const char *name)
{
    char line[512];
    if (p->how->say != NULL) {
        (void)snprintf(line, sizeof line, fmt, name);
        p->how->say(p->how->arg, line);
    }
}

/* About devices only: what the user may have meant so. */
static bool may_be_meant(const char *check)
{
    return strcmp(check, "arch") != 0 && strcmp(check, "python") != 0;
}

/* The findings from `first` on: the worst becomes the error. */
static int judge(const prepare *p, const stk_image_want *w, uint32_t first)
{
    for (uint32_t i = first; i < p->findings->n; i++) {
        stk_finding *f = &p->findings->items[i];
        if (f->level == STK_CHECK_ERROR && w->allows_cpu_build && may_be_meant(f->check)) {
            f->level = STK_CHECK_WARNING;
        }
        if (f->level == STK_CHECK_ERROR) {
            stk_err_set(p->err, STK_E_RESOURCES, "step '%s': %s", w->step, f->text);
            STK_BUF_AUTO hint = STK_BUF_INIT(4096);
            stk_buf_text(&hint, stk_text_or(f->remedy, ""));
            if (may_be_meant(f->check)) {
                stk_buf_separate(&hint, "; ");
                stk_buf_text(&hint, "set STOKER_ALLOW_CPU_BUILD=1 to run without devices");
            }
            stk_err_hint(p->err, "%s", stk_text_or(hint.data, ""));
            return STK_E_RESOURCES;
        }
    }
    return 0;
}

static int check_image(const prepare *p, const stk_image_want *w, const stk_image_config *config)
{
    uint32_t first = p->findings->n;
    stk_image_use use = w->use;
    use.arch = stk_text_or(use.arch, p->engine->arch);
    STK_TRY(stk_image_check(config, w->image, p->accel, &use, p->findings, p->err));
    for (uint32_t i = first; stk_image_builds(w->docker) && i < p->findings->n; i++) {
        stk_finding *f = &p->findings->items[i];
        if (f->level == STK_CHECK_ERROR && strcmp(f->check, "image") == 0) {
            f->level = STK_CHECK_NOTE; /* it is the parent's; a look into what is built tells */
        }
    }
    return judge(p, w, first);
}

/* Asks the registry first, so that nothing is pulled that can't be used. */
static int fetch(const prepare *p, stk_image_want *w, stk_image_config *config)
{
    stk_image_ref ref;
    stk_err why = {0};
    const char *arch = stk_text_or(p->engine->arch, stk_image_arch());
    if (stk_image_is_id(w->image)) {
        stk_err_set(p->err, STK_E_NOT_FOUND, "image %s isn't here (%s)", w->image, p->engine->name);
        stk_err_hint(p->err,
                     "only the engine that has an image knows its id; give its name instead");
        return STK_E_NOT_FOUND;
    }
    STK_TRY(stk_image_parse(w->image, p->arena, &ref, p->err));
    if (strcmp(ref.registry, "localhost") == 0) {
        stk_err_set(p->err, STK_E_NOT_FOUND,
                    "image '%s' isn't here (%s), and 'localhost/' isn't a registry", w->image,
                    p->engine->name);
        stk_err_hint(p->err, "build or load it, or correct its name");
        return STK_E_NOT_FOUND;
    }
    int rc = stk_image_remote(&ref, arch, p->arena, config, &why);
    if (rc == 0) {
        STK_TRY(check_image(p, w, config));
    } else if (why.code != STK_E_ENV || strstr(why.text, "refuses") != NULL) {
        *p->err = why;
        return rc;
    } /* else perhaps the engine knows a way that we don't: a proxy, a mirror */
    say_progress(p, "pulling image %s", w->image);
    STK_TRY(stk_image_pull(p->engine, &ref, p->how->say, p->how->arg, p->err));
    STK_TRY(stk_image_local(p->engine, w->image, p->arena, config, p->err));
    w->was_pulled = true;
    return 0;
}

static const char *log_path(const prepare *p, const char *step)
{
    char path[PATH_MAX];
    if (p->how->logs == NULL || stk_file_mkdirs(p->how->logs, 0777, NULL) < 0) {
        return NULL;
    }
    (void)snprintf(path, sizeof path, "%s/build-%s.log", p->how->logs, step);
    return stk_arena_dup(p->arena, path);
}

static int build_image(const prepare *p, stk_image_want *w, stk_image_config *config)
{
    const stk_image_recipe recipe = {.docker = w->docker,
                                     .parent = w->image,
                                     .parent_id = w->image == NULL ? NULL : config->id,
                                     .folder = p->how->folder,
                                     .python = p->how->python,
                                     .registry = p->how->registry};
    stk_image_result result;
    say_progress(p, "image for step '%s': building it, unless it exists", w->step);
    STK_TRY(stk_image_build(p->engine, &recipe, log_path(p, w->step), p->how->say, p->how->arg,
                            p->arena, &result, p->err));
    w->pinned = result.pinned;
    w->was_built = result.was_built;
    if (result.note != NULL && stk_preflight_add(p->findings, STK_CHECK_WARNING, "private", w->step,
                                                 NULL, "step '%s': %s", w->step, result.note) < 0) {
        return stk_err_set(p->err, STK_E_NOMEM, "out of memory for a note");
    }
    return stk_image_local(p->engine, result.id, p->arena, config, p->err);
}

/* What its frameworks are built for: only a look contents tells. */
static int look_at_frameworks(const prepare *p, const stk_image_want *w, const char *id)
{
    stk_image_contents contents;
    stk_findings found = {.arena = p->arena};
    uint32_t first = p->findings->n;
    const char *name = stk_text_or(w->image, "of its own Dockerfile");
    if (!w->use.devices || p->accel == NULL || stk_accel_is_simulated(p->accel)) {
        return 0;
    }
    STK_TRY(stk_image_look_inside(p->engine, id, false, p->arena, &contents, p->err));
    STK_TRY(stk_preflight_frameworks(p->accel, NULL, contents.frameworks, contents.n_frameworks,
                                     w->use.uses, w->use.n_uses, &found, p->err));
    for (uint32_t i = 0; i < found.n; i++) {
        const stk_finding *f = &found.items[i];
        STK_TRY(stk_preflight_add(p->findings, f->level, f->check, f->subject, f->remedy,
                                  "image %s: %s", name, f->text));
    }
    return judge(p, w, first);
}

/* The name by which a registry has it; NULL: none has. */
static const char *pinned(const char *image, const stk_image_config *config, stk_arena *arena)
{
    stk_image_ref ref;
    if (config->digest == NULL || stk_image_is_id(image) ||
        stk_image_parse(image, arena, &ref, NULL) < 0 || strcmp(ref.registry, "localhost") == 0) {
        return NULL;
    }
    return stk_arena_printf(arena, "%s/%s@%s", ref.registry, ref.repository, config->digest);
}

/* The image that is named: here already, or pulled. */
static int have_parent(const prepare *p, stk_image_want *w, stk_image_config *config)
{
    stk_err why = {0};
    int rc = stk_image_local(p->engine, w->image, p->arena, config, &why);
    if (rc == 0) {
        return check_image(p, w, config);
    }
    if (rc == STK_E_NOT_FOUND) {
        return fetch(p, w, config);
    }
    *p->err = why;
    return rc;
}

static int have_image(const prepare *p, stk_image_want *w)
{
    stk_image_config config = {.size_bytes = -1};
    bool builds = stk_image_builds(w->docker);
    if (w->image != NULL) {
        STK_TRY(have_parent(p, w, &config));
    } else if (!builds) {
        return stk_err_set(p->err, STK_E_SPEC, "no image is named; set parent_image");
    }
    if (builds) {
        STK_TRY(build_image(p, w, &config));
    }
    STK_TRY(look_at_frameworks(p, w, config.id));
    w->id = config.id;
    w->workdir = stk_text_or(config.workdir, "");
    w->user = stk_text_or(config.user, "");
    w->env = config.env;
    w->entrypoint = config.entrypoint;
    if (w->pinned == NULL && !builds) {
        w->pinned = pinned(w->image, &config, p->arena);
    }
    return 0;
}

int stk_image_make_ready(const stk_engine *engine, const stk_image_prepare *how,
                         stk_image_want *wants, uint32_t n, stk_accel *accel,
                         stk_findings *findings, stk_err *err)
{
    stk_err own = {0};
    if (err == NULL) {
        err = &own;
    }
    const prepare p = {engine, how, accel, findings, findings->arena, err};
    for (uint32_t i = 0; i < n; i++) {
        int rc = have_image(&p, &wants[i]);
        if (rc < 0 && strncmp(err->text, "step '", 6) != 0) {
            stk_err_context(err, "step '%s'", wants[i].step);
        }
        STK_TRY(rc);
    }
    return 0;
}
