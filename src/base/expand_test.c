#include <stdlib.h>
#include <string.h>

#include "base/expand.h"
#include "base/testing.h"

static const char *value_of(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "A") == 0       ? "/a"
           : strcmp(name, "_b2") == 0   ? "two"
           : strcmp(name, "EMPTY") == 0 ? ""
                                        : NULL;
}

static void test_like_a_dockerfile(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", ""},
        {"plain", "plain"},
        {"/opt:$A", "/opt:/a"},
        {"$A/$_b2", "/a/two"},
        {"${A}x", "/ax"},
        {"$Ax", ""},
        {"$NONE", ""},
        {"${NONE}", ""},
        {"\\$A", "$A"},
        {"\\${A}", "${A}"},
        {"C:\\dir\\\\x", "C:\\dir\\\\x"},
        {"$", "$"},
        {"a$ b", "a$ b"},
        {"$$A", "$/a"},
        {"${A", "${A"},
        {"${}", "${}"},
        {"${A:?x}", "${A:?x}"},
        {"${A:-d}", "/a"},
        {"${NONE:-d}", "d"},
        {"${EMPTY:-d}", "d"},
        {"${EMPTY-d}", ""},
        {"${NONE-d}", "d"},
        {"${A:+:$A}", ":/a"},
        {"${NONE:+:$NONE}", ""},
        {"${EMPTY:+x}", ""},
        {"${EMPTY+x}", "x"},
        {"${NONE:-${A}/${_b2}}", "/a/two"},
        {"${NONE:-a\\}b}", "a\\}b"},
        {"${NONE:-}", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = stk_expand(cases[i][0], value_of, NULL);
        assert_non_null(got);
        assert_string_equal(got, cases[i][1]);
        free(got);
    }
}

static const char *long_value(void *arg, const char *name)
{
    (void)name;
    return arg;
}

static void test_limits(void **state)
{
    (void)state;
    static char half[STK_EXPAND_MAX / 2];
    memset(half, 'x', sizeof half - 1);
    char *got = stk_expand("$A$A", long_value, half);
    assert_non_null(got);
    assert_int_equal(strlen(got), STK_EXPAND_MAX - 2);
    free(got);
    assert_null(stk_expand("$A$A..", long_value, half));
    char deep[8 * (STK_EXPAND_DEPTH + 2)] = "";
    for (int i = 0; i <= STK_EXPAND_DEPTH; i++) {
        (void)strcat(deep, "${N:-");
    }
    (void)strcat(deep, "x");
    for (int i = 0; i <= STK_EXPAND_DEPTH; i++) {
        (void)strcat(deep, "}");
    }
    assert_null(stk_expand(deep, value_of, NULL));
    deep[strlen(deep) - 1] = '\0';
    char *inner = stk_expand(deep + 5, value_of, NULL);
    assert_string_equal(inner, "x");
    free(inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_like_a_dockerfile),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
