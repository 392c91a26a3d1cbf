#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/testing.h"
#include "model/grow/grow.h"

#define HEAD "stoker: 1\nname: p\nsteps:\n"

static stk_spec *parse(const char *text)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    char message[1200];
    if (stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err) < 0) {
        fail_msg("%s", stk_err_format(&err, message, sizeof message));
    }
    return spec;
}

/* What a step's tasks choose as next: "work*3" is step work with width 3; blanks separate words; ""
 * is all of `next`. The step's k-th task uses the k-th text; all later ones use the last text. */
typedef struct script {
    const char *step;
    const char *says[4];
} script;

/* A run. Its tasks end in the order in which they were added or, with is_lifo, newest first. */
typedef struct run {
    stk_spec *spec;
    stk_grow *grow;
    stk_arena *arena;
    const script *scripts;
    uint32_t *open; /* tasks that have not ended */
    uint32_t n_open;
    uint32_t n_said[64];
    bool is_lifo;
    stk_buf trace;
    /* the log, for replay() */
    struct {
        bool is_add;
        uint32_t task;
        stk_grow_adding adding;
        stk_grow_next next;
    } * log;
    uint32_t n_log;
} run;

enum { MOST = 60000 };

static void add(run *r, const stk_grow_adding *a)
{
    stk_err err = {0};
    if (stk_grow_add(r->grow, a, &err) < 0) {
        fail_msg("%s", err.text);
    }
    stk_buf_printf(&r->trace, "%s%u", r->n_log == 0 ? "" : " ", a->first);
    if (a->n > 1) {
        stk_buf_printf(&r->trace, "-%u", a->first + a->n - 1);
    }
    stk_buf_printf(&r->trace, ":%s", stk_spec_step(r->spec, a->i_step)->name);
    for (uint32_t i = 0; i < a->n_parents && i < 8; i++) {
        stk_buf_printf(&r->trace, "%c%u", i == 0 ? '<' : ',', a->parents[i]);
    }
    if (a->split != STK_GROW_NONE) {
        stk_buf_printf(&r->trace, "[%u/%u]", a->split, a->branch);
    }
    if (a->ranks > 0) {
        stk_buf_printf(&r->trace, "x%u", a->ranks);
    }
    for (uint32_t i = 0; i < a->n; i++) {
        r->open[r->n_open++] = a->first + i;
    }
    r->log[r->n_log].is_add = true;
    r->log[r->n_log++].adding = *a;
}

static stk_grow_next next_of(run *r, uint32_t i_step)
{
    const char *name = stk_spec_step(r->spec, i_step)->name;
    stk_grow_next next = {0};
    for (const script *s = r->scripts; s != NULL && s->step != NULL; s++) {
        if (strcmp(s->step, name) != 0) {
            continue;
        }
        uint32_t k = r->n_said[i_step]++;
        for (k = MIN(k, 3); k > 0 && s->says[k] == NULL; k--) {
        }
        char *text = stk_arena_dup(r->arena, s->says[k]);
        const char *names[8];
        char *rest = NULL;
        for (char *word = strtok_r(text, " ", &rest); word != NULL;
             word = strtok_r(NULL, " ", &rest)) {
            char *star = strchr(word, '*');
            next.n = star == NULL ? 0 : (uint32_t)strtoul(star + 1, NULL, 10);
            word[star == NULL ? strlen(word) : (size_t)(star - word)] = '\0';
            names[next.n_steps++] = word;
        }
        stk_err err = {0};
        if (stk_grow_read_next(r->spec, i_step, names, next.n_steps, r->arena, &next.steps, &err) <
            0) {
            fail_msg("%s", err.text);
        }
    }
    return next;
}

