/* Unified diffs: each case's result is written down, and random texts are put together again. */
#include <stdlib.h>
#include <string.h>

#include "base/testing.h"
#include "base/text.h"
#include "show/lines.h"

static void put_line(void *arg, char sign, const char *text, size_t n)
{
    stk_buf *out = arg;
    stk_buf_char(out, sign);
    stk_buf_add(out, text, n);
    stk_buf_char(out, '\n');
}

static void test_cases(void **state)
{
    static const struct {
        const char *a, *b, *expected;
    } cases[] = {
        {"", "", ""},
        {"one\ntwo\n", "one\ntwo\n", ""},
        {"", "one\n", "@-0,0 +1,1\n+one\n"},
        {"one\n", "", "@-1,1 +0,0\n-one\n"},
        {"one\ntwo\nthree", "one\nzwei\nthree", "@-1,3 +1,3\n one\n-two\n+zwei\n three\n"},
        {"a\nb\nc\n", "b\nc\nd\n", "@-1,3 +1,3\n-a\n b\n c\n+d\n"},
        {"1\n2\n3\n4\n5\n6\n7\n8\n9\nx\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\ny\n",
         "@-1,3 +1,4\n+0\n 1\n 2\n 3\n@-7,4 +8,4\n 7\n 8\n 9\n-x\n+y\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
        stk_err err = {0};
        assert_int_equal(stk_lines_diff(cases[i].a, cases[i].b, put_line, &out, &err), 0);
        assert_string_equal(stk_text_or(out.data, ""), cases[i].expected);
    }
}

typedef struct both {
    stk_buf a, b;
    uint32_t n_edits;
} both;

static void put_back(void *arg, char sign, const char *text, size_t n)
{
    both *to = arg;
    if (sign == ' ' || sign == '-') {
        put_line(&to->a, 'x', text, n);
    }
    if (sign == ' ' || sign == '+') {
        put_line(&to->b, 'x', text, n);
    }
    to->n_edits += sign == '-' || sign == '+';
}

/* Texts so short that one hunk holds them whole if their first lines differ. */
static void test_both_sides(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 300; round++) {
        STK_BUF_AUTO a = STK_BUF_INIT(1000);
        STK_BUF_AUTO b = STK_BUF_INIT(1000);
        STK_BUF_AUTO xa = STK_BUF_INIT(1000);
        STK_BUF_AUTO xb = STK_BUF_INIT(1000);
        stk_buf_text(&a, "A\n");
        stk_buf_text(&b, "B\n");
        for (int i = 0; i < 5; i++) {
            stk_buf_printf(&a, "%d\n", rand() % 3);
            stk_buf_printf(&b, "%d\n", rand() % 3);
        }
        both to = {.a = STK_BUF_INIT(1000), .b = STK_BUF_INIT(1000)};
        stk_buf_text(&a, "A\n");
        stk_buf_text(&b, "B\n");
        assert_int_equal(stk_lines_diff(a.data, b.data, put_back, &to, NULL), 0);
        for (const char *at = a.data; *at != '\0'; at += 2) {
            stk_buf_printf(&xa, "x%c\n", *at);
        }
        for (const char *at = b.data; *at != '\0'; at += 2) {
            stk_buf_printf(&xb, "x%c\n", *at);
        }
        assert_string_equal(to.a.data, xa.data);
        assert_string_equal(to.b.data, xb.data);
        assert_in_range(to.n_edits, 4, 14);
        stk_buf_done(&to.a);
        stk_buf_done(&to.b);
    }
}

/* Too different, or too long, for the shortest answer: everything is replaced. */
static void test_long(void **state)
{
    STK_BUF_AUTO a = STK_BUF_INIT(1u << 20);
    STK_BUF_AUTO b = STK_BUF_INIT(1u << 20);
    both to = {.a = STK_BUF_INIT(1u << 20), .b = STK_BUF_INIT(1u << 20)};
    (void)state;
    for (int i = 0; i < STK_LINES_MOST + 1; i++) {
        stk_buf_printf(&a, "%d\n", i);
        stk_buf_printf(&b, "%d\n", i + 1);
    }
    assert_int_equal(stk_lines_diff(a.data, b.data, put_back, &to, NULL), 0);
    assert_int_equal(to.n_edits, 2 * (STK_LINES_MOST + 1));
    stk_buf_done(&to.a);
    stk_buf_done(&to.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases),
                                       cmocka_unit_test(test_both_sides),
                                       cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
