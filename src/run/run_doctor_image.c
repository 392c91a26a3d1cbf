/* `stoker doctor --image` and `--compare`: findings about images. */
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "image/image.h"
#include "image/stack/stack.h"
#include "run/run_doctor.h"
#include "run/run_python.h"

#define add(f, ...) (void)stk_preflight_add(f, __VA_ARGS__)

static bool has_devices(const stk_accel *accel)
{
    for (uint32_t i = 0; accel != NULL && i < stk_accel_n_devices(accel); i++) {
        if (stk_accel_device(accel, i)->usable) {
            return true;
        }
    }
    return false;
}

static void add_error(stk_findings *f, stk_check_level level, const char *check, const char *name,
                      const stk_err *err)
{
    add(f, level, check, name, stk_text_if_any(err->hint), "%s", err->text);
}

static const char *size_text(int64_t bytes, char *buf, size_t size)
{
    return bytes < 0 ? "size unknown" : stk_units_format_memory(bytes, buf, size);
}

/* --- is it available --- */

static const char *arch_of(const stk_engine *engine)
{
    return stk_text_or(engine != NULL ? engine->arch : NULL, stk_image_arch());
}

/* Reads the image's configuration from the engine or its registry; false if neither has it. */
static bool find_image(const stk_engine *engine, const char *name, stk_image_config *config,
                       bool *ret_here, stk_findings *f)
{
    stk_err err = {0};
    stk_image_ref ref;
    char size[32];
    *ret_here = engine != NULL && stk_image_local(engine, name, f->arena, config, &err) == 0;
    if (*ret_here) {
        add(f, STK_CHECK_OK, "image", name, NULL, "image '%s' is here (%s): %.19s, %s", name,
            engine->name, config->id, size_text(config->size_bytes, size, sizeof size));
        return true;
    }
    if (engine != NULL && err.code != STK_E_NOT_FOUND) {
        add_error(f, STK_CHECK_WARNING, "image", name, &err);
    }
    if (stk_image_parse(name, f->arena, &ref, &err) < 0) {
        add_error(f, STK_CHECK_ERROR, "image", name, &err);
        return false;
    }
    if (strcmp(ref.registry, "localhost") == 0) {
        add(f, STK_CHECK_ERROR, "image", name, "build or load it, or correct its name",
            "image '%s' isn't here, and 'localhost/' is no registry", name);
        return false;
    }
    if (stk_image_remote(&ref, arch_of(engine), f->arena, config, &err) < 0) {
        add_error(f, STK_CHECK_ERROR, "pull", name, &err);
        return false;
    }
    add(f, STK_CHECK_OK, "pull", name, NULL, "image '%s' can be pulled from %s: %s, %s compressed",
        name, ref.registry, config->digest, size_text(config->size_bytes, size, sizeof size));
    return true;
}

/* Runs a container with the host's GPUs, if it has any. If the engine can't pass them, that is a
 * finding, and the container runs without. */
static int look_inside(const stk_engine *engine, const char *name, const char *id, stk_accel *accel,
                       stk_image_contents *in, stk_findings *f, stk_err *err)
{
    stk_err why = {0};
    bool gpus = stk_accel_driver(accel) != NULL && has_devices(accel) &&
                (engine->has_nvidia || engine->has_cdi);
    if (gpus && stk_image_look_inside(engine, id, true, f->arena, in, &why) == 0) {
        return 0;
    }
    if (gpus) {
        add_error(f, STK_CHECK_WARNING, "driver", name, &why);
    }
    return stk_image_look_inside(engine, id, false, f->arena, in, err);
}

