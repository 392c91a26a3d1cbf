/* A pilot: one agent that runs many attempts inside one job, as the lines of its orders come. One
 * local backend watches all of their programs; a few threads fetch what they need and save what
 * they made. */
#ifndef STK_AGENT_PILOT_H
#define STK_AGENT_PILOT_H

#include "away/agent/agent_private.h"
#include "host/fit/fit.h"

/* They mostly wait for the share's disk. */
enum { PILOT_WORKERS = 16 };

typedef enum {
    PIECE_QUEUED, /* nobody has claimed it */
    PIECE_SETUP,  /* with a worker: claimed, and its needs are fetched */
    PIECE_READY,  /* waits for room */
    PIECE_RUNS,
    PIECE_ENDED, /* by SIGTERM, perhaps of its pilot's end */
    PIECE_SAVES, /* with a worker */
    PIECE_OVER
} piece_phase;

/* One attempt. */
typedef struct piece {
    struct piece *next, *next_work;
    struct pilot *pilot;
    agent a;
    piece_phase phase;
    uint32_t id;
    int64_t cpu_milli, memory_bytes;
    const char *devices; /* that it asks for, as a step's resources; NULL: none */
    bool said_wait;      /* that others hold them */
    stk_job job;
    int rc; /* of its setup */
    stk_err err;
    bool is_stopped;
    stk_failure why;
    int64_t grace_ms;
    pid_t pid;
    int64_t began_ms, ended_ms;
    off_t log_at[2];
} piece;

typedef struct pilot {
    agent *a; /* its share, signals and stop */
    const char *folder;
    stk_accel *accel;
    stk_capacity capacity;
    stk_fit fit; /* of what the last one asked for: */
    char *fit_text;
    int64_t next_lease_ms; /* no device that is asked for is free before */
    stk_backend *backend;
    piece *first, **end;
    uint32_t n_pieces, n_ahead, next_id;                    /* ahead: set up, or ready */
    int64_t cpu_milli, memory_bytes, used_cpu, used_memory; /* memory 0: no limit is known */
    int64_t orders_at, idle_since_ms, next_look_ms, next_log_ms, reap_ms;
    int64_t stays_ms; /* it doesn't end for want of work before */
    bool is_ending;
    stk_buf news;

    pthread_mutex_t lock; /* of: */
    pthread_cond_t work;
    piece *todo, **todo_end, *done;
    bool is_closing, has_code;
    int done_fd;
    pthread_mutex_t code_lock;
    pthread_t workers[PILOT_WORKERS];
    uint32_t n_workers;
} pilot;

/* agent_pilot_devices.c */
int stk_pilot_devices_open(pilot *p, stk_err *err);
void stk_pilot_devices_close(pilot *p);
/* The memory of its smallest device; 0: unknown, or it has none. */
int64_t stk_pilot_device_bytes(const pilot *p);
int stk_pilot_read_devices(const pilot *p, piece *one, const stk_json *order, stk_err *err);
/* Leases them, and makes the job of one that has devices. STK_E_BUSY: they aren't free. */
int stk_pilot_lease(pilot *p, piece *one, stk_err *err);

/* agent_pilot_follow.c */
void stk_pilot_follow(pilot *p);
void stk_pilot_reap(pilot *p);

/* agent_pilot_work.c */
int stk_pilot_workers_begin(pilot *p, stk_err *err);
void stk_pilot_workers_end(pilot *p);
void stk_pilot_give(pilot *p, piece *one);
piece *stk_pilot_take_done(pilot *p); /* a list by next_work */

#endif
