/* The rules of images that need no image: names, what a name tells, NVIDIA_REQUIRE_CUDA, and
 * whether an image fits a host. */
#include <stdio.h>
#include <string.h>

#include "base/testing.h"
#include "image/image_private.h"

#define A64 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *text, *whole; /* NULL: refused … */
        const char *why;          /* … and the error contains this */
    } cases[] = {
        {"ubuntu", "docker.io/library/ubuntu:latest", NULL},
        {"ubuntu:22.04", "docker.io/library/ubuntu:22.04", NULL},
        {"docker.io/ubuntu", "docker.io/library/ubuntu:latest", NULL},
        {"index.docker.io/pytorch/pytorch", "docker.io/pytorch/pytorch:latest", NULL},
        {"docker://nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io/nvidia/pytorch:24.05-py3", NULL},
        {"pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime",
         "docker.io/pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime", NULL},
        {"localhost/x", "localhost/x:latest", NULL},
        {"localhost:5000/x/y", "localhost:5000/x/y:latest", NULL},
        {"127.0.0.1:5055/x@sha256:" A64, "127.0.0.1:5055/x@sha256:" A64, NULL},
        {"x:1@sha256:" A64, "docker.io/library/x@sha256:" A64, NULL},
        {"a__b/c--d/e.f-g", "docker.io/a__b/c--d/e.f-g:latest", NULL},
        {"763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.9.0-gpu",
         "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.9.0-gpu", NULL},
        {"", NULL, "the repository is missing"},
        {"Ubuntu", NULL, "lower case"},
        {"a//b", NULL, "separator"},
        {"a..b", NULL, "separator"},
        {"a/", NULL, "separator"},
        {"a b", NULL, "letters, digits"},
        {"a:", NULL, "the tag is empty"},
        {"a:-x", NULL, "begin with a letter"},
        {"a:x y", NULL, "letters, digits"},
        {"a@sha256:abc", NULL, "isn't a digest"},
        {"sha256:" A64, NULL, "it is an id"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_image_ref ref = {0};
        stk_err err = {0};
        int rc = stk_image_parse(cases[i].text, arena, &ref, &err);
        if (cases[i].whole == NULL) {
            assert_int_equal(rc, STK_E_SPEC);
            assert_non_null(strstr(err.text, cases[i].why));
        } else {
            stk_image_ref again = {0};
            assert_int_equal(rc, 0);
            const char *whole = stk_image_text(&ref, arena);
            assert_string_equal(whole, cases[i].whole);
            assert_int_equal(stk_image_parse(whole, arena, &again, &err), 0);
            assert_string_equal(stk_image_text(&again, arena), whole);
        }
    }
}

static void test_long_names(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char text[300];
    stk_image_ref ref;
    for (int n = 254; n <= 257; n++) {
        (void)snprintf(text, sizeof text, "localhost/%.*s", n, "");
        memset(text + 10, 'a', (size_t)n);
        text[10 + n] = '\0';
        assert_int_equal(stk_image_parse(text, arena, &ref, NULL), n <= 255 ? 0 : STK_E_SPEC);
    }
    for (size_t n = 127; n <= 129; n++) {
        (void)snprintf(text, sizeof text, "x:");
        memset(text + 2, '1', n);
        text[2 + n] = '\0';
        assert_int_equal(stk_image_parse(text, arena, &ref, NULL), n <= 128 ? 0 : STK_E_SPEC);
    }
}

