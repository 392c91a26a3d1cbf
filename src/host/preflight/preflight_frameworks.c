/* Checks that the driver, CUDA, the frameworks' builds and the devices fit together. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/text.h"
#include "host/preflight/preflight_private.h"

/* --- one framework --- */

typedef struct trouble {
    const char *text; /* continues "torch 2.13.0+cpu "; NULL: no trouble */
    const char *remedy;
    bool mild; /* it may work nevertheless */
} trouble;

typedef struct judge {
    const stk_gpus *gpus;
    stk_arena *arena;
} judge;

static bool serves(const stk_framework *f, const char *vendor)
{
    for (uint32_t i = 0; f->serves[i] != NULL; i++) {
        if (strcmp(f->serves[i], vendor) == 0) {
            return true;
        }
    }
    return false;
}

/* The newest CUDA that this host's driver runs: "CUDA 12.x". */
static const char *newest_cuda(const judge *j)
{
    int32_t major = stk_preflight_cuda_newest(j->gpus->driver, j->gpus->cuda);
    return major > 0 ? stk_arena_printf(j->arena, "CUDA %d.x", major) : "CUDA";
}

static const char *build_for(const judge *j, const char *vendor)
{
    static const char *const builds[][2] = {
        {"amd", "ROCm"}, {"intel", "Intel's XPU"}, {"google", "TPU"}};
    if (strcmp(vendor, "nvidia") == 0) {
        return newest_cuda(j);
    }
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
        if (strcmp(vendor, builds[i][0]) == 0) {
            return builds[i][1];
        }
    }
    return "Neuron";
}

/* Sets the trouble of a framework that can't use any device's vendor. */
static void check_build(const judge *j, const stk_framework *f, trouble *t)
{
    const stk_device *first = j->gpus->devices[0];
    const char *vendor = stk_accel_vendor_name(first->vendor);
    const char *noun = stk_text_or(first->noun, "device");
    const char *kind = "is a CPU-only build", *other = "other";
    if (f->serves[0] != NULL) {
        other = stk_accel_vendor_name(f->serves[0]);
    }
    if (f->build != STK_BUILD_CPU) {
        kind = stk_arena_printf(j->arena, "is built for %s's devices only", other);
    }
    const char *form = "%s: it can't use this host's %s %s";
    if (j->gpus->n > 1) {
        form = "%s: it can't use the %s %ss of this host";
    }
    t->text = stk_arena_printf(j->arena, form, kind, vendor, noun);
    const char *build = build_for(j, first->vendor);
    bool nvidia = strcmp(first->vendor, "nvidia") == 0;
    if (nvidia && strcmp(f->name, "jax") == 0) {
        t->remedy = stk_arena_printf(j->arena,
                                     "install jax's plugin for %s beside it (jax[cuda12], "
                                     "jax[cuda13])",
                                     build);
    } else if (nvidia && strcmp(f->name, "tensorflow") == 0) {
        t->remedy = "install tensorflow[and-cuda] in its place";
    } else {
        t->remedy = stk_arena_printf(j->arena, "install a build of %s for %s in its environment",
                                     f->name, build);
    }
}

static void check_driver(const judge *j, const stk_framework *f, trouble *t)
{
    const stk_gpus *g = j->gpus;
    const char *lowest = stk_preflight_cuda_driver(f->cuda / 1000);
    char cuda[32] = "";
    if (lowest == NULL || g->driver == NULL ||
        stk_preflight_compare_versions(g->driver, lowest) >= 0) {
        return;
    }
    if (strchr(stk_text_or(f->version, ""), '+') == NULL) {
        (void)snprintf(cuda, sizeof cuda, " (CUDA %d)", f->cuda / 1000);
    }
    t->mild = g->compat;
    t->text = stk_arena_printf(
        j->arena, "needs driver %s or newer%s; this host has %s%s", lowest, cuda, g->driver,
        stk_text_when(g->compat, ", and a forward compatibility package that may do"));
    t->remedy = stk_arena_printf(
        j->arena,
        "install a build of %s for %s, or a newer driver; on data-centre GPUs the package "
        "cuda-compat-%d-%d runs it on this driver",
        f->name, newest_cuda(j), f->cuda / 1000, f->cuda % 1000 / 10);
}

