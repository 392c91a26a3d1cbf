/* show_progress: what a user watches while a run goes on.
 *
 * On a terminal, finished steps scroll up as plain lines. Below them stand a live line for each
 * running step (elapsed time, memory, CPUs) and a bar for the run, redrawn at most ten times a
 * second. In a pipe, each step has a `start` and a `done` line. Both are buffered: an event costs a
 * few hundred nanoseconds, and only tick writes. A step of a growing run with more than 20 tasks
 * has a line when it begins, a line when all its tasks have ended, and lines for its first
 * failures. Runs of more than 200 steps count cached and skipped steps instead of listing them.
 * `quiet` prints nothing (stk_text_failures reports failures at the end). The caller folds a row
 * into the view first, then passes it to stk_progress_event.
 */
#ifndef STK_SHOW_PROGRESS_H
#define STK_SHOW_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "store/view/view.h"

typedef struct stk_progress stk_progress;

typedef struct stk_progress_config {
    FILE *out; /* usually stderr, or a stream without descriptor that ends there */
    bool tty;  /* draw live lines with cursor movement */
    bool colour;
    bool utf8;
    bool quiet;  /* nothing but failures */
    int columns; /* 0: asks the terminal before each drawing, so that it follows a resize */
    int rows;    /* 0: asks the terminal */
    /* Reports the usage of a running task; false: unknown. Called only for lines that are drawn, at
     * most ten times a second. May be NULL. Has the signature of stk_backend_ops.usage. */
    bool (*usage)(void *arg, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus);
    void *usage_arg;
    /* The i-th line that a running task is redrawing, such as a progress bar, or NULL: there is
     * none. May be NULL. */
    const char *(*bar)(void *arg, uint32_t task, uint32_t i);
    void *bar_arg;
    struct stk_eta *eta; /* how long the run has still to go (eta.h); or NULL */
} stk_progress_config;

stk_progress *stk_progress_new(const stk_progress_config *config,
                               const stk_view *view); /* NULL: out of memory */
void stk_progress_event(stk_progress *progress, const stk_event_row *row);
/* Draws if it is time. Returns the milliseconds until the next call, or -1: none is needed before
 * the next event. now_ms: the clock of the events. */
int64_t stk_progress_tick(stk_progress *progress, int64_t now_ms);
/* Erases the live lines only; finished ones wait. */
void stk_progress_erase(stk_progress *progress);
/* Draws the live lines now, below what the caller has printed. */
void stk_progress_redraw(stk_progress *progress, int64_t now_ms);
/* Erases the live lines, so that the caller can print. The next tick draws them again. */
void stk_progress_clear(stk_progress *progress);
/* Clears, flushes, frees. NULL is fine. */
void stk_progress_done(stk_progress *progress);

#endif
