/* Which libraries and device nodes a task's processes use: evidence besides the driver's
 * reports. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "host/runner/runner_private.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { MAX_LOOKED_AT = 64 }; /* processes; of a thousand workers, the first ones are typical */

static const char *const names[] = {
#define X(name, file, framework, can_use) file,
#include "tbl/libraries.def"
#undef X
};

static uint64_t match(const char *path)
{
    const char *base = stk_text_behind(path, '/');
    uint64_t found = 0;
    for (int i = 0; i < STK_LIB_N; i++) {
        if ((names[i][0] == '/' && strstr(path, names[i]) != NULL) ||
            strncmp(base, names[i], strlen(names[i])) == 0) {
            found |= (uint64_t)1 << i;
        }
    }
    return found;
}

/* A mapped file has several consecutive lines: match only the first. */
static void match_line(char *line, char *last, size_t size, uint64_t *found)
{
    char *path = strchr(line, '/');
    if (path != NULL && strcmp(path, last) != 0) {
        *found |= match(path);
        (void)snprintf(last, size, "%s", path);
    }
}

static bool read_maps(pid_t pid, uint64_t *found)
{
    char name[64], text[16384], last[PATH_MAX] = "";
    (void)snprintf(name, sizeof name, "/proc/%d/maps", (int)pid);
    STK_FD_AUTO fd = open(name, O_RDONLY | O_CLOEXEC);
    size_t kept = 0;
    ssize_t n = -1;
    bool any = false;
    while (fd >= 0 && (n = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
        any = true;
        size_t len = kept + (size_t)n;
        text[len] = '\0';
        char *line = text;
        for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            *end = '\0';
            match_line(line, last, sizeof last, found);
        }
        kept = (size_t)(text + len - line);
        if (kept >= sizeof text / 2) {
            kept = 0; /* no line is that long */
        }
        memmove(text, line, kept);
    }
    return any;
}

static void read_nodes(stk_watch *watch, pid_t pid)
{
    char name[64];
    (void)snprintf(name, sizeof name, "/proc/%d/fd", (int)pid);
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read(name, &dir, NULL) < 0) {
        return; /* ended, or another user's; retried later */
    }
    for (uint32_t k = 0; k < dir.n; k++) {
        char target[256];
        ssize_t n = readlinkat(dir.fd, dir.items[k].name, target, sizeof target - 1);
        if (n < 5 || strncmp(target, "/dev/", 5) != 0) {
            continue;
        }
        target[n] = '\0';
        for (uint32_t i = 0; i < watch->n_devices; i++) {
            watch_device *d = &watch->devices[i];
            d->opened =
                d->opened || (d->device->node != NULL && strcmp(d->device->node, target) == 0);
        }
    }
}

/* Only a process that was executed within the task shows the variables that it started with; a
 * process forked from a server shows the server's. */
static bool has_other_mask(const stk_watch *watch, pid_t pid)
{
    char marker[PATH_MAX + 32];
    if (watch->mask == NULL || watch->config.dir == NULL) {
        return false;
    }
    (void)snprintf(marker, sizeof marker, "STOKER_TASK_DIR=%s", watch->config.dir);
    return stk_proc_has_env(pid, marker) && !stk_proc_has_env(pid, watch->mask);
}

void stk_watch_look(stk_watch *watch)
{
    uint32_t n = MIN(watch->members.n, MAX_LOOKED_AT);
    for (uint32_t i = 0; watch->n_devices > 0 && i < n; i++) {
        pid_t pid = watch->members.pids[i];
        if (read_maps(pid, &watch->libraries)) {
            watch->has_looked = true;
            watch->mask_changed = watch->mask_changed || has_other_mask(watch, pid);
            read_nodes(watch, pid);
        }
    }
}

bool stk_watch_node_tells(const watch_device *d)
{
    const char *vendor = d->device->vendor;
    return d->device->node != NULL && (strcmp(vendor, "aws") == 0 || strcmp(vendor, "google") == 0);
}

bool stk_watch_look_at_nodes(stk_watch *watch)
{
    int32_t n_new = 0;
    if (stk_proc_members_find(watch->sid, &watch->members) < 0) {
        return false;
    }
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        n_new -= watch->devices[i].opened;
    }
    for (uint32_t i = 0; i < watch->members.n && i < MAX_LOOKED_AT; i++) {
        read_nodes(watch, watch->members.pids[i]);
    }
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        n_new += watch->devices[i].opened;
    }
    return n_new > 0;
}
