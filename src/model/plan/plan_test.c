#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/testing.h"
#include "model/plan/plan.h"

#define HEAD "stoker: 1\nname: p\nsteps:\n"

static stk_spec *parse(const char *text)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    char message[1200];
    if (stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err) < 0) {
        fail_msg("%s", stk_err_format(&err, message, sizeof message));
    }
    return spec;
}

/* --- graph --- */

static void test_graph(void **state)
{
    (void)state;
    stk_spec *spec =
        parse(HEAD "  d: {run: x, inputs: {l: {from: [c.o, b.o, c.o]}}, after: [b, a]}\n"
                   "  c: {run: x, outputs: [o], after: [a]}\n"
                   "  a: {run: x, outputs: [o]}\n"
                   "  b: {run: x, outputs: [o], inputs: {i: {from: a.o}, j: {from: a.o}}}\n"
                   "  e: {run: x}\n");
    stk_plan *plan = NULL;
    assert_int_equal(stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, NULL), 0);
    static const char *const names[] = {"a", "c", "b", "d", "e"}; /* document order if possible */
    static const struct {
        uint32_t n_needs, needs[3], n_feeds, feeds[3];
    } steps[] = {{0, {0}, 3, {1, 2, 3}},
                 {1, {0}, 1, {3}},
                 {1, {0}, 1, {3}},
                 {3, {1, 2, 0}, 0, {0}},
                 {0, {0}, 0, {0}}};
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t n;
        assert_int_equal(stk_plan_order(plan)[i], i);
        assert_string_equal(stk_spec_step(spec, i)->name, names[i]);
        const uint32_t *needs = stk_plan_needs(plan, i, &n);
        assert_int_equal(n, steps[i].n_needs);
        assert_memory_equal(needs, steps[i].needs, n * sizeof *needs);
        const uint32_t *feeds = stk_plan_feeds(plan, i, &n);
        assert_int_equal(n, steps[i].n_feeds);
        assert_memory_equal(feeds, steps[i].feeds, n * sizeof *feeds);
    }
    assert_ptr_equal(stk_plan_spec(plan), spec);
    stk_plan_free(plan);
    stk_spec_free(spec);
}

static void test_cycles(void **state)
{
    (void)state;
    static const struct {
        const char *steps, *expected;
    } cases[] = {
        {"  a: {run: x, after: [a]}\n", "p.yaml:4: steps depend on each other in a cycle: a -> a; "
                                        "remove one of these dependencies"},
        {"  z: {run: x}\n  b: {run: x, outputs: [o], after: [a, z]}\n"
         "  a: {run: x, inputs: {i: {from: b.o}}}\n  y: {run: x, after: [a]}\n",
         "p.yaml:5: steps depend on each other in a cycle: b -> a -> b; remove one of these "
         "dependencies"},
        /* in the direction in which the data flows */
        {"  a: {run: x, after: [c]}\n  b: {run: x, after: [a]}\n  c: {run: x, after: [b]}\n",
         "p.yaml:4: steps depend on each other in a cycle: a -> b -> c -> a; remove one of these "
         "dependencies"},
        /* the search enters the cycle from outside */
        {"  t: {run: x, after: [b]}\n  a: {run: x, after: [b]}\n  b: {run: x, after: [a]}\n",
         "p.yaml:5: steps depend on each other in a cycle: a -> b -> a; remove one of these "
         "dependencies"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        stk_buf_printf(&text, HEAD "%s", cases[i].steps);
        stk_spec *spec = parse(text.data);
        stk_plan *plan = NULL;
        stk_err err = {0};
        char message[1200];
        assert_int_equal(stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, &err), STK_E_SPEC);
        assert_string_equal(stk_err_format(&err, message, sizeof message), cases[i].expected);
        assert_null(plan);
        stk_spec_free(spec);
    }
}