static void test_requirements(void **state)
{
    (void)state;
    static const char image[] = "cuda>=12.8 brand=tesla,driver>=535,driver<536 "
                                "brand=nvidia,driver>=535,driver<536 brand=geforce,driver>=999";
    static const struct {
        const char *text, *cuda, *driver, *brand, *arch;
        int fits;
        const char *why;
    } cases[] = {
        {"", "12.2", "535.1", "tesla", "8.0", 1, NULL},
        {"cuda>=12.8", "13.0", "580.65", NULL, NULL, 1, NULL},
        {"cuda>=12.8", "12.8", "570.1", NULL, NULL, 1, NULL},
        {"cuda>=12.8", "12.2", "535.1", NULL, NULL, 0,
         "it needs cuda >= 12.8, but this host has 12.2"},
        {"cuda>=12.8", NULL, "535.1", NULL, NULL, -1, NULL},
        {"CUDA>=12.8", "13.0", NULL, NULL, NULL, 1, NULL},
        {"cuda>12.8", "12.8", NULL, NULL, NULL, 0, "cuda > 12.8"},
        {"cuda<=12.8", "12.8", NULL, NULL, NULL, 1, NULL},
        {"cuda<12.8", "12.8", NULL, NULL, NULL, 0, "cuda < 12.8"},
        {"cuda=12.8", "12.8", NULL, NULL, NULL, 1, NULL},
        {"cuda!=12.8", "12.8", NULL, NULL, NULL, 0, "cuda != 12.8"},
        {"cuda>=12.10", "12.9", NULL, NULL, NULL, 0, "12.10"}, /* versions, not decimals */
        {"arch>=7.0", NULL, NULL, NULL, "6.1", 0, "arch >= 7.0"},
        {"brand!=geforce", NULL, NULL, "Tesla", NULL, 1, NULL},
        {"brand>tesla", NULL, NULL, "tesla", NULL, -1, NULL},
        {image, "12.2", "535.104", "tesla", NULL, 1, NULL}, /* forward compatibility */
        {image, "12.2", "535.104", "nvidia", NULL, 1, NULL},
        {image, "12.4", "550.54", "tesla", NULL, 0,
         "it needs cuda >= 12.8, but this host has 12.4"},
        {image, "12.2", "535.104", "geforcertx", NULL, 0, "cuda >= 12.8"},
        {image, "12.2", "535.104", NULL, NULL, -1, NULL}, /* may be a Tesla */
        {image, "12.8", "535.104", NULL, NULL, 1, NULL},
        {"cuda>=12.8,driver>=570", "12.8", "560.1", NULL, NULL, 0, "driver >= 570"},
        {"cuda>=12.8,nonsense=1", "12.8", "570.1", NULL, NULL, -1, NULL},
        {"cuda>=12.8,nonsense=1", "12.2", "570.1", NULL, NULL, 0, "cuda"},
        {"nonsense cuda>=12.8", "12.8", NULL, NULL, NULL, 1, NULL},
        {"cuda", "12.8", NULL, NULL, NULL, -1, NULL},
        {"cuda>=", "12.8", NULL, NULL, NULL, -1, NULL},
        {"  cuda>=11  ", "12.8", NULL, NULL, NULL, 1, NULL},
        {",cuda>=11,", "12.8", NULL, NULL, NULL, 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[160] = "";
        int fits = stk_image_require(cases[i].text, cases[i].cuda, cases[i].driver, cases[i].brand,
                                     cases[i].arch, why, sizeof why);
        if (fits != cases[i].fits || (cases[i].why != NULL && !strstr(why, cases[i].why))) {
            fail_msg("'%s': %d '%s'", cases[i].text, fits, why);
        }
    }
}

static void test_brands(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"NVIDIA GeForce RTX 3090", "geforcertx"}, {"GeForce GTX 1080", "geforce"},
        {"Tesla V100-SXM2-16GB", "tesla"},         {"NVIDIA H100 80GB HBM3", "nvidia"},
        {"NVIDIA RTX A6000", "nvidiartx"},         {"Quadro RTX 6000", "quadrortx"},
        {"NVIDIA TITAN RTX", "titanrtx"},          {"something", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *brand = stk_image_brand(cases[i][0]);
        assert_true(brand == cases[i][1] ||
                    (brand != NULL && cases[i][1] != NULL && strcmp(brand, cases[i][1]) == 0));
    }
    assert_null(stk_image_brand(NULL));
}

