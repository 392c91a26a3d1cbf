/* mirror: what a share has of runs, as a store of this machine that commands and pages read as any
 * other (docs/decisions/0022-mirrors.md). It lies in the user's cache, below
 * ~/.cache/stoker/shared, brings only what has changed, and is removed when nobody has opened it
 * for a month. The share itself is only read.
 *
 * Commands bring a run, or the newest ones, and go on. Pages follow the share: a thread looks at it
 * while somebody looks at the mirror, and brings what they want to see. So nobody waits for a share
 * that is slow or away: the mirror says how old it is. Open the store of a mirror with
 * STK_STORE_MIRROR. */
#ifndef STK_MIRROR_H
#define STK_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "store/store.h"

typedef struct stk_mirror stk_mirror;

/* True for what names a share and not a folder with a store: a URL, or the path of a folder that
 * machines share. */
bool stk_mirror_is_share(const char *text);
/* Opens the mirror of a share (as of stk_share_open), and makes it; asks the share nothing.
 * STK_E_USAGE: it is no share; STK_E_ENV: the user has no cache. */
int stk_mirror_open(const char *url, stk_mirror **ret, stk_err *err);
void stk_mirror_close(stk_mirror *m); /* NULL is fine; ends the following within a moment */
static inline void stk_mirror_close_auto(stk_mirror **m)
{
    stk_mirror_close(*m);
}
#define STK_MIRROR_AUTO __attribute__((cleanup(stk_mirror_close_auto))) stk_mirror *
const char *stk_mirror_url(const stk_mirror *m);
const char *stk_mirror_path(const stk_mirror *m); /* of its store */

/* --- for commands --- */

typedef enum {
    STK_MIRROR_EVENTS, /* the record alone */
    STK_MIRROR_VALUES, /* with results and metrics, also those of what runs */
    STK_MIRROR_FILES   /* with all files of attempts: logs of any size */
} stk_mirror_depth;

/* Brings one run: an id, its unique beginning, a name or "latest". STK_E_NOT_FOUND: the share has
 * no such run. */
int stk_mirror_bring(stk_mirror *m, const char *run, stk_mirror_depth depth, char ret_run[40],
                     stk_err *err);
/* Brings the newest runs, at most `limit`, and drops those that the share doesn't have any more.
 * One whose record is damaged is left out. */
int stk_mirror_bring_newest(stk_mirror *m, uint32_t limit, stk_mirror_depth depth, stk_err *err);
/* What else there is to be told goes here, a sentence each: what is left out because it can't be
 * read, and for whom it waits. */
void stk_mirror_set_note(stk_mirror *m, void (*note)(const char *line));

/* --- for pages --- */

/* Begins to follow. Waits a moment for the first answer: an error that won't pass (no such bucket,
 * no right, wrong credentials) is returned. */
int stk_mirror_follow(stk_mirror *m, stk_err *err);
/* Somebody looks at the mirror, and at this run (NULL: at none in particular). Never waits, like
 * all that follows. */
void stk_mirror_look(stk_mirror *m, const char *run);
/* They look at the files of this attempt ("runs/<run>/<step>/<task>/<attempt>"): also at what it
 * prints, and at its large files. */
void stk_mirror_want_attempt(stk_mirror *m, const char *key);

typedef enum {
    STK_MIRROR_COMING,   /* it is being brought, or the share doesn't answer */
    STK_MIRROR_HERE,     /* it is in the mirror's store */
    STK_MIRROR_ABSENT,   /* the share doesn't have it as a file */
    STK_MIRROR_TOO_LARGE /* it has, but more than STK_MIRROR_ARTIFACT bytes */
} stk_mirror_found;
enum { STK_MIRROR_ARTIFACT = 64 << 20 };
/* They look at the content of this artifact. */
stk_mirror_found stk_mirror_want_artifact(stk_mirror *m, const char *digest);

/* How much of an attempt's files is in its folder of the mirror: ABSENT: the share has none. */
stk_mirror_found stk_mirror_look_files(const char *dir);

typedef struct stk_mirror_state {
    int64_t fresh_ms; /* Unix time of the share that the mirror shows; 0: unknown */
    int64_t asked_ms; /* since when it is being asked; 0: it isn't now */
    uint32_t n_runs;  /* of the share; those of which something is here: */
    uint32_t n_here;
    uint32_t n_coming;  /* those of which nothing is here yet */
    uint32_t n_damaged; /* those that can't be read, or not all of it … */
    char damage[512];   /* … and why the newest one of them can't; "" */
    bool is_complete;   /* the share has been listed since the following began */
    stk_err trouble;    /* code ≠ 0: why it can't be followed now */
    uint32_t version;   /* another one when something of this changes, apart from these times */
} stk_mirror_state;
void stk_mirror_get_state(stk_mirror *m, stk_mirror_state *ret);

#endif
