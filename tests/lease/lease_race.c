/* lease_race: processes that race for devices, whole and by memory, and are killed at any instant.
 *
 * Each start is a process of its own (as root: of one of three users) that takes random devices
 * several times; some pass their lease on to a child process, the heir, as an engine does to its
 * task; some claim devices and ask until they get them. The parent kills them at random, with or
 * without their heir. A table in shared memory shows whether these rules hold: a device is never
 * held beyond its memory, nor a slice together with its parent; holders are named, and only living
 * ones; a claim is always granted in the end; at the end nothing is held or claimed. Prints `N
 * passed, N failed`.
 *
 *     STOKER_LEASE_STARTS=20000 STOKER_LEASE_SEED=7 lease_race */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/accel/accel.h"

enum {
    DEVICES = 5,
    PARENT = 2,
    MIB = 1000,
    MAX_STARTS = 1 << 16,
    ALIVE = 12,
    TIMEOUT_S = 500,
    CLAIM_S = 60
};

/* Some processes see device 2 split into 3 and 4, the others see it whole, like engines that looked
 * before and after an administrator changed it. */
#define GPUS                                                                                       \
    "[{\"uuid\": \"GPU-a\", \"memory_bytes\": 1048576000}, {\"uuid\": \"GPU-b\","                  \
    " \"memory_bytes\": 1048576000}, {\"uuid\": \"GPU-c\", \"memory_bytes\": 1048576000}"
#define SLICE(uuid)                                                                                \
    ", {\"uuid\": \"" uuid                                                                         \
    "\", \"memory_bytes\": 1048576000, \"parent\": 2, \"noun\": \"MIG slice\"}"

typedef struct start {
    _Atomic pid_t pid, heir;
    _Atomic int
        held[DEVICES];  /* MiB: set after it takes the lease, cleared before it gives it back */
    _Atomic bool dying; /* about to be killed: its lease may end at any moment */
    _Atomic bool gone;  /* it and its heir have been reaped */
} start;

static struct {
    _Atomic uint64_t version; /* of the table: every change of `held` and `dying` */
    _Atomic uint32_t n_starts, n_taken, n_busy, n_heirs, n_checked, n_claims, n_claimed, n_failed;
    start starts[MAX_STARTS];
} * shared;

static stk_accel *views[2]; /* split, unsplit */
static uint64_t random_;

static uint32_t below(uint32_t n)
{
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_ >> 33) % n);
}

static void fail(const char *what, const char *more)
{
    atomic_fetch_add(&shared->n_failed, 1);
    (void)fprintf(stderr, "lease_race: pid %d: %s: %s\n", (int)getpid(), what, more);
}

/* Adds up what is held by processes that can't have been killed yet. False: the table changed while
 * it was read, so these amounts may never have been held at the same time. */
static bool add_up(int ret_sum[DEVICES])
{
    uint64_t version = atomic_load(&shared->version);
    memset(ret_sum, 0, DEVICES * sizeof *ret_sum);
    for (uint32_t k = 0; k < atomic_load(&shared->n_starts); k++) {
        const start *s = &shared->starts[k];
        for (int i = 0; i < DEVICES && !atomic_load(&s->gone); i++) {
            int mib = atomic_load(&s->held[i]);
            ret_sum[i] += mib > 0 && !atomic_load(&s->dying) ? mib : 0;
        }
    }
    return atomic_load(&shared->version) == version;
}

static void check_table(void)
{
    int sum[DEVICES];
    bool known = false;
    for (int tries = 0; tries < 100 && !known; tries++) {
        known = add_up(sum);
    }
    if (!known) {
        return;
    }
    atomic_fetch_add(&shared->n_checked, 1);
    for (int i = 0; i < DEVICES; i++) {
        char text[64];
        (void)snprintf(text, sizeof text, "device %d: %d of %d MiB", i, sum[i], MIB);
        if (sum[i] > MIB) {
            fail("held beyond its memory", text);
        }
    }
    if (sum[PARENT] > 0 && sum[3] + sum[4] > 0) {
        fail("a slice and its parent", "held at once");
    }
}

/* The holder's text names us, and no process that was gone before we asked. */
static void check_names(const stk_accel *accel, uint32_t device, uint32_t me)
{
    static bool gone[MAX_STARTS];
    char mine[64];
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (uint32_t k = 0; k < atomic_load(&shared->n_starts); k++) {
        gone[k] = atomic_load(&shared->starts[k].gone);
    }
    const char *text = stk_lease_holder(accel, device, arena);
    (void)snprintf(mine, sizeof mine, "run %u step race (user ", me);
    if (text == NULL || strstr(text, mine) == NULL) {
        fail("its holder isn't named", text != NULL ? text : "(free)");
        return;
    }
    for (const char *at = text; (at = strstr(at, "run ")) != NULL; at += 4) {
        unsigned long k = strtoul(at + 4, NULL, 10);
        if (k >= atomic_load(&shared->n_starts) || gone[k]) {
            fail("somebody who is gone is named", text);
        }
    }
}

