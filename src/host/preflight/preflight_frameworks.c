/* Do the driver, CUDA, the frameworks' builds and the devices fit together? */
#include <dirent.h>
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
    const char *text; /* after "torch 2.13.0+cpu "; NULL: none */
    const char *remedy;
    bool mild; /* perhaps it works even so */
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

/* "CUDA 12.x", the newest that this host's driver runs. */
static const char *newest_cuda(const judge *j)
{
    int32_t major = stk_preflight_cuda_newest(j->gpus->driver, j->gpus->cuda);
    return major > 0 ? stk_arena_printf(j->arena, "CUDA %d.x", major) : "CUDA";
}

static const char *build_for(const judge *j, const char *vendor)
{
    return strcmp(vendor, "nvidia") == 0   ? newest_cuda(j)
           : strcmp(vendor, "amd") == 0    ? "ROCm"
           : strcmp(vendor, "intel") == 0  ? "Intel's XPU"
           : strcmp(vendor, "google") == 0 ? "TPU"
                                           : "Neuron";
}

/* None of the devices is of a vendor that it can use. */
static void check_build(const judge *j, const stk_framework *f, trouble *t)
{
    const stk_device *first = j->gpus->devices[0];
    const char *vendor = stk_preflight_vendor_name(first->vendor);
    const char *noun = stk_text_or(first->noun, "device");
    const char *kind = f->build == STK_BUILD_CPU ? "is a CPU-only build" : NULL;
    if (kind == NULL) {
        kind = stk_arena_printf(j->arena, "is built for %s's devices only",
                                f->serves[0] != NULL ? stk_preflight_vendor_name(f->serves[0])
                                                     : "other");
    }
    bool plural = j->gpus->n > 1;
    t->text = stk_arena_printf(j->arena, "%s: it can't use %s %s %s%s", kind,
                               plural ? "the" : "this host's", vendor, noun,
                               plural ? "s of this host" : "");
    t->remedy = stk_arena_printf(j->arena, "install a build of %s for %s in its environment",
                                 f->name, build_for(j, first->vendor));
    bool nvidia = strcmp(first->vendor, "nvidia") == 0;
    if (nvidia && strcmp(f->name, "jax") == 0) {
        t->remedy = stk_arena_printf(j->arena,
                                     "install jax's plugin for %s beside it (jax[cuda12], "
                                     "jax[cuda13])",
                                     build_for(j, first->vendor));
    } else if (nvidia && strcmp(f->name, "tensorflow") == 0) {
        t->remedy = "install tensorflow[and-cuda] in its place";
    }
}

static void check_driver(const judge *j, const stk_framework *f, trouble *t)
{
    const stk_gpus *g = j->gpus;
    const char *lowest = f->cuda > 0 ? stk_preflight_cuda_driver(f->cuda / 1000) : NULL;
    if (lowest == NULL || g->driver == NULL ||
        stk_preflight_compare_versions(g->driver, lowest) >= 0) {
        return;
    }
    t->mild = g->compat;
    t->text = stk_arena_printf(
        j->arena, "needs driver %s or newer%s; this host has %s%s", lowest,
        strchr(stk_text_or(f->version, ""), '+') != NULL
            ? ""
            : stk_arena_printf(j->arena, " (CUDA %d)", f->cuda / 1000),
        g->driver, g->compat ? ", and a forward compatibility package that may do" : "");
    t->remedy = stk_arena_printf(
        j->arena,
        "install a build of %s for %s, or a newer driver; on data-centre GPUs the package "
        "cuda-compat-%d-%d runs it on this driver",
        f->name, newest_cuda(j), f->cuda / 1000, f->cuda % 1000 / 10);
}

