/* Chooses the Python for the user's files and steps: the named one, else the one that called us
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

#include "base/json.h"
#include "base/text.h"
#include "sys/file.h"

/* Copies the path by which this program was called to buf. Doesn't follow links, because a virtual
 * environment's bin/stoker may be one. */
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
    const char *slash = strrchr(stk_text_or(program, ""), '/');
    for (size_t i = 0; slash != NULL && i < sizeof fronts / sizeof fronts[0]; i++) {
        const char *pattern =
            stk_arena_printf(arena, "%.*s/%s/_worker", (int)(slash - program), program, fronts[i]);
        glob_t paths;
        if (pattern == NULL || glob(pattern, 0, NULL, &paths) != 0) {
            continue;
        }
        STK_TEXT_AUTO worker = realpath(paths.gl_pathv[0], NULL);
        globfree(&paths);
        if (worker != NULL) {
            return stk_arena_dupn(arena, worker, (size_t)(strrchr(worker, '/') - worker));
        }
    }
    return NULL;
}

int stk_run_need_front(const char *program, stk_arena *arena, const char **ret, stk_err *err)
{
    *ret = stk_run_front(program, arena);
    if (*ret != NULL) {
        return 0;
    }
    stk_err_set(err, STK_E_ENV, "Stoker's Python package is not beside %s", program);
    stk_err_hint(err, "install Stoker's wheel, or run `make build` in its source tree");
    return STK_E_ENV;
}

const char *stk_run_python(const char *named, stk_arena *arena)
{
    const char *venv = stk_text_if_any(getenv("VIRTUAL_ENV"));
    const char *caller = stk_text_if_any(getenv("STOKER_PYTHON")); /* python -m stoker */
    char called[PATH_MAX];
    named = stk_text_or(stk_text_if_any(named), caller);
    if (named == NULL && venv != NULL) {
        named = stk_arena_printf(arena, "%s/bin/python", venv);
    }
    char *slash = NULL;
    if (named == NULL && called_as(called, sizeof called)) {
        slash = strrchr(called, '/');
    }
    if (slash != NULL) {
        *slash = '\0';
        const char *mark = stk_arena_printf(arena, "%s/../pyvenv.cfg", called);
        const char *own = stk_arena_printf(arena, "%s/python", called);
        bool is_own = mark != NULL && own != NULL && access(mark, F_OK) == 0;
        named = is_own && access(own, X_OK) == 0 ? own : NULL;
    }
    return stk_text_or(named, "python3");
}

const char *stk_run_spec_python(const stk_spec *spec, const char *named, stk_arena *arena)
{
    const stk_json *origin = stk_json_read(arena, stk_spec_origin(spec));
    const char *python = stk_json_get_text(origin, "python");
    if (named == NULL && python != NULL) {
        return python;
    }
    return stk_run_python(named, arena);
}

int stk_run_import_from(const char *folder, stk_err *err)
{
    const char *before = stk_text_if_any(getenv("PYTHONPATH"));
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    if (before != NULL) {
        folder = stk_arena_printf(scratch, "%s:%s", folder, before);
    }
    if (folder == NULL || setenv("PYTHONPATH", folder, 1) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the environment");
    }
    return 0;
}
