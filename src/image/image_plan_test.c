/* Compares a resolver's plan with the packages that an image has. */
#include <string.h>

#include "base/testing.h"
#include "image/image_private.h"

static void test_reading(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool known;
        const char *plan; /* "name version …" */
    } cases[] = {
        {"{\"version\": \"1\", \"install\": [{\"metadata\": {\"name\": \"torch\", \"version\": "
         "\"2.9.0\"}}, {\"metadata\": {\"name\": \"x\"}}]}",
         true, "torch 2.9.0"},
        {"WARNING: something\n{\"install\": []}", true, ""},
        {"{\"pip_version\": \"23\"}", false, ""},
        {"Resolved 2 packages in 1ms\nWould download 1 package\nWould uninstall 1 package\nWould "
         "install 2 packages\n - torch==2.9.0+cu130\n + torch==2.9.0\n ~ numpy==1.26.4 (from "
         "file:///w)\n",
         true, "torch 2.9.0 numpy 1.26.4"},
        {"Audited 1 package in 2ms\nWould make no changes\n", true, ""},
        {"error: No solution found\n", false, ""},
        {"", false, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        STK_BUF_AUTO got = STK_BUF_INIT(4096);
        stk_image_planned planned[8];
        uint32_t n = 0;
        bool known = stk_image_plan_read(cases[i].text, arena, planned, 8, &n);
        stk_buf_text(&got, "");
        for (uint32_t k = 0; k < n; k++) {
            stk_buf_printf(&got, "%s%s %s", k > 0 ? " " : "", planned[k].name, planned[k].version);
        }
        if (known != cases[i].known ||
            strcmp(got.data != NULL ? got.data : "", cases[i].plan) != 0) {
            fail_msg("%zu: %d '%s'", i, known, got.data);
        }
    }
}

static void test_judging(void **state)
{
    (void)state;
    const stk_image_contents contents = {
        .frameworks = {{.name = "torch",
                        .version = "2.9.0+cu130",
                        .build = STK_BUILD_CUDA,
                        .cuda = 13000,
                        .serves = {"nvidia"}},
                       {.name = "jax",
                        .version = "0.7.0",
                        .build = STK_BUILD_CUDA,
                        .cuda = 12000,
                        .serves = {"nvidia"}},
                       {.name = "tensorflow", .version = "2.19", .build = STK_BUILD_CPU}},
        .n_frameworks = 3};
    static const struct {
        const char *name, *version;
        const char *text; /* NULL: fine */
    } cases[] = {
        {"torch", "2.9.0",
         "would replace torch 2.9.0+cu130 of img, built for CUDA 13.0, with torch "
         "2.9.0, which is another build"},
        {"torch", "2.9.0+cpu", "with torch 2.9.0+cpu"},
        {"Torch", "2.10", "with Torch 2.10"},
        {"torch", "2.8.0+cu126", NULL}, /* the user names this build */
        {"torch", "2.8.0+rocm6.2", NULL},
        {"torchvision", "0.24", NULL},
        {"jaxlib", "0.8", "would replace jax 0.7.0 of img, built for CUDA 12.0, with jaxlib 0.8"},
        {"jax_cuda13_plugin", "0.8", "with jax_cuda13_plugin 0.8"},
        {"jax", "0.8", NULL},         /* only jaxlib and the plugins have device builds */
        {"tensorflow", "2.20", NULL}, /* it has no device build to lose */
        {"numpy", "2", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const stk_image_planned planned[] = {{"first", "1"}, {cases[i].name, cases[i].version}};
        stk_err err = {0};
        int rc = stk_image_plan_judge(planned, 2, &contents, "img", &err);
        if (rc != (cases[i].text == NULL ? 0 : STK_E_RESOURCES) ||
            (cases[i].text != NULL && strstr(err.text, cases[i].text) == NULL)) {
            fail_msg("%s %s: %d %s", cases[i].name, cases[i].version, rc, err.text);
        }
    }
}

static void test_comparing(void **state)
{
    (void)state;
    stk_image_contents before = {
        .frameworks =
            {{.name = "torch", .version = "2.9.0+cu130", .build = STK_BUILD_CUDA, .cuda = 13000},
             {.name = "tensorflow", .version = "2.19", .build = STK_BUILD_CPU}},
        .n_frameworks = 2};
    static const struct {
        const char *version;
        int build, cuda;
        const char *text; /* NULL: fine */
    } cases[] = {
        {"2.9.0+cu130", STK_BUILD_CUDA, 13000, NULL},
        {"2.10.0", STK_BUILD_CUDA, 13000, NULL},
        {"2.8.0+cu126", STK_BUILD_CUDA, 12060, NULL},
        {"2.10.0", STK_BUILD_CPU, -1,
         "the build on img replaces its torch 2.9.0+cu130, built for CUDA 13.0, with 2.10.0, a CPU "
         "build"},
        {"2.8.0", STK_BUILD_CUDA, 12080, "with 2.8.0, built for CUDA 12.8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_image_contents after = before;
        stk_err err = {0};
        after.frameworks[0].version = cases[i].version;
        after.frameworks[0].build = cases[i].build;
        after.frameworks[0].cuda = cases[i].cuda;
        int rc = stk_image_plan_compare(&before, &after, "img", &err);
        assert_int_equal(rc, cases[i].text == NULL ? 0 : STK_E_RESOURCES);
        if (cases[i].text != NULL) {
            assert_non_null(strstr(err.text, cases[i].text));
            assert_non_null(strstr(err.hint, "pin the version of the image (torch==2.9.0+cu130)"));
            assert_non_null(strstr(err.hint, "+cu130)"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_judging),
        cmocka_unit_test(test_comparing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