static void run_all(run *r)
{
    stk_grow_adding first;
    stk_grow_begin(r->grow, &first);
    add(r, &first);
    uint32_t n_done = 0;
    while (r->n_open > (r->is_lifo ? 0 : n_done)) {
        uint32_t task = r->is_lifo ? r->open[--r->n_open] : r->open[n_done++];
        stk_grow_next next = next_of(r, stk_grow_get(r->grow, task).i_step);
        stk_grow_adding *adding = NULL;
        uint32_t n = 0;
        stk_err err = {0};
        if (stk_grow_check(r->grow, task, &next, &err) < 0 ||
            stk_grow_done(r->grow, task, &next, r->arena, &adding, &n, &err) < 0) {
            fail_msg("task %u: %s", task, err.text);
        }
        r->log[r->n_log].task = task;
        r->log[r->n_log++].next = next;
        for (uint32_t i = 0; i < n; i++) {
            add(r, &adding[i]);
        }
    }
}

/* Replaying the log gives the same tasks, and stk_grow_done returns the tasks that were added. */
static void replay(const run *r)
{
    stk_grow *again = NULL;
    stk_err err = {0};
    stk_grow_adding *due = NULL;
    uint32_t n_due = 0;
    stk_grow_adding first;
    assert_return_code(stk_grow_new(r->spec, &again, &err), 0);
    stk_grow_begin(again, &first);
    for (uint32_t i = 0; i < r->n_log; i++) {
        if (!r->log[i].is_add) {
            assert_int_equal(n_due, 0);
            assert_return_code(
                stk_grow_done(again, r->log[i].task, &r->log[i].next, r->arena, &due, &n_due, &err),
                0);
            continue;
        }
        const stk_grow_adding *was = &r->log[i].adding;
        const stk_grow_adding *is = i == 0 ? &first : due++;
        n_due -= i == 0 ? 0 : 1;
        assert_int_equal(is->first, was->first);
        assert_int_equal(is->n, was->n);
        assert_int_equal(is->i_step, was->i_step);
        assert_int_equal(is->branch, was->branch);
        assert_return_code(stk_grow_add(again, was, &err), 0);
    }
    assert_int_equal(stk_grow_n_tasks(again), stk_grow_n_tasks(r->grow));
    for (uint32_t i = 0; i < stk_grow_n_tasks(again); i++) {
        stk_grow_task a = stk_grow_get(again, i);
        stk_grow_task b = stk_grow_get(r->grow, i);
        assert_memory_equal(a.parents, b.parents, a.n_parents * sizeof *a.parents);
        a.parents = b.parents = NULL;
        assert_int_equal(a.i_step, b.i_step);
        assert_int_equal(a.n_parents, b.n_parents);
        assert_int_equal(a.split, b.split);
        assert_int_equal(a.branch, b.branch);
        assert_int_equal(a.ranks, b.ranks);
        assert_int_equal(a.width, b.width);
    }
    stk_grow_free(again);
}

static void open_run(run *r, const char *text, const script *scripts, bool is_lifo)
{
    stk_err err = {0};
    *r = (run){.spec = parse(text),
               .arena = stk_arena_new(0),
               .scripts = scripts,
               .open = calloc(MOST, sizeof *r->open),
               .log = calloc(2ul * MOST, sizeof *r->log),
               .is_lifo = is_lifo,
               .trace = STK_BUF_INIT(1 << 24)};
    assert_non_null(r->open);
    assert_non_null(r->log);
    assert_return_code(stk_grow_new(r->spec, &r->grow, &err), 0);
}

static void close_run(run *r)
{
    stk_grow_free(r->grow);
    stk_spec_free(r->spec);
    stk_arena_free(r->arena);
    stk_buf_done(&r->trace);
    free(r->open);
    free(r->log);
}

/* --- kinds of graphs --- */

#define DIAMOND "  a: {run: x, next: [b, c]}\n  b: {run: x, next: j}\n  c: {run: x, next: j}\n"
#define FOREACH                                                                                    \
    HEAD "  a: {python: 'm:f', next: b, foreach: xs}\n  b: {run: x, next: j}\n"                    \
         "  j: {run: x, join: true, next: e}\n  e: {run: x}\n"
#define NESTED                                                                                     \
    HEAD "  a: {python: 'm:f', next: b, foreach: xs}\n  b: {python: 'm:f', next: c, foreach: "     \
         "ys}\n  c: {run: x, next: j}\n  j: {run: x, join: true, next: k}\n  k: {run: x, join: "   \
         "true}\n"
