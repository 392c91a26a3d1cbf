#include "host/accel/accel_sysfs.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/dir.h"

enum { ENTRIES = 4096 }; /* per folder; a large server has some thousand PCI functions */

static const char *root(void)
{
    return stk_text_or(getenv("STOKER_SYSROOT"), "");
}

static bool path_v(char *ret, size_t size, const char *fmt, va_list args)
{
    int n = snprintf(ret, size, "%s", root());
    if (n < 0 || (size_t)n >= size) {
        return false;
    }
    int more = vsnprintf(ret + n, size - (size_t)n, fmt, args);
    return more >= 0 && (size_t)more < size - (size_t)n;
}

/* Formats the caller's arguments into `path`. */
#define PATH(path, fmt)                                                                            \
    char path[PATH_MAX];                                                                           \
    va_list args;                                                                                  \
    va_start(args, fmt);                                                                           \
    bool fits = path_v(path, sizeof path, fmt, args);                                              \
    va_end(args)

bool stk_sysfs_path(char *ret, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    bool fits = path_v(ret, size, fmt, args);
    va_end(args);
    return fits;
}

bool stk_sysfs_exists(const char *fmt, ...)
{
    PATH(path, fmt);
    return fits && access(path, F_OK) == 0;
}

static bool read_line(const char *path, char *ret, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool read = fgets(ret, (int)size, file) != NULL;
    (void)fclose(file);
    if (!read) {
        return false;
    }
    size_t blanks = strspn(ret, " \t");
    size_t len = strlen(ret + blanks);
    memmove(ret, ret + blanks, len + 1);
    while (len > 0 && strchr(" \t\r\n", ret[len - 1]) != NULL) {
        ret[--len] = '\0';
    }
    return true;
}

bool stk_sysfs_text(char *ret, size_t size, const char *fmt, ...)
{
    PATH(path, fmt);
    return fits && read_line(path, ret, size);
}

int64_t stk_sysfs_number(const char *fmt, ...)
{
    PATH(path, fmt);
    char text[64];
    if (!fits || !read_line(path, text, sizeof text)) {
        return -1;
    }
    char *end;
    errno = 0;
    int base = 10; /* never octal: "010" is ten */
    if (strncmp(text, "0x", 2) == 0) {
        base = 16;
    }
    long long number = strtoll(text, &end, base);
    return end != text && errno == 0 && number >= 0 ? number : -1;
}

static int by_number(const void *a, const void *b)
{
    return strverscmp(*(const char *const *)a, *(const char *const *)b);
}

uint32_t stk_sysfs_list(stk_arena *arena, const char *dir, const char *prefix,
                        const char *const **ret_names)
{
    char path[PATH_MAX];
    const char **names = stk_arena_array(arena, ENTRIES, sizeof *names);
    *ret_names = names;
    STK_DIR_AUTO folder = {0};
    if (names == NULL || !stk_sysfs_path(path, sizeof path, "%s", dir) ||
        stk_dir_read(path, &folder, NULL) < 0) {
        return 0;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; n < ENTRIES && i < folder.n; i++) {
        const char *name = folder.items[i].name;
        if (name[0] != '.' && strncmp(name, prefix, strlen(prefix)) == 0) {
            names[n] = stk_arena_dup(arena, name);
            n += names[n] != NULL;
        }
    }
    qsort(names, n, sizeof *names, by_number);
    return n;
}

bool stk_sysfs_link(char *ret, size_t size, const char *fmt, ...)
{
    PATH(path, fmt);
    char target[PATH_MAX];
    if (!fits) {
        return false;
    }
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0) {
        return false;
    }
    target[n] = '\0';
    int len = snprintf(ret, size, "%s", stk_text_behind(target, '/'));
    return len > 0 && (size_t)len < size;
}

bool stk_pci_name(const char *address, char ret[static 16])
{
    unsigned domain, bus, device, function;
    if (address == NULL || sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) {
        return false;
    }
    int n = snprintf(ret, 16, "%04x:%02x:%02x.%x", domain, bus & 0xff, device & 0x1f, function & 7);
    return n > 0 && n < 16;
}

void stk_pci_place(stk_arena *arena, const char *address, int32_t *ret_numa, const char **ret_cpus)
{
    char name[16], cpus[1024];
    *ret_numa = -1;
    *ret_cpus = NULL;
    if (!stk_pci_name(address, name)) {
        return;
    }
    int64_t node = stk_sysfs_number("/sys/bus/pci/devices/%s/numa_node", name);
    *ret_numa = node <= INT32_MAX ? (int32_t)node : -1; /* the kernel, too, uses -1 for unknown */
    if (stk_sysfs_text(cpus, sizeof cpus, "/sys/bus/pci/devices/%s/local_cpulist", name) &&
        cpus[0] != '\0') {
        *ret_cpus = stk_arena_dup(arena, cpus);
    }
}

/* "…/devices/pci0000:00/0000:00:01.0/0000:01:00.0": the path from the host bridge to the device. */
static bool way(const char *address, char ret[static PATH_MAX])
{
    char name[16], path[PATH_MAX];
    if (!stk_pci_name(address, name) ||
        !stk_sysfs_path(path, sizeof path, "/sys/bus/pci/devices/%s", name) ||
        realpath(path, ret) == NULL) {
        return false;
    }
    const char *bridge = strstr(ret, "/pci");
    if (bridge == NULL) {
        return false;
    }
    memmove(ret, bridge + 1, strlen(bridge));
    return true;
}

stk_closeness stk_pci_link(const char *address, const char *other)
{
    char a[PATH_MAX], b[PATH_MAX];
    if (!way(address, a) || !way(other, b)) {
        return STK_LINK_UNKNOWN;
    }
    uint32_t n_shared = 0; /* common leading components: host bridge, root port, switch … */
    for (size_t i = 0; a[i] == b[i] && a[i] != '\0'; i++) {
        n_shared += a[i + 1] == '/' && b[i + 1] == '/';
    }
    if (n_shared >= 2) {
        return STK_LINK_SWITCH;
    }
    return n_shared == 1 ? STK_LINK_HOST : STK_LINK_UNKNOWN;
}

bool stk_in_container(void)
{
    struct statfs fs;
    return stk_sysfs_exists("/.dockerenv") || stk_sysfs_exists("/run/.containerenv") ||
           getenv("container") != NULL || getenv("KUBERNETES_SERVICE_HOST") != NULL ||
           /* Other engines are recognizable only by their image's overlay file system. */
           (*root() == '\0' && statfs("/", &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC);
}
