/* A container's memory group, read on the host: not every engine reports an OOM kill or the
 * peak. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/contain/contain_private.h"
#include "sys/cgroup.h"

bool stk_contain_cgroup(pid_t pid, const char *id, char *ret_dir, size_t size)
{
    static const char *const trees[] = {"memory", ""}; /* v1, v2 */
    for (size_t i = 0; i < sizeof trees / sizeof *trees && pid > 0; i++) {
        if (stk_cgroup_of(pid, trees[i], ret_dir, size) == 0 && strstr(ret_dir, id) != NULL) {
            return true;
        }
    }
    return false;
}

static bool read_in(const char *dir, const char *name, char *buf, size_t size)
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    size_t n = fread(buf, 1, size - 1, f);
    bool ok = ferror(f) == 0;
    (void)fclose(f);
    buf[n] = '\0';
    return ok;
}

bool stk_contain_oom(const char *dir, bool *ret_known)
{
    static const char *const files[] = {"memory.events", "memory.oom_control"}; /* v2, v1 */
    char text[1024];
    *ret_known = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!read_in(dir, files[i], text, sizeof text)) {
            continue;
        }
        const char *line = strstr(text, "oom_kill ");
        if (line != NULL) {
            *ret_known = true;
            return strtoll(line + strlen("oom_kill "), NULL, 10) > 0;
        }
    }
    return false;
}

int64_t stk_contain_peak(const char *dir)
{
    static const char *const files[] = {"memory.peak", "memory.max_usage_in_bytes"};
    char text[64];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (read_in(dir, files[i], text, sizeof text)) {
            return strtoll(text, NULL, 10);
        }
    }
    return -1;
}
