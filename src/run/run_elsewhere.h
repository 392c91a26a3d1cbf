/* run_elsewhere: which steps of a run go to other machines, what these need before the first task,
 * and the backends that take them there. What `run`, `resume`, `plan` and `why` share. */
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
    uint32_t n;                               /* steps elsewhere; 0: nothing of the rest is set */
    const stk_stack *stacks[STK_PLAN_PLACES]; /* where they go: place k is stacks[k - 1] */
    stk_capacity_place places[STK_PLAN_PLACES];
    uint32_t n_places;
    stk_capacity_away *away; /* by step */
    const char **images, **paths;
    const char *code;                   /* digest of the code package, or NULL */
    bool only_to_end;                   /* nothing is submitted: nothing is carried */
    struct stk_remote_log *log;         /* of the run in the share: the caller's, or NULL */
    stk_share *shares[STK_PLAN_PLACES]; /* of each place, for artifacts */
    stk_share *asked[STK_PLAN_PLACES];  /* the same in a hurry, or NULL */
    int64_t ask_again_ms;               /* they are left alone until then (monotonic) */
    stk_exec_elsewhere exec;
} stk_run_elsewhere;

/* Who goes where. STK_E_LIMIT: to more stacks than a run may have; STK_E_SPEC: a step that can't
 * leave this machine. */
int stk_run_elsewhere_find(const stk_spec *spec, const stk_place *steps, stk_driver_find drivers,
                           stk_arena *arena, stk_run_elsewhere *ret, stk_err *err);
bool stk_run_is_away(const stk_run_elsewhere *e, uint32_t i_step);
/* The plan is to know. */
void stk_run_elsewhere_tell(const stk_run_elsewhere *e, stk_capacity *capacity);
/* strict, unless the user said a policy: elsewhere nobody sees that a step ran without its GPU. */
stk_policy stk_run_elsewhere_policy(const stk_run_elsewhere *e, const stk_run_options *options);
/* Asks the registries about the images (or has them built and pushed, where the stack has a
 * registry; not if `soft`): digests go into the plan's keys and to the engines, what speaks against
 * an image is an error, what can't be known a note. */
int stk_run_elsewhere_images(stk_run_elsewhere *e, const stk_spec *spec,
                             const stk_run_options *options, const char *logs, stk_plan *plan,
                             bool soft, stk_err *err);
/* What each step would be submitted as, in the driver's eyes: an option that can't be honoured is
 * STK_E_SPEC. Are their engines known, and their stores writable (not if `soft`)? If `soft`
 * all that is a note that begins with "refused". */
int stk_run_elsewhere_check(const stk_run_elsewhere *e, const stk_spec *spec, stk_plan *plan,
                            bool soft, stk_err *err);
/* What a step elsewhere would be submitted as (stk_remote_preview), for the run "RUN". */
int stk_run_elsewhere_documents(const stk_run_elsewhere *e, const stk_spec *spec, uint32_t i_step,
                                void (*note)(void *arg, const char *text), void *arg,
                                const char ***ret_documents, uint32_t *ret_n, stk_err *err);
/* Packs the project; artifacts that the store lacks come from the share from now on. */
int stk_run_elsewhere_code(stk_run_elsewhere *e, const stk_spec *spec, const char *main_file,
                           stk_plan *plan, stk_store *store, stk_err *err);
/* What the record says is in the share is believed: a forecast doesn't ask. */
void stk_run_elsewhere_forecast(const stk_run_elsewhere *e, stk_store *store);
/* In the place of images, check and code, where a run is only to be ended: nobody is asked, and
 * nothing is packed. */
int stk_run_elsewhere_to_end(stk_run_elsewhere *e, const stk_spec *spec, stk_store *store,
                             stk_err *err);
/* `local` and a backend for each stack, as one; `local` is taken over, also on error. `program` is
 * what is carried there. */
int stk_run_elsewhere_open(stk_run_elsewhere *e, const char *program, const stk_spec *spec,
                           stk_store *store, const char *run, stk_backend *local, stk_backend **ret,
                           stk_err *err);
void stk_run_elsewhere_close(stk_run_elsewhere *e);
/* What the stack's driver is opened with. */
void stk_run_driver_config(const stk_stack *stack, const char *run, stk_driver_config *ret);

/* --- run_shares.c --- */

/* Who reads artifacts of this store later may look there. */
int stk_run_share_keep(const stk_store *store, const char *url, stk_err *err);
/* Brings an artifact from one of these into the store. STK_E_NOT_FOUND, maybe without a word: none
 * has it. */
int stk_run_share_fetch(const char *store_path, const char *digest, stk_err *err);
/* An artifact's place in the store; what a step elsewhere made may be in the share alone, and is
 * brought then. */
int stk_run_share_artifact(stk_store *store, const char *digest, stk_arena *arena,
                           const char **ret_path, int64_t *ret_size, stk_err *err);

#endif
