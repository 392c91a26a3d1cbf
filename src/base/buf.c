#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

void stk_buf_done(stk_buf *buf)
{
    free(buf->data);
    *buf = STK_BUF_INIT(buf->max);
}

void stk_buf_clear(stk_buf *buf)
{
    buf->len = 0;
    buf->failed = false;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

static int room(stk_buf *buf, size_t more)
{
    if (buf->failed || more > buf->max - buf->len) {
        buf->failed = true;
        return -1;
    }
    size_t need = buf->len + more + 1;
    if (need > buf->cap) {
        size_t cap = MAX(128, buf->cap * 2);
        cap = MAX(cap, need);
        char *data = realloc(buf->data, cap);
        if (data == NULL) {
            buf->failed = true;
            return -1;
        }
        buf->data = data;
        buf->cap = cap;
    }
    return 0;
}

int stk_buf_add(stk_buf *buf, const void *data, size_t len)
{
    if (room(buf, len) < 0) {
        return -1;
    }
    if (len > 0) {
        memcpy(buf->data + buf->len, data, len);
    }
    buf->len += len;
    buf->data[buf->len] = '\0';
    return 0;
}

int stk_buf_text(stk_buf *buf, const char *text)
{
    return stk_buf_add(buf, text, strlen(text));
}

int stk_buf_separate(stk_buf *buf, const char *separator)
{
    if (buf->len == 0) {
        return 0;
    }
    return stk_buf_text(buf, separator);
}

int stk_buf_check(const stk_buf *buf, stk_err *err)
{
    if (!buf->failed) {
        return 0;
    }
    return stk_err_nomem(err);
}

char *stk_buf_keep(const stk_buf *buf, stk_arena *arena)
{
    if (buf->failed || buf->data == NULL) {
        return NULL;
    }
    return stk_arena_dupn(arena, buf->data, buf->len);
}

int stk_buf_percent(stk_buf *buf, const char *text, size_t n, const char *kept)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     (c != '\0' && (strchr("-._~", c) != NULL || strchr(kept, c) != NULL));
        if (plain) {
            (void)stk_buf_char(buf, text[i]);
        } else {
            (void)stk_buf_printf(buf, "%%%02X", c);
        }
    }
    return buf->failed ? -1 : 0;
}

int stk_buf_char(stk_buf *buf, char c)
{
    return stk_buf_add(buf, &c, 1);
}

int stk_buf_printf(stk_buf *buf, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || room(buf, (size_t)n) < 0) {
        buf->failed = true;
        return -1;
    }
    va_start(ap, fmt);
    (void)vsnprintf(buf->data + buf->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    buf->len += (size_t)n;
    return 0;
}

size_t stk_buf_utf8_len(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) {
        return 1;
    }
    size_t len = 0;
    if (s[0] >= 0xC2 && s[0] <= 0xF4) {
        len = 2u + (s[0] >= 0xE0) + (s[0] >= 0xF0);
    }
    if (len > n) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool is_bad = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0) ||
                  (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90);
    return len * !is_bad;
}

static bool is_plain(unsigned char c)
{
    return c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
}

int stk_buf_json_text(stk_buf *buf, const char *text, size_t len)
{
    const char *end = text + len;
    stk_buf_char(buf, '"');
    while (text < end) {
        const char *run = text;
        while (text < end && is_plain((unsigned char)*text)) {
            text++;
        }
        stk_buf_add(buf, run, (size_t)(text - run));
        if (text == end) {
            break;
        }
        size_t n = stk_buf_utf8_len(text, (size_t)(end - text));
        char c = *text;
        /* Pairs of a byte and its escape letter; the letters themselves never get here. */
        const char *at = c == '\0' ? NULL : strchr("\"\"\\\\\bb\ff\nn\rr\tt", c);
        if (n == 0) {
            stk_buf_text(buf, "\xEF\xBF\xBD");
        } else if (n > 1) {
            stk_buf_add(buf, text, n);
        } else if (at != NULL) {
            stk_buf_add(buf, (char[]){'\\', at[1]}, 2);
        } else {
            stk_buf_printf(buf, "\\u%04x", (unsigned)(unsigned char)c);
        }
        text += n == 0 ? 1 : n;
    }
    return stk_buf_char(buf, '"');
}

int stk_buf_json(stk_buf *buf, const char *text)
{
    return stk_buf_json_text(buf, text, strlen(text));
}

int stk_buf_html(stk_buf *buf, const char *text)
{
    for (const char *s = text; *s != '\0'; s++) {
        switch (*s) {
        case '&':
            stk_buf_text(buf, "&amp;");
            break;
        case '<':
            stk_buf_text(buf, "&lt;");
            break;
        case '>':
            stk_buf_text(buf, "&gt;");
            break;
        case '"':
            stk_buf_text(buf, "&quot;");
            break;
        case '\'':
            stk_buf_text(buf, "&#39;");
            break;
        default:
            stk_buf_char(buf, *s);
        }
    }
    return buf->failed ? -1 : 0;
}