/* Adds findings from the image's configuration and programs. */
static void add_inside(const char *name, const stk_image_contents *in, stk_accel *accel,
                       stk_findings *f)
{
    stk_findings own = {.arena = f->arena};
    bool nvidia = accel != NULL && stk_accel_driver(accel) != NULL;
    if (in->python == NULL) {
        add(f, STK_CHECK_NOTE, "python", name, NULL,
            "image '%s' has no Python in its PATH: steps that are commands can run in it", name);
    } else if (stk_preflight_compare_versions(in->python, "3.7") < 0) {
        add(f, STK_CHECK_ERROR, "python", name, "take a newer image",
            "image '%s' has Python %s (%s): Python steps need 3.7 or newer", name, in->python,
            in->python_path);
    } else {
        add(f, STK_CHECK_OK, "python", name, NULL, "image '%s' has Python %s (%s)", name,
            in->python, in->python_path);
    }
    if (in->nvcc != NULL) {
        add(f, STK_CHECK_OK, "nvcc", name, NULL, "image '%s' has CUDA's compiler%s%s", name,
            *in->nvcc != '\0' ? ", toolkit " : "", in->nvcc);
    } else {
        add(f, STK_CHECK_OK, "nvcc", name, NULL,
            "image '%s' has no CUDA compiler (nvcc): only programs that compile need it", name);
    }
    if (in->libcuda != NULL) {
        add(f, STK_CHECK_OK, "driver", name, NULL, "the driver's library is in a container: %s",
            in->libcuda);
    } else if (nvidia) {
        add(f, STK_CHECK_WARNING, "driver", name,
            "install nvidia-container-toolkit, then: nvidia-ctk cdi generate "
            "--output=/etc/cdi/nvidia.yaml",
            "the driver's library (libcuda.so.1) isn't in a container of image '%s': the container "
            "engine passed no GPU",
            name);
    }
    if (in->n_frameworks == 0) {
        add(f, STK_CHECK_NOTE, "framework", name, NULL,
            "image '%s' has neither torch, TensorFlow, JAX nor CuPy for its Python", name);
    } else if (accel != NULL) {
        (void)stk_preflight_frameworks(accel, NULL, in->frameworks, in->n_frameworks, NULL, 0, &own,
                                       NULL);
    }
    for (uint32_t i = 0; i < own.n; i++) {
        add(f, own.items[i].level, own.items[i].check, own.items[i].subject, own.items[i].remedy,
            "image '%s': %s", name, own.items[i].text);
    }
}

/* Checks the contents of an available image; pulls it if it isn't `here`. */
static int look_into(const stk_engine *engine, const char *name, bool here,
                     stk_image_config *config, stk_accel *accel, stk_findings *f, stk_err *err)
{
    stk_image_contents in;
    if (!here) {
        stk_image_ref ref;
        STK_TRY(stk_image_parse(name, f->arena, &ref, err));
        STK_TRY(stk_image_pull(engine, &ref, NULL, NULL, err));
        STK_TRY(stk_image_local(engine, name, f->arena, config, err));
    }
    STK_TRY(look_inside(engine, name, config->id, accel, &in, f, err));
    add_inside(name, &in, accel, f);
    return 0;
}

void stk_run_doctor_image(const char *name, bool inside, stk_accel *accel, stk_findings *findings)
{
    stk_engine engine;
    stk_err err = {0};
    stk_image_config config;
    bool here = false;
    const stk_image_use use = {.devices = has_devices(accel), .python = true};
    bool found = stk_engine_find(NULL, findings->arena, &engine, &err) == 0;
    if (!found) {
        add_error(findings, inside ? STK_CHECK_ERROR : STK_CHECK_NOTE, "engine", NULL, &err);
    }
    if (!find_image(found ? &engine : NULL, name, &config, &here, findings)) {
        return;
    }
    if (stk_image_check(&config, name, accel, &use, findings, &err) < 0) {
        add_error(findings, STK_CHECK_ERROR, "image", name, &err);
    }
    if (inside && found && look_into(&engine, name, here, &config, accel, findings, &err) < 0) {
        add_error(findings, STK_CHECK_ERROR, "inside", name, &err);
    }
}

/* --- two stacks --- */

typedef struct side {
    const char *stack, *where; /* "this host", "image 'x'" */
    const char *cuda, *framework, *version, *python;
} side;

static const char *cuda_text(int32_t cuda, stk_arena *arena)
{
    if (cuda <= 0) {
        return NULL;
    }
    return stk_arena_printf(arena, "%d.%d", cuda / 1000, cuda % 1000 / 10);
}

static void take_framework(side *s, const stk_framework *f, stk_arena *arena)
{
    s->framework = f->name;
    s->version = f->version;
    const char *cuda = cuda_text(f->cuda, arena);
    s->cuda = stk_text_or(cuda, s->cuda);
}

static void read_host(const char *python, side *s, stk_findings *f)
{
    stk_environment environment;
    stk_framework found[STK_PREFLIGHT_FRAMEWORKS];
    uint32_t n = 0;
    s->where = "this host";
    if (stk_preflight_environment(stk_run_python(python, f->arena), f->arena, &environment, NULL) <
        0) {
        return;
    }
    s->python = environment.version;
    if (stk_preflight_find(NULL, environment.sys_path, f->arena, found, STK_PREFLIGHT_FRAMEWORKS,
                           &n, NULL) == 0 &&
        n > 0) {
        take_framework(s, &found[0], f->arena);
    }
}

