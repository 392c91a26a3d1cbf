#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/testing.h"
#include "model/spec/spec.h"

static stk_spec *parse(const char *parameters, const char *steps)
{
    stk_spec *spec = NULL;
    stk_err err = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 26);
    stk_buf_printf(&text, "stoker: 1\nname: p\nparameters: {%s}\nsteps:\n", parameters);
    stk_buf_text(&text, steps);
    if (stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "p.yaml"}, &spec, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return spec;
}

#define FIT(name, inputs) "  " name ": {python: 'm:fit', outputs: [o], inputs: {" inputs "}}\n"
#define SCORE(name, inputs) "  " name ": {python: 'm:score', outputs: [o], inputs: {" inputs "}}\n"
#define TWO "  two: {run: x, outputs: [train, test]}\n"

static void test_titles(void **state)
{
    (void)state;
    static const struct {
        const char *steps;
        const char *expected[5]; /* "name title" */
    } cases[] = {
        {FIT("fit", "lr: {value: 0.1}, n: {value: 2}")
             FIT("fit_2", "lr: {value: 0.2}, n: {value: 2}"),
         {"fit fit[lr=0.1]", "fit_2 fit[lr=0.2]"}},
        /* an input that only some calls have; at most three differences */
        {FIT("fit", "lr: {value: 0.1}") FIT("fit_2", "lr: {value: 0.1}, depth: {value: 3}"),
         {"fit fit", "fit_2 fit[depth=3]"}},
        {FIT("fit", "a: {value: 1}, b: {value: 1}, c: {value: 1}, d: {value: 1}")
             FIT("fit_2", "a: {value: 2}, b: {value: 2}, c: {value: 2}, d: {value: 2}"),
         {"fit fit[a=1, b=1, c=1]", "fit_2 fit[a=2, b=2, c=2]"}},
        /* long texts keep both ends, control characters are replaced */
        {FIT("fit", "m: {value: meta-llama/Llama-3-8B}")
             FIT("fit_2", "m: {value: meta-llama/Llama-3-70B}"),
         {"fit fit[m=meta-l…-3-8B]", "fit_2 fit[m=meta-l…3-70B]"}},
        {FIT("fit", "m: {value: äöüäöüäöüäöü}") FIT("fit_2", "m: {value: \"a\\nb\"}"),
         {"fit fit[m=äöüäöüäöüäöü]", "fit_2 fit[m=a?b]"}},
        /* two calls with the same differences: the step's name distinguishes them */
        {FIT("fit", "lr: {value: 1}") FIT("fit_2", "lr: {value: 1}") FIT("fit_3", "lr: {value: 2}"),
         {"fit fit[lr=1]", "fit_2 fit_2[lr=1]", "fit_3 fit[lr=2]"}},
        {FIT("fit", "lr: {value: 1}") FIT("fit_2", "lr: {value: 1}"), {"fit fit", "fit_2 fit_2"}},
        /* parameters by their value */
        {FIT("fit", "lr: {param: a}") FIT("fit_2", "lr: {param: b}") FIT("fit_3", "lr: {value: 9}"),
         {"fit fit[lr=1]", "fit_2 fit[lr=2]", "fit_3 fit[lr=9]"}},
        {FIT("fit", "lr: {param: a}") FIT("fit_2", "lr: {value: 1}"), {"fit fit", "fit_2 fit_2"}},
        /* where inputs come from, if nothing else differs or values don't distinguish the calls */
        {FIT("fit", "lr: {value: 1}") FIT("fit_2", "lr: {value: 2}")
             SCORE("score", "m: {from: fit.o}") SCORE("score_2", "m: {from: fit_2.o}"),
         {"score score[fit]", "score_2 score[fit_2]"}},
        {TWO SCORE("score", "m: {from: two.train}") SCORE("score_2", "m: {from: two.test}"),
         {"score score[two.train]", "score_2 score[two.test]"}},
        {TWO FIT("fit", "d: {from: two.train}, lr: {value: 1}")
             FIT("fit_2", "d: {from: two.test}, lr: {value: 1}")
                 FIT("fit_3", "d: {from: two.test}, lr: {value: 2}"),
         {"fit fit[lr=1, two.train]", "fit_2 fit[lr=1, two.test]", "fit_3 fit[lr=2, two.test]"}},
        {TWO SCORE("score", "m: {from: [two.train, two.train]}")
             SCORE("score_2", "m: {from: [two.train, two.test]}"),
         {"score score[m[1]=two.train]", "score_2 score[m[1]=two.test]"}},
        {TWO SCORE("score", "m: {from: [two.train]}")
             SCORE("score_2", "m: {from: [two.train, two.test]}"),
         {"score score[1 m]", "score_2 score[m[1]=two.test]"}},
        /* names that the user chose stay, even if a function's name ends in a number */
        {FIT("fit", "lr: {value: 1}") FIT("base", "lr: {value: 2}") FIT("fit_x", "lr: {value: 3}"),
         {"fit fit", "base base", "fit_x fit_x"}},
        {FIT("fit_2", "lr: {value: 1}") FIT("fit_2_2", "lr: {value: 2}"),
         {"fit_2 fit_2[lr=1]", "fit_2_2 fit_2[lr=2]"}},
        {FIT("fit", "lr: {value: 1}") SCORE("fit_2", "lr: {value: 2}"), {"fit fit", "fit_2 fit_2"}},
        {"  a: {run: x, inputs: {lr: {value: 1}}}\n  a_2: {run: x, inputs: {lr: {value: 2}}}\n",
         {"a a", "a_2 a_2"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_spec *spec = parse("a: 1, b: 2", cases[i].steps);
        for (size_t k = 0; k < 5 && cases[i].expected[k] != NULL; k++) {
            char name[64];
            const char *title = strchr(cases[i].expected[k], ' ') + 1;
            (void)snprintf(name, sizeof name, "%.*s", (int)(title - 1 - cases[i].expected[k]),
                           cases[i].expected[k]);
            int64_t i_step = stk_spec_find(spec, name);
            assert_true(i_step >= 0);
            assert_string_equal(stk_spec_title(spec, (uint32_t)i_step), title);
            assert_int_equal(stk_spec_find_word(spec, title), i_step);
            assert_int_equal(stk_spec_find_word(spec, name), i_step);
        }
        assert_int_equal(stk_spec_find_word(spec, "fit[lr=77]"), -1);
        stk_spec_free(spec);
    }
}

/* The title shows the value of a parameter that is set later. */
static void test_parameters(void **state)
{
    (void)state;
    stk_err err = {0};
    stk_spec *spec =
        parse("a: 1, b: 2", FIT("fit", "lr: {param: a}") FIT("fit_2", "lr: {param: b}"));
    assert_string_equal(stk_spec_title(spec, 1), "fit[lr=2]");
    assert_int_equal(stk_spec_set_param(spec, "b", "7", &err), 0);
    assert_string_equal(stk_spec_title(spec, 1), "fit[lr=7]");
    assert_int_equal(stk_spec_set_param_json(spec, "b", "8", &err), 0);
    assert_string_equal(stk_spec_title(spec, 1), "fit[lr=8]");
    stk_spec_free(spec);
}

/* Many calls, and many inputs that are the same in all of them. */
static void test_many(void **state)
{
    (void)state;
    enum { N = 50000 };
    STK_BUF_AUTO steps = STK_BUF_INIT(1u << 26);
    stk_buf_text(&steps, FIT("fit", "data: {value: 7}, lr: {value: 1}"));
    for (int i = 2; i <= N; i++) {
        stk_buf_printf(&steps,
                       "  fit_%d: {python: 'm:fit', inputs: {data: {value: 7}, lr: {value: %d}}}\n",
                       i, i);
    }
    stk_spec *spec = parse("", steps.data);
    assert_string_equal(stk_spec_title(spec, N - 1), "fit[lr=50000]");
    assert_string_equal(stk_spec_title(spec, 0), "fit[lr=1]");
    stk_spec_free(spec);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_titles),
                                              cmocka_unit_test(test_parameters),
                                              cmocka_unit_test(test_many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
