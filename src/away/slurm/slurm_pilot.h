/* Pilots: jobs of Slurm in which our agent runs many attempts (away/agent/agent_pilot.h). A pilot's
 * folder in the share, runs/<run>/pilots/<name>, has its orders, which we write, and its news,
 * which it writes (docs/formats/shared-stores.md). */
#ifndef STK_SLURM_PILOT_H
#define STK_SLURM_PILOT_H

#include "away/slurm/slurm_driver.h"

struct slurm_pilot {
    struct slurm_pilot *next;
    stk_arena *arena;
    stk_remote_job spec; /* of its own job */
    slurm_job *job;      /* NULL: Slurm has forgotten it */
    const char *folder, *script;
    const char *const *secret;
    char form[STK_DIGEST_HEX + 1]; /* of the attempts that it takes */
    int64_t cpu_milli, memory_bytes, gpu_milli;
    stk_slurm_load asked; /* by the attempt for which it was opened */
    int64_t gpu_bytes;    /* the memory of its smallest GPU; 0: unknown */
    int64_t given_cpu;    /* of the attempts that it has */
    int64_t given_memory, given_gpu;
    uint32_t n_given;
    int64_t news_at, orders_at; /* orders_at: how long the file of its orders is */
    int64_t closed_at;          /* it has read its orders up to there, and takes no more; -1 */
    int64_t since_ms;           /* it was opened */
    int64_t runs_ms;            /* it has taken work since then */
    int64_t needed_ms;          /* when it was needed last */
    int64_t stay_ms;            /* it is to be told again to stay then; 0: it may go */
    int64_t n_ended, ended_ms;  /* attempts that ended there, and how long they ran */
    char at[64];                /* "node n1"; "": it doesn't run yet */
    char waits[512];
    stk_buf orders; /* not written yet */
    bool is_over, only_reads;
};

/* --- called by the driver --- */

/* Is it for a pilot? Sets job->pilot_form. */
int stk_slurm_pilot_form(const slurm_driver *d, slurm_job *job, stk_err *err);
/* Gives attempts to pilots, opens and closes pilots, reads their news; returns when to come again.
 */
int64_t stk_slurm_pilots_turn(slurm_driver *d);
/* Slurm's word on a pilot's own job. */
void stk_slurm_pilot_heard(slurm_driver *d, slurm_job *job, const stk_remote_report *report);
/* An attempt of a pilot is to end. */
void stk_slurm_pilot_stop(slurm_driver *d, slurm_job *job, int64_t grace_ms);
/* Pilots that an earlier engine opened. */
int stk_slurm_pilots_find(slurm_driver *d, bool only_reads, stk_err *err);
/* If an earlier engine gave the attempt to a pilot, attaches to it. */
bool stk_slurm_pilot_attach(slurm_driver *d, slurm_job *job);
/* The engine ends: pilots without work do, too. */
void stk_slurm_pilots_close(slurm_driver *d);

/* --- slurm_pilot.c --- */

/* It is for a pilot, and none has it. */
bool stk_slurm_waits_for_pilot(const slurm_job *job);
/* The pilot has got the attempt, or has it no more. */
void stk_slurm_pilot_has(slurm_pilot *p, slurm_job *job);
void stk_slurm_pilot_leaves(slurm_job *job);
/* NULL: no memory. */
slurm_pilot *stk_slurm_pilot_new(slurm_driver *d, const char *name);

/* --- slurm_pilot_open.c --- */

/* Opens a pilot for what waits and is like `first`; returns when to try again, or 0. */
int64_t stk_slurm_pilot_open(slurm_driver *d, slurm_job *first);

/* --- slurm_pilot_file.c --- */

int stk_slurm_write_orders(slurm_pilot *p, stk_err *err);
void stk_slurm_read_news(slurm_driver *d, slurm_pilot *p);
/* It couldn't be made. */
void stk_slurm_pilot_gone(slurm_driver *d, slurm_pilot *p);

#endif
