/* Expands variables as a Dockerfile's ENV does: $NAME, ${NAME}, ${NAME:-word} (word if unset or
 * empty), ${NAME:+word} (word if set and not empty). Without the colon, an empty variable counts as
 * set.
 * `\$` is a dollar sign. An unset variable expands to nothing; text that is not a variable stays as
 * it is. Needs only libc, because stk-runner uses it too. */
#ifndef STK_BASE_EXPAND_H
#define STK_BASE_EXPAND_H

enum { STK_EXPAND_MAX = 1 << 20, STK_EXPAND_DEPTH = 16 };

/* malloc'd. NULL (with errno): out of memory, more than STK_EXPAND_MAX bytes, or nested too deep.
 */
char *stk_expand(const char *text, const char *(*get)(void *arg, const char *name), void *arg);

#endif
