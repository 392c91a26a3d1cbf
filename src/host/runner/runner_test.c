/* How a task ended, in words; and samples.bin written and read. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/runner/runner.h"
#include "host/runner/runner_samples.h"
#include "sys/file.h"

#define EXITED(n) ((n) << 8)

static void test_classify(void **state)
{
    static const struct {
        stk_ending ending;
        bool ok;
        stk_failure failure;
        const char *text;
    } cases[] = {
        {{.wait_status = EXITED(0)}, true, STK_FAIL_NONE, ""},
        {{.wait_status = EXITED(0), .cgroup_oom = true, .memory_bytes = 1},
         true,
         STK_FAIL_NONE,
         ""},
        {{.wait_status = EXITED(3)}, false, STK_FAIL_EXIT, "exit status 3"},
        {{.wait_status = SIGSEGV}, false, STK_FAIL_SIGNAL, "killed by signal 11 (SIGSEGV)"},
        {{.wait_status = SIGABRT | 0x80}, false, STK_FAIL_SIGNAL, "killed by signal 6 (SIGABRT)"},
        {{.wait_status = 40},
         false,
         STK_FAIL_SIGNAL,
         "killed by signal 40 (a real-time or unnamed signal)"},
        {{.wait_status = SIGKILL},
         false,
         STK_FAIL_SIGNAL,
         "killed by signal 9 (SIGKILL), not by Stoker: another program or the kernel's OOM "
         "killer"},
        {{.wait_status = SIGKILL, .lost_server = true},
         false,
         STK_FAIL_LOST,
         "its fork server ended, and the task with it (killed by signal 9 (SIGKILL))"},
        {{.wait_status = SIGKILL,
          .cgroup_oom = true,
          .memory_bytes = 1000000000,
          .used_bytes = 1300000000},
         false,
         STK_FAIL_HOST_OOM,
         "host OOM: used 1.3 GB of its 1 GB; ask for more memory, or set on_oom to try again with "
         "more"},
        {{.wait_status = EXITED(137),
          .cgroup_oom = true,
          .memory_bytes = 1000000000,
          .used_bytes = -1},
         false,
         STK_FAIL_HOST_OOM,
         "host OOM: used all of its 1 GB; ask for more memory, or set on_oom to try again with "
         "more"},
        {{.wait_status = EXITED(75), .timeout_ms = 600000, .notice_ms = 30000},
         false,
         STK_FAIL_TIMEOUT,
         "timeout: warned 30.0 s before its 10 m were over, it ended (exit status 75)"},
        {{.wait_status = SIGTERM, .stopped_for = STK_FAIL_TIMEOUT, .timeout_ms = 600000},
         false,
         STK_FAIL_TIMEOUT,
         "timeout: still running after 10 m"},
        {{.wait_status = EXITED(0), .stopped_for = STK_FAIL_CANCELLED},
         false,
         STK_FAIL_CANCELLED,
         "cancelled"},
        {{.wait_status = -1}, false, STK_FAIL_LOST, "lost: how it ended is unknown"},
        {{.wait_status = -1, .lost_server = true},
         false,
         STK_FAIL_LOST,
         "lost together with its fork server: how it ended is unknown"},
        {{.wait_status = SIGKILL,
          .stopped_for = STK_FAIL_GPU_SHARE,
          .device = "GPU-a",
          .device_bytes = 12100000000,
          .share_bytes = 10000000000},
         false,
         STK_FAIL_GPU_SHARE,
         "used 12.1 GB of its 10 GB of GPU memory (GPU-a); raise gpu_memory, or set on_oom to try "
         "again with more"},
        {{.wait_status = SIGTERM, .stopped_for = STK_FAIL_OTHER_DEVICE, .device = "GPU-b"},
         false,
         STK_FAIL_OTHER_DEVICE,
         "used GPU-b, which it was not granted (policy strict); use the devices that the step's "
         "variables name, or ask for more (gpu_count)"},
        {{.wait_status = EXITED(1),
          .n_devices = 1,
          .stderr_tail = "Traceback\n  torch.OutOfMemoryError: CUDA out of memory. Tried to "
                         "allocate 20.00 GiB.\nbye\n"},
         false,
         STK_FAIL_DEVICE_OOM,
         "exit status 1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB; "
         "make the batch smaller, ask for a larger device or gpu_memory, or set on_oom"},
        {{.wait_status = EXITED(1), .stderr_tail = "CUDA out of memory"}, /* it had no device */
         false,
         STK_FAIL_EXIT,
         "exit status 1"},
        {{.wait_status = EXITED(1),
          .n_devices = 1,
          .stderr_tail = "std::bad_alloc: Out of Memory\n"},
         false,
         STK_FAIL_EXIT,
         "exit status 1"},
        {{.wait_status = SIGABRT,
          .n_devices = 1,
          .device_full = true,
          .stderr_tail = "std::bad_alloc: Out of Memory\n"},
         false,
         STK_FAIL_DEVICE_OOM,
         "killed by signal 6 (SIGABRT): std::bad_alloc: Out of Memory; make the batch smaller, ask "
         "for a larger device or gpu_memory, or set on_oom"},
        {{.wait_status = SIGBUS, .shm_free_bytes = 0, .shm_bytes = 64000000},
         false,
         STK_FAIL_SHM_FULL,
         "killed by signal 7 (SIGBUS): /dev/shm was full (0 B left of 64 MB); make it larger "
         "(mount "
         "-o remount,size=8G /dev/shm; in a container shm_size: 8g) or use fewer DataLoader "
         "workers"},
        {{.wait_status = SIGBUS, .shm_free_bytes = 60000000, .shm_bytes = 64000000},
         false,
         STK_FAIL_SIGNAL,
         "killed by signal 7 (SIGBUS)"},
        {{.wait_status = SIGSEGV,
          .stderr_tail = "Fatal Python error: Segmentation fault\n\n"
                         "Current thread 0x00007f60 (most recent call first):\n"
                         "  File \"flow.py\", line 13 in fit\n"
                         "  File \"_task.py\", line 7 in run\n"},
         false,
         STK_FAIL_SIGNAL,
         "killed by signal 11 (SIGSEGV) in compiled code, called at File \"flow.py\", line 13 in "
         "fit; its stderr has the whole stack: update the library that crashed, or avoid this "
         "call"},
        {{.wait_status = EXITED(135), .shm_free_bytes = 100, .shm_bytes = 64000000},
         false,
         STK_FAIL_SHM_FULL,
         "exit status 135: /dev/shm was full (100 B left of 64 MB); make it larger (mount -o "
         "remount,size=8G /dev/shm; in a container shm_size: 8g) or use fewer DataLoader workers"},
        {{.wait_status = EXITED(1),
          .stderr_tail = "RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. "
                         "It is possible that dataloader's workers are out of shared memory."},
         false,
         STK_FAIL_SHM_FULL,
         "exit status 1: RuntimeError: DataLoader worker (pid 12) is killed by signal: Bus error. "
         "It "
         "is possible that dataloader's workers are out of shared memory; make it larger (mount "
         "-o "
         "remount,size=8G /dev/shm; in a container shm_size: 8g) or use fewer DataLoader workers"},
        {{.wait_status = EXITED(1),
          .contained = true,
          .stderr_tail = "working\ntouch: cannot touch 'x': Read-only file system\n"},
         false,
         STK_FAIL_EXIT,
         "exit status 1: touch: cannot touch 'x': Read-only file system; in a container the "
         "project is read-only: write to $STOKER_OUTPUT or /tmp"},
        {{.wait_status = EXITED(1), .stderr_tail = "cannot touch 'x': Read-only file system\n"},
         false,
         STK_FAIL_EXIT,
         "exit status 1"},
        {{.wait_status = SIGKILL, .ended_by = "container c was stopped by another client"},
         false,
         STK_FAIL_SIGNAL,
         "killed by signal 9 (SIGKILL): container c was stopped by another client"},
        {{.wait_status = EXITED(3), .ended_by = "container c was sent signal 15"},
         false,
         STK_FAIL_EXIT,
         "exit status 3; container c was sent signal 15"},
        {{.wait_status = EXITED(1), .n_devices = 1, .device_trouble = "GPU-a: GPU is lost"},
         false,
         STK_FAIL_DEVICE_LOST,
         "exit status 1: GPU-a: GPU is lost; for its state see stoker gpus and the kernel's log"},
        {{.wait_status = EXITED(1), .n_devices = 1, .device_trouble = "the driver is not loaded"},
         false,
         STK_FAIL_DRIVER_GONE,
         "exit status 1: the driver is not loaded; was the driver updated? Load the new one or "
         "restart the host (stoker doctor)"},
        {{.wait_status = EXITED(1),
          .n_devices = 1,
          .stderr_tail = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"},
         false,
         STK_FAIL_ECC,
         "exit status 1: RuntimeError: CUDA error: uncorrectable ECC error encountered; reset or "
         "repair the device (stoker doctor)"},
        {{.wait_status = EXITED(1), .n_devices = 1, .xid = 31, .device = "GPU-a"},
         false,
         STK_FAIL_XID,
         "Xid 31 on GPU-a; exit status 1"},
        {{.wait_status = SIGABRT,
          .n_devices = 1,
          .xid = 79,
          .xid_text = "Xid 79: GPU has fallen off the bus",
          .device = "GPU-a"},
         false,
         STK_FAIL_DEVICE_LOST,
         "Xid 79: GPU has fallen off the bus on GPU-a; killed by signal 6 (SIGABRT); for its state "
         "see stoker gpus and the kernel's log"},
        {{.wait_status = EXITED(0), .n_devices = 1, .xid = 31}, true, STK_FAIL_NONE, ""},
        {{.wait_status = SIGTERM, .stopped_for = STK_FAIL_CANCELLED, .xid = 31},
         false,
         STK_FAIL_CANCELLED,
         "cancelled"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_outcome o = {.failure = STK_FAIL_USAGE, .text = "old"};
        stk_runner_classify(&cases[i].ending, &o);
        assert_int_equal(o.ok, cases[i].ok);
        assert_string_equal(o.text, cases[i].text);
        assert_int_equal(o.failure, cases[i].failure);
    }
}

