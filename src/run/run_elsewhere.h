/* run_elsewhere: finds the steps of a run that go to other machines, prepares them before the first
 * task, and opens the backends that send them. For `run`, `resume`, `plan` and `why`. */
#ifndef STK_RUN_ELSEWHERE_H
#define STK_RUN_ELSEWHERE_H

#include "away/share/share.h"
#include "image/stack/stack.h"
#include "run/exec/exec.h"
#include "run/run.h"

typedef struct stk_run_elsewhere {
    stk_arena *arena;       /* the caller's */
    const stk_place *steps; /* by step: the caller's */
    stk_driver_find drivers;
    uint32_t n;                               /* steps elsewhere; 0: no other member is set */
    const stk_stack *stacks[STK_PLAN_PLACES]; /* place k is stacks[k - 1] */
    stk_capacity_place places[STK_PLAN_PLACES];
    uint32_t n_places;
    stk_capacity_away *away; /* by step */
    const char **images, **paths;
    const char *code;                   /* digest of the code package, or NULL */
    bool only_to_end;                   /* submits nothing, so sends no program */
    struct stk_remote_log *log;         /* the run's log in the share, the caller's; or NULL */
    stk_share *shares[STK_PLAN_PLACES]; /* of each place, for its artifacts */
    stk_share *asked[STK_PLAN_PLACES];  /* the same with short time limits, or NULL */
    int64_t ask_again_ms;               /* `asked` isn't used before (monotonic) */
    stk_exec_elsewhere exec;
} stk_run_elsewhere;

/* Finds where each step goes. STK_E_LIMIT: more stacks than a run may have. STK_E_SPEC: a step that
 * can't leave this machine. */
int stk_run_elsewhere_find(const stk_spec *spec, const stk_place *steps, stk_driver_find drivers,
                           stk_arena *arena, stk_run_elsewhere *ret, stk_err *err);
bool stk_run_is_away(const stk_run_elsewhere *e, uint32_t i_step);
/* Adds the places to the capacity, for the plan. */
void stk_run_elsewhere_tell(const stk_run_elsewhere *e, stk_capacity *capacity);
/* strict unless the user gave a policy, because nobody would see that a step elsewhere ran without
 * its GPU. */
stk_policy stk_run_elsewhere_policy(const stk_run_elsewhere *e, const stk_run_options *options);
/* Asks the registries about the images, or builds and pushes them if the stack has a registry (not
 * if `soft`). Digests go into the plan's keys and to the engines. An image that doesn't fit is an
 * error, one that can't be checked a note. */
int stk_run_elsewhere_images(stk_run_elsewhere *e, const stk_spec *spec,
                             const stk_run_options *options, const char *logs, stk_plan *plan,
                             bool soft, stk_err *err);
/* Lets the drivers check what each step would be submitted as; STK_E_SPEC: an option that one can't
 * honour. Also checks that the engines are known, that their machines can hold the requests
 * (STK_E_RESOURCES) and, unless `soft`, that the stores are writable.
 * If `soft`, each error becomes a note that begins with "refused". */
int stk_run_elsewhere_check(const stk_run_elsewhere *e, const stk_spec *spec, stk_plan *plan,
                            bool soft, stk_err *err);
/* The documents that would be submitted for a step (stk_remote_preview), for the run "RUN". */
int stk_run_elsewhere_documents(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i_step,
                                void (*note)(void *arg, const char *text), void *arg,
                                const char ***ret_documents, uint32_t *ret_n, stk_err *err);
/* Packs the project. From now on artifacts that the store lacks come from the share. */
int stk_run_elsewhere_code(stk_run_elsewhere *e, const stk_spec *spec, const char *main_file,
                           stk_plan *plan, stk_store *store, stk_err *err);
/* For a forecast, which doesn't ask the share: believes the record about what the share has. */
void stk_run_elsewhere_forecast(const stk_run_elsewhere *e, stk_store *store);
/* Instead of images, check and code for a run that is only to be ended: asks nobody and packs
 * nothing. */
int stk_run_elsewhere_to_end(stk_run_elsewhere *e, const stk_spec *spec, stk_store *store,
                             stk_err *err);
/* Joins `local` and a backend for each stack into one backend, which owns `local`, also on error.
 * `program`: path of the program that the stacks' machines get. */
int stk_run_elsewhere_open(stk_run_elsewhere *e, const char *program, const stk_spec *spec,
                           stk_store *store, const char *run, stk_backend *local, stk_backend **ret,
                           stk_err *err);
void stk_run_elsewhere_close(stk_run_elsewhere *e);
/* Fills the configuration with which the stack's driver opens. */
void stk_run_driver_config(const stk_stack *stack, const char *run, stk_driver_config *ret);

/* --- run_shares.c --- */

/* Records the share, so that later readers of this store's artifacts can fetch them from there. */
int stk_run_share_keep(const stk_store *store, const char *url, stk_err *err);
/* Fetches an artifact from one of the recorded shares into the store. STK_E_NOT_FOUND, possibly
 * without a text: none has it. */
int stk_run_share_fetch(const char *store_path, const char *digest, stk_err *err);
/* Returns an artifact's path in the store; fetches it first if only a share has it, as it may be
 * for a step elsewhere. */
int stk_run_share_artifact(stk_store *store, const char *digest, stk_arena *arena,
                           const char **ret_path, int64_t *ret_size, stk_err *err);

#endif
