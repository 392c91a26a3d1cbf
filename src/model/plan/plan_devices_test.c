/* Requests for devices, checked against the machines that are defined here. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/testing.h"
#include "model/plan/plan.h"

#define GIB (1ll << 30)
#define HEAD "stoker: 1\nname: p\nsteps:\n"
#define GPU(model_, gib)                                                                           \
    {                                                                                              \
        .vendor = "nvidia", .noun = "GPU", .model = model_, .memory_bytes = (gib)*GIB, .numa = -1, \
        .parent = -1, .usable = true                                                               \
    }
#define A100 GPU("NVIDIA A100-SXM4-80GB", 80)
#define H100 GPU("NVIDIA H100 80GB HBM3", 80)
#define T4 GPU("Tesla T4", 15)
#define SPLIT                                                                                      \
    {                                                                                              \
        .vendor = "nvidia", .noun = "GPU", .model = "NVIDIA A100-SXM4-80GB",                       \
        .memory_bytes = 80 * GIB, .numa = -1, .parent = -1                                         \
    }
#define SLICE(of, profile_, gib)                                                                   \
    {                                                                                              \
        .vendor = "nvidia", .noun = "MIG slice", .model = "NVIDIA A100-SXM4-80GB",                 \
        .profile = profile_, .memory_bytes = (gib)*GIB, .numa = -1, .parent = of, .usable = true   \
    }
#define BROKEN(trouble_)                                                                           \
    {                                                                                              \
        .vendor = "nvidia", .noun = "GPU", .model = "NVIDIA A100-SXM4-80GB", .memory_bytes = -1,   \
        .numa = -1, .parent = -1, .trouble = trouble_                                              \
    }
#define AMD                                                                                        \
    {                                                                                              \
        .vendor = "amd", .noun = "GPU", .model = "AMD Instinct MI300X", .memory_bytes = 192 * GIB, \
        .numa = -1, .parent = -1, .usable = true                                                   \
    }
#define TPU                                                                                        \
    {                                                                                              \
        .vendor = "google", .noun = "TPU chip", .model = "Google TPU v5e",                         \
        .memory_bytes = 16 * GIB, .numa = -1, .parent = -1, .usable = true                         \
    }
#define TRN                                                                                        \
    {                                                                                              \
        .vendor = "aws", .noun = "Neuron device", .model = "AWS Trainium",                         \
        .memory_bytes = 32 * GIB, .numa = -1, .parent = -1, .usable = true                         \
    }

typedef struct machine {
    uint32_t n;
    stk_capacity_device devices[9];
} machine;

static const machine laptop = {0};
static const machine two = {2, {A100, A100}};
static const machine mixed = {4, {A100, A100, T4, AMD}};
static const machine sliced = {
    4, {SPLIT, SLICE(0, "1g.10gb", 10), SLICE(0, "1g.10gb", 10), SLICE(0, "3g.40gb", 40)}};
static const machine half = {3, {A100, SPLIT, SLICE(1, "1g.10gb", 10)}};
static const machine sick = {2, {A100, BROKEN("it has fallen off the bus")}};
static const machine tpus = {8, {TPU, TPU, TPU, TPU, TPU, TPU, TPU, TPU}};
static const machine lame = {4, {TPU, TPU, TPU, BROKEN("gone")}};
static const machine neurons = {2, {TRN, TRN}};
static const machine small = {2, {T4, H100}};
static const machine mute = {1,
                             {{.vendor = "nvidia",
                               .noun = "GPU",
                               .model = "NVIDIA GB10",
                               .memory_bytes = -1,
                               .numa = -1,
                               .parent = -1,
                               .usable = true}}};

/* Writes the asks, joined by " | ": "2:0,1" is two of devices 0 and 1, "1/10240:0" that many MiB of
 * one device, "4+:…" four neighbours. */
static void asks_text(const stk_request *r, stk_buf *out)
{
    for (uint32_t k = 0; k < r->n_asks; k++) {
        const stk_pack_ask *ask = &r->asks[k];
        stk_buf_printf(out, "%s%u", k > 0 ? " | " : "", ask->n);
        if (ask->share_mib > 0) {
            stk_buf_printf(out, "/%d", ask->share_mib);
        }
        stk_buf_text(out, ask->contiguous ? "+:" : ":");
        const char *comma = "";
        for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
            if (stk_devset_has(&ask->wanted, i)) {
                stk_buf_printf(out, "%s%u", comma, i);
                comma = ",";
            }
        }
    }
}