#define NONE STK_IMAGE_FOR_UNKNOWN
#define CPU STK_IMAGE_FOR_CPU
#define GPU STK_IMAGE_FOR_NVIDIA
#define ECR "763104351884.dkr.ecr.us-east-1.amazonaws.com/"
#define GAR "us-docker.pkg.dev/deeplearning-platform-release/gcr.io/"

static const char *shown(const char *text)
{
    return text != NULL ? text : "-";
}

static void test_families(void **state)
{
    (void)state;
    static const struct {
        const char *name, *framework, *version, *python;
        int32_t cuda;
        int made_for;
    } cases[] = {
        {"pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime", "torch", "2.1.0", "-", 12010, GPU},
        {"pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime", "torch", "1.12.1", "-", 11030, GPU},
        {"pytorch/pytorch", "torch", "-", "-", -1, GPU},
        {"mirror.local:5000/hub/pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime", "torch", "2.1.0",
         "-", 12010, GPU},
        {"tensorflow/tensorflow:latest-gpu", "tensorflow", "-", "-", -1, GPU},
        {"tensorflow/tensorflow:2.15.0", "tensorflow", "2.15.0", "-", -1, CPU},
        {"tensorflow/tensorflow:2.15.0-gpu", "tensorflow", "2.15.0", "-", 12020, GPU},
        {"tensorflow/tensorflow:2.20.0-gpu-jupyter", "tensorflow", "2.20.0", "-", 12050, GPU},
        {"tensorflow/tensorflow:2.2.0-gpu", "tensorflow", "2.2.0", "-", 10010, GPU},
        {"tensorflow/tensorflow:2.11.0rc1-gpu", "tensorflow", "2.11.0", "-", 11020, GPU},
        {"tensorflow/tensorflow:2.99.0-gpu", "tensorflow", "2.99.0", "-", -1, GPU},
        {ECR "pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04-ec2", "torch", "2.9.0", "3.12",
         13000, GPU},
        {ECR "pytorch-inference:2.6.0-cpu-py312-ubuntu22.04-sagemaker", "torch", "2.6.0", "3.12",
         -1, CPU},
        {"public.ecr.aws/deep-learning-containers/pytorch:2.13-cu133-amzn2023", "torch", "2.13",
         "-", 13030, GPU},
        {"public.ecr.aws/neuron/pytorch-training-neuronx:2.7.0-neuronx-py310-sdk2.24.1", "torch",
         "-", "3.10", -1, STK_IMAGE_FOR_AWS},
        {GAR "base-cu122.py310", "-", "-", "3.10", 12020, GPU},
        {GAR "pytorch-gpu.2-0.py310", "torch", "-", "3.10", -1, GPU},
        {GAR "tf2-cpu.2-15.py310:latest", "tensorflow", "-", "3.10", -1, CPU},
        {"mcr.microsoft.com/azureml/curated/acpt-pytorch-2.2-cuda12.1:10", "torch", "-", "-", 12010,
         GPU},
        {"mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04", "-", "-", "-", -1, NONE},
        {"nvcr.io/nvidia/pytorch:24.05-py3", "torch", "-", "-", 12040, GPU},
        {"nvcr.io/nvidia/pytorch:25.10-py3", "torch", "-", "-", 13000, GPU},
        {"nvcr.io/nvidia/pytorch:19.01-py3", "torch", "-", "-", -1, GPU},
        {"nvidia/cuda:12.8.1-cudnn-devel-ubuntu24.04", "-", "-", "-", 12080, GPU},
        {"rocm/pytorch:rocm6.2_ubuntu22.04_py3.10_pytorch_release_2.3.0", "torch", "-", "3.10", -1,
         STK_IMAGE_FOR_AMD},
        {"huggingface/transformers-pytorch-gpu:4.41.2", "torch", "-", "-", -1, GPU},
        {"quay.io/jupyter/pytorch-notebook:latest", "torch", "-", "-", -1, CPU},
        {"quay.io/jupyter/pytorch-notebook:cuda12-latest", "torch", "-", "-", 12000, GPU},
        {ECR "pytorch-training:1.13.1-gpu-py39-cu117-ubuntu20.04-ec2", "torch", "1.13.1", "3.9",
         11070, GPU},
        {ECR "tensorflow-training:2.18.0-gpu-py310-cu125-ubuntu22.04-ec2", "tensorflow", "2.18.0",
         "3.10", 12050, GPU},
        {ECR "huggingface-pytorch-training:2.5.1-transformers4.49.0-gpu-py311-cu124-ubuntu22.04",
         "torch", "2.5.1", "3.11", 12040, GPU},
        {GAR "pytorch-cu121.2-2.py310", "torch", "-", "3.10", 12010, GPU},
        {"gcr.io/deeplearning-platform-release/pytorch-cu113.1-11", "torch", "-", "-", 11030, GPU},
        {"python:3.11-slim", "-", "-", "3.11", -1, NONE},
        {"ghcr.io/us/train:py39-cudnn8-cu118", "-", "-", "3.9", 11080, GPU},
        {"ghcr.io/us/circus:cute", "-", "-", "-", -1, NONE}, /* "cu" inside a word means nothing */
        {"ghcr.io/us/gpus:1", "-", "-", "-", -1, NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_image_facts f;
        assert_int_equal(stk_image_facts_of(cases[i].name, NULL, arena, &f, NULL), 0);
        if (strcmp(shown(f.framework), cases[i].framework) != 0 ||
            strcmp(shown(f.version), cases[i].version) != 0 ||
            strcmp(shown(f.python), cases[i].python) != 0 || f.cuda != cases[i].cuda ||
            (int)f.made_for != cases[i].made_for) {
            fail_msg("%s: %s %s, Python %s, CUDA %d, for %d", cases[i].name, shown(f.framework),
                     shown(f.version), shown(f.python), f.cuda, f.made_for);
        }
    }
}

static void test_environment_tells_more(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char *const env[] = {"PATH=/bin", "CUDA_VERSION=12.6.3", "PYTHON_VERSION=3.11.9",
                                      "PYTORCH_VERSION=2.6.0", NULL};
    static const char *const visible[] = {"NVIDIA_VISIBLE_DEVICES=all", NULL};
    stk_image_config config = {.env = env, .size_bytes = -1};
    stk_image_facts f;
    /* the image's content overrides a name that says CPU */
    assert_int_equal(stk_image_facts_of("ghcr.io/us/cpu:1", &config, arena, &f, NULL), 0);
    assert_int_equal(f.made_for, GPU);
    assert_int_equal(f.cuda, 12060);
    assert_string_equal(f.python, "3.11.9");
    assert_string_equal(f.version, "2.6.0");
    assert_string_equal(f.source, "its environment");
    config.env = visible;
    assert_int_equal(stk_image_facts_of("ghcr.io/us/x:1", &config, arena, &f, NULL), 0);
    assert_int_equal(f.made_for, GPU);
    assert_int_equal(f.cuda, -1);
    assert_int_equal(stk_image_facts_of("sha256:" A64, &config, arena, &f, NULL), 0);
    assert_int_equal(f.made_for, GPU);
}

static void test_suggestions(void **state)
{
    (void)state;
    static const struct {
        const char *name, *framework;
        int32_t major;
        const char *other;
    } cases[] = {
        {"pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime", NULL, 12,
         "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"},
        {"m.local/hub/pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime", NULL, 11,
         "m.local/hub/pytorch/pytorch:2.1.0-cuda11.8-cudnn8-runtime"},
        {"tensorflow/tensorflow:2.15.0", NULL, 13, "tensorflow/tensorflow:2.15.0-gpu"},
        {ECR "pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04-ec2", NULL, 12,
         ECR "pytorch-training:2.7.1-gpu-py312-cu128-ubuntu22.04-ec2"},
        {"nvcr.io/nvidia/pytorch:25.09-py3", NULL, 12, "nvcr.io/nvidia/pytorch:25.01-py3"},
        {"python:3.11", "torch", 12, "pytorch/pytorch:2.9.0-cuda12.8-cudnn9-runtime"},
        {"python:3.11", NULL, 12, "nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04"},
        {"python:3.11", "cupy", 0, "nvidia/cuda:13.0.1-cudnn-runtime-ubuntu24.04"},
        {"quay.io/jupyter/pytorch-notebook", NULL, 13,
         "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"},
        {"python:3.11", "torch", 9, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        const char *other =
            stk_image_suggest(cases[i].name, cases[i].framework, cases[i].major, arena);
        if (strcmp(shown(other), shown(cases[i].other)) != 0) {
            fail_msg("%s: %s", cases[i].name, shown(other));
        }
    }
}

/* --- whether an image fits a host --- */

static const stk_finding *worst(const stk_findings *f)
{
    const stk_finding *w = NULL;
    for (uint32_t i = 0; i < f->n; i++) {
        if (w == NULL || f->items[i].level > w->level) {
            w = &f->items[i];
        }
    }
    return w;
}

static void test_fit(void **state)
{
    (void)state;
    static const char *const cuda13[] = {
        "CUDA_VERSION=13.0.1", "NVIDIA_REQUIRE_CUDA=cuda>=13.0 brand=nvidia,driver>=535,driver<536",
        NULL};
    static const char *const cuda129[] = {"CUDA_VERSION=12.9.0", "NVIDIA_REQUIRE_CUDA=cuda>=12.9",
                                          NULL};
    static const char *const off[] = {"CUDA_VERSION=12.9.0", "NVIDIA_REQUIRE_CUDA=cuda>=12.9",
                                      "NVIDIA_DISABLE_REQUIRE=1", NULL};
    static const char *const none[] = {"PATH=/bin", NULL};
    static const stk_image_host h580 = {"amd64", {"nvidia"}, "580.65.06", 13000, "nvidia", "9.0"},
                                h550 = {"amd64", {"nvidia"}, "550.54", 12040, "nvidia", "9.0"},
                                h535 = {"amd64", {"nvidia"}, "535.104.05", 12020, "nvidia", "9.0"},
                                amd = {"amd64", {"amd"}, NULL, -1, NULL, NULL},
                                bare = {"amd64", {NULL}, NULL, -1, NULL, NULL};
    static const struct {
        const char *name, *arch;
        const char *const *env;
        const stk_image_host *host;
        bool devices, python;
        int level;
        const char *text, *remedy;
    } cases[] = {
        {"us/x:1", "amd64", cuda13, &h580, 1, 0, STK_CHECK_OK, NULL, NULL},
        {"us/x:1", "amd64", cuda13, &h550, 1, 0, STK_CHECK_ERROR,
         "image 'us/x:1' has CUDA 13.0, which needs driver 580 or newer, but this host has 550.54",
         "use nvidia/cuda:12.8.1-cudnn-runtime-ubuntu24.04, whose CUDA this host's driver runs"},
        {"us/x:1", "amd64", cuda13, &h535, 1, 0, STK_CHECK_WARNING, "forward compatibility", NULL},
        {"us/x:1", "amd64", cuda13, &h550, 0, 0, STK_CHECK_OK, NULL, NULL},
        {"us/x:1", "amd64", cuda129, &h550, 1, 0, STK_CHECK_WARNING,
         "it needs cuda >= 12.9, but this host has 12.4 (NVIDIA_REQUIRE_CUDA)",
         "NVIDIA_DISABLE_REQUIRE=1"},
        {"us/x:1", "amd64", off, &h550, 1, 0, STK_CHECK_OK, NULL, NULL},
        {"us/x:1", "amd64", cuda129, &bare, 1, 0, STK_CHECK_OK, NULL, NULL},
        {"us/x:1", "arm64", cuda13, &h580, 1, 0, STK_CHECK_ERROR,
         "is for arm64, but this host is amd64", NULL},
        {"us/x:1", "amd64", none, &h580, 1, 0, STK_CHECK_NOTE, "neither name nor configuration",
         NULL},
        {"us/x:1", "amd64", none, &h580, 0, 0, STK_CHECK_OK, NULL, NULL},
        {"us/x-cpu:1", "amd64", none, &h580, 1, 0, STK_CHECK_ERROR,
         "image 'us/x-cpu:1' is made for CPUs only (its name says so), so it can't use the "
         "NVIDIA devices",
         "use "},
        {"us/x-cpu:1", "amd64", none, &h580, 0, 0, STK_CHECK_OK, NULL, NULL},
        {"tensorflow/tensorflow:2.15.0", "amd64", none, &h580, 1, 0, STK_CHECK_ERROR, "CPUs only",
         "use tensorflow/tensorflow:2.15.0-gpu"},
        {"rocm/pytorch:latest", "amd64", none, &h580, 1, 0, STK_CHECK_ERROR,
         "is made for devices of AMD (its name says so), but this host has those of NVIDIA",
         "use "},
        {"rocm/pytorch:latest", "amd64", none, &amd, 1, 0, STK_CHECK_OK, NULL, NULL},
        {"us/x:1", "amd64", cuda13, &amd, 1, 0, STK_CHECK_ERROR, "has those of AMD",
         "rocm/pytorch:latest"},
        {"python:3.6", "amd64", none, &bare, 0, 1, STK_CHECK_ERROR,
         "has Python 3.6, but Python steps need 3.7 or newer", NULL},
        {"python:3.6", "amd64", none, &bare, 0, 0, STK_CHECK_NOTE, "has Python 3.6", NULL},
        {"python:3.10", "amd64", none, &bare, 0, 1, STK_CHECK_OK, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_findings findings = {.arena = arena};
        const stk_image_config config = {
            .arch = cases[i].arch, .os = "linux", .env = cases[i].env, .size_bytes = -1};
        const stk_image_use use = {.devices = cases[i].devices, .python = cases[i].python};
        stk_image_facts facts;
        assert_int_equal(stk_image_facts_of(cases[i].name, &config, arena, &facts, NULL), 0);
        stk_image_judge(&config, &facts, cases[i].name, cases[i].host, &use, &findings);
        const stk_finding *w = worst(&findings);
        assert_non_null(w);
        if ((int)w->level != cases[i].level ||
            (cases[i].text != NULL && strstr(w->text, cases[i].text) == NULL) ||
            (cases[i].remedy != NULL &&
             (w->remedy == NULL || strstr(w->remedy, cases[i].remedy) == NULL))) {
            fail_msg("%zu %s: %s: %s → %s", i, cases[i].name, stk_check_word(w->level), w->text,
                     shown(w->remedy));
        }
    }
}

static void test_hosts(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *accel = NULL;
    stk_image_host host;
    assert_int_equal(stk_accel_open("sim:2xH100+1xMI300X", &accel, NULL), 0);
    stk_image_host_of(accel, "amd64", arena, &host);
    assert_string_equal(host.vendors[0], "nvidia");
    assert_string_equal(host.vendors[1], "amd");
    assert_null(host.vendors[2]);
    assert_string_equal(host.brand, "nvidia");
    assert_string_equal(host.capability, "9.0");
    stk_findings findings = {.arena = arena};
    const stk_image_use use = {.devices = true, .arch = "amd64"};
    assert_int_equal(
        stk_image_check(NULL, "tensorflow/tensorflow:2.15.0", accel, &use, &findings, NULL), 0);
    assert_int_equal(worst(&findings)->level, STK_CHECK_ERROR);
    assert_int_equal(stk_image_check(NULL, "Wrong", accel, &use, &findings, NULL), STK_E_SPEC);
    stk_accel_close(accel);
    stk_image_host_of(NULL, NULL, arena, &host);
    assert_non_null(host.arch);
    assert_null(host.vendors[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_requirements), cmocka_unit_test(test_brands),
        cmocka_unit_test(test_families),     cmocka_unit_test(test_environment_tells_more),
        cmocka_unit_test(test_suggestions),  cmocka_unit_test(test_fit),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
