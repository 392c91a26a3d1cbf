/* The engine's process beside a container, the parent of its first process: conmon or
 * containerd-shim. It reports to the engine; without it, ended containers aren't removed. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "image/contain/contain_private.h"
#include "sys/old.h"

/* Parses "PID (comm) S PPID"; comm may hold any character. */
static pid_t parent_of(pid_t pid, char *comm, size_t size)
{
    char path[64];
    char text[512];
    int parent = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    size_t n = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[n] = '\0';
    char *open = strchr(text, '(');
    char *close = strrchr(text, ')');
    if (open == NULL || close == NULL || sscanf(close + 1, " %*c %d", &parent) != 1) {
        return 0;
    }
    (void)snprintf(comm, size, "%.*s", (int)(close - open - 1), open + 1);
    return parent;
}

int stk_contain_monitor(pid_t runner, pid_t *ret_pid, char *comm, size_t size)
{
    char unused[64];
    pid_t pid = 0;
    int fd = -1;
    if (runner > 0) {
        pid = parent_of(runner, unused, sizeof unused);
    }
    if (pid > 1) {
        fd = stk_sys_pidfd(pid);
    }
    if (fd >= 0 && (parent_of(runner, unused, sizeof unused) != pid ||
                    parent_of(pid, comm, size) <= 0)) { /* the pid belongs to another process now */
        (void)close(fd);
        fd = -1;
    }
    *ret_pid = pid;
    return fd;
}