/* Plans one step and checks the result: its asks and notes, or the error. */
static void check(const machine *on, const char *resources, stk_policy policy, int64_t peak,
                  const char *expected)
{
    stk_capacity capacity = {.devices = on->devices,
                             .n_devices = on->n,
                             .where = "this machine",
                             .backend = "local",
                             .cpu_milli = 8000,
                             .memory_bytes = 64000000000ll};
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    STK_BUF_AUTO got = STK_BUF_INIT(4096);
    stk_buf_printf(&text, HEAD "  a: {run: x, resources: %s}\n", resources);
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    stk_err err = {0};
    char message[1200];
    int rc = stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "p.yaml"}, &spec, &err);
    rc = rc < 0 ? rc : stk_plan_new(spec, &capacity, peak < 0 ? NULL : &peak, policy, &plan, &err);
    if (rc < 0) {
        const char *told = stk_err_format(&err, message, sizeof message);
        const char *start = "p.yaml:4: step 'a': ";
        assert_true(strncmp(told, start, strlen(start)) == 0);
        stk_buf_text(&got, told + strlen(start));
    } else {
        const stk_request *r = stk_plan_request(plan, 0);
        asks_text(r, &got);
        assert_int_equal(r->n_devices, r->n_asks > 0 ? r->asks[0].n : 0);
        assert_int_equal(r->gpu_memory_auto, strstr(resources, "auto") != NULL && r->n_asks > 0);
        for (uint32_t k = 0; k < stk_plan_n_notes(plan); k++) {
            stk_buf_printf(&got, "; %s", stk_plan_note(plan, k));
        }
    }
    if (strcmp(got.data != NULL ? got.data : "", expected) != 0) {
        fail_msg("%s:\n  got      '%s'\n  expected '%s'", resources, got.data, expected);
    }
    stk_plan_free(plan);
    stk_spec_free(spec);
}

typedef struct request_case {
    const machine *on;
    const char *resources, *expected;
} request_case;

static void check_all(const request_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        /* All these machines have devices, so both policies give the same result. */
        check(cases[i].on, cases[i].resources, STK_POLICY_STRICT, -1, cases[i].expected);
        check(cases[i].on, cases[i].resources, STK_POLICY_FIT, -1, cases[i].expected);
    }
}
#define CHECK_ALL(cases) check_all(cases, sizeof(cases) / sizeof *(cases))

static void test_whole(void **state)
{
    (void)state;
    static const request_case cases[] = {
        {&two, "{}", ""},
        {&two, "{gpu_count: 0, gpu_memory: 10GB}", ""},
        {&two, "{gpu_count: 1}", "1:0,1"},
        {&two, "{gpu_count: 2, gpu_class: A100-80GB}", "2:0,1"},
        {&sick, "{gpu_count: 1}", "1:0"},
        /* One ask per vendor: a program's devices all have the same vendor. */
        {&mixed, "{gpu_count: 1}", "1:0,1,2 | 1:3"},
        {&mixed, "{gpu_count: 3}", "3:0,1,2"},
        {&mixed, "{gpu_count: 2, gpu_class: A100}", "2:0,1"},
        {&mixed, "{gpu_count: 1, gpu_vendor: ROCm}", "1:3"},
        {&mixed, "{gpu_count: 1, gpu_class: tesla-t4}", "1:2"},
        {&tpus, "{gpu_count: 4}", "4+:0,1,2,3,4,5,6,7"},
        {&tpus, "{gpu_count: 8, gpu_class: v5litepod}", "8+:0,1,2,3,4,5,6,7"},
        {&neurons, "{gpu_count: 2, gpu_vendor: neuron}", "2:0,1"},
        /* refused, with a value that works */
        {&two, "{gpu_count: 9}",
         "gpu_count 9 is more than this machine's 2; lower it to what is available"},
        {&mixed, "{gpu_count: 4}",
         "gpu_count 4 is more than this machine's 3 of one vendor; lower it to what is available"},
        {&mixed, "{gpu_count: 3, gpu_class: A100}",
         "gpu_count 3 is more than this machine's 2 of gpu_class A100; lower it to what is "
         "available"},
        {&mixed, "{gpu_count: 2, gpu_vendor: amd}",
         "gpu_count 2 is more than this machine's 1 of gpu_vendor amd; lower it to what is "
         "available"},
        {&mixed, "{gpu_count: 1, gpu_class: H100}",
         "gpu_class H100: this machine has 2 × NVIDIA A100-SXM4-80GB, Tesla T4, AMD Instinct "
         "MI300X; name one of these, or leave the class out"},
        {&mixed, "{gpu_count: 1, gpu_class: A100, gpu_vendor: amd}",
         "gpu_class A100, gpu_vendor amd: this machine has 2 × NVIDIA A100-SXM4-80GB, Tesla T4, "
         "AMD Instinct MI300X; name one of these, or leave the class out"},
        {&sick, "{gpu_count: 2}",
         "gpu_count 2: 1 of the GPUs that this machine has can't be used (it has fallen off the "
         "bus); repair that, or remove gpu_count to run without devices"},
        {&tpus, "{gpu_count: 3}", "gpu_count 3: TPU chips come in 1, 2, 4 or 8; write 2 or 4"},
        {&two, "{gpu_count: 3, gpu_vendor: tpu}",
         "gpu_count 3: TPU chips come in 1, 2, 4 or 8; write 2 or 4"},
        {&laptop, "{gpu_count: 16, gpu_class: v5e}",
         "gpu_count 16: TPU chips come in 1, 2, 4 or 8; write 8"},
    };
    CHECK_ALL(cases);
}

