/* Finds control groups from /proc/PID/cgroup and the mount points of the trees. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "sys/cgroup.h"

static bool has_word(const char *list, size_t len, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p < list + len;) {
        size_t part = strcspn(p, ",");
        if (part > (size_t)(list + len - p)) {
            part = (size_t)(list + len - p);
        }
        if (part == n && memcmp(p, word, n) == 0) {
            return true;
        }
        p += part + 1;
    }
    return false;
}

/* The path of a process in the tree, from /proc/PID/cgroup: "4:cpu,cpuacct:/user.slice"; v2:
 * "0::/…". */
static bool group_path(const char *process, const char *controller, char *ret, size_t size)
{
    char line[PATH_MAX + 256];
    (void)snprintf(line, sizeof line, "/proc/%s/cgroup", process);
    FILE *f = fopen(line, "re");
    bool found = false;
    while (f != NULL && !found && fgets(line, (int)sizeof line, f) != NULL) {
        char *list = strchr(line, ':');
        char *path = NULL;
        if (list != NULL) {
            path = strchr(list + 1, ':');
        }
        if (path == NULL) {
            continue;
        }
        list++;
        size_t n = (size_t)(path - list);
        if (controller[0] == '\0' ? n == 0 : has_word(list, n, controller)) {
            path[strcspn(path, "\n")] = '\0';
            found = snprintf(ret, size, "%s", path + 1) < (int)size;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

/* Finds where the tree is mounted, and which of its folders the mount shows. */
static bool find_mount(const char *controller, char *ret_point, char *ret_root)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[3 * PATH_MAX];
    bool found = false;
    while (f != NULL && !found && fgets(line, (int)sizeof line, f) != NULL) {
        char type[64];
        char options[512];
        char *rest = strstr(line, " - ");
        if (rest == NULL || sscanf(rest, " - %63s %*s %511s", type, options) != 2 ||
            sscanf(line, "%*d %*d %*s %4095s %4095s", ret_root, ret_point) != 2) {
            continue;
        }
        if (controller[0] == '\0') {
            found = strcmp(type, "cgroup2") == 0;
        } else {
            found = strcmp(type, "cgroup") == 0 && has_word(options, strlen(options), controller);
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

/* The folder of a process's group; false if the mount doesn't show it. */
static bool folder_of(const char *process, const char *controller, char *point, char *ret_dir,
                      size_t size)
{
    char root[PATH_MAX];
    char path[PATH_MAX];
    point[0] = '\0';
    if (!find_mount(controller, point, root) ||
        !group_path(process, controller, path, sizeof path)) {
        point[0] = '\0';
        return false;
    }
    const char *below = path; /* a container sees its group as the mount's root */
    size_t n = strlen(root);
    if (strcmp(root, "/") != 0 && strncmp(path, root, n) == 0) {
        below = path + n;
    }
    while (*below == '/') {
        below++;
    }
    struct stat st;
    int used = snprintf(ret_dir, size, "%s%s%s", point, stk_text_when(*below != '\0', "/"), below);
    return used > 0 && (size_t)used < size && stat(ret_dir, &st) == 0;
}

int stk_cgroup_find(const char *controller, char *ret_dir, size_t size, size_t *ret_mount_len)
{
    char point[PATH_MAX];
    bool found = folder_of("self", controller, point, ret_dir, size);
    if (point[0] == '\0') {
        return STK_E_NOT_FOUND;
    }
    if (!found) {
        (void)snprintf(ret_dir, size, "%s", point);
    }
    *ret_mount_len = strlen(point);
    return 0;
}

int stk_cgroup_of(pid_t pid, const char *controller, char *ret_dir, size_t size)
{
    char point[PATH_MAX];
    char process[32];
    (void)snprintf(process, sizeof process, "%d", (int)pid);
    return folder_of(process, controller, point, ret_dir, size) ? 0 : STK_E_NOT_FOUND;
}
