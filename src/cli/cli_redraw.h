/* A picture that is redrawn. Private to the cli room. */
#ifndef STK_CLI_REDRAW_H
#define STK_CLI_REDRAW_H

#include "base/buf.h"
#include "cli/cli.h"

typedef struct stk_cli_frame {
    bool is_screen;    /* on a terminal that is redrawn; else pictures follow each other */
    bool is_due;       /* the period is over; else only a key or the terminal's size has changed */
    int rows, columns; /* of the terminal; 0: no limit */
} stk_cli_frame;

typedef struct stk_cli_picture {
    /* Appends the whole picture; on a screen, its last line has no end. 1 ends the loop, < 0 with
     * its error. */
    int (*draw)(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err);
    /* A key (a byte, or STK_KEY_* of show/top/top.h). Returns true to end. NULL: q ends. */
    bool (*key)(void *arg, int key);
    void *arg;
} stk_cli_picture;

/* True if pictures can replace each other on stdout: a terminal that moves its cursor. */
bool stk_cli_has_screen(void);

/* On a terminal each picture replaces the last one until q, Ctrl-C or Ctrl-D, and then the screen's
 * earlier contents come back; so they do for SIGTERM, SIGHUP and Ctrl-Z. Elsewhere the pictures
 * follow each other. `n_times` 0: without end. A picture is drawn anew, before it is due, after a
 * key, a change of the terminal's size, and the end of a child. */
int stk_cli_redraw(const stk_cli *cli, int64_t period_ms, int64_t n_times,
                   const stk_cli_picture *picture, stk_err *err);

#endif
