/* Reads JSON, and provides the builder with which readers of other notations make the same trees.
 */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/map.h"
#include "base/text.h"

/* --- members by their keys --- */

/* Maps with more members than this have an index, and keys are compared by hash. The index follows
 * the members: 1-based places of members, in at least twice as many slots. */
enum { SMALL_MAP = 12 };

static uint32_t index_slots(uint32_t n)
{
    uint32_t slots = 32;
    while (slots < 2 * n) {
        slots *= 2;
    }
    return slots;
}

/* The slot of the member with this key, or a free slot. */
static uint32_t *find_slot(uint32_t *slots, uint32_t n_slots, const stk_json *items,
                           const char *key, size_t len)
{
    uint64_t hash = stk_hash_bytes(key, len, 0);
    for (uint32_t i = (uint32_t)hash & (n_slots - 1);; i = (i + 1) & (n_slots - 1)) {
        if (slots[i] == 0) {
            return &slots[i];
        }
        const stk_json *have = &items[2 * ((size_t)slots[i] - 1)];
        if (have->n == len && memcmp(have->text, key, len) == 0) {
            return &slots[i];
        }
    }
}

const stk_json *stk_json_get(const stk_json *map, const char *key)
{
    if (map == NULL || map->kind != STK_JSON_MAP) {
        return NULL;
    }
    if (map->indexed) {
        uint32_t *slots = (uint32_t *)(uintptr_t)(map->items + 2 * (size_t)map->n);
        uint32_t at = *find_slot(slots, index_slots(map->n), map->items, key, strlen(key));
        if (at == 0) {
            return NULL;
        }
        return stk_json_value(map, at - 1);
    }
    for (uint32_t i = 0; i < map->n; i++) {
        if (strcmp(stk_json_key(map, i)->text, key) == 0) {
            return stk_json_value(map, i);
        }
    }
    return NULL;
}

/* --- building --- */

void stk_json_build_init(stk_json_builder *b, stk_arena *arena, const char *path,
                         const stk_json_limits *limits, stk_err *err)
{
    b->arena = arena;
    b->path = path;
    b->err = err;
    b->limits = *limits;
    b->pending = NULL;
    b->frames = NULL;
    b->cap_frames = b->cap_pending = 0;
    b->n_pending = b->n_nodes = b->last_nodes = 0;
    b->depth = b->last_height = 0;
}

void stk_json_build_done(stk_json_builder *b)
{
    free(b->pending);
    free(b->frames);
    b->pending = NULL;
    b->frames = NULL;
}

int stk_json_build_fail(stk_json_builder *b, int code, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    stk_err_set(b->err, code, "%s", text);
    stk_err_at(b->err, b->path, line);
    return code;
}

static int no_memory(stk_json_builder *b, int line)
{
    return stk_json_build_fail(b, STK_E_NOMEM, line, "out of memory while reading the document");
}

bool stk_json_build_wants_key(const stk_json_builder *b)
{
    if (b->depth == 0) {
        return false;
    }
    const stk_json_frame *frame = &b->frames[b->depth - 1];
    return frame->kind == STK_JSON_MAP && (b->n_pending - frame->start) % 2 == 0;
}

static int push(stk_json_builder *b, const stk_json *node, size_t n_nodes, int height)
{
    if (stk_array_reserve(&b->pending, &b->cap_pending, b->n_pending + 1, sizeof *b->pending) < 0) {
        return no_memory(b, (int)node->line);
    }
    b->pending[b->n_pending++] = *node;
    b->last_nodes = n_nodes;
    b->last_height = height;
    if (b->depth > 0 && b->frames[b->depth - 1].height < height) {
        b->frames[b->depth - 1].height = height;
    }
    return 0;
}

int stk_json_build_add(stk_json_builder *b, const stk_json *node, size_t n_nodes, int height)
{
    if (n_nodes > b->limits.nodes - b->n_nodes) {
        return stk_json_build_fail(
            b, STK_E_LIMIT, (int)node->line,
            "the document has more than %zu values (aliases expanded); split it", b->limits.nodes);
    }
    if (b->depth + height > b->limits.depth) {
        return stk_json_build_fail(b, STK_E_LIMIT, (int)node->line,
                                   "lists and mappings are nested more than %d levels deep",
                                   b->limits.depth);
    }
    b->n_nodes += n_nodes;
    return push(b, node, n_nodes, height);
}

