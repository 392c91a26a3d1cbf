/* Errors: the caller owns the record, and the function that detects the failure fills it. No
 * allocation, no thread-local state.
 *
 * Functions return 0 or a negative STK_E_ code; `stk_err *err` is the last parameter and may be
 * NULL. The text names the object, the value and the remedy; the optional hint is a second
 * sentence. `file`/`line` point into the user's document, not into our source. Library code never
 * logs or exits.
 *
 *     return stk_err_set(err, STK_E_SPEC, "step '%s': unknown key '%s'", step, key); */
#ifndef STK_BASE_ERR_H
#define STK_BASE_ERR_H

#include <errno.h>
#include <stdbool.h>

enum {
#define X(name, value, exit_status, word) STK_E_##name = value,
#include "tbl/errors.def"
#undef X
};

typedef struct stk_err {
    int code;       /* STK_E_… */
    int sys;        /* errno, or 0 */
    int line;       /* 1-based line in `file`, or 0 */
    char file[256]; /* the user's document, or "" */
    char text[768];
    char hint[256];
} stk_err;

/* Returns `code`, so that callers can `return stk_err_set(…)`. Overwrites the previous error. */
int stk_err_set(stk_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As stk_err_set, followed by ": <strerror(sys)>". ENOSPC and EDQUOT turn the code into STK_E_FULL,
 * ENOMEM into STK_E_NOMEM. */
int stk_err_sys(stk_err *err, int code, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* STK_E_NOMEM, "out of memory". */
int stk_err_nomem(stk_err *err);
/* stk_err_nomem() if `p` is NULL, else 0. */
int stk_err_if_null(const void *p, stk_err *err);
/* The same with the text "no memory `what`", as in "no memory for a build". */
int stk_err_need(const void *p, const char *what, stk_err *err);
/* The way out of STK_E_FULL; stk_err_sys gives it. */
#define STK_HINT_FULL "free some there (`df -h`, and `df -i` for inodes), then try again"
void stk_err_hint(stk_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void stk_err_at(stk_err *err, const char *file, int line);
/* Prefixes the text with "what: ". Returns err->code. */
int stk_err_context(stk_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* 0 for the code of an error that doesn't matter to the caller, else `rc`. */
static inline int stk_err_but(int rc, int code)
{
    return rc == code ? 0 : rc;
}

/* errno if a call failed, else 0. */
static inline int stk_errno_if(bool failed)
{
    return failed ? errno : 0;
}

/* "file:line: text; hint" into buf; returns buf. */
const char *stk_err_format(const stk_err *err, char *buf, int size);
int stk_err_exit_status(int code);
const char *stk_err_word(int code);

/* Returns from the calling function if `call` is negative. Resources still open need a cleanup
 * attribute (STK_BUF_AUTO, STK_ARENA_AUTO, STK_TEXT_AUTO, …). */
#define STK_TRY(call)                                                                              \
    do {                                                                                           \
        int stk_try_rc_ = (call);                                                                  \
        if (stk_try_rc_ < 0) {                                                                     \
            return stk_try_rc_;                                                                    \
        }                                                                                          \
    } while (0)

#endif
