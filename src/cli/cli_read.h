/* What the reading commands share: store, run, step and task of `RUN[/STEP[/ID]]` or `RUN STEP`.
 * Private to the cli room. */
#ifndef STK_CLI_READ_H
#define STK_CLI_READ_H

#include <stdio.h>

#include "base/json.h"
#include "cli/cli.h"
#include "show/show_text.h"
#include "store/view/view.h"

typedef struct stk_cli_read {
    stk_store *store;
    stk_view *view;
    bool has_step; /* a step was named … */
    uint32_t i_step;
    bool has_task; /* … or one task: of a run that doesn't grow both are the same */
    uint32_t task;
    int64_t rank; /* of a gang, where one was named (ID_node_K); -1: none */
    int64_t now_ms;
    stk_style style;
} stk_cli_read;

/* Opens the store for reading and the run that positional `i_arg` names (absent: the latest), with
 * the step behind its slash or in the next positional. */
int stk_cli_read_open(const stk_cli *cli, int i_arg, stk_cli_read *ret_read, stk_err *err);
void stk_cli_read_done(stk_cli_read *read);
/* A JSON object that was given as a word; `what` names it in messages ("--meta"). */
int stk_cli_object(const char *text, const char *what, stk_arena *arena, stk_json *ret,
                   stk_err *err);
/* How text looks on a stream. */
static inline stk_style stk_cli_style(FILE *out)
{
    return stk_style_of(out, stk_cli_colour(fileno(out)));
}

#define STK_CLI_READ_AUTO __attribute__((cleanup(stk_cli_read_done))) stk_cli_read

#endif
