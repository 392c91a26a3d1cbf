/* Does an image fit the host and what its steps do? From its name and configuration alone. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/utsname.h>

#include "base/text.h"
#include "image/image_private.h"

/* --- the host --- */

const char *stk_image_arch(void)
{
    static const char *const names[][2] = {{"x86_64", "amd64"},
                                           {"aarch64", "arm64"},
                                           {"armv7l", "arm"},
                                           {"i686", "386"},
                                           {"ppc64le", "ppc64le"}};
    struct utsname here;
    for (size_t i = 0; uname(&here) == 0 && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i][0], here.machine) == 0) {
            return names[i][1];
        }
    }
    return "amd64";
}

const char *stk_image_brand(const char *model)
{
    /* the first that is in the model's name */
    static const char *const brands[][2] = {{"GeForce RTX", "geforcertx"},
                                            {"GeForce", "geforce"},
                                            {"Quadro RTX", "quadrortx"},
                                            {"Quadro", "quadro"},
                                            {"TITAN RTX", "titanrtx"},
                                            {"TITAN", "titan"},
                                            {"Tesla", "tesla"},
                                            {"RTX", "nvidiartx"},
                                            {"GRID", "grid"},
                                            {"NVIDIA", "nvidia"}};
    for (size_t i = 0; model != NULL && i < sizeof brands / sizeof brands[0]; i++) {
        if (strstr(model, brands[i][0]) != NULL) {
            return brands[i][1];
        }
    }
    return NULL;
}

void stk_image_host_of(const stk_accel *accel, const char *arch, stk_arena *arena,
                       stk_image_host *ret)
{
    *ret = (stk_image_host){.arch = stk_text_or(arch, stk_image_arch()), .cuda = -1};
    if (accel == NULL) {
        return;
    }
    ret->driver = stk_accel_driver(accel);
    ret->cuda = stk_accel_cuda_version(accel);
    for (uint32_t i = 0, n_vendors = 0; i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (!d->usable || d->vendor == NULL) {
            continue;
        }
        if (strcmp(d->vendor, "nvidia") == 0 && ret->brand == NULL) {
            ret->brand = stk_image_brand(d->model);
            ret->capability = NULL;
            if (d->cc_major >= 0 && d->cc_minor >= 0) {
                ret->capability = stk_arena_printf(arena, "%d.%d", d->cc_major, d->cc_minor);
            }
        }
        uint32_t k = 0;
        while (k < n_vendors && strcmp(ret->vendors[k], d->vendor) != 0) {
            k++;
        }
        if (k == n_vendors && n_vendors + 1 < sizeof ret->vendors / sizeof ret->vendors[0]) {
            ret->vendors[n_vendors++] = d->vendor;
        }
    }
}

/* --- the rules --- */

typedef struct judge {
    const stk_image_config *image;
    const stk_image_facts *facts;
    const char *name;
    const stk_image_host *host;
    const stk_image_use *use;
    stk_findings *findings;
} judge;

static const char *vendor_of(int made_for)
{
    static const char *const vendors[] = {
        [STK_IMAGE_FOR_NVIDIA] = "nvidia", [STK_IMAGE_FOR_AMD] = "amd",
        [STK_IMAGE_FOR_INTEL] = "intel",   [STK_IMAGE_FOR_AWS] = "aws",
        [STK_IMAGE_FOR_GOOGLE] = "google",
    };
    return vendors[made_for];
}

static bool has_vendor(const stk_image_host *host, const char *vendor)
{
    for (uint32_t i = 0; host->vendors[i] != NULL; i++) {
        if (strcmp(host->vendors[i], vendor) == 0) {
            return true;
        }
    }
    return false;
}

static const char *framework_of(const judge *j)
{
    return stk_text_or(j->facts->framework, j->use->n_uses > 0 ? j->use->uses[0] : NULL);
}

/* "take pytorch/pytorch:…, whose CUDA this driver runs". */
static const char *instead(const judge *j)
{
    if (has_vendor(j->host, "amd") && !has_vendor(j->host, "nvidia")) {
        const char *framework = framework_of(j);
        if (framework != NULL && strcmp(framework, "tensorflow") == 0) {
            return "use an image built for ROCm: rocm/tensorflow:latest";
        }
        return "use an image built for ROCm: rocm/pytorch:latest";
    }
    if (!has_vendor(j->host, "nvidia")) {
        return "use an image made for this host's devices";
    }
    int32_t major = stk_preflight_cuda_newest(j->host->driver, j->host->cuda);
    const char *other =
        stk_image_suggest(j->name, framework_of(j), MAX(major, 0), j->findings->arena);
    if (other == NULL) {
        return "use an image with an older CUDA, or install a newer driver";
    }
    return stk_arena_printf(j->findings->arena, "use %s%s", other,
                            stk_text_when(major > 0, ", whose CUDA this host's driver runs"));
}

