/* slurm: steps as batch jobs of Slurm, by its own commands (docs/slurm.md). The job's script lays
 * out our program on the node, and `stoker agent` gives the step a view of the file system in which
 * the project's and the store's folders are its own (agent_nest.c). */
#ifndef STK_SLURM_PRIVATE_H
#define STK_SLURM_PRIVATE_H

#include "away/remote/remote.h"
#include "base/json.h"

/* --- options: slurm_options.c --- */

/* Options of a step over those of the stack. */
typedef struct stk_slurm_options {
    const stk_json *layers[2]; /* objects, the first has precedence; NULL: none */
} stk_slurm_options;

/* STK_E_SPEC: an unknown name (with a did-you-mean), a wrong type, or an option that can't be
 * honoured (with the nearest alternative). `step` NULL: `options` are the stack's. */
int stk_slurm_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_slurm_options *ret, stk_err *err);
const stk_json *stk_slurm_option(const stk_slurm_options *options, const char *name); /* or NULL */
const char *stk_slurm_text(const stk_slurm_options *options, const char *name);       /* or NULL */
double stk_slurm_number(const stk_slurm_options *options, const char *name, double otherwise);
/* Calls put(arg, name, value) for each option that is a flag of sbatch's and given; value NULL: the
 * flag alone. */
void stk_slurm_each_flag(const stk_slurm_options *options,
                         void (*put)(void *arg, const char *name, const char *value), void *arg);

/* --- the script: slurm_ask.c, slurm_script.c; pure --- */

/* GPUs of each node; n 0: none. */
typedef struct stk_slurm_gpus {
    uint32_t n;
    const char *type; /* in the cluster's words; NULL: any */
} stk_slurm_gpus;

/* STK_E_SPEC: a request that Slurm has no words for. */
int stk_slurm_gpus_of(const stk_remote_job *job, const stk_slurm_options *options, stk_arena *arena,
                      stk_slurm_gpus *ret, stk_err *err);
/* The batch script. Names of the job's secrets are in it, values aren't. */
int stk_slurm_script(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                     const char **ret_script, stk_err *err);
/* Where the output of a node of the job is written: slurm.log in the attempt's folder of the share,
 * or slurm-<node>.log of a gang. NULL: out of memory. */
const char *stk_slurm_log_path(const stk_driver_config *config, const stk_remote_job *job,
                               uint32_t node, stk_arena *arena);

/* --- Slurm's commands: slurm_call.c --- */

/* Runs argv[0] with our environment, without Slurm's own variables and with `more` ("K=V", or
 * NULL). Its output is in the arena. STK_E_ENV: it failed (the text has its own words), or didn't
 * answer in time; STK_E_NOT_FOUND: there is no such program. */
int stk_slurm_call(const char *const *argv, const char *const *more, const char *input,
                   stk_arena *arena, const char **ret_out, stk_err *err);
/* Slurm's controller didn't answer, but may later. */
bool stk_slurm_may_pass(const stk_err *why);

/* --- what Slurm says: slurm_status.c; pure --- */

typedef enum { SLURM_WAITS, SLURM_RUNS, SLURM_ENDS, SLURM_OVER } stk_slurm_phase;

/* A line of squeue as stk_slurm_look_format asks for it. */
typedef struct stk_slurm_seen {
    const char *id, *state, *reason, *start, *nodes, *name;
} stk_slurm_seen;
extern const char stk_slurm_look_format[];

/* Cuts the line; false: it isn't one. */
bool stk_slurm_seen_read(char *line, stk_slurm_seen *ret);
stk_slurm_phase stk_slurm_phase_of(const char *state);
/* "waits …; Slurm expects it to start at …" */
void stk_slurm_reason(const stk_slurm_seen *seen, char *ret, size_t size);
/* How a job ended: by its state, and ExitCode ("3:0": status and signal; NULL: unknown). */
void stk_slurm_end(const char *id, const char *state, const char *exit_code,
                   stk_remote_report *ret);
/* The value of KEY in `scontrol show job -o`, copied to `ret`; false: not there. */
bool stk_slurm_field(const char *text, const char *key, char *ret, size_t size);

int stk_slurm_open(const stk_driver_config *config, stk_driver **ret, stk_err *err);
int stk_slurm_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg,
                    stk_err *err);

#endif