/* A chain of 100,000 steps, written last step first, then closed to a cycle. */
static void test_long_chain(void **state)
{
    (void)state;
    enum { N = 100000 };
    for (int closed = 0; closed <= 1; closed++) {
        STK_BUF_AUTO text = STK_BUF_INIT(64u << 20);
        stk_buf_text(&text, "{\"stoker\":1,\"name\":\"p\",\"steps\":{");
        for (int i = 0; i < N; i++) {
            stk_buf_printf(&text, "%s\"s%d\":{\"run\":\"x\",\"after\":[", i == 0 ? "" : ",", i);
            if (i + 1 < N || closed) {
                stk_buf_printf(&text, "\"s%d\"", (i + 1) % N);
            }
            stk_buf_text(&text, "]}");
        }
        stk_buf_text(&text, "}}");
        stk_spec *spec = parse(text.data);
        stk_plan *plan = NULL;
        stk_err err = {0};
        int rc = stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, &err);
        if (closed) {
            assert_int_equal(rc, STK_E_SPEC);
            assert_string_equal(
                err.text,
                "steps depend on each other in a cycle: s0 -> s99999 -> s99998 -> s99997 -> s99996 "
                "-> s99995 -> … 99989 more … -> s5 -> s4 -> s3 -> s2 -> s1 -> s0");
        } else {
            assert_int_equal(rc, 0);
            uint32_t n;
            assert_string_equal(stk_spec_step(spec, 0)->name, "s99999");
            for (uint32_t i = 0; i < N; i++) {
                const uint32_t *needs = stk_plan_needs(plan, i, &n);
                assert_int_equal(n, i > 0 ? 1 : 0);
                assert_true(i == 0 || needs[0] == i - 1);
            }
        }
        stk_plan_free(plan);
        stk_spec_free(spec);
    }
}

static void test_wide_step(void **state)
{
    (void)state;
    enum { N = 10000 };
    STK_BUF_AUTO text = STK_BUF_INIT(8u << 20);
    STK_BUF_AUTO list = STK_BUF_INIT(8u << 20);
    stk_buf_text(&text, "{\"stoker\":1,\"name\":\"p\",\"steps\":{");
    for (int i = 0; i < N; i++) {
        stk_buf_printf(&text, "\"s%d\":{\"run\":\"x\",\"outputs\":[\"o\"]},", i);
        stk_buf_printf(&list, "%s\"i%d\":{\"from\":\"s%d.o\"}", i == 0 ? "" : ",", i, i);
    }
    stk_buf_printf(&text, "\"all\":{\"run\":\"x\",\"inputs\":{%s}}}}", list.data);
    stk_spec *spec = parse(text.data);
    stk_plan *plan = NULL;
    uint32_t n;
    assert_int_equal(stk_plan_new(spec, NULL, NULL, STK_POLICY_FIT, &plan, NULL), 0);
    (void)stk_plan_needs(plan, N, &n);
    assert_int_equal(n, N);
    stk_plan_free(plan);
    stk_spec_free(spec);
}

/* --- requests --- */

typedef struct machine {
    uint32_t n_devices, n_broken;
    int cpus, memory_gb;
} machine;

