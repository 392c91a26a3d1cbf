/* The sentence "granted 2 GPUs, used 1, because …" for every cause. */
#include <stdio.h>
#include <string.h>

#include "base/testing.h"
#include "host/runner/runner_verdict.h"

#define BIT(name) ((uint64_t)1 << STK_LIB_##name)

static const stk_outcome_device unknown = {.index = -1,
                                           .busy_percent_mean = -1,
                                           .busy_s = -1,
                                           .energy_j = -1,
                                           .peak_memory_bytes = -1,
                                           .context = -1};

/* n devices GPU-0 …, each with the context that `contexts` says: '1', '0', '?'. */
static stk_outcome outcome_of(const char *contexts)
{
    static const char *const uuids[] = {"GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5"};
    stk_outcome o = {.ok = true, .n_devices = (uint32_t)strlen(contexts)};
    for (uint32_t i = 0; i < o.n_devices; i++) {
        o.devices[i] = unknown;
        o.devices[i].uuid = uuids[i];
        o.devices[i].index = (int32_t)i;
        o.devices[i].context = contexts[i] == '?' ? -1 : contexts[i] - '0';
    }
    return o;
}

typedef struct verdict_case {
    const char *contexts;
    stk_framework_report frameworks[2];
    uint32_t n_frameworks;
    uint64_t libraries;
    bool has_looked, mask_changed;
    const char *other_device;
    int used;
    stk_cause cause;
    const char *text;
} verdict_case;

#define TORCH_CUDA .name = "torch", .version = "2.9.0", .build = "cuda 12.8"