/* Reads the image itself if it is here, else asks its registry, else reads its name. */
static void read_image(const stk_stack *stack, const char *image, side *s, stk_findings *f)
{
    stk_engine engine;
    stk_image_config config;
    stk_image_facts facts;
    stk_image_contents in;
    stk_image_ref ref;
    stk_err err = {0};
    s->where = stk_arena_printf(f->arena, "image '%s'", image);
    bool asked = stk_engine_find(stack->socket, f->arena, &engine, NULL) == 0;
    bool here = asked && stk_image_local(&engine, image, f->arena, &config, NULL) == 0;
    bool known = here;
    if (!here && stk_image_parse(image, f->arena, &ref, NULL) == 0) {
        known =
            stk_image_remote(&ref, arch_of(asked ? &engine : NULL), f->arena, &config, &err) == 0;
    }
    if (!known) {
        add(f, STK_CHECK_NOTE, "image", image, NULL,
            "image '%s' can't be inspected (%s): only its name is compared", image,
            err.text[0] != '\0' ? err.text : "it isn't here");
    }
    if (stk_image_facts_of(image, known ? &config : NULL, f->arena, &facts, NULL) == 0) {
        s->cuda = cuda_text(facts.cuda, f->arena);
        s->framework = facts.framework;
        s->version = facts.version;
        s->python = facts.python;
    }
    if (here && stk_image_look_inside(&engine, config.id, false, f->arena, &in, NULL) == 0) {
        s->python = stk_text_or(in.python, s->python);
        if (in.n_frameworks > 0) {
            take_framework(s, &in.frameworks[0], f->arena);
        }
    }
}

static int read_side(const char *name, const char *python, side *s, stk_findings *f, stk_err *err)
{
    stk_stack stack;
    *s = (side){.stack = name};
    STK_TRY(stk_stack_find(".", name, f->arena, &stack, err));
    if (stack.kind == STK_PLACE_LOCAL) {
        read_host(python, s, f);
    } else if (stack.default_image == NULL) {
        s->where = "no default_image";
        add(f, STK_CHECK_NOTE, "image", name, "name one under default_image in stoker.yaml",
            "stack '%s' names no image: each step names its own", name);
    } else {
        read_image(&stack, stk_stack_map(&stack, stack.default_image, f->arena), s, f);
    }
    return 0;
}

static void compare_versions(const char *what, const char *check, const char *x, const char *y,
                             const side *a, const side *b, stk_findings *f)
{
    if (x == NULL && y != NULL) { /* the first version must be known */
        compare_versions(what, check, y, x, b, a, f);
    } else if (x == NULL) {
        add(f, STK_CHECK_NOTE, check, NULL, NULL, "%s: unknown in both", what);
    } else if (y == NULL) {
        add(f, STK_CHECK_NOTE, check, NULL, NULL,
            "%s: stack '%s' has %s (%s); for stack '%s' (%s) it is unknown", what, a->stack, x,
            a->where, b->stack, b->where);
    } else if (strcmp(x, y) != 0) {
        add(f, STK_CHECK_WARNING, check, NULL,
            "use images (or an environment) with the same versions, or expect results to differ",
            "%s differs: stack '%s' has %s (%s), stack '%s' has %s (%s)", what, a->stack, x,
            a->where, b->stack, y, b->where);
    } else {
        add(f, STK_CHECK_OK, check, NULL, NULL, "%s is the same: %s", what, x);
    }
}

/* "3.11" of "3.11.2": images may know only this of their Python. */
static const char *minor_of(const char *version, stk_arena *arena)
{
    const char *dot = version == NULL ? NULL : strchr(version, '.');
    if (dot == NULL) {
        return version;
    }
    return stk_arena_dupn(arena, version, (size_t)(dot + 1 - version) + strcspn(dot + 1, "."));
}

int stk_run_doctor_compare(const char *a, const char *b, const char *python, stk_accel *accel,
                           stk_findings *findings, stk_err *err)
{
    side x, y;
    STK_TRY(read_side(a, python, &x, findings, err));
    STK_TRY(read_side(b, python, &y, findings, err));
    const char *driver = accel != NULL ? stk_accel_driver(accel) : NULL;
    if (driver != NULL) {
        add(findings, STK_CHECK_OK, "driver", NULL, NULL, "this host's driver %s runs CUDA %d.x",
            driver, stk_preflight_cuda_newest(driver, stk_accel_cuda_version(accel)));
    }
    compare_versions("CUDA", "cuda", x.cuda, y.cuda, &x, &y, findings);
    compare_versions("the framework", "framework", x.framework, y.framework, &x, &y, findings);
    if (x.framework != NULL && y.framework != NULL && strcmp(x.framework, y.framework) == 0) {
        compare_versions(x.framework, "framework", x.version, y.version, &x, &y, findings);
    }
    compare_versions("Python", "python", minor_of(x.python, findings->arena),
                     minor_of(y.python, findings->arena), &x, &y, findings);
    return 0;
}