int stk_json_build_open(stk_json_builder *b, stk_json_kind kind, int line)
{
    if (b->depth >= b->limits.depth) {
        return stk_json_build_fail(b, STK_E_LIMIT, line,
                                   "lists and mappings are nested more than %d levels deep",
                                   b->limits.depth);
    }
    if (stk_array_reserve(&b->frames, &b->cap_frames, (uint64_t)b->depth + 1, sizeof *b->frames) <
        0) {
        return no_memory(b, line);
    }
    b->frames[b->depth++] = (stk_json_frame){
        .start = b->n_pending, .n_before = b->n_nodes, .line = (uint32_t)line, .kind = kind};
    return 0;
}

/* Reports a duplicate key as an error; returns 1 if the last one counts. */
static int duplicate(stk_json_builder *b, const stk_json *key, const stk_json *first)
{
    if (b->limits.by_program) {
        return 1;
    }
    return stk_json_build_fail(b, STK_E_SPEC, (int)key->line,
                               "key '%s' appears twice, first on line %u; keep one", key->text,
                               (unsigned)first->line);
}

/* Compares small maps pairwise, which is quicker than hashing. Returns 1 if a key is duplicated, 0
 * if not, or an error below 0. */
static int check_small(stk_json_builder *b, const stk_json *members, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const stk_json *one = &members[2 * (size_t)i], *two = &members[2 * (size_t)j];
            if (one->n == two->n && memcmp(one->text, two->text, one->n) == 0) {
                return duplicate(b, one, two);
            }
        }
    }
    return 0;
}

static int index_keys(stk_json_builder *b, const stk_json *members, uint32_t n, uint32_t *slots)
{
    for (uint32_t i = 0; i < n; i++) {
        const stk_json *key = &members[2 * (size_t)i];
        uint32_t *slot = find_slot(slots, index_slots(n), members, key->text, key->n);
        if (*slot != 0) {
            return duplicate(b, key, &members[2 * ((size_t)*slot - 1)]);
        }
        *slot = i + 1;
    }
    return 0;
}

/* Keeps each key once, with its last value; *ret_n is the number of members left. */
static int drop_doubles(stk_json_builder *b, stk_json *members, uint32_t n, uint32_t *ret_n)
{
    STK_MAP_AUTO seen = {0};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t first = kept;
        if (!stk_map_get(&seen, members[2 * (size_t)i].text, &first)) {
            if (stk_map_put(&seen, members[2 * (size_t)i].text, kept) < 0) {
                return no_memory(b, (int)members[0].line);
            }
            members[2 * (size_t)kept++] = members[2 * (size_t)i];
        }
        members[2 * (size_t)first + 1] = members[2 * (size_t)i + 1];
    }
    *ret_n = kept;
    return 0;
}

int stk_json_build_close(stk_json_builder *b)
{
    const stk_json_frame frame = b->frames[b->depth - 1];
    size_t n = b->n_pending - frame.start;
    bool is_map = frame.kind == STK_JSON_MAP, indexed = is_map && n / 2 > SMALL_MAP;
    stk_json node = {.kind = (uint32_t)frame.kind & 7u,
                     .n = (uint32_t)(is_map ? n / 2 : n),
                     .line = frame.line & 0x7FFFFFFu};
    if (n > 0) {
        size_t slots = indexed ? index_slots(node.n) * sizeof(uint32_t) : 0;
        stk_json *items = stk_arena_alloc(b->arena, n * sizeof *items + slots);
        int twice = 0;
        if (items == NULL) {
            return no_memory(b, (int)frame.line);
        }
        memcpy(items, b->pending + frame.start, n * sizeof *items);
        if (indexed) {
            twice = index_keys(b, items, node.n, (uint32_t *)(void *)(items + n));
        } else if (is_map) {
            twice = check_small(b, items, node.n);
        }
        STK_TRY(twice);
        if (twice > 0) {
            STK_TRY(drop_doubles(b, items, node.n, &node.n));
        }
        node.items = items;
        node.indexed = indexed && twice == 0;
    }
    b->n_pending = frame.start;
    b->depth--;
    if (b->n_nodes >= b->limits.nodes) {
        return stk_json_build_add(b, &node, 1, 1); /* fails with the limit that was exceeded */
    }
    b->n_nodes++;
    return push(b, &node, b->n_nodes - frame.n_before, frame.height + 1);
}