static void hold(start *mine, const stk_lease *lease, int mib)
{
    for (uint32_t i = 0; i < lease->n; i++) {
        atomic_store(&mine->held[lease->devices[i]], mib);
    }
    atomic_fetch_add(&shared->version, 1);
    check_table();
}

static void let_go(start *mine)
{
    for (int i = 0; i < DEVICES; i++) {
        atomic_store(&mine->held[i], 0);
    }
    atomic_fetch_add(&shared->version, 1);
}

/* The heir acts like a task that outlives its engine: its copies of the descriptors keep the lease.
 */
static void leave_heir(start *mine, const stk_lease *lease)
{
    if (fork() == 0) {
        atomic_store(&mine->heir, getpid());
        atomic_fetch_add(&shared->n_heirs, 1);
        usleep(below(5000));
        check_table();
        let_go(mine);
        _exit(0);
    }
    (void)lease; /* ours closes when we exit, before or after the heir does */
    usleep(below(3000));
    _exit(0);
}

/* Claims first, like an engine that has waited: nobody who comes later overtakes us, so the wait is
 * at most that of the present holders and of earlier claims. */
static int take_claimed(stk_accel *accel, const stk_devset *set, int64_t bytes, const char *label,
                        stk_lease *ret_lease, stk_err *err)
{
    time_t end = time(NULL) + CLAIM_S;
    int rc = stk_lease_claim(accel, set, (int64_t)below(100), label, err);
    atomic_fetch_add(&shared->n_claims, 1);
    while (rc == 0 && (rc = stk_lease_take(accel, set, bytes, label, ret_lease, NULL, err)) < 0) {
        if (rc != STK_E_BUSY || time(NULL) > end) {
            fail("what it claims it doesn't get", err->text);
            _exit(1);
        }
        usleep(below(400));
        rc = 0;
    }
    stk_lease_unclaim(accel);
    atomic_fetch_add(&shared->n_claimed, rc == 0);
    return rc;
}

static void race(uint32_t me)
{
    start *mine = &shared->starts[me];
    static const uid_t users[] = {0, 65534, 12345};
    uid_t uid = users[below(3)];
    char label[40];
    random_ ^= (uint64_t)me << 32;
    if (geteuid() == 0 && uid != 0 && (setgid(uid) != 0 || setuid(uid) != 0)) {
        fail("setuid", strerror(errno));
    }
    (void)snprintf(label, sizeof label, "run %u step race", me);
    for (uint32_t k = 0; k < 8; k++) {
        bool unsplit = below(3) == 0;
        stk_accel *accel = views[unsplit];
        stk_devset set = {{0}};
        stk_lease lease;
        stk_err err;
        for (uint32_t n = 1 + below(3); n > 0; n--) {
            uint32_t i = below(unsplit ? 3 : DEVICES);
            stk_devset_add(&set, !unsplit && i == PARENT ? 3 : i);
        }
        int mib = below(3) == 0 ? MIB : 1 + (int)below(below(2) > 0 ? 200 : MIB);
        int64_t bytes = mib == MIB ? 0 : (int64_t)mib << 20;
        int rc = below(8) == 0 ? take_claimed(accel, &set, bytes, label, &lease, &err)
                               : stk_lease_take(accel, &set, bytes, label, &lease, NULL, &err);
        if (rc == STK_E_BUSY) {
            atomic_fetch_add(&shared->n_busy, 1);
            usleep(below(400));
            continue;
        }
        if (rc < 0) {
            fail("stk_lease_take", err.text);
            return;
        }
        hold(mine, &lease, mib);
        atomic_fetch_add(&shared->n_taken, 1);
        if (below(4) == 0) {
            check_names(accel, lease.devices[below(lease.n)], me);
        }
        usleep(below(1500));
        if (below(4) == 0) {
            leave_heir(mine, &lease);
        }
        let_go(mine);
        stk_lease_drop(&lease);
    }
}

static void begin(uint32_t k)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0);
        atomic_store(&shared->starts[k].pid, getpid());
        race(k);
        _exit(0);
    }
    (void)setpgid(pid, pid);
    atomic_store(&shared->starts[k].pid, pid);
}

/* Reaps children that ended. False: no child is left. */
static bool reap(uint32_t *n_alive, bool *ended)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
            fail("a process crashed", strsignal(WTERMSIG(status)));
        }
        for (uint32_t k = 0; k < atomic_load(&shared->n_starts); k++) {
            if (atomic_load(&shared->starts[k].pid) == pid && !ended[k]) {
                ended[k] = true;
                (*n_alive)--;
            }
        }
    }
    /* Gone: it has ended and its process group is empty (the heir is reparented to us). */
    for (uint32_t k = 0; k < atomic_load(&shared->n_starts); k++) {
        if (ended[k] && !atomic_load(&shared->starts[k].gone) &&
            kill(-atomic_load(&shared->starts[k].pid), 0) < 0 && errno == ESRCH) {
            atomic_store(&shared->starts[k].gone, true);
        }
    }
    return pid == 0;
}

