#include "base/yaml.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <yaml.h>

#include "base/map.h"
#include "base/text.h"

/* A finished node that aliases may refer to. Sharing it costs no memory, but every walk over the
 * tree pays for each use. So each alias counts the node's size again, and its height counts against
 * the depth. */
typedef struct anchor {
    stk_json node;
    size_t n_nodes;
    int height;
} anchor;

enum { KEY_CACHE = 256, KEY_CACHE_BYTES = 24 };

typedef struct reader {
    stk_json_builder b;
    yaml_parser_t yaml;
    stk_map anchors; /* name → index in `list` */
    anchor *list;
    size_t n_list;
    uint32_t cap_list;
    size_t n_aliases;
    const char *open_anchor[STK_LIMIT_DEPTH];
    bool merges[STK_LIMIT_DEPTH]; /* the mapping open at this depth has a merge key */
    const char
        *keys[KEY_CACHE]; /* recent short keys, so that "run" is stored once and not per step */
} reader;

static int line_of(const yaml_mark_t *mark)
{
    return (int)MIN(mark->line + 1, 0x7FFFFFFu);
}

static int no_memory(reader *r, int line)
{
    return stk_json_build_fail(&r->b, STK_E_NOMEM, line,
                               "out of memory while reading the document");
}

static int syntax_error(reader *r)
{
    const yaml_parser_t *y = &r->yaml;
    const char *problem = stk_text_or(y->problem, "unknown problem");
    if (y->error == YAML_MEMORY_ERROR) {
        return no_memory(r, 0);
    }
    if (y->error == YAML_READER_ERROR) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, 0, "not valid YAML: %s (at byte %zu)",
                                   problem, y->problem_offset);
    }
    int rc;
    if (y->context != NULL && y->context_mark.line != y->problem_mark.line) {
        rc = stk_json_build_fail(&r->b, STK_E_SPEC, line_of(&y->problem_mark),
                                 "not valid YAML: %s, %s that begins on line %d", problem,
                                 y->context, line_of(&y->context_mark));
    } else {
        rc = stk_json_build_fail(&r->b, STK_E_SPEC, line_of(&y->problem_mark), "not valid YAML: %s",
                                 problem);
    }
    if (strstr(problem, "cannot start any token") != NULL) {
        stk_err_hint(r->b.err, "indent with spaces, not tabs, and quote text that begins with @, "
                               "` or a percent sign");
    } else if (strstr(problem, "mapping values are not allowed") != NULL) {
        stk_err_hint(r->b.err, "quote text that holds ': '");
    }
    return rc;
}

/* --- scalars --- */

static bool all_digits(const char *s, const char *digits)
{
    return *s != '\0' && s[strspn(s, digits)] == '\0';
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )? */
static bool is_real(const char *s)
{
    static const char digits[] = "0123456789";
    s += *s == '-' || *s == '+';
    size_t whole = strspn(s, digits);
    s += whole;
    if (*s == '.') {
        size_t part = strspn(s + 1, digits);
        if (whole == 0 && part == 0) {
            return false;
        }
        s += 1 + part;
    } else if (whole == 0) {
        return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        return all_digits(s, digits);
    }
    return *s == '\0';
}

static bool one_of(const char *s, const char *a, const char *b, const char *c)
{
    return strcmp(s, a) == 0 || strcmp(s, b) == 0 || strcmp(s, c) == 0;
}

static int set_digits(reader *r, stk_json *node, stk_json_kind kind, const char *digits)
{
    node->kind = (uint32_t)kind & 7u;
    node->n = (uint32_t)strlen(digits);
    node->text = stk_arena_dupn(r->b.arena, digits, node->n);
    if (node->text == NULL) {
        return no_memory(r, (int)node->line);
    }
    return 0;
}

/* 0o17 and 0x1F, which JSON lacks. */
static int set_radix(reader *r, stk_json *node, const char *s, int radix)
{
    char text[32];
    unsigned long long number = strtoull(s + 2, NULL, radix);
    if (strlen(s + 2) > (radix == 16 ? 15 : 20)) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, (int)node->line, "number %.40s is too large",
                                   s);
    }
    (void)snprintf(text, sizeof text, "%llu", number);
    return set_digits(r, node, STK_JSON_INT, text);
}

static int set_int(reader *r, stk_json *node, const char *s)
{
    bool minus = *s == '-';
    s += *s == '-' || *s == '+';
    s += strspn(s, "0");
    if (*s == '\0') {
        return set_digits(r, node, STK_JSON_INT, "0");
    }
    node->kind = STK_JSON_INT;
    node->n = (uint32_t)strlen(s) + minus;
    char *text = stk_arena_alloc(r->b.arena, (size_t)node->n + 1);
    if (text == NULL) {
        return no_memory(r, (int)node->line);
    }
    text[0] = '-';
    memcpy(text + minus, s, strlen(s));
    node->text = text;
    return 0;
}