/* The last symptom counts; only a step with devices can lose one. */
static void test_symptom(void **state)
{
    (void)state;
    const char *line;
    size_t len;
    static const char text[] = "CUDA out of memory\nretrying\n  CUDA_ERROR_ECC_UNCORRECTABLE: no\n";
    assert_int_equal(stk_runner_symptom(text, true, &line, &len), STK_FAIL_ECC);
    assert_int_equal(len, strlen("CUDA_ERROR_ECC_UNCORRECTABLE: no"));
    assert_memory_equal(line, "CUDA_ERROR_ECC_UNCORRECTABLE", 28);
    assert_int_equal(stk_runner_symptom(text, false, NULL, NULL), STK_FAIL_NONE);
    assert_int_equal(stk_runner_symptom(NULL, true, NULL, NULL), STK_FAIL_NONE);
    assert_int_equal(stk_runner_symptom("insufficient shared memory (shm)", false, NULL, NULL),
                     STK_FAIL_SHM_FULL);
}

static char path[64];

static void test_samples(void **state)
{
    (void)state;
    static const char *const uuids[] = {"GPU-a", "GPU-b"};
    int fd;
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_samples s;
    (void)unlink(path);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0); /* no file: a short task */
    assert_int_equal(s.n, 0);
    assert_int_equal(stk_samples_create(path, 1700000000123, 2, uuids, &fd, &err), 0);
    for (int i = 0; i < 3; i++) {
        stk_sample_device devices[2] = {STK_SAMPLE_DEVICE_UNKNOWN, STK_SAMPLE_DEVICE_UNKNOWN};
        devices[0].memory_bytes = 1000 + i;
        devices[0].busy_percent = i;
        devices[0].nvlink_rx_bytes = INT64_C(5000000000) * i;
        stk_sample sample = {100 * i, 5000 + i, 70 * i, i == 1 ? NULL : devices,
                             11 * i,  -1,       40 * i, -1};
        assert_int_equal(stk_samples_append(fd, &sample, 2), 0);
    }
    assert_int_equal(write(fd, "torn", 4), 4);
    close(fd);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0);
    assert_int_equal(s.start_ms, 1700000000123);
    assert_int_equal(s.n_devices, 2);
    assert_string_equal(s.uuids[1], "GPU-b");
    assert_int_equal(s.n, 3);
    assert_int_equal(s.samples[2].time_ms, 200);
    assert_int_equal(s.samples[2].rss_bytes, 5002);
    assert_int_equal(s.samples[2].cpu_us, 140);
    assert_int_equal(s.samples[2].devices[0].memory_bytes, 1002);
    assert_int_equal(s.samples[2].devices[0].busy_percent, 2);
    assert_int_equal(s.samples[2].devices[1].memory_bytes, -1);
    assert_int_equal(s.samples[2].devices[0].nvlink_rx_bytes, INT64_C(10000000000));
    assert_int_equal(s.samples[2].read_bytes, 22);
    assert_int_equal(s.samples[2].write_bytes, -1);
    assert_int_equal(s.samples[2].stdout_bytes, 80);
    assert_int_equal(s.samples[2].stderr_bytes, -1);
    /* the record has no devices: the previous values hold */
    assert_int_equal(s.samples[1].rss_bytes, 5001);
    assert_int_equal(s.samples[1].devices[0].memory_bytes, 1000);
}

