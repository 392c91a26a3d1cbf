/* Leases between processes: they are exclusive and all or nothing; a crash frees a lease, and a
 * child's copy keeps it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/testing.h"
#include "host/accel/accel.h"

static char dir[64];
static char provider[96];
static stk_accel *accel;

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/stoker-lease-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    char path[80];
    snprintf(path, sizeof path, "%s/devices.json", dir);
    FILE *file = fopen(path, "w");
    fputs("[{\"uuid\": \"GPU-a\"}, {\"uuid\": \"GPU-b\", \"usable\": false, \"trouble\": \"x\"},"
          " {\"uuid\": \"GPU-c\"}]",
          file);
    fclose(file);
    snprintf(provider, sizeof provider, "fake:%s", path);
    setenv("STOKER_LEASE_DIR", dir, 1);
    unsetenv("STOKER_LEASE_LEVEL");
    unsetenv("CUDA_VISIBLE_DEVICES");
    return stk_accel_open(provider, &accel, NULL);
}

static int teardown(void **state)
{
    (void)state;
    stk_accel_close(accel);
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static int take(uint64_t devices, const char *label, stk_lease *ret_lease, stk_err *err)
{
    const stk_devset set = {{devices}};
    return stk_lease_take(accel, &set, 0, label, ret_lease, NULL, err);
}

/* Starts a child that takes these devices, says so with one byte, and lives until it is killed. */
static pid_t holder(uint64_t devices)
{
    int pipes[2];
    char said = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        stk_lease lease;
        said = take(devices, "run other", &lease, NULL) == 0 ? 'y' : 'n';
        (void)!write(pipes[1], &said, 1);
        for (;;) {
            pause();
        }
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &said, 1), 1);
    close(pipes[0]);
    assert_int_equal(said, 'y');
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_take_and_drop(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease lease, more;
    assert_null(stk_lease_holder(accel, 0, arena));
    assert_int_equal(take(0x5, "run mine", &lease, NULL), 0);
    assert_int_equal(lease.n, 2);
    assert_int_equal(lease.devices[0], 0);
    assert_int_equal(lease.devices[1], 2);
    assert_true(fcntl(lease.fds[0], F_GETFD) & FD_CLOEXEC);
    char me[64];
    snprintf(me, sizeof me, "pid %d)", (int)getpid());
    const char *who = stk_lease_holder(accel, 2, arena);
    assert_non_null(strstr(who, "run mine (user "));
    assert_non_null(strstr(who, me));

    stk_err err = {0}; /* the same process gets no second lease */
    assert_int_equal(take(0x1, "run mine", &more, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "GPU 0: run mine"));
    stk_lease_drop(&lease);
    assert_null(stk_lease_holder(accel, 0, arena));
    assert_int_equal(take(0x1, "run mine", &more, NULL), 0);
    stk_lease_drop(&more);
}

static void test_two_processes(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    pid_t pid = holder(0x1);
    stk_lease lease;
    stk_err err = {0};
    assert_int_equal(take(0x5, "run mine", &lease, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "2 devices to be leased, 1 held: GPU 0: run other"));
    assert_null(stk_lease_holder(accel, 2, arena)); /* all or nothing: we hold none */
    assert_int_equal(take(0x4, "run mine", &lease, NULL), 0);
    assert_int_equal(lease.devices[0], 2);
    stk_lease_drop(&lease);
    end(pid); /* a crash frees the lease */
    assert_int_equal(take(0x5, "run mine", &lease, NULL), 0);
    stk_lease_drop(&lease);
}

/* The task's copy of the descriptor keeps the lease after the engine has closed its own. */
static void test_heir_keeps(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease lease, other;
    assert_int_equal(take(0x1, "run mine", &lease, NULL), 0);
    pid_t heir = fork();
    if (heir == 0) {
        for (;;) {
            pause();
        }
    }
    stk_lease_drop(&lease);
    assert_non_null(stk_lease_holder(accel, 0, arena));
    assert_int_equal(take(0x5, "run mine", &other, NULL), STK_E_BUSY);
    end(heir);
    assert_null(stk_lease_holder(accel, 0, arena));
}

/* A cleaner removes the lease's file: the next lease must lock the new file of that name. */
static void test_file_removed(void **state)
{
    (void)state;
    char path[96];
    stk_lease lease;
    snprintf(path, sizeof path, "%s/nvidia-GPU-a", dir);
    assert_int_equal(take(0x1, "x", &lease, NULL), 0);
    stk_lease_drop(&lease);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(take(0x1, "x", &lease, NULL), 0);
    struct stat locked, named;
    assert_int_equal(fstat(lease.fds[0], &locked), 0);
    assert_int_equal(stat(path, &named), 0);
    assert_true(locked.st_ino == named.st_ino);
    assert_int_equal(named.st_mode & 0777, 0666);
    stk_lease_drop(&lease);
}

