#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/testing.h"
#include "model/spec/spec.h"

static char *converted(const char *text, size_t len)
{
    stk_err err = {0};
    char message[1200];
    char *json = NULL;
    if (stk_spec_convert(text, len, "p.yaml", &json, &err) < 0) {
        json = strdup(stk_err_format(&err, message, sizeof message));
    }
    return json;
}

static void test_documents(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *expected;
    } cases[] = {
        /* YAML 1.2's core schema */
        {"[null, Null, NULL, ~, ]", "[null,null,null,null]"},
        {"a:\nb: ''", "{\"a\":null,\"b\":\"\"}"},
        {"[true, True, FALSE, yes, no, on, off, Y, TrUe]",
         "[true,true,false,\"yes\",\"no\",\"on\",\"off\",\"Y\",\"TrUe\"]"},
        {"[1, -2, +3, 007, 0o17, 0x1F, 0, -0, 12345678901234567890123]",
         "[1,-2,3,7,15,31,0,0,12345678901234567890123]"},
        {"[1.5, 1.50, -.5, .5, 5., +1.5, 1e3, 1.e3, 1E-3, 01.5, 6.02e+23]",
         "[1.5,1.50,-0.5,0.5,5.0,1.5,1e3,1000.0,1E-3,1.5,6.02e+23]"},
        {"[1_000, 1:30, 0b11, 1.2.3, 2026-11-21, '1', \"1\", ., -, 1e, e5, 0x, 12h]",
         "[\"1_000\",\"1:30\",\"0b11\",\"1.2.3\",\"2026-11-21\",\"1\",\"1\",\".\",\"-\",\"1e\","
         "\"e5\",\"0x\",\"12h\"]"},
        {"1: a\ntrue: b\nno: c", "{\"1\":\"a\",\"true\":\"b\",\"no\":\"c\"}"},
        {"[!!str 1, !!int 1, ! 2]", "[\"1\",1,\"2\"]"},
        {"[.inf]", "p.yaml:1: .inf … JSON … infinity … NaN; quote it …"},
        {"[-.Inf]", "p.yaml:1: -.Inf … JSON … infinity … NaN; quote it …"},
        {"[1e999]", "p.yaml:1: number 1e999 is too large"},
        {"[0xFFFFFFFFFFFFFFFFFF]", "p.yaml:1: number 0xFFFFFFFFFFFFFFFFFF is too large"},
        {"a: !python/object:os.system x",
         "p.yaml:1: tag '!python/object:os.system' doesn't fit a string; …"},
        {"a: !!int x", "p.yaml:1: tag 'tag:yaml.org,2002:int' doesn't fit a string; …"},
        /* text */
        {"a: |\n  x\n  y\nb: >-\n  x\n  y\n", "{\"a\":\"x\\ny\\n\",\"b\":\"x y\"}"},
        {"a: \"\\0\\x41\\u20ac\"", "{\"a\":\"\\u0000A\xE2\x82\xAC\"}"},
        /* anchors, aliases, merges */
        {"a: &x {k: 1}\nb: *x\nc: [*x, *x]",
         "{\"a\":{\"k\":1},\"b\":{\"k\":1},\"c\":[{\"k\":1},{\"k\":1}]}"},
        {"a: &x 1\nb: &x 2\nc: *x", "{\"a\":1,\"b\":2,\"c\":2}"},
        {"&k name: 1\nb: {*k : 2}", "{\"name\":1,\"b\":{\"name\":2}}"},
        {"base: &b {x: 1, y: 2}\nd:\n  y: 3\n  <<: *b",
         "{\"base\":{\"x\":1,\"y\":2},\"d\":{\"y\":3,\"x\":1}}"},
        {"d: {<<: [{x: 1}, {x: 2, z: 3}], y: 4}", "{\"d\":{\"y\":4,\"x\":1,\"z\":3}}"},
        {"d: {<<: {x: 1}, <<: {z: 1}}", "{\"d\":{\"x\":1,\"z\":1}}"},
        {"d: {'<<': 1}", "{\"d\":{\"<<\":1}}"},
        {"d:\n  <<: 1", "p.yaml:2: '<<' … not a whole number"},
        {"d:\n  <<: [1]", "p.yaml:2: '<<' … not a whole number"},
        {"a: *x", "p.yaml:1: alias *x … anchor &x …"},
        {"a: &x [*x]", "p.yaml:1: alias *x … anchor &x …"},
        {"a: &x [1]\n*x : 2", "p.yaml:2: alias *x … key…"},
        /* shape */
        {"a: 1\nb: 2\na: 3", "p.yaml:3: key 'a' … line 1; …"},
        {"a: 1\n---\nb: 1", "p.yaml:2: … second document …"},
        {"", "p.yaml: the document is empty"},
        {"# nothing\n", "p.yaml: the document is empty"},
        {"? [a]\n: 1", "p.yaml:1: … key … not a list"},
        {"?\n: 1", "p.yaml:1: a key is missing before ':'"},
        {"\"a\\0\": 1", "p.yaml:1: … key … NUL …"},
        {"a: [1, 2\nb: 3",
         "p.yaml:2: not valid YAML: did not find expected ',' or ']', while parsing "
         "a flow sequence that begins on line 1"},
        {"a: b: c",
         "p.yaml:1: not valid YAML: mapping values are not allowed in this context; quote "
         "text that holds ': '"},
        {"a:\n\tb: 1",
         "p.yaml:2: not valid YAML: found character that cannot start any token, while "
         "scanning for the next token that begins on line 2"},
        {"\xC3(", "p.yaml: not valid YAML: invalid trailing UTF-8 octet (at byte 1)"},
        /* a document that begins with a brace is JSON */
        {" {\"a\": 1}", "{\"a\":1}"},
        {"{a: 1}", "p.yaml:1: not valid JSON: expected a key in double quotes, found 'a'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = converted(cases[i].yaml, strlen(cases[i].yaml));
        if (strstr(cases[i].yaml, "\tb") != NULL) {
            assert_non_null(strstr(got, "p.yaml:2: not valid YAML: found character"));
            assert_non_null(strstr(got, "indent with spaces, not tabs"));
        } else {
            assert_names(got, cases[i].expected);
        }
        free(got);
    }
}

