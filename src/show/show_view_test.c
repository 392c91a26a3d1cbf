/* Folding, details, totals, causes. */
#include <stdlib.h>
#include <string.h>

#include "base/testing.h"
#include "show/show_testing.h"

static void test_mixed(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    const stk_view_run *run = stk_view_get_run(c.view);
    assert_string_equal(run->status, "failed");
    assert_string_equal(run->name, "nightly");
    assert_int_equal(run->started_ms - run->created_ms, 5);
    assert_int_equal(run->n_notes, 1);
    assert_int_equal(run->n_attempts_extra, 1);
    assert_int_equal(run->n[STK_TASK_SUCCEEDED], 2);
    assert_int_equal(run->n[STK_TASK_CACHED], 1);
    assert_int_equal(run->n[STK_TASK_FAILED], 1);
    assert_int_equal(run->n[STK_TASK_SKIPPED], 2);
    assert_int_equal(run->n[STK_TASK_WAITING] + run->n[STK_TASK_RUNNING], 0);
    const stk_view_task *train = stk_view_get_task(c.view, 2);
    assert_int_equal(train->attempt, 2);
    assert_int_equal(train->ended_ms - train->started_ms, 3100);
    assert_int_equal(train->started_ms - train->first_ms, 1451);
    stk_case_done(&c);
}

static void test_details(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_details d;
    stk_err err = {0};
    assert_int_equal(stk_view_get_details(c.view, 2, arena, &d, &err), 0);
    assert_true(d.asked.cpus == 2 && d.asked.memory_bytes == 4000000000 && d.asked.n_devices == 1);
    assert_true(d.granted.cpus == 2 && d.granted.n_devices == 0);
    assert_true(d.used.cpu_s == 5.9 && d.used.memory_bytes == 1200000000);
    assert_string_equal(d.miss, "code of 'train' changed");
    assert_string_equal(d.metadata, "{\"accuracy\":0.97,\"note\":\"<img src=x onerror=alert(1)>\","
                                    "\"nested\":{\"a\":[1,2.5,null]}}");
    assert_int_equal(d.n_outputs, 1);
    assert_string_equal(d.outputs[0].artifact_name, "digits-net");
    assert_string_equal(d.stderr_path, "/s/runs/20261121-130501-7f3a/train/0/2/stderr.log");
    assert_int_equal(d.n_inputs, 2);
    assert_string_equal(d.inputs[0].from, "split.train");
    assert_string_equal(d.inputs[1].value, "30");
    assert_null(d.error_class);

    assert_int_equal(stk_view_get_details(c.view, 3, arena, &d, &err), 0);
    assert_string_equal(d.error_class, "exception");
    assert_string_equal(d.where, "train.py:41");
    /* A failed task's inputs come from the tasks before it. */
    assert_non_null(d.inputs[0].digest);
    assert_int_equal(strlen(d.inputs[0].digest), 64);

    assert_int_equal(stk_view_get_details(c.view, 0, arena, &d, &err), 0);
    assert_string_equal(d.cached_from, "20261120-090000-aaaa");
    assert_null(d.dir);
    stk_case_done(&c);
}

static void test_totals(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    stk_view_totals t;
    stk_err err = {0};
    assert_int_equal(stk_view_total(c.view, NULL, stk_case_ms(9999), &t, &err), 0);
    assert_true(t.cpu_s > 6.77 && t.cpu_s < 6.79);
    assert_true(t.wall_s > 5.61 && t.wall_s < 5.62);
    assert_int_equal(t.n_done, 6);
    stk_case_done(&c);
}

static void test_roots(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, NULL);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    uint32_t *roots;
    assert_int_equal(stk_view_roots(c.view, arena, &roots, NULL), 0);
    assert_int_equal(roots[4], 3);
    assert_int_equal(roots[5], 3); /* by way of 'report' */
    assert_int_equal(roots[2], UINT32_MAX);
    /* A cycle, which only damage can make, ends the walk. */
    stk_case_feed(&c, STK_EV_TASK_SKIPPED, 4, 0, 6000, "{\"because\":\"publish\"}");
    assert_int_equal(stk_view_roots(c.view, arena, &roots, NULL), 0);
    stk_case_done(&c);
}

static void test_resumed(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    stk_case_feed(&c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 7000, "{\"resumed\":true}");
    const stk_view_run *run = stk_view_get_run(c.view);
    assert_true(stk_view_is_live(c.view));
    assert_null(run->error);
    assert_int_equal(run->n_resumed, 1);
    stk_case_feed(&c, STK_EV_TASK_STARTED, 3, 2, 7001, "{}");
    assert_int_equal(run->n[STK_TASK_RUNNING], 1);
    assert_int_equal(run->n[STK_TASK_FAILED], 0);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_details d;
    assert_int_equal(stk_view_get_details(c.view, 3, arena, &d, NULL), 0);
    assert_null(d.error_class); /* the old failure is over */
    stk_case_done(&c);
}

/* The run continues on a machine whose clock is an hour behind. */
static void test_clock_that_went_back(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    stk_case_feed(&c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 7000, "{\"resumed\":true}");
    stk_case_feed(&c, STK_EV_TASK_STARTED, 3, 2, 7001, "{}");
    stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, 3, 2, 7001 - 3600000, "{\"outputs\":{}}");
    stk_case_feed(&c, STK_EV_RUN_ENDED, UINT32_MAX, 0, 7002 - 3600000,
                  "{\"status\":\"succeeded\"}");
    const stk_view_task *task = stk_view_get_task(c.view, 3);
    assert_int_equal(task->ended_ms, task->started_ms);
    const stk_view_run *run = stk_view_get_run(c.view);
    assert_true(run->ended_ms >= run->started_ms);
    stk_case_done(&c);
}