static void test_slices(void **state)
{
    (void)state;
    static const request_case cases[] = {
        {&sliced, "{gpu_count: 1, gpu_class: 1g.10gb}", "1:1,2"},
        {&sliced, "{gpu_count: 1, gpu_class: A100-3G.40GB}", "1:3"},
        {&sliced, "{gpu_count: 1, gpu_class: mig}", "1:1,2,3"},
        {&sliced, "{gpu_memory: 8GB}", "1/7629:1,2,3"},
        {&sliced, "{gpu_memory: 20GB}", "1/19073:3"},
        {&half, "{gpu_memory: 8GB}", "1/7629:0,2"},
        {&half, "{gpu_count: 1}", "1:0"},
        {&half, "{gpu_count: 1, gpu_class: A100}", "1:0"},
        {&sliced, "{gpu_count: 2, gpu_class: 1g.10gb}",
         "2:1,2; step 'a' asked for 2 MIG slices: CUDA lets a process use only one of them; start "
         "a process for each, or ask for a larger slice"},
        {&sliced, "{gpu_count: 1}",
         "gpu_count 1 asks for whole GPUs, but this machine has only slices of them: 2 × NVIDIA "
         "A100-SXM4-80GB 1g.10gb, NVIDIA A100-SXM4-80GB 3g.40gb; write gpu_class: 1g.10gb"},
        {&sliced, "{gpu_count: 2, gpu_memory: 8GB}",
         "gpu_count 2 with gpu_memory asks for shares of whole GPUs, but this machine has only "
         "slices of them: 2 × NVIDIA A100-SXM4-80GB 1g.10gb, NVIDIA A100-SXM4-80GB 3g.40gb; write "
         "gpu_class: 1g.10gb"},
        {&half, "{gpu_count: 2}",
         "gpu_count 2 is more than this machine's 1 that are whole; lower it to what is available"},
        {&two, "{gpu_count: 1, gpu_class: 1g.10gb}",
         "gpu_class 1g.10gb: this machine has 2 × NVIDIA A100-SXM4-80GB; name one of these, or "
         "leave the class out"},
        {&sliced, "{gpu_memory: 60GB}",
         "gpu_memory 60 GB is more than any slice of this machine has; the largest, "
         "3g.40gb, has 42.9 GB; ask for at most 42.9 GB"},
        {&half, "{gpu_count: 2, gpu_memory: 8GB}",
         "gpu_count 2 is more than the 1 GPU of this machine with 8 GB of memory; lower it to what "
         "is available"},
    };
    CHECK_ALL(cases);
}

