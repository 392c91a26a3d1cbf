/* prints_line: one line of a task's output as a person reads it. Private to this room. */
#ifndef STK_SHOW_PRINTS_LINE_H
#define STK_SHOW_PRINTS_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The last state of a line that was redrawn: the text between its last two carriage returns, or
 * behind the last one if text follows there. `text` has no newline. */
const char *stk_line_last_state(const char *text, size_t *len);
/* Adds the line. For a terminal only colours and tabs stay of its control characters, and colours
 * end with the line. `bare`: colours go as well. */
void stk_line_put(stk_buf *out, const char *text, size_t len, bool tty, bool bare);
enum { STK_LINE_RANKS = 16, STK_LINE_BAR = 400 /* bytes kept of a line that is being redrawn */ };

/* Lines that the ranks of a gang redraw now: "[2] 45%|████▌     |". */
typedef struct stk_line_bars {
    uint32_t n;
    char lines[STK_LINE_RANKS][STK_LINE_BAR];
} stk_line_bars;

/* Reads them from the ends of the ranks' logs in the attempt directory `dir`. */
void stk_line_read_bars(const char *dir, stk_line_bars *ret);
/* The current state of an unfinished line, without escapes, in `ret`; "": nothing can be seen. */
void stk_line_bar(const char *text, size_t len, char ret[STK_LINE_BAR]);
/* The rank of a line that begins with "[2] " or "[node 1] [2] ", or -1; skips that. */
int64_t stk_line_rank(const char **text, size_t *len);

/* Where a log is in a stack that Python's faulthandler writes, innermost call first. */
typedef enum stk_line_stack {
    STK_STACK_NONE,
    STK_STACK_BEGINS,
    STK_STACK_OF_USER,
    STK_STACK_OF_US
} stk_line_stack;

bool stk_line_has_stack(stk_line_stack at, const char *text, size_t len);
/* True for a frame that only led to the user's function; the innermost one is shown at any rate. */
bool stk_line_is_ours(stk_line_stack *at, const char *line, size_t len);

/* Lines that were printed already: a multiset of their digests. */
typedef struct stk_line_set {
    uint64_t *items;
    size_t n, cap;
    bool is_sorted;
} stk_line_set;

void stk_line_set_add(stk_line_set *set, const char *text, size_t len);
/* True if the line is in the set; takes it out. */
bool stk_line_set_take(stk_line_set *set, const char *text, size_t len);
void stk_line_set_free(stk_line_set *set);

#endif
