/* Shared by commands that read a store: opens store and run, and finds the step and task of
 * `RUN[/STEP[/ID]]` or `RUN STEP`. Private to the cli room. */
#ifndef STK_CLI_READ_H
#define STK_CLI_READ_H

#include <stdio.h>

#include "base/json.h"
#include "cli/cli.h"
#include "show/cost.h"
#include "show/show_text.h"
#include "store/view/view.h"

typedef struct stk_cli_read {
    stk_store *store;
    stk_view *view;
    bool has_step; /* a step is named … */
    uint32_t i_step;
    bool has_task; /* … or one task; the same unless the run grows */
    uint32_t task;
    int64_t rank; /* the rank if ID_node_K names one, else -1 */
    int64_t now_ms;
    stk_style style;
} stk_cli_read;

/* Opens the store for reading, and the run that positional `i_arg` names (absent: the latest). The
 * step follows a slash or is the next positional. */
int stk_cli_read_open(const stk_cli *cli, int i_arg, stk_cli_read *ret_read, stk_err *err);
void stk_cli_read_done(stk_cli_read *read);
/* Parses a JSON object from the command line; `what` names it in errors ("--meta"). */
int stk_cli_object(const char *text, const char *what, stk_arena *arena, stk_json *ret,
                   stk_err *err);
/* The style of text on a stream. */
static inline stk_style stk_cli_style(FILE *out)
{
    return stk_style_of(out, stk_cli_colour(fileno(out)));
}

#define STK_CLI_READ_AUTO __attribute__((cleanup(stk_cli_read_done))) stk_cli_read

/* The prices for the store's runs; *ret NULL: there are none, or a line on stderr says why not. */
void stk_cli_prices(const stk_store *store, stk_cost **ret);

#endif