#define SWITCH                                                                                     \
    HEAD "  a: {python: 'm:f', switch: v, cases: {'yes': b, 'no': d, maybe: b}}\n"                 \
         "  b: {run: x, next: c}\n  c: {run: x, next: d}\n  d: {run: x}\n"
#define LOOP                                                                                       \
    HEAD "  a: {run: x, next: b}\n  b: {python: 'm:f', switch: v, cases: {again: b, done: "        \
         "c}}\n  c: {run: x}\n"
#define PARALLEL(n)                                                                                \
    HEAD "  a: {python: 'm:f', next: g, num_parallel: " n "}\n  g: {run: x, next: j}\n"            \
         "  j: {run: x, join: true}\n"
#define SWITCH_IN_FOREACH                                                                          \
    HEAD "  a: {python: 'm:f', next: b, foreach: xs}\n"                                            \
         "  b: {python: 'm:f', switch: v, cases: {long: c, short: j}}\n  c: {run: x, next: j}\n"   \
         "  j: {run: x, join: true}\n"

static void test_families(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        script scripts[3];
        bool is_lifo;
        const char *expected;
    } cases[] = {
        {"linear", HEAD "  a: {run: x, next: b}\n  b: {run: x}\n", {{0}}, false, "0:a 1:b<0"},
        {"branch",
         HEAD DIAMOND "  j: {run: x, join: true, next: e}\n  e: {run: x}\n",
         {{0}},
         false,
         "0:a 1:b<0[0/0] 2:c<0[0/1] 3:j<1,2 4:e<3"},
        {"branch, the last first: a join's inputs are in the order of their branches",
         HEAD DIAMOND "  j: {run: x, join: true}\n",
         {{"a", {"c b"}}},
         true,
         "0:a 1:b<0[0/0] 2:c<0[0/1] 3:j<1,2"},
        {"nested branch",
         HEAD "  s: {run: x, next: [a, z]}\n  z: {run: x, next: k}\n" DIAMOND
              "  j: {run: x, join: true, next: k}\n  k: {run: x, join: true}\n",
         {{0}},
         false,
         "0:s 1:a<0[0/0] 2:z<0[0/1] 3:b<1[1/0] 4:c<1[1/1] 5:j<3,4[0/0] 6:k<5,2"},
        {"foreach", FOREACH, {{"a", {"b*3"}}}, false, "0:a 1-3:b<0[0/0] 4:j<1,2,3 5:e<4"},
        {"nested foreach",
         NESTED,
         {{"a", {"b*2"}}, {"b", {"c*1", "c*2"}}},
         false,
         "0:a 1-2:b<0[0/0] 3:c<1[1/0] 4-5:c<2[2/0] 6:j<3[0/0] 7:j<4,5[0/1] 8:k<6,7"},
        {"nested foreach, the last first",
         NESTED,
         {{"a", {"b*2"}}, {"b", {"c*1", "c*2"}}},
         true,
         "0:a 1-2:b<0[0/0] 3:c<2[2/0] 4:j<3[0/1] 5-6:c<1[1/0] 7:j<5,6[0/0] 8:k<7,4"},
        {"foreach in a branch",
         HEAD "  s: {run: x, next: [a, z]}\n  z: {run: x, next: k}\n"
              "  a: {python: 'm:f', next: b, foreach: xs}\n  b: {run: x, next: j}\n"
              "  j: {run: x, join: true, next: k}\n  k: {run: x, join: true}\n",
         {{"a", {"b*2"}}},
         false,
         "0:s 1:a<0[0/0] 2:z<0[0/1] 3-4:b<1[1/0] 5:j<3,4[0/0] 6:k<5,2"},
        {"switch", SWITCH, {{"a", {"b"}}}, false, "0:a 1:b<0 2:c<1 3:d<2"},
        {"the other case", SWITCH, {{"a", {"d"}}}, false, "0:a 1:d<0"},
        {"loop", LOOP, {{"b", {"b", "b", "c"}}}, false, "0:a 1:b<0 2:b<1 3:b<2 4:c<3"},
        {"parallel", PARALLEL("4"), {{0}}, false, "0:a 1:g<0[0/0]x4 2:j<1"},
        {"parallel by the result",
         PARALLEL("true"),
         {{"a", {"g*2"}}},
         false,
         "0:a 1:g<0[0/0]x2 2:j<1"},
        {"switch in a foreach, one branch without the step in between",
         SWITCH_IN_FOREACH,
         {{"a", {"b*3"}}, {"b", {"c", "j", "c"}}},
         false,
         "0:a 1-3:b<0[0/0] 4:c<1[0/0] 5:c<3[0/2] 6:j<4,2,5"},
        {"a loop about a foreach",
         HEAD "  a: {python: 'm:f', next: b, foreach: xs}\n  b: {run: x, next: j}\n"
              "  j: {python: 'm:f', join: true, switch: v, cases: {again: a, done: e}}\n"
              "  e: {run: x}\n",
         {{"a", {"b*2", "b*1"}}, {"j", {"a", "e"}}},
         false,
         "0:a 1-2:b<0[0/0] 3:j<1,2 4:a<3 5:b<4[4/0] 6:j<5 7:e<6"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        open_run(&r, cases[i].text, cases[i].scripts, cases[i].is_lifo);
        run_all(&r);
        if (strcmp(r.trace.data, cases[i].expected) != 0) {
            fail_msg("%s: %s, not %s", cases[i].name, r.trace.data, cases[i].expected);
        }
        replay(&r);
        close_run(&r);
    }
}

