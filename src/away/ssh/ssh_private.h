/* Shared by ssh_*.c: options, the order of a job, and a job's folder on its host.
 *
 * The folder, ${XDG_STATE_HOME:-~/.local/state}/stoker/jobs/<machine>/<job>, is what both ends
 * agree on, so that asking twice is harmless:
 *
 *   order.json   what to run, without secrets
 *   lock         the keeper holds a lock on it for as long as it lives
 *   begun        made once, by the one keeper that runs the job: {"boot": …}
 *   held         the agent has its devices
 *   go           a gang's agent may begin
 *   stop         {"grace_ms": …}: the job is to end
 *   out          what the agent and its program print
 *   end          {"exit_status": …, "signal": …, "text": …}; comes last */
#ifndef STK_SSH_PRIVATE_H
#define STK_SSH_PRIVATE_H

#include <limits.h>

#include "away/remote/remote_options.h"
#include "away/remote/remote_order.h"
#include "away/ssh/ssh.h"
#include "base/json.h"

enum { SSH_NAME = STK_REMOTE_NAME + 16 };

/* --- options: ssh_options.c --- */

/* STK_E_SPEC: what stk_remote_options_read refuses, a host that the stack doesn't name, or one that
 * it names twice. `step` NULL: `options` are the stack's. */
int stk_ssh_options_read(const char *stack, const char *step, const char *options,
                         const char *stack_options, stk_arena *arena, stk_remote_options *ret,
                         stk_err *err);
/* The index of a host in the option `hosts`; -1: none. */
int stk_ssh_find_host(const stk_remote_options *options, const char *name, size_t len);

/* --- the order: ssh_order.c; pure --- */

/* A step's resources as a document has them, for host/fit. */
int stk_ssh_resources(const stk_resources *resources, stk_arena *arena, const char **ret,
                      stk_err *err);
/* What a host is sent to start a job, the same for each node of a gang, without secrets. */
int stk_ssh_order(const stk_driver_config *config, const stk_remote_job *job, stk_arena *arena,
                  const char **ret, stk_err *err);
/* The store's path on each host: a folder, or that of ssh://HOST/PATH ("~/…" below the home).
 * NULL: the store is reached by its URL (S3). */
const char *stk_ssh_store_path(const char *share_url);

/* --- a job's folder: ssh_far_job.c --- */

typedef enum {
    SSH_JOB_NONE,  /* there is no such folder */
    SSH_JOB_NEW,   /* no keeper has begun: start it again */
    SSH_JOB_LIVE,  /* its keeper lives */
    SSH_JOB_ENDED, /* by itself or stopped */
    SSH_JOB_LOST   /* its keeper is gone and said nothing */
} ssh_job_state;
const char *stk_ssh_state_word(ssh_job_state state);
ssh_job_state stk_ssh_state_of(const char *word); /* NONE for an unknown one */

typedef struct ssh_job_now {
    ssh_job_state state;
    bool is_held;
    int exit_status, signal; /* ENDED; -1 and 0: unknown */
    char text[900];          /* ENDED, LOST: more about it, or "" */
    int64_t log_bytes;
} ssh_job_now;

/* The job's folder on this machine; makes its parents. */
int stk_ssh_job_folder(const char *name, char ret[PATH_MAX], stk_err *err);
int stk_ssh_job_look(const char *folder, ssh_job_now *ret, stk_err *err);
/* A lock that lasts as long as this process, or STK_E_BUSY. */
int stk_ssh_job_lock(const char *folder, int *ret_fd, stk_err *err);
void stk_ssh_job_path(const char *folder, const char *name, char ret[PATH_MAX]);
const char *stk_ssh_home(void);            /* NULL: unknown */
bool stk_ssh_has_room(const char *folder); /* … on its disk for another small file */

/* --- far handlers in files of their own --- */

int stk_ssh_far_host(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                     stk_buf *ret_body, stk_err *err);
int stk_ssh_far_look(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                     stk_buf *ret_body, stk_err *err);
int stk_ssh_far_start(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err);

/* The driver: ssh_driver.c, ssh_check.c, ssh_holds.c. */
int stk_ssh_open(const stk_driver_config *config, stk_driver **ret, stk_err *err);
int stk_ssh_check(const stk_driver_config *config,
                  void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err);
int stk_ssh_holds(const stk_driver_config *config, const stk_remote_ask *asks, uint32_t n,
                  stk_err *ret_why, stk_err *err);
/* Adds to the sentence why a host can't take a job now. Its name stands before it, unless it says
 * that itself. */
void stk_ssh_add_why(char *words, size_t size, const char *host, const char *why);
/* "no host can hold it: <words>", or how many of `nodes` can. */
void stk_ssh_refusal(uint32_t n_able, uint32_t nodes, const char *words, char *ret, size_t size);

#endif
