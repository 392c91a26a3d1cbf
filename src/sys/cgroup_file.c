#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sys/cgroup_private.h"
#include "sys/dir.h"

enum { TASK_WAIT_MS = 20, END_WAIT_MS = 2000, MAX_DEPTH = 16 };

/* --- small files --- */

int stk_cgroup_file_read(const char *dir, const char *file, char *buf, size_t size)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t n = read(fd, buf, size - 1);
    (void)close(fd);
    if (n < 0) {
        return -1;
    }
    buf[n] = '\0';
    return 0;
}

int stk_cgroup_file_write(const char *dir, const char *file, const char *text)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t n = write(fd, text, strlen(text));
    int sys = errno;
    (void)close(fd);
    errno = sys;
    return n < 0 ? -1 : 0;
}

int64_t stk_cgroup_file_number(const char *dir, const char *file)
{
    char text[64];
    if (stk_cgroup_file_read(dir, file, text, sizeof text) < 0 ||
        !isdigit((unsigned char)text[0])) {
        return -1;
    }
    return strtoll(text, NULL, 10);
}

/* The value after "key " in a file of "key value" lines, -1 if absent. */
int64_t stk_cgroup_file_field(const char *dir, const char *file, const char *key)
{
    char text[1024];
    size_t n = strlen(key);
    if (stk_cgroup_file_read(dir, file, text, sizeof text) < 0) {
        return -1;
    }
    for (char *p = text; p != NULL && *p != '\0';) {
        if (strncmp(p, key, n) == 0 && p[n] == ' ') {
            return strtoll(p + n + 1, NULL, 10);
        }
        p = strchr(p, '\n');
        p = p == NULL ? NULL : p + 1;
    }
    return -1;
}

bool stk_cgroup_file_lists(const char *dir, const char *file, const char *word)
{
    char text[1024];
    if (stk_cgroup_file_read(dir, file, text, sizeof text) < 0) {
        return false;
    }
    for (char *save = NULL, *p = strtok_r(text, " \n", &save); p != NULL;
         p = strtok_r(NULL, " \n", &save)) {
        if (strcmp(p, word) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_cgroup_file_writable(const char *dir, const char *file)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    return access(path, W_OK) == 0;
}

void stk_cgroup_pause_ms(long ms)
{
    struct timespec wait = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&wait, NULL);
}

/* --- ending and removing --- */

/* Sends SIGKILL to all members; returns true if there were none. */
static bool kill_members(const char *dir)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    FILE *f = fopen(path, "re");
    int pid;
    bool none = true;
    while (f != NULL && fscanf(f, "%d", &pid) == 1) {
        if (pid > 0 && pid != getpid()) {
            (void)kill(pid, SIGKILL);
            none = false;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return none;
}

static void end_dir(const char *dir)
{
    (void)stk_cgroup_file_write(dir, "cgroup.kill", "1"); /* v2 from Linux 5.14 */
    for (int i = 0; i < 200 && !kill_members(dir); i++) {
        stk_cgroup_pause_ms(i < 10 ? 1 : 10);
    }
}

/* Retries for a while, because the last process may still be exiting. */
static void remove_dir(const char *dir, int wait_ms)
{
    for (int i = 0; i < wait_ms && rmdir(dir) != 0 && errno == EBUSY; i++) {
        stk_cgroup_pause_ms(1);
    }
}

/* Ends the groups below `dir` first, because only an empty folder can be removed. */
static void end_below(const char *dir, bool remove, int depth)
{
    STK_DIR_AUTO folder = {0};
    int rc = STK_E_LIMIT;
    if (depth < MAX_DEPTH) {
        rc = stk_dir_read(dir, &folder, NULL);
    }
    for (uint32_t i = 0; rc == 0 && i < folder.n; i++) {
        if (stk_dir_is_folder(&folder, &folder.items[i])) {
            char path[PATH_MAX];
            if (snprintf(path, sizeof path, "%s/%s", dir, folder.items[i].name) <
                (int)sizeof path) {
                end_below(path, remove, depth + 1);
                end_dir(path);
                if (remove) {
                    remove_dir(path, END_WAIT_MS);
                }
            }
        }
    }
}

void stk_cgroup_end_members(const char *dir)
{
    end_dir(dir);
    end_below(dir, false, 0);
}

void stk_cgroup_end_tree(const char *dir)
{
    if (access(dir, F_OK) == 0) {
        end_below(dir, true, 0);
        end_dir(dir);
        remove_dir(dir, END_WAIT_MS);
    }
}

void stk_cgroup_remove_dir(const char *dir)
{
    if (rmdir(dir) != 0 && errno == EBUSY) {
        end_below(dir, true, 0);
        remove_dir(dir, TASK_WAIT_MS); /* else it goes with its parent */
    }
}
