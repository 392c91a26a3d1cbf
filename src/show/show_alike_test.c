/* Similar steps: which ones form a group, and how the card shows a group as one step. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/testing.h"
#include "show/show_alike.h"
#include "show/show_html.h"
#include "show/show_testing.h"

static int n_times(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word)) {
        n++;
    }
    return n;
}

/* `n` calls of fit (steps `name`, `name`_2 …) after step load, then step best. */
static void make_sweep(stk_show_case *c, uint32_t n, const char *name)
{
    STK_BUF_AUTO spec = STK_BUF_INIT(1u << 20);
    stk_buf_text(&spec, "{\"stoker\":1,\"name\":\"sweep\",\"steps\":{\"load\":{\"run\":\"true\"}");
    for (uint32_t i = 1; i <= n; i++) {
        char number[16] = "";
        if (i > 1) {
            (void)snprintf(number, sizeof number, "_%u", i);
        }
        stk_buf_printf(&spec,
                       ",\"%s%s\":{\"python\":\"m:fit\",\"inputs\":{\"lr\":{\"value\":%u}},"
                       "\"after\":[\"load\"]}",
                       name, number, i);
    }
    stk_buf_printf(&spec, ",\"best\":{\"run\":\"true\",\"after\":[\"%s\"]}}}", name);
    stk_case_new(c, spec.data, "/s");
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0, "{\"name\":\"sweep\"}");
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 0, "{}");
}

/* Call i takes i seconds and i MB; the 7th fails. */
static void run_sweep(stk_show_case *c, uint32_t n)
{
    for (uint32_t i = 1; i <= n; i++) { /* times in a record never go back */
        stk_case_feed(c, STK_EV_TASK_STARTED, i, 1, 1000, "{\"granted\":{\"cpus\":[0]}}");
    }
    for (uint32_t i = 1; i <= n; i++) {
        char data[200];
        const char *failed = "";
        if (i == 7) {
            failed = "\"class\":\"exit\",\"text\":\"exit status 3\",\"final\":true,";
        }
        (void)snprintf(data, sizeof data, "{%s\"used\":{\"peak_memory_bytes\":%u,\"cpu_s\":0.5}}",
                       failed, i * 1000000);
        stk_case_feed(c, i == 7 ? STK_EV_TASK_FAILED : STK_EV_TASK_SUCCEEDED, i, 1,
                      (int)(1000 + i * 1000), data);
    }
}

