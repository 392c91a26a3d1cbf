/* `stoker build`: makes the images of a pipeline ready without running it. */
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "cli/cli_words.h"
#include "host/fit/fit.h"
#include "run/run_plan.h"
#include "sys/file.h"

/* Does what a run does about images before its first task. */
static int make_images(stk_run_plan *b, const stk_run_options *options, stk_err *err)
{
    STK_TEXT_AUTO store = NULL;
    STK_TRY(stk_run_places(b->spec, options, b->arena, &b->containers, err));
    STK_TRY(stk_accel_open(NULL, &b->accel, err));
    STK_TRY(stk_fit_capacity(b->accel, "this machine", b->arena, &b->capacity, err));
    STK_TRY(stk_plan_new(b->spec, &b->capacity, NULL, options->policy, &b->plan, err));
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &store, err));
    STK_TEXT_AUTO logs = stk_file_join(store, "images");
    return stk_run_images(&b->containers, b->spec, options, logs, b->accel, b->plan, false, err);
}

static bool is_in(const stk_run_plan *b, uint32_t i_step, uint32_t i_want)
{
    const stk_run_containers *c = &b->containers;
    return c->places[i_step].kind == STK_PLACE_DOCKER && c->i_want[i_step] == i_want;
}

static void put_images(const stk_run_plan *b, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "pipeline", stk_spec_name(b->spec));
    stk_json_open(out, "images", '[');
    for (uint32_t i = 0; i < b->containers.n_wants; i++) {
        const stk_image_want *w = &b->containers.wants[i];
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "image", w->image);
        stk_json_put_text(out, "id", w->id);
        stk_json_put_text(out, "pinned", w->pinned);
        stk_json_put_bool(out, "pulled", w->was_pulled);
        stk_json_put_bool(out, "built", w->was_built);
        stk_json_open(out, "steps", '[');
        for (uint32_t k = 0; k < stk_spec_n_steps(b->spec); k++) {
            if (is_in(b, k, i)) {
                stk_json_put_text(out, NULL, stk_spec_step(b->spec, k)->name);
            }
        }
        stk_json_close(out, ']');
        stk_json_close(out, '}');
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
}

static void put_step(const stk_run_plan *b, uint32_t i, stk_buf *out)
{
    const stk_run_containers *c = &b->containers;
    const char *step = stk_spec_step(b->spec, i)->name;
    if (c->places[i].kind != STK_PLACE_DOCKER) {
        bool here = c->places[i].kind == STK_PLACE_LOCAL;
        stk_buf_printf(out, "%-20s runs on %s\n", step,
                       here ? "this machine" : stk_place_word(c->places[i].kind));
        return;
    }
    const stk_image_want *w = &c->wants[c->i_want[i]];
    const char *done = stk_text_when(w->was_pulled, ", pulled");
    if (w->was_built) {
        done = ", built";
    }
    stk_buf_printf(out, "%-20s %.19s  %s%s\n", step, w->id,
                   stk_text_or(w->pinned, stk_text_or(w->image, "its own Dockerfile")), done);
}

static int run_build(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    stk_cli_run how;
    bool piped = stk_cli_value(cli, "spec-fd") != NULL;
    if (stk_cli_arg(cli, 0) == NULL && !piped) {
        return stk_cli_usage(cli, err,
                             "a pipeline is missing: name a pipeline.yaml or a Python file");
    }
    STK_TRY(stk_cli_run_options(cli, &how, err));
    how.options.with = stk_text_or(how.options.with, "docker");
    how.plan = how.build = true;
    if (!piped && stk_cli_is_python(stk_cli_arg(cli, 0))) {
        STK_TRY(stk_cli_check_words(cli, how.quiet, err));
        return stk_cli_exec_python(cli, &how, stk_cli_arg(cli, 0), stk_cli_args(cli) + 1, err);
    }
    STK_SPEC_AUTO spec = NULL;
    STK_TRY(stk_cli_load_spec(cli, &spec, err));
    STK_RUN_PLAN_AUTO b = {.spec = spec, .arena = stk_arena_new(0)};
    STK_TRY(stk_err_if_null(b.arena, err));
    STK_TRY(make_images(&b, &how.options, err));
    if (stk_cli_json(cli)) {
        put_images(&b, out);
        return 0;
    }
    for (uint32_t i = 0; i < stk_plan_n_notes(b.plan); i++) {
        fprintf(stderr, "note: %s\n", stk_plan_note(b.plan, i));
    }
    for (uint32_t i = 0; i < stk_spec_n_steps(b.spec); i++) {
        put_step(&b, i, out);
    }
    return 0;
}

static const stk_option options_of_build[] = {
    {"with", 0, "STACK", "the stack whose images these are (docker)"},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')"},
    {"python", 0, "EXE", "interpreter for Python files"},
    {"quiet", 'q', NULL, "no progress"},
    {"spec-fd", 0, "FD", "a document from an open descriptor (for front ends)"},
    {NULL}};

const stk_command stk_cmd_build = {
    .name = "build",
    .summary = "make the images of a pipeline's steps ready without running it",
    .usage = "[options] pipeline.yaml | file.py",
    .text = "Does only what a run does about images before its first task. An image that isn't "
            "here is checked in its\nregistry and pulled. If the docker settings ask for packages, "
            "an image is built, unless the same inputs were built\nbefore, and pushed to the "
            "stack's registry if it has one. A requirement that would replace the parent image's "
            "CUDA\nbuild of torch, TensorFlow or JAX is refused before anything is built. Images "
            "don't contain the project's code.\n\n'stoker plan --dockerfile' shows what would be "
            "built. Build logs are in the store's folder images.",
    .options = options_of_build,
    .words_behind = stk_cli_words_of_file,
    .max_args = -1,
    .run = run_build,
};
