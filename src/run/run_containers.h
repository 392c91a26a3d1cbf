/* run_containers: finds the steps of a run that run in containers and prepares these before the
 * first task: image, project code, Python front. For `run`, `resume` and `plan`. */
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
    const char *program; /* path of this program */
    stk_stack stack;
    stk_place *places;     /* by step */
    uint32_t n;            /* steps in containers */
    uint32_t n_kept;       /* steps with docker settings that run on the machine itself */
    stk_engine engine;     /* set with the images */
    stk_image_want *wants; /* one for each different image */
    uint32_t n_wants;
    uint32_t *i_want; /* by step */
    const char **ids, **pins, **paths;
    stk_exec_containers exec;
} stk_run_containers;

/* Finds where each step runs, by the stack that the options name. Keeps `arena`. Errors: those of
 * stk_stack_find and stk_stack_place, with the step's line in the document. */
int stk_run_places(const stk_spec *spec, const stk_run_options *options, stk_arena *arena,
                   stk_run_containers *ret, stk_err *err);
/* Finds the container engine and prepares the images: pulls or builds the ones that aren't here,
 * and checks all. Their ids go into the plan's keys, notes to the plan. `logs`: folder for build
 * logs. `soft` (`stoker plan`): pulls and builds nothing; an image that isn't here becomes a note.
 */
int stk_run_images(stk_run_containers *c, const stk_spec *spec, const stk_run_options *options,
                   const char *logs, stk_accel *accel, stk_plan *plan, bool soft, stk_err *err);
/* After stk_run_images, for a run and its plan, not for a build: checks that this machine has the
 * folders and devices that containers get (run_container_host.c). Without an engine: does nothing.
 * STK_E_NOT_FOUND, STK_E_RESOURCES: one is missing. */
int stk_run_check_host(const stk_run_containers *c, const stk_spec *spec, const stk_accel *accel,
                       const stk_plan *plan, stk_err *err);
/* Packs the project. Private files that it leaves out become one note of the plan. */
int stk_run_package(stk_store *store, const stk_spec *spec, const char *root, stk_plan *plan,
                    stk_artifact *ret, stk_err *err);
/* The files that are the project's code, relative to `root`, NULL-terminated; *ret NULL: all of the
 * folder are. In a user's home folder these are a program and what it imports, or the files that
 * commands name. */
int stk_run_only(const stk_spec *spec, const char *root, stk_arena *arena, const char *const **ret,
                 stk_err *err);
/* Adds that note to a plan if a step's code goes to a container, an image or another machine. A
 * project that a run would refuse is a note, too. */
int stk_run_private_note(const stk_run_containers *c, const stk_spec *spec, const char *store,
                         stk_plan *plan, stk_err *err);
/* Packs the project, unpacks it for this run, and ends containers of a dead engine of this run.
 * This completes the part that exec reads. */
int stk_run_code(stk_run_containers *c, const stk_spec *spec, stk_plan *plan, stk_store *store,
                 const char *run, bool resumed, stk_err *err);
/* Adds the step's line in the user's document to `err`; returns err's code. */
int stk_run_at_step(const stk_spec *spec, const stk_step *step, stk_err *err);
/* A variable's value in a NULL-terminated environment (or NULL), or NULL. */
const char *stk_run_env_value(const char *const *env, const char *name);
/* Warnings and errors become notes of the plan. */
int stk_run_note_findings(const stk_findings *findings, stk_plan *plan, stk_err *err);
/* True if the step's program runs as a named user, who must be able to read the code. */
bool stk_run_has_user(const stk_place *place);
/* The container options that the step's program can see, besides the image, as text in a fixed
 * order; NULL: none. */
int stk_run_how_it_runs(const stk_place *place, stk_arena *arena, const char **ret, stk_err *err);
/* The user's Python file that began the pipeline; NULL: none did. */
const char *stk_run_main_file(const stk_spec *spec, stk_arena *arena);
/* STK_E_SPEC: a function that a fresh interpreter can't find. */
int stk_run_check_python(const stk_spec *spec, const stk_step *step, const char *main_file,
                         stk_err *err);
/* The project's folder; NULL: out of memory. And whether it may be mounted over an image's files;
 * `by_file`: only its parts are. */
const char *stk_run_project(const stk_spec *spec, const char *main_file, stk_arena *arena);
int stk_run_check_project(const char *root, bool by_file, stk_err *err);
/* At a run's end: removes containers of attempts whose `stoker contain` was killed before the
 * container began. `stoker store gc` removes what this can't. */
void stk_run_end_containers(const stk_run_containers *c, const stk_view *view);
/* Removes containers of this store's runs that have no engine; *ret_n: how many. A missing
 * container engine is no error. */
int stk_run_drop_containers(stk_store *store, bool dry_run, uint32_t *ret_n, stk_err *err);

#endif