/* Nine levels of nine aliases are 387 million nodes in 400 bytes. */
static void test_laughs(void **state)
{
    (void)state;
    STK_BUF_AUTO text = STK_BUF_INIT(10000);
    stk_buf_text(&text, "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i <= 9; i++) {
        stk_buf_printf(&text, "a%d: &a%d [", i, i);
        for (int j = 0; j < 9; j++) {
            stk_buf_printf(&text, "%s*a%d", j == 0 ? "" : ",", i - 1);
        }
        stk_buf_text(&text, "]\n");
    }
    char *got = converted(text.data, text.len);
    assert_non_null(strstr(got, "more than 40000000 values (aliases expanded)"));
    free(got);

    /* A few large texts, each used many times: their expanded size is limited. */
    stk_buf_clear(&text);
    text.max = 1u << 21;
    stk_buf_text(&text, "t: &t ");
    for (int i = 0; i < 1 << 20; i++) {
        stk_buf_char(&text, 'x');
    }
    stk_buf_text(&text, "\nl: [");
    for (int i = 0; i < 600; i++) {
        stk_buf_text(&text, "*t,");
    }
    stk_buf_text(&text, "]\n");
    got = converted(text.data, text.len);
    assert_non_null(strstr(got, "has more than 536870912 bytes as JSON"));
    free(got);
}

static char *nested(int depth)
{
    STK_BUF_AUTO text = STK_BUF_INIT(10000);
    for (int i = 0; i < depth; i++) {
        stk_buf_text(&text, "- ");
    }
    stk_buf_text(&text, "x");
    return converted(text.data, text.len);
}

static char *aliased(int n)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 20);
    stk_buf_text(&text, "- &a 1\n");
    for (int i = 0; i < n; i++) {
        stk_buf_text(&text, "- *a\n");
    }
    return converted(text.data, text.len);
}

static void test_limits(void **state)
{
    (void)state;
    char *got = nested(STK_LIMIT_DEPTH);
    assert_int_equal(got[0], '[');
    free(got);
    got = nested(STK_LIMIT_DEPTH + 1);
    assert_names(got, "p.yaml:1: … nested … 64 …");
    free(got);
    got = aliased(STK_LIMIT_ALIASES);
    assert_int_equal(got[0], '[');
    free(got);
    got = aliased(STK_LIMIT_ALIASES + 1);
    assert_string_equal(got, "p.yaml:10002: more than 10000 aliases in one document");
    free(got);
    /* An alias adds its own nesting depth. */
    const char deep[] = "a: &a [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n"
                        "b: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n";
    got = converted(deep, sizeof deep - 1);
    assert_names(got, "p.yaml:2: … nested … 64 …");
    free(got);
}

static void test_lines(void **state)
{
    (void)state;
    static const char yaml[] = "a: 1\nsteps:\n  x/y:\n    - p\n\n    - q: {r~: 1}\n";
    char *json = NULL;
    assert_int_equal(stk_spec_convert_lines(yaml, sizeof yaml - 1, NULL, &json, NULL), 0);
    assert_string_equal(json,
                        "{\"document\":{\"a\":1,\"steps\":{\"x/y\":[\"p\",{\"q\":{\"r~\":1}}]}},"
                        "\"lines\":{\"/a\":1,\"/steps\":2,\"/steps/x~1y\":3,"
                        "\"/steps/x~1y/0\":4,\"/steps/x~1y/1\":6,\"/steps/x~1y/1/q\":6,"
                        "\"/steps/x~1y/1/q/r~0\":6}}");
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_laughs), cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
