/* A growing byte buffer with a maximum, always NUL-terminated. After a failed append it stays
 * failed (`failed` set, further appends do nothing), so a writer checks once at the end.
 * Zero-initialise with STK_BUF_INIT(max). */
#ifndef STK_BASE_BUF_H
#define STK_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_buf {
    char *data; /* NULL until the first append; then data[len] == 0 */
    size_t len;
    size_t cap;
    size_t max; /* bytes, without the NUL */
    bool failed;
} stk_buf;

#define STK_BUF_INIT(max_bytes) ((stk_buf){.max = (max_bytes)})

void stk_buf_done(stk_buf *buf);
void stk_buf_clear(stk_buf *buf);
int stk_buf_add(stk_buf *buf, const void *data,
                size_t len); /* 0, or -1 when full or out of memory */
int stk_buf_text(stk_buf *buf, const char *text);
int stk_buf_char(stk_buf *buf, char c);
int stk_buf_printf(stk_buf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A quoted JSON string; bytes that aren't UTF-8 become U+FFFD. */
int stk_buf_json_text(stk_buf *buf, const char *text, size_t len);
int stk_buf_json(stk_buf *buf, const char *text); /* the same of a C string */
/* Length of the UTF-8 sequence at `s`, which has `n` readable bytes; 0: no valid sequence starts
 * here. */
size_t stk_buf_utf8_len(const char *s, size_t n);
int stk_buf_html(stk_buf *buf, const char *text); /* &<>"' escaped */
/* Percent-encodes text for a URL: keeps letters, digits, - . _ ~ and the characters in `kept`. */
int stk_buf_percent(stk_buf *buf, const char *text, size_t n, const char *kept);

/* Appends `separator`, unless the buffer is empty. */
int stk_buf_separate(stk_buf *buf, const char *separator);
/* STK_E_NOMEM if an append failed, else 0. */
int stk_buf_check(const stk_buf *buf, stk_err *err);
/* A copy of the text; NULL if an append failed, the buffer is empty or memory is out. */
char *stk_buf_keep(const stk_buf *buf, stk_arena *arena);

#define STK_BUF_AUTO __attribute__((cleanup(stk_buf_done))) stk_buf

#endif