/* Resolves a plain scalar by YAML 1.2's core schema; *ret_text stays true if it is text. */
static int resolve(reader *r, stk_json *node, const char *s, bool *ret_text)
{
    static const char digits[] = "0123456789";
    *ret_text = false;
    if (*s == '\0' || strcmp(s, "~") == 0 || one_of(s, "null", "Null", "NULL")) {
        node->kind = STK_JSON_NULL;
        return 0;
    }
    if (one_of(s, "true", "True", "TRUE") || one_of(s, "false", "False", "FALSE")) {
        node->kind = STK_JSON_BOOL;
        node->truth = *s == 't' || *s == 'T';
        return 0;
    }
    if (strchr("+-.0123456789", *s) == NULL) {
        *ret_text = true;
        return 0;
    }
    if (strncmp(s, "0o", 2) == 0 && all_digits(s + 2, "01234567")) {
        return set_radix(r, node, s, 8);
    }
    if (strncmp(s, "0x", 2) == 0 && all_digits(s + 2, "0123456789abcdefABCDEF")) {
        return set_radix(r, node, s, 16);
    }
    const char *unsigned_part = s + (*s == '-' || *s == '+');
    if (all_digits(unsigned_part, digits)) {
        return set_int(r, node, s);
    }
    if (is_real(s)) {
        char text[32];
        bool as_json = isdigit((unsigned char)*unsigned_part) && *s != '+' &&
                       (*unsigned_part != '0' || !isdigit((unsigned char)unsigned_part[1])) &&
                       (strchr(s, '.') == NULL || isdigit((unsigned char)strchr(s, '.')[1]));
        double number = strtod(s, NULL);
        if (!isfinite(number)) {
            return stk_json_build_fail(&r->b, STK_E_SPEC, (int)node->line,
                                       "number %.40s is too large", s);
        }
        stk_json_format_real(number, text);
        return set_digits(r, node, STK_JSON_REAL, as_json ? s : text);
    }
    if (one_of(unsigned_part, ".inf", ".Inf", ".INF") || one_of(s, ".nan", ".NaN", ".NAN")) {
        return stk_json_build_fail(
            &r->b, STK_E_SPEC, (int)node->line,
            "%s can't be stored: JSON has no infinity and no NaN; quote it to make it text", s);
    }
    *ret_text = true;
    return 0;
}

static const char *keep_key(reader *r, const char *s, size_t n)
{
    if (n >= KEY_CACHE_BYTES) {
        return stk_arena_dupn(r->b.arena, s, n);
    }
    const char **slot = &r->keys[stk_hash_bytes(s, n, 0) % KEY_CACHE];
    if (*slot == NULL || strcmp(*slot, s) != 0) {
        *slot = stk_arena_dupn(r->b.arena, s, n);
    }
    return *slot;
}

static int check_tag(reader *r, const char *tag, const stk_json *node)
{
    static const char prefix[] = "tag:yaml.org,2002:";
    static const char *const words[] = {
        [STK_JSON_NULL] = "null",  [STK_JSON_BOOL] = "bool", [STK_JSON_INT] = "int",
        [STK_JSON_REAL] = "float", [STK_JSON_TEXT] = "str",  [STK_JSON_LIST] = "seq",
        [STK_JSON_MAP] = "map"};
    if (tag == NULL || strcmp(tag, "!") == 0 ||
        (strncmp(tag, prefix, sizeof prefix - 1) == 0 &&
         strcmp(tag + sizeof prefix - 1, words[node->kind]) == 0)) {
        return 0;
    }
    return stk_json_build_fail(&r->b, STK_E_SPEC, (int)node->line,
                               "tag '%s' doesn't fit %s; remove the tag", tag,
                               stk_json_kind_words(node->kind));
}

/* --- anchors, aliases, merges --- */

static int remember(reader *r, const char *name, const stk_json *node)
{
    if (stk_array_reserve(&r->list, &r->cap_list, r->n_list + 1, sizeof *r->list) < 0) {
        return no_memory(r, (int)node->line);
    }
    r->list[r->n_list] = (anchor){*node, r->b.last_nodes, r->b.last_height};
    const char *kept = stk_arena_dup(r->b.arena, name);
    if (kept == NULL || stk_map_put(&r->anchors, kept, r->n_list) < 0) {
        return no_memory(r, (int)node->line);
    }
    r->n_list++;
    return 0;
}

static int add(reader *r, const stk_json *node, size_t n_nodes, int height, const char *name)
{
    int rc = stk_json_build_add(&r->b, node, n_nodes, height);
    if (rc < 0 || name == NULL) {
        return rc;
    }
    return remember(r, name, node);
}

