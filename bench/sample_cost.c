/* What a look at a running task costs: CPU seconds per 1,000 samples of one process and of several,
 * beside a bare read of its /proc/PID/stat. JSON on stdout: {"bare_s", "sample_s", "tree_s"};
 * `devices`: a provider for stk_accel_open.
 *
 *     sample_cost [DEVICES]
 *     sample_cost wake SECONDS PERIOD_MS
 *
 * The second is the least that anybody pays who looks so often: a program that starts a task,
 * sleeps, reads its /proc/PID/stat, kept open, and does nothing with it. Whoever starts it
 * measures. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/accel/accel.h"
#include "host/runner/runner.h"

enum { N = 1000, TREE = 8, PERIOD_MS = 100, PAUSE_US = 1000 };

static double cpu_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A session of n processes that do nothing. */
static pid_t make_task(int n)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        for (int i = 1; i < n; i++) {
            if (fork() == 0) {
                break;
            }
        }
        for (;;) {
            (void)pause();
        }
    }
    (void)usleep(50000);
    return pid;
}

/* Both loops sleep between their turns, as an engine does: caches are cold then. */
static double cost_of_idle(void)
{
    double start = cpu_s();
    for (int i = 0; i < N; i++) {
        (void)usleep(PAUSE_US);
    }
    return cpu_s() - start;
}

static double cost_of_bare(pid_t pid)
{
    char path[64];
    char text[1024];
    double start = cpu_s();
    for (int i = 0; i < N; i++) {
        (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (read(fd, text, sizeof text) <= 0) {
            exit(1);
        }
        (void)close(fd);
        (void)usleep(PAUSE_US);
    }
    return cpu_s() - start;
}

static double cost_of_watch(pid_t sid, stk_accel *accel, const char *dir)
{
    stk_watch w;
    stk_err err = {0};
    stk_lease lease = {.n = accel == NULL ? 0 : stk_accel_n_devices(accel)};
    for (uint32_t i = 0; i < lease.n; i++) {
        lease.devices[i] = i;
    }
    stk_watch_config config = {.dir = dir, .period_ms = PERIOD_MS, .accel = accel, .lease = &lease};
    if (stk_watch_init(&w, &config, &err) < 0) {
        exit(1);
    }
    stk_watch_start(&w, sid, 0);
    double start = cpu_s();
    for (int i = 1; i <= N; i++) {
        (void)stk_watch_sample(&w, (int64_t)i * PERIOD_MS);
        (void)usleep(PAUSE_US);
    }
    double cost = cpu_s() - start;
    stk_watch_done(&w);
    return cost;
}

static int wake(int seconds, int period_ms)
{
    char path[64];
    char text[1024];
    pid_t pid = make_task(1);
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 1;
    for (int left_ms = seconds * 1000; left_ms > 0 && n > 0; left_ms -= period_ms) {
        (void)poll(NULL, 0, left_ms < period_ms ? left_ms : period_ms);
        n = pread(fd, text, sizeof text, 0);
    }
    (void)kill(-pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    return n > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "wake") == 0) {
        return wake(atoi(argv[2]), atoi(argv[3]));
    }
    char dir[] = "/tmp/stk-sample-cost-XXXXXX";
    stk_accel *accel = NULL;
    if (mkdtemp(dir) == NULL || (argc > 1 && stk_accel_open(argv[1], &accel, NULL) < 0)) {
        return 1;
    }
    pid_t one = make_task(1);
    pid_t tree = make_task(TREE);
    double idle = cost_of_idle();
    double bare = cost_of_bare(one) - idle;
    double sample = cost_of_watch(one, accel, dir) - idle;
    double many = cost_of_watch(tree, accel, dir) - idle;
    printf("{\"idle_s\": %.5f, \"bare_s\": %.5f, \"sample_s\": %.5f, \"tree_s\": %.5f}\n", idle,
           bare, sample, many);
    (void)kill(-one, SIGKILL);
    (void)kill(-tree, SIGKILL);
    while (wait(NULL) > 0) {
    }
    stk_accel_close(accel);
    char path[80];
    (void)snprintf(path, sizeof path, "%s/samples.bin", dir);
    (void)unlink(path);
    (void)rmdir(dir);
    return 0;
}
