/* JSON-shaped documents: a tree in an arena in which every node knows its line.
 *
 * One tree serves JSON (read here) and YAML (model/spec/spec_yaml.c builds the same nodes), so
 * whoever checks a document can name the line of whatever is wrong with it. A node is 16 bytes.
 * Numbers keep their digits as written, so they survive a round trip whatever their size (but a
 * real must be within a double's range). Text is valid UTF-8 and may hold NUL bytes (escaped ones),
 * keys may not. There is no NaN and no infinity. Duplicate keys are errors.
 */
#ifndef STK_BASE_JSON_H
#define STK_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"

typedef enum {
    STK_JSON_NULL,
    STK_JSON_BOOL,
    STK_JSON_INT,
    STK_JSON_REAL,
    STK_JSON_TEXT,
    STK_JSON_LIST,
    STK_JSON_MAP
} stk_json_kind;

typedef struct stk_json {
    union {
        const char *text; /* TEXT, and the digits of INT and REAL; NUL-terminated, n bytes */
        const struct stk_json *items; /* LIST: n nodes. MAP: 2n nodes: key, value, key, value … */
        bool truth;                   /* BOOL */
    };
    uint32_t n; /* bytes of text, items of a list, members of a map */
    uint32_t kind : 4;
    uint32_t line : 28; /* 1-based; of a map: where it begins */
} stk_json;

/* --- reading --- */

typedef struct stk_json_limits {
    size_t bytes;
    size_t nodes; /* aliases expanded */
    int depth;    /* nested lists and maps, at most STK_LIMIT_DEPTH */
} stk_json_limits;

/* Reads one JSON document into `arena`. `path` is used in messages. Errors: STK_E_SPEC with the
 * line, STK_E_LIMIT, STK_E_NOMEM. */
int stk_json_parse(const char *text, size_t len, const char *path, const stk_json_limits *limits,
                   stk_arena *arena, stk_json *ret_root, stk_err *err);

/* --- asking --- */

static inline const stk_json *stk_json_key(const stk_json *map, uint32_t i)
{
    return &map->items[2 * (size_t)i];
}
static inline const stk_json *stk_json_value(const stk_json *map, uint32_t i)
{
    return &map->items[2 * (size_t)i + 1];
}
/* The member's value, or NULL: no such key, or not a map. Walks the keys. */
const stk_json *stk_json_get(const stk_json *map, const char *key);
bool stk_json_is(const stk_json *text, const char *word);
/* Plain C text, or NULL when it is no TEXT or holds a NUL byte. */
const char *stk_json_text(const stk_json *node);
bool stk_json_int(const stk_json *node, int64_t *ret_number); /* false: no INT, or too large */
bool stk_json_real(const stk_json *node, double *ret_number); /* INT or REAL */
/* What of a value a run's record can't give back, in words ("a whole number …"), or NULL: it keeps
 * all. *ret_digits (may be NULL): the number, where it is one. */
const char *stk_json_not_kept(const stk_json *node, const char **ret_digits);
bool stk_json_is_utf8(const char *text, size_t len);
const char *stk_json_kind_words(stk_json_kind kind); /* "a list", "text" … */
/* The shortest JSON number that reads back as `number` (finite), with a '.' or an exponent. */
void stk_json_format_real(double number, char ret_text[32]);

/* --- writing --- */

/* Canonical text: no spaces, keys in their order. Failure shows in buf->failed. */
void stk_json_dump(const stk_json *node, stk_buf *buf);
/* The same in an arena; NULL when out of memory. */
const char *stk_json_dump_in(const stk_json *node, stk_arena *arena);

/* --- writing member by member: `{` and `}` are the caller's --- */

/* "key": with a comma before it, unless it is the first of its object. */
void stk_json_put_key(stk_buf *out, const char *key);
/* A member; NULL and numbers below 0 are unknown: null. */
void stk_json_put_text(stk_buf *out, const char *key, const char *text);
/* A list of texts; `texts` is NULL-terminated, or NULL: an empty one. */
void stk_json_put_texts(stk_buf *out, const char *key, const char *const *texts);
void stk_json_put_int(stk_buf *out, const char *key, int64_t number);
void stk_json_put_real(stk_buf *out, const char *key, double number);
void stk_json_put_bool(stk_buf *out, const char *key, int truth);

/* --- building, for readers of other notations --- */

typedef struct stk_json_frame {
    size_t start;    /* first pending node of this list or map */
    size_t n_before; /* nodes counted before it */
    uint32_t line;
    stk_json_kind kind;
    int height; /* of the highest child so far */
} stk_json_frame;

typedef struct stk_json_builder {
    stk_arena *arena;
    const char *path;
    stk_err *err;
    stk_json_limits limits;
    stk_json *pending; /* children of the lists and maps that are still open */
    size_t n_pending, cap_pending;
    size_t n_nodes;
    int depth;
    size_t last_nodes; /* of the node added or closed last: nodes in it, itself included … */
    int last_height;   /* … and how deep lists and maps are nested in it */
    stk_json_frame frames[STK_LIMIT_DEPTH];
} stk_json_builder;

/* Release with stk_json_build_done. Every call returns 0 or fills `err`. */
void stk_json_build_init(stk_json_builder *b, stk_arena *arena, const char *path,
                         const stk_json_limits *limits, stk_err *err);
void stk_json_build_done(stk_json_builder *b);
bool stk_json_build_wants_key(const stk_json_builder *b);
/* A scalar, a key, or a finished node that holds `n_nodes` nodes and is `height` deep (an alias).
 */
int stk_json_build_add(stk_json_builder *b, const stk_json *node, size_t n_nodes, int height);
int stk_json_build_open(stk_json_builder *b, stk_json_kind kind, int line);
int stk_json_build_close(stk_json_builder *b);
/* STK_E_SPEC at `line`: fmt. */
int stk_json_build_fail(stk_json_builder *b, int code, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