static void check_platform(const judge *j)
{
    const stk_image_config *image = j->image;
    if (image == NULL) {
        return;
    }
    if (image->os != NULL && *image->os != '\0' && strcmp(image->os, "linux") != 0) {
        (void)stk_preflight_add(j->findings, STK_CHECK_ERROR, "arch", j->name, "use one for Linux",
                                "image '%s' is for %s", j->name, image->os);
    } else if (image->arch != NULL && *image->arch != '\0' && j->host->arch != NULL &&
               strcmp(image->arch, j->host->arch) != 0) {
        (void)stk_preflight_add(
            j->findings, STK_CHECK_ERROR, "arch", j->name,
            "use one built for this architecture, or a tag for several architectures",
            "image '%s' is for %s, but this host is %s", j->name, image->arch, j->host->arch);
    } else if (image->arch != NULL) {
        (void)stk_preflight_add(j->findings, STK_CHECK_OK, "arch", j->name, NULL,
                                "image '%s' is for %s/%s", j->name, stk_text_or(image->os, "linux"),
                                image->arch);
    }
}

static void check_python(const judge *j)
{
    const char *python = j->facts->python;
    if (python == NULL) {
        return;
    }
    if (stk_preflight_compare_versions(python, STK_IMAGE_OLDEST_PYTHON) >= 0) {
        (void)stk_preflight_add(j->findings, STK_CHECK_OK, "python", j->name, NULL,
                                "image '%s' has Python %s", j->name, python);
        return;
    }
    (void)stk_preflight_add(
        j->findings, j->use->python ? STK_CHECK_ERROR : STK_CHECK_NOTE, "python", j->name,
        "use a newer image for Python steps; commands can run in this one",
        "image '%s' has Python %s, but Python steps need " STK_IMAGE_OLDEST_PYTHON " or newer",
        j->name, python);
}

/* CUDA's version against the driver: minor-version compatibility, else the image's own package. */
static void check_cuda(const judge *j, int required)
{
    const char *lowest = stk_preflight_cuda_driver(j->facts->cuda / 1000);
    int32_t major = j->facts->cuda / 1000, minor = j->facts->cuda % 1000 / 10;
    const char *driver = j->host->driver;
    if (driver == NULL || lowest == NULL) {
        (void)stk_preflight_add(j->findings, STK_CHECK_OK, "cuda", j->name, NULL,
                                "image '%s' has CUDA %d.%d (from %s)", j->name, major, minor,
                                j->facts->source);
    } else if (stk_preflight_compare_versions(driver, lowest) >= 0) {
        (void)stk_preflight_add(j->findings, STK_CHECK_OK, "cuda", j->name, NULL,
                                "image '%s' has CUDA %d.%d (from %s), which driver %s runs",
                                j->name, major, minor, j->facts->source, driver);
    } else if (required == 1) {
        (void)stk_preflight_add(
            j->findings, STK_CHECK_WARNING, "cuda", j->name,
            "if CUDA doesn't start (error 803 or 804), use an image with an older CUDA",
            "image '%s' has CUDA %d.%d, for which driver %s is too old (%s); the image says that "
            "its package of NVIDIA's forward compatibility makes up for that on these GPUs",
            j->name, major, minor, driver, lowest);
    } else {
        (void)stk_preflight_add(
            j->findings, STK_CHECK_ERROR, "cuda", j->name, instead(j),
            "image '%s' has CUDA %d.%d, which needs driver %s or newer, but this host has %s",
            j->name, major, minor, lowest, driver);
    }
}

