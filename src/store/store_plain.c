/* Recognises plain JSON in one pass over the bytes. A commit checks its data by parsing it as
 * readers do, which costs a short step more than the rest of the commit. Most data is so plain that
 * every JSON reader accepts it, so it needs no parsing. */
#include <string.h>

#include "store/store_private.h"

enum {
    DEPTH = 64,  /* nested lists and objects; readers allow more */
    DIGITS = 18, /* of a whole number; so many always fit 64 bits */
    FRACTION = 40
};

typedef struct plain {
    const char *at;
    uint64_t objects; /* bit set: the open item is an object; the innermost is the lowest bit */
    int depth;
} plain;

static void skip_space(plain *p)
{
    while (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r') {
        p->at++;
    }
}

/* Accepts ASCII without \u. */
static bool skip_text(plain *p)
{
    if (*p->at != '"') {
        return false;
    }
    for (p->at++; *p->at != '"'; p->at++) {
        unsigned char c = (unsigned char)*p->at;
        if (c < ' ' || c >= 0x7f) {
            return false;
        }
        if (c == '\\') {
            p->at++;
            if (*p->at == '\0' || strchr("\"\\/bfnrt", *p->at) == NULL) {
                return false;
            }
        }
    }
    p->at++;
    return true;
}

static size_t skip_digits(plain *p)
{
    const char *from = p->at;
    while (*p->at >= '0' && *p->at <= '9') {
        p->at++;
    }
    return (size_t)(p->at - from);
}

/* Accepts numbers without an exponent. */
static bool skip_number(plain *p)
{
    p->at += *p->at == '-';
    bool is_zero_first = *p->at == '0';
    size_t n = skip_digits(p);
    if (n == 0 || n > DIGITS || (is_zero_first && n > 1)) {
        return false;
    }
    if (*p->at == '.') {
        p->at++;
        n = skip_digits(p);
    }
    return n > 0 && n <= FRACTION;
}

static bool skip_word(plain *p, const char *word)
{
    size_t n = strlen(word);
    bool is = strncmp(p->at, word, n) == 0;
    if (is) {
        p->at += n;
    }
    return is;
}

static bool skip_scalar(plain *p)
{
    switch (*p->at) {
    case '"':
        return skip_text(p);
    case 't':
        return skip_word(p, "true");
    case 'f':
        return skip_word(p, "false");
    case 'n':
        return skip_word(p, "null");
    default:
        return skip_number(p);
    }
}

static bool skip_key(plain *p)
{
    skip_space(p);
    if (!skip_text(p)) {
        return false;
    }
    skip_space(p);
    if (*p->at != ':') {
        return false;
    }
    p->at++;
    skip_space(p);
    return true;
}

/* Opens '{' or '[' and moves to its first value; *ret_empty: it was empty, and is closed. */
static bool open_one(plain *p, bool *ret_empty)
{
    bool is_object = *p->at == '{';
    p->at++;
    skip_space(p);
    *ret_empty = *p->at == (is_object ? '}' : ']');
    if (*ret_empty) {
        p->at++;
        return true;
    }
    if (p->depth == DEPTH) {
        return false;
    }
    p->depth++;
    p->objects = p->objects << 1 | is_object;
    return !is_object || skip_key(p);
}

/* After a value: closes what ends here, then moves to the next value if something is still open. */
static bool close_some(plain *p)
{
    for (; p->depth > 0; p->depth--, p->objects >>= 1) {
        bool is_object = (p->objects & 1) != 0;
        skip_space(p);
        if (*p->at == ',') {
            p->at++;
            skip_space(p);
            return !is_object || skip_key(p);
        }
        if (*p->at != (is_object ? '}' : ']')) {
            return false;
        }
        p->at++;
    }
    return true;
}

bool stk_store_is_plain_object(const char *text)
{
    plain p = {.at = text};
    skip_space(&p);
    if (*p.at != '{') {
        return false;
    }
    do {
        bool closed = true;
        if (*p.at != '{' && *p.at != '[') {
            closed = skip_scalar(&p);
            if (!closed) {
                return false;
            }
        } else if (!open_one(&p, &closed)) {
            return false;
        }
        if (closed && !close_some(&p)) {
            return false;
        }
    } while (p.depth > 0);
    skip_space(&p);
    return *p.at == '\0';
}
