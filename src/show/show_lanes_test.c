/* What devices did: a lane each, and marks where attempts ended before their time. */
#include <string.h>

#include "base/testing.h"
#include "show/show_svg.h"
#include "show/show_testing.h"

static const char spec_text[] =
    "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"fit\":{\"run\":\"true\"},"
    "\"calm\":{\"run\":\"true\"}}}";

#define GRANTED(devices) "{\"granted\":{\"devices\":[" devices "]}}"
#define GPU(uuid, index) "{\"uuid\":\"" uuid "\",\"index\":" index ",\"noun\":\"GPU\"}"

static uint32_t count(const char *text, const char *part)
{
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) {
        n++;
    }
    return n;
}

static void begin(stk_show_case *c)
{
    stk_case_new(c, spec_text, NULL);
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0,
                  "{\"name\":\"n\",\"pipeline\":\"p\",\"host\":{\"cpus\":4}}");
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 0, "{}");
}

static void failed(stk_show_case *c, uint32_t attempt, int64_t at_ms, const char *class)
{
    STK_BUF_AUTO data = STK_BUF_INIT(1000);
    stk_buf_printf(&data, "{\"class\":\"%s\",\"text\":\"x\",\"final\":false}", class);
    stk_case_feed(c, STK_EV_TASK_FAILED, 0, attempt, at_ms, data.data);
    stk_case_feed(c, STK_EV_TASK_RETRYING, 0, attempt, at_ms, "{\"at_ms\":0}");
}

static void test_marks(void **state)
{
    stk_show_case c;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    (void)state;
    begin(&c);
    static const char *const classes[] = {"host_oom", "device_oom", "preempted", "exit"};
    for (uint32_t i = 0; i < 4; i++) {
        stk_case_feed(&c, STK_EV_TASK_STARTED, 0, i + 1, 1000 * i + 100,
                      GRANTED(GPU("u-b", "10") "," GPU("u-a", "2")));
        failed(&c, i + 1, 1000 * i + 900, classes[i]);
    }
    stk_case_feed(&c, STK_EV_TASK_STARTED, 0, 5, 5000, GRANTED(GPU("u-a", "2")));
    stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, 0, 5, 9000, "{}");
    assert_int_equal(stk_svg_lanes(c.view, stk_case_ms(9000), &out, &err), 0);
    stk_case_well_formed(out.data);
    assert_int_equal(count(out.data, "class=\"lane\""), 2);
    assert_int_equal(count(out.data, "class=\"held\""), 9); /* 4 on both, 1 on one */
    assert_int_equal(count(out.data, ">OOM<"), 4);
    assert_int_equal(count(out.data, ">preempted<"), 2);
    assert_int_equal(count(out.data, ">retry<"), 2);
    const char *first = strstr(out.data, ">GPU 2<"), *second = strstr(out.data, ">GPU 10<");
    assert_non_null(first);
    assert_non_null(second);
    assert_true(first < second);
    stk_case_done(&c);
}

static void test_nothing_to_show(void **state)
{
    stk_show_case c;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    (void)state;
    begin(&c);
    stk_case_feed(&c, STK_EV_TASK_STARTED, 1, 1, 100, GRANTED(""));
    stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, 1, 1, 200, "{}");
    assert_int_equal(stk_svg_lanes(c.view, stk_case_ms(9000), &out, &err), 0);
    assert_int_equal(out.len, 0);
    stk_case_done(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_marks),
                                       cmocka_unit_test(test_nothing_to_show)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
