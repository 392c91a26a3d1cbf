/* lease_cost: what taking and dropping a lease costs, and choosing the devices for it.
 *
 * Eight devices of a file, on each a share that stays, as on a busy host. Prints one line of JSON:
 * median microseconds of taking and dropping one whole device and a share of one, of looking at
 * what is free on all eight, and of choosing 1, 2 and 4 of eight and 8 of 128. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/accel/accel.h"
#include "model/pack/pack.h"

enum { DEVICES = 8, ROUNDS = 2001, MIB = 81920 };

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static void must(int rc, const stk_err *err)
{
    if (rc < 0) {
        (void)fprintf(stderr, "lease_cost: %s\n", err->text);
        exit(3);
    }
}

static double lease_us(stk_accel *accel, uint32_t device, int64_t share_bytes)
{
    static double took[ROUNDS];
    stk_devset set = {{0}};
    stk_devset_add(&set, device);
    for (int i = 0; i < ROUNDS; i++) {
        stk_err err;
        stk_lease lease;
        double begin = now_us();
        must(stk_lease_take(accel, &set, share_bytes, "run r step s", &lease, NULL, &err), &err);
        stk_lease_drop(&lease);
        took[i] = now_us() - begin;
    }
    return median(took, ROUNDS);
}

static double look_us(stk_accel *accel)
{
    static double took[ROUNDS];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t free[DEVICES];
        double begin = now_us();
        must(stk_lease_free(accel, arena, free, NULL, NULL), &(stk_err){0});
        took[i] = now_us() - begin;
        stk_arena_reset(arena);
    }
    return median(took, ROUNDS);
}

/* Islands of eight, two NUMA nodes in each. */
static double pack_us(uint32_t n_devices, uint32_t n)
{
    static double took[ROUNDS];
    static stk_pack_device devices[128];
    static uint8_t links[128 * 128];
    for (uint32_t i = 0; i < n_devices; i++) {
        devices[i] = (stk_pack_device){MIB, MIB, (int32_t)(i / 4), false};
        for (uint32_t j = 0; j < n_devices; j++) {
            links[i * n_devices + j] = i / 8 == j / 8 ? 5 : 1;
        }
    }
    const stk_pack_host host = {devices, n_devices, links};
    stk_pack_ask ask = {.n = n};
    memset(&ask.wanted, 0xff, sizeof ask.wanted);
    for (int i = 0; i < ROUNDS; i++) {
        stk_devset chosen;
        double begin = now_us();
        if (!stk_pack_choose(&host, &ask, NULL, &chosen)) {
            exit(3);
        }
        took[i] = now_us() - begin;
    }
    return median(took, ROUNDS);
}

int main(void)
{
    char dir[] = "/tmp/stoker-lease-cost-XXXXXX", path[64], provider[80];
    stk_accel *accel;
    stk_lease held;
    stk_err err;
    if (mkdtemp(dir) == NULL || setenv("STOKER_LEASE_DIR", dir, 1) != 0) {
        return 3;
    }
    (void)snprintf(path, sizeof path, "%s/devices.json", dir);
    FILE *file = fopen(path, "w");
    for (int i = 0; file != NULL && i < DEVICES; i++) {
        (void)fprintf(file, "%s{\"uuid\": \"GPU-%d\", \"memory_bytes\": %lld}", i > 0 ? ", " : "[",
                      i, (long long)MIB << 20);
    }
    if (file == NULL || fputs("]", file) < 0 || fclose(file) != 0) {
        return 3;
    }
    (void)snprintf(provider, sizeof provider, "fake:%s", path);
    must(stk_accel_open(provider, &accel, &err), &err);
    const stk_devset all = {{0xfe}}; /* the first stays free for a whole lease */
    must(stk_lease_take(accel, &all, 10LL << 30, "run other step s", &held, NULL, &err), &err);
    double whole = lease_us(accel, 0, 0), share = lease_us(accel, 1, 20LL << 30);
    (void)printf("{\"whole_us\": %.2f, \"share_us\": %.2f, \"free_us\": %.2f, \"pack_1_us\": %.2f, "
                 "\"pack_2_us\": %.2f, \"pack_4_us\": %.2f, \"pack_8_of_128_us\": %.2f}\n",
                 whole, share, look_us(accel), pack_us(DEVICES, 1), pack_us(DEVICES, 2),
                 pack_us(DEVICES, 4), pack_us(128, 8));
    stk_lease_drop(&held);
    stk_accel_close(accel);
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : 3;
}
