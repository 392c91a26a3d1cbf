/* Summaries, tables and JSON against golden files; widths; harmless text. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/testing.h"
#include "show/show_json.h"
#include "show/show_testing.h"
#include "show/show_text.h"

static const stk_style plain100 = {.utf8 = true, .columns = 100};
static const stk_style ascii80 = {.columns = 80};
static const stk_style colour120 = {.colour = true, .utf8 = true, .columns = 120};

static int widest_line(const char *text)
{
    int widest = 0;
    char line[4096];
    for (const char *end; *text != '\0'; text = end + 1) {
        end = strchr(text, '\n');
        if (end == NULL) {
            break;
        }
        (void)snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
        int width = stk_text_width(line);
        widest = MAX(width, widest);
    }
    return widest;
}

static void golden_summary(const stk_style *style, const char *name)
{
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    stk_err err = {0};
    assert_int_equal(stk_text_summary(c.view, NULL, "/s/runs/20261121-130501-7f3a/card.html",
                                      stk_case_ms(9000), style, &out, &err),
                     0);
    stk_case_golden(name, out.data);
    stk_case_done(&c);
}

static void test_summary(void **state)
{
    (void)state;
    golden_summary(&plain100, "summary.txt");
    golden_summary(&ascii80, "summary_ascii.txt");
    golden_summary(&colour120, "summary_colour.txt");
}

static void test_task(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(
            stk_text_task(c.view, i, stk_case_ms(9000), &plain100, &out, &(stk_err){0}), 0);
        stk_buf_char(&out, '\n');
    }
    stk_case_golden("tasks.txt", out.data);
    stk_case_done(&c);
}

static void test_many(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_many(&c, 20000);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    assert_int_equal(
        stk_text_summary(c.view, NULL, NULL, stk_case_ms(30000), &plain100, &out, &(stk_err){0}),
        0);
    assert_true(out.len < 8000); /* collapsed, readable */
    assert_true(widest_line(out.data) <= 130);
    assert_non_null(strstr(out.data, "19,980 succeeded, 20 failed"));
    assert_non_null(strstr(out.data, "and 10 more failed"));
    const char *first = strstr(out.data, "work_00999 failed");
    const char *second = strstr(out.data, "work_01999 failed");
    assert_true(first != NULL && second != NULL && first < second);
    stk_case_done(&c);
}

static void test_running(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_new(&c,
                 "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\"},"
                 "\"b\":{\"run\":\"true\",\"after\":[\"a\"]}}}",
                 NULL);
    stk_case_feed(&c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0, "{}");
    stk_case_feed(&c, STK_EV_TASK_STARTED, 0, 1, 100, "{}");
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    assert_int_equal(
        stk_text_summary(c.view, NULL, NULL, stk_case_ms(2100), &plain100, &out, &(stk_err){0}), 0);
    assert_non_null(strstr(out.data, "p is running"));
    assert_non_null(strstr(out.data, "2.00 s"));
    assert_non_null(strstr(out.data, "waiting"));
    stk_case_done(&c);
}

static void test_json(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    assert_int_equal(stk_show_json_run(c.view, &out, &(stk_err){0}), 0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *json = stk_json_read(scratch, out.data);
    assert_non_null(json);
    STK_BUF_AUTO pretty = STK_BUF_INIT(1u << 20);
    stk_json_dump_pretty(json, &pretty);
    stk_case_golden("show.json", pretty.data);
    static const char *const keys[] = {"run",         "name",       "pipeline",   "status",
                                       "store",       "created_ms", "started_ms", "ended_ms",
                                       "mode",        "policy",     "parameters", "tags",
                                       "spec_digest", "origin",     "notes",      "steps"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_non_null(stk_json_get(json, keys[i]));
    }
    static const char *const step_keys[] = {
        "status", "cached",  "cached_from", "attempts", "started_ms", "ended_ms",
        "asked",  "granted", "used",        "inputs",   "outputs",    "metadata",
        "miss",   "error",   "logs",        "source",   "dir"};
    for (uint32_t k = 0; k < stk_json_n_members(stk_json_get(json, "steps")); k++) {
        const stk_json *step = stk_json_value(stk_json_get(json, "steps"), k);
        for (size_t i = 0; i < sizeof step_keys / sizeof *step_keys; i++) {
            assert_non_null(stk_json_get(step, step_keys[i]));
        }
    }
    stk_case_done(&c);
}

static void test_runs(void **state)
{
    (void)state;
    const stk_run_row rows[] = {{"20261121-130501-7f3a", "nightly", "digits", "running",
                                 stk_case_ms(0), 0, stk_case_ms(61000)},
                                {"20261121-120000-aaaa", "20261121-120000-aaaa", "other", "failed",
                                 stk_case_ms(-3900000), stk_case_ms(-3800000)}};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    const stk_run_value first[] = {
        {.name = "lr", .text = "0.1", .json = "0.1", .is_parameter = true},
        {.name = "train.accuracy", .text = "0.97", .json = "0.97"}};
    const stk_run_value second[] = {
        {.name = "lr", .text = "0.2", .json = "0.2", .is_parameter = true},
        {.name = "same", .text = "1", .json = "1"}};
    const stk_run_values runs[] = {{&rows[0], first, 2, -1}, {&rows[1], second, 2, -1}};
    const stk_run_values priced[] = {{&rows[0], first, 2, 0.5}, {&rows[1], second, 2, -1}};
    static const char *const none[] = {NULL}, *const named[] = {"accuracy", "duration", NULL};
    stk_text_runs(runs, 2, "EUR", none, &colour120, &out);
    stk_text_runs(priced, 2, "EUR", named, &plain100, &out);
    stk_case_golden("runs.txt", out.data);
    stk_buf_clear(&out);
    assert_int_equal(stk_show_json_runs(priced, 2, "EUR", true, &out, NULL), 0);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *json = stk_json_read(scratch, out.data);
    assert_int_equal(stk_json_n_items(json), 2);
    stk_buf_clear(&out);
    assert_int_equal(stk_show_json_runs(runs, 0, NULL, true, &out, NULL), 0);
    assert_string_equal(out.data, "[]\n");
}

static void test_widths(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int width;
    } cases[] = {{"", 0}, {"abc", 3}, {"größe", 5}, {"訓練", 4}, {"e\xCC\x81", 1}, {"🚀", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(stk_text_width(cases[i].text), cases[i].width);
    }
    static const struct {
        const char *text;
        int columns;
        const char *fit;
    } fits[] = {{"abc", 5, "abc  "},        {"abcdef", 5, "abcd…"},        {"訓練訓練", 5, "訓練…"},
                {"訓練訓練", 6, "訓練… "},  {"a\033[31mb", 8, "a?[31mb "}, {"a\xFF", 3, "a? "},
                {"\xE2\x80\xAEx", 3, "?x "}};
    for (size_t i = 0; i < sizeof fits / sizeof *fits; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(1000);
        stk_text_fit(&out, fits[i].text, fits[i].columns, true, true);
        assert_string_equal(out.data, fits[i].fit);
    }
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_summary), cmocka_unit_test(test_task), cmocka_unit_test(test_many),
        cmocka_unit_test(test_running), cmocka_unit_test(test_json), cmocka_unit_test(test_runs),
        cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
