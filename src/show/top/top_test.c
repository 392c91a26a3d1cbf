/* Bars, curves, tables and logs: exact widths, and nothing that steers a terminal. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/top/top_private.h"

static const stk_style ascii = {.columns = 80}, utf8 = {.utf8 = true, .columns = 80};

static void test_bars(void **state)
{
    (void)state;
    for (int columns = 1; columns <= 40; columns += 13) {
        for (int percent = -1; percent <= 101; percent++) {
            for (int is_utf8 = 0; is_utf8 < 2; is_utf8++) {
                STK_BUF_AUTO out = STK_BUF_INIT(4096);
                stk_top_bar(&out, is_utf8 ? &utf8 : &ascii, percent, columns, STK_INK_USE);
                assert_int_equal(stk_text_width(out.data), columns);
                assert_true((strpbrk(out.data, ".#") != NULL || percent < 0) == !is_utf8 ||
                            percent < 0);
            }
        }
    }
    static const struct {
        int percent;
        const char *text;
    } cases[] = {{-1, "    "}, {0, "····"},  {1, "▏···"},  {25, "█···"},
                 {37, "█▍··"}, {50, "██··"}, {100, "████"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(4096);
        stk_top_bar(&out, &utf8, cases[i].percent, 4, STK_INK_USE);
        assert_string_equal(out.data, cases[i].text);
    }
}

/* The looks so far, the newest last. */
static stk_top looks_of(const int *percents, uint32_t n, stk_top_past *past)
{
    memset(past, -1, sizeof *past);
    for (uint32_t i = 0; i < n; i++) {
        past->use[i] = (int16_t)percents[i];
    }
    return (stk_top){.past = past, .past_at = n - 1, .n_past = n};
}

static void test_curves(void **state)
{
    (void)state;
    static stk_top_past past;
    const int percents[] = {100, 50, 0, -1, 25, 100};
    const stk_top top = looks_of(percents, 6, &past);
    static const struct {
        bool is_utf8;
        int columns, height, row;
        const char *text;
    } cases[] = {
        {true, 3, 1, 0, "⣧⡀⣸"},      {true, 4, 1, 0, " ⣧⡀⣸"},    {true, 2, 1, 0, "⡀⣸"},
        {true, 3, 2, 0, "⡇ ⢸"},      {true, 3, 2, 1, "⣿⡀⣼"},     {false, 6, 1, 0, "|:. .|"},
        {false, 7, 2, 0, " |    |"}, {false, 6, 2, 1, "||. :|"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(4096);
        stk_top_curve(&out, cases[i].is_utf8 ? &utf8 : &ascii, &top, past.use, cases[i].columns,
                      cases[i].height, cases[i].row, STK_INK_USE);
        assert_string_equal(out.data, cases[i].text);
    }
}

static void test_log(void **state)
{
    (void)state;
    char folder[] = "/tmp/stk_top_XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/stdout.log", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 40000; i++) { /* more than is read */
        fprintf(file, "line %d\n", i);
    }
    fprintf(file, "10%%\r20%%\r\n\x1b[1;31mred\x1b[0m\tend\nno\x1b]0;title\x07\nlast without end");
    assert_int_equal(fclose(file), 0);
    stk_top_log log = {.title = "run/step"};
    (void)snprintf(log.dir, sizeof log.dir, "%s", folder);
    {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        stk_top_log_put(&log, false, &utf8, 6, &out);
        assert_string_equal(out.data, "run/step  stdout.log\nline 39999\n20%\nred end\n"
                                      "no?]0;title?\nlast without end\n");
    }
    log.back = 2;
    {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        stk_top_log_put(&log, true, &utf8, 4, &out);
        assert_string_equal(out.data, "run/step  stdout.log  (ended)\nline 39999\n20%\nred end\n");
    }
    log.back = UINT32_MAX; /* no further than what is read */
    {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        stk_top_log_put(&log, false, &utf8, 3, &out);
        assert_true(log.back < 40000 && strstr(out.data, "\nline ") != NULL);
    }
    log = (stk_top_log){.title = "run/step", .errors = true};
    (void)snprintf(log.dir, sizeof log.dir, "%s", folder);
    {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        stk_top_log_put(&log, false, &utf8, 3, &out);
        assert_string_equal(out.data, "run/step  stderr.log  (empty)\n\n\n");
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bars), cmocka_unit_test(test_curves),
                                       cmocka_unit_test(test_log)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
