/* Private to cli: commands that show one machine show all hosts of a stack (`--stack lab`). Each
 * host draws its own picture; those that answer in time stand one below the other, and a host that
 * doesn't has a line that says so. */
#ifndef STK_CLI_HOSTS_H
#define STK_CLI_HOSTS_H

#include "away/link/link.h"
#include "cli/cli.h"

/* What the hosts are asked for. */
typedef struct stk_cli_look {
    const char *op;       /* "gpus", "top": of stk_cli_far_ops, and the member in JSON */
    const char *form;     /* "text", "json", "lines" (each line begins with the host) */
    const char *topology; /* "yes", or NULL */
    int64_t period_ms;    /* between pictures */
    int64_t n_times;      /* pictures; 0: without end */
} stk_cli_look;

/* Shows the stack `name` of the current folder's stoker.yaml. The exit status: 3 if no host has
 * answered. STK_E_USAGE: its machines aren't hosts of SSH. */
int stk_cli_hosts(const stk_cli *cli, const char *name, const stk_cli_look *look, stk_err *err);

/* The same as a screen, with the keys of `stoker top`: each host keeps its own, keys go to one of
 * them. */
int stk_cli_hosts_screen(const stk_cli *cli, const char *name, bool processes, int64_t period_ms,
                         int64_t n_times, stk_err *err);

/* What a host does for that (`stoker far`). */
extern const stk_link_op stk_cli_far_ops[];

#endif