/* --- JSON --- */

typedef struct reader {
    stk_json_builder b;
    char *at; /* in our copy, which ends in NUL; strings are unescaped in place */
    char *end;
    int line;
} reader;

static const char *shown(const reader *r, char buf[32])
{
    unsigned char c = (unsigned char)*r->at;
    if (r->at >= r->end) {
        return "the end of the document";
    }
    if (c < 0x20 || c >= 0x7F) {
        (void)snprintf(buf, 32, "byte 0x%02x", (unsigned)c);
    } else {
        (void)snprintf(buf, 32, "'%c'", c);
    }
    return buf;
}

static int expected(reader *r, const char *what)
{
    char buf[32];
    return stk_json_build_fail(&r->b, STK_E_SPEC, r->line, "not valid JSON: expected %s, found %s",
                               what, shown(r, buf));
}

static void skip_space(reader *r)
{
    for (;; r->at++) {
        if (*r->at == '\n') {
            r->line++;
        } else if (*r->at != ' ' && *r->at != '\t' && *r->at != '\r') {
            return;
        }
    }
}

static int hex4(const char *s)
{
    static const char digits[] = "0123456789abcdef";
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const char *digit = strchr(digits, tolower((unsigned char)s[i]));
        if (digit == NULL || *digit == '\0') {
            return -1;
        }
        value = value * 16 + (int)(digit - digits);
    }
    return value;
}

static char *put_utf8(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xC0 | (c >> 6));
        *out++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *out++ = (char)(0xE0 | (c >> 12));
        *out++ = (char)(0x80 | ((c >> 6) & 0x3F));
        *out++ = (char)(0x80 | (c & 0x3F));
    } else {
        *out++ = (char)(0xF0 | (c >> 18));
        *out++ = (char)(0x80 | ((c >> 12) & 0x3F));
        *out++ = (char)(0x80 | ((c >> 6) & 0x3F));
        *out++ = (char)(0x80 | (c & 0x3F));
    }
    return out;
}

/* At the 'u' of an escape. Half a surrogate pair becomes U+FFFD: Python writes file names that
 * aren't UTF-8 that way, and a run shouldn't fail for one. */
static int unescape_unicode(reader *r, char **out)
{
    int unit = hex4(r->at + 1);
    if (unit < 0) {
        return expected(r, "four hex digits after \\u");
    }
    uint32_t c = (uint32_t)unit;
    r->at += 5;
    if (c >= 0xD800 && c < 0xDC00 && r->at[0] == '\\' && r->at[1] == 'u') {
        int low = hex4(r->at + 2);
        if (low >= 0xDC00 && low < 0xE000) {
            c = 0x10000 + ((c - 0xD800) << 10) + ((uint32_t)low - 0xDC00);
            r->at += 6;
        }
    }
    bool is_half = c >= 0xD800 && c < 0xE000;
    if (is_half && r->b.limits.by_program) {
        return expected(r, "the other half of a surrogate pair");
    }
    *out = put_utf8(*out, is_half ? 0xFFFD : c);
    return 0;
}

static int read_text(reader *r, stk_json *ret_node)
{
    char *start = ++r->at;
    char *out = start;
    for (;;) {
        char *run = r->at;
        while ((unsigned char)*r->at >= 0x20 && *r->at != '"' && *r->at != '\\') {
            r->at++;
        }
        if (out != run) {
            memmove(out, run, (size_t)(r->at - run));
        }
        out += r->at - run;
        if (*r->at == '"') {
            break;
        }
        if (*r->at != '\\') {
            return expected(r, "a closing '\"' (control characters are written as escapes)");
        }
        r->at++;
        const char *at = strchr("\"\"\\\\//b\bf\fn\nr\rt\t", *r->at);
        if (*r->at == 'u') {
            STK_TRY(unescape_unicode(r, &out));
        } else if ((unsigned char)*r->at >= 0x20 && at != NULL) {
            *out++ = at[1];
            r->at++;
        } else {
            return expected(r, "one of \"\\/bfnrtu after a backslash");
        }
    }
    r->at++;
    *out = '\0';
    *ret_node = (stk_json){.text = start,
                           .n = (uint32_t)(out - start),
                           .kind = STK_JSON_TEXT,
                           .line = (uint32_t)r->line & 0x7FFFFFFu};
    return 0;
}