static void test_many(void **state)
{
    (void)state;
    static const struct {
        const char *text, *step, *says;
        uint32_t n_tasks;
    } cases[] = {{FOREACH, "a", "b*10000", 10003}, {FOREACH, "a", "b*1", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const script scripts[] = {{cases[i].step, {cases[i].says}}, {0}};
        run r;
        open_run(&r, cases[i].text, scripts, i == 0);
        run_all(&r);
        assert_int_equal(stk_grow_n_tasks(r.grow), cases[i].n_tasks);
        stk_grow_task join = stk_grow_get(r.grow, cases[i].n_tasks - 2);
        assert_int_equal(join.n_parents, cases[i].n_tasks - 3);
        for (uint32_t k = 0; k < join.n_parents; k++) {
            assert_int_equal(join.parents[k], k + 1);
            assert_int_equal(stk_grow_get(r.grow, k + 1).branch, k);
        }
        assert_int_equal(stk_grow_get(r.grow, 0).width, cases[i].n_tasks - 3);
        replay(&r);
        close_run(&r);
    }
}

static void test_long_loop(void **state)
{
    (void)state;
    enum { N = 1000 };
    stk_arena *arena = stk_arena_new(0);
    stk_spec *spec = parse(LOOP);
    stk_grow *grow = NULL;
    stk_err err = {0};
    stk_grow_adding first;
    stk_grow_adding *adding = &first;
    uint32_t n = 1;
    assert_return_code(stk_grow_new(spec, &grow, &err), 0);
    stk_grow_begin(grow, &first);
    for (uint32_t i = 0; n > 0; i++) {
        uint32_t chosen = i < 1 + N ? 1 : 2; /* b again, or c */
        stk_grow_next next = {.steps = &chosen, .n_steps = adding->i_step == 2 ? 0 : 1};
        assert_int_equal(adding->first, i);
        assert_return_code(stk_grow_add(grow, adding, &err), 0);
        assert_return_code(stk_grow_done(grow, i, &next, arena, &adding, &n, &err), 0);
    }
    assert_int_equal(stk_grow_n_tasks(grow), N + 3);
    assert_int_equal(stk_grow_get(grow, N + 2).parents[0], N + 1);
    stk_grow_free(grow);
    stk_spec_free(spec);
    stk_arena_free(arena);
}

/* --- refusals, which change nothing --- */

static void test_refusals(void **state)
{
    (void)state;
    static const uint32_t steps[] = {0, 1, 2, 3};
    static const struct {
        const char *text;
        stk_grow_next next;
        int code;
        const char *expected;
    } cases[] = {
        {FOREACH, {NULL, 0, 0}, STK_E_USAGE, "its foreach over 'xs' has no items"},
        {FOREACH,
         {steps + 2, 1, 3},
         STK_E_USAGE,
         "it named 'j' as the next step, but its graph says b"},
        {FOREACH,
         {steps + 1, 2, 3},
         STK_E_USAGE,
         "it named 'b', 'j' as the next step, but its graph says b"},
        {FOREACH,
         {NULL, 0, STK_LIMIT_TASKS},
         STK_E_LIMIT,
         "with 2000000 more tasks the run would have 2000001, more than the limit of 2000000"},
        {PARALLEL("4"), {NULL, 0, 3}, STK_E_USAGE, "its num_parallel is 3, but its graph says 4"},
        {PARALLEL("true"),
         {NULL, 0, 0},
         STK_E_USAGE,
         "its num_parallel is 0; it must be between 1 and 1024"},
        {PARALLEL("true"),
         {NULL, 0, 1025},
         STK_E_USAGE,
         "its num_parallel is 1025; it must be between 1 and 1024"},
        {SWITCH, {NULL, 0, 0}, STK_E_USAGE, "it didn't say which case of 'v' comes next"},
        {SWITCH,
         {steps + 2, 1, 0},
         STK_E_USAGE,
         "it named 'c' as the next step, but its graph says one of b, d"},
        {SWITCH,
         {steps + 1, 2, 0},
         STK_E_USAGE,
         "it named 'b', 'c' as the next step, but its graph says one of b, d"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x}\n",
         {steps, 1, 0},
         STK_E_USAGE,
         "it named 'a' as the next step, but its graph says b"},
    };
    stk_arena *arena = stk_arena_new(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_spec *spec = parse(cases[i].text);
        stk_grow *grow = NULL;
        stk_err err = {0};
        stk_grow_adding first;
        stk_grow_adding *adding = NULL;
        uint32_t n = 0;
        assert_return_code(stk_grow_new(spec, &grow, &err), 0);
        stk_grow_begin(grow, &first);
        assert_return_code(stk_grow_add(grow, &first, &err), 0);
        assert_int_equal(stk_grow_done(grow, 0, &cases[i].next, arena, &adding, &n, &err),
                         cases[i].code);
        assert_string_equal(err.text, cases[i].expected);
        assert_null(adding);
        assert_int_equal(stk_grow_get(grow, 0).width, 0);
        assert_int_equal(stk_grow_check(grow, 0, &cases[i].next, &err), cases[i].code);
        stk_grow_free(grow);
        stk_spec_free(spec);
    }
    stk_arena_free(arena);
}

