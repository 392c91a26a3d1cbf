/* show_progress: what a user watches while a run is going on.
 *
 * On a terminal: finished steps scroll up as plain lines; below them stands one live line a running
 * step (elapsed, memory, CPUs) and a bar for the run, redrawn at most ten times a second. Piped: a
 * `start` and a `done` line a step. Both are buffered: an event costs a few hundred nanoseconds,
 * all writing happens in tick. A step of a growing run with more than 20 tasks is told as one:
 * a line when it begins, one when all its tasks are over, and its first failures. In runs of more
 * than 200 steps cached and skipped ones are only counted. Quiet: nothing (stk_text_failures says
 * at the end what went wrong). The caller folds a row into the view first, then hands it to
 * stk_progress_event.
 */
#ifndef STK_SHOW_PROGRESS_H
#define STK_SHOW_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "store/view/view.h"

typedef struct stk_progress stk_progress;

typedef struct stk_progress_config {
    FILE *out; /* usually stderr; its own buffering is left alone */
    bool tty;  /* draw live lines with cursor movement */
    bool colour;
    bool utf8;
    bool quiet;  /* nothing but failures */
    int columns; /* 0: ask the terminal, and again after each SIGWINCH-like change */
    int rows;    /* 0: ask the terminal */
    /* Live usage of a running task; false: not known. Asked for drawn lines only, at most ten times
     * a second. May be NULL. Fits stk_backend_ops.usage. */
    bool (*usage)(void *arg, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus);
    void *usage_arg;
} stk_progress_config;

stk_progress *stk_progress_new(const stk_progress_config *config,
                               const stk_view *view); /* NULL: out of memory */
void stk_progress_event(stk_progress *progress, const stk_event_row *row);
/* Draws if it is time. Returns milliseconds until it wants to be called again, -1: only after the
 * next event. now_ms: the clock of the events. */
int64_t stk_progress_tick(stk_progress *progress, int64_t now_ms);
/* Takes the live lines away, so that anything may be printed; the next tick draws them again. */
void stk_progress_clear(stk_progress *progress);
/* Clears, flushes, frees. NULL is fine. */
void stk_progress_done(stk_progress *progress);

#endif
