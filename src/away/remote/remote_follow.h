/* remote_follow: what running attempts print, for a machine without the run's engine. It attaches
 * to their jobs with a driver of its own, which only reads (stk_remote_job.reads), and writes what
 * they print to files. */
#ifndef STK_REMOTE_FOLLOW_H
#define STK_REMOTE_FOLLOW_H

#include "away/remote/remote.h"

typedef struct stk_remote_follow stk_remote_follow;

/* One running attempt. */
typedef struct stk_remote_followed {
    const char *run, *pipeline, *step;
    uint32_t task, attempt; /* as in the name of its folder */
    uint32_t nodes;
    const char *options; /* of its step and stack, a JSON object; NULL: "{}" */
    const char *path;    /* the file, whose folder exists */
} stk_remote_followed;

/* Opens the driver. `config` lives as long as the result; its pending_ms is 0. */
int stk_remote_follow_open(const stk_driver_kind *kind, const stk_driver_config *config,
                           stk_remote_follow **ret, stk_err *err);
/* Attaches to an attempt that isn't attached to yet; what it printed so far comes first. */
int stk_remote_follow_add(stk_remote_follow *f, const stk_remote_followed *one, stk_err *err);
/* Hears what is new, within ms. STK_E_ENV: this machine can't follow jobs of this engine. */
int stk_remote_follow_turn(stk_remote_follow *f, int64_t ms, stk_err *err);
/* The newest sentence for the user that wasn't taken yet, for the caller to free; NULL: none. */
char *stk_remote_follow_note(stk_remote_follow *f);
/* No more than a trickle was heard for ms, and each job was heard of at least once. */
bool stk_remote_follow_is_quiet(const stk_remote_follow *f, int64_t ms);
void stk_remote_follow_close(stk_remote_follow *f); /* NULL is fine */

#endif
