/* `stoker build`: the images of a pipeline, made ready without running it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "run/exec/exec.h"
#include "run/run_containers.h"
#include "sys/file.h"

typedef struct building {
    stk_arena *arena;
    stk_spec *spec;
    stk_accel *accel;
    stk_capacity capacity;
    stk_plan *plan;
    stk_run_containers containers;
} building;

/* As far as a run goes before its first task, as far as images are concerned. */
static int make(const stk_cli *cli, const stk_run_options *options, building *b, stk_err *err)
{
    STK_TEXT_AUTO store = NULL;
    int rc = stk_cli_load_spec(cli, &b->spec, err);
    rc = rc < 0 ? rc : stk_run_places(b->spec, options, b->arena, &b->containers, err);
    rc = rc < 0 ? rc : stk_accel_open(NULL, &b->accel, err);
    rc = rc < 0 ? rc : stk_exec_capacity(b->accel, b->arena, &b->capacity, err);
    rc = rc < 0 ? rc : stk_plan_new(b->spec, &b->capacity, NULL, options->policy, &b->plan, err);
    rc = rc < 0 ? rc : stk_store_find(".", STK_STORE_CREATE, &store, err);
    STK_TEXT_AUTO logs = rc < 0 ? NULL : stk_file_join(store, "images");
    STK_TRY(rc);
    return stk_run_images(&b->containers, b->spec, options, logs, b->accel, b->plan, false, err);
}

static bool is_in(const building *b, uint32_t i_step, uint32_t i_want)
{
    const stk_run_containers *c = &b->containers;
    return c->places[i_step].kind == STK_PLACE_DOCKER && c->i_want[i_step] == i_want;
}

static void print_json(const building *b)
{
    STK_BUF_AUTO out = STK_BUF_INIT(64u << 20);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "pipeline", stk_spec_name(b->spec));
    stk_json_open(&out, "images", '[');
    for (uint32_t i = 0; i < b->containers.n_wants; i++) {
        const stk_image_want *w = &b->containers.wants[i];
        stk_json_open(&out, NULL, '{');
        stk_json_put_text(&out, "image", w->image);
        stk_json_put_text(&out, "id", w->id);
        stk_json_put_text(&out, "pinned", w->pinned);
        stk_json_put_bool(&out, "pulled", w->was_pulled);
        stk_json_put_bool(&out, "built", w->was_built);
        stk_json_open(&out, "steps", '[');
        for (uint32_t k = 0; k < stk_spec_n_steps(b->spec); k++) {
            if (is_in(b, k, i)) {
                stk_json_put_text(&out, NULL, stk_spec_step(b->spec, k)->name);
            }
        }
        stk_json_close(&out, ']');
        stk_json_close(&out, '}');
    }
    stk_json_close(&out, ']');
    stk_json_close(&out, '}');
    stk_buf_char(&out, '\n');
    fputs(out.failed ? "{}\n" : out.data, stdout);
}

static void print_text(const building *b)
{
    const stk_run_containers *c = &b->containers;
    for (uint32_t i = 0; i < stk_plan_n_notes(b->plan); i++) {
        fprintf(stderr, "note: %s\n", stk_plan_note(b->plan, i));
    }
    for (uint32_t k = 0; k < stk_spec_n_steps(b->spec); k++) {
        const char *step = stk_spec_step(b->spec, k)->name;
        if (c->places[k].kind != STK_PLACE_DOCKER) {
            bool here = c->places[k].kind == STK_PLACE_LOCAL;
            printf("%-20s runs on %s\n", step,
                   here ? "this machine" : stk_place_word(c->places[k].kind));
            continue;
        }
        const stk_image_want *w = &c->wants[c->i_want[k]];
        const char *done = w->was_pulled ? ", pulled" : "";
        if (w->was_built) {
            done = ", built";
        }
        printf("%-20s %.19s  %s%s\n", step, w->id,
               stk_text_or(w->pinned, stk_text_or(w->image, "its own Dockerfile")), done);
    }
}

static void say_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "stoker: %s\n", line);
}

static int run_build(stk_cli *cli)
{
    stk_err err = {0};
    stk_cli_run how;
    bool piped = stk_cli_value(cli, "spec-fd") != NULL;
    if (stk_cli_arg(cli, 0) == NULL && !piped) {
        return stk_cli_usage(cli, "which pipeline? give a pipeline.yaml or a Python file");
    }
    int rc = stk_cli_run_options(cli, &how, &err);
    if (how.options.with == NULL) {
        how.options.with = "docker";
    }
    how.options.say = how.quiet ? NULL : say_line;
    how.plan = how.build = true;
    if (rc == 0 && !piped && stk_cli_is_python(stk_cli_arg(cli, 0))) {
        return stk_cli_exec_python(cli, &how, stk_cli_arg(cli, 0), stk_cli_args(cli) + 1);
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    building b = {.arena = arena};
    rc = rc == 0 && arena == NULL ? stk_err_nomem(&err) : rc;
    rc = rc < 0 ? rc : make(cli, &how.options, &b, &err);
    if (rc == 0 && stk_cli_json(cli)) {
        print_json(&b);
    } else if (rc == 0) {
        print_text(&b);
    }
    stk_plan_free(b.plan);
    stk_accel_close(b.accel);
    stk_spec_free(b.spec);
    return rc < 0 ? stk_cli_fail(cli, &err) : 0;
}

static const stk_option options_of_build[] = {
    {"with", 0, "STACK", "the stack whose images these are (docker)", false},
    {"simulate", 0, "SPEC", "devices of a machine that isn't here (see 'stoker gpus')", false},
    {"python", 0, "EXE", "interpreter for Python files", false},
    {"quiet", 'q', NULL, "no progress", false},
    {"spec-fd", 0, "FD", "a document from an open descriptor (for front ends)", false},
    {NULL}};

const stk_command stk_cmd_build = {
    .name = "build",
    .summary = "make the images of a pipeline's steps ready without running it",
    .usage = "[options] pipeline.yaml | file.py",
    .text = "What a run does about images before its first task, and nothing else: an image that "
            "isn't here is checked in its\nregistry and pulled; where the docker settings ask for "
            "packages it is built, unless the same inputs were built before;\nwith a registry in "
            "the stack it is pushed there. A requirement that would replace the parent image's "
            "CUDA build of\ntorch, TensorFlow or JAX is refused before anything is built. The "
            "project's code is no part of an image.\n\n'stoker plan --dockerfile' shows what would "
            "be built; build logs lie in the store's folder images.",
    .options = options_of_build,
    .stop_at = stk_cli_is_program,
    .run = run_build,
};
