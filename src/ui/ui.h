/* ui: the pages of `stoker ui`: runs, their tasks, logs and artifacts, and this host's devices,
 * made by a small HTTP server on the loopback interface.
 *
 * Every request needs the server's token (in the first URL, then in a cookie) and a Host header
 * that names the loopback interface or one of `hosts`. Pages are complete without JavaScript.
 * Everything that a user, a step or a run wrote is escaped; HTML of users is shown only in a
 * sandboxed frame. Changes are made by this program itself, as a user would type them, after a POST
 * with a token of its own from the same origin.
 *
 * One thread serves; each connection carries one request, and is closed when it isn't complete in
 * time. A store that machines share is shown by its mirror (away/mirror), which another thread
 * keeps fresh, so no page waits for it. Nothing is done while nobody looks. */
#ifndef STK_UI_H
#define STK_UI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { STK_UI_PORT = 8467, STK_UI_TOKEN_MIN = 16 };

typedef struct stk_ui_options {
    const char *program;       /* absolute path of this binary, which makes changes */
    const char *const *stores; /* paths, and what names a share; the first is shown first */
    uint32_t n_stores;
    bool skips_stores;  /* those that can't be opened are left out; an error is that of the last */
    int port;           /* 0: STK_UI_PORT, or any free one if that is taken */
    const char *prefix; /* of all paths, "/a/b"; NULL: none */
    const char *const
        *hosts;        /* further names in Host headers, of a proxy; NULL-terminated, or NULL */
    const char *token; /* at least STK_UI_TOKEN_MIN letters, digits, - and _; NULL: a random one */
    bool read_only;    /* no changes */
} stk_ui_options;

typedef struct stk_ui stk_ui;

/* Opens the stores and the port; nothing is answered yet. What `options` points to must live as
 * long as the server. Errors: those of the store and of the share; STK_E_USAGE: a wrong prefix or
 * token, a store that is given twice; STK_E_BUSY: the port is taken. */
int stk_ui_open(const stk_ui_options *options, stk_ui **ret_ui, stk_err *err);
/* The address of the first page, with the token. */
const char *stk_ui_url(const stk_ui *ui);
/* Answers until SIGINT, SIGTERM or SIGHUP. */
int stk_ui_serve(stk_ui *ui, stk_err *err);
void stk_ui_close(stk_ui *ui); /* NULL is fine */

#endif
