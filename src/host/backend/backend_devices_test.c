/* Real processes with fake devices: the backend ends a task that exceeds its share, and lets its
 * neighbour live; it reports a task that uses a device it wasn't granted, and under policy strict
 * ends it. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/backend/backend.h"
#include "sys/file.h"

#define GB INT64_C(1000000000)

static char root[] = "/tmp/stk-devices-XXXXXX";
static char file[64];
static stk_accel *accel;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void describe(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void describe(const char *fmt, ...)
{
    char text[2048];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    assert_int_equal(stk_file_write(file, text, (size_t)n, 0644, NULL), 0);
}

static stk_backend *open_backend(stk_policy policy)
{
    static int n;
    char run[64];
    char provider[80];
    stk_err err = {0};
    stk_backend *b = NULL;
    setenv("STOKER_CGROUP", "none", 1);
    snprintf(provider, sizeof provider, "fake:%s", file);
    snprintf(run, sizeof run, "test-devices-%d-%d", (int)getpid(), n++);
    assert_int_equal(stk_accel_open(provider, &accel, &err), 0);
    stk_local_config config = {.run = run, .server_fd = -1, .accel = accel, .policy = policy};
    if (stk_backend_local_open(&config, &b, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return b;
}

/* Starts a step that sleeps, with `share_bytes` of device `i`; returns its pid. */
static pid_t start(stk_backend *b, uint32_t id, uint32_t i, int64_t share_bytes)
{
    static char dirs[8][128];
    static int n;
    stk_err err = {0};
    char *dir = dirs[n++ % 8];
    snprintf(dir, sizeof dirs[0], "%s/step%u-%d/0/1", root, id, n);
    assert_int_equal(stk_file_mkdirs(dir, 0755, &err), 0);
    char task_json[160];
    snprintf(task_json, sizeof task_json, "%s/task.json", dir);
    assert_int_equal(stk_file_write(task_json, "{}", 2, 0644, &err), 0);
    stk_job job = {.id = id,
                   .attempt = 1,
                   .step = "s",
                   .dir = dir,
                   .argv = (const char *const[]){"/bin/sleep", "300", NULL}};
    stk_devset devices = {{(uint64_t)1 << i}};
    int rc = stk_lease_take(accel, &devices, share_bytes, "run t step s", &job.lease, NULL, &err);
    rc = rc < 0 ? rc : b->ops->start(b, &job, &err);
    if (rc < 0) {
        fail_msg("%s", err.text);
    }
    stk_report r;
    while (!b->ops->next(b, &r)) {
    }
    assert_int_equal(r.kind, STK_REPORT_STARTED);
    return (pid_t)r.pid;
}

/* Waits up to `ms` for the next report; false if there is none. */
static bool next(stk_backend *b, stk_report *ret, int64_t ms)
{
    for (int64_t end = now_ms() + ms; now_ms() < end;) {
        if (b->ops->next(b, ret)) {
            return true;
        }
        int64_t wait = b->ops->wait_ms(b);
        struct pollfd p = {.fd = b->ops->fd(b), .events = POLLIN};
        poll(&p, 1, wait < 0 || wait > 50 ? 50 : (int)wait);
    }
    return false;
}

static void close_all(stk_backend *b)
{
    b->ops->close(b);
    stk_accel_close(accel);
}

