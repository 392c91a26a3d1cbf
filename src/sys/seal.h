/* seal: keeps texts so that only this user can read them.
 *
 * AES-256-GCM, each time with a random nonce. The key is derived from 32 random bytes in
 * $XDG_CONFIG_HOME/stoker/secrets.key (~/.config if that isn't set), which the first use makes with
 * mode 0600. `about` says what the text belongs to: a sealed text opens only for the same `about`,
 * so that nobody can put it in another one's place. */
#ifndef STK_SYS_SEAL_H
#define STK_SYS_SEAL_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/* Appends nonce, encrypted text and tag as lower-case hex digits. STK_E_UNTRUSTED: others can read
 * the key; STK_E_ENV: the file has another size; STK_E_SYS. */
int stk_seal(const char *about, const char *text, size_t len, stk_buf *ret_hex, stk_err *err);
/* Appends the text. STK_E_USAGE: `hex` isn't what stk_seal wrote with this key and `about`. */
int stk_seal_open(const char *about, const char *hex, stk_buf *ret_text, stk_err *err);

#endif
