/* The variables of a text, as a Dockerfile's ENV has them: $NAME, ${NAME}, ${NAME:-word} (word
 * where it is unset or empty), ${NAME:+word} (word where it isn't); without the colon only "unset"
 * counts.
 * `\$` is a dollar sign. A variable that isn't there is empty; what is no variable stays as it is.
 * Needs nothing but libc: stk-runner has it, too. */
#ifndef STK_BASE_EXPAND_H
#define STK_BASE_EXPAND_H

enum { STK_EXPAND_MAX = 1 << 20, STK_EXPAND_DEPTH = 16 };

/* From malloc(); NULL: out of memory, more than STK_EXPAND_MAX bytes, or nested too deep (errno).
 */
char *stk_expand(const char *text, const char *(*get)(void *arg, const char *name), void *arg);

#endif
