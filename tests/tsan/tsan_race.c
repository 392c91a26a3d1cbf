/* A race on purpose, after a program was started and another process forked: `run_tests.py tsan` is
 * worth something only where ThreadSanitizer sees this one. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/spawn.h"

static int shared;

static void *add(void *arg)
{
    (void)arg;
    shared++;
    return NULL;
}

int main(void)
{
    stk_err err = {0};
    pid_t pid;
    stk_spawn s = {.argv = (const char *const[]){"/bin/true", NULL},
                   .env = (const char *const[]){NULL},
                   .stdin_fd = -1,
                   .stdout_fd = 1,
                   .stderr_fd = 2};
    if (stk_sys_spawn(&s, &pid, NULL, &err) < 0 || waitpid(pid, NULL, 0) < 0) {
        return 1;
    }
    pid = fork();
    if (pid == 0) {
        _exit(0);
    }
    pthread_t thread;
    if (pid < 0 || waitpid(pid, NULL, 0) < 0 || pthread_create(&thread, NULL, add, NULL) != 0) {
        return 1;
    }
    shared++;
    return pthread_join(thread, NULL);
}
