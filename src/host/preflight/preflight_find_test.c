/* Environments and frameworks read from their files: made-up folders and libraries and, where nvcc
 * is installed, its real output. */
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/preflight/preflight_private.h"
#include "sys/file.h"

typedef struct fixture {
    char root[PATH_MAX];
    stk_arena *arena;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    snprintf(f->root, sizeof f->root, "/tmp/stk-preflight-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    f->arena = stk_arena_new(0);
    unsetenv("PYTHONPATH");
    setenv("PYTHONNOUSERSITE", "1", 1);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    stk_file_remove_tree(f->root, NULL);
    stk_arena_free(f->arena);
    free(f);
    return 0;
}

static const char *path_of(fixture *f, const char *name)
{
    return stk_arena_printf(f->arena, "%s/%s", f->root, name);
}

static void put(fixture *f, const char *name, const void *data, size_t len)
{
    const char *path = path_of(f, name);
    char *folder = stk_arena_dup(f->arena, path);
    *strrchr(folder, '/') = '\0';
    assert_int_equal(stk_file_mkdirs(folder, 0755, NULL), 0);
    assert_int_equal(stk_file_write(path, data, len, 0755, NULL), 0);
}

static void write_text(fixture *f, const char *name, const char *text)
{
    put(f, name, text, strlen(text));
}

/* Finds the frameworks in <root>/site. */
static uint32_t find(fixture *f, stk_framework *ret)
{
    const char *const sys_path[] = {path_of(f, "site"), NULL};
    uint32_t n = 0;
    assert_int_equal(
        stk_preflight_find(NULL, sys_path, f->arena, ret, STK_PREFLIGHT_FRAMEWORKS, &n, NULL), 0);
    return n;
}

static uint64_t bit(int32_t arch, int kind)
{
    for (uint32_t i = 0; i < stk_preflight_n_arches; i++) {
        if (stk_preflight_arches[i].arch == arch && (int)stk_preflight_arches[i].kind == kind) {
            return (uint64_t)1 << i;
        }
    }
    fail_msg("no arch %d", arch);
    return 0;
}

/* --- torch --- */

static void test_torch(void **state)
{
    static const struct {
        const char *source, *version, *vendor;
        int build;
        int32_t cuda;
    } cases[] = {
        {"__version__ = '2.1.0+cu121'\ndebug = False\ncuda = '12.1'\ngit_version = 'x'\nhip = "
         "None\n",
         "2.1.0+cu121", "nvidia", STK_BUILD_CUDA, 12010},
        {"from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda']\n__version__ = "
         "'2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\nhip: Optional[str] = None\n",
         "2.13.0+cpu", NULL, STK_BUILD_CPU, -1},
        {"__version__ = \"2.13.0\"\ncuda: Optional[str] = \"13.0\"\nhip: Optional[str] = None\n",
         "2.13.0", "nvidia", STK_BUILD_CUDA, 13000},
        {"__version__ = '2.9.0+rocm6.4'\ncuda: Optional[str] = None\nhip: Optional[str] = "
         "'6.4.43482'\n",
         "2.9.0+rocm6.4", "amd", STK_BUILD_ROCM, -1},
        {"__version__ = '2.9.0+xpu'\ncuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: "
         "Optional[str] = '20250201'\n",
         "2.9.0+xpu", "intel", STK_BUILD_OTHER, -1},
        {"nothing = 'of use'\n", NULL, NULL, STK_BUILD_UNKNOWN, -1},
    };
    fixture *f = *state;
    write_text(f, "site/torch/__init__.py", "raise ImportError('must not be imported')\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_framework t;
        write_text(f, "site/torch/version.py", cases[i].source);
        assert_int_equal(find(f, &t), 1);
        assert_string_equal(t.name, "torch");
        assert_int_equal(t.build, cases[i].build);
        assert_int_equal(t.cuda, cases[i].cuda);
        assert_int_equal(t.arch_bits, 0);
        if (cases[i].version != NULL) {
            assert_string_equal(t.version, cases[i].version);
        } else {
            assert_null(t.version);
        }
        if (cases[i].vendor != NULL) {
            assert_string_equal(t.serves[0], cases[i].vendor);
        } else {
            assert_null(t.serves[0]);
        }
    }
}

static void test_torch_with_a_plugin(void **state)
{
    fixture *f = *state;
    stk_framework t;
    write_text(f, "site/torch/__init__.py", "");
    write_text(f, "site/torch/version.py", "__version__ = '2.9.0'\ncuda = None\n");
    write_text(f, "site/torch_xla-2.9.0.dist-info/METADATA", "");
    assert_int_equal(find(f, &t), 1);
    assert_int_equal(t.build, STK_BUILD_OTHER);
    assert_string_equal(t.serves[0], "google");
}

/* --- the others --- */

static void test_tensorflow(void **state)
{
    fixture *f = *state;
    stk_framework t;
    write_text(f, "site/tensorflow/__init__.py", "");
    write_text(f, "site/tensorflow_cpu-2.20.0.dist-info/METADATA", "");
    write_text(f, "site/tensorflow/python/platform/build_info.py",
               "import collections\nbuild_info = collections.OrderedDict([('cpu_compiler', "
               "'/usr/bin/clang'), ('is_cuda_build', False), ('is_rocm_build', False)])\n");
    assert_int_equal(find(f, &t), 1);
    assert_string_equal(t.version, "2.20.0");
    assert_int_equal(t.build, STK_BUILD_CPU);
    write_text(f, "site/tensorflow/python/platform/build_info.py",
               "build_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_60', "
               "'sm_70', 'sm_89', 'compute_90']), ('cuda_version', '12.5.1'), ('cudnn_version', "
               "'9'), ('is_cuda_build', True), ('is_rocm_build', False)])\n");
    assert_int_equal(find(f, &t), 1);
    assert_int_equal(t.build, STK_BUILD_CUDA);
    assert_int_equal(t.cuda, 12050);
    assert_true(t.has_ptx);
    assert_int_equal(t.ptx_arch, 90);
    assert_int_equal(t.arch_bits, bit(60, STK_ARCH_PLAIN) | bit(70, STK_ARCH_PLAIN) |
                                      bit(89, STK_ARCH_PLAIN) | bit(90, STK_ARCH_PLAIN));
    write_text(f, "site/nvidia/cudnn/lib/libcudnn.so.9", "");
    assert_int_equal(find(f, &t), 1);
    assert_false(t.lacks_cudnn);
    /* the very old layout is a dict */
    write_text(f, "site/tensorflow/python/platform/build_info.py",
               "build_info = {'cuda_version': '11.2', 'is_rocm_build': False, 'is_cuda_build': "
               "True}\n");
    assert_int_equal(find(f, &t), 1);
    assert_int_equal(t.cuda, 11020);
    (void)unlink(path_of(f, "site/tensorflow/python/platform/build_info.py"));
    assert_int_equal(find(f, &t), 1);
    assert_int_equal(t.build, STK_BUILD_UNKNOWN);
}

static void test_jax_and_cupy(void **state)
{
    fixture *f = *state;
    stk_framework t[STK_PREFLIGHT_FRAMEWORKS];
    write_text(f, "site/jax/__init__.py", "");
    write_text(f, "site/jax-0.10.2.dist-info/METADATA", "");
    assert_int_equal(find(f, t), 1);
    assert_int_equal(t[0].build, STK_BUILD_UNKNOWN); /* jax can't be imported without jaxlib */
    write_text(f, "site/jaxlib-0.10.2.dist-info/METADATA", "");
    assert_int_equal(find(f, t), 1);
    assert_int_equal(t[0].build, STK_BUILD_CPU);
    assert_string_equal(t[0].version, "0.10.2");
    write_text(f, "site/libtpu-0.0.20.dist-info/METADATA", "");
    assert_int_equal(find(f, t), 1);
    assert_int_equal(t[0].build, STK_BUILD_OTHER);
    assert_string_equal(t[0].serves[0], "google");
    write_text(f, "site/jax_cuda13_plugin-0.10.2.dist-info/METADATA", "");
    assert_int_equal(find(f, t), 1);
    assert_int_equal(t[0].build, STK_BUILD_CUDA);
    assert_int_equal(t[0].cuda, 13000);
    assert_false(t[0].cuda_minor_known);
    assert_string_equal(t[0].serves[0], "nvidia");
    assert_string_equal(t[0].serves[1], "google");

    write_text(f, "site/cupy/__init__.py", "");
    write_text(f, "site/cupy_cuda12x-13.6.0.dist-info/METADATA", "");
    assert_int_equal(find(f, t), 2);
    assert_string_equal(t[1].name, "cupy");
    assert_string_equal(t[1].version, "13.6.0");
    assert_int_equal(t[1].cuda, 12000);
    assert_int_equal(stk_file_remove_tree(path_of(f, "site/cupy_cuda12x-13.6.0.dist-info"), NULL),
                     0);
    write_text(f, "site/cupy_cuda113-9.0.egg-info/PKG-INFO", "");
    assert_int_equal(find(f, t), 2);
    assert_int_equal(t[1].cuda, 11030);
}

/* --- environments --- */

static void expect_path(const stk_environment *e, fixture *f, const char *const *names)
{
    uint32_t i = 0;
    for (; names[i] != NULL; i++) {
        assert_non_null(e->sys_path[i]);
        assert_string_equal(e->sys_path[i], path_of(f, names[i]));
    }
    assert_null(e->sys_path[i]);
}

static void test_virtual_environment(void **state)
{
    fixture *f = *state;
    stk_environment e;
    write_text(f, "base/bin/python3.12", "");
    write_text(f, "base/lib/python3.12/site-packages/x.py", "");
    write_text(f, "venv/bin/x", "");
    assert_int_equal(symlink("../../base/bin/python3.12", path_of(f, "venv/bin/python")), 0);
    const char *config = stk_arena_printf(
        f->arena, "home = %s/base/bin\ninclude-system-site-packages = false\nversion = 3.12.1\n",
        f->root);
    write_text(f, "venv/pyvenv.cfg", config);
    write_text(f, "venv/lib/python3.12/site-packages/a.pth",
               "../../../../project\n# x\nimport sys\n");
    write_text(f, "venv/lib/python3.12/site-packages/b.pth", "/nonexistent\n\n");
    write_text(f, "project/mine/__init__.py", "x = 1\n__version__ = \"7.1\"\n");
    /* as in site.py, a joined path isn't normalised */
    const char *const joined[] = {"venv/lib/python3.12/site-packages",
                                  "venv/lib/python3.12/site-packages/../../../../project", NULL};
    assert_int_equal(stk_preflight_environment(path_of(f, "venv/bin/python"), f->arena, &e, NULL),
                     0);
    assert_string_equal(e.version, "3.12");
    expect_path(&e, f, joined);
    const char *folder = stk_preflight_package(e.sys_path, "mine", f->arena);
    assert_non_null(folder);
    assert_string_equal(stk_preflight_version(folder, f->arena), "7.1");
    assert_null(stk_preflight_package(e.sys_path, "yours", f->arena));

    /* with the packages of the base, and PYTHONPATH before all others */
    config = stk_arena_printf(f->arena,
                              "home = %s/base/bin\ninclude-system-site-packages = TRUE\n"
                              "version_info = 3.12.1.final.0\n",
                              f->root);
    write_text(f, "venv/pyvenv.cfg", config);
    setenv("PYTHONPATH", stk_arena_printf(f->arena, "%s::/nonexistent", path_of(f, "project")), 1);
    const char *const all[] = {"project", "venv/lib/python3.12/site-packages",
                               "venv/lib/python3.12/site-packages/../../../../project",
                               "base/lib/python3.12/site-packages", NULL};
    assert_int_equal(stk_preflight_environment(path_of(f, "venv/bin/python"), f->arena, &e, NULL),
                     0);
    expect_path(&e, f, all);
}

static void test_installation(void **state)
{
    fixture *f = *state;
    stk_environment e;
    stk_err err = {0};
    write_text(f, "conda/bin/python3.10", "");
    write_text(f, "conda/lib/python3.10/site-packages/x.py", "");
    write_text(f, "conda/lib/python3.9/old.py", "");
    assert_int_equal(symlink("python3.10", path_of(f, "conda/bin/python")), 0);
    const char *const alone[] = {"conda/lib/python3.10/site-packages", NULL};
    assert_int_equal(stk_preflight_environment(path_of(f, "conda/bin/python"), f->arena, &e, NULL),
                     0);
    expect_path(&e, f, alone);
    /* a link in another folder leads to the same installation, and PATH finds the link */
    write_text(f, "links/x", "");
    assert_int_equal(symlink("../conda/bin/python3.10", path_of(f, "links/python-of-mine")), 0);
    char *before = strdup(getenv("PATH"));
    setenv("PATH", stk_arena_printf(f->arena, "/nonexistent:%s", path_of(f, "links")), 1);
    assert_int_equal(stk_preflight_environment("python-of-mine", f->arena, &e, NULL), 0);
    assert_string_equal(e.python, path_of(f, "links/python-of-mine"));
    expect_path(&e, f, alone);
    assert_int_equal(stk_preflight_environment("python-of-yours", f->arena, &e, &err),
                     STK_E_NOT_FOUND);
    setenv("PATH", before, 1);
    free(before);
    /* a version manager's script */
    write_text(f, "shims/python3", "#!/bin/sh\nexec real-python \"$@\"\n");
    assert_int_equal(stk_preflight_environment(path_of(f, "shims/python3"), f->arena, &e, &err),
                     STK_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "script"));
    /* the user's own folder comes before the installation's */
    unsetenv("PYTHONNOUSERSITE");
    setenv("PYTHONUSERBASE", path_of(f, "user"), 1);
    write_text(f, "user/lib/python3.10/site-packages/y.py", "");
    const char *const both[] = {"user/lib/python3.10/site-packages",
                                "conda/lib/python3.10/site-packages", NULL};
    assert_int_equal(stk_preflight_environment(path_of(f, "conda/bin/python"), f->arena, &e, NULL),
                     0);
    expect_path(&e, f, both);
    unsetenv("PYTHONUSERBASE");
}