static int check_requirement(const judge *j)
{
    const stk_image_host *h = j->host;
    if (j->image == NULL || h->driver == NULL) {
        return -1;
    }
    const char *text = stk_image_env(j->image, "NVIDIA_REQUIRE_CUDA");
    const char *disabled = stk_image_env(j->image, "NVIDIA_DISABLE_REQUIRE");
    const char *cuda = NULL;
    char number[16], why[200] = "";
    if (text == NULL) {
        return -1;
    }
    if (h->cuda > 0) {
        (void)snprintf(number, sizeof number, "%d.%d", h->cuda / 1000, h->cuda % 1000 / 10);
        cuda = number;
    }
    int fits = stk_image_require(text, cuda, h->driver, h->brand, h->capability, why, sizeof why);
    bool off = disabled != NULL && (strcmp(disabled, "1") == 0 || strcmp(disabled, "true") == 0);
    if (fits == 0 && !off) {
        const char *lowest = stk_preflight_cuda_driver(MAX(j->facts->cuda, 0) / 1000);
        bool runs = lowest != NULL && stk_preflight_compare_versions(h->driver, lowest) >= 0;
        if (runs) { /* where it doesn't, check_cuda says so */
            (void)stk_preflight_add(
                j->findings, STK_CHECK_WARNING, "require", j->name,
                stk_arena_printf(j->findings->arena,
                                 "%s; or set NVIDIA_DISABLE_REQUIRE=1 in runtime_environment: "
                                 "CUDA's minor-version compatibility runs it",
                                 instead(j)),
                "image '%s': %s (NVIDIA_REQUIRE_CUDA); NVIDIA's container runtime may refuse to "
                "start it",
                j->name, why);
        }
    }
    return fits;
}

static void check_devices(const judge *j)
{
    const stk_image_facts *f = j->facts;
    const char *vendor = vendor_of(f->made_for);
    if (j->host->vendors[0] == NULL) {
        if (f->cuda > 0) {
            check_cuda(j, -1);
        }
        return;
    }
    if (f->made_for == STK_IMAGE_FOR_CPU) {
        (void)stk_preflight_add(j->findings, STK_CHECK_ERROR, "image", j->name, instead(j),
                                "image '%s' is made for CPUs only (%s says so), so it can't use "
                                "the %s devices of this host",
                                j->name, f->source, stk_accel_vendor_name(j->host->vendors[0]));
    } else if (vendor != NULL && !has_vendor(j->host, vendor)) {
        (void)stk_preflight_add(
            j->findings, STK_CHECK_ERROR, "image", j->name, instead(j),
            "image '%s' is made for devices of %s (%s says so), but this host has those of %s",
            j->name, stk_accel_vendor_name(vendor), f->source,
            stk_accel_vendor_name(j->host->vendors[0]));
    } else if (f->made_for == STK_IMAGE_FOR_UNKNOWN) {
        (void)stk_preflight_add(
            j->findings, STK_CHECK_NOTE, "image", j->name, NULL,
            "neither name nor configuration of image '%s' tells whether it can use a GPU; 'stoker "
            "doctor --image %s --inside' checks its frameworks",
            j->name, j->name);
    } else if (f->made_for == STK_IMAGE_FOR_NVIDIA) {
        int required = check_requirement(j);
        if (f->cuda > 0) {
            check_cuda(j, required);
        }
    }
}

/* The same without the words "this is wrong": no step gets a device in it. */
static void tell_devices(const judge *j)
{
    if (j->facts->cuda > 0) {
        (void)stk_preflight_add(
            j->findings, STK_CHECK_OK, "cuda", j->name, NULL, "image '%s' has CUDA %d.%d (from %s)",
            j->name, j->facts->cuda / 1000, j->facts->cuda % 1000 / 10, j->facts->source);
    }
}

void stk_image_judge(const stk_image_config *image, const stk_image_facts *facts, const char *name,
                     const stk_image_host *host, const stk_image_use *use, stk_findings *findings)
{
    const judge j = {image, facts, name, host, use, findings};
    check_platform(&j);
    check_python(&j);
    if (facts->framework != NULL) {
        (void)stk_preflight_add(
            findings, STK_CHECK_OK, facts->framework, name, NULL, "image '%s' has %s%s%s (%s)",
            name, facts->framework, stk_text_when(facts->version != NULL, " "),
            stk_text_or(facts->version, ""), stk_text_or(facts->family, "by its name"));
    }
    if (use->devices) {
        check_devices(&j);
    } else {
        tell_devices(&j);
    }
}

int stk_image_check(const stk_image_config *image, const char *name, const stk_accel *accel,
                    const stk_image_use *use, stk_findings *findings, stk_err *err)
{
    stk_image_facts facts;
    stk_image_host host;
    int rc = stk_image_facts_of(name, image, findings->arena, &facts, err);
    if (rc == 0) {
        stk_image_host_of(accel, use->arch, findings->arena, &host);
        stk_image_judge(image, &facts, name, &host, use, findings);
    }
    return rc;
}
