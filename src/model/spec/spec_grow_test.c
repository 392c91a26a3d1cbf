#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/testing.h"
#include "model/spec/spec.h"

#define HEAD "stoker: 1\nname: p\nsteps:\n"

static char *message_of(const char *text)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    char message[1200] = "fine";
    if (stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err) < 0) {
        assert_int_equal(err.code, STK_E_SPEC);
        (void)stk_err_format(&err, message, sizeof message);
    }
    stk_spec_free(spec);
    return strdup(message);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        /* the keys of one step */
        {HEAD "  a: {run: x, next: bb}\n  b: {run: x}",
         "p.yaml:4: step 'a': next: there is no step 'bb'; did you mean 'b'?"},
        {HEAD "  a: {run: x, outputs: [o], next: [], foreach: o}",
         "p.yaml:4: step 'a': 'next' is empty; where the graph ends, leave it out"},
        {HEAD "  a: {run: x, next: 5}",
         "p.yaml:4: step 'a': 'next' must be the name of a step, not 5"},
        {HEAD "  a: {run: x, outputs: [o], foreach: o}",
         "p.yaml:4: step 'a': 'foreach' needs 'next', the step that follows"},
        {HEAD "  a: {run: x, next: b, foreach: o}\n  b: {run: x}",
         "p.yaml:4: step 'a': 'foreach' names 'o', which isn't an output of the step; add it to "
         "'outputs'"},
        {HEAD "  a: {run: x, outputs: [o], next: [b, c], foreach: o}\n  b: {run: x}\n  c: {run: "
              "x}",
         "p.yaml:4: step 'a': 'next' with 'foreach' must name exactly one step, not 2"},
        {HEAD "  a: {run: x, outputs: [o], next: b, foreach: o, num_parallel: 2}\n  b: {run: x}",
         "p.yaml:4: step 'a': 'foreach', 'num_parallel' and 'switch' exclude each other"},
        {HEAD "  a: {run: x, next: b, num_parallel: 0}\n  b: {run: x}",
         "p.yaml:4: step 'a': 'num_parallel' is 0; it must be between 1 and 1024"},
        {HEAD "  a: {run: x, next: b, num_parallel: false}\n  b: {run: x}",
         "p.yaml:4: step 'a': 'num_parallel' must be a number of ranks, the name of an output that "
         "holds it, or true if the result gives it, not false"},
        {HEAD "  a: {run: x, outputs: [o], switch: o, next: b}\n  b: {run: x}",
         "p.yaml:4: step 'a': 'switch' and 'cases' need each other: switch: OUTPUT, cases: {value: "
         "step}"},
        {HEAD "  a: {run: x, outputs: [o], switch: o, cases: {}}",
         "p.yaml:4: step 'a': 'cases' is empty; write value: step for each"},
        {HEAD "  a: {run: x, outputs: [o], switch: o, cases: {y: b}, next: [b, c]}\n  b: {run: "
              "x}\n  c: {run: x}",
         "p.yaml:4: step 'a': 'next' and 'cases' must name the same steps, but 'c' isn't in "
         "'cases'"},
        {HEAD "  a: {run: x, outputs: [o], switch: o, cases: {y: b, n: c}, next: [b]}\n  b: {run: "
              "x}\n  c: {run: x}",
         "p.yaml:4: step 'a': 'next' and 'cases' must name the same steps, but 'c' isn't in "
         "'next'"},
        /* the graph */
        {HEAD "  a: {run: x, next: [b, b]}\n  b: {run: x}",
         "p.yaml:4: step 'a': 'next' names 'b' twice; to run a step several times use 'foreach'"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x}\n  c: {run: x}",
         "p.yaml:6: step 'c': no path leads here from the first step, 'a'; name it in the 'next' "
         "of a step, or remove it"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x, join: true}",
         "p.yaml:4: step 'a': 'b' is a join, but no split is open here; remove 'join' from 'b', or "
         "split before it"},
        {HEAD "  a: {run: x, join: true, next: b}\n  b: {run: x}",
         "p.yaml:4: step 'a': the first step of a document can't be a join"},
        {HEAD "  a: {run: x, outputs: [o], next: j, foreach: o}\n  j: {run: x, join: true}",
         "p.yaml:4: step 'a': 'j' is a join, but a branch needs at least one step before its join; "
         "put a step in between"},
        {HEAD "  a: {run: x, next: [b, c]}\n  b: {run: x, next: j}\n  c: {run: x}\n  j: {run: x, "
              "join: true}",
         "p.yaml:6: step 'c': the graph ends here while the split of 'a' is open; lead its "
         "branches to a step with join: true"},
        {HEAD "  a: {run: x, next: [b, c]}\n  b: {run: x, next: j}\n  c: {run: x, next: k}\n  j: "
              "{run: x, join: true}\n  k: {run: x, join: true}",
         "p.yaml:6: step 'c': branches of 'a' end in two joins, 'k' and 'j'; lead all of them to "
         "one join"},
        {HEAD "  a: {run: x, outputs: [o], switch: o, cases: {y: b, n: c}}\n  b: {run: x, outputs: "
              "[o], next: c, foreach: o}\n  c: {run: x}",
         "p.yaml:5: step 'b': 'c' is reached within the split of 'b' from here, but also from 'a' "
         "outside every split; close the split with a join first, or name another step"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x, next: c}\n  c: {run: x, next: b}\n",
         "p.yaml:4: step 'a': every step has a 'next', so a run would never end; remove 'next' "
         "from the last step"},
        {HEAD "  a: {run: x, outputs: [o], switch: o, cases: {y: b, n: d}}\n  b: {run: x, next: "
              "c}\n  c: {run: x, next: b}\n  d: {run: x}",
         "p.yaml:6: step 'c': 'b' leads back to itself without a switch, so a run would never end; "
         "leave the loop by a step with 'switch' and 'cases'"},
        {HEAD "  a: {run: x, next: b, num_parallel: 2}\n  b: {run: x, next: c}\n  c: {run: x, "
              "next: j}\n  j: {run: x, join: true}",
         "p.yaml:4: step 'a': 'b' starts by 'num_parallel', so its 'next' must be exactly one "
         "join; give 'b' a next step with join: true"},
        /* references to steps */
        {HEAD "  a: {run: x, outputs: [o], next: b}\n  b: {run: x, next: c}\n  c: {run: x, inputs: "
              "{i: {from: a.o}}}",
         "p.yaml:6: step 'c': inputs.i: 'next' of 'a' doesn't name this step; in a graph of "
         "'next', 'from' must name a step whose 'next' is this one"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x, after: [b]}",
         "p.yaml:5: step 'b': after: 'next' of 'b' doesn't name this step; in a graph of 'next', "
         "only 'next' orders the steps; remove 'after'"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x, inputs: {i: {item: true}}}",
         "p.yaml:5: step 'b': inputs.i: {item: true} needs a foreach around the step; lead to this "
         "step from one with 'foreach'"},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x, inputs: {i: {item: 3}}}",
         "p.yaml:5: step 'b': 'inputs.i' must be {item: true}, the item of the foreach, not 3"},
        /* keys that need a graph that grows, in one that doesn't */
        {HEAD "  a: {run: x}\n  b: {run: x, join: true}",
         "p.yaml:5: step 'b': 'join' needs steps with 'next', and this document has none"},
        {HEAD "  a: {run: x, fallback: true}",
         "p.yaml:4: step 'a': 'fallback' needs steps with 'next', and this document has none"},
        {HEAD "  a: {run: x, inputs: {i: {item: true}}}",
         "p.yaml:4: step 'a': 'item' needs steps with 'next', and this document has none"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *message = message_of(cases[i].text);
        assert_string_equal(message, cases[i].expected);
        free(message);
    }
}