/* --- fat binaries --- */

/* Writes an ELF file with one section .nv_fatbin of these bytes. */
static void put_elf(fixture *f, const char *name, const unsigned char *section, size_t len)
{
    static const char names[] = "\0.nv_fatbin\0.shstrtab";
    size_t at_names = sizeof(Elf64_Ehdr) + len;
    size_t at_heads = (at_names + sizeof names + 7) & ~(size_t)7;
    size_t total = at_heads + 3 * sizeof(Elf64_Shdr);
    unsigned char *file = calloc(1, total);
    Elf64_Ehdr head = {
        .e_shoff = at_heads, .e_shentsize = sizeof(Elf64_Shdr), .e_shnum = 3, .e_shstrndx = 2};
    memcpy(head.e_ident, ELFMAG, SELFMAG);
    head.e_ident[EI_CLASS] = ELFCLASS64;
    Elf64_Shdr heads[3] = {
        {0},
        {.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_offset = sizeof head, .sh_size = len},
        {.sh_name = 12, .sh_type = SHT_STRTAB, .sh_offset = at_names, .sh_size = sizeof names}};
    memcpy(file, &head, sizeof head);
    memcpy(file + sizeof head, section, len);
    memcpy(file + at_names, names, sizeof names);
    memcpy(file + at_heads, heads, sizeof heads);
    put(f, name, file, total);
    free(file);
}