/* Tasks can be added up to the limit, and a task ends only once. */
static void test_limits(void **state)
{
    (void)state;
    stk_arena *arena = stk_arena_new(0);
    stk_spec *spec = parse(FOREACH);
    stk_grow *grow = NULL;
    stk_err err = {0};
    stk_grow_adding first;
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    stk_grow_next next = {.n = STK_LIMIT_TASKS - 1};
    assert_return_code(stk_grow_new(spec, &grow, &err), 0);
    stk_grow_begin(grow, &first);
    assert_return_code(stk_grow_add(grow, &first, &err), 0);
    assert_return_code(stk_grow_done(grow, 0, &next, arena, &adding, &n, &err), 0);
    assert_int_equal(stk_grow_done(grow, 0, &next, arena, &adding, &n, &err), STK_E_PROTOCOL);
    assert_int_equal(stk_grow_check(grow, 1, &next, &err), STK_E_PROTOCOL);
    assert_return_code(stk_grow_add(grow, adding, &err), 0);
    assert_int_equal(stk_grow_n_tasks(grow), STK_LIMIT_TASKS);
    /* the limit leaves no number for their join */
    assert_int_equal(stk_grow_check(grow, 1, &(stk_grow_next){0}, &err), STK_E_LIMIT);
    stk_grow_free(grow);
    stk_spec_free(spec);
    stk_arena_free(arena);
}

