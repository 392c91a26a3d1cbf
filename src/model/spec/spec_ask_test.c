/* Which devices requests ask for, and which vendor makes a model. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/testing.h"
#include "model/spec/spec.h"

#define HEAD "stoker: 1\nname: p\n"

/* Writes the alternatives of step 'a' as "2 x A100/nvidia+10737418240 | …". */
static void asked_by(const char *text, stk_buf *out)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    stk_alternative all[STK_LIMIT_ASKS];
    stk_buf_clear(out);
    if (stk_spec_parse(text, strlen(text), &(stk_spec_place){0}, &spec, &err) < 0) {
        stk_buf_text(out, err.text);
        return;
    }
    const stk_resources *res = &stk_spec_step(spec, 0)->settings->resources;
    uint32_t n = stk_spec_alternatives(res, all);
    for (uint32_t i = 0; i < n; i++) {
        const char *vendor = stk_spec_vendor_of(&all[i]);
        stk_buf_printf(out, "%s%lld x %s/%s", i > 0 ? " | " : "", (long long)all[i].gpu_count,
                       all[i].gpu_class != NULL ? all[i].gpu_class : "*",
                       vendor != NULL ? vendor : "*");
        if (all[i].gpu_memory_bytes != -1) {
            stk_buf_printf(out, "+%lld", (long long)all[i].gpu_memory_bytes);
        }
    }
    assert_int_equal(stk_spec_n_devices(res), n > 0 ? all[0].gpu_count : 0);
    stk_spec_free(spec);
}