static void test_shares(void **state)
{
    (void)state;
    static const request_case cases[] = {
        {&two, "{gpu_memory: 10GB}", "1/9536:0,1"},
        {&two, "{gpu_memory: 10GiB, gpu_count: 2}", "2/10240:0,1"},
        {&small, "{gpu_memory: 40GB}", "1/38146:1"},
        {&two, "{gpu_memory: 80GiB}", "1/81920:0,1"},
        {&two, "{gpu_memory: 1MiB}", "1/1:0,1"},
        {&mixed, "{gpu_memory: 100GB}", "1/95367:3"},
        {&two, "{gpu_memory: auto}", "1:0,1"},
        /* A device that can't be shared is given whole if it is, or may be, large enough. */
        {&tpus, "{gpu_memory: 10GB}", "1+:0,1,2,3,4,5,6,7"},
        {&neurons, "{gpu_memory: 20GB, gpu_count: 2}", "2:0,1"},
        {&mute, "{gpu_memory: 10GB}", "1:0"},
        {&two, "{gpu_memory: 90GB}",
         "gpu_memory 90 GB is more than any GPU of this machine has; the largest, NVIDIA "
         "A100-SXM4-80GB, has 85.9 GB; ask for at most 85.9 GB"},
        {&mixed, "{gpu_memory: 90GB, gpu_class: A100}",
         "gpu_memory 90 GB is more than any GPU of gpu_class A100 of this machine has; the "
         "largest, NVIDIA A100-SXM4-80GB, has 85.9 GB; ask for at most 85.9 GB"},
        {&small, "{gpu_memory: 40GB, gpu_count: 2}",
         "gpu_count 2 is more than the 1 GPU of this machine with 40 GB of memory; lower it to "
         "what is available"},
        {&tpus, "{gpu_memory: 20GB}",
         "gpu_memory 20 GB is more than any TPU chip of this machine has; the largest, Google TPU "
         "v5e, has 17.2 GB; ask for at most 17.2 GB"},
    };
    CHECK_ALL(cases);
}

static void test_alternatives(void **state)
{
    (void)state;
    static const request_case cases[] = {
        {&mixed, "{any_of: [{gpu_class: A100, gpu_count: 2}, {gpu_class: MI300X}]}", "2:0,1 | 1:3"},
        {&mixed,
         "{gpu_memory: 10GB, any_of: [{gpu_class: T4}, {gpu_vendor: amd, gpu_memory: 20GB}]}",
         "1/9536:2 | 1/19073:3"},
        /* Alternatives that this machine can't meet are left out. */
        {&two, "{any_of: [{gpu_class: H100}, {gpu_class: A100}, {gpu_vendor: tpu, gpu_count: 4}]}",
         "1:0,1"},
        {&two, "{gpu_count: 2, gpu_class: H100, any_of: [{gpu_class: A100}]}", "2:0,1"},
        {&two, "{any_of: []}", ""},
        /* a vendor or a class without a count means one device */
        {&two, "{gpu_class: A100}", "1:0,1"},
        {&mixed, "{gpu_vendor: amd}", "1:3"},
        {&half, "{gpu_class: 1g.10gb}", "1:2"},
        {&two, "{gpu_vendor: amd}",
         "gpu_vendor amd: this machine has 2 × NVIDIA A100-SXM4-80GB; name one of these, or leave "
         "the vendor out"},
        {&two, "{pool_resources: {gpu: 2}}",
         "; step 'a' asked for resources of a pool: Stoker has no pools, so this step reserves "
         "nothing; ask by cpu_count, memory, gpu_count"},
        {&two, "{resources: {}}", ""},
        {&two, "{gpu_count: 0, gpu_vendor: amd}", ""},
        {&two, "{gpu_count: 0, gpu_class: A100, any_of: [{gpu_class: H100}]}", ""},
        {&two, "{any_of: [{}]}", "1:0,1"},
        {&two, "{any_of: [{gpu_class: H100}, {gpu_count: 4}]}",
         "none of its 2 alternatives can be met: gpu_class H100: this machine has 2 × NVIDIA "
         "A100-SXM4-80GB; gpu_count 4 is more than this machine's 2; add one that can be met: this "
         "machine has 2 × NVIDIA A100-SXM4-80GB"},
    };
    CHECK_ALL(cases);
}

