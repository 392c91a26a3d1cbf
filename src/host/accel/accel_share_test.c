/* Leases of chosen devices: shares, several holders of a device, slices and their parent, free
 * memory, programs outside Stoker. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/accel/accel.h"
#include "host/accel/accel_priv.h"

#define MIB ((int64_t)1 << 20)

static char dir[64];
static stk_accel *accel;
static stk_provider provider_;
static stk_device_process processes[4]; /* on device 0 */
static int n_processes;

static int some_processes(void *self, uint32_t slot, stk_device_process *ret, uint32_t n_max)
{
    (void)self;
    if (slot != 0) {
        return slot == 1 ? -1 : 0; /* device 1 doesn't report its processes */
    }
    for (int i = 0; i < n_processes && (uint32_t)i < n_max; i++) {
        ret[i] = processes[i];
    }
    return n_processes;
}

/* Device 0 has 1000 MiB, 1 has 500 MiB, 2 has an unknown size, 3 is split into 4 and 5. */
static int setup(void **state)
{
    (void)state;
    char path[96], provider[128];
    snprintf(dir, sizeof dir, "/tmp/stoker-share-test-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 01777), 0); /* for the test that runs as another user */
    snprintf(path, sizeof path, "%s/devices.json", dir);
    FILE *file = fopen(path, "w");
    fprintf(file,
            "[{\"uuid\": \"GPU-a\", \"memory_bytes\": %lld}, {\"uuid\": \"GPU-b\","
            " \"memory_bytes\": %lld}, {\"uuid\": \"GPU-c\"}, {\"uuid\": \"GPU-d\","
            " \"memory_bytes\": %lld}, {\"uuid\": \"MIG-1\", \"memory_bytes\": %lld},"
            " {\"uuid\": \"MIG-2\", \"memory_bytes\": %lld}]",
            1000LL * MIB, 500LL * MIB, 1000LL * MIB, 400LL * MIB, 400LL * MIB);
    fclose(file);
    snprintf(provider, sizeof provider, "fake:%s", path);
    setenv("STOKER_LEASE_DIR", dir, 1);
    unsetenv("STOKER_LEASE_LEVEL");
    unsetenv("STOKER_RUN");
    unsetenv("CUDA_VISIBLE_DEVICES");
    assert_int_equal(stk_accel_open(provider, &accel, NULL), 0);
    accel->devices[4].parent = accel->devices[5].parent = 3;
    provider_ = *accel->parts[0].provider;
    provider_.ops.processes = some_processes;
    accel->parts[0].provider = &provider_;
    n_processes = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    stk_accel_close(accel);
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static int take(uint64_t devices, int64_t share_mib, const char *label, stk_lease *ret,
                stk_err *err)
{
    const stk_devset set = {{devices}};
    return stk_lease_take(accel, &set, share_mib * MIB, label, ret, NULL, err);
}

static int64_t free_mib(uint32_t i, const char **ret_outside)
{
    static stk_arena *arena;
    int64_t free[6];
    const char *outside[6];
    arena = arena != NULL ? arena : stk_arena_new(0);
    stk_arena_reset(arena);
    assert_int_equal(stk_lease_free(accel, arena, free, outside, NULL), 0);
    if (ret_outside != NULL) {
        *ret_outside = outside[i];
    } else {
        assert_null(outside[i]);
    }
    return free[i] < 0 ? free[i] : free[i] / MIB;
}

static void test_exactly_these(void **state)
{
    (void)state;
    stk_lease lease, more;
    stk_err err = {0};
    stk_devset busy = {{0}};
    assert_int_equal(take(0x6, 0, "run a step x", &lease, NULL), 0);
    assert_true(lease.n == 2 && lease.devices[0] == 1 && lease.devices[1] == 2);
    assert_true(lease.n_fds == 2 && lease.share_bytes == 0);
    assert_int_equal(free_mib(0, NULL), 1000);
    assert_int_equal(free_mib(1, NULL), 0);
    assert_int_equal(free_mib(2, NULL), 0);
    const stk_devset three = {{0x7}};
    assert_int_equal(stk_lease_take(accel, &three, 0, "run b", &more, &busy, &err), STK_E_BUSY);
    assert_int_equal(busy.words[0], 0x6);
    assert_non_null(strstr(err.text, "GPU 1: run a step x (user "));
    assert_non_null(strstr(err.text, "3 devices to be leased, 2 held"));
    assert_int_equal(free_mib(0, NULL), 1000); /* all or nothing */
    stk_lease_drop(&lease);
    assert_int_equal(free_mib(1, NULL), 500);
    assert_int_equal(free_mib(2, NULL), -1); /* all free, of an unknown size */
    assert_int_equal(take(0, 0, "none", &lease, NULL), 0);
    assert_int_equal(lease.n, 0);
}

static void test_never(void **state)
{
    (void)state;
    const char *why;
    stk_lease lease;
    stk_err err = {0};
    assert_int_equal(take(0x4, 100, "x", &lease, &err), STK_E_RESOURCES);
    assert_non_null(strstr(err.text, "GPU 2: its memory size is unknown"));
    assert_int_equal(take(0x3, 501, "x", &lease, &err), STK_E_RESOURCES);
    assert_non_null(strstr(err.text, "GPU 1 has "));
    accel->devices[0].usable = false;
    accel->devices[0].trouble = "it fell off the bus";
    assert_int_equal(take(0x1, 0, "x", &lease, &err), STK_E_RESOURCES);
    assert_non_null(strstr(err.text, "GPU 0 can't be leased: it fell off the bus"));
    assert_int_equal(free_mib(0, &why), 0);
    assert_string_equal(why, "it fell off the bus");
    assert_int_equal(stk_accel_quarantine(accel, 1, "two ECC errors", NULL), 0);
    assert_int_equal(free_mib(1, &why), 0);
    assert_non_null(strstr(why, "two ECC errors"));
    assert_int_equal(take(0x40, 0, "x", &lease, &err), STK_E_BUG);
}

/* Shares fill a device to the last MiB, even if its free memory is in pieces. */
static void test_shares(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease a, b, c, d;
    stk_err err = {0};
    assert_int_equal(take(0x1, 300, "run a step s", &a, NULL), 0);
    assert_int_equal(a.share_bytes, 300 * MIB);
    assert_int_equal(take(0x1, 300, "run b step s", &b, NULL), 0);
    assert_int_equal(take(0x1, 300, "run c step s", &c, NULL), 0);
    assert_int_equal(free_mib(0, NULL), 100);
    assert_int_equal(take(0x1, 101, "run d step s", &d, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "GPU 0 (105 MB left): run a step s (user "));
    assert_int_equal(take(0x1, 0, "run d step s", &d, NULL), STK_E_BUSY);
    const char *who = stk_lease_holder(accel, 0, arena);
    assert_non_null(strstr(who, "); run b step s (user"));
    assert_non_null(strstr(who, "; run c step s"));
    assert_null(strstr(who, "run d"));
    stk_lease_drop(&b);
    assert_null(strstr(stk_lease_holder(accel, 0, arena), "run b"));
    assert_int_equal(free_mib(0, NULL), 400);
    assert_int_equal(take(0x1, 401, "run d step s", &d, NULL), STK_E_BUSY);
    assert_int_equal(take(0x1, 400, "run d step s", &d, NULL), 0); /* in pieces of 300 and 100 */
    assert_int_equal(free_mib(0, NULL), 0);
    stk_lease_drop(&a);
    stk_lease_drop(&c);
    assert_int_equal(free_mib(0, NULL), 600);
    assert_int_equal(take(0x1, 0, "x", &a, NULL), STK_E_BUSY);
    stk_lease_drop(&d);
    assert_int_equal(take(0x1, 0, "x", &a, NULL), 0);
    assert_int_equal(take(0x1, 1, "x", &b, NULL), STK_E_BUSY);
    stk_lease_drop(&a);

    /* Shares of two devices each; one byte counts as a MiB. */
    assert_int_equal(take(0x3, 250, "x", &a, NULL), 0);
    assert_int_equal(take(0x3, 251, "x", &b, NULL), STK_E_BUSY);
    assert_int_equal(free_mib(0, NULL), 750); /* the failed lease gave its part back */
    const stk_devset one = {{0x2}};
    assert_int_equal(stk_lease_take(accel, &one, 1, "x", &b, NULL, NULL), 0);
    assert_int_equal(free_mib(1, NULL), 249);
    stk_lease_drop(&a);
    stk_lease_drop(&b);
}

/* More holders than there is room for labels: each gets its lease all the same. */
static void test_many_holders(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease leases[100];
    for (int i = 0; i < 100; i++) {
        assert_int_equal(take(0x1, 10, "run many", &leases[i], NULL), 0);
    }
    assert_int_equal(free_mib(0, NULL), 0);
    assert_non_null(strstr(stk_lease_holder(accel, 0, arena), "run many"));
    for (int i = 0; i < 64; i++) {
        stk_lease_drop(&leases[i]);
    }
    assert_string_equal(stk_lease_holder(accel, 0, arena), "somebody");
    for (int i = 64; i < 100; i++) {
        stk_lease_drop(&leases[i]);
    }
    assert_int_equal(free_mib(0, NULL), 1000);
}

/* The label of an earlier holder is never shown for a present one. */
static void test_stale_label(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease lease;
    char path[96];
    assert_int_equal(take(0x1, 0, "run old", &lease, NULL), 0);
    stk_lease_drop(&lease);
    snprintf(path, sizeof path, "%s/nvidia-GPU-a", dir);
    int fd = open(path, O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0); /* a holder without a label yet */
    assert_string_equal(stk_lease_holder(accel, 0, arena), "somebody");
    assert_int_equal(pwrite(fd, "\033[31mevil\n", 10, 0), 10);
    lock.l_start = (1 << 23) + 1;
    lock.l_len = 1;
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    const char *evil = stk_lease_holder(accel, 0, arena);
    assert_int_equal(strncmp(evil, "?[31mevil?", 10), 0); /* harmless on a terminal */
    close(fd);
}

static void test_slices(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease one, two, parent;
    accel->devices[3].usable = false; /* split into slices */
    assert_int_equal(take(0x8, 0, "x", &parent, NULL), STK_E_RESOURCES);
    assert_int_equal(take(0x10, 0, "run a", &one, NULL), 0);
    assert_true(one.n == 1 && one.n_fds == 2);
    assert_int_equal(take(0x20, 100, "run b", &two, NULL), 0);
    assert_int_equal(free_mib(4, NULL), 0);
    assert_int_equal(free_mib(5, NULL), 300);

    accel->devices[3].usable = true; /* another engine's list has it unsplit */
    assert_int_equal(free_mib(3, NULL), 0);
    assert_int_equal(take(0x8, 0, "x", &parent, NULL), STK_E_BUSY);
    assert_int_equal(take(0x8, 100, "x", &parent, NULL), STK_E_BUSY);
    const char *who = stk_lease_holder(accel, 3, arena);
    assert_true(strstr(who, "run a") != NULL && strstr(who, "run b") != NULL);
    stk_lease_drop(&one);
    assert_int_equal(take(0x8, 0, "x", &parent, NULL), STK_E_BUSY);
    stk_lease_drop(&two);
    assert_int_equal(take(0x8, 100, "run p", &parent, NULL), 0);
    assert_int_equal(free_mib(4, NULL), 0);
    assert_non_null(strstr(stk_lease_holder(accel, 4, arena), "run p"));
    assert_int_equal(take(0x10, 0, "x", &one, NULL), STK_E_BUSY);
    assert_int_equal(free_mib(3, NULL), 900);
    stk_lease_drop(&parent);
    assert_int_equal(free_mib(4, NULL), 400);
}

/* On a full disk a lease counts although its label can't be written. */
static void test_full_disk(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    struct rlimit before, none = {0, 0};
    stk_lease lease, more;
    assert_int_equal(take(0x1, 100, "run old", &lease, NULL), 0);
    stk_lease_drop(&lease); /* leaves the file, with an old label in it */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int rc = take(0x1, 100, "run a", &lease, NULL), rc_new = take(0x2, 0, "run a", &more, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_true(rc == 0 && rc_new == 0);
    assert_string_equal(stk_lease_holder(accel, 0, arena), "somebody");
    assert_string_equal(stk_lease_holder(accel, 1, arena), "somebody");
    assert_int_equal(free_mib(0, NULL), 900);
    stk_lease_drop(&lease);
    stk_lease_drop(&more);
}

/* A removed folder is made again. */
static void test_folder_removed(void **state)
{
    (void)state;
    stk_lease lease;
    char command[96];
    assert_int_equal(take(0x1, 100, "run a", &lease, NULL), 0);
    stk_lease_drop(&lease);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(free_mib(2, NULL), -1);
    assert_int_equal(take(0x4, 0, "run a", &lease, NULL), 0);
    assert_int_equal(free_mib(2, NULL), 0);
    stk_lease_drop(&lease);
}

/* An engine inside a task has its own lease level. */
static void test_levels(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_lease outer, inner, more;
    assert_int_equal(take(0x1, 0, "run outer", &outer, NULL), 0);
    setenv("STOKER_LEASE_LEVEL", "1", 1);
    assert_int_equal(free_mib(0, NULL), 1000);
    assert_int_equal(take(0x1, 600, "run inner", &inner, NULL), 0);
    assert_int_equal(take(0x1, 600, "run inner", &more, NULL), STK_E_BUSY);
    assert_int_equal(free_mib(0, NULL), 400);
    assert_non_null(strstr(stk_lease_holder(accel, 0, arena), "run inner"));
    stk_lease_drop(&outer);
    unsetenv("STOKER_LEASE_LEVEL");
    assert_int_equal(free_mib(0, NULL), 1000);
    stk_lease_drop(&inner);
}

/* A child that does `what` and then waits until it is killed. */
enum { PLAIN = 0, HEIR = 1, OF_A_RUN = 2, NOBODY = 4 };

static pid_t child(int what, const stk_lease *lease)
{
    int pipes[2];
    char said;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char hold[16] = "";
        if (!(what & HEIR)) {
            for (uint32_t i = 0; lease != NULL && i < lease->n_fds; i++) {
                close(lease->fds[i]);
            }
        } else {
            (void)fcntl(lease->fds[0], F_SETFD, 0); /* as the backend passes it to a task */
        }
        if ((what & NOBODY) && (setgid(65534) != 0 || setuid(65534) != 0)) {
            _exit(9);
        }
        /* The shell waits for input that never comes: it holds both ends of the pipe. It starts no
         * second program, because a process shows no environment in the middle of an exec. */
        int never[2];
        if (pipe(never) != 0 || dup2(never[0], 0) != 0) {
            _exit(9);
        }
        snprintf(hold, sizeof hold, "%d", pipes[1]);
        char *const argv[] = {"sh", "-c", "echo >&$0; read x", hold, NULL};
        char *const run[] = {"PATH=/usr/bin:/bin", "STOKER_RUN=r1", NULL};
        char *const plain[] = {"XSTOKER_RUN=r1", "PATH=/usr/bin:/bin", NULL};
        execve("/bin/sh", argv, what & OF_A_RUN ? run : plain);
        _exit(9);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &said, 1), 1);
    close(pipes[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void use(pid_t pid, bool graphics)
{
    processes[0] = (stk_device_process){.pid = pid, .memory_bytes = -1, .graphics = graphics};
    n_processes = 1;
}

static void test_outside(void **state)
{
    (void)state;
    const char *who;
    char expected[64];
    pid_t pid = child(PLAIN, NULL);
    use(pid, true);
    assert_int_equal(free_mib(0, NULL), 1000); /* a display doesn't block a device */
    use(pid, false);
    assert_int_equal(free_mib(0, &who), 0);
    snprintf(expected, sizeof expected, "pid %d (", (int)pid);
    assert_int_equal(strncmp(who, expected, strlen(expected)), 0);
    assert_non_null(strstr(who, ") uses it outside Stoker"));
    processes[1] = (stk_device_process){.pid = pid};
    n_processes = 2;
    assert_int_equal(free_mib(0, &who), 0);
    assert_non_null(strstr(who, " and 1 more use it outside Stoker"));
    end(pid);
    use(getpid(), false);
    assert_int_equal(free_mib(0, NULL), 1000); /* our own process */

    pid = child(OF_A_RUN, NULL); /* this process has outlived its task and the lease */
    use(pid, false);
    assert_int_equal(free_mib(0, &who), 0);
    end(pid);
}

static void test_inside(void **state)
{
    (void)state;
    const char *who;
    stk_lease lease;
    assert_int_equal(take(0x1, 200, "run a", &lease, NULL), 0);
    pid_t heir = child(HEIR, &lease), closed = child(OF_A_RUN, &lease),
          other = child(PLAIN, &lease);
    use(heir, false);
    assert_int_equal(free_mib(0, NULL), 800);
    use(closed, false);
    assert_int_equal(free_mib(0, NULL), 800);
    use(other, false);
    assert_int_equal(free_mib(0, &who), 0);
    assert_non_null(who);
    stk_lease_drop(&lease); /* the task keeps its copy of the descriptor */
    use(heir, false);
    assert_int_equal(free_mib(0, NULL), 800);
    end(heir);
    end(closed);
    end(other);
    use(heir, false); /* the task has ended, and its lease with it */
    char ns[32] = "";
    (void)!readlink("/proc/self/ns/pid", ns, sizeof ns - 1);
    int64_t left = free_mib(0, &who);
    if (strcmp(ns, "pid:[4026531836]") == 0) {
        assert_int_equal(left, 1000);
    } else { /* in a container, the pid may be a process on the host */
        assert_int_equal(left, 0);
        assert_non_null(strstr(who, "of another container or user"));
    }
}

/* An unprivileged user can't read the descriptors of other users' processes. */
static void test_other_user(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    stk_lease lease;
    char path[96];
    pid_t roots = child(PLAIN, NULL);
    use(roots, false);
    snprintf(path, sizeof path, "%s/nvidia-GPU-b", dir);
    int private = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(private >= 0);
    close(private);
    pid_t pid = fork();
    if (pid == 0) { /* the user nobody looks at root's process */
        if (setgid(65534) != 0 || setuid(65534) != 0) {
            _exit(9);
        }
        const char *who = NULL;
        stk_err err = {0};
        bool ok = free_mib(0, &who) == 0 && strstr(who, "user root) uses it") != NULL;
        /* A file that can't be opened is an error to report, not a lease. */
        ok = ok && free_mib(1, &who) == 500 && who == NULL;
        ok = ok && take(0x2, 0, "run x", &lease, &err) == STK_E_SYS;
        ok = ok && strstr(err.text, dir) != NULL && strstr(err.hint, "STOKER_LEASE_DIR") != NULL;
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(take(0x1, 200, "run a", &lease, NULL), 0); /* now root leases a part */
    pid = fork();
    if (pid == 0) {
        stk_lease more;
        bool ok = setgid(65534) == 0 && setuid(65534) == 0;
        ok = ok && free_mib(0, NULL) == 800; /* root's process is assumed to hold the lease */
        ok = ok && take(0x1, 800, "run of nobody", &more, NULL) == 0;
        _exit(ok && free_mib(0, NULL) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    stk_lease_drop(&lease);
    end(roots);
}

/* --- claims --- */

static stk_accel *other_run(void)
{
    stk_accel *other = NULL;
    char provider[128];
    snprintf(provider, sizeof provider, "fake:%s/devices.json", dir);
    assert_int_equal(stk_accel_open(provider, &other, NULL), 0);
    return other;
}

static int take_by(stk_accel *who, uint64_t devices, int64_t share_mib, stk_lease *ret,
                   stk_err *err)
{
    const stk_devset set = {{devices}};
    return stk_lease_take(who, &set, share_mib * MIB, "run t step s", ret, NULL, err);
}

static int claim(stk_accel *who, uint64_t devices, int64_t waited_ms, const char *label)
{
    const stk_devset set = {{devices}};
    return stk_lease_claim(who, &set, waited_ms, label, NULL);
}

/* A claim keeps other runs off its devices; holders stay, and the claimer follows them. */
static void test_claims(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *run = other_run();
    stk_lease one, two, whole;
    stk_err err = {0};
    assert_int_equal(take(0x1, 300, "run b step s", &one, NULL), 0);
    assert_int_equal(claim(run, 0x3, 12500, "run a step all"), 0);
    assert_null(stk_lease_claimant(run, 0, arena)); /* no other claim comes first */
    const char *who = stk_lease_claimant(accel, 0, arena);
    assert_int_equal(strncmp(who, "claimed by run a step all (user ", 32), 0);
    assert_non_null(strstr(who, "), which has waited for it for 12 s"));
    assert_int_equal(free_mib(0, NULL), 0);
    assert_int_equal(free_mib(1, NULL), 0);
    assert_int_equal(free_mib(2, NULL), -1);
    assert_int_equal(take(0x1, 300, "run b step s", &two, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "run b step s (user "));
    assert_non_null(strstr(err.text, "; claimed by run a step all (user "));
    assert_int_equal(take(0x2, 0, "run b step s", &two, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "GPU 1: claimed by run a"));
    assert_int_equal(take(0x4, 0, "run b step s", &two, NULL), 0);
    stk_lease_drop(&two);
    assert_int_equal(take_by(run, 0x1, 0, &whole, NULL), STK_E_BUSY);
    stk_lease_drop(&one);
    assert_int_equal(take_by(run, 0x1, 0, &whole, NULL), 0);
    stk_lease_unclaim(run);
    assert_int_equal(take(0x2, 100, "run b step s", &two, NULL), 0);
    assert_null(stk_lease_claimant(accel, 0, arena));
    stk_lease_drop(&whole);
    stk_lease_drop(&two);
    stk_accel_close(run);
}

/* Of several claims, the one that has waited longest comes first on all of its devices. */
static void test_claims_in_order(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *runs[3] = {other_run(), other_run(), other_run()};
    stk_lease lease;
    assert_int_equal(claim(runs[0], 0x2, 5000, "run 0 step s"), 0);
    assert_int_equal(claim(runs[1], 0x7, 9000, "run 1 step s"), 0);
    assert_int_equal(claim(runs[2], 0x5, 7000, "run 2 step s"), 0);
    assert_int_equal(take_by(runs[0], 0x2, 100, &lease, NULL), STK_E_BUSY);
    assert_int_equal(take_by(runs[2], 0x1, 100, &lease, NULL), STK_E_BUSY);
    assert_non_null(strstr(stk_lease_claimant(runs[2], 0, arena), "run 1 step s"));
    assert_int_equal(take_by(runs[1], 0x7, 0, &lease, NULL), 0);
    stk_lease_drop(&lease);
    stk_lease_unclaim(runs[1]);
    assert_int_equal(take_by(runs[0], 0x1, 100, &lease, NULL), STK_E_BUSY); /* run 2 claims it */
    assert_int_equal(take_by(runs[2], 0x1, 100, &lease, NULL), 0);
    stk_lease_drop(&lease);
    stk_accel_close(runs[2]); /* a claim ends with its engine */
    assert_null(stk_lease_claimant(accel, 0, arena));
    assert_int_equal(claim(runs[1], 0x2, 1000, "run 1 step s"), 0);
    assert_non_null(strstr(stk_lease_claimant(accel, 1, arena), "run 0 step s"));
    for (int i = 0; i < 2; i++) {
        stk_accel_close(runs[i]);
    }
}

/* Too many claims on device 1: the last claim fails as a whole, on device 0 too. */
static void test_too_many_claims(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_accel *runs[33];
    for (int i = 0; i < 33; i++) {
        runs[i] = other_run();
        assert_int_equal(claim(runs[i], i < 32 ? 0x2 : 0x3, 1000, "run many step s"),
                         i < 32 ? 0 : STK_E_BUSY);
    }
    assert_null(stk_lease_claimant(accel, 0, arena));
    assert_non_null(stk_lease_claimant(accel, 1, arena));
    for (int i = 0; i < 33; i++) {
        stk_accel_close(runs[i]);
    }
    assert_null(stk_lease_claimant(accel, 1, arena));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(exactly_these), T(never),      T(shares),         T(many_holders),    T(stale_label),
        T(slices),        T(full_disk),  T(folder_removed), T(levels),          T(outside),
        T(inside),        T(other_user), T(claims),         T(claims_in_order), T(too_many_claims),
    };
#undef T
    return cmocka_run_group_tests(tests, NULL, NULL);
}