static void test_requests(void **state)
{
    (void)state;
    static const machine laptop = {0, 0, 2, 8};
    static const machine box = {2, 0, 64, 512};
    static const machine broken = {1, 1, 64, 512};
    static const machine dead = {0, 2, 64, 512};
    static const struct {
        const machine *on;
        const char *resources;
        stk_policy policy;
        int code;
        const char *text; /* the error, or the notes */
        stk_request request;
    } cases[] = {
        {&laptop, "{}", STK_POLICY_STRICT, 0, "", {.cpu_milli = 1000}},
        {&laptop,
         "{cpu_count: 2, memory: 8GB}",
         STK_POLICY_STRICT,
         0,
         "",
         {.cpu_milli = 2000, .memory_bytes = 8000000000, .limit_cpu = true, .limit_memory = true}},
        {&laptop, "{gpu_count: 0}", STK_POLICY_STRICT, 0, "", {.cpu_milli = 1000}},
        {&box,
         "{gpu_count: 2, gpu_class: a100}",
         STK_POLICY_STRICT,
         0,
         "",
         {.cpu_milli = 1000, .n_devices = 2}},
        /* strict: refused, with a suggestion */
        {&laptop,
         "{cpu_count: 8}",
         STK_POLICY_STRICT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': cpu_count 8 is more than this machine's 2; lower it, or use --policy "
         "fit to run with less",
         {0}},
        {&laptop,
         "{memory: 64GB}",
         STK_POLICY_STRICT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': memory 64 GB is more than this machine's 8 GB; lower it, or use "
         "--policy fit to run with less",
         {0}},
        {&laptop,
         "{gpu_count: 1}",
         STK_POLICY_STRICT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_count 1: this machine has no GPU; remove it, or use --policy fit "
         "to run without devices",
         {0}},
        {&box,
         "{gpu_count: 9}",
         STK_POLICY_STRICT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_count 9 is more than this machine's 2; lower it to what is "
         "available",
         {0}},
        /* fit: less CPU and memory, and no devices where the machine has none */
        {&laptop,
         "{cpu_count: 8, memory: 64GB, gpu_count: 1}",
         STK_POLICY_FIT,
         0,
         "step 'a' asked for 1 GPU: this machine has none, so it runs on the CPU (policy "
         "fit)\nstep 'a' asked for 8 CPUs: this machine has 2, so it runs with 2 (policy "
         "fit)\nstep 'a' asked for 64 GB of memory: this machine has 8 GB, so it runs with 8 GB "
         "(policy fit)\n",
         {.cpu_milli = 2000,
          .memory_bytes = 8000000000,
          .limit_cpu = true,
          .limit_memory = true,
          .clamped = true}},
        {&laptop,
         "{gpu_count: 2, gpu_class: H100}",
         STK_POLICY_FIT,
         0,
         "step 'a' asked for 2 GPUs (gpu_class H100): this machine has none, so it runs on the CPU "
         "(policy fit)\n",
         {.cpu_milli = 1000, .clamped = true}},
        /* fit: too few devices, another class or broken devices are still errors */
        {&box,
         "{gpu_count: 3}",
         STK_POLICY_FIT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_count 3 is more than this machine's 2; lower it to what is "
         "available",
         {0}},
        {&box,
         "{gpu_count: 1, gpu_class: H100}",
         STK_POLICY_FIT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_class H100: this machine has 2 × NVIDIA A100-SXM4-80GB; name one "
         "of these, or leave the class out",
         {0}},
        {&box,
         "{gpu_count: 1, gpu_vendor: amd}",
         STK_POLICY_FIT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_vendor amd: this machine has 2 × NVIDIA A100-SXM4-80GB; name one "
         "of these, or leave the vendor out",
         {0}},
        {&box,
         "{gpu_count: 3, gpu_class: A100-80GB}",
         STK_POLICY_FIT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_count 3 is more than this machine's 2 of gpu_class A100-80GB; "
         "lower it to what is available",
         {0}},
        {&broken, "{gpu_count: 1}", STK_POLICY_FIT, 0, "", {.cpu_milli = 1000, .n_devices = 1}},
        {&broken,
         "{gpu_count: 2}",
         STK_POLICY_FIT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_count 2: 1 of the GPUs that this machine has can't be used "
         "(driver mismatch); repair that, or remove gpu_count to run without devices",
         {0}},
        {&dead,
         "{gpu_count: 1}",
         STK_POLICY_FIT,
         STK_E_RESOURCES,
         "p.yaml:4: step 'a': gpu_count 1: 2 of the GPUs that this machine has can't be used "
         "(driver mismatch); repair that, or remove gpu_count to run without devices",
         {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const machine *on = cases[i].on;
        stk_capacity_device devices[4];
        for (uint32_t k = 0; k < on->n_devices + on->n_broken; k++) {
            bool usable = k < on->n_devices;
            devices[k] = (stk_capacity_device){.vendor = "nvidia",
                                               .noun = "GPU",
                                               .model = "NVIDIA A100-SXM4-80GB",
                                               .memory_bytes = 80ll << 30,
                                               .numa = -1,
                                               .parent = -1,
                                               .usable = usable,
                                               .trouble = usable ? NULL : "driver mismatch"};
        }
        stk_capacity capacity = {.where = "this machine",
                                 .backend = "local",
                                 .cpu_milli = on->cpus * 1000,
                                 .memory_bytes = on->memory_gb * 1000000000ll,
                                 .devices = devices,
                                 .n_devices = on->n_devices + on->n_broken};
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        STK_BUF_AUTO notes = STK_BUF_INIT(4096);
        stk_buf_printf(&text, HEAD "  a: {run: x, resources: %s}\n", cases[i].resources);
        stk_spec *spec = parse(text.data);
        stk_plan *plan = NULL;
        stk_err err = {0};
        char message[1200];
        int rc = stk_plan_new(spec, &capacity, NULL, cases[i].policy, &plan, &err);
        stk_buf_text(&notes, rc < 0 ? stk_err_format(&err, message, sizeof message) : "");
        for (uint32_t k = 0; rc == 0 && k < stk_plan_n_notes(plan); k++) {
            stk_buf_printf(&notes, "%s\n", stk_plan_note(plan, k));
        }
        assert_string_equal(notes.data, cases[i].text);
        assert_int_equal(rc, cases[i].code);
        if (rc == 0) {
            const stk_request *got = stk_plan_request(plan, 0);
            const stk_request *want = &cases[i].request;
            assert_int_equal(got->cpu_milli, want->cpu_milli);
            assert_int_equal(got->memory_bytes, want->memory_bytes);
            assert_int_equal(got->n_devices, want->n_devices);
            assert_int_equal(got->limit_cpu, want->limit_cpu);
            assert_int_equal(got->limit_memory, want->limit_memory);
            assert_int_equal(got->clamped, want->clamped);
        }
        stk_plan_free(plan);
        stk_spec_free(spec);
    }
}

static void test_notes_are_gathered(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "", "step 's0' asked for 1 GPU: this machine has none, so it runs on the CPU (policy fit)",
        "steps 's0' and 's1' asked for 1 GPU each: this machine has none, so they run on the CPU "
        "(policy fit)",
        "steps 's0', 's1' and 's2' asked for 1 GPU each: this machine has none, so they run on the "
        "CPU (policy fit)",
        "steps 's0', 's1' and 2 more asked for 1 GPU each: this machine has none, so they run on "
        "the CPU (policy fit)"};
    stk_capacity capacity = {.where = "this machine", .cpu_milli = 1000, .memory_bytes = 1};
    for (int n = 1; n <= 4; n++) {
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        stk_buf_text(&text, "resources: {gpu_count: 1}\n" HEAD);
        for (int i = 0; i < n; i++) {
            stk_buf_printf(&text, "  s%d: {run: x}\n", i);
        }
        stk_spec *spec = parse(text.data);
        stk_plan *plan = NULL;
        assert_int_equal(stk_plan_new(spec, &capacity, NULL, STK_POLICY_FIT, &plan, NULL), 0);
        assert_int_equal(stk_plan_n_notes(plan), 1);
        assert_string_equal(stk_plan_note(plan, 0), expected[n]);
        stk_plan_free(plan);
        stk_spec_free(spec);
    }
}

/* A loop is not a cycle, and each step knows its next and its previous steps. */
static void test_growing(void **state)
{
    (void)state;
    static const char text[] = "stoker: 1\nname: p\nsteps:\n"
                               "  a: {run: x, outputs: [o], next: b, foreach: o}\n"
                               "  b: {run: x, outputs: [o], switch: o, cases: {y: b, z: b, n: j}}\n"
                               "  j: {run: x, join: true, resources: {cpu_count: 3}}\n";
    stk_err err = {0};
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    assert_return_code(
        stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err), 0);
    assert_return_code(stk_plan_new(spec, NULL, NULL, STK_POLICY_STRICT, &plan, &err), 0);
    static const uint32_t needs[][2] = {{0}, {0, 1}, {1}};
    static const uint32_t feeds[][2] = {{1}, {1, 2}, {0}};
    static const uint32_t n_needs[] = {0, 2, 1};
    static const uint32_t n_feeds[] = {1, 2, 0};
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t n;
        const uint32_t *got = stk_plan_needs(plan, i, &n);
        assert_int_equal(n, n_needs[i]);
        assert_memory_equal(got, needs[i], n * sizeof *got);
        got = stk_plan_feeds(plan, i, &n);
        assert_int_equal(n, n_feeds[i]);
        assert_memory_equal(got, feeds[i], n * sizeof *got);
    }
    assert_int_equal(stk_plan_request(plan, 2)->cpu_milli, 3000);
    stk_plan_free(plan);
    stk_spec_free(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_long_chain),
        cmocka_unit_test(test_wide_step),
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_notes_are_gathered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
