/* Watches a real process, with devices from a file that the test changes. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/runner/runner_private.h"
#include "sys/file.h"

#define assert_near(a, b) assert_true(fabs((a) - (b)) < 0.02)
#define GB INT64_C(1000000000)

static char dir[] = "/tmp/stk-watch-XXXXXX";
static char devices[64], provider[80];
static pid_t task;
static int births[2]; /* on SIGUSR1 the task starts a child, which writes its pid here */

/* One device's JSON after another; the same keys as in accel_fake.c. */
static void describe(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void describe(const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_int_equal(stk_file_write(devices, text, (size_t)n, 0644, NULL), 0);
}

static stk_accel *open_accel(void)
{
    stk_accel *accel = NULL;
    stk_err err = {0};
    if (stk_accel_open(provider, &accel, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return accel;
}

static stk_watch watch_of(stk_accel *accel, uint32_t n, int64_t share_bytes)
{
    stk_watch w;
    stk_err err = {0};
    stk_lease lease = {.n = n, .share_bytes = share_bytes};
    for (uint32_t i = 0; i < n; i++) {
        lease.devices[i] = i;
    }
    stk_watch_config config = {.dir = dir, .period_ms = 100, .accel = accel, .lease = &lease};
    assert_int_equal(stk_watch_init(&w, &config, &err), 0);
    stk_watch_start(&w, task, 1000);
    return w;
}

static void test_adds_up(void **state)
{
    (void)state;
    describe("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 80000000000, \"memory_used\": 500,"
             " \"energy_mj\": 7000}, {\"uuid\": \"GPU-b\", \"memory_used\": 500}]");
    stk_accel *accel = open_accel();
    stk_watch w = watch_of(accel, 2, 0);
    describe(
        "[{\"uuid\": \"GPU-a\", \"memory_used\": 3000000000, \"busy_percent\": 40,"
        " \"energy_mj\": 9000, \"temperature_c\": 61, \"throttle\": 64, \"power_mw\": 300000,"
        " \"processes\": {\"%d\": 2000000000}},"
        " {\"uuid\": \"GPU-b\", \"memory_used\": 500, \"power_mw\": 50000, \"processes\": {}}]",
        (int)task);
    assert_int_equal(stk_watch_sample(&w, 2000), STK_FAIL_NONE);
    assert_int_equal(w.due_ms, 2100);
    describe("[{\"uuid\": \"GPU-a\", \"memory_used\": 2000000000, \"busy_percent\": 80,"
             " \"energy_mj\": 12000, \"temperature_c\": 50, \"throttle\": 1,"
             " \"processes\": {\"%d\": 1000000000}}, {\"uuid\": \"GPU-b\", \"processes\": {}}]",
             (int)task);
    assert_int_equal(stk_watch_sample(&w, 5000), STK_FAIL_NONE);
    stk_outcome o = {.ok = true};
    stk_watch_report(&w, 6000, &o);
    assert_int_equal(o.n_devices, 2);
    const stk_outcome_device *a = &o.devices[0];
    const stk_outcome_device *b = &o.devices[1];
    assert_string_equal(a->uuid, "GPU-a");
    assert_int_equal(a->context, 1);
    assert_int_equal(a->peak_memory_bytes, 2 * GB); /* of the processes, not of the device */
    assert_near(a->busy_percent_mean, (40 * 1 + 80 * 3) / 4.0); /* weighted by time */
    assert_near(a->busy_s, 0.4 + 2.4 + 0.8); /* the last sample counts until the end */
    assert_near(a->energy_j, 5);             /* the counter's growth since before the start */
    assert_int_equal(a->peak_temperature_c, 61);
    assert_near(a->throttled_s, 1); /* idle clocks are not throttling */
    assert_int_equal(b->context, 0);
    assert_near(b->energy_j, 50); /* power × the second in which it was known */
    assert_near(b->busy_percent_mean, -1);
    assert_near(b->throttled_s, -1);
    assert_int_equal(b->peak_temperature_c, -1);

    STK_ARENA_AUTO arena = stk_arena_new(0);
    char path[100];
    stk_samples s;
    stk_err err = {0};
    snprintf(path, sizeof path, "%s/samples.bin", dir);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.samples[0].devices[0].memory_bytes, 2 * GB);
    assert_int_equal(s.samples[0].devices[0].device_memory_bytes, 3 * GB);
    assert_int_equal(s.samples[0].devices[0].power_mw, 300000);
    assert_int_equal(s.samples[0].devices[0].throttle, 64);
    assert_int_equal(s.samples[1].devices[0].busy_percent, 80);
    assert_int_equal(s.samples[1].devices[1].busy_percent, -1);
    assert_true(s.samples[1].rss_bytes > 0 && s.samples[1].read_bytes >= 0);
    stk_watch_done(&w);
    stk_accel_close(accel);
}

/* In a container the driver's pids are not ours: memory that rose with the task shows use. */
static void test_context_by_memory(void **state)
{
    (void)state;
    static const struct {
        const char *before, *during;
        int context;
    } rows[] = {
        {"\"memory_used\": 500", "\"memory_used\": 400000000, \"processes\": {\"99999999\": 1}", 1},
        {"\"memory_used\": 500", "\"memory_used\": 500, \"processes\": {}", 0},
        {"\"memory_used\": 500", "\"memory_used\": 700", 0},
        /* A process that isn't the task's explains the memory. */
        {"\"memory_used\": 500", "\"memory_used\": 400000000, \"processes\": {\"1\": 399999500}",
         0},
        {"\"power_mw\": 1", "\"power_mw\": 1", -1},
        {"\"power_mw\": 1", "\"busy_percent\": 5", 1},
        {"\"vendor\": \"aws\", \"noun\": \"Neuron device\", \"node\": \"/dev/zero\"",
         "\"power_mw\": 1", 0},
        {"\"vendor\": \"aws\", \"noun\": \"Neuron device\", \"node\": \"/dev/null\"",
         "\"power_mw\": 1", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        describe("[{%s}]", rows[i].before);
        stk_accel *accel = open_accel();
        stk_watch w = watch_of(accel, 1, 0);
        describe("[{%s}]", rows[i].during);
        assert_int_equal(stk_watch_sample(&w, 2000), STK_FAIL_NONE);
        stk_outcome o = {.ok = true};
        stk_watch_report(&w, 3000, &o);
        if (o.devices[0].context != rows[i].context) {
            fail_msg("case %zu: context %d", i, o.devices[0].context);
        }
        stk_watch_done(&w);
        stk_accel_close(accel);
    }
}

/* Samples the driver at once, however expensive the previous query was. */
static stk_failure sample_anew(stk_watch *w, int64_t now_ms)
{
    w->ask_for_ms = 0;
    return stk_watch_sample(w, now_ms);
}

/* The driver names a child that the task started since the last search for its processes. */
static void test_late_child(void **state)
{
    (void)state;
    describe("[{\"processes\": {}}]");
    stk_accel *accel = open_accel();
    stk_watch w = watch_of(accel, 1, 0);
    assert_int_equal(stk_watch_sample(&w, 2000), STK_FAIL_NONE);
    pid_t child = 0;
    assert_int_equal(kill(task, SIGUSR1), 0);
    assert_int_equal(read(births[0], &child, sizeof child), sizeof child);
    describe("[{\"processes\": {\"%d\": 5000}}]", (int)child);
    assert_int_equal(sample_anew(&w, 2100), STK_FAIL_NONE);
    describe("[{\"processes\": {\"1\": 7000}}]"); /* not the task's process */
    assert_int_equal(sample_anew(&w, 2200), STK_FAIL_NONE);
    stk_outcome o = {.ok = true};
    stk_watch_report(&w, 3000, &o);
    assert_int_equal(o.devices[0].context, 1);
    assert_int_equal(o.devices[0].peak_memory_bytes, 5000);
    (void)kill(child, SIGKILL);
    stk_watch_done(&w);
    stk_accel_close(accel);
}

/* An open device node shows that a chip is used, even for a moment of a long task. */
static void test_node_for_a_while(void **state)
{
    (void)state;
    describe("[{\"vendor\": \"google\", \"noun\": \"TPU chip\", \"node\": \"/dev/full\"}]");
    stk_accel *accel = open_accel();
    stk_watch w = watch_of(accel, 1, 0);
    for (int64_t ms = 1100; ms < 42000; ms += 500) {
        assert_int_equal(stk_watch_sample(&w, ms), STK_FAIL_NONE);
    }
    pid_t child = 0;
    assert_int_equal(kill(task, SIGUSR1), 0);
    assert_int_equal(read(births[0], &child, sizeof child), sizeof child);
    for (int64_t ms = 42000; ms < 44000; ms += 500) {
        assert_int_equal(stk_watch_sample(&w, ms), STK_FAIL_NONE);
    }
    (void)kill(child, SIGKILL);
    stk_outcome o = {.ok = true};
    stk_watch_report(&w, 45000, &o);
    assert_int_equal(o.devices[0].context, 1);
    stk_watch_done(&w);
    stk_accel_close(accel);
}

static void test_share(void **state)
{
    (void)state;
    describe("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 80000000000, \"memory_used\": 0}]");
    stk_accel *accel = open_accel();
    stk_watch w = watch_of(accel, 1, 10 * GB);
    describe("[{\"uuid\": \"GPU-a\", \"memory_used\": 70000000000,"
             " \"processes\": {\"%d\": 10000000000, \"1\": 60000000000}}]",
             (int)task);
    assert_int_equal(stk_watch_sample(&w, 2000), STK_FAIL_NONE); /* exactly its share */
    assert_true(stk_watch_device_is_full(&w));
    describe("[{\"uuid\": \"GPU-a\", \"memory_used\": 70000000000,"
             " \"processes\": {\"%d\": 12100000000, \"1\": 60000000000}}]",
             (int)task);
    assert_int_equal(stk_watch_sample(&w, 3100), STK_FAIL_GPU_SHARE);
    assert_int_equal(w.over_bytes, 12100000000);
    assert_int_equal(w.over_device, 0);
    stk_outcome o = {.ok = false};
    stk_watch_report(&w, 3200, &o);
    assert_int_equal(o.devices[0].share_bytes, 10 * GB);
    assert_near(o.devices[0].energy_j, -1); /* the task's part is unknown */
    stk_watch_done(&w);
    stk_accel_close(accel);
}

/* If the driver reports no pids, a share is enforced only on a task that is alone on its device: a
 * task must not be ended for its neighbour's memory. */
static void test_share_unknown(void **state)
{
    (void)state;
    stk_err err = {0};
    describe("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 80000000000, \"memory_used\": 0}]");
    stk_accel *accel = open_accel();
    stk_lease mine;
    stk_lease other;
    stk_devset first = {{1}};
    assert_int_equal(stk_lease_take(accel, &first, 10 * GB, "run a step a", &mine, NULL, &err), 0);
    assert_int_equal(stk_lease_take(accel, &first, 10 * GB, "run a step b", &other, NULL, &err), 0);
    stk_watch w = watch_of(accel, 1, 10 * GB);
    describe("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 80000000000,"
             " \"memory_used\": 15000000000}]");
    assert_int_equal(stk_watch_sample(&w, 2000), STK_FAIL_NONE);
    assert_true(w.shares_unknown);
    stk_lease_drop(&other);
    assert_int_equal(stk_watch_sample(&w, 4000), STK_FAIL_GPU_SHARE);
    assert_int_equal(w.over_bytes, 15 * GB);
    stk_lease_drop(&mine);
    stk_watch_done(&w);
    stk_accel_close(accel);
}

static void test_trouble(void **state)
{
    (void)state;
    char text[512];
    describe("[{\"uuid\": \"GPU-a\"}]");
    stk_accel *accel = open_accel();
    stk_watch w = watch_of(accel, 1, 0);
    assert_false(stk_watch_trouble(&w, text, sizeof text));
    describe("[{\"uuid\": \"GPU-a\", \"lost\": \"GPU is lost\"}]");
    assert_true(stk_watch_trouble(&w, text, sizeof text));
    assert_non_null(strstr(text, "GPU is lost"));
    stk_watch_done(&w);
    stk_accel_close(accel);
}

/* Maps files with the names of libraries into a process of the task. */
static void test_libraries(void **state)
{
    (void)state;
    static const char *const names[] = {"libtorch_cpu.so", "libcuda.so.1", "libcudartistic"};
    char paths[3][100];
    describe("[{\"uuid\": \"GPU-a\"}]");
    for (int i = 0; i < 3; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", dir, names[i]);
        assert_int_equal(stk_file_write(paths[i], "x", 1, 0644, NULL), 0);
    }
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        for (int i = 0; i < 2; i++) {
            int fd = open(paths[i], O_RDONLY);
            (void)mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
        }
        (void)!write(ready[1], "", 1);
        (void)pause();
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    stk_accel *accel = open_accel();
    stk_watch w = watch_of(accel, 1, 0);
    w.sid = pid;
    assert_int_equal(stk_watch_sample(&w, 2000), STK_FAIL_NONE);
    assert_true(w.has_looked);
    assert_int_equal(w.libraries, (uint64_t)1 << STK_LIB_TORCH_CPU | (uint64_t)1 << STK_LIB_CUDA);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    stk_watch_done(&w);
    stk_accel_close(accel);
    for (int i = 0; i < 3; i++) {
        (void)unlink(paths[i]);
    }
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void test_period(void **state)
{
    (void)state;
    stk_watch w;
    stk_err err = {0};
    static const struct {
        int64_t period_ms, age_ms, wait_ms;
    } rows[] = {
        {0, 500, 100}, {0, 20000, 250}, {0, 700000, 1000}, {10, 700000, 10}, {60000, 500, 60000}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        stk_watch_config config = {.period_ms = rows[i].period_ms};
        assert_int_equal(stk_watch_init(&w, &config, &err), 0);
        stk_watch_start(&w, task, 1000);
        assert_int_equal(stk_watch_sample(&w, 1000 + rows[i].age_ms), STK_FAIL_NONE);
        assert_int_equal(w.due_ms, 1000 + rows[i].age_ms + rows[i].wait_ms);
        stk_watch_done(&w);
    }
}

static void have_child(int signal)
{
    (void)signal;
    if (fork() == 0) {
        (void)open("/dev/full", O_RDONLY);
        pid_t self = getpid();
        (void)!write(births[1], &self, sizeof self);
        for (;;) {
            (void)pause();
        }
    }
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL || setenv("STOKER_LEASE_DIR", dir, 1) < 0) {
        return -1;
    }
    snprintf(devices, sizeof devices, "%s/devices.json", dir);
    snprintf(provider, sizeof provider, "fake:%s", devices);
    int ready[2];
    if (pipe(ready) < 0 || pipe(births) < 0) {
        return -1;
    }
    task = fork();
    if (task == 0) {
        (void)setsid();
        (void)signal(SIGUSR1, have_child);
        (void)open("/dev/null", O_RDONLY);
        (void)!write(ready[1], "", 1);
        for (;;) {
            (void)pause();
        }
    }
    char byte;
    return read(ready[0], &byte, 1) == 1 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    (void)kill(task, SIGKILL);
    (void)waitpid(task, NULL, 0);
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adds_up),    cmocka_unit_test(test_context_by_memory),
        cmocka_unit_test(test_late_child), cmocka_unit_test(test_node_for_a_while),
        cmocka_unit_test(test_share),      cmocka_unit_test(test_share_unknown),
        cmocka_unit_test(test_trouble),    cmocka_unit_test(test_libraries),
        cmocka_unit_test(test_period)};
    return cmocka_run_group_tests_name("runner_watch", tests, setup, teardown);
}