typedef struct section {
    unsigned char bytes[8192];
    size_t n;
} section;

static void add_number(section *s, uint64_t value, size_t n)
{
    memcpy(s->bytes + s->n, &value, n);
    s->n += n;
}

/* Adds a container with one entry for each (kind, arch, flags), with payloads of 24 bytes. */
static void add_container(section *s, const uint32_t (*entries)[3], uint32_t n)
{
    add_number(s, 0xBA55ED50u, 4);
    add_number(s, 1, 2);
    add_number(s, 16, 2);
    add_number(s, (uint64_t)n * (64 + 24), 8);
    for (uint32_t i = 0; i < n; i++) {
        size_t start = s->n;
        add_number(s, entries[i][0], 2);
        add_number(s, 0x101, 2);
        add_number(s, 64, 4);
        add_number(s, 24, 8);
        add_number(s, 0, 8);
        add_number(s, 0, 4);
        add_number(s, entries[i][1], 4);
        add_number(s, 0, 8);
        add_number(s, 0x11u | entries[i][2], 8);
        memset(s->bytes + s->n, 0x50, start + 64 + 24 - s->n); /* like the magic */
        s->n = start + 64 + 24;
    }
}

static void test_fatbin(void **state)
{
    fixture *f = *state;
    section s = {0};
    uint64_t bits = 0;
    int32_t ptx = 0;
    const uint32_t first[][3] = {{2, 75, 0}, {2, 90, 1 << 20}, {1, 90, 0}};
    const uint32_t second[][3] = {{2, 100, 1 << 21}, {1, 120, 0}, {1, 80, 1 << 20}, {2, 999, 0}};
    add_container(&s, first, 3);
    add_number(&s, 0, 8); /* padding */
    add_container(&s, second, 4);
    put_elf(f, "lib.so", s.bytes, s.n);
    assert_true(stk_preflight_fatbin(path_of(f, "lib.so"), &bits, &ptx));
    assert_int_equal(bits,
                     bit(75, STK_ARCH_PLAIN) | bit(90, STK_ARCH_EXACT) | bit(100, STK_ARCH_FAMILY));
    assert_int_equal(ptx, 90); /* the oldest PTX that isn't specific to one architecture */

    /* torch's architectures come from its library */
    stk_framework t;
    write_text(f, "site/torch/__init__.py", "");
    write_text(f, "site/torch/version.py", "__version__ = '2.9.0'\ncuda = '12.8'\n");
    put_elf(f, "site/torch/lib/libtorch_cuda.so", s.bytes, s.n);
    assert_int_equal(find(f, &t), 1);
    assert_int_equal(t.arch_bits, bits);
    assert_true(t.has_ptx);
}

