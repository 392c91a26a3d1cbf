/* What ssh says when it fails, as an error with a way out. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "away/link/link_private.h"
#include "base/text.h"

int stk_link_env(stk_err *err, int sys, const char *fmt, ...)
{
    char text[sizeof((stk_err *)0)->text];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    stk_err_set(err, STK_E_ENV, "%s", text);
    if (err != NULL) {
        err->sys = sys;
    }
    return STK_E_ENV;
}

enum { SSH_FAILED = 255, LINES_SHOWN = 3 };

static bool says(const link_ssh *ssh, const char *words)
{
    return strstr(ssh->words, words) != NULL;
}

/* Frames, warnings and the like. */
static bool is_noise(const char *line)
{
    return *line == '\0' || *line == '@' || strncmp(line, "** ", 3) == 0 ||
           strncmp(line, "Warning: Permanently added", 26) == 0;
}

const char *stk_link_ssh_words(const link_ssh *ssh, char *ret, size_t size)
{
    char text[LINK_WORDS];
    const char *lines[LINES_SHOWN] = {NULL};
    char *rest = NULL;
    size_t n = 0;
    (void)snprintf(text, sizeof text, "%s", ssh->words);
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        if (!is_noise(line)) {
            memmove(lines, lines + 1, sizeof lines - sizeof *lines);
            lines[LINES_SHOWN - 1] = line;
        }
    }
    ret[0] = '\0';
    for (size_t i = 0; i < LINES_SHOWN && n < size; i++) {
        if (lines[i] != NULL) {
            n += (size_t)snprintf(ret + n, size - n, "%s%s", stk_text_when(n > 0, "; "), lines[i]);
        }
    }
    stk_text_tame(ret);
    return ret;
}

static int explain_changed(const link_ssh *ssh, const char *host, stk_err *err)
{
    char where[300] = "";
    const char *at = strstr(ssh->words, "Offending ");
    const char *file = at == NULL ? NULL : strstr(at, " key in ");
    if (file != NULL) {
        file += strlen(" key in ");
        (void)snprintf(where, sizeof where, " (the known one is in %.*s)",
                       (int)strcspn(file, "\r\n"), file);
        stk_text_tame(where);
    }
    stk_err_set(err, STK_E_UNTRUSTED,
                "the host key of '%s' has changed, so another machine may be answering%s", host,
                where);
    stk_err_hint(err,
                 "ask its administrator; only if the key was changed on purpose, remove the known "
                 "one with ssh-keygen -R, and accept the new one: ssh %.60s",
                 host);
    return STK_E_UNTRUSTED;
}

static int explain_unknown(const char *host, stk_err *err)
{
    stk_err_set(err, STK_E_UNTRUSTED, "the host key of '%s' isn't known here", host);
    stk_err_hint(err,
                 "run ssh %.100s once, and accept the key if its fingerprint is the one that the "
                 "machine's administrator names",
                 host);
    return STK_E_UNTRUSTED;
}

static int explain_denied(const char *words, const char *host, stk_err *err)
{
    (void)stk_link_env(err, EACCES, "'%s' doesn't let us in: %s", host, words);
    stk_err_hint(err,
                 "Stoker can't type a password: `ssh -o BatchMode=yes %.60s true` must work, by a "
                 "key (ssh-copy-id) or an agent",
                 host);
    return STK_E_ENV;
}

/* ssh's own failure: 0 if it is none of those that have a name. */
static int explain_refusal(const link_ssh *ssh, const char *words, const char *host, stk_err *err)
{
    if (says(ssh, "REMOTE HOST IDENTIFICATION HAS CHANGED")) {
        return explain_changed(ssh, host, err);
    }
    if (says(ssh, "Host key verification failed") || says(ssh, "host key is known for")) {
        return explain_unknown(host, err);
    }
    if (says(ssh, "Permission denied (") || says(ssh, "Too many authentication failures")) {
        return explain_denied(words, host, err);
    }
    if (says(ssh, "Name or service not known") || says(ssh, "No address associated")) {
        (void)stk_link_env(err, ENXIO, "there is no host '%s': %s", host, words);
        stk_err_hint(err, "names are those of ~/.ssh/config and of the network");
        return STK_E_ENV;
    }
    return 0;
}

/* Our program couldn't be started there. */
static int explain_start(const link_ssh *ssh, const char *words, const char *host, int status,
                         stk_err *err)
{
    if (says(ssh, "No space left on device") || says(ssh, "Disk quota exceeded")) {
        stk_err_set(err, STK_E_FULL, "'%s' has no room for Stoker in ~/.cache/stoker: %s", host,
                    words);
        stk_err_hint(err, "free some there");
        return STK_E_FULL;
    }
    (void)stk_link_env(err, ENOEXEC, "'%s' can't run Stoker (exit status %d): %s", host, status,
                       stk_text_or(stk_text_if_any(words), "it doesn't say why"));
    stk_err_hint(err, "it needs Linux, /bin/sh, tar, and a writable ~/.cache from which programs "
                      "may be run");
    return STK_E_ENV;
}

int stk_link_ssh_explain(const link_ssh *ssh, const char *host, bool was_up, int status,
                         stk_err *err)
{
    char words[600];
    bool is_theirs = WIFEXITED(status) && WEXITSTATUS(status) != SSH_FAILED;
    (void)stk_link_ssh_words(ssh, words, sizeof words);
    int rc = is_theirs ? 0 : explain_refusal(ssh, words, host, err);
    if (rc < 0) {
        return rc;
    }
    if (is_theirs && !was_up) {
        return explain_start(ssh, words, host, WEXITSTATUS(status), err);
    }
    const char *why = stk_text_or(stk_text_if_any(words), "ssh ended without a word");
    if (was_up) {
        return stk_link_env(err, ECONNRESET, "the connection to '%s' broke: %s", host, why);
    }
    return stk_link_env(err, ENOTCONN, "can't reach '%s': %s", host, why);
}
