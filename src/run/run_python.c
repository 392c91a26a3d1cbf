/* Which Python runs the user's files and steps: the one that was named, else the one that called us
 * (python -m stoker), else that of the active virtual environment, else that of the environment
 * whose `stoker` was called, else python3. */
#include "run/run_python.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sys/file.h"

/* The path this program was called by (links not followed: a virtual environment's bin/stoker may
 * be one), into buf. */
static bool called_as(char *buf, size_t size)
{
    const char *name = program_invocation_name;
    if (strchr(name, '/') != NULL) {
        return snprintf(buf, size, "%s", name) < (int)size;
    }
    for (const char *dir = getenv("PATH"); dir != NULL && *dir != '\0';) {
        int len = (int)strcspn(dir, ":");
        if (len > 0 && snprintf(buf, size, "%.*s/%s", len, dir, name) < (int)size &&
            access(buf, X_OK) == 0) {
            return true;
        }
        dir += len + (dir[len] == ':');
    }
    return false;
}

/* Where the Python front lies relative to the folder of this binary: a source tree's build folder,
 * a wheel's installation (scripts beside lib), and beside the binary itself. */
static const char *const fronts[] = {
    "../../../python/stoker",
    "../lib/python3*/site-packages/stoker",
    "../lib/python3*/dist-packages/stoker",
    "../stoker",
    "..", /* in the package itself, as a wheel may have it */
};

const char *stk_run_front(const char *program, stk_arena *arena)
{
    char *folder = stk_arena_dup(arena, program);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;
    const char *found = NULL;
    for (size_t i = 0; slash != NULL && found == NULL && i < sizeof fronts / sizeof fronts[0];
         i++) {
        *slash = '\0';
        const char *pattern = stk_arena_printf(arena, "%s/%s/_worker", folder, fronts[i]);
        glob_t paths;
        if (pattern != NULL && glob(pattern, 0, NULL, &paths) == 0) {
            STK_TEXT_AUTO absolute = realpath(paths.gl_pathv[0], NULL);
            char *end = absolute == NULL ? NULL : strrchr(absolute, '/');
            found = end == NULL ? NULL : stk_arena_dupn(arena, absolute, (size_t)(end - absolute));
            globfree(&paths);
        }
    }
    return found;
}

const char *stk_run_python(const char *named, char *buf, size_t size)
{
    const char *venv = getenv("VIRTUAL_ENV");
    const char *caller = getenv("STOKER_PYTHON");
    if (named != NULL && *named != '\0') {
        return named;
    }
    if (caller != NULL && *caller != '\0') { /* python -m stoker */
        return caller;
    }
    if (venv != NULL && *venv != '\0' && snprintf(buf, size, "%s/bin/python", venv) < (int)size) {
        return buf;
    }
    char called[PATH_MAX];
    char *slash = called_as(called, sizeof called) ? strrchr(called, '/') : NULL;
    if (slash != NULL) {
        char mark[PATH_MAX + 32];
        *slash = '\0';
        (void)snprintf(mark, sizeof mark, "%s/../pyvenv.cfg", called);
        if (access(mark, F_OK) == 0 && snprintf(buf, size, "%s/python", called) < (int)size &&
            access(buf, X_OK) == 0) {
            return buf;
        }
    }
    return "python3";
}