/* Any content gives an answer, without a crash or an endless loop. */
static void test_broken_fatbin(void **state)
{
    fixture *f = *state;
    section s = {0};
    uint64_t bits;
    int32_t ptx;
    const uint32_t entries[][3] = {{2, 80, 0}, {1, 80, 0}};
    add_container(&s, entries, 2);
    for (size_t i = 0; i < s.n; i++) {
        for (unsigned value = 0; value < 256; value += 85) {
            section broken = s;
            broken.bytes[i] = (unsigned char)value;
            put_elf(f, "broken.so", broken.bytes, broken.n);
            (void)stk_preflight_fatbin(path_of(f, "broken.so"), &bits, &ptx);
        }
    }
    for (size_t n = 0; n < s.n; n += 7) {
        put_elf(f, "short.so", s.bytes, n);
        (void)stk_preflight_fatbin(path_of(f, "short.so"), &bits, &ptx);
    }
    write_text(f, "text.so",
               "no library at all, but long enough to be read as the head of one ....");
    assert_false(stk_preflight_fatbin(path_of(f, "text.so"), &bits, &ptx));
    assert_false(stk_preflight_fatbin(path_of(f, "nowhere.so"), &bits, &ptx));
    assert_false(stk_preflight_fatbin("/proc/self/exe", &bits, &ptx));
}

