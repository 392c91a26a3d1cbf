/* slurm: steps as batch jobs of Slurm, by its own commands (docs/slurm.md). The job's script lays
 * out our program on the node, and `stoker agent` gives the step a view of the file system in which
 * the project's and the store's folders are its own (agent_nest.c). */
#ifndef STK_SLURM_PRIVATE_H
#define STK_SLURM_PRIVATE_H

#include "away/remote/remote.h"
#include "away/remote/remote_array.h"
#include "away/remote/remote_options.h"
#include "base/json.h"

/* --- options: slurm_options.c --- */

typedef stk_remote_options stk_slurm_options;
#define stk_slurm_option stk_remote_option
#define stk_slurm_text stk_remote_option_text
#define stk_slurm_number stk_remote_option_number

/* STK_E_SPEC: what stk_remote_options_read refuses, and flags that Stoker sets itself. */
int stk_slurm_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_slurm_options *ret, stk_err *err);
/* What of the stack can't be on Slurm, and options that need others: STK_E_SPEC. */
int stk_slurm_check_stack(const stk_driver_config *config, const stk_slurm_options *options,
                          stk_err *err);
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

/* STK_E_SPEC: a request that Slurm has no words for. `is_of_pilot`: several share a GPU there. */
int stk_slurm_gpus_of(const stk_remote_job *job, const stk_slurm_options *options, bool is_of_pilot,
                      stk_arena *arena, stk_slurm_gpus *ret, stk_err *err);
/* From so many such jobs on they become an array; 0: never. */
uint32_t stk_slurm_array_min(const stk_remote_job *job, const stk_slurm_options *options);
/* The batch script. Names of the job's secrets are in it, values aren't. */
int stk_slurm_script(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                     const char **ret_script, stk_err *err);
/* The same for `stoker export slurm-script`: its first argument is the share's folder, and who
 * submits it says where its output goes. */
int stk_slurm_exported(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                       const char **ret_script, stk_err *err);
/* The script of an array of `n` jobs that differ from `job` only in their attempt. n 0: not known
 * yet. */
int stk_slurm_array_script(const stk_driver_config *config, const stk_remote_job *job,
                           const stk_remote_array *array, uint32_t n, stk_arena *arena,
                           const char **ret_script, stk_err *err);
/* The most GPUs of a node by `sinfo --format=%P|%G`: of a type (NULL: any), and in the default
 * partition or in those that were asked for. 0: none is listed. */
uint32_t stk_slurm_most_gpus(const char *lines, const char *type, bool of_default);
/* A pilot: a job in which our agent runs many attempts (slurm_pilot.h). */
typedef struct stk_slurm_flight {
    const char *name, *key;
    int64_t cpu_milli, memory_bytes; /* 0: none is asked for */
    uint32_t gpus;
} stk_slurm_flight;

/* --- pilots: slurm_flight.c; pure --- */

/* What an attempt takes of its pilot. */
typedef struct stk_slurm_load {
    int64_t cpu_milli, memory_bytes;
    uint32_t gpus;
    int64_t gpu_bytes; /* a share of each; 0: whole ones */
} stk_slurm_load;
stk_slurm_load stk_slurm_load_of(const stk_remote_job *job);
/* Do attempts like this one run in pilots? A pilot has licences and other resources once, while
 * each of them would count on its own. */
bool stk_slurm_may_fly(const stk_remote_job *job, const stk_slurm_options *options);
/* The size of one that such an attempt opens: as many times what it asks for as the CPUs hold, and
 * as `wanted` GPUs hold, of which the job asks for `most` at most. */
stk_slurm_flight stk_slurm_flight_of(const stk_remote_job *first, const stk_slurm_options *options,
                                     uint32_t wanted, uint32_t most);
/* Its script, for attempts like `job`. */
int stk_slurm_pilot_script(const stk_driver_config *config, const stk_remote_job *job,
                           const stk_slurm_flight *flight, stk_arena *arena,
                           const char **ret_script, stk_err *err);
/* Where the output of a node of the job is written: slurm.log in the attempt's folder of the share,
 * or slurm-<node>.log of a gang. NULL: out of memory. */
const char *stk_slurm_log_path(const stk_driver_config *config, const stk_remote_job *job,
                               uint32_t node, stk_arena *arena);
