#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static void put(stk_err *err, int code, int sys, const char *fmt, va_list ap)
{
    memset(err, 0, sizeof *err);
    err->code = code;
    err->sys = sys;
    (void)vsnprintf(err->text, sizeof err->text, fmt, ap);
}

int stk_err_set(stk_err *err, int code, const char *fmt, ...)
{
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        put(err, code, 0, fmt, ap);
        va_end(ap);
    }
    return code;
}

int stk_err_sys(stk_err *err, int code, int sys, const char *fmt, ...)
{
    if (sys == ENOSPC || sys == EDQUOT) {
        code = STK_E_FULL;
    } else if (sys == ENOMEM) {
        code = STK_E_NOMEM;
    }
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        put(err, code, sys, fmt, ap);
        va_end(ap);
        size_t used = strlen(err->text);
        (void)snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(sys));
        if (code == STK_E_FULL) {
            stk_err_hint(err, STK_HINT_FULL);
        }
    }
    return code;
}

int stk_err_nomem(stk_err *err)
{
    return stk_err_set(err, STK_E_NOMEM, "out of memory");
}

int stk_err_if_null(const void *p, stk_err *err)
{
    if (p != NULL) {
        return 0;
    }
    return stk_err_nomem(err);
}

int stk_err_need(const void *p, const char *what, stk_err *err)
{
    if (p == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory %s", what);
    }
    return 0;
}

void stk_err_hint(stk_err *err, const char *fmt, ...)
{
    if (err != NULL) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(err->hint, sizeof err->hint, fmt, ap);
        va_end(ap);
    }
}

void stk_err_at(stk_err *err, const char *file, int line)
{
    if (err != NULL) {
        (void)snprintf(err->file, sizeof err->file, "%s", stk_text_or(file, ""));
        err->line = line;
    }
}

int stk_err_context(stk_err *err, const char *fmt, ...)
{
    if (err == NULL) {
        return STK_E_BUG;
    }
    char what[sizeof err->text];
    char joined[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    size_t n = strlen(what);
    memcpy(joined, what, n);
    (void)snprintf(joined + n, sizeof joined - n, ": %s", err->text);
    memcpy(err->text, joined, sizeof joined);
    return err->code;
}

const char *stk_err_format(const stk_err *err, char *buf, int size)
{
    char where[300] = "";
    if (err->file[0] != '\0' && err->line > 0) {
        (void)snprintf(where, sizeof where, "%s:%d: ", err->file, err->line);
    } else if (err->file[0] != '\0') {
        (void)snprintf(where, sizeof where, "%s: ", err->file);
    }
    (void)snprintf(buf, (size_t)size, "%s%s%s%s", where, err->text,
                   stk_text_when(err->hint[0], "; "), err->hint);
    return buf;
}

int stk_err_exit_status(int code)
{
    switch (code) {
#define X(name, value, exit_status, word)                                                          \
    case value:                                                                                    \
        return exit_status;
#include "tbl/errors.def"
#undef X
    default:
        return 3;
    }
}

const char *stk_err_word(int code)
{
    switch (code) {
#define X(name, value, exit_status, word)                                                          \
    case value:                                                                                    \
        return word;
#include "tbl/errors.def"
#undef X
    default:
        return "unknown";
    }
}