/* Reads the samples of an older Stoker. */
static void test_samples_version_1(void **state)
{
    (void)state;
    static const struct {
        char magic[8];
        uint32_t n_devices, record_size;
        int64_t start_ms;
        char uuid[64];
        struct {
            int64_t time_ms, rss_bytes, cpu_us, memory_bytes;
            int32_t busy_percent, reserved;
        } records[2];
        char torn[5];
    } old = {"STKSMP1\n",   1,         40,
             1700000000123, "GPU-old", {{100, 5000, 70, 900, 33, 0}, {200, 5001, 71, -1, -1, 0}},
             "torn"};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_samples s;
    stk_err err = {0};
    assert_int_equal(stk_file_write(path, (const char *)&old, sizeof old, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.start_ms, 1700000000123);
    assert_string_equal(s.uuids[0], "GPU-old");
    assert_int_equal(s.samples[0].cpu_us, 70);
    assert_int_equal(s.samples[0].write_bytes, -1);
    assert_int_equal(s.samples[0].devices[0].memory_bytes, 900);
    assert_int_equal(s.samples[0].devices[0].busy_percent, 33);
    assert_int_equal(s.samples[0].devices[0].power_mw, -1);
    assert_int_equal(s.samples[1].devices[0].memory_bytes, -1);
}

static void test_samples_version_2(void **state)
{
    (void)state;
    static const struct {
        char magic[8];
        uint32_t n_devices, device_size;
        int64_t start_ms;
        struct {
            int64_t time_ms, rss_bytes, cpu_us, read_bytes, write_bytes;
            uint32_t n_devices, reserved;
        } records[2];
    } old = {"STKSMP2\n",
             0,
             88,
             1700000000123,
             {{100, 5000, 70, 9, 8, 0, 0}, {200, 5001, 71, 9, 9, 0, 0}}};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_samples s;
    stk_err err = {0};
    assert_int_equal(stk_file_write(path, (const char *)&old, sizeof old, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.samples[1].time_ms, 200);
    assert_int_equal(s.samples[1].write_bytes, 9);
    assert_int_equal(s.samples[1].stdout_bytes, -1);
}

static void test_samples_hostile(void **state)
{
    (void)state;
    static const char header[24] = "STKSMP1\n\xff\xff\xff\xff\x18";
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_samples s;
    stk_err err = {0};
    /* the header is incomplete: the file is being made */
    assert_int_equal(stk_file_write(path, header, 7, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0);
    assert_int_equal(s.n, 0);
    assert_int_equal(stk_file_write(path, header, sizeof header, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), STK_E_STORE);
    static const char newer[24] = "STKSMP4\n";
    assert_int_equal(stk_file_write(path, newer, sizeof newer, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), STK_E_VERSION);
    /* A record with more devices than the header says. */
    static const uint32_t odd[6 + 12] = {0x53544b53, 0, 0, 88, 0, 0, [16] = 3};
    unsigned char text[sizeof odd];
    memcpy(text, odd, sizeof odd);
    memcpy(text, "STKSMP2\n", 8);
    assert_int_equal(stk_file_write(path, (char *)text, sizeof text, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), STK_E_STORE);
    assert_int_equal(stk_file_write(path, "something else entirely, and long", 33, 0644, &err), 0);
    assert_int_equal(stk_samples_load(path, arena, &s, &err), STK_E_STORE);
    assert_non_null(strstr(err.text, path));
    (void)unlink(path);
}

int main(void)
{
    snprintf(path, sizeof path, "/tmp/stk-samples-%d", (int)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classify),          cmocka_unit_test(test_symptom),
        cmocka_unit_test(test_samples),           cmocka_unit_test(test_samples_version_1),
        cmocka_unit_test(test_samples_version_2), cmocka_unit_test(test_samples_hostile),
    };
    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
