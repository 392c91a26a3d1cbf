/* Reads and writes JSON (decision 0012): a tree in an arena in which every node knows its line, and
 * a writer of members.
 *
 * One tree serves JSON (read here) and YAML (base/yaml.c builds the same nodes), so that a check of
 * a document can report the line of an error. A node is 16 bytes. Numbers keep their digits as
 * written, so they survive a round trip whatever their size (a real must be within a double's
 * range). Text is valid UTF-8 and may hold NUL bytes (escaped ones); keys may not. NaN and infinity
 * do not exist. Duplicate keys are errors. */
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
    uint32_t kind : 3;
    uint32_t indexed : 1; /* of a map: a hash table of its keys follows its members */
    uint32_t made : 1;    /* a list or map made by stk_json_set or stk_json_append */
    uint32_t line : 27;   /* 1-based; for a map, where it begins; 0: not from a document */
} stk_json;

/* --- reading --- */

typedef struct stk_json_limits {
    size_t bytes;
    size_t nodes; /* aliases expanded */
    int depth;    /* nested lists and maps */
    /* A program wrote it: whole numbers must fit 64 bits, text may not hold half a surrogate pair,
     * and of duplicate keys the last one counts. */
    bool by_program;
} stk_json_limits;

/* Reads one JSON document into `arena`. `path` is used in messages. Errors: STK_E_SPEC with the
 * line, STK_E_LIMIT, STK_E_NOMEM. */
int stk_json_parse(const char *text, size_t len, const char *path, const stk_json_limits *limits,
                   stk_arena *arena, stk_json *ret_root, stk_err *err);
/* Parses text of any size that a program wrote. Returns NULL if `text` is NULL or damaged, or
 * memory is out. */
extern const stk_json_limits stk_json_by_program;
const stk_json *stk_json_read(stk_arena *arena, const char *text);
const stk_json *stk_json_readn(stk_arena *arena, const char *text, size_t len);

/* --- asking: a NULL node behaves like an empty one --- */

static inline const stk_json *stk_json_key(const stk_json *map, uint32_t i)
{
    return &map->items[2 * (size_t)i];
}
static inline const stk_json *stk_json_value(const stk_json *map, uint32_t i)
{
    return &map->items[2 * (size_t)i + 1];
}
/* The member's value, or NULL if there is no such key or `map` is no map. */
const stk_json *stk_json_get(const stk_json *map, const char *key);
static inline bool stk_json_is_kind(const stk_json *node, stk_json_kind kind)
{
    return node != NULL && node->kind == kind;
}
static inline bool stk_json_is_map(const stk_json *node)
{
    return stk_json_is_kind(node, STK_JSON_MAP);
}
static inline bool stk_json_is_list(const stk_json *node)
{
    return stk_json_is_kind(node, STK_JSON_LIST);
}
static inline bool stk_json_is_number(const stk_json *node)
{
    return stk_json_is_kind(node, STK_JSON_INT) || stk_json_is_kind(node, STK_JSON_REAL);
}
static inline bool stk_json_is_true(const stk_json *node)
{
    return stk_json_is_kind(node, STK_JSON_BOOL) && node->truth;
}
static inline bool stk_json_is_false(const stk_json *node)
{
    return stk_json_is_kind(node, STK_JSON_BOOL) && !node->truth;
}
/* Number of items; 0 for a node that is neither a list nor a map. */
static inline uint32_t stk_json_n_items(const stk_json *list)
{
    return stk_json_is_list(list) ? list->n : 0;
}
static inline uint32_t stk_json_n_members(const stk_json *map)
{
    return stk_json_is_map(map) ? map->n : 0;
}
/* The item, or NULL if there is none. */
static inline const stk_json *stk_json_item(const stk_json *list, size_t i)
{
    return i < stk_json_n_items(list) ? &list->items[i] : NULL;
}
/* Points *ret at the items of `value`, and returns their number. A value that is no list counts as
 * a list of one; NULL counts as empty. */
static inline uint32_t stk_json_as_list(const stk_json *value, const stk_json **ret_items)
{
    *ret_items = value;
    if (!stk_json_is_list(value)) {
        return value != NULL;
    }
    *ret_items = value->items;
    return value->n;
}
bool stk_json_is(const stk_json *text, const char *word);
/* Plain C text, or NULL if the node is no TEXT or holds a NUL byte. */
const char *stk_json_text(const stk_json *node);
bool stk_json_int(const stk_json *node, int64_t *ret_number); /* false: no INT, or out of range */
bool stk_json_real(const stk_json *node, double *ret_number); /* INT or REAL */
/* The number, or `otherwise` if it is none. A real is truncated. */
int64_t stk_json_whole(const stk_json *node, int64_t otherwise);
double stk_json_number(const stk_json *node, double otherwise);
/* The same for a member of a map. */
const char *stk_json_get_text(const stk_json *map, const char *key);
int64_t stk_json_get_whole(const stk_json *map, const char *key, int64_t otherwise);
double stk_json_get_number(const stk_json *map, const char *key, double otherwise);
/* True if both have the same values; the order of members does not matter. */
bool stk_json_equal(const stk_json *a, const stk_json *b);
/* Describes a value that a run's record cannot store exactly ("a whole number …"), or returns NULL
 * if it can. *ret_digits (may be NULL): the number, if it is one. */