static int on_alias(reader *r, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    int line = line_of(&event->start_mark);
    uint64_t i;
    if (!stk_map_get(&r->anchors, name, &i)) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, line,
                                   "alias *%s needs a complete anchor &%s before it", name, name);
    }
    if (++r->n_aliases > STK_LIMIT_ALIASES) {
        return stk_json_build_fail(&r->b, STK_E_LIMIT, line, "more than %d aliases in one document",
                                   STK_LIMIT_ALIASES);
    }
    const anchor *a = &r->list[i];
    if (stk_json_build_wants_key(&r->b) && a->node.kind != STK_JSON_TEXT) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, line,
                                   "alias *%s can't be a key: it isn't text", name);
    }
    stk_json node = a->node;
    node.line =
        (uint32_t)line & 0x7FFFFFFu; /* errors in the aliased node are reported at the alias */
    return stk_json_build_add(&r->b, &node, a->n_nodes, a->height);
}

static int on_scalar(reader *r, const yaml_event_t *event)
{
    const char *s = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    bool key = stk_json_build_wants_key(&r->b);
    bool plain = event->data.scalar.plain_implicit && event->data.scalar.tag == NULL;
    const char *tag = (const char *)event->data.scalar.tag;
    bool tagged = tag != NULL && strcmp(tag, "!") != 0 && strcmp(tag, "tag:yaml.org,2002:str") != 0;
    bool text = true;
    int line = line_of(&event->start_mark);
    stk_json node = {.line = (uint32_t)line & 0x7FFFFFFu};
    if (key && memchr(s, '\0', n) != NULL) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, line, "a key contains a NUL byte");
    }
    if (key && plain && n == 0) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, line, "a key is missing before ':'");
    }
    if (key && plain && strcmp(s, "<<") == 0) {
        r->merges[r->b.depth - 1] =
            true; /* marks the merge key by a NULL text, which no other key has */
        return stk_json_build_add(&r->b, &node, 1, 0);
    }
    if (!key && (plain || tagged) && memchr(s, '\0', n) == NULL) {
        STK_TRY(resolve(r, &node, s, &text));
    }
    if (text) {
        node.kind = STK_JSON_TEXT;
        node.n = (uint32_t)n;
        if (key) {
            node.text = keep_key(r, s, n);
        } else {
            node.text = stk_arena_dupn(r->b.arena, s, n);
        }
        if (node.text == NULL) {
            return no_memory(r, line);
        }
    }
    STK_TRY(check_tag(r, tag, &node));
    return add(r, &node, 1, 0, (const char *)event->data.scalar.anchor);
}

static int on_open(reader *r, const yaml_event_t *event, stk_json_kind kind,
                   const yaml_char_t *name, const yaml_char_t *tag)
{
    int line = line_of(&event->start_mark);
    stk_json node = {.kind = (uint32_t)kind & 7u, .line = (uint32_t)line & 0x7FFFFFFu};
    if (stk_json_build_wants_key(&r->b)) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, line, "a key must be a string, not %s",
                                   stk_json_kind_words(kind));
    }
    STK_TRY(check_tag(r, (const char *)tag, &node));
    STK_TRY(stk_json_build_open(&r->b, kind, line));
    r->merges[r->b.depth - 1] = false;
    r->open_anchor[r->b.depth - 1] = NULL;
    if (name != NULL) {
        r->open_anchor[r->b.depth - 1] = stk_arena_dup(r->b.arena, (const char *)name);
        if (r->open_anchor[r->b.depth - 1] == NULL) {
            return no_memory(r, line);
        }
    }
    return 0;
}

/* Adds the members of `from` that the mapping being closed lacks. */
static int merge_one(reader *r, stk_map *have, const stk_json *from, uint32_t line)
{
    if (from->kind != STK_JSON_MAP) {
        return stk_json_build_fail(&r->b, STK_E_SPEC, (int)line,
                                   "'<<' must be a mapping or a list of mappings, not %s",
                                   stk_json_kind_words(from->kind));
    }
    for (uint32_t i = 0; i < from->n; i++) {
        const stk_json *key = stk_json_key(from, i);
        if (stk_map_get(have, key->text, NULL)) {
            continue;
        }
        if (stk_map_put(have, key->text, 1) < 0) {
            return no_memory(r, (int)line);
        }
        /* The alias already counted their nodes. */
        STK_TRY(stk_json_build_add(&r->b, key, 0, 0));
        STK_TRY(stk_json_build_add(&r->b, stk_json_value(from, i), 0, 0));
    }
    return 0;
}

