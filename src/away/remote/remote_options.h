/* Options of a backend: a step's over the stack's, checked by the backend's table
 * (src/tbl/NAME_options.def) and found by name. */
#ifndef STK_REMOTE_OPTIONS_H
#define STK_REMOTE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

/* TEXT is one line (a number may stand for it), TEXTS a list of such lines or a single one. WHOLE
 * and NUMBER may be texts, as a command line gives them. */
typedef enum {
    STK_OPTION_TEXT,
    STK_OPTION_WHOLE,  /* from 0 on */
    STK_OPTION_NUMBER, /* above 0 */
    STK_OPTION_BOOL,
    STK_OPTION_TEXTS
} stk_option_type;

typedef enum {
    STK_OPTION_FLAG,   /* passed to the engine's own command under its name */
    STK_OPTION_JOB,    /* honoured in another way */
    STK_OPTION_STACK,  /* of the stack, not of a step */
    STK_OPTION_REFUSED /* `text` is the nearest alternative */
} stk_option_how;

typedef struct stk_option_row {
    const char *name;
    stk_option_type type;
    stk_option_how how;
    const char *text;
} stk_option_row;
/* A row of a table, from its X(name, TYPE, HOW, "text"). */
#define STK_OPTION_ROW(name, type, how, text) {#name, STK_OPTION_##type, STK_OPTION_##how, text},

typedef struct stk_option_table {
    const stk_option_row *rows;
    uint32_t n;
    const char *name; /* of the backend: "SSH" */
    const char *page; /* where its options are described: "docs/ssh.md lists them" */
} stk_option_table;

typedef struct stk_remote_options {
    const stk_json *layers[2]; /* objects, the first has precedence; NULL: none */
} stk_remote_options;

/* STK_E_SPEC: an unknown name (with a did-you-mean), a wrong type, or a refused option. `step`
 * NULL: `options` are the stack's. Texts live in `arena`. */
int stk_remote_options_read(const stk_option_table *table, const char *step, const char *options,
                            const char *stack_options, stk_arena *arena, stk_remote_options *ret,
                            stk_err *err);
const stk_json *stk_remote_option(const stk_remote_options *options,
                                  const char *name); /* or NULL */
const char *stk_remote_option_text(const stk_remote_options *options,
                                   const char *name); /* or NULL */
double stk_remote_option_number(const stk_remote_options *options, const char *name,
                                double otherwise);
/* A list, or a single text as a list of one; 0: it isn't given. */
uint32_t stk_remote_option_texts(const stk_remote_options *options, const char *name,
                                 const stk_json **ret);

#endif
