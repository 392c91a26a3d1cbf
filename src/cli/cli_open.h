/* cli_open: --html and --open, pages that a command writes and shows. Private to the cli room. */
#ifndef STK_CLI_OPEN_H
#define STK_CLI_OPEN_H

#include <sys/types.h>

#include "cli/cli.h"

bool stk_cli_wants_page(const stk_cli *cli);
/* Writes the page to --html FILE, else to a new file of the temporary folder; --open has the
 * browser show it ($BROWSER, else xdg-open). Puts its path into `out`. STK_E_ENV: no browser could
 * be started; the page is there. */
int stk_cli_put_page(const stk_cli *cli, const stk_buf *html, stk_buf *out, stk_err *err);

/* A new file for a page that was given no name, only for its user; malloc'd path, NULL with *err.
 */
char *stk_cli_temporary_page(stk_err *err);
/* Starts the browser and doesn't wait for it: the caller does. STK_E_ENV: it can't be started. */
int stk_cli_begin_browser(const char *path, pid_t *ret_pid, stk_err *err);

#define STK_CLI_PAGE_OPTIONS                                                                       \
    {"html", 0, "FILE", "write it as a page, with curves and pictures"},                           \
    {                                                                                              \
        "open", 0, NULL, "show that page in the browser", false                                    \
    }

#endif
