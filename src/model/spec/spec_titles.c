/* Titles: what differs between the calls of one function. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/text.h"
#include "model/spec/spec_read.h"

enum {
    MAX_PARTS = 3,
    MAX_VALUE = 12, /* characters */
    HEAD = 6,       /* of them before the "…" of a longer value */
    TAIL = 5
};

struct stk_spec_titles {
    stk_arena *arena;
    const char **of; /* by step; NULL: its name */
};

/* One step while titles are made. */
typedef struct call {
    const stk_step *step;
    uint32_t i_step,
        i_base;       /* i_base: the step whose name the others continue ("fit" of "fit_2") */
    const char *what; /* between the brackets; "" or NULL: nothing differs */
} call;

typedef struct maker {
    const stk_spec *spec;
    stk_arena *arena;
    call *calls;
    uint32_t n;
} maker;

/* --- which steps are calls of one function --- */

/* The step whose name this one's continues with "_2", "_3" …: one of the same function. Itself, if
 * there is none: a person gave the name. */
static uint32_t base_of(const stk_spec *spec, uint32_t i_step)
{
    const stk_step *step = &spec->steps[i_step];
    const char *end = strrchr(step->name, '_');
    uint64_t i_base;
    if (end == NULL || end[1] < '1' || end[1] > '9' ||
        end[1 + strspn(end + 1, "0123456789")] != '\0' ||
        !stk_map_getn(&spec->step_index, step->name, (size_t)(end - step->name), &i_base) ||
        !stk_text_same(spec->steps[i_base].python, step->python)) {
        return i_step;
    }
    return (uint32_t)i_base;
}

static int compare_calls(const void *a, const void *b)
{
    const call *x = a, *y = b;
    if (x->i_base != y->i_base) {
        return x->i_base < y->i_base ? -1 : 1;
    }
    return (x->i_step > y->i_step) - (x->i_step < y->i_step);
}

static int compare_what(const void *a, const void *b)
{
    const call *x = *(call *const *)a, *y = *(call *const *)b;
    int order = strcmp(x->what, y->what);
    return order != 0 ? order : compare_calls(x, y);
}

/* --- what differs --- */

/* Calls of one function mostly have the same inputs in the same order: looks there first. */
static const stk_input *input_named(const stk_step *step, const char *name, uint32_t at)
{
    if (at < step->n_inputs && strcmp(step->inputs[at].name, name) == 0) {
        return &step->inputs[at];
    }
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        if (strcmp(step->inputs[i].name, name) == 0) {
            return &step->inputs[i];
        }
    }
    return NULL;
}

static bool is_upstream(const stk_input *in)
{
    return in->kind == STK_INPUT_OUTPUT || in->kind == STK_INPUT_LIST;
}

/* JSON of a literal or parameter, the path of a file, the digest of an artifact. */
static const char *value_of(const stk_spec *spec, const stk_input *in)
{
    const char *value = in->text;
    if (in->kind == STK_INPUT_PARAM) {
        value = spec->params[in->i_param].value;
    }
    return stk_text_or(value, "");
}

static bool is_same_item(const stk_input *a, const stk_input *b)
{
    return a->step == b->step && a->output == b->output;
}

/* Where two lists differ first; n_items of the shorter one if it begins the other. */
static uint32_t first_difference(const stk_input *a, const stk_input *b)
{
    uint32_t i = 0, n = MIN(a->n_items, b->n_items);
    while (i < n && is_same_item(&a->items[i], &b->items[i])) {
        i++;
    }
    return i;
}

static bool is_same_input(const stk_spec *spec, const stk_input *a, const stk_input *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    if (is_upstream(a) != is_upstream(b)) {
        return false;
    }
    if (!is_upstream(a)) {
        return strcmp(value_of(spec, a), value_of(spec, b)) == 0;
    }
    if (a->kind != b->kind || a->kind == STK_INPUT_OUTPUT) {
        return a->kind == b->kind && is_same_item(a, b);
    }
    return a->n_items == b->n_items && first_difference(a, b) == a->n_items;
}

/* Text of at most MAX_VALUE characters: of a long one its ends, as paths and models' names differ
 * at their end. */