/* … and that of a child: beside the array's list. */
const char *stk_slurm_array_log_path(const stk_driver_config *config, const stk_remote_array *array,
                                     uint32_t index, stk_arena *arena);

/* --- the script's part that each node runs: slurm_node.c; pure --- */

/* `unpack`: the command that lays out our program at "$at/stoker". `has_image`: the step runs in
 * STOKER_IMAGE. */
void stk_slurm_put_node(stk_buf *out, const char *unpack, bool has_image, bool is_export);
/* For the batch script, before what starts that: where pyxis is to run the image, it does here.
 * `flags`: srun's for where each node's output goes. */
void stk_slurm_put_pyxis(stk_buf *out, const char *unpack, const char *flags);
/* The image in enroot's words, "nvcr.io#nvidia/pytorch:25.01". NULL: out of memory. */
const char *stk_slurm_enroot_image(const char *image, stk_arena *arena);
/* STK_E_SPEC: a path that container programs can't take. */
int stk_slurm_check_paths(const char *const *paths, stk_err *err);

/* --- Slurm's commands: slurm_call.c --- */

/* The variables of ours that a job gets. Ends with NULL. */
extern const char *const stk_slurm_passed[];
/* Runs argv[0] with our environment, without Slurm's own variables and with `more` ("K=V", or
 * NULL); sbatch, which has `input`, only with what a job gets. Its output is in the arena.
 * STK_E_ENV: it failed (the text has its own words), or didn't answer in time; STK_E_NOT_FOUND:
 * there is no such program. */
int stk_slurm_call(const char *const *argv, const char *const *more, const char *input,
                   stk_arena *arena, const char **ret_out, stk_err *err);
/* The same in parts, for who has other things to do meanwhile. _await listens to the command until
 * its end (true), a word at `wake_fd` (-1: none) or the time `until_ms` of the monotonic clock;
 * _end ends one that still runs, and frees it. */
typedef struct stk_slurm_command stk_slurm_command;
int stk_slurm_command_begin(const char *const *argv, const char *const *more, const char *input,
                            stk_slurm_command **ret, stk_err *err);
bool stk_slurm_command_await(stk_slurm_command *c, int wake_fd, int64_t until_ms);
int stk_slurm_command_end(stk_slurm_command *c, stk_arena *arena, const char **ret_out,
                          stk_err *err);
/* Slurm's controller didn't answer, but may later. */
bool stk_slurm_may_pass(const stk_err *why);

/* --- what Slurm says: slurm_status.c; pure --- */

typedef enum { SLURM_WAITS, SLURM_RUNS, SLURM_ENDS, SLURM_OVER } stk_slurm_phase;

/* A line of squeue as stk_slurm_look_format asks for it. id: "12", or "12_3" of an array's child.
 */
typedef struct stk_slurm_seen {
    const char *id, *state, *reason, *start, *nodes, *name;
} stk_slurm_seen;
extern const char stk_slurm_look_format[];

/* Cuts the line; false: it isn't one. */
bool stk_slurm_seen_read(char *line, stk_slurm_seen *ret);
stk_slurm_phase stk_slurm_phase_of(const char *state);
/* "waits …; Slurm expects it to start at …" */
void stk_slurm_reason(const stk_slurm_seen *seen, char *ret, size_t size);
/* Whether it says more than what was told before besides another start. */
bool stk_slurm_is_other_wait(const char *told, const char *text);
/* How a job ended: by its state, and ExitCode ("3:0": status and signal; NULL: unknown). */
void stk_slurm_end(const char *id, const char *state, const char *exit_code,
                   stk_remote_report *ret);
/* The most children of an array, by `scontrol show config`; 0: this Slurm takes no arrays. */
uint32_t stk_slurm_array_max(const char *config);
/* The value of KEY in `scontrol show job -o`, copied to `ret`; false: not there. */
bool stk_slurm_field(const char *text, const char *key, char *ret, size_t size);

int stk_slurm_open(const stk_driver_config *config, stk_driver **ret, stk_err *err);
int stk_slurm_check(const stk_driver_config *config,
                    void (*say)(void *arg, bool is_good, const char *text), void *arg,
                    stk_err *err);

#endif