/* Replaces the merge keys of the mapping that is about to close with the members they stand for. */
static int apply_merges(reader *r)
{
    size_t start = r->b.frames[r->b.depth - 1].start;
    size_t n = (r->b.n_pending - start) / 2;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_json *own = stk_arena_array(scratch, 2 * n, sizeof *own);
    STK_MAP_AUTO have = {0};
    if (own == NULL) {
        return no_memory(r, 0);
    }
    memcpy(own, r->b.pending + start, 2 * n * sizeof *own);
    r->b.n_pending = start;
    for (size_t i = 0; i < n; i++) {
        if (own[2 * i].kind != STK_JSON_NULL) {
            r->b.pending[r->b.n_pending++] = own[2 * i];
            r->b.pending[r->b.n_pending++] = own[2 * i + 1];
            if (stk_map_put(&have, own[2 * i].text, 1) < 0) {
                return no_memory(r, 0);
            }
        }
    }
    for (size_t i = 0; i < n; i++) {
        const stk_json *value = &own[2 * i + 1];
        if (own[2 * i].kind != STK_JSON_NULL) {
            continue;
        }
        if (value->kind != STK_JSON_LIST) {
            STK_TRY(merge_one(r, &have, value, own[2 * i].line));
        }
        for (uint32_t j = 0; j < stk_json_n_items(value); j++) {
            STK_TRY(merge_one(r, &have, &value->items[j], own[2 * i].line));
        }
    }
    return 0;
}

static int on_close(reader *r)
{
    int depth = r->b.depth - 1;
    if (r->merges[depth]) {
        STK_TRY(apply_merges(r));
    }
    STK_TRY(stk_json_build_close(&r->b));
    if (r->open_anchor[depth] != NULL) {
        return remember(r, r->open_anchor[depth], &r->b.pending[r->b.n_pending - 1]);
    }
    return 0;
}

static int on_event(reader *r, const yaml_event_t *event, int *n_documents)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*n_documents > 1) {
            return stk_json_build_fail(&r->b, STK_E_SPEC, line_of(&event->start_mark),
                                       "a second document begins here; a file can hold only one");
        }
        return 0;
    case YAML_SCALAR_EVENT:
        return on_scalar(r, event);
    case YAML_ALIAS_EVENT:
        return on_alias(r, event);
    case YAML_MAPPING_START_EVENT:
        return on_open(r, event, STK_JSON_MAP, event->data.mapping_start.anchor,
                       event->data.mapping_start.tag);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(r, event, STK_JSON_LIST, event->data.sequence_start.anchor,
                       event->data.sequence_start.tag);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return on_close(r);
    default:
        return 0;
    }
}

static int read_events(reader *r)
{
    int n_documents = 0;
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&r->yaml, &event)) {
            return syntax_error(r);
        }
        bool end = event.type == YAML_STREAM_END_EVENT;
        int rc = on_event(r, &event, &n_documents);
        yaml_event_delete(&event);
        if (rc < 0 || end) {
            return rc;
        }
    }
}

int stk_yaml_parse(const char *text, size_t len, const char *path, const stk_json_limits *limits,
                   stk_arena *arena, stk_json *ret_root, stk_err *err)
{
    reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory while reading the document");
    }
    stk_json_build_init(&r->b, arena, path, limits, err);
    r->b.limits.depth = MIN(limits->depth, STK_LIMIT_DEPTH); /* as deep as `open_anchor` */
    int rc;
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) ==
                        0) { /* libyaml would read a byte order mark as a character */
        text += 3;
        len -= 3;
    }
    if (len > limits->bytes) {
        rc = stk_json_build_fail(&r->b, STK_E_LIMIT, 0, "the document is larger than %zu bytes",
                                 limits->bytes);
    } else if (!yaml_parser_initialize(&r->yaml)) {
        rc = no_memory(r, 0);
    } else {
        yaml_parser_set_input_string(&r->yaml, (const unsigned char *)text, len);
        yaml_parser_set_encoding(&r->yaml, YAML_UTF8_ENCODING);
        rc = read_events(r);
        yaml_parser_delete(&r->yaml);
    }
    if (rc == 0 && r->b.n_pending == 0) {
        rc = stk_json_build_fail(&r->b, STK_E_SPEC, 0, "the document is empty");
    }
    if (rc == 0) {
        *ret_root = r->b.pending[0];
    }
    stk_json_build_done(&r->b);
    stk_map_done(&r->anchors);
    free(r->list);
    free(r);
    return rc;
}

int stk_yaml_or_json_parse(const char *text, size_t len, const char *path,
                           const stk_json_limits *limits, stk_arena *arena, stk_json *ret_root,
                           stk_err *err)
{
    size_t i = 3u * (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0);
    while (i < len && strchr(" \t\r\n", text[i]) != NULL && text[i] != '\0') {
        i++;
    }
    if (i < len && text[i] == '{') {
        return stk_json_parse(text, len, path, limits, arena, ret_root, err);
    }
    return stk_yaml_parse(text, len, path, limits, arena, ret_root, err);
}
