/* top: what runs on this host now, across all runs, and what its devices do: one picture as text or
 * JSON, or a screen that a user watches and steers by keys.
 *
 * `stk_top` takes the pictures and keeps the last minutes of each device. `stk_top_screen` draws
 * them. Neither touches the terminal: the caller passes keys and writes what was drawn. */
#ifndef STK_SHOW_TOP_H
#define STK_SHOW_TOP_H

#include "show/show_text.h"

typedef struct stk_top stk_top;

/* Takes the first sample: CPU usage is the difference of two. *ret must be closed, even after an
 * error. */
int stk_top_open(stk_top **ret, stk_err *err);
void stk_top_close(stk_top *top); /* NULL is fine */
/* Takes a picture, which is valid until the next. */
int stk_top_look(stk_top *top, stk_err *err);
/* Takes a picture and adds it in at most `max_lines` lines (0: no limit); `style` NULL: as JSON. */
int stk_top_draw(stk_top *top, const stk_style *style, int max_lines, stk_buf *out, stk_err *err);

/* --- the screen --- */

/* Keys beyond a byte of text; a byte stands for itself. */
enum {
    STK_KEY_ENTER = '\r',
    STK_KEY_TAB = '\t',
    STK_KEY_ESCAPE = 27,
    STK_KEY_ERASE = 127,
    STK_KEY_UP = 256,
    STK_KEY_DOWN,
    STK_KEY_PAGE_UP,
    STK_KEY_PAGE_DOWN,
    STK_KEY_HOME,
    STK_KEY_END,
    STK_KEY_LEFT,
    STK_KEY_RIGHT,
    STK_KEY_NONE /* a key that has no name here */
};

typedef enum { STK_TOP_STAY, STK_TOP_QUIT, STK_TOP_CANCEL } stk_top_act;

typedef struct stk_top_screen stk_top_screen;

/* `processes`: begins with the programs on the devices instead of the steps. NULL: out of memory.
 * `top` must live longer. */
stk_top_screen *stk_top_screen_new(stk_top *top, bool processes);
void stk_top_screen_free(stk_top_screen *screen); /* NULL is fine */
/* What the caller must do: nothing, end, or cancel the run of stk_top_screen_asked. */
stk_top_act stk_top_screen_key(stk_top_screen *screen, int key);
/* The run that the user said yes to, and its store's folder. */
void stk_top_screen_asked(const stk_top_screen *screen, const char **ret_store,
                          const char **ret_run);
/* Whether keys are letters of a filter, or the answer to a question. */
bool stk_top_screen_types(const stk_top_screen *screen);
/* A message in the last line, until a key or some seconds later. */
void stk_top_screen_say(stk_top_screen *screen, const char *text, bool is_bad);
/* Adds the screen: at most `rows` lines of style->columns columns, the last one without its end. */
int stk_top_screen_draw(stk_top_screen *screen, const stk_style *style, int rows, stk_buf *out,
                        stk_err *err);

#endif