/* A log that Stoker can't have written. */
static void test_tampered(void **state)
{
    (void)state;
    static const uint32_t parents[] = {0, 7};
    static const stk_grow_adding wrong[] = {
        {.first = 2, .n = 1, .i_step = 1, .parents = parents, .n_parents = 1, .split = 0},
        {.first = 1, .n = 0, .i_step = 1, .parents = parents, .n_parents = 1, .split = 0},
        {.first = 1, .n = 3, .i_step = 1, .parents = parents, .n_parents = 1, .split = 0},
        {.first = 1, .n = 2, .i_step = 9, .parents = parents, .n_parents = 1, .split = 0},
        {.first = 1, .n = 2, .i_step = 1, .parents = parents, .n_parents = 2, .split = 0},
        {.first = 1, .n = 2, .i_step = 1, .n_parents = 0, .split = 0},
        {.first = 1, .n = 2, .i_step = 1, .parents = parents, .n_parents = 1, .split = 5},
        {.first = 1,
         .n = 2,
         .i_step = 1,
         .parents = parents,
         .n_parents = 1,
         .split = STK_GROW_NONE},
        {.first = 1, .n = 1, .i_step = 1, .parents = parents, .n_parents = 1, .branch = 2},
    };
    stk_arena *arena = stk_arena_new(0);
    stk_spec *spec = parse(FOREACH);
    stk_grow *grow = NULL;
    stk_err err = {0};
    stk_grow_adding first;
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    assert_return_code(stk_grow_new(spec, &grow, &err), 0);
    stk_grow_begin(grow, &first);
    assert_return_code(stk_grow_add(grow, &first, &err), 0);
    assert_return_code(stk_grow_done(grow, 0, &(stk_grow_next){.n = 2}, arena, &adding, &n, &err),
                       0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(stk_grow_add(grow, &wrong[i], &err), STK_E_PROTOCOL);
        assert_int_equal(stk_grow_n_tasks(grow), 1);
    }
    assert_return_code(stk_grow_add(grow, adding, &err), 0);
    stk_grow_free(grow);
    stk_spec_free(spec);
    stk_arena_free(arena);
}

static void test_cases(void **state)
{
    (void)state;
    stk_arena *arena = stk_arena_new(0);
    stk_spec *spec = parse(SWITCH);
    stk_err err = {0};
    assert_int_equal(stk_grow_case(spec, 0, "no"), 1);
    assert_int_equal(stk_grow_case(spec, 0, "maybe"), 2);
    assert_int_equal(stk_grow_case(spec, 0, "nay"), -1);
    assert_int_equal(stk_grow_case(spec, 1, "no"), -1);
    assert_int_equal(stk_grow_refuse_case(spec, 0, "nay", &err), STK_E_USAGE);
    assert_string_equal(err.text, "its switch on 'v' got 'nay', but its cases are yes, no, maybe");
    static const char *const wrong[] = {"nowhere", "c"};
    static const char *const both[] = {"b", "d"};
    const uint32_t *steps = NULL;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stk_grow_read_next(spec, 0, &wrong[i], 1, arena, &steps, &err),
                         STK_E_USAGE);
        assert_null(steps);
    }
    assert_string_equal(err.text, "it named 'c' as the next step, but its graph says one of b, d");
    assert_int_equal(stk_grow_read_next(spec, 0, both, 2, arena, &steps, &err), STK_E_USAGE);
    assert_int_equal(stk_grow_read_next(spec, 3, both, 1, arena, &steps, &err), STK_E_USAGE);
    assert_string_equal(err.text, "it named 'b' as the next step, but the graph ends here");
    stk_spec_free(spec);
    stk_arena_free(arena);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),  cmocka_unit_test(test_many),
        cmocka_unit_test(test_long_loop), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),    cmocka_unit_test(test_tampered),
        cmocka_unit_test(test_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