static void put_value(const char *value, stk_arena *arena, stk_buf *out)
{
    const stk_json *json = *value == '"' ? stk_json_read(arena, value) : NULL;
    const char *text = stk_text_or(stk_json_text(json), value);
    size_t n = 0, len = strlen(text), head = 0, tail = len, room = TAIL;
    for (size_t i = 0; i < len; i++) { /* a character begins with any byte but 10xxxxxx */
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
        head = n <= HEAD ? i + 1 : head;
    }
    if (n <= MAX_VALUE) {
        stk_buf_text(out, text);
        return;
    }
    while (room > 0) {
        tail--;
        room -= ((unsigned char)text[tail] & 0xc0) != 0x80;
    }
    stk_buf_add(out, text, head);
    stk_buf_text(out, "…");
    stk_buf_text(out, text + tail);
}

/* "fit_2", or of a step with several outputs "split.test". */
static void put_source(const stk_spec *spec, const stk_input *in, stk_buf *out)
{
    const stk_step *from = &spec->steps[in->step];
    stk_buf_text(out, from->name);
    if (from->n_outputs > 1) {
        stk_buf_printf(out, ".%s", from->outputs[in->output].name);
    }
}

/* One difference: "lr=0.1", the source "fit_2", or of a list "ms[1]=fit_2". `at`: where the lists
 * of the calls differ first. */
static void put_part(const maker *m, const stk_input *in, uint32_t at, stk_buf *out)
{
    if (in->kind == STK_INPUT_OUTPUT) {
        put_source(m->spec, in, out);
    } else if (in->kind == STK_INPUT_LIST && at < in->n_items) {
        stk_buf_printf(out, "%s[%u]=", in->name, at);
        put_source(m->spec, &in->items[at], out);
    } else if (in->kind == STK_INPUT_LIST) {
        stk_buf_printf(out, "%u %s", in->n_items, in->name);
    } else {
        stk_buf_printf(out, "%s=", in->name);
        put_value(value_of(m->spec, in), m->arena, out);
    }
}

/* An input that isn't the same in all calls of a group. */
typedef struct difference {
    const char *name;
    uint32_t place; /* among the inputs of the call that has it */
    uint32_t at;    /* of lists: the index of the first item that differs */
    bool is_value;  /* some call has a value here, not an upstream output */
} difference;

static bool find_difference(const maker *m, const call *group, uint32_t n, const stk_input *in,
                            uint32_t place, difference *ret)
{
    bool differs = false;
    *ret = (difference){
        .name = in->name, .place = place, .at = UINT32_MAX, .is_value = !is_upstream(in)};
    for (uint32_t i = 0; i < n; i++) {
        const stk_input *other = input_named(group[i].step, in->name, place);
        if (is_same_input(m->spec, in, other)) {
            continue;
        }
        differs = true;
        ret->is_value = ret->is_value || (other != NULL && !is_upstream(other));
        if (other != NULL && in->kind == STK_INPUT_LIST && other->kind == STK_INPUT_LIST) {
            ret->at = MIN(ret->at, first_difference(in, other));
        }
    }
    return differs;
}

/* The inputs of the first call, then those that only another one has. */
static uint32_t find_differences(const maker *m, const call *group, uint32_t n,
                                 difference ret[2 * MAX_PARTS])
{
    uint32_t found = 0;
    STK_MAP_AUTO seen = {0};
    for (uint32_t c = 0; c < n; c++) {
        const stk_step *step = group[c].step;
        for (uint32_t i = 0; i < step->n_inputs && found < 2 * MAX_PARTS; i++) {
            const stk_input *in = &step->inputs[i];
            uint64_t known;
            if (!stk_map_get(&seen, in->name, &known) && stk_map_put(&seen, in->name, 1) == 0) {
                found += find_difference(m, group, n, in, i, &ret[found]);
            }
        }
    }
    return found;
}

/* --- titles of one group --- */

/* Values first; with `upstream` also where inputs come from. */
static const char *describe(const maker *m, const call *c, const difference *differences,
                            uint32_t n, bool upstream)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 16);
    uint32_t n_parts = 0;
    for (int pass = 0; pass <= (int)upstream; pass++) {
        for (uint32_t i = 0; i < n && n_parts < MAX_PARTS; i++) {
            const stk_input *in = input_named(c->step, differences[i].name, differences[i].place);
            if (in != NULL && is_upstream(in) == (pass == 1)) {
                stk_buf_text(&text, stk_text_when(n_parts++ > 0, ", "));
                put_part(m, in, differences[i].at, &text);
            }
        }
    }
    char *what = stk_arena_dup(m->arena, stk_text_or(text.data, ""));
    if (what != NULL) {
        stk_text_tame(what);
    }
    return what;
}

