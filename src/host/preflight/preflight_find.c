/* Finds the frameworks of an environment by their files: torch/version.py, TensorFlow's
 * build_info.py, and the names of installed distributions (NAME-VERSION.dist-info). */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "host/preflight/preflight_private.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { MAX_DISTRIBUTIONS = 512, MAX_SOURCE_BYTES = 1 << 20 };

/* An installed distribution of a framework or its plugins. */
typedef struct distribution {
    const char *name; /* normalised: lower case, '_' */
    const char *version;
    const char *folder; /* the .dist-info */
} distribution;

typedef struct finder {
    stk_arena *arena;
    const char *const *sys_path;
    distribution found[MAX_DISTRIBUTIONS];
    uint32_t n_found;
    stk_framework *ret;
    uint32_t n_max, n;
} finder;

/* --- distributions --- */

static bool matters(const char *name)
{
    static const char *const starts[] = {"torch", "tensorflow", "tf_nightly", "jax",
                                         "cupy",  "libtpu",     "libneuron",  "intel_"};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (strncmp(name, starts[i], strlen(starts[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void note_distribution(finder *f, const char *folder, const char *entry)
{
    const char *end = strstr(entry, ".dist-info");
    if (end == NULL) {
        end = strstr(entry, ".egg-info");
    }
    const char *dash = strchr(entry, '-');
    if (end == NULL || dash == NULL || dash > end || f->n_found >= MAX_DISTRIBUTIONS) {
        return;
    }
    char name[128], version[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)(dash - entry), entry);
    for (char *c = name; *c != '\0'; c++) {
        *c = strchr(".-", *c) != NULL ? '_' : (char)tolower((unsigned char)*c);
    }
    if (!matters(name)) {
        return;
    }
    for (uint32_t i = 0; i < f->n_found; i++) {
        if (strcmp(f->found[i].name, name) == 0) {
            return; /* Python imports the first one in the path */
        }
    }
    size_t len = strcspn(dash + 1, "-"); /* an egg's name continues with "-py3.11" */
    size_t most = (size_t)(end - dash - 1);
    (void)snprintf(version, sizeof version, "%.*s", (int)MIN(len, most), dash + 1);
    distribution d = {stk_arena_dup(f->arena, name), stk_arena_dup(f->arena, version),
                      stk_arena_printf(f->arena, "%s/%s", folder, entry)};
    if (d.name != NULL && d.version != NULL && d.folder != NULL) {
        f->found[f->n_found++] = d;
    }
}

static void list_distributions(finder *f)
{
    for (uint32_t i = 0; f->sys_path[i] != NULL; i++) {
        STK_DIR_AUTO dir = {0};
        int rc = stk_dir_read(f->sys_path[i], &dir, NULL); /* may be an archive, not a folder */
        for (uint32_t k = 0; rc == 0 && k < dir.n; k++) {
            note_distribution(f, f->sys_path[i], dir.items[k].name);
        }
    }
}

/* `pattern`: a name, or a prefix and '*'. */
static const distribution *find_distribution(const finder *f, const char *pattern)
{
    size_t n = strcspn(pattern, "*");
    for (uint32_t i = 0; i < f->n_found; i++) {
        if (strncmp(f->found[i].name, pattern, n) == 0 &&
            (pattern[n] == '*' || f->found[i].name[n] == '\0')) {
            return &f->found[i];
        }
    }
    return NULL;
}

/* --- source text --- */

/* The value of a top-level `name = 'text'`, with or without a type annotation; NULL: none, or not a
 * string. */
static const char *assigned(stk_arena *arena, const char *source, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = source; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) != 0 || strchr(" :=", line[n]) == NULL || line[n] == '\0') {
            continue;
        }
        const char *value = line + n + strcspn(line + n, "=\n");
        value += *value == '=';
        value += strspn(value, " \t");
        if (*value == '\'' || *value == '"') {
            const char quote[] = {*value, '\n', '\0'};
            return stk_arena_dupn(arena, value + 1, strcspn(value + 1, quote));
        }
        return NULL;
    }
    return NULL;
}

/* The text after 'key' and its comma or colon in a Python literal. */
static const char *literal(const char *source, const char *key)
{
    static const char *const forms[] = {"'%s'", "\"%s\""};
    for (size_t i = 0; i < 2 && source != NULL; i++) {
        char quoted[64];
        (void)snprintf(quoted, sizeof quoted, forms[i], key);
        const char *at = strstr(source, quoted);
        if (at != NULL) {
            at += strlen(quoted);
            return at + strspn(at, " ,:");
        }
    }
    return NULL;
}

static bool is_true(const char *value)
{
    return value != NULL && strncmp(value, "True", 4) == 0;
}

/* "12.8" → 12080, "12" → 12000, else -1. (Windows' "64_112" doesn't occur here.) */
static int32_t cuda_number(const char *text)
{
    int major = 0, minor = 0;
    if (text == NULL || sscanf(text + strspn(text, "'\""), "%d.%d", &major, &minor) < 1 ||
        major < 1 || major > 1000 || minor < 0 || minor > 99) {
        return -1;
    }
    return (int32_t)(major * 1000 + minor * 10);
}

static char *read_source(const char *folder, const char *name)
{
    STK_TEXT_AUTO path = stk_file_join(folder, name);
    char *text = NULL;
    size_t len = 0;
    if (path != NULL) {
        (void)stk_file_read(path, MAX_SOURCE_BYTES, &text, &len, NULL);
    }
    return text;
}

const char *stk_preflight_version(const char *folder, stk_arena *arena)
{
    STK_TEXT_AUTO source = read_source(folder, "__init__.py");
    return assigned(arena, source, "__version__");
}

/* --- frameworks --- */

static void serve(stk_framework *framework, const char *vendor)
{
    uint32_t i = 0;
    while (framework->serves[i] != NULL && strcmp(framework->serves[i], vendor) != 0) {
        i++;
    }
    if (i + 1 < sizeof framework->serves / sizeof framework->serves[0]) {
        framework->serves[i] = vendor;
    }
}

static void add_framework(finder *f, stk_framework framework)
{
    static const struct {
        const char *framework, *pattern, *vendor;
    } extras[] = {
#define X(name, dist, vendor) {name, dist, vendor},
#include "tbl/frameworks.def"
#undef X
    };
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++) {
        if (strcmp(extras[i].framework, framework.name) == 0 &&
            find_distribution(f, extras[i].pattern) != NULL) {
            serve(&framework, extras[i].vendor);
            if (framework.build == STK_BUILD_CPU) {
                framework.build = STK_BUILD_OTHER;
            }
        }
    }
    if (f->n < f->n_max) {
        f->ret[f->n++] = framework;
    }
}