/* Kills it with its heir; if there is an heir to keep the lease, sometimes without it. */
static void kill_one(uint32_t k)
{
    start *s = &shared->starts[k];
    if (atomic_load(&s->heir) != 0 && below(2) == 0) {
        (void)kill(atomic_load(&s->pid), SIGKILL);
        return;
    }
    atomic_store(&s->dying, true);
    atomic_fetch_add(&shared->version, 1);
    (void)kill(-atomic_load(&s->pid), SIGKILL);
}

static void run_race(uint32_t n_wanted, uint32_t *ret_kills)
{
    static bool ended[MAX_STARTS];
    uint32_t n_alive = 0;
    time_t end = time(NULL) + TIMEOUT_S;
    uint32_t n_starts = 0;
    for (bool any = true; any || n_starts < n_wanted;) {
        for (; n_alive < ALIVE && n_starts < n_wanted; n_alive++) {
            atomic_store(&shared->n_starts, n_starts + 1);
            begin(n_starts++);
        }
        usleep(300);
        uint32_t k = n_starts - 1 - below(n_starts < 2 * ALIVE ? n_starts : 2 * ALIVE);
        if (below(3) > 0 && !ended[k]) {
            kill_one(k);
            ++*ret_kills;
        }
        any = reap(&n_alive, ended);
        if (time(NULL) > end) {
            fail("it takes too long", "is a lease stuck?");
            (void)kill(0, SIGTERM);
        }
    }
}

static void check_end(void)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int64_t free[PARENT + 1];
    stk_lease lease;
    stk_err err = {0};
    const stk_devset all = {{0x7}};
    (void)stk_lease_free(views[1], arena, free, NULL, NULL);
    for (int i = 0; i <= PARENT; i++) {
        if (stk_lease_claimant(views[1], (uint32_t)i, arena) != NULL) {
            fail("a stuck claim", stk_lease_claimant(views[1], (uint32_t)i, arena));
        }
        if (free[i] != (int64_t)MIB << 20) {
            fail("not free in the end", stk_lease_holder(views[1], (uint32_t)i, arena));
        }
    }
    if (stk_lease_take(views[1], &all, 0, "end", &lease, NULL, &err) < 0) {
        fail("a stuck lease", err.text);
    }
}

static stk_accel *view(const char *dir, const char *name, const char *devices)
{
    char path[128], provider[160];
    stk_accel *accel = NULL;
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    if (file != NULL) {
        (void)fputs(devices, file);
        (void)fclose(file);
    }
    (void)snprintf(provider, sizeof provider, "fake:%s", path);
    if (stk_accel_open(provider, &accel, &err) < 0) {
        (void)fprintf(stderr, "lease_race: fake devices: %s\n", err.text);
        exit(3);
    }
    return accel;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 10) : otherwise;
}

int main(void)
{
    char dir[] = "/tmp/stoker-lease-race-XXXXXX", command[64];
    uint32_t n_kills = 0, n_wanted = (uint32_t)number("STOKER_LEASE_STARTS", 2000);
    random_ = number("STOKER_LEASE_SEED", (uint64_t)time(NULL));
    (void)printf("STOKER_LEASE_SEED=%" PRIu64 "\n", random_);
    (void)fflush(stdout);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || mkdtemp(dir) == NULL || chmod(dir, 01777) != 0 ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        perror("lease_race");
        return 3;
    }
    (void)setenv("STOKER_LEASE_DIR", dir, 1);
    (void)unsetenv("STOKER_LEASE_LEVEL");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    views[0] = view(dir, "split.json", GPUS SLICE("MIG-1") SLICE("MIG-2") "]");
    views[1] = view(dir, "unsplit.json", GPUS "]");
    run_race(n_wanted < MAX_STARTS ? n_wanted : MAX_STARTS, &n_kills);
    check_end();
    uint32_t n_failed = atomic_load(&shared->n_failed), n_taken = atomic_load(&shared->n_taken);
    uint32_t n_checked = atomic_load(&shared->n_checked);
    (void)printf("%u starts, %u killed, %u leases taken, %u found busy, %u heirs, %u checks, %u of "
                 "%u claims "
                 "were granted before the claimer's end\n",
                 atomic_load(&shared->n_starts), n_kills, n_taken, atomic_load(&shared->n_busy),
                 atomic_load(&shared->n_heirs), n_checked, atomic_load(&shared->n_claimed),
                 atomic_load(&shared->n_claims));
    bool busy_enough = n_taken > n_wanted / 4 && n_kills > n_wanted / 20 &&
                       n_checked > n_taken / 10 && atomic_load(&shared->n_claimed) > n_wanted / 40;
    if (!busy_enough) {
        (void)printf("that proves nothing\n");
    }
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    (void)!system(command);
    n_failed += !busy_enough;
    (void)printf("%d passed, %u failed\n", n_failed == 0, n_failed);
    return n_failed == 0 ? 0 : 1;
}
