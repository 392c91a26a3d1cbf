/* `stoker plan --dockerfile`: the Dockerfiles that would be built for the steps. */
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "image/image.h"
#include "image/stack/stack.h"
#include "run/run_python.h"

typedef struct shown {
    const char *image, *docker; /* of a Dockerfile that was printed */
} shown;

/* Several steps mostly share an image. */
static bool was_shown(const shown *all, uint32_t n, const stk_place *place)
{
    for (uint32_t i = 0; i < n; i++) {
        if (stk_text_same(all[i].image, place->image) &&
            stk_text_same(all[i].docker, place->docker)) {
            return true;
        }
    }
    return false;
}

static int put_one(const stk_spec *spec, const stk_step *step, const stk_place *place,
                   const char *python, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *tag = NULL;
    const stk_image_recipe recipe = {.docker = place->docker,
                                     .parent = place->image,
                                     .folder = stk_spec_folder(spec),
                                     .python = python};
    stk_buf_printf(out, "%s# step '%s'\n", stk_text_when(out->len > 0, "\n"), step->name);
    if (stk_image_dockerfile(&recipe, arena, out, &tag, err) < 0) {
        return stk_err_context(err, "step '%s'", step->name);
    }
    return 0;
}

int stk_cli_put_dockerfiles(const stk_cli *cli, const stk_spec *spec, const char *only,
                            stk_buf *out, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_stack stack;
    uint32_t n = stk_spec_n_steps(spec), n_shown = 0, n_seen = 0;
    shown *all = stk_arena_array(arena, (size_t)n + 1, sizeof *all);
    const char *python = stk_run_spec_python(spec, stk_cli_value(cli, "python"), arena);
    STK_TRY(stk_err_if_null(all, err));
    STK_TRY(stk_stack_find(stk_spec_folder(spec), stk_text_or(stk_cli_value(cli, "with"), "docker"),
                           arena, &stack, err));
    for (uint32_t i = 0; i < n; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        stk_place place;
        if (only != NULL && strcmp(only, step->name) != 0) {
            continue;
        }
        n_seen++;
        STK_TRY(stk_stack_place(&stack, step->name, step->settings, arena, &place, err));
        if (stk_image_builds(step->settings->docker) && !was_shown(all, n_shown, &place)) {
            all[n_shown++] = (shown){place.image, place.docker};
            STK_TRY(put_one(spec, step, &place, python, arena, out, err));
        }
    }
    if (n_seen == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "the pipeline has no step '%s'", only);
    }
    if (n_shown == 0) {
        stk_buf_text(out, only != NULL ? "# nothing to build: the step's image runs as it is"
                                       : "# nothing to build: the steps' images run as they are");
    }
    return 0;
}