/* Whether the framework's code runs on the device: 1, 0, -1 unknown. */
static int runs_on(const stk_framework *f, const stk_device *d, bool *ret_by_ptx)
{
    if (d->cc_major < 0 || d->cc_minor < 0 || (f->arch_bits == 0 && !f->has_ptx)) {
        return -1;
    }
    int32_t cc = d->cc_major * 10 + d->cc_minor;
    bool native = stk_preflight_arch_runs(f->arch_bits, cc);
    *ret_by_ptx = !native && f->has_ptx && f->ptx_arch <= cc;
    return native || *ret_by_ptx;
}

static void check_capability(const judge *j, const stk_framework *f, trouble *t)
{
    const stk_gpus *g = j->gpus;
    const stk_device *bad = NULL;
    uint32_t n_bad = 0, n_nvidia = 0;
    bool late_ptx = false;
    for (uint32_t i = 0; i < g->n; i++) {
        bool by_ptx = false;
        if (strcmp(g->devices[i]->vendor, "nvidia") != 0) {
            continue;
        }
        n_nvidia++;
        int runs = runs_on(f, g->devices[i], &by_ptx);
        /* A driver compiles only PTX of its CUDA version and older ones. */
        bool late = by_ptx && g->cuda > 0 && f->cuda > g->cuda && f->cuda_minor_known;
        if (runs == 0 || late) {
            if (n_bad++ == 0) {
                bad = g->devices[i];
            }
            late_ptx = late;
        }
    }
    if (bad == NULL) {
        return;
    }
    int32_t cc = bad->cc_major * 10 + bad->cc_minor;
    const char *codes = stk_preflight_arch_text(f->arch_bits, f->has_ptx, f->ptx_arch, j->arena);
    t->mild = n_bad < n_nvidia;
    if (late_ptx) {
        t->text = stk_arena_printf(
            j->arena,
            "has only PTX for %s (compute capability %d.%d), which this driver's CUDA %d.%d can't "
            "compile",
            bad->model, cc / 10, cc % 10, g->cuda / 1000, g->cuda % 1000 / 10);
        t->remedy = stk_arena_printf(
            j->arena, "install a build of %s for CUDA %d.%d or older, or a newer driver", f->name,
            g->cuda / 1000, g->cuda % 1000 / 10);
        return;
    }
    t->text = stk_arena_printf(j->arena, "has no code for %s (compute capability %d.%d); it has %s",
                               bad->model, cc / 10, cc % 10, codes);
    bool newer_device = true;
    for (uint32_t i = 0; i < stk_preflight_n_arches; i++) {
        newer_device =
            newer_device && !((f->arch_bits >> i & 1) != 0 && stk_preflight_arches[i].arch > cc);
    }
    const char *form = "install an older build of %s, which still has code for it";
    if (newer_device) {
        form = "install a newer build of %s, made for this GPU";
    }
    t->remedy = stk_arena_printf(j->arena, form, f->name);
}

static trouble check_framework(const judge *j, const stk_framework *f)
{
    trouble t = {0};
    bool any = false, nvidia = false;
    for (uint32_t i = 0; i < j->gpus->n; i++) {
        any = any || serves(f, j->gpus->devices[i]->vendor);
        nvidia = nvidia || strcmp(j->gpus->devices[i]->vendor, "nvidia") == 0;
    }
    if (f->build == STK_BUILD_UNKNOWN) {
        return t;
    }
    if (!any) {
        check_build(j, f, &t);
    } else if (nvidia && serves(f, "nvidia")) {
        check_driver(j, f, &t);
        if (t.text == NULL) {
            check_capability(j, f, &t);
        }
        if (t.text == NULL && f->lacks_cudnn) {
            t.mild = true; /* cuDNN may be in another place */
            t.text = "finds no cuDNN: without it, it runs on the CPU";
            t.remedy = "install tensorflow[and-cuda], or put cuDNN's folder into LD_LIBRARY_PATH";
        }
    }
    return t;
}

/* --- all frameworks --- */

static const char *title(const stk_framework *f, stk_arena *arena)
{
    if (f->version == NULL) {
        return f->name;
    }
    if (strchr(f->version, '+') != NULL || f->build != STK_BUILD_CUDA || f->cuda < 0) {
        return stk_arena_printf(arena, "%s %s", f->name, f->version);
    }
    if (f->cuda_minor_known) {
        return stk_arena_printf(arena, "%s %s (CUDA %d.%d)", f->name, f->version, f->cuda / 1000,
                                f->cuda % 1000 / 10);
    }
    return stk_arena_printf(arena, "%s %s (CUDA %d)", f->name, f->version, f->cuda / 1000);
}