static void skip_digits(reader *r)
{
    while (*r->at >= '0' && *r->at <= '9') {
        r->at++;
    }
}

static int read_number(reader *r, stk_json *node)
{
    char *start = r->at;
    bool real = false;
    r->at += *r->at == '-';
    if (*r->at < '0' || *r->at > '9') {
        return expected(r, *r->at == 'I' ? "a finite number" : "a digit");
    }
    if (*r->at == '0') {
        r->at++;
    } else {
        skip_digits(r);
    }
    if (*r->at == '.') {
        real = true;
        r->at++;
        if (*r->at < '0' || *r->at > '9') {
            return expected(r, "a digit after the decimal point");
        }
        skip_digits(r);
    }
    if (*r->at == 'e' || *r->at == 'E') {
        real = true;
        r->at++;
        r->at += *r->at == '-' || *r->at == '+';
        if (*r->at < '0' || *r->at > '9') {
            return expected(r, "a digit in the exponent");
        }
        skip_digits(r);
    }
    node->kind = real ? STK_JSON_REAL : STK_JSON_INT;
    node->n = (uint32_t)(r->at - start);
    if (real &&
        !isfinite(strtod(start, NULL))) { /* strtod stops where we did: the grammar is the same */
        return stk_json_build_fail(&r->b, STK_E_SPEC, r->line, "number %.*s is too large",
                                   (int)MIN(node->n, 40), start);
    }
    node->text = stk_arena_dupn(r->b.arena, start, node->n);
    int64_t number;
    if (!real && r->b.limits.by_program && node->n > 18 && node->text != NULL &&
        !stk_json_int(node, &number)) {
        return expected(r, "a whole number of 64 bits");
    }
    if (node->text == NULL) {
        return no_memory(&r->b, r->line);
    }
    return 0;
}

static int read_scalar(reader *r)
{
    stk_json node = {.line = (uint32_t)r->line & 0x7FFFFFFu};
    int rc = 0;
    if (*r->at == '"') {
        rc = read_text(r, &node);
    } else if (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')) {
        rc = read_number(r, &node);
    } else if (strncmp(r->at, "true", 4) == 0 || strncmp(r->at, "false", 5) == 0) {
        node.kind = STK_JSON_BOOL;
        node.truth = *r->at == 't';
        r->at += node.truth ? 4 : 5;
    } else if (strncmp(r->at, "null", 4) == 0) {
        r->at += 4;
    } else if (strncmp(r->at, "NaN", 3) == 0 || strncmp(r->at, "Infinity", 8) == 0) {
        rc = stk_json_build_fail(&r->b, STK_E_SPEC, r->line,
                                 "JSON has no NaN and no infinity; write it as text");
    } else {
        rc = expected(r, "a value");
    }
    STK_TRY(rc);
    return stk_json_build_add(&r->b, &node, 1, 0);
}

/* Reads a key and the colon, up to the value. */
static int read_key(reader *r)
{
    stk_json key;
    skip_space(r);
    if (*r->at != '"') {
        return expected(r, "a key in double quotes");
    }
    STK_TRY(read_text(r, &key));
    if (strlen(key.text) != key.n) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, r->line, "a key contains a NUL byte");
    }
    skip_space(r);
    if (*r->at != ':') {
        return expected(r, "':' after a key");
    }
    r->at++;
    return stk_json_build_add(&r->b, &key, 1, 0);
}

/* The closing bracket of the innermost open list or map. */
static char bracket_of(const reader *r)
{
    return r->b.frames[r->b.depth - 1].kind == STK_JSON_MAP ? '}' : ']';
}

/* Advances to the next item's value. */
static int begin_item(reader *r)
{
    if (bracket_of(r) == '}') {
        return read_key(r);
    }
    return 0;
}