#define EVERYTHING                                                                                 \
    HEAD                                                                                           \
        "  start: {run: x, outputs: [todo], next: work, foreach: todo}\n"                          \
        "  gather: {run: x, join: true, outputs: [verdict], inputs: {parts: {from: work.part}},\n" \
        "           switch: verdict, cases: {'yes': good, 'no': start2, 3: start2}}\n"             \
        "  work: {run: x, outputs: [part], next: gather, inputs: {x: {item: true}, c: {from: "     \
        "start.todo}}}\n"                                                                          \
        "  start2: {python: 'm:f', next: gang, num_parallel: true}\n"                              \
        "  gang: {python: 'm:f', next: together}\n"                                                \
        "  together: {python: 'm:f', join: true, fallback: true, switch: more, cases: {again: "    \
        "start2, done: good}}\n"                                                                   \
        "  good: {run: x, next: [a, b]}\n"                                                         \
        "  a: {run: x, next: j}\n"                                                                 \
        "  b: {run: x, next: j}\n"                                                                 \
        "  j: {run: x, join: true}\n"

static void check_everything(const stk_spec *spec)
{
    assert_true(stk_spec_grows(spec));
    assert_int_equal(stk_spec_mode(spec), STK_MODE_STOP);
    assert_string_equal(stk_spec_step(spec, 1)->name, "gather"); /* as in the document */
    const stk_step *start = stk_spec_step(spec, 0);
    assert_int_equal(start->grows, STK_NEXT_FOREACH);
    assert_string_equal(start->on, "todo");
    assert_int_equal(start->n_next, 1);
    assert_int_equal(start->next[0], 2);
    const stk_step *gather = stk_spec_step(spec, 1);
    assert_int_equal(gather->grows, STK_NEXT_SWITCH);
    assert_true(gather->is_join);
    assert_int_equal(gather->n_next, 3);
    assert_string_equal(gather->cases[0], "yes");
    assert_int_equal(gather->next[0], 6);
    assert_string_equal(gather->cases[2], "3");
    assert_int_equal(gather->next[2], 3);
    const stk_step *work = stk_spec_step(spec, 2);
    assert_int_equal(work->grows, STK_NEXT_ALL);
    assert_int_equal(work->inputs[0].kind, STK_INPUT_ITEM);
    assert_int_equal(stk_spec_step(spec, 3)->grows, STK_NEXT_PARALLEL);
    assert_int_equal(stk_spec_step(spec, 3)->num_parallel, 0);
    assert_true(stk_spec_step(spec, 5)->fallback);
    assert_int_equal(stk_spec_step(spec, 9)->grows, STK_NEXT_NONE);
}