static void tell_ok(const judge *j, const stk_framework *f, const char *named,
                    stk_findings *findings)
{
    const char *code = "", *what = " fits the driver and the devices";
    if (f->arch_bits != 0 || f->has_ptx) {
        code = stk_arena_printf(
            j->arena, ", with code for compute capability %s",
            stk_preflight_arch_text(f->arch_bits, f->has_ptx, f->ptx_arch, j->arena));
    }
    if (f->build == STK_BUILD_UNKNOWN) {
        what = " is installed; its files don't show how it was built";
    } else if (j->gpus->n == 0 && f->build == STK_BUILD_CPU) {
        what = " is installed, a CPU-only build";
    } else if (j->gpus->n == 0) {
        what = " is installed; there is no device for it";
    }
    (void)stk_preflight_add(findings, STK_CHECK_OK, f->name, f->folder, NULL, "%s%s%s", named, what,
                            code);
}

static bool is_used(const char *name, const char *const *uses, uint32_t n_uses)
{
    for (uint32_t i = 0; i < n_uses; i++) {
        if (strcmp(uses[i], name) == 0) {
            return true;
        }
    }
    return n_uses == 0;
}

/* Whether the steps use a framework that we don't know, so that we can't tell how it uses
 * devices. */
static bool names_another(const char *const *uses, uint32_t n_uses)
{
    static const char *const ours[] = {
#define X(name, ...) name,
#include "tbl/frameworks.def"
#undef X
    };
    bool another = false;
    for (uint32_t i = 0; i < n_uses && !another; i++) {
        another = true;
        for (size_t k = 0; k < sizeof ours / sizeof ours[0] && another; k++) {
            another = strcmp(uses[i], ours[k]) != 0;
        }
    }
    return another;
}

void stk_preflight_judge(const stk_gpus *gpus, const stk_framework *frameworks, uint32_t n,
                         const char *const *uses, uint32_t n_uses, stk_findings *findings)
{
    const judge j = {gpus, findings->arena};
    trouble troubles[STK_PREFLIGHT_FRAMEWORKS] = {0};
    bool one_works = names_another(uses, n_uses);
    n = MIN(n, STK_PREFLIGHT_FRAMEWORKS);
    for (uint32_t i = 0; i < n; i++) {
        if (is_used(frameworks[i].name, uses, n_uses) && gpus->n > 0) {
            troubles[i] = check_framework(&j, &frameworks[i]);
            one_works =
                one_works || (troubles[i].text == NULL && frameworks[i].build != STK_BUILD_UNKNOWN);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_framework *f = &frameworks[i];
        const trouble *t = &troubles[i];
        const char *named = stk_text_or(title(f, findings->arena), f->name);
        if (!is_used(f->name, uses, n_uses)) {
            continue;
        }
        if (t->text == NULL) {
            tell_ok(&j, f, named, findings);
            continue;
        }
        stk_check_level level = n_uses == 0 ? STK_CHECK_WARNING : STK_CHECK_ERROR;
        level -= one_works || t->mild;
        (void)stk_preflight_add(findings, level, f->name, f->folder, t->remedy, "%s %s", named,
                                t->text);
    }
}

/* Whether NVIDIA's user-space driver for newer toolkits is where CUDA's packages install it. */
static bool has_compat(void)
{
    char path[PATH_MAX];
    if (access("/usr/local/cuda/compat/libcuda.so.1", F_OK) == 0) {
        return true;
    }
    for (const char *list = getenv("LD_LIBRARY_PATH"); stk_preflight_next_folder(&list, path);) {
        (void)snprintf(path + strlen(path), sizeof path - strlen(path), "/libcuda.so.1");
        if (strstr(path, "compat") != NULL && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

int stk_preflight_frameworks(stk_accel *accel, const stk_devset *devices,
                             const stk_framework *frameworks, uint32_t n_frameworks,
                             const char *const *uses, uint32_t n_uses, stk_findings *findings,
                             stk_err *err)
{
    const stk_device *list[STK_LIMIT_DEVICES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_accel_n_devices(accel) && i < STK_LIMIT_DEVICES; i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (d->usable && d->vendor != NULL && (devices == NULL || stk_devset_has(devices, i))) {
            list[n++] = d;
        }
    }
    const stk_gpus gpus = {.devices = list,
                           .n = n,
                           .driver = stk_accel_driver(accel),
                           .cuda = stk_accel_cuda_version(accel),
                           .compat = has_compat()};
    stk_preflight_judge(&gpus, frameworks, n_frameworks, uses, n_uses, findings);
    return stk_err_need(findings->arena, "for the findings", err);
}