/* Policy fit runs a step without devices only if the machine has no such device. */
static void test_without(void **state)
{
    (void)state;
    static const struct {
        const machine *on;
        const char *resources, *fit, *strict;
    } cases[] = {
        {&laptop, "{gpu_count: 2, gpu_class: H100}",
         "; step 'a' asked for 2 GPUs (gpu_class H100): this machine has none, so it runs on the "
         "CPU (policy fit)",
         "gpu_count 2: this machine has no GPU; remove it, or use --policy fit to run without "
         "devices"},
        {&laptop, "{gpu_memory: 10GB}",
         "; step 'a' asked for 10 GB of GPU memory: this machine has none, so it runs on the CPU "
         "(policy fit)",
         "gpu_memory 10 GB: this machine has no GPU; remove it, or use --policy fit to run without "
         "devices"},
        {&laptop, "{gpu_count: 4, gpu_vendor: google}",
         "; step 'a' asked for 4 TPU chips (gpu_vendor google): this machine has none, so it runs "
         "on the CPU (policy fit)",
         "gpu_count 4: this machine has no TPU chip; remove it, or use --policy fit to run without "
         "devices"},
        {&two, "{gpu_count: 1, gpu_class: Trainium}",
         "; step 'a' asked for 1 Neuron device (gpu_class Trainium): this machine has none, so it "
         "runs on the CPU (policy fit)",
         "gpu_count 1: this machine has no Neuron device; remove it, or use --policy fit to run "
         "without devices"},
        {&laptop, "{any_of: [{gpu_class: A100, gpu_memory: 10GB, gpu_count: 2}, {gpu_class: v5e}]}",
         "; step 'a' asked for 2 × 10 GB of GPU memory (gpu_class A100) or 1 TPU chip (gpu_class "
         "v5e): this machine has none, so it runs on the CPU (policy fit)",
         "none of its 2 alternatives can be met: gpu_memory 10 GB: this machine has no GPU; "
         "gpu_count 1: this machine has no TPU chip; remove any_of, or use --policy fit to run "
         "without devices"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(cases[i].on, cases[i].resources, STK_POLICY_FIT, -1, cases[i].fit);
        check(cases[i].on, cases[i].resources, STK_POLICY_STRICT, -1, cases[i].strict);
    }
    /* The machine has such devices: policy fit doesn't replace them with a slow run on the CPU. */
    check(&lame, "{gpu_count: 4}", STK_POLICY_FIT, -1,
          "gpu_count 4: 1 of the GPUs that this machine has can't be used (gone); repair that, or "
          "remove gpu_count to run without devices");
}

/* gpu_memory derived from what earlier runs used. */
static void test_learned(void **state)
{
    (void)state;
    static const struct {
        const machine *on;
        const char *resources;
        int64_t peak;
        const char *expected;
    } cases[] = {
        {&two, "{gpu_memory: auto}", 10 * GIB, "1/11776:0,1"},
        {&small, "{gpu_memory: auto}", 20 * GIB, "1/23552:1"},
        {&half, "{gpu_memory: auto}", 4 * GIB, "1/4710:0,2"},
        /* Never more than the largest device has. */
        {&two, "{gpu_memory: auto}", 75 * GIB, "1/81920:0,1"},
        {&two, "{gpu_memory: auto, gpu_count: 2}", 10 * GIB, "2/11776:0,1"},
        {&tpus, "{gpu_memory: auto}", 10 * GIB, "1+:0,1,2,3,4,5,6,7"},
        {&two, "{any_of: [{gpu_memory: auto}]}", 10 * GIB, "1/11776:0,1"},
        /* A request below that use stays unchanged, but causes a note. */
        {&two, "{gpu_memory: 4GB}", 6000000000,
         "1/3814:0,1; step 'a' asked for 4 GB of GPU memory: earlier runs needed 6 GB"},
        {&two, "{gpu_memory: 4GB}", 4000000000, "1/3814:0,1"},
        {&two, "{gpu_count: 1}", 6000000000, "1:0,1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check(cases[i].on, cases[i].resources, STK_POLICY_STRICT, cases[i].peak, cases[i].expected);
    }
}

static void test_class(void **state)
{
    (void)state;
    static const struct {
        const char *class;
        stk_capacity_device device;
        bool fits;
    } cases[] = {
        {"A100", A100, true},
        {"a100-80gb", A100, true},
        {"A100-SXM4", A100, true},
        {"NVIDIA_TESLA_A100", A100, true},
        {"nvidia-a100-80gb", A100, true},
        {"A10", A100, false},
        {"A100-40GB", A100, false},
        {"H100", H100, true},
        {"H100-80GB", H100, true},
        {"H100-SXM", H100, true},
        {"H100-PCIE", H100, false},
        {"L4-24GB", GPU("NVIDIA L4", 23), true}, /* the model doesn't name its memory */
        {"L4-48GB", GPU("NVIDIA L4", 23), false},
        {"RTX4090", GPU("NVIDIA GeForce RTX 4090", 24), true},
        {"RTX 4090", GPU("NVIDIA GeForce RTX 4090", 24), true},
        {"RTX 4080", GPU("NVIDIA GeForce RTX 4090", 24), false},
        {"MI300X", AMD, true},
        {"mi300", AMD, false},
        {"v5e", TPU, true},
        {"TPU v5e", TPU, true},
        {"v5litepod", TPU, true},
        {"v5p", TPU, false},
        {"tpu", TPU, true},
        {"Trainium", TRN, true},
        {"Trainium1", TRN, true},
        {"Trainium2", TRN, false},
        {"1g.10gb", SLICE(0, "1g.10gb", 10), true},
        {"MIG-1g.10gb", SLICE(0, "1g.10gb", 10), true},
        {"2g.10gb", SLICE(0, "1g.10gb", 10), false},
        {"", T4, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool fits = stk_plan_device_fits(cases[i].class, NULL, &cases[i].device);
        if (fits != cases[i].fits) {
            fail_msg("'%s' and '%s'", cases[i].class, cases[i].device.model);
        }
    }
    const stk_capacity_device amd = AMD, nobody = {.model = "x", .memory_bytes = -1};
    assert_true(stk_plan_device_fits(NULL, "amd", &amd));
    assert_false(stk_plan_device_fits(NULL, "nvidia", &amd));
    assert_false(stk_plan_device_fits(NULL, "nvidia", &nobody));
    assert_true(stk_plan_device_fits(NULL, NULL, &nobody));
}

/* Steps with the same settings share their asks, even if other steps are between them. */
static void test_many_steps(void **state)
{
    (void)state;
    stk_capacity capacity = {
        .devices = mixed.devices, .n_devices = mixed.n, .where = "this machine"};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_buf_text(&text, "stoker: 1\nname: p\nresources: {gpu_count: 1, gpu_class: A100}\nsteps:\n");
    for (int i = 0; i < 100; i++) {
        stk_buf_printf(&text, "  a%d: {run: x}\n", i);
    }
    stk_buf_text(&text, "  b: {run: x, resources: {gpu_class: T4}}\n  c: {run: x}\n");
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    assert_int_equal(
        stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "p.yaml"}, &spec, NULL), 0);
    assert_int_equal(stk_plan_new(spec, &capacity, NULL, STK_POLICY_FIT, &plan, NULL), 0);
    assert_ptr_equal(stk_plan_request(plan, 99)->asks, stk_plan_request(plan, 0)->asks);
    for (uint32_t i = 0; i < 102; i++) {
        const stk_request *r = stk_plan_request(plan, i);
        assert_int_equal(r->n_asks, 1);
        assert_int_equal(r->asks[0].wanted.words[0], i == 100 ? 4 : 3);
    }
    stk_plan_free(plan);
    stk_spec_free(spec);
}

/* The note about a request names every step that makes it. */
static void test_notes_name_all(void **state)
{
    (void)state;
    stk_capacity capacity = {
        .devices = sliced.devices, .n_devices = sliced.n, .where = "this machine"};
    static const char text[] = "stoker: 1\nname: p\nresources: {gpu_count: 2, gpu_class: 1g.10gb}\n"
                               "steps:\n  a: {run: x}\n  b: {run: x}\n";
    stk_spec *spec = NULL;
    stk_plan *plan = NULL;
    assert_int_equal(
        stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, NULL), 0);
    assert_int_equal(stk_plan_new(spec, &capacity, NULL, STK_POLICY_FIT, &plan, NULL), 0);
    assert_int_equal(stk_plan_n_notes(plan), 1);
    assert_non_null(
        strstr(stk_plan_note(plan, 0), "steps 'a' and 'b' asked for 2 MIG slices each"));
    stk_plan_free(plan);
    stk_spec_free(spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),      cmocka_unit_test(test_slices),
        cmocka_unit_test(test_shares),     cmocka_unit_test(test_alternatives),
        cmocka_unit_test(test_without),    cmocka_unit_test(test_learned),
        cmocka_unit_test(test_class),      cmocka_unit_test(test_notes_name_all),
        cmocka_unit_test(test_many_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