static void test_same_row_twice(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    stk_event_row row = {3, stk_case_ms(0), STK_EV_TASK_STARTED, 0, 1, "{}"};
    assert_int_equal(stk_view_fold(c.view, &row, NULL), 0);
    assert_int_equal(stk_view_get_run(c.view)->n[STK_TASK_CACHED], 1);
    stk_case_done(&c);
}

static void test_damage(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    stk_err err = {0};
    stk_event_row row = {0, 0, STK_EV_TASK_STARTED, 77, 1, "{}"};
    uint32_t n = stk_view_get_run(c.view)->n_notes; /* each loses its own data and gets a note */
    assert_int_equal(stk_view_fold(c.view, &row, &err), 0);
    row = (stk_event_row){0, 0, STK_EV_RUN_ENDED, UINT32_MAX, 0, "{\"status\":"};
    assert_int_equal(stk_view_fold(c.view, &row, &err), 0);
    const stk_view_run *run = stk_view_get_run(c.view);
    assert_int_equal(run->n_notes, n + 2);
    assert_non_null(strstr(run->notes[n], "(task_started) of the record is damaged"));
    assert_non_null(strstr(run->notes[n + 1], "(run_ended) of the record is damaged"));
    row = (stk_event_row){0, 0, STK_EV_TASK_SUCCEEDED, 1, 1, "{\"outputs\":"};
    assert_int_equal(stk_view_fold(c.view, &row, &err), 0);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_details d;
    assert_int_equal(stk_view_get_details(c.view, 1, arena, &d, &err), 0);
    assert_int_equal(d.n_devices, 0);
    stk_case_done(&c);
}

/* Tasks can be added only to a growing document. */
static void test_growth(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    stk_err err = {0};
    stk_event_row row = {0, 0, STK_EV_TASK_ADDED, 6, 0, "{\"step\":\"train\",\"deps\":[1]}"};
    assert_int_equal(stk_view_fold(c.view, &row, &err), STK_E_STORE);
    stk_case_done(&c);
}

/* Why a step waits is noted as long as one waits for that. */
static void test_waits(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    const stk_view_run *run = stk_view_get_run(c.view);
    static const char priority[] = "{\"text\":\"waits: (Priority)\",\"waits\":\"(Priority)\"}";
    uint32_t n = run->n_notes;
    stk_case_feed(&c, STK_EV_NOTE, 2, 2, 90000, priority);
    stk_case_feed(&c, STK_EV_NOTE, 3, 1, 90001, priority);
    assert_int_equal(run->n_notes, n + 1);
    stk_case_feed(&c, STK_EV_NOTE, 2, 2, 90002, "{\"waits\":\"\"}"); /* it has started */
    assert_int_equal(run->n_notes, n + 1);
    stk_case_feed(&c, STK_EV_NOTE, UINT32_MAX, 0, 90003, "{\"text\":\"a word\"}");
    stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, 3, 1, 90004, "{\"outputs\":{}}");
    assert_int_equal(run->n_notes, n + 1);
    assert_string_equal(run->notes[n], "a word");
    stk_case_feed(&c, STK_EV_NOTE, 2, 2, 90005, priority);
    stk_case_feed(&c, STK_EV_NOTE, 2, 2, 90006, "{\"text\":\"w\",\"waits\":\"w\"}");
    assert_int_equal(run->n_notes, n + 2);
    assert_string_equal(run->notes[n + 1], "w");
    stk_case_done(&c);
}

/* Metadata logged after the end wins over the step's own, for outputs and for the run. */
static void test_metadata(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    uint32_t train = 0;
    assert_true(stk_view_find(c.view, "train", &train));
    assert_null(stk_view_get_run(c.view)->metadata);
    stk_case_feed(&c, STK_EV_METADATA, UINT32_MAX, 0, 90000, "{\"metadata\":{\"a\":1,\"b\":2}}");
    stk_case_feed(&c, STK_EV_METADATA, UINT32_MAX, 0, 90001, "{\"metadata\":{\"b\":3}}");
    stk_case_feed(&c, STK_EV_METADATA, train, 0, 90002,
                  "{\"metadata\":{\"accuracy\":1,\"x\":null}}");
    stk_case_feed(&c, STK_EV_METADATA, train, 0, 90003,
                  "{\"metadata\":{\"rows\":3},\"output\":\"model\"}");
    assert_string_equal(stk_view_get_run(c.view)->metadata, "{\"a\":1,\"b\":3}");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_details d;
    stk_err err = {0};
    assert_int_equal(stk_view_get_details(c.view, train, arena, &d, &err), 0);
    assert_memory_equal(d.metadata, "{\"accuracy\":1,\"note\":", 21);
    assert_non_null(strstr(d.metadata, ",\"x\":null}"));
    for (uint32_t i = 0; i < d.n_outputs; i++) {
        if (strcmp(d.outputs[i].name, "model") == 0) {
            assert_string_equal(d.outputs[i].metadata, "{\"rows\":3}");
        } else {
            assert_null(d.outputs[i].metadata);
        }
    }
    assert_true(d.n_outputs > 0);
    stk_case_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_details),
        cmocka_unit_test(test_totals),
        cmocka_unit_test(test_roots),
        cmocka_unit_test(test_resumed),
        cmocka_unit_test(test_same_row_twice),
        cmocka_unit_test(test_clock_that_went_back),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