/* Reads what may follow a value: closes lists and maps until one continues or the document ends. */
static int read_after(reader *r)
{
    while (r->b.depth > 0) {
        skip_space(r);
        if (*r->at == ',') {
            r->at++;
            return begin_item(r);
        }
        if (*r->at != bracket_of(r)) {
            return expected(r, bracket_of(r) == '}' ? "',' or '}'" : "',' or ']'");
        }
        r->at++;
        STK_TRY(stk_json_build_close(&r->b));
    }
    return 0;
}

static int read_document(reader *r)
{
    do {
        skip_space(r);
        if (*r->at == '{' || *r->at == '[') {
            stk_json_kind kind = *r->at == '{' ? STK_JSON_MAP : STK_JSON_LIST;
            STK_TRY(stk_json_build_open(&r->b, kind, r->line));
            r->at++;
            skip_space(r);
            if (*r->at != bracket_of(r)) {
                STK_TRY(begin_item(r));
                continue;
            }
        } else {
            STK_TRY(read_scalar(r));
        }
        STK_TRY(read_after(r));
    } while (r->b.depth > 0);
    skip_space(r);
    if (r->at != r->end) {
        return expected(r, "the end of the document");
    }
    return 0;
}

/* 0, or the line of the first byte that is not valid UTF-8. */
static int find_bad_utf8(const char *text, size_t len)
{
    const char *s = text, *end = text + len;
    while (s < end) {
        uint64_t word;
        if (end - s >= 8 && (memcpy(&word, s, 8), (word & 0x8080808080808080u) == 0)) {
            s += 8;
            continue;
        }
        size_t n = stk_buf_utf8_len(s, (size_t)(end - s));
        if (n == 0) {
            int line = 1;
            for (const char *p = text; p < s; p++) {
                line += *p == '\n';
            }
            return line;
        }
        s += n;
    }
    return 0;
}

bool stk_json_is_utf8(const char *text, size_t len)
{
    return find_bad_utf8(text, len) == 0;
}

const char *stk_json_not_kept(const stk_json *node, const char **ret_digits)
{
    int64_t number;
    const char *why = NULL;
    uint32_t n = stk_json_n_items(node) + 2 * stk_json_n_members(node);
    if (node->kind == STK_JSON_INT && !stk_json_int(node, &number)) {
        if (ret_digits != NULL) {
            *ret_digits = node->text;
        }
        return "a whole number outside -2^63 to 2^63 - 1";
    }
    if (node->kind == STK_JSON_TEXT && memchr(node->text, '\0', node->n) != NULL) {
        return "text with a NUL character";
    }
    for (uint32_t i = 0; i < n && why == NULL;
         i++) { /* recursion is bounded by the limit on nesting */
        why = stk_json_not_kept(&node->items[i], ret_digits);
    }
    return why;
}

int stk_json_parse(const char *text, size_t len, const char *path, const stk_json_limits *limits,
                   stk_arena *arena, stk_json *ret_root, stk_err *err)
{
    reader r = {.line = 1};
    stk_json_build_init(&r.b, arena, path, limits, err);
    if (len > limits->bytes) {
        return stk_json_build_fail(&r.b, STK_E_LIMIT, 0, "the document is larger than %zu bytes",
                                   limits->bytes);
    }
    int bad = find_bad_utf8(text, len);
    if (bad > 0) {
        return stk_json_build_fail(&r.b, STK_E_SPEC, bad, "not valid UTF-8 on this line");
    }
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }
    r.at = stk_arena_dupn(arena, text, len);
    if (r.at == NULL) {
        return no_memory(&r.b, 0);
    }
    r.end = r.at + len;
    int rc = read_document(&r);
    if (rc == 0) {
        *ret_root = r.b.pending[0];
    }
    stk_json_build_done(&r.b);
    return rc;
}

const stk_json_limits stk_json_by_program = {SIZE_MAX, SIZE_MAX, STK_LIMIT_NESTED, true};

const stk_json *stk_json_readn(stk_arena *arena, const char *text, size_t len)
{
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    if (text == NULL || root == NULL ||
        stk_json_parse(text, len, NULL, &stk_json_by_program, arena, root, NULL) < 0) {
        return NULL;
    }
    return root;
}

const stk_json *stk_json_read(stk_arena *arena, const char *text)
{
    return stk_json_readn(arena, text, strlen(stk_text_or(text, "")));
}
