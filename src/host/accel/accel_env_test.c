/* The variables that a task sees, for each vendor, with and without a lease. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/testing.h"
#include "host/accel/accel.h"

/* `leased`: indices of devices, as digits. `expect`: NAME=value, or NAME! if it must be unset. */
static void check(const char *machine, const char *leased, const char *const *expect)
{
    stk_accel *accel = NULL;
    stk_err err = {0};
    if (stk_accel_open(machine, &accel, &err) != 0) {
        fail_msg("%s", err.text);
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease lease = {0};
    for (const char *c = leased; *c != '\0'; c++) {
        lease.devices[lease.n++] = (uint32_t)(*c - '0');
    }
    const char *pairs[64][2];
    uint32_t n = stk_lease_env(accel, &lease, arena, pairs, 64);
    for (; *expect != NULL; expect++) {
        size_t len = strcspn(*expect, "=!");
        const char *value = NULL;
        uint32_t n_found = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (strlen(pairs[i][0]) == len && strncmp(pairs[i][0], *expect, len) == 0) {
                value = pairs[i][1];
                n_found++;
            }
        }
        bool wanted = (*expect)[len] == '=';
        if (n_found != wanted || (wanted && strcmp(value, *expect + len + 1) != 0)) {
            fail_msg("%s, leased '%s': wanted %s, got %s (%u times)", machine, leased, *expect,
                     value != NULL ? value : "nothing", n_found);
        }
    }
    stk_accel_close(accel);
}

#define CHECK(machine, leased, ...) check(machine, leased, (const char *const[]){__VA_ARGS__, NULL})

static void test_nvidia(void **state)
{
    (void)state;
    CHECK("sim:4xH100", "31", "CUDA_VISIBLE_DEVICES=GPU-sim-3,GPU-sim-1",
          "CUDA_DEVICE_ORDER=PCI_BUS_ID", "STOKER_LEASE_LEVEL=1", "ROCR_VISIBLE_DEVICES!",
          "STOKER_ALLOW_CPU_BUILD=1");
    CHECK("sim:4xH100", "", "CUDA_VISIBLE_DEVICES=", "STOKER_LEASE_LEVEL!", "JAX_PLATFORMS!",
          "STOKER_ALLOW_CPU_BUILD!");
    CHECK("sim:A100,mig=1g.10gb*3", "2", "CUDA_VISIBLE_DEVICES=MIG-sim-0-1");
    CHECK("none", "", "CUDA_VISIBLE_DEVICES=", "NEURON_RT_VISIBLE_CORES!", "ZE_AFFINITY_MASK!");
}

static void test_amd(void **state)
{
    (void)state;
    CHECK("sim:4xMI300X", "13", "ROCR_VISIBLE_DEVICES=GPU-sim-1,GPU-sim-3",
          "HIP_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES=");
    CHECK("sim:4xMI300X", "", "ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=-1");
}

static void test_intel(void **state)
{
    (void)state;
    CHECK("sim:4xMax-1550", "20", "ZE_AFFINITY_MASK=2,0", "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE");
    CHECK("sim:4xMax-1550", "", "ZE_AFFINITY_MASK=9999", "ZE_FLAT_DEVICE_HIERARCHY!");
}

static void test_neuron(void **state)
{
    (void)state;
    CHECK("sim:16xTrainium", "013", "NEURON_RT_VISIBLE_CORES=0-3,6-7", "NEURON_RT_NUM_CORES=6");
    CHECK("sim:2xInferentia", "1", "NEURON_RT_VISIBLE_CORES=4-7", "NEURON_RT_NUM_CORES=4");
    /* a count of 0 would mean all cores */
    CHECK("sim:16xTrainium", "", "NEURON_RT_VISIBLE_CORES=9999", "NEURON_RT_NUM_CORES=1");
}

static void test_tpu(void **state)
{
    (void)state;
    CHECK("sim:v5e-8", "5", "TPU_VISIBLE_CHIPS=5", "TPU_CHIPS_PER_PROCESS_BOUNDS=1,1,1",
          "TPU_PROCESS_PORT=8481", "TPU_PROCESS_ADDRESSES=localhost:8481", "JAX_PLATFORMS!");
    CHECK("sim:v5e-8", "23", "TPU_VISIBLE_CHIPS=2,3", "TPU_CHIPS_PER_PROCESS_BOUNDS=1,2,1");
    CHECK("sim:v5e-8", "4567", "TPU_CHIPS_PER_HOST_BOUNDS=2,2,1", "TPU_PROCESS_PORT=8480");
    CHECK("sim:v5e-8", "01234567", "TPU_CHIPS_PER_PROCESS_BOUNDS=2,4,1", "TPU_PROCESS_BOUNDS=1,1,1",
          "CLOUD_TPU_TASK_ID=0");
    CHECK("sim:v5e-8", "", "TPU_VISIBLE_CHIPS=", "JAX_PLATFORMS=cpu", "PJRT_DEVICE=CPU",
          "TPU_PROCESS_PORT!");
}

/* Two vendors in one host: a task with a device of one vendor sees none of the other's. */
static void test_both(void **state)
{
    (void)state;
    CHECK("sim:1xH100+1xMI300X", "0", "CUDA_VISIBLE_DEVICES=GPU-sim-0",
          "ROCR_VISIBLE_DEVICES=", "HIP_VISIBLE_DEVICES=-1");
    CHECK("sim:1xH100+1xMI300X", "1", "CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=GPU-sim-0",
          "HIP_VISIBLE_DEVICES=0");
    CHECK("sim:1xH100+v5e-4", "0",
          "TPU_VISIBLE_CHIPS=", "JAX_PLATFORMS!"); /* JAX may use the GPU */
}

int main(void)
{
    unsetenv("STOKER_LEASE_LEVEL");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nvidia), cmocka_unit_test(test_amd), cmocka_unit_test(test_intel),
        cmocka_unit_test(test_neuron), cmocka_unit_test(test_tpu), cmocka_unit_test(test_both),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
