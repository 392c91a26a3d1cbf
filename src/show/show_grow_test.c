/* Growing runs: added tasks, frames, scopes, JSON and text. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/testing.h"
#include "show/show_json.h"
#include "show/show_progress.h"
#include "show/show_testing.h"
#include "show/show_text.h"

static const stk_json *json_of(const stk_buf *out, stk_arena *arena)
{
    stk_json *json = stk_arena_alloc(arena, sizeof *json);
    stk_err err = {0};
    if (stk_json_parse(out->data, out->len, NULL, &stk_json_by_program, arena, json, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return json;
}

static const char *text_at(const stk_json *object, const char *key)
{
    return stk_json_get_text(object, key);
}

static int64_t int_at(const stk_json *object, const char *key)
{
    return stk_json_get_whole(object, key, 0);
}

static void test_fold(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_flow(&c, "/s", 12);
    assert_true(stk_view_grows(c.view));
    assert_int_equal(stk_view_n_tasks(c.view), 15);
    const stk_view_task *work = stk_view_get_task(c.view, 5);
    assert_string_equal(work->label, "work/6");
    assert_int_equal(work->id, 6);
    assert_int_equal(work->n_parents, 1);
    assert_int_equal(work->parents[0], 0);
    assert_int_equal(work->split, 0);
    assert_int_equal(work->branch, 4);
    assert_int_equal(stk_view_get_task(c.view, 0)->width, 12);
    const stk_view_step *step = stk_view_get_step(c.view, 1);
    assert_int_equal(step->n, 12);
    assert_int_equal(step->by_state[STK_TASK_SUCCEEDED], 11);
    assert_int_equal(step->by_state[STK_TASK_CACHED], 1);
    assert_int_equal(stk_view_worst(step), STK_TASK_SUCCEEDED);
    assert_int_equal(stk_view_worst(stk_view_get_step(c.view, 3)), STK_TASK_FAILED);
    assert_int_equal(stk_view_worst(stk_view_get_step(c.view, 4)), STK_TASK_WAITING);
    uint32_t i_task = 0;
    assert_true(stk_view_find(c.view, "work/6", &i_task));
    assert_int_equal(i_task, 5);
    assert_false(stk_view_find(c.view, "work", &i_task));
    assert_true(stk_view_find(c.view, "gather", &i_task)); /* the only task of this step */
    assert_int_equal(i_task, 13);
    assert_false(stk_view_find(c.view, "good", &i_task));
    assert_false(stk_view_find(c.view, "gather/6", &i_task));
    assert_false(stk_view_find(c.view, "work/6x", &i_task));
    assert_false(stk_view_find(c.view, "work/99", &i_task));
    stk_case_done(&c);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"step\":\"nobody\",\"n\":1,\"deps\":[1]}",    "{\"step\":\"work\",\"n\":0,\"deps\":[1]}",
        "{\"step\":\"work\",\"n\":1,\"deps\":[15]}",     "{\"step\":\"work\",\"deps\":[\"x\"]}",
        "{\"step\":\"work\",\"deps\":[1],\"split\":15}", "{\"step\":\"work\",\"n\":99999999}"};
    stk_show_case c;
    stk_case_flow(&c, "/s", 12);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        stk_err err = {0};
        stk_event_row row = {0, 0, STK_EV_TASK_ADDED, 15, 0, bad[i]};
        assert_int_equal(stk_view_fold(c.view, &row, &err), STK_E_STORE);
        assert_int_equal(stk_view_n_tasks(c.view), 15);
    }
    stk_err err = {0};
    stk_event_row gap = {0, 0, STK_EV_TASK_ADDED, 16, 0, "{\"step\":\"work\",\"deps\":[1]}"};
    assert_int_equal(stk_view_fold(c.view, &gap, &err), STK_E_STORE);
    stk_event_row again = {0, 0, STK_EV_TASK_ADDED, 3, 0, "{\"step\":\"work\",\"deps\":[1]}"};
    assert_int_equal(stk_view_fold(c.view, &again, &err), 0);
    stk_case_done(&c);
}