/* Can it run on a device of this capability? -1 unknown. */
static int runs_on(const stk_framework *f, const stk_device *d, bool *ret_by_ptx)
{
    int32_t cc = d->cc_major < 0 || d->cc_minor < 0 ? -1 : d->cc_major * 10 + d->cc_minor;
    if (cc < 0 || (f->arch_bits == 0 && !f->has_ptx)) {
        return -1;
    }
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
        /* a driver compiles the PTX of its own CUDA and of older ones only */
        bool late = by_ptx && g->cuda > 0 && f->cuda > g->cuda && f->cuda_minor_known;
        if (runs == 0 || late) {
            n_bad++;
            bad = bad != NULL ? bad : g->devices[i];
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
    t->remedy =
        stk_arena_printf(j->arena,
                         newer_device ? "install a newer build of %s, made for this GPU"
                                      : "install an older build of %s, which still has code for it",
                         f->name);
}

static trouble look(const judge *j, const stk_framework *f)
{
    trouble t = {0};
    bool any = false;
    bool nvidia = false;
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
            t.mild = true; /* it may lie where we don't look */
            t.text = "finds no cuDNN: without it, it runs on the CPU";
            t.remedy = "install tensorflow[and-cuda], or put cuDNN's folder into LD_LIBRARY_PATH";
        }
    }
    return t;
}

/* --- all of them --- */

static const char *title(const stk_framework *f, stk_arena *arena)
{
    if (f->version == NULL) {
        return f->name;
    }
    bool told = strchr(f->version, '+') != NULL || f->build != STK_BUILD_CUDA || f->cuda < 0;
    return told ? stk_arena_printf(arena, "%s %s", f->name, f->version)
           : f->cuda_minor_known
               ? stk_arena_printf(arena, "%s %s (CUDA %d.%d)", f->name, f->version, f->cuda / 1000,
                                  f->cuda % 1000 / 10)
               : stk_arena_printf(arena, "%s %s (CUDA %d)", f->name, f->version, f->cuda / 1000);
}

static void tell_ok(const judge *j, const stk_framework *f, const char *named,
                    stk_findings *findings)
{
    const char *code = f->arch_bits == 0 && !f->has_ptx
                           ? ""
                           : stk_arena_printf(j->arena, ", with code for compute capability %s",
                                              stk_preflight_arch_text(f->arch_bits, f->has_ptx,
                                                                      f->ptx_arch, j->arena));
    const char *what = f->build == STK_BUILD_UNKNOWN
                           ? " is installed; how it was built can't be told from its files"
                       : j->gpus->n == 0 && f->build == STK_BUILD_CPU
                           ? " is installed, a CPU-only build"
                       : j->gpus->n == 0 ? " is installed; there is no device for it"
                                         : " fits the driver and the devices";
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

/* A name that isn't one of ours: what it does with devices, nobody knows here. */
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
            troubles[i] = look(&j, &frameworks[i]);
            one_works =
                one_works || (troubles[i].text == NULL && frameworks[i].build != STK_BUILD_UNKNOWN);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_framework *f = &frameworks[i];
        const trouble *t = &troubles[i];
        const char *named = title(f, findings->arena);
        if (!is_used(f->name, uses, n_uses)) {
            continue;
        }
        if (named == NULL) {
            named = f->name;
        }
        if (t->text == NULL) {
            tell_ok(&j, f, named, findings);
            continue;
        }
        stk_check_level level = n_uses == 0 ? STK_CHECK_WARNING : STK_CHECK_ERROR;
        level -= one_works || t->mild ? 1 : 0;
        (void)stk_preflight_add(findings, level, f->name, f->folder, t->remedy, "%s %s", named,
                                t->text);
    }
}

/* NVIDIA's user-space driver for newer toolkits, where CUDA's own packages put it. */
static bool has_compat(void)
{
    if (access("/usr/local/cuda/compat/libcuda.so.1", F_OK) == 0) {
        return true;
    }
    const char *list = getenv("LD_LIBRARY_PATH");
    while (list != NULL && *list != '\0') {
        char path[PATH_MAX];
        int len = (int)strcspn(list, ":");
        (void)snprintf(path, sizeof path, "%.*s/libcuda.so.1", len, list);
        if (len > 0 && strstr(path, "compat") != NULL && access(path, F_OK) == 0) {
            return true;
        }
        list += len + (list[len] == ':');
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
    return findings->arena == NULL ? stk_err_set(err, STK_E_NOMEM, "no memory for the findings")
                                   : 0;
}