static void test_everything(void **state)
{
    (void)state;
    stk_spec *spec = NULL;
    stk_spec *again = NULL;
    stk_err err = {0};
    size_t len;
    if (stk_spec_parse(EVERYTHING, strlen(EVERYTHING),
                       &(stk_spec_place){.path = "/p/p.yaml", .folder = "/p"}, &spec, &err) < 0) {
        fail_msg("%s", err.text);
    }
    check_everything(spec);
    const char *text = stk_spec_text(spec, &len);
    assert_return_code(stk_spec_parse(text, len,
                                      &(stk_spec_place){.path = "/elsewhere.json", .folder = "/"},
                                      &again, &err),
                       0);
    check_everything(again);
    assert_string_equal(stk_spec_text(again, NULL), text);
    stk_spec_free(spec);
    stk_spec_free(again);
}

/* A graph that grows may have only one step. */
static void test_one_step(void **state)
{
    (void)state;
    const char *text = HEAD "  a: {run: x, next: []}";
    stk_spec *spec = NULL;
    stk_err err = {0};
    assert_return_code(
        stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.yaml"}, &spec, &err), 0);
    assert_true(stk_spec_grows(spec));
    assert_int_equal(stk_spec_step(spec, 0)->n_next, 0);
    stk_spec_free(spec);
}

static void test_modes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        stk_mode mode;
    } cases[] = {
        {HEAD "  a: {run: x}", STK_MODE_CONTINUE},
        {HEAD "  a: {run: x, next: b}\n  b: {run: x}", STK_MODE_STOP},
        {"mode: continue_on_failure\n" HEAD "  a: {run: x, next: b}\n  b: {run: x}",
         STK_MODE_CONTINUE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_spec *spec = NULL;
        stk_err err = {0};
        assert_return_code(stk_spec_parse(cases[i].text, strlen(cases[i].text),
                                          &(stk_spec_place){.path = "p.yaml"}, &spec, &err),
                           0);
        assert_int_equal(stk_spec_mode(spec), cases[i].mode);
        stk_spec_free(spec);
    }
}

/* A hundred thousand steps, wide and long: reading them takes linear time. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 50000 };
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    stk_buf_text(&text, "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"s\":{\"run\":\"x\",\"outputs\":["
                        "\"o\"],\"next\":[");
    for (int i = 0; i < N; i++) {
        stk_buf_printf(&text, "%s\"b%d\"", i == 0 ? "" : ",", i);
    }
    stk_buf_text(&text, "]}");
    for (int i = 0; i < N; i++) {
        stk_buf_printf(&text,
                       ",\"b%d\":{\"run\":\"x\",\"inputs\":{\"i\":{\"from\":\"s.o\"}},\"next\":"
                       "\"j\"}",
                       i);
    }
    stk_buf_text(&text, ",\"j\":{\"run\":\"x\",\"join\":true,\"next\":\"c0\"}");
    for (int i = 0; i < N; i++) {
        stk_buf_printf(&text, ",\"c%d\":{\"run\":\"x\",\"next\":\"c%d\"}", i, i + 1);
    }
    stk_buf_printf(&text, ",\"c%d\":{\"run\":\"x\"}}}", N);
    stk_spec *spec = NULL;
    stk_err err = {0};
    if (stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "p.json"}, &spec, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(stk_spec_n_steps(spec), 2 * N + 3);
    stk_spec_free(spec);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_everything),
        cmocka_unit_test(test_one_step), cmocka_unit_test(test_modes),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