static const verdict_case cases[] = {
    {.contexts = "11", .used = 2, .cause = STK_CAUSE_USED, .text = "granted 2 GPUs, used 2"},
    {.contexts = "10",
     .frameworks = {{TORCH_CUDA, .available = 1, .initialized = 1, .device_count = 2}},
     .n_frameworks = 1,
     .used = 1,
     .cause = STK_CAUSE_NOT_MOVED,
     .text = "granted 2 GPUs, used 1: GPU-1 (index 1) never had a context; torch 2.9.0 saw the "
             "device, but no tensor was ever moved to it"},
    {.contexts = "0",
     .frameworks = {{.name = "torch",
                     .version = "2.13.0+cpu",
                     .build = "cpu",
                     .available = 0,
                     .initialized = 0,
                     .device_count = 0,
                     .reason = "Torch not compiled with CUDA enabled"}},
     .n_frameworks = 1,
     .used = 0,
     .cause = STK_CAUSE_CPU_ONLY_BUILD,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the installed torch "
             "2.13.0+cpu is a CPU-only build; install its build for this device"},
    /* The most certain cause counts, not the first framework. */
    {.contexts = "0",
     .frameworks = {{.name = "jax", .available = -1, .initialized = -1, .device_count = -1},
                    {.name = "torch",
                     .version = "2.13.0+cpu",
                     .build = "cpu",
                     .available = 0,
                     .initialized = 0,
                     .device_count = 0}},
     .n_frameworks = 2,
     .used = 0,
     .cause = STK_CAUSE_CPU_ONLY_BUILD,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the installed torch "
             "2.13.0+cpu is a CPU-only build; install its build for this device"},
    {.contexts = "000",
     .frameworks = {{TORCH_CUDA, .available = 0, .initialized = 0, .device_count = 0,
                     .reason =
                         "The NVIDIA driver on your system is too old (found version 11040).\n"
                         "Please update"}},
     .n_frameworks = 1,
     .used = 0,
     .cause = STK_CAUSE_DRIVER_TOO_OLD,
     .text = "granted 3 GPUs, used 0: GPU-0 (index 0), GPU-1 (index 1) and GPU-2 (index 2) never "
             "had a context; the driver is too old for the installed torch 2.9.0; update it, or "
             "install an older build (The NVIDIA driver on your system is too old (found version "
             "11040).)"},
    {.contexts = "0",
     .frameworks = {{TORCH_CUDA, .available = 0, .initialized = 0, .device_count = 0}},
     .n_frameworks = 1,
     .mask_changed = true,
     .used = 0,
     .cause = STK_CAUSE_WRONG_MASK,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the step changed the "
             "variable that names its devices; leave it as it was set"},
    {.contexts = "0",
     .frameworks = {{TORCH_CUDA, .available = 0, .initialized = 0, .device_count = 0,
                     .reason = "No CUDA GPUs are available"}},
     .n_frameworks = 1,
     .used = 0,
     .cause = STK_CAUSE_NOT_SEEN,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; torch 2.9.0 saw no "
             "device (No CUDA GPUs are available)"},
    {.contexts = "10",
     .frameworks = {{TORCH_CUDA, .available = 1, .initialized = 1, .device_count = 1}},
     .n_frameworks = 1,
     .used = 1,
     .cause = STK_CAUSE_NOT_SEEN,
     .text = "granted 2 GPUs, used 1: GPU-1 (index 1) never had a context; torch 2.9.0 saw only 1 "
             "of them"},
    {.contexts = "000000",
     .has_looked = true,
     .used = 0,
     .cause = STK_CAUSE_NO_FRAMEWORK,
     .text = "granted 6 GPUs, used 0: GPU-0 (index 0), GPU-1 (index 1), GPU-2 (index 2), GPU-3 "
             "(index 3) and 2 more never had a context; nothing in the step loads a library that "
             "could use it"},
    /* The other device was used, so NO_FRAMEWORK can't be the cause. */
    {.contexts = "10",
     .has_looked = true,
     .used = 1,
     .cause = STK_CAUSE_UNKNOWN,
     .text = "granted 2 GPUs, used 1: GPU-1 (index 1) never had a context; the reason is unknown"},
    {.contexts = "10",
     .has_looked = true,
     .libraries = BIT(TORCH_CUDA),
     .used = 1,
     .cause = STK_CAUSE_NOT_MOVED,
     .text = "granted 2 GPUs, used 1: GPU-1 (index 1) never had a context; torch saw the device, "
             "but no tensor was ever moved to it"},
    /* A command: the mapped libraries decide. */
    {.contexts = "0",
     .has_looked = true,
     .libraries = BIT(TORCH_CPU),
     .used = 0,
     .cause = STK_CAUSE_CPU_ONLY_BUILD,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the installed torch is a "
             "CPU-only build; install its build for this device"},
    {.contexts = "0",
     .has_looked = true,
     .libraries = BIT(TORCH_CPU) | BIT(TORCH_CUDA) | BIT(CUDA),
     .used = 0,
     .cause = STK_CAUSE_NOT_MOVED,
     .text =
         "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; torch saw the device, but "
         "no tensor was ever moved to it"},
    {.contexts = "0",
     .has_looked = true,
     /* both builds have this library; the driver's library is missing */
     .libraries = BIT(TENSORFLOW),
     .used = 0,
     .cause = STK_CAUSE_NOT_SEEN,
     .text =
         "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; tensorflow saw no device"},
    {.contexts = "0",
     .has_looked = true,
     .libraries = BIT(TORCH_CPU) | BIT(TORCH_CUDA) | BIT(CUDART),
     .used = 0,
     .cause = STK_CAUSE_NOT_MOVED,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; torch was loaded, but "
             "never asked for a device"},
    {.contexts = "0",
     .has_looked = true,
     .libraries = BIT(CUDA),
     .mask_changed = true,
     .used = 0,
     .cause = STK_CAUSE_WRONG_MASK,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the step changed the "
             "variable that names its devices; leave it as it was set"},
    {.contexts = "?", /* only the framework's report and the libraries show that it is unused */
     .frameworks = {{.name = "torch",
                     .version = "2.13.0+cpu",
                     .build = "cpu",
                     .available = 0,
                     .initialized = 0,
                     .device_count = 0}},
     .n_frameworks = 1,
     .has_looked = true,
     .libraries = BIT(TORCH_CPU),
     .used = 0,
     .cause = STK_CAUSE_CPU_ONLY_BUILD,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the installed torch "
             "2.13.0+cpu is a "
             "CPU-only build; install its build for this device"},
    {.contexts = "?", /* another part of the step loaded the driver's library */
     .frameworks = {{.name = "torch", .build = "cpu", .initialized = 0, .device_count = 0}},
     .n_frameworks = 1,
     .has_looked = true,
     .libraries = BIT(TORCH_CPU) | BIT(CUDA),
     .used = -1,
     .cause = STK_CAUSE_UNKNOWN,
     .text = "granted 1 GPU, used unknown: the driver doesn't report which processes use it"},
    {.contexts = "0", /* the task ended before its libraries were read */
     .used = 0,
     .cause = STK_CAUSE_UNKNOWN,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the reason is unknown"},
    {.contexts = "0",
     .other_device = "GPU-7",
     .used = 0,
     .cause = STK_CAUSE_OTHER_DEVICE,
     .text = "granted 1 GPU, used 0: GPU-0 (index 0) never had a context; the step used a device "
             "that it was not given (GPU-7)"},
    {.contexts = "1",
     .other_device = "GPU-7",
     .used = 1,
     .cause = STK_CAUSE_OTHER_DEVICE,
     .text = "granted 1 GPU, used 1; the step used a device that it was not given (GPU-7)"},
    {.contexts = "??",
     .used = -1,
     .cause = STK_CAUSE_UNKNOWN,
     .text = "granted 2 GPUs, used unknown: the driver doesn't report which processes use them"},
    {.contexts = "1?",
     .used = -1,
     .cause = STK_CAUSE_UNKNOWN,
     .text = "granted 2 GPUs, used at least 1: the driver doesn't report which processes use them"},
};

static void test_causes(void **state)
{
    (void)state;
    bool seen[STK_CAUSE_N] = {false};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const verdict_case *c = &cases[i];
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_outcome o = outcome_of(c->contexts);
        stk_verdict v;
        o.libraries = c->libraries;
        o.has_looked = c->has_looked;
        o.mask_changed = c->mask_changed;
        o.other_device = c->other_device;
        assert_true(stk_runner_verdict(&o, c->frameworks, c->n_frameworks, "GPU", arena, &v));
        assert_string_equal(v.text, c->text);
        assert_string_equal(stk_cause_word(v.cause), stk_cause_word(c->cause));
        assert_int_equal(v.used, c->used);
        assert_int_equal(v.granted, strlen(c->contexts));
        seen[v.cause] = true;
    }
    for (int i = 0; i < STK_CAUSE_N; i++) {
        if (!seen[i]) {
            fail_msg("no case for cause '%s'", stk_cause_word((stk_cause)i));
        }
    }
}

