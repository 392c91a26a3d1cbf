/* A run that is being cancelled beside what a screen shows: this program itself does it, with the
 * words that a user would type. Private to the cli room. */
#ifndef STK_CLI_CANCELLING_H
#define STK_CLI_CANCELLING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

typedef struct stk_cli_cancelling {
    pid_t pid;         /* 0: nothing is being cancelled */
    int said_fd;       /* what that says; -1 without */
    const char *stack; /* to be tried next, or NULL */
    char run[128];
} stk_cli_cancelling;

#define STK_CLI_CANCELLING_NONE ((stk_cli_cancelling){.said_fd = -1})

/* Begins. `store` NULL: that of the current folder. `stack` (it must live as long; or NULL): if the
 * store's run can't be cancelled, --stack is tried. Thread-safe. STK_E_BUSY: another one goes on.
 */
int stk_cli_cancelling_begin(stk_cli_cancelling *c, const char *store, const char *stack,
                             const char *run, stk_err *err);
/* True once, when it has ended: what it said (its first line), and whether it could. */
bool stk_cli_cancelling_hear(stk_cli_cancelling *c, char *ret_said, size_t size, bool *ret_done);
void stk_cli_cancelling_done(stk_cli_cancelling *c);

#endif