static void test_frames(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_nested(&c, "/s");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_frame *frames;
    uint32_t n = 0, i_task = 0;
    stk_err err = {0};
    assert_true(stk_view_find(c.view, "leaf/7", &i_task));
    assert_int_equal(stk_view_foreach(c.view, i_task, arena, &frames, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_int_equal(frames[0].task, 0);
    assert_int_equal(frames[0].index, 1);
    assert_int_equal(frames[0].n, 2);
    assert_int_equal(frames[1].task, 2);
    assert_int_equal(frames[1].index, 0);
    assert_int_equal(frames[1].n, 3);
    assert_string_equal(stk_view_who(c.view, i_task, arena),
                        "leaf/7 (item 1 of start, item 0 of inner)");
    assert_string_equal(stk_view_who(c.view, 0, arena), "start/1");
    stk_case_done(&c);
}

static const char *names_of(const stk_view_scope *scope, stk_arena *arena)
{
    const char *text = "";
    for (uint32_t i = 0; i < scope->n; i++) {
        text = stk_arena_printf(arena, "%s%s%s:%u", text, i > 0 ? " " : "", scope->items[i].name,
                                scope->items[i].task + 1);
    }
    return text;
}

static void test_scope(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_flow(&c, "/s", 12);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_view_scope scope;
    stk_err err = {0};
    assert_int_equal(stk_view_get_scope(c.view, 0, 0, arena, &scope, &err), 0);
    assert_string_equal(names_of(&scope, arena), "cfg:1 secret:1 todo:1");
    /* A task's outputs win over inherited ones; dropped artifacts are gone. */
    assert_int_equal(stk_view_get_scope(c.view, 4, 0, arena, &scope, &err), 0);
    assert_string_equal(names_of(&scope, arena), "cfg:5 part:5 todo:1");
    assert_non_null(strstr(scope.items[1].ref, "\"digest\""));
    /* A join starts with an empty scope. */
    assert_int_equal(stk_view_get_scope(c.view, 13, 0, arena, &scope, &err), 0);
    assert_string_equal(names_of(&scope, arena), "total:14");
    /* A failed task sees what its parent left. */
    assert_int_equal(stk_view_get_scope(c.view, 14, 0, arena, &scope, &err), 0);
    assert_string_equal(names_of(&scope, arena), "total:14");
    stk_case_done(&c);
}

/* Ranks of a gang have the same parent and their own outputs. */
static void test_ranks(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_gang(&c, "/s");
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    stk_view_scope scope;
    stk_err err = {0};
    assert_int_equal(stk_view_get_scope(c.view, 1, 0, arena, &scope, &err), 0);
    assert_string_equal(names_of(&scope, arena), "a:1 x:2");
    assert_int_equal(stk_view_get_scope(c.view, 1, 1, arena, &scope, &err), 0);
    assert_string_equal(names_of(&scope, arena), "x:2 y:2");
    assert_int_equal(stk_show_json_step(c.view, 1, 1, false, &out, &err), 0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *json = json_of(&out, scratch);
    const stk_json *ranks = stk_json_get(stk_json_item(stk_json_get(json, "tasks"), 0), "ranks");
    assert_int_equal(stk_json_n_items(ranks), 2);
    const stk_json *second = stk_json_get(stk_json_item(ranks, 1), "artifacts");
    assert_non_null(stk_json_get(second, "y"));
    assert_null(stk_json_get(second, "a"));
    stk_case_done(&c);
}

static void test_json_run(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_flow(&c, "/s", 12);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    stk_err err = {0};
    assert_int_equal(stk_show_json_run(c.view, &out, &err), 0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *json = json_of(&out, scratch);
    assert_true(stk_json_is_true(stk_json_get(json, "grows")));
    const stk_json *work = stk_json_get(stk_json_get(json, "steps"), "work");
    assert_string_equal(text_at(work, "status"), "succeeded");
    const stk_json *count = stk_json_get(work, "tasks");
    assert_int_equal(int_at(count, "n"), 12);
    assert_int_equal(int_at(count, "succeeded"), 11);
    assert_int_equal(int_at(count, "cached"), 1);
    const stk_json *bad = stk_json_get(stk_json_get(json, "steps"), "bad");
    assert_string_equal(text_at(bad, "status"), "failed");
    assert_string_equal(text_at(stk_json_get(bad, "error"), "text"),
                        "step 'bad/15' failed: exit status 3");
    const stk_json *tasks = stk_json_get(json, "tasks");
    assert_int_equal(stk_json_n_items(tasks), 15);
    const stk_json *one = stk_json_item(tasks, 3);
    assert_int_equal(int_at(one, "id"), 4);
    assert_string_equal(text_at(one, "step"), "work");
    assert_int_equal(int_at(one, "split"), 1);
    assert_int_equal(int_at(one, "branch"), 2);
    assert_string_equal(text_at(one, "dir"), "/s/runs/20261121-130501-7f3a/work/4/1");
    const char *frames = stk_json_dump_in(stk_json_get(one, "foreach"), scratch);
    assert_string_equal(frames, "[[\"start\",2,12]]");
    const stk_json *clone = stk_json_item(tasks, 12);
    assert_string_equal(text_at(clone, "status"), "cached");
    assert_string_equal(text_at(clone, "from_run"), "20261120-090000-aaaa");
    assert_int_equal(int_at(clone, "from_task"), 9);
    assert_true(stk_json_is_kind(stk_json_get(clone, "dir"), STK_JSON_NULL));
    const stk_json *join = stk_json_item(tasks, 13);
    assert_int_equal(stk_json_n_items(stk_json_get(join, "parents")), 12);
    assert_true(stk_json_is_kind(stk_json_get(join, "split"), STK_JSON_NULL));
    stk_case_done(&c);
}

static void test_json_step(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_flow(&c, "/s", 12);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    stk_err err = {0};
    assert_int_equal(stk_show_json_step(c.view, 1, UINT32_MAX, false, &out, &err), 0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *json = json_of(&out, scratch);
    assert_string_equal(text_at(json, "step"), "work");
    const stk_json *tasks = stk_json_get(json, "tasks");
    assert_int_equal(stk_json_n_items(tasks), 12);
    const stk_json *first = stk_json_item(tasks, 0);
    const stk_json *part = stk_json_get(stk_json_get(first, "artifacts"), "part");
    assert_string_equal(
        text_at(part, "path"),
        "/s/artifacts/01/23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
    assert_non_null(stk_json_get(stk_json_get(first, "artifacts"), "todo"));
    assert_true(stk_json_number(stk_json_get(stk_json_get(first, "used"), "cpu_s"), 0) > 0);
    assert_int_equal(stk_json_n_items(stk_json_get(first, "ranks")), 0);
    assert_true(stk_json_is_list(stk_json_get(first, "cards")));
    stk_buf_clear(&out);
    assert_int_equal(stk_show_json_step(c.view, 1, 4, false, &out, &err), 0);
    json = json_of(&out, scratch);
    tasks = stk_json_get(json, "tasks");
    assert_int_equal(stk_json_n_items(tasks), 1);
    assert_int_equal(int_at(stk_json_item(tasks, 0), "id"), 5);
    stk_case_done(&c);
}

static void test_text(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_flow(&c, "/s", 1200);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    stk_err err = {0};
    stk_style style = {.utf8 = true, .columns = 100};
    assert_int_equal(stk_text_summary(c.view, NULL, NULL, stk_case_ms(60000), &style, &out, &err),
                     0);
    assert_non_null(strstr(out.data, "1,203 tasks"));
    assert_non_null(strstr(out.data, "work ×1,200"));
    assert_non_null(strstr(out.data, "1,199 succeeded, 1 cached"));
    assert_non_null(strstr(out.data, "bad/1203 failed: exit status 3"));
    assert_non_null(strstr(out.data, "not reached"));
    assert_true(strlen(out.data) < 4000);
    stk_buf_clear(&out);
    assert_int_equal(stk_text_step(c.view, 1, stk_case_ms(60000), &style, &out, &err), 0);
    assert_non_null(strstr(out.data, "work/2 (item 0 of start)"));
    assert_non_null(strstr(out.data, "and 1,000 more; --json has all"));
    stk_buf_clear(&out);
    assert_int_equal(stk_text_task(c.view, 5, stk_case_ms(60000), &style, &out, &err), 0);
    assert_non_null(strstr(out.data, "work/6 (item 4 of start) succeeded"));
    assert_non_null(strstr(out.data, "after      start/1"));
    assert_non_null(strstr(out.data, "inherits   todo (start/1)"));
    stk_case_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fold),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_frames),    cmocka_unit_test(test_scope),
        cmocka_unit_test(test_ranks),     cmocka_unit_test(test_json_run),
        cmocka_unit_test(test_json_step), cmocka_unit_test(test_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
