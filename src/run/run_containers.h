/* run_containers: which steps of a run are in containers, and what these need before the first
 * task: the image, the project's code, a Python front. What `run`, `resume` and `plan` share. */
#ifndef STK_RUN_CONTAINERS_H
#define STK_RUN_CONTAINERS_H

#include "image/contain/contain.h"
#include "image/image.h"
#include "image/stack/stack.h"
#include "run/exec/exec.h"
#include "run/run.h"
#include "store/view/view.h"

typedef struct stk_run_containers {
    stk_arena *arena;    /* the caller's */
    const char *program; /* ours */
    stk_stack stack;
    stk_place *places;     /* by step */
    uint32_t n;            /* steps in containers */
    uint32_t n_kept;       /* steps on this machine itself that have docker settings all the same */
    stk_engine engine;     /* known once the images are */
    stk_image_want *wants; /* one for each different image */
    uint32_t n_wants;
    uint32_t *i_want; /* by step */
    const char **ids, **pins, **paths;
    stk_exec_containers exec;
} stk_run_containers;

/* Where each step runs, by the stack that the options name; `arena` is kept. Errors: those of
 * stk_stack_find and stk_stack_place, with the step's place in the document. */
int stk_run_places(const stk_spec *spec, const stk_run_options *options, stk_arena *arena,
                   stk_run_containers *ret, stk_err *err);
/* Finds the container engine and makes the images ready (here, pulled or built, checked): their ids
 * go into the plan's keys, notes to the plan. `logs`: folder for what builds say. `soft`: nothing
 * is pulled or built, and what isn't here is a note (`stoker plan`). */
int stk_run_images(stk_run_containers *c, const stk_spec *spec, const stk_run_options *options,
                   const char *logs, stk_accel *accel, stk_plan *plan, bool soft, stk_err *err);
/* Packs the project; what was left out of it as private is a note of the plan (once). */
int stk_run_package(stk_store *store, const char *root, stk_plan *plan, stk_artifact *ret,
                    stk_err *err);
/* That note for a plan, where some step's code travels: to a container, an image or another
 * machine. A project that no run would take is a note, too. */
int stk_run_private_note(const stk_run_containers *c, const stk_spec *spec, const char *store,
                         stk_plan *plan, stk_err *err);
/* Packs the project and lays it out for this run, and ends containers of an engine that died in it;
 * exec's half is whole then. */
int stk_run_code(stk_run_containers *c, const stk_spec *spec, stk_plan *plan, stk_store *store,
                 const char *run, bool resumed, stk_err *err);
/* Says in `err` where the step stands in the user's document; returns its code. */
int stk_run_at_step(const stk_spec *spec, const stk_step *step, stk_err *err);
/* A variable's value in a NULL-terminated environment (or NULL), or NULL. */
const char *stk_run_env_value(const char *const *env, const char *name);
/* Warnings and errors become notes of the plan. */
int stk_run_note_findings(const stk_findings *findings, stk_plan *plan, stk_err *err);
/* Does the step's program run as a user that is named? That one is to read the code as well. */
bool stk_run_has_user(const stk_place *place);
/* What is said of a step's container that its program sees, besides the image: in a fixed order, as
 * text; NULL: nothing is. */
int stk_run_how_it_runs(const stk_place *place, stk_arena *arena, const char **ret, stk_err *err);
/* The user's Python file that began the pipeline; NULL: none did. */
const char *stk_run_main_file(const stk_spec *spec, stk_arena *arena);
/* STK_E_SPEC: a function that a fresh interpreter can't find. */
int stk_run_check_python(const stk_spec *spec, const stk_step *step, const char *main_file,
                         stk_err *err);
/* The project's folder; NULL: out of memory. And whether it may be put over what an image has. */
const char *stk_run_project(const stk_spec *spec, const char *main_file, stk_arena *arena);
int stk_run_check_project(const char *root, stk_err *err);
/* At a run's end: removes what an attempt left whose `stoker contain` was killed before its
 * container had begun. What can't be removed stays for `stoker store gc`. */
void stk_run_end_containers(const stk_run_containers *c, const stk_view *view);
/* Removes containers of this store whose run has no engine; *ret_n of them. No container engine is
 * no error. */
int stk_run_drop_containers(stk_store *store, bool dry_run, uint32_t *ret_n, stk_err *err);

#endif
