/* Computes an interpreter's sys.path without starting it, as CPython's getpath and site.py do. */
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "host/preflight/preflight_private.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { MAX_PATHS = 256, MAX_PTH_BYTES = 1 << 20, MAX_PTH_FILES = 512 };

typedef struct pather {
    stk_arena *arena;
    const char **paths; /* MAX_PATHS + 1 */
    uint32_t n;
    char version[16]; /* "3.11" */
    bool failed;      /* out of memory */
} pather;

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(path, R_OK | X_OK) == 0;
}

/* Adds a folder; true: it exists and is new in the path. */
static bool add_folder(pather *p, const char *path)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (strcmp(p->paths[i], path) == 0) {
            return false;
        }
    }
    if (p->n >= MAX_PATHS || !is_folder(path)) {
        return false;
    }
    const char *copy = stk_arena_dup(p->arena, path);
    p->failed = p->failed || copy == NULL;
    if (copy != NULL) {
        p->paths[p->n++] = copy;
    }
    return copy != NULL;
}

/* The lines of a .pth file are folders relative to the file's folder; lines that begin with
 * "import" are code, which we skip. */
static void read_pth(pather *p, const char *folder, const char *name)
{
    STK_TEXT_AUTO path = stk_file_join(folder, name);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (path == NULL || stk_file_read(path, MAX_PTH_BYTES, &text, &len, NULL) < 0) {
        return;
    }
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\r\n")) != NULL;) {
        for (size_t n = strlen(line); n > 0 && isspace((unsigned char)line[n - 1]); n--) {
            line[n - 1] = '\0';
        }
        if (*line == '\0' || *line == '#' || strncmp(line, "import ", 7) == 0 ||
            strncmp(line, "import\t", 7) == 0) {
            continue;
        }
        if (*line == '/') {
            (void)add_folder(p, line);
            continue;
        }
        STK_TEXT_AUTO below = stk_file_join(folder, line);
        if (below != NULL) {
            (void)add_folder(p, below);
        }
    }
}

static void add_site(pather *p, const char *folder)
{
    if (!add_folder(p, folder)) {
        return;
    }
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read(folder, &dir, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0, n = 0; i < dir.n && n < MAX_PTH_FILES; i++) {
        const char *name = dir.items[i].name;
        size_t len = strlen(name);
        if (len > 4 && name[0] != '.' && strcmp(name + len - 4, ".pth") == 0) {
            read_pth(p, folder, name);
            n++;
        }
    }
}

/* --- which installation --- */

/* Copies the value of `key` in pyvenv.cfg into ret; false: no such key. */
static bool setting(const char *text, const char *key, char *ret, size_t size)
{
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t n = strspn(line, " \t");
        size_t end = n + strcspn(line + n, " \t=\n");
        const char *eq = line + end + strspn(line + end, " \t");
        if (end - n == strlen(key) && strncasecmp(line + n, key, end - n) == 0 && *eq == '=') {
            eq += 1 + strspn(eq + 1, " \t");
            (void)snprintf(ret, size, "%.*s", (int)strcspn(eq, "\r\n"), eq);
            return true;
        }
    }
    return false;
}

static bool has_library(const char *prefix, const char *version)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/lib/python%s", prefix, version);
    return *version != '\0' && is_folder(path);
}

/* "3.11" from "python3.11" or "3.11.7"; "" if there is no such number. */
static void short_version(const char *text, char ret[16])
{
    unsigned major, minor;
    ret[0] = '\0';
    if (sscanf(text, "%u.%u", &major, &minor) == 2) {
        (void)snprintf(ret, 16, "%u.%u", major, minor);
    }
}

/* The version of the newest lib/python3.N below prefix. */
static void newest_library(const char *prefix, char ret[16])
{
    char path[PATH_MAX + 64];
    unsigned best = 0;
    (void)snprintf(path, sizeof path, "%s/lib", prefix);
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read(path, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        unsigned minor;
        char more;
        if (sscanf(dir.items[i].name, "python3.%u%c", &minor, &more) == 1 && minor > best) {
            best = minor;
        }
    }
    ret[0] = '\0';
    if (best > 0) {
        (void)snprintf(ret, 16, "3.%u", best);
    }
}