/* Titles are unique: a call whose differences another one has too keeps its name before them. */
static bool entitle(const maker *m, call **sorted, uint32_t n, const char **titles)
{
    bool unique = true;
    for (uint32_t i = 0; i < n; i++) {
        const call *c = sorted[i];
        bool again = (i > 0 && strcmp(sorted[i - 1]->what, c->what) == 0) ||
                     (i + 1 < n && strcmp(sorted[i + 1]->what, c->what) == 0);
        uint32_t i_head = again ? c->i_step : c->i_base;
        unique = unique && !again;
        titles[c->i_step] = NULL;
        if (*c->what != '\0') {
            titles[c->i_step] =
                stk_arena_printf(m->arena, "%s[%s]", m->spec->steps[i_head].name, c->what);
        }
    }
    return unique;
}

static void entitle_group(const maker *m, call *group, uint32_t n, call **sorted,
                          const char **titles)
{
    difference differences[2 * MAX_PARTS];
    uint32_t n_differences = find_differences(m, group, n, differences);
    bool done = n_differences == 0;
    for (int upstream = 0; upstream < 2 && !done; upstream++) {
        for (uint32_t i = 0; i < n; i++) {
            group[i].what = describe(m, &group[i], differences, n_differences, upstream == 1);
            sorted[i] = &group[i];
            if (group[i].what == NULL) {
                return; /* out of memory: names are titles too */
            }
        }
        qsort(sorted, n, sizeof(call *), compare_what);
        done = entitle(m, sorted, n, titles);
    }
}

/* --- all of them --- */

static void make_titles(const stk_spec *spec, stk_spec_titles *titles)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    maker m = {.spec = spec, .arena = titles->arena};
    m.calls = stk_arena_array(scratch, (size_t)spec->n_steps + 1, sizeof *m.calls);
    call **sorted = stk_arena_array(scratch, (size_t)spec->n_steps + 1, sizeof(call *));
    if (m.calls == NULL || sorted == NULL) {
        return;
    }
    for (uint32_t i = 0; i < spec->n_steps; i++) {
        if (spec->steps[i].python != NULL) {
            m.calls[m.n++] =
                (call){.step = &spec->steps[i], .i_step = i, .i_base = base_of(spec, i)};
        }
    }
    qsort(m.calls, m.n, sizeof *m.calls, compare_calls);
    for (uint32_t from = 0, to; from < m.n; from = to) {
        for (to = from + 1; to < m.n && m.calls[to].i_base == m.calls[from].i_base; to++) {
        }
        if (to > from + 1) {
            entitle_group(&m, &m.calls[from], to - from, sorted, titles->of);
        }
    }
}

void stk_spec_free_titles(stk_spec *spec)
{
    if (spec->titles != NULL) {
        stk_arena_free(spec->titles->arena);
        spec->titles->arena = NULL;
        spec->titles->of = NULL;
    }
}

const char *stk_spec_title(const stk_spec *spec, uint32_t i_step)
{
    stk_spec_titles *titles = spec->titles;
    const char *name = spec->steps[i_step].name;
    if (spec->grows) {
        return name;
    }
    if (titles->arena == NULL) {
        titles->arena = stk_arena_new(0);
        titles->of = stk_arena_array(titles->arena, spec->n_steps, sizeof *titles->of);
        if (titles->of == NULL) {
            stk_arena_free(titles->arena);
            titles->arena = NULL;
            return name;
        }
        make_titles(spec, titles);
    }
    return stk_text_or(titles->of[i_step], name);
}

int64_t stk_spec_find_word(const stk_spec *spec, const char *word)
{
    int64_t found = stk_spec_find(spec, word);
    for (uint32_t i = 0; found < 0 && i < spec->n_steps && strchr(word, '[') != NULL; i++) {
        if (strcmp(stk_spec_title(spec, i), word) == 0) {
            found = i;
        }
    }
    return found;
}

stk_spec_titles *stk_spec_new_titles(stk_arena *arena)
{
    return stk_arena_alloc(arena, sizeof(stk_spec_titles));
}