/* If the driver names no process, a framework's allocator and a busy device still show use. */
static void test_other_witnesses(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_verdict v;
    stk_outcome o = outcome_of("??");
    static const int64_t peaks[] = {5 << 20, 7};
    stk_framework_report torch = {TORCH_CUDA, .available = 1, .initialized = 1, .device_count = 2,
                                  .peak_bytes = peaks};
    torch.n_peak_bytes = 2;
    assert_true(stk_runner_verdict(&o, &torch, 1, "GPU", arena, &v));
    assert_int_equal(v.used, 2);
    o.devices[0].busy_percent_mean = 40;
    o.devices[1].busy_percent_mean = 0;
    assert_true(stk_runner_verdict(&o, NULL, 0, "GPU", arena, &v));
    assert_int_equal(v.used, -1);
    assert_non_null(strstr(v.text, "used at least 1"));
    o.devices[1].busy_percent_mean = 1;
    assert_true(stk_runner_verdict(&o, NULL, 0, "GPU", arena, &v));
    assert_int_equal(v.used, 2);
    o.devices[0].share_bytes = o.devices[1].share_bytes = 1; /* the neighbour may cause the load */
    assert_true(stk_runner_verdict(&o, NULL, 0, "GPU", arena, &v));
    assert_int_equal(v.used, -1);
}

static void test_words(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_verdict v;
    stk_outcome none = outcome_of("");
    assert_false(stk_runner_verdict(&none, NULL, 0, "GPU", arena, &v));
    stk_outcome o = outcome_of("00");
    assert_true(stk_runner_verdict(&o, NULL, 0, "TPU chip", arena, &v));
    assert_string_equal(v.text, "granted 2 TPU chips, used 0: GPU-0 (index 0) and GPU-1 (index 1) "
                                "were never opened; the reason is unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_causes),
                                       cmocka_unit_test(test_other_witnesses),
                                       cmocka_unit_test(test_words)};
    return cmocka_run_group_tests_name("runner_verdict", tests, NULL, NULL);
}