/* Adds the library folders of an installation: site-packages, Debian's dist-packages. */
static void add_prefix(pather *p, const char *prefix)
{
    static const struct {
        const char *before;
        bool versioned;
        const char *after;
    } places[] = {{"lib/python", true, "/site-packages"},
                  {"lib64/python", true, "/site-packages"},
                  {"local/lib/python", true, "/dist-packages"},
                  {"lib/python3", false, "/dist-packages"},
                  {"lib/python", true, "/dist-packages"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char path[PATH_MAX + 128];
        const char *version = places[i].versioned ? p->version : "";
        (void)snprintf(path, sizeof path, "%s/%s%s%s", prefix, places[i].before, version,
                       places[i].after);
        add_site(p, path);
    }
}

static void add_user(pather *p)
{
    const char *base = stk_text_if_any(getenv("PYTHONUSERBASE")), *home = getenv("HOME");
    char path[PATH_MAX + 64];
    if (stk_text_if_any(getenv("PYTHONNOUSERSITE")) != NULL || (base == NULL && home == NULL)) {
        return;
    }
    (void)snprintf(path, sizeof path, "%s%s/lib/python%s/site-packages", stk_text_or(base, home),
                   stk_text_when(base == NULL, "/.local"), p->version);
    add_site(p, path);
}

bool stk_preflight_next_folder(const char **list, char ret[PATH_MAX])
{
    while (*list != NULL && **list != '\0') {
        size_t len = strcspn(*list, ":");
        int n = snprintf(ret, PATH_MAX, "%.*s", (int)len, *list);
        *list += len + ((*list)[len] == ':');
        if (n > 0 && n < PATH_MAX) {
            return true;
        }
    }
    return false;
}

static void add_pythonpath(pather *p)
{
    char folder[PATH_MAX];
    for (const char *list = getenv("PYTHONPATH"); stk_preflight_next_folder(&list, folder);) {
        STK_TEXT_AUTO absolute = stk_file_absolute(folder);
        if (absolute != NULL) {
            (void)add_folder(p, absolute);
        }
    }
}

/* The path of an executable as it would be called, with symbolic links unresolved; false: not
 * found. */
static bool find_executable(const char *word, char ret[PATH_MAX])
{
    if (strchr(word, '/') != NULL) {
        STK_TEXT_AUTO absolute = stk_file_absolute(word);
        return absolute != NULL && access(absolute, X_OK) == 0 &&
               snprintf(ret, PATH_MAX, "%s", absolute) < PATH_MAX;
    }
    char folder[PATH_MAX];
    for (const char *list = getenv("PATH"); stk_preflight_next_folder(&list, folder);) {
        if (snprintf(ret, PATH_MAX, "%s/%s", folder, word) < PATH_MAX && access(ret, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static void cut_last(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

/* Adds the paths of a virtual environment, which has pyvenv.cfg beside the executable or one level
 * up. False: it isn't one. */
static bool add_venv(pather *p, const char *exe)
{
    char prefix[PATH_MAX], config[PATH_MAX + 16], value[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    (void)snprintf(prefix, sizeof prefix, "%s", exe);
    cut_last(prefix);
    for (int up = 0; up < 2 && text == NULL; up++) {
        (void)snprintf(config, sizeof config, "%s/pyvenv.cfg", prefix);
        if (stk_file_read(config, 1 << 16, &text, &len, NULL) < 0 && up == 0) {
            cut_last(prefix);
        }
    }
    if (text == NULL) {
        return false;
    }
    if (setting(text, "version", value, sizeof value) ||
        setting(text, "version_info", value, sizeof value)) {
        short_version(value, p->version);
    }
    if (!has_library(prefix, p->version)) {
        newest_library(prefix, p->version);
    }
    bool with_system = setting(text, "include-system-site-packages", value, sizeof value) &&
                       strcasecmp(value, "true") == 0;
    add_prefix(p, prefix);
    if (with_system) {
        add_user(p);
        if (setting(text, "home", value, sizeof value)) {
            cut_last(value);
            add_prefix(p, value);
        }
    }
    return true;
}

/* Adds the installation of the resolved executable: the folder above it that has the library. */
static bool add_installation(pather *p, const char *exe)
{
    char real[PATH_MAX], prefix[PATH_MAX];
    if (realpath(exe, real) == NULL) {
        return false;
    }
    const char *name = stk_text_behind(real, '/');
    if (strncmp(name, "python", 6) == 0) {
        short_version(name + 6, p->version);
    }
    (void)snprintf(prefix, sizeof prefix, "%s", real);
    cut_last(prefix);
    cut_last(prefix);
    if (!has_library(prefix, p->version)) {
        newest_library(prefix, p->version);
    }
    if (!has_library(prefix, p->version)) {
        return false;
    }
    add_user(p);
    if (strcmp(prefix, "/usr") == 0) {
        add_prefix(p, "/usr/local");
    }
    add_prefix(p, prefix);
    return true;
}

int stk_preflight_environment(const char *python, stk_arena *arena, stk_environment *ret,
                              stk_err *err)
{
    pather p = {.arena = arena};
    char exe[PATH_MAX];
    p.paths = stk_arena_array(arena, MAX_PATHS + 1, sizeof *p.paths);
    if (p.paths == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the path of %s", python);
    }
    if (!find_executable(python, exe)) {
        return stk_err_set(err, STK_E_NOT_FOUND, "there is no interpreter %s", python);
    }
    add_pythonpath(&p);
    if (!add_venv(&p, exe) && !add_installation(&p, exe)) {
        return stk_err_set(err, STK_E_NOT_FOUND,
                           "%s has no Python library beside it: it is a script that starts another "
                           "interpreter, which can't be found from outside",
                           exe);
    }
    *ret = (stk_environment){.python = stk_arena_dup(arena, exe),
                             .version = stk_arena_dup(arena, stk_text_if_any(p.version)),
                             .sys_path = p.paths};
    if (p.failed || ret->python == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the path of %s", python);
    }
    return 0;
}

const char *stk_preflight_package(const char *const *sys_path, const char *package,
                                  stk_arena *arena)
{
    for (uint32_t i = 0; sys_path[i] != NULL; i++) {
        char path[PATH_MAX + 160];
        (void)snprintf(path, sizeof path, "%s/%s/__init__.py", sys_path[i], package);
        if (access(path, R_OK) == 0) {
            return stk_arena_printf(arena, "%s/%s", sys_path[i], package);
        }
    }
    return NULL;
}