static void test_alternatives(void **state)
{
    (void)state;
    static const struct {
        const char *pipeline, *step, *asks;
    } cases[] = {
        {NULL, "{}", ""},
        {NULL, "{cpu_count: 2}", ""},
        {NULL, "{gpu_count: 3}", "3 x */*"},
        /* without a count, one device */
        {NULL, "{gpu_memory: 1GiB}", "1 x */*+1073741824"},
        {NULL, "{gpu_memory: auto}", "1 x */*+-2"},
        {NULL, "{gpu_class: A100}", "1 x A100/nvidia"},
        {NULL, "{gpu_class: 1g.10gb}", "1 x 1g.10gb/nvidia"},
        {NULL, "{gpu_class: Trainium}", "1 x Trainium/aws"},
        {NULL, "{gpu_vendor: rocm}", "1 x */amd"},
        {NULL, "{any_of: [{gpu_class: H100}, {gpu_vendor: tpu, gpu_count: 4}]}",
         "1 x H100/nvidia | 4 x */google"},
        {NULL, "{any_of: [{}]}", "1 x */*"},
        {NULL, "{any_of: []}", ""},
        /* gpu_count 0 asks for no device */
        {NULL, "{gpu_count: 0, gpu_class: A100, gpu_vendor: nvidia, gpu_memory: 1GiB}", ""},
        {NULL, "{gpu_count: 0, any_of: [{gpu_class: A100}]}", ""},
        {"{gpu_class: A100}", "{gpu_count: 0}", ""},
        /* alternatives inherit what they don't set */
        {NULL, "{gpu_count: 2, gpu_class: T4, any_of: [{gpu_class: H100}, {gpu_count: 4}]}",
         "2 x H100/nvidia | 4 x T4/nvidia"},
        /* the pipeline's resources, which the step's own keys override */
        {"{gpu_class: A100}", "{}", "1 x A100/nvidia"},
        {"{gpu_vendor: amd}", "{gpu_count: 2}", "2 x */amd"},
        {"{any_of: [{gpu_class: H100}, {gpu_class: A100, gpu_count: 2}]}", "{}",
         "1 x H100/nvidia | 2 x A100/nvidia"},
        {"{any_of: [{gpu_class: H100, gpu_count: 2}]}", "{gpu_class: T4}", "1 x T4/nvidia"},
        {"{any_of: [{gpu_class: H100, gpu_count: 2}]}", "{gpu_vendor: amd}", "1 x */amd"},
        {"{any_of: [{gpu_class: H100, gpu_count: 2}]}", "{gpu_count: 4}", "4 x H100/nvidia"},
        {"{any_of: [{gpu_class: H100, gpu_memory: 1GiB}]}", "{gpu_memory: 2GiB}",
         "1 x H100/nvidia+2147483648"},
        {"{any_of: [{gpu_class: H100}]}", "{gpu_class: T4, any_of: [{gpu_count: 2}]}",
         "2 x T4/nvidia"},
        {"{gpu_class: H100}", "{any_of: [{gpu_class: T4}]}", "1 x T4/nvidia"},
    };
    static const struct {
        const char *pipeline, *step, *asks;
    } options[] = {
        {"", "backend: {kubernetes: {gpu: 2}}", "2 x */*"},
        {"", "backend: {kubernetes: {gpu: \"2\", gpu_vendor: amd}}", "2 x */amd"},
        {"", "backend: {kubernetes: {gpu: 1}, batch: {gpu: 4}}", "4 x */*"},
        {"", "backend: {batch: {trainium: 16}}", "16 x */aws"},
        {"", "backend: {kubernetes: {inferentia: 1}}, resources: {gpu_class: Inferentia2}",
         "1 x Inferentia2/aws"},
        {"", "backend: {kubernetes: {neuroncores: 4}}", "1 x */aws"},
        {"", "backend: {kubernetes: {tpu: 4, tpu_topology: 2x2}}", "4 x */google"},
        {"", "backend: {kubernetes: {tpu_topology: 2x4}}", "1 x */google"},
        {"", "backend: {kubernetes: {gpu_type: A100}}", "1 x */*"},
        {"", "backend: {kubernetes: {gpu_vendor: amd}}", ""}, /* describes the cluster */
        {"", "backend: {kubernetes: {gpu: 0}}", ""},
        {"", "backend: {kubernetes: {gpu: 1}}, resources: {gpu_count: 0}", ""},
        {"", "backend: {kubernetes: {gpu: 1}}, resources: {gpu_count: 2, gpu_class: A100}",
         "2 x A100/nvidia"},
        {"backend: {kubernetes: {gpu: 2}}\n", "", "2 x */*"},
        {"backend: {kubernetes: {gpu: 2}}\n", "backend: {kubernetes: {gpu: 0}}", ""},
        {"backend: {kubernetes: {gpu: 2}}\n", "resources: {gpu_count: 0}", ""},
    };
    STK_BUF_AUTO out = STK_BUF_INIT(4096);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[600];
        (void)snprintf(text, sizeof text, HEAD "%s%s%ssteps: {a: {run: x, resources: %s}}\n",
                       cases[i].pipeline != NULL ? "resources: " : "",
                       cases[i].pipeline != NULL ? cases[i].pipeline : "",
                       cases[i].pipeline != NULL ? "\n" : "", cases[i].step);
        asked_by(text, &out);
        assert_string_equal(out.data != NULL ? out.data : "", cases[i].asks);
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char text[600];
        (void)snprintf(text, sizeof text, HEAD "%ssteps: {a: {run: x%s%s}}\n", options[i].pipeline,
                       *options[i].step != '\0' ? ", " : "", options[i].step);
        asked_by(text, &out);
        assert_string_equal(out.data != NULL ? out.data : "", options[i].asks);
    }
}

static void test_models(void **state)
{
    (void)state;
    static const struct {
        const char *class, *model;
        bool is_other;
    } cases[] = {
        {"A100", "NVIDIA A100-SXM4-80GB", false},
        {"nvidia-a100-80gb", "NVIDIA A100-SXM4-80GB", false},
        {"nvidia-h100-mega-80gb", "NVIDIA H100 80GB HBM3", false},
        {"Tesla-V100-SXM2-16GB-SHARED", "NVIDIA Tesla V100-SXM2-16GB", false},
        {"H100", "NVIDIA A100-SXM4-80GB", true},
        {"A10", "NVIDIA A100-SXM4-80GB", true},
        {"Trainium", "AWS Inferentia2", true},
        {"Trainium", "AWS Trainium", false},
        {"fast", "NVIDIA L4", false}, /* a label of the cluster's */
        {"1g.10gb", "NVIDIA L4", false},
        {"A100", NULL, false},
        {NULL, "NVIDIA L4", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(stk_spec_is_other_model(cases[i].class, cases[i].model),
                         cases[i].is_other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