static void test_share(void **state)
{
    (void)state;
    stk_report r;
    describe("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 80000000000}]");
    stk_backend *b = open_backend(STK_POLICY_FIT);
    pid_t good = start(b, 1, 0, 10 * GB);
    pid_t greedy = start(b, 2, 0, 10 * GB);
    describe("[{\"uuid\": \"GPU-a\", \"processes\": {\"%d\": 9900000000, \"%d\": 10000000000}}]",
             (int)good, (int)greedy);
    assert_false(next(b, &r, 1500)); /* both keep to their shares */
    describe("[{\"uuid\": \"GPU-a\", \"processes\": {\"%d\": 9900000000, \"%d\": 12100000000}}]",
             (int)good, (int)greedy);
    assert_true(next(b, &r, 20000));
    assert_int_equal(r.kind, STK_REPORT_ENDED);
    assert_int_equal(r.id, 2);
    assert_int_equal(r.outcome.failure, STK_FAIL_GPU_SHARE);
    assert_string_equal(r.outcome.text,
                        "used 12.1 GB of its 10 GB of GPU memory (GPU-a); raise gpu_memory, or "
                        "set on_oom to try again with more");
    assert_int_equal(r.outcome.devices[0].peak_memory_bytes, 12100000000);
    assert_false(next(b, &r, 1500)); /* its neighbour lives on */
    b->ops->stop(b, 1, 0, STK_FAIL_CANCELLED);
    assert_true(next(b, &r, 20000));
    assert_int_equal(r.id, 1);
    assert_int_equal(r.outcome.devices[0].context, 1);
    close_all(b);
}

static void test_outside(void **state)
{
    (void)state;
    static const stk_policy policies[] = {STK_POLICY_FIT, STK_POLICY_STRICT};
    for (int i = 0; i < 2; i++) {
        stk_report r;
        describe("[{\"uuid\": \"GPU-a\"}, {\"uuid\": \"GPU-b\"}]");
        stk_backend *b = open_backend(policies[i]);
        pid_t pid = start(b, 7, 0, 0);
        describe("[{\"uuid\": \"GPU-a\", \"processes\": {\"%d\": 5}},"
                 " {\"uuid\": \"GPU-b\", \"processes\": {\"%d\": 5, \"1\": 6}}]",
                 (int)pid, (int)pid);
        assert_true(next(b, &r, 20000));
        assert_int_equal(r.kind, STK_REPORT_NOTE);
        assert_non_null(strstr(r.text, "step 'step7-"));
        assert_non_null(strstr(r.text, "uses GPU GPU-b (index 1), which it was not granted"));
        if (policies[i] == STK_POLICY_FIT) {
            assert_false(next(b, &r, 6000)); /* reported only once */
            b->ops->stop(b, 7, 0, STK_FAIL_CANCELLED);
        }
        assert_true(next(b, &r, 20000));
        assert_int_equal(r.kind, STK_REPORT_ENDED);
        assert_string_equal(r.outcome.other_device, "GPU-b");
        assert_int_equal(r.outcome.failure, policies[i] == STK_POLICY_FIT ? STK_FAIL_CANCELLED
                                                                          : STK_FAIL_OTHER_DEVICE);
        close_all(b);
    }
}

/* The backend says once that the driver doesn't report memory per process. */
static void test_a_share_that_the_driver_does_not_tell(void **state)
{
    (void)state;
    stk_report r;
    describe("[{\"uuid\": \"GPU-a\", \"memory_bytes\": 80000000000, \"memory_used\": 0}]");
    stk_backend *b = open_backend(STK_POLICY_FIT);
    (void)start(b, 3, 0, 10 * GB);
    assert_true(next(b, &r, 20000));
    assert_int_equal(r.kind, STK_REPORT_NOTE);
    assert_string_equal(r.text,
                        "the driver doesn't report here how much device memory each process uses: "
                        "a share is enforced only while no other process uses its device");
    b->ops->stop(b, 3, 0, STK_FAIL_CANCELLED);
    assert_true(next(b, &r, 20000));
    assert_int_equal(r.kind, STK_REPORT_ENDED);
    close_all(b);
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL) {
        return -1;
    }
    char leases[64];
    snprintf(file, sizeof file, "%s/devices.json", root);
    snprintf(leases, sizeof leases, "%s/leases", root);
    return mkdir(leases, 0755) < 0 ? -1 : setenv("STOKER_LEASE_DIR", leases, 1);
}

static int teardown(void **state)
{
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share), cmocka_unit_test(test_outside),
        cmocka_unit_test(test_a_share_that_the_driver_does_not_tell)};
    return cmocka_run_group_tests_name("backend_devices", tests, setup, teardown);
}
