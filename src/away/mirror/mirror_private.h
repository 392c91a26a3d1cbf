/* Shared by the files of this room. */
#ifndef STK_MIRROR_PRIVATE_H
#define STK_MIRROR_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "away/mirror/mirror.h"
#include "away/share/share.h"
#include "base/map.h"

enum {
    MIRROR_RUNS = 8,        /* runs that are looked at */
    MIRROR_WANTS = 64,      /* attempts and artifacts that wait to be brought, of each kind */
    MIRROR_LOOK_MS = 60000, /* a look counts so long */
    MIRROR_SMALL = 1 << 20  /* larger files of an attempt are brought when they are wanted */
};

/* A run of the share. */
typedef struct mirror_run {
    char id[40];
    bool is_listed;  /* the share has it still */
    bool is_here;    /* the mirror has its row */
    bool is_ended;   /* its record has its end, and the files that are brought unasked are here */
    bool is_damaged; /* its record is: it is looked at in turn only */
    char *damage;    /* a sentence: what of it can't be read; NULL: nothing */
    uint32_t turn;   /* when it was looked at last */
    int64_t event;   /* its last event when its files were looked for */
} mirror_run;

typedef struct mirror_want {
    char key[STK_SHARE_KEY_MAX];
    int64_t asked_ms; /* monotonic */
    bool is_done;
} mirror_want;

/* What pages ask for; under `lock`. */
typedef struct mirror_wants {
    int64_t look_ms;               /* monotonic */
    mirror_want runs[MIRROR_RUNS]; /* rings */
    mirror_want attempts[MIRROR_WANTS];
    uint32_t n_runs, n_attempts; /* ever */
    char digests[MIRROR_WANTS][STK_DIGEST_HEX + 1];
    uint32_t n_digests; /* that wait */
    stk_map found;      /* digest → stk_mirror_found; keys in `arena` */
    stk_arena *arena;
} mirror_wants;

struct stk_mirror {
    char *path;
    stk_share *share;
    stk_store *store; /* for writing */
    int used_fd;      /* its lock keeps the mirror from being removed */
    int lock_fd;      /* its lock is held by whoever writes */
    pthread_mutex_t lock;
    pthread_cond_t wake, told;
    pthread_t thread;
    bool is_following, is_asked;
    bool is_refused; /* under `lock`: the share can't be listed, which won't pass by itself */
    atomic_bool is_over;
    mirror_wants wants;
    stk_mirror_state state; /* under `lock` */
    /* the thread's: */
    mirror_run **runs; /* oldest first, as the share lists them */
    uint32_t n, cap;
    stk_map by_id;
    uint32_t turn, at; /* … and which run's turn it is */
    int64_t end_ms;    /* of this turn, monotonic */
    bool has_more;     /* the turn was too short */
    int64_t most;      /* larger files are brought only when they are wanted; 0: none */
    bool has_own;      /* `runs` has those that an earlier program has brought */
    void (*note)(const char *line); /* or NULL */
};

int64_t stk_mirror_now_ms(void);
/* Takes the right to write, from other processes. STK_E_CANCELLED: the mirror is being closed. */
int stk_mirror_begin_write(stk_mirror *m, stk_err *err);
void stk_mirror_end_write(stk_mirror *m);

/* mirror_list.c: which runs there are. STK_E_NOMEM. */
int stk_mirror_get_run(stk_mirror *m, const char *id, mirror_run **ret);
/* Lists those of the share, and drops what it doesn't have any more. *ret_is_listed (or NULL): the
 * share has answered. */
int stk_mirror_list_runs(stk_mirror *m, bool *ret_is_listed, stk_err *err);
/* Has pages see how many there are. */
void stk_mirror_note_counts(stk_mirror *m);

/* mirror_run.c: brings what is new of a run. An attempt's damage is noted and is no error. */
int stk_mirror_bring_run(stk_mirror *m, mirror_run *run, bool checks_gap, stk_err *err);
/* The same; damage of the record, too, is no error. */
int stk_mirror_follow_run(stk_mirror *m, mirror_run *run, bool checks_gap, stk_err *err);
int stk_mirror_drop_run(stk_mirror *m, const char *id, stk_err *err);

/* mirror_wants.c */
int stk_mirror_wants_open(mirror_wants *w, stk_err *err);
void stk_mirror_wants_done(mirror_wants *w);
bool stk_mirror_is_wanted(stk_mirror *m, const char *attempt);
/* The runs that are looked at; returns their number. *ret_more: files of new attempts, too. */
uint32_t stk_mirror_wanted_runs(stk_mirror *m, char ret[MIRROR_RUNS][40], bool *ret_more);
int stk_mirror_serve_wants(stk_mirror *m, stk_err *err);

#endif
