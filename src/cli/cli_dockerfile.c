/* `stoker plan --dockerfile`: what would be built for the steps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "image/image.h"
#include "image/stack/stack.h"
#include "run/run_python.h"

typedef struct shown {
    const char *image, *docker; /* what the last Dockerfile was for */
} shown;

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Neighbours mostly share an image. */
static bool was_shown(const shown *all, uint32_t n, const stk_place *place)
{
    for (uint32_t i = 0; i < n; i++) {
        if (is_same(all[i].image, place->image) && is_same(all[i].docker, place->docker)) {
            return true;
        }
    }
    return false;
}

static int print_one(const stk_spec *spec, const stk_step *step, const stk_place *place,
                     const char *python, stk_arena *arena, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(8 << 20);
    const char *tag = NULL;
    const stk_image_recipe recipe = {.docker = place->docker,
                                     .parent = place->image,
                                     .folder = stk_spec_folder(spec),
                                     .python = python};
    int rc = stk_image_dockerfile(&recipe, arena, &text, &tag, err);
    if (rc < 0) {
        return stk_err_context(err, "step '%s'", step->name);
    }
    printf("# step '%s'\n%s", step->name, text.data);
    return 0;
}

int stk_cli_print_dockerfiles(const stk_cli *cli, const stk_spec *spec, const char *step,
                              stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *with = stk_cli_value(cli, "with");
    char venv[4096];
    stk_stack stack;
    uint32_t n = stk_spec_n_steps(spec), n_shown = 0, n_seen = 0;
    shown *all = arena == NULL ? NULL : stk_arena_array(arena, (size_t)n + 1, sizeof *all);
    const stk_json *origin = stk_json_read(arena, stk_spec_origin(spec));
    const char *python = stk_json_get_text(origin, "python");
    python =
        python != NULL ? python : stk_run_python(stk_cli_value(cli, "python"), venv, sizeof venv);
    int rc = all == NULL ? stk_err_nomem(err)
                         : stk_stack_find(stk_spec_folder(spec), stk_text_or(with, "docker"), arena,
                                          &stack, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const stk_step *s = stk_spec_step(spec, i);
        stk_place place;
        if (step != NULL && strcmp(step, s->name) != 0) {
            continue;
        }
        n_seen++;
        rc = stk_stack_place(&stack, s->name, s->settings, arena, &place, err);
        if (rc < 0 || !stk_image_builds(s->settings->docker) || was_shown(all, n_shown, &place)) {
            continue;
        }
        all[n_shown++] = (shown){place.image, place.docker};
        fputs(n_shown > 1 ? "\n" : "", stdout);
        rc = print_one(spec, s, &place, python, arena, err);
    }
    if (rc == 0 && n_seen == 0) {
        rc = stk_err_set(err, STK_E_NOT_FOUND, "there is no step '%s'", step);
    } else if (rc == 0 && n_shown == 0) {
        puts(step != NULL ? "# nothing to build: the step's image runs as it is"
                          : "# nothing to build: the steps' images run as they are");
    }
    return rc;
}