static void find(const stk_show_case *c, uint32_t min, stk_arena *arena, stk_alike *ret)
{
    stk_err err = {0};
    if (stk_alike_find(c->view, min, arena, ret, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void test_groups(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_show_case c;
    stk_alike alike;
    make_sweep(&c, 20, "fit");
    run_sweep(&c, 20);
    find(&c, STK_ALIKE_MIN, arena, &alike);
    assert_int_equal(alike.n, 1);
    assert_string_equal(alike.groups[0].name, "fit");
    assert_int_equal(alike.groups[0].sum.n, 20);
    assert_int_equal(alike.groups[0].sum.by_state[STK_TASK_FAILED], 1);
    assert_int_equal(alike.groups[0].first, 1);
    assert_int_equal(alike.groups[0].tasks[0], 7); /* the failed one */
    assert_int_equal(alike.groups[0].tasks[1], 1);
    assert_int_equal(alike.groups[0].tasks[19], 20);
    assert_int_equal(alike.of[0], UINT32_MAX);
    assert_int_equal(alike.of[21], UINT32_MAX);
    assert_int_equal(alike.of[20], 0);

    stk_alike_use use;
    assert_int_equal(stk_alike_measure(c.view, &alike.groups[0], &use, NULL), 0);
    assert_int_equal(use.seconds.n, 20);
    assert_true(use.seconds.min == 1 && use.seconds.median == 10.5 && use.seconds.max == 20);
    assert_true(use.memory.min == 1e6 && use.memory.median == 10.5e6 && use.memory.max == 20e6);
    assert_true(use.cpu_s == 10);
    uint32_t n = 0, n_failed = 0;
    for (int i = 0; i < STK_ALIKE_BINS; i++) {
        n += use.seconds.bins[i];
        n_failed += use.seconds.failed[i];
    }
    assert_int_equal(n, 20);
    assert_int_equal(n_failed, 1);
    assert_int_equal(use.seconds.bins[0], 1);
    assert_int_equal(use.seconds.bins[STK_ALIKE_BINS - 1], 1);
    stk_case_done(&c);

    /* One step fewer than the minimum is no group. Calls of one function are a group under any
     * name. */
    make_sweep(&c, STK_ALIKE_MIN - 1, "fit");
    find(&c, STK_ALIKE_MIN, arena, &alike);
    assert_int_equal(alike.n, 0);
    stk_case_done(&c);
    make_sweep(&c, STK_ALIKE_MIN, "my");
    find(&c, STK_ALIKE_MIN, arena, &alike);
    assert_int_equal(alike.n, 1);
    assert_string_equal(alike.groups[0].name, "my");
    assert_int_equal(stk_alike_measure(c.view, &alike.groups[0], &use, NULL), 0);
    assert_int_equal(use.seconds.n, 0); /* nothing ran */
    stk_case_done(&c);

    stk_case_many(&c, 50); /* commands named work_00000 … */
    find(&c, STK_ALIKE_MIN, arena, &alike);
    assert_int_equal(alike.n, 1);
    assert_string_equal(alike.groups[0].name, "work_#");
    stk_case_done(&c);
}

static void make_card(const stk_show_case *c, stk_buf *out)
{
    stk_err err = {0};
    stk_buf_clear(out);
    if (stk_html_card(c->view, NULL, stk_case_ms(60000), false, out, &err) < 0) {
        fail_msg("%s", err.text);
    }
    stk_case_well_formed(out->data);
}

static void test_card(void **state)
{
    (void)state;
    stk_show_case c;
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    make_sweep(&c, 20, "fit");
    make_card(&c, &out); /* before anything ran */
    assert_non_null(strstr(out.data, "fit × 20: 20 waiting</title>"));
    run_sweep(&c, 20);
    make_card(&c, &out);
    /* one row, one box, one band; the failed step comes first */
    assert_int_equal(n_times(out.data, "<tr class=\"alike\">"), 1);
    assert_non_null(strstr(out.data, "<b>fit</b> <span class=\"dim\">× 20</span>"));
    assert_non_null(strstr(out.data, "1.00 s / <b>10.5 s</b> / 20.0 s"));
    assert_non_null(strstr(out.data, "1 MB / <b>10.5 MB</b> / 20 MB"));
    assert_int_equal(n_times(out.data, "class=\"spread\""), 2);
    assert_int_equal(n_times(out.data, "<g class=\"node "), 3);
    assert_non_null(strstr(out.data, "fit × 20: 19 succeeded, 1 failed</title>"));
    assert_int_equal(n_times(out.data, "at once</text>"), 1);
    assert_non_null(strstr(out.data, "<title>fit[lr=7] failed</title>"));
    const char *list = strstr(out.data, "<details class=\"alike\">");
    assert_non_null(list);
    for (int i = 1; i <= 20; i++) {
        char title[32];
        (void)snprintf(title, sizeof title, "<b>fit[lr=%d]</b>", i);
        assert_non_null(strstr(list, title));
    }
    assert_true(strstr(list, "<b>fit[lr=7]</b>") < strstr(list, "<b>fit[lr=1]</b>"));
    stk_case_done(&c);

    make_sweep(&c, STK_ALIKE_MIN - 1, "fit");
    run_sweep(&c, STK_ALIKE_MIN - 1);
    make_card(&c, &out);
    assert_null(strstr(out.data, "<tr class=\"alike\">"));
    assert_null(strstr(out.data, "at once</text>"));
    assert_int_equal(n_times(out.data, "<g class=\"node "), STK_ALIKE_MIN + 1);
    stk_case_done(&c);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups),
                                              cmocka_unit_test(test_card)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
