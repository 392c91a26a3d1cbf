/* prints: what tasks print appears on our own stdout and stderr while a run goes on.
 *
 * The lines of a task that runs alone appear as they are. While several tasks run, each line
 * follows "train │ ", and a rank's "train[2] │ ". In the style of flows (`--echo`) each line
 * follows
 * "[RUN/STEP/ID (pid P)] ", and sentences report a task's start and end.
 *
 * Prints whole lines, within a tenth of a second. Of a line that a program redraws (a progress bar:
 * text between carriage returns) only the last state is printed; stk_prints_bar shows the current
 * one. Secrets appear as stars because the logs have them so. All text goes through a stk_writer:
 * while the terminal is slow, lines wait in the logs and no task waits.
 */
#ifndef STK_SHOW_PRINTS_H
#define STK_SHOW_PRINTS_H

#include "show/writer.h"
#include "store/view/view.h"

typedef struct stk_prints stk_prints;

typedef struct stk_prints_config {
    bool flow;      /* the style of flows */
    bool to_stderr; /* print all of it there: stdout has JSON */
    bool utf8;
    struct {
        bool tty, colour;
    } streams[2]; /* our stdout and stderr */
} stk_prints_config;

stk_prints *stk_prints_new(const stk_prints_config *config, const stk_view *view,
                           stk_writer *writer); /* borrows all three; NULL: out of memory */
/* Call it after the view has folded the row. */
void stk_prints_event(stk_prints *prints, const stk_event_row *row);
/* Call it when the current attempt of `task` has a process, or when another machine runs it
 * (pid 0 or -1). */
void stk_prints_started(stk_prints *prints, uint32_t task, int64_t pid);
/* Reads new lines if it is time, at most about a megabyte. Returns the milliseconds until the next
 * call, or -1: none is needed before the next event. now_ms: any clock. */
int64_t stk_prints_tick(stk_prints *prints, int64_t now_ms);
/* True while lines that were read are not yet put out. */
bool stk_prints_has_lines(const stk_prints *prints);
/* Queues these lines with the writer. */
void stk_prints_put(stk_prints *prints);
/* True while an ended task has lines that were not read yet. */
bool stk_prints_is_behind(const stk_prints *prints);
/* The i-th line that the running task is redrawing, without escapes; NULL: there is none. Ranks of
 * a gang have one each, after "[RANK] "; 0 reads them anew. Valid until the next call. */
const char *stk_prints_bar(stk_prints *prints, uint32_t task, uint32_t i);
void stk_prints_free(stk_prints *prints); /* NULL is fine */

#endif