/* Fills in what is common to all frameworks; false: its package isn't installed. */
static bool find_package(finder *f, const char *name, stk_framework *ret)
{
    *ret = (stk_framework){.name = name,
                           .folder = stk_preflight_package(f->sys_path, name, f->arena),
                           .build = STK_BUILD_UNKNOWN,
                           .cuda = -1,
                           .ptx_arch = -1};
    return ret->folder != NULL;
}

/* The version of a distribution; NULL: not installed. */
static const char *version_of(const finder *f, const char *pattern)
{
    const distribution *d = find_distribution(f, pattern);
    return d == NULL ? NULL : d->version;
}

static void find_torch(finder *f)
{
    stk_framework t;
    if (!find_package(f, "torch", &t)) {
        return;
    }
    STK_TEXT_AUTO source = read_source(t.folder, "version.py");
    if (source == NULL) {
        return;
    }
    t.version = assigned(f->arena, source, "__version__");
    t.build = STK_BUILD_CPU;
    const char *cuda = assigned(f->arena, source, "cuda");
    if (t.version == NULL) {
        t.build = STK_BUILD_UNKNOWN;
    } else if (cuda != NULL) {
        char library[PATH_MAX];
        t.build = STK_BUILD_CUDA;
        t.cuda = cuda_number(cuda);
        t.cuda_minor_known = true;
        serve(&t, "nvidia");
        (void)snprintf(library, sizeof library, "%s/lib/libtorch_cuda.so", t.folder);
        if (stk_preflight_fatbin(library, &t.arch_bits, &t.ptx_arch)) {
            t.has_ptx = t.ptx_arch >= 0;
        }
    } else if (assigned(f->arena, source, "hip") != NULL) {
        t.build = STK_BUILD_ROCM;
        serve(&t, "amd");
    } else if (assigned(f->arena, source, "xpu") != NULL) {
        t.build = STK_BUILD_OTHER;
        serve(&t, "intel");
    }
    add_framework(f, t);
}

/* Parses cuda_compute_capabilities: "sm_60", "compute_90". */
static void read_capabilities(stk_framework *t, const char *list)
{
    size_t n = strcspn(stk_text_or(list, ""), "])");
    for (size_t i = 0; i < n; i++) {
        int32_t arch = 0;
        char kind = '\0';
        bool ptx = sscanf(list + i, "compute_%d%c", &arch, &kind) > 0;
        if (!ptx && sscanf(list + i, "sm_%d%c", &arch, &kind) < 1) {
            continue;
        }
        if (ptx) { /* "compute_" includes machine code */
            t->has_ptx = true;
            if (t->ptx_arch < 0 || arch < t->ptx_arch) {
                t->ptx_arch = arch;
            }
        }
        for (uint32_t k = 0; k < stk_preflight_n_arches; k++) {
            const stk_arch *a = &stk_preflight_arches[k];
            if (a->arch == arch && (a->kind == STK_ARCH_EXACT) == (kind == 'a') &&
                (a->kind == STK_ARCH_FAMILY) == (kind == 'f')) {
                t->arch_bits |= (uint64_t)1 << k;
            }
        }
    }
}

static bool has_cudnn(const char *folder)
{
    bool found = false;
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read(folder, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && !found && i < dir.n; i++) {
        found = strncmp(dir.items[i].name, "libcudnn.so", 11) == 0;
    }
    return found;
}

/* Whether TensorFlow finds cuDNN: in NVIDIA's wheels, the environment's lib folder (conda),
 * LD_LIBRARY_PATH or the system. */
