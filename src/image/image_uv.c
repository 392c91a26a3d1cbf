/* A parent image without pip: uv of this machine installs into it, because uv needs nothing of the
 * image but its interpreter. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_recipe.h"

/* The setting with uv as its installer, whatever it names. NULL: no memory. */
static const char *with_uv(const char *docker, stk_arena *arena)
{
    const stk_json *known = stk_json_read(arena, docker);
    stk_json map = stk_json_of_map();
    if (!stk_json_is_map(known) || !stk_json_update(arena, &map, known) ||
        stk_json_set(arena, &map, "python_package_installer", stk_json_of_text("uv")) == NULL) {
        return NULL;
    }
    return stk_json_dump_in(&map, arena);
}

/* `folder` has n bytes. */
static const char *uv_in(const char *folder, size_t n, stk_arena *arena)
{
    char path[PATH_MAX];
    int len = snprintf(path, sizeof path, "%.*s/uv", (int)n, folder);
    bool found = n > 0 && *folder == '/' && len < (int)sizeof path && access(path, X_OK) == 0;
    if (!found) {
        return NULL;
    }
    return stk_arena_dup(arena, path);
}

static const char *find_uv(const char *python, stk_arena *arena)
{
    const char *slash = python == NULL ? NULL : strrchr(python, '/');
    const char *found = slash == NULL ? NULL : uv_in(python, (size_t)(slash - python), arena);
    for (const char *at = getenv("PATH"); at != NULL && found == NULL;) {
        size_t n = strcspn(at, ":");
        found = uv_in(at, n, arena);
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    return found;
}

int stk_image_take_uv(stk_image_recipe *recipe, const stk_err *why, stk_arena *arena, stk_err *err)
{
    recipe->uv = find_uv(recipe->python, arena);
    recipe->docker = with_uv(recipe->docker, arena);
    if (recipe->uv != NULL) {
        return stk_err_need(recipe->docker, "for a build", err);
    }
    stk_err_set(err, why->code,
                "parent image %s has no pip to install the requirements with, and this machine has "
                "no uv",
                stk_text_or(recipe->parent, "of the Dockerfile"));
    stk_err_hint(err,
                 "install uv here (pip install uv), which then installs into the image; or use "
                 "an image with pip");
    return why->code;
}