const char *stk_json_not_kept(const stk_json *node, const char **ret_digits);
bool stk_json_is_utf8(const char *text, size_t len);
const char *stk_json_kind_words(stk_json_kind kind); /* "a list", "text" … */
/* The shortest JSON number that reads back as `number` (finite), with a '.' or an exponent. */
void stk_json_format_real(double number, char ret_text[32]);

/* --- making: trees in an arena --- */

static inline stk_json stk_json_of_bool(bool truth)
{
    return (stk_json){.kind = STK_JSON_BOOL, .truth = truth};
}
static inline stk_json stk_json_of_map(void)
{
    return (stk_json){.kind = STK_JSON_MAP};
}
static inline stk_json stk_json_of_list(void)
{
    return (stk_json){.kind = STK_JSON_LIST};
}
stk_json stk_json_of_text(const char *text); /* borrowed */
/* `digits` are borrowed. */
stk_json stk_json_of_digits(const char *digits, stk_json_kind kind);
/* Sets or adds the value and returns its place in the map or list, valid until the next change;
 * NULL: no memory. A replaced member keeps its position. The key is copied; the memory that `value`
 * points to is borrowed. A parsed node is copied before its first change; of a made node that was
 * copied by assignment, change only one copy. */
stk_json *stk_json_set(stk_arena *arena, stk_json *map, const char *key, stk_json value);
stk_json *stk_json_append(stk_arena *arena, stk_json *list, stk_json value);
/* Sets all members of `more` (may be NULL). False: no memory. */
bool stk_json_update(stk_arena *arena, stk_json *map, const stk_json *more);
/* Removes this member; false: no memory. */
bool stk_json_remove(stk_arena *arena, stk_json *map, const char *key);

/* --- writing: a failed append sets the buffer's `failed` --- */

/* Canonical text: no spaces, keys in their order. NULL writes null. */
void stk_json_dump(const stk_json *node, stk_buf *buf);
/* The same for people, indented by 2. */
void stk_json_dump_pretty(const stk_json *node, stk_buf *buf);
/* Canonical text in an arena; NULL if `node` is NULL or memory is out. */
const char *stk_json_dump_in(const stk_json *node, stk_arena *arena);

/* Each writes a member, or with a NULL key an item or a whole document. Writes the comma too,
 * except before the first. */
void stk_json_put_key(stk_buf *out, const char *key);            /* no value yet */
void stk_json_open(stk_buf *out, const char *key, char bracket); /* '{' or '[' */
void stk_json_close(stk_buf *out, char bracket);                 /* '}' or ']' */
void stk_json_put(stk_buf *out, const char *key, const stk_json *value);
void stk_json_put_raw(stk_buf *out, const char *key, const char *json);  /* NULL: null */
void stk_json_put_text(stk_buf *out, const char *key, const char *text); /* NULL: null */
/* A NULL-terminated list of texts; NULL writes an empty list. */
void stk_json_put_texts(stk_buf *out, const char *key, const char *const *texts);
void stk_json_put_n_texts(stk_buf *out, const char *key, const char *const *texts, size_t n);
void stk_json_put_whole(stk_buf *out, const char *key, int64_t number);
/* These write nothing when the value is unknown: NULL, or a number below 0. */
void stk_json_put_known_raw(stk_buf *out, const char *key, const char *json);
void stk_json_put_known_text(stk_buf *out, const char *key, const char *text);
void stk_json_put_known_whole(stk_buf *out, const char *key, int64_t number);
/* Numbers below 0 mean unknown and are written as null. */
void stk_json_put_int(stk_buf *out, const char *key, int64_t number);
void stk_json_put_real(stk_buf *out, const char *key, double number);
void stk_json_put_bool(stk_buf *out, const char *key, int truth);

/* --- building: for readers of other notations --- */

typedef struct stk_json_frame {
    size_t start;    /* first pending node of this list or map */
    size_t n_before; /* nodes counted before it */
    uint32_t line;
    stk_json_kind kind;
    int height; /* of the tallest child so far */
} stk_json_frame;

typedef struct stk_json_builder {
    stk_arena *arena;
    const char *path;
    stk_err *err;
    stk_json_limits limits;
    stk_json *pending; /* children of the lists and maps still open */
    size_t n_pending;
    uint32_t cap_pending, cap_frames;
    size_t n_nodes;
    int depth;
    size_t last_nodes; /* number of nodes in the node added or closed last, itself included … */
    int last_height;   /* … and the depth of its lists and maps */
    stk_json_frame *frames;
} stk_json_builder;

/* Release with stk_json_build_done. Every call returns 0 or fills `err`. */
void stk_json_build_init(stk_json_builder *b, stk_arena *arena, const char *path,
                         const stk_json_limits *limits, stk_err *err);
void stk_json_build_done(stk_json_builder *b);
bool stk_json_build_wants_key(const stk_json_builder *b);
/* Adds a scalar, a key, or a finished node that holds `n_nodes` nodes and is `height` deep (an
 * alias). */
int stk_json_build_add(stk_json_builder *b, const stk_json *node, size_t n_nodes, int height);
int stk_json_build_open(stk_json_builder *b, stk_json_kind kind, int line);
int stk_json_build_close(stk_json_builder *b);
/* Fills `err` with `code` at `line` and returns it. */
int stk_json_build_fail(stk_json_builder *b, int code, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#endif