static void test_hostile_file(void **state)
{
    (void)state;
    char path[96];
    stk_lease lease;
    stk_err err = {0};
    snprintf(path, sizeof path, "%s/nvidia-GPU-a", dir);
    assert_int_equal(mkfifo(path, 0666), 0); /* a lease must neither wait for it nor trust it */
    assert_int_equal(take(0x1, "x", &lease, &err), STK_E_SYS);
    assert_non_null(strstr(err.text, dir));
    unlink(path);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(take(0x1, "x", &lease, &err), STK_E_SYS);
    unlink(path);
}

static const char *value(const char *(*pairs)[2], uint32_t n, const char *key)
{
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(pairs[i][0], key) == 0) {
            return pairs[i][1];
        }
    }
    return NULL;
}

static void test_environment(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *pairs[8][2];
    stk_lease lease = {0};
    uint32_t n = stk_lease_env(accel, &lease, arena, pairs, 8);
    assert_string_equal(value(pairs, n, "CUDA_VISIBLE_DEVICES"), "");
    assert_null(value(pairs, n, "STOKER_LEASE_LEVEL"));
    assert_int_equal(take(0x5, "x", &lease, NULL), 0);
    n = stk_lease_env(accel, &lease, arena, pairs, 8);
    assert_string_equal(value(pairs, n, "CUDA_VISIBLE_DEVICES"), "GPU-a,GPU-c");
    assert_string_equal(value(pairs, n, "CUDA_DEVICE_ORDER"), "PCI_BUS_ID");

    /* An engine inside this task can lease the same devices again, for its own tasks. */
    setenv("STOKER_LEASE_LEVEL", value(pairs, n, "STOKER_LEASE_LEVEL"), 1);
    stk_lease inner, more;
    assert_int_equal(take(0x5, "inner", &inner, NULL), 0);
    assert_int_equal(take(0x1, "inner", &more, NULL), STK_E_BUSY);
    unsetenv("STOKER_LEASE_LEVEL");
    assert_non_null(strstr(stk_lease_holder(accel, 0, arena), "x (user"));
    stk_lease_drop(&inner);
    stk_lease_drop(&lease);
}

/* Many engines at once: there are never more holders than devices. Each child takes a device, makes
 * a marker that only one child can make, removes the marker and drops the lease. */
static void test_race(void **state)
{
    (void)state;
    pid_t pids[6];
    for (int i = 0; i < 6; i++) {
        pids[i] = fork();
        if (pids[i] != 0) {
            continue;
        }
        int n_taken = 0;
        for (int k = 0; k < 240000 && n_taken < 20; k++) {
            stk_lease lease;
            if (take(k % 2 ? 0x1 : 0x4, "racer", &lease, NULL) != 0) {
                usleep(500);
                continue;
            }
            char marker[96];
            snprintf(marker, sizeof marker, "%s/held-%u", dir, lease.devices[0]);
            if (mkdir(marker, 0700) != 0) {
                _exit(2); /* two holders */
            }
            usleep(200);
            rmdir(marker);
            stk_lease_drop(&lease);
            n_taken++;
        }
        _exit(n_taken == 20 ? 0 : 3);
    }
    for (int i = 0; i < 6; i++) {
        int status = -1;
        waitpid(pids[i], &status, 0);
        assert_int_equal(status, 0);
    }
}

static void test_directory(void **state)
{
    (void)state;
    bool is_private = true;
    assert_string_equal(stk_lease_dir(&is_private), dir);
    assert_false(is_private);
}

/* An old driver puts slashes into a slice's name; its file is in the folder all the same. */
static void test_slashes_in_a_name(void **state)
{
    (void)state;
    char path[128], provider_of_slice[160];
    snprintf(path, sizeof path, "%s/slices.json", dir);
    FILE *file = fopen(path, "w");
    fputs("[{\"uuid\": \"MIG-GPU-a/1/0\"}, {\"uuid\": \"MIG-GPU-a/2/0\"}]", file);
    fclose(file);
    snprintf(provider_of_slice, sizeof provider_of_slice, "fake:%s", path);
    stk_accel *slices;
    stk_lease lease;
    stk_err err = {0};
    const stk_devset both = {{3}};
    assert_int_equal(stk_accel_open(provider_of_slice, &slices, NULL), 0);
    if (stk_lease_take(slices, &both, 0, "run r", &lease, NULL, &err) < 0) {
        fail_msg("%s", err.text);
    }
    snprintf(path, sizeof path, "%s/nvidia-MIG-GPU-a_1_0", dir);
    assert_int_equal(access(path, F_OK), 0);
    stk_lease_drop(&lease);
    assert_int_equal(stk_accel_quarantine(slices, 1, "it broke", &err), 0);
    assert_int_equal(stk_accel_clear_quarantine(slices, 1, &err), 0);
    stk_accel_close(slices);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(take_and_drop), T(two_processes), T(heir_keeps), T(file_removed),      T(hostile_file),
        T(environment),   T(race),          T(directory),  T(slashes_in_a_name),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