static void test_fatbin_of_nvcc(void **state)
{
    fixture *f = *state;
    uint64_t bits = 0;
    int32_t ptx = 0;
    if (system("nvcc --version >/dev/null 2>&1") != 0) {
        print_message("skipped: nvcc is not installed\n");
        skip();
    }
    write_text(f, "k.cu", "__global__ void k(float *x) { x[threadIdx.x] *= 2; }\n");
    const char *command = stk_arena_printf(
        f->arena,
        "cd %s && nvcc -shared -Xcompiler -fPIC k.cu -o k.so -gencode arch=compute_80,code=sm_80 "
        "-gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=sm_90 "
        "-gencode arch=compute_86,code=compute_86 2>nvcc.log",
        f->root);
    if (system(command) != 0) {
        print_message("skipped: this nvcc can't compile for 8.0, 8.6 and 9.0\n");
        skip();
    }
    assert_true(stk_preflight_fatbin(path_of(f, "k.so"), &bits, &ptx));
    assert_int_equal(bits & bit(80, STK_ARCH_PLAIN), bit(80, STK_ARCH_PLAIN));
    assert_int_equal(bits & bit(90, STK_ARCH_PLAIN), bit(90, STK_ARCH_PLAIN));
    assert_int_equal(bits & bit(90, STK_ARCH_EXACT), bit(90, STK_ARCH_EXACT));
    assert_int_equal(bits & bit(86, STK_ARCH_PLAIN), 0);
    assert_int_equal(ptx <= 86 && ptx >= 35, 1); /* nvcc's own runtime may bring older PTX */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_torch),        TEST(test_torch_with_a_plugin), TEST(test_tensorflow),
        TEST(test_jax_and_cupy), TEST(test_virtual_environment), TEST(test_installation),
        TEST(test_fatbin),       TEST(test_broken_fatbin),       TEST(test_fatbin_of_nvcc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