static bool finds_cudnn(const finder *f)
{
    static const char *const system[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                         "/usr/lib64", "/usr/local/cuda/lib64"};
    char path[PATH_MAX];
    for (uint32_t i = 0; f->sys_path[i] != NULL; i++) {
        (void)snprintf(path, sizeof path, "%s/nvidia/cudnn/lib", f->sys_path[i]);
        if (has_cudnn(path)) {
            return true;
        }
        (void)snprintf(path, sizeof path, "%s/../..", f->sys_path[i]);
        if (strstr(f->sys_path[i], "/site-packages") != NULL && has_cudnn(path)) {
            return true;
        }
    }
    for (const char *list = getenv("LD_LIBRARY_PATH"); stk_preflight_next_folder(&list, path);) {
        if (has_cudnn(path)) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof system / sizeof system[0]; i++) {
        if (has_cudnn(system[i])) {
            return true;
        }
    }
    return false;
}

static void find_tensorflow(finder *f)
{
    static const char *const names[] = {"tensorflow",      "tensorflow_cpu",   "tensorflow_gpu",
                                        "tensorflow_rocm", "tensorflow_intel", "tensorflow_tpu",
                                        "tf_nightly",      "tf_nightly_cpu"};
    stk_framework t;
    if (!find_package(f, "tensorflow", &t)) {
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0] && t.version == NULL; i++) {
        t.version = version_of(f, names[i]);
    }
    STK_TEXT_AUTO source = read_source(t.folder, "python/platform/build_info.py");
    const char *is_cuda = literal(source, "is_cuda_build");
    if (is_true(is_cuda)) {
        t.build = STK_BUILD_CUDA;
        t.cuda = cuda_number(literal(source, "cuda_version"));
        t.cuda_minor_known = true;
        serve(&t, "nvidia");
        read_capabilities(&t, literal(source, "cuda_compute_capabilities"));
        t.lacks_cudnn = !finds_cudnn(f);
    } else if (is_true(literal(source, "is_rocm_build"))) {
        t.build = STK_BUILD_ROCM;
        serve(&t, "amd");
    } else if (is_cuda != NULL) {
        t.build = STK_BUILD_CPU;
    }
    add_framework(f, t);
}

/* The CUDA version in a distribution's name: "jax_cuda12_plugin", "cupy_cuda113" (11.3). */
static int32_t cuda_in_name(const char *name, bool *ret_minor_known)
{
    const char *at = strstr(name, "cuda");
    int number = at == NULL ? 0 : atoi(at + 4);
    *ret_minor_known = number >= 100 && number < 200;
    if (number <= 0) {
        return -1;
    }
    return *ret_minor_known ? number / 10 * 1000 + number % 10 * 10 : number * 1000;
}

static void find_jax(finder *f)
{
    const distribution *lib = find_distribution(f, "jaxlib");
    const distribution *plugin = find_distribution(f, "jax_cuda*");
    const char *cuda = NULL;
    stk_framework t;
    if (!find_package(f, "jax", &t)) {
        return;
    }
    t.version = version_of(f, "jax");
    if (lib != NULL) {
        t.build = STK_BUILD_CPU;
        cuda = strstr(lib->version, "+cuda"); /* before 2024 jaxlib's version had it */
    }
    if (plugin != NULL) {
        cuda = plugin->name;
    }
    if (cuda != NULL) {
        t.build = STK_BUILD_CUDA;
        t.cuda = cuda_in_name(cuda, &t.cuda_minor_known);
        serve(&t, "nvidia");
    } else if (find_distribution(f, "jax_rocm*") != NULL) {
        t.build = STK_BUILD_ROCM;
    }
    add_framework(f, t);
}

static void find_cupy(finder *f)
{
    const distribution *cuda = find_distribution(f, "cupy_cuda*");
    stk_framework t;
    if (!find_package(f, "cupy", &t)) {
        return;
    }
    t.version = version_of(f, "cupy_rocm*");
    if (cuda != NULL) {
        t.build = STK_BUILD_CUDA;
        t.version = cuda->version;
        t.cuda = cuda_in_name(cuda->name, &t.cuda_minor_known);
    } else if (t.version != NULL) {
        t.build = STK_BUILD_ROCM;
    } else { /* compiled locally: its files don't show for what */
        t.version = version_of(f, "cupy");
    }
    add_framework(f, t);
}

int stk_preflight_find(const char *python, const char *const *sys_path, stk_arena *arena,
                       stk_framework *ret, uint32_t n_max, uint32_t *ret_n, stk_err *err)
{
    stk_environment environment = {.sys_path = sys_path};
    if (sys_path == NULL) {
        STK_TRY(stk_preflight_environment(python, arena, &environment, err));
    }
    finder *f = stk_arena_alloc(arena, sizeof *f);
    if (f == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the frameworks of %s", python);
    }
    *f = (finder){.arena = arena, .sys_path = environment.sys_path, .ret = ret, .n_max = n_max};
    list_distributions(f);
    find_torch(f);
    find_tensorflow(f);
    find_jax(f);
    find_cupy(f);
    *ret_n = f->n;
    return 0;
}
