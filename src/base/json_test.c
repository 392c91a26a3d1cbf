#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/testing.h"
#include "base/text.h"

static const stk_json_limits roomy = {1u << 20, 100000, STK_LIMIT_DEPTH};

/* Parses `text` and returns it as canonical JSON, or the error message. */
static char *around(const char *text, size_t len, const stk_json_limits *limits)
{
    stk_arena *arena = stk_arena_new(0);
    stk_json root;
    stk_err err = {0};
    char message[1200];
    char *answer;
    if (stk_json_parse(text, len, "d.json", limits, arena, &root, &err) < 0) {
        answer = strdup(stk_err_format(&err, message, sizeof message));
    } else {
        answer = strdup(stk_json_dump_in(&root, arena));
    }
    stk_arena_free(arena);
    return answer;
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {" { } ", "{}"},
        {"[]", "[]"},
        {"\xEF\xBB\xBF[1]", "[1]"},
        {"[1, -2 ,3.50,1e5,-0, 123456789012345678901234567890]",
         "[1,-2,3.50,1e5,-0,123456789012345678901234567890]"},
        {"{\"b\": true,\r\n \"a\": [null, false, \"x\"]}", "{\"b\":true,\"a\":[null,false,\"x\"]}"},
        {"\"\\u0041\\n\\t\\\"\\\\\\/\\b\\f\\r\"", "\"A\\n\\t\\\"\\\\/\\b\\f\\r\""},
        {"\"\\ud83d\\ude00 \\u00e9 \\u20ac\"", "\"\xF0\x9F\x98\x80 \xC3\xA9 \xE2\x82\xAC\""},
        {"\"\\ud83d x\"", "\"\xEF\xBF\xBD x\""},
        {"\"\\udc80\"", "\"\xEF\xBF\xBD\""},
        {"\"\\u0000\\u001f\"", "\"\\u0000\\u001f\""},
        {"{\"a\":{\"a\":{\"a\":[[[]]]}}}", "{\"a\":{\"a\":{\"a\":[[[]]]}}}"},
        {"", "d.json:1: not valid JSON: expected a value, found the end of the document"},
        {"{\"a\" 1}", "d.json:1: not valid JSON: expected ':' after a key, found '1'"},
        {"{\n\"a\": 1,\n}", "d.json:3: not valid JSON: expected a key in double quotes, found '}'"},
        {"[1\n 2]", "d.json:2: not valid JSON: expected ',' or ']', found '2'"},
        {"{\"a\":1]", "d.json:1: not valid JSON: expected ',' or '}', found ']'"},
        {"[1] x", "d.json:1: not valid JSON: expected the end of the document, found 'x'"},
        {"[01]", "d.json:1: not valid JSON: expected ',' or ']', found '1'"},
        {"[+1]", "d.json:1: not valid JSON: expected a value, found '+'"},
        {"[1.]", "d.json:1: not valid JSON: expected a digit after the decimal point, found ']'"},
        {"[1e]", "d.json:1: not valid JSON: expected a digit in the exponent, found ']'"},
        {"[1e999]", "d.json:1: number 1e999 is too large"},
        {"[NaN]", "d.json:1: JSON has no NaN and no infinity; write it as text"},
        {"[-Infinity]", "d.json:1: not valid JSON: expected a finite number, found 'I'"},
        {"\"\\x\"",
         "d.json:1: not valid JSON: expected one of \"\\/bfnrtu after a backslash, found 'x'"},
        {"\"\\\b\"", "d.json:1: not valid JSON: expected one of \"\\/bfnrtu after a backslash, "
                     "found byte 0x08"},
        {"\"\\u12g4\"", "d.json:1: not valid JSON: expected four hex digits after \\u, found 'u'"},
        {"\"a\nb\"", "d.json:1: not valid JSON: expected a closing '\"' (control characters are "
                     "written as escapes), found byte 0x0a"},
        {"\"abc",
         "d.json:1: not valid JSON: expected a closing '\"' (control characters are written "
         "as escapes), found the end of the document"},
        {"[1,\n\"\xC3(\"]", "d.json:2: not valid UTF-8 on this line"},
        {"[\"\xED\xA0\x80\"]", "d.json:1: not valid UTF-8 on this line"},
        {"{\"a\":1,\n\"b\":2,\n\"a\":3}", "d.json:3: key 'a' … line 1; …"},
        {"{\"a\\u0000\":1}", "d.json:1: … key … NUL …"},
        {"[tru]", "d.json:1: not valid JSON: expected a value, found 't'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *got = around(cases[i].text, strlen(cases[i].text), &roomy);
        assert_names(got, cases[i].expected);
        free(got);
    }
}

static void test_raw_nul(void **state)
{
    (void)state;
    char *got = around("[1,\0 2]", 7, &roomy);
    assert_string_equal(got, "d.json:1: not valid JSON: expected a value, found byte 0x00");
    free(got);
}

/* Each limit, and one above it. */
static void test_limits(void **state)
{
    (void)state;
    char text[400] = "";
    for (int i = 0; i < STK_LIMIT_DEPTH; i++) {
        strcat(text, "[");
    }
    for (int i = 0; i < STK_LIMIT_DEPTH; i++) {
        strcat(text, "]");
    }
    char *got = around(text, strlen(text), &roomy);
    assert_string_equal(got, text);
    free(got);
    memmove(text + 1, text, strlen(text) + 1);
    strcat(text, "]");
    got = around(text, strlen(text), &roomy);
    assert_names(got, "d.json:1: … nested … 64 …");
    free(got);

    stk_json_limits four = {100, 4, 8};
    got = around("[1,2,3]", 7, &four);
    assert_string_equal(got, "[1,2,3]");
    free(got);
    got = around("[1,2,3,4]", 9, &four);
    assert_non_null(strstr(got, "more than 4 values"));
    free(got);
    got = around("[1,2,[]]", 8, &four);
    assert_string_equal(got, "[1,2,[]]");
    free(got);
    got = around("[1,[2,[]]]", 10, &four);
    assert_non_null(strstr(got, "more than 4 values"));
    free(got);
    stk_json_limits bytes = {7, 100, 8};
    got = around("[1,2,3]", 7, &bytes);
    assert_string_equal(got, "[1,2,3]");
    free(got);
    got = around("[1,2,3] ", 8, &bytes);
    assert_string_equal(got, "d.json: the document is larger than 7 bytes");
    free(got);
}

static void test_many_keys(void **state)
{
    (void)state;
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 20);
    for (int i = 0; i < 5000; i++) {
        stk_buf_printf(&text, "%s\n\"k%d\":%d", i == 0 ? "{" : ",", i, i);
    }
    stk_buf_text(&text, "}");
    char *got = around(text.data, text.len, &roomy);
    assert_int_equal(strncmp(got, "{\"k0\":0,\"k1\":1,", 15), 0);
    free(got);
    text.len--;
    stk_buf_text(&text, ",\n\"k77\":0}");
    got = around(text.data, text.len, &roomy);
    assert_names(got, "d.json:5002: key 'k77' … line 79; …");
    free(got);
}

static void test_asking(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": 9223372036854775807,\n \"b\": 9223372036854775808, \"c\": 2.5,"
        "\n \"d\": \"x\\u0000y\", \"e\": \"x\"}";
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root;
    int64_t whole = 0;
    double real = 0;
    assert_int_equal(stk_json_parse(text, sizeof text - 1, NULL, &roomy, arena, &root, NULL), 0);
    assert_true(stk_json_int(stk_json_get(&root, "a"), &whole));
    assert_true(whole == INT64_MAX);
    assert_false(stk_json_int(stk_json_get(&root, "b"), &whole));
    assert_true(stk_json_real(stk_json_get(&root, "b"), &real));
    assert_false(stk_json_int(stk_json_get(&root, "c"), &whole));
    assert_true(stk_json_real(stk_json_get(&root, "c"), &real) && real == 2.5);
    assert_null(stk_json_text(stk_json_get(&root, "d")));
    assert_true(stk_json_is(stk_json_get(&root, "e"), "x"));
    assert_null(stk_json_get(&root, "f"));
    assert_null(stk_json_get(stk_json_get(&root, "a"), "a"));
    assert_int_equal(stk_json_get(&root, "c")->line, 2);
    assert_int_equal(stk_json_get(&root, "d")->line, 3);
}

static void test_reals(void **state)
{
    (void)state;
    static const struct {
        double number;
        const char *text;
    } cases[] = {{0.1, "0.1"},           {1, "1.0"},
                 {-2.5e-10, "-2.5e-10"}, {1.0 / 3, "0.3333333333333333"},
                 {1e22, "1e+22"},        {0.1 + 0.2, "0.30000000000000004"},
                 {-0.0, "-0.0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        stk_json_format_real(cases[i].number, text);
        assert_string_equal(text, cases[i].text);
        assert_true(strtod(text, NULL) == cases[i].number);
    }
}

/* A map with so many members that it gets an index. */
static void test_index(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 20);
    char key[16];
    stk_json_open(&text, NULL, '{');
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        stk_json_put_whole(&text, key, -i);
    }
    stk_json_close(&text, '}');
    const stk_json *map = stk_json_read(arena, text.data);
    assert_true(stk_json_is_map(map) && map->indexed);
    assert_int_equal(stk_json_n_members(map), 1000);
    for (int i = 0; i < 1000; i++) {
        (void)snprintf(key, sizeof key, "k%d", i);
        assert_int_equal(stk_json_get_whole(map, key, 1), -i);
    }
    assert_null(stk_json_get(map, "k1000"));
    assert_null(stk_json_get(map, ""));
    stk_json copy = *map;
    assert_true(stk_json_remove(arena, &copy, "k7") && !stk_json_equal(&copy, map));
    assert_non_null(stk_json_set(arena, &copy, "k7", *stk_json_get(map, "k7")));
    assert_true(stk_json_equal(&copy, map) && stk_json_equal(map, &copy));
    assert_int_equal(stk_json_get_whole(&copy, "k999", 1), -999);
    assert_string_equal(stk_json_dump_in(map, arena), text.data);
}

static void test_making(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *read = stk_json_read(arena, "{\"a\": [1, 2, 3, 4, 5], \"b\": {}}");
    stk_json map = *read, list = *stk_json_get(read, "a");
    for (int i = 0; i < 40; i++) {
        assert_non_null(stk_json_append(arena, &list, stk_json_of_text("x")));
    }
    assert_int_equal(stk_json_n_items(&list), 45);
    assert_int_equal(stk_json_whole(stk_json_item(&list, 4), 0), 5);
    assert_string_equal(stk_json_text(stk_json_item(&list, 44)), "x");
    assert_null(stk_json_item(&list, 45));
    assert_non_null(stk_json_set(arena, &map, "a", stk_json_of_bool(true)));
    assert_true(stk_json_update(arena, &map, stk_json_read(arena, "{\"c\": null, \"b\": 2.5}")));
    assert_string_equal(stk_json_dump_in(&map, arena), "{\"a\":true,\"b\":2.5,\"c\":null}");
    assert_string_equal(stk_json_dump_in(read, arena), "{\"a\":[1,2,3,4,5],\"b\":{}}");
    assert_int_equal(stk_json_get_whole(&map, "b", 0), 2);
    assert_true(stk_json_is_true(stk_json_get(&map, "a")));
}

/* Text that a program put into a tree, cut in the middle of a character or never UTF-8. */
static void test_writing_what_is_no_utf8(void **state)
{
    static const char *const texts[][2] = {{"l\xC3\xA9", "\"l\xC3\xA9\""},
                                           {"l\xC3", "\"l\xEF\xBF\xBD\""},
                                           {"a\xE2\x80", "\"a\xEF\xBF\xBD\xEF\xBF\xBD\""},
                                           {"\xFFz\n", "\"\xEF\xBF\xBDz\\n\""}};
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        stk_json node = stk_json_of_text(texts[i][0]);
        assert_string_equal(stk_json_dump_in(&node, arena), texts[i][1]);
        STK_BUF_AUTO plain = STK_BUF_INIT(64);
        assert_int_equal(stk_buf_json(&plain, texts[i][0]), 0);
        assert_string_equal(plain.data, texts[i][1]);
    }
    assert_int_equal(stk_text_cut("l\xC3\xA9", 2), 1);
    assert_int_equal(stk_text_cut("l\xC3\xA9", 3), 3);
    assert_int_equal(stk_text_cut("l\xC3\xA9z", 3), 3);
    assert_int_equal(stk_text_cut("lz", 9), 2);
}

static void test_writing(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    stk_json_open(&out, NULL, '{');
    stk_json_open(&out, "none", '[');
    stk_json_close(&out, ']');
    stk_json_put_texts(&out, "texts", (const char *const[]){"a", "b\"", NULL});
    stk_json_open(&out, "list", '[');
    stk_json_put_whole(&out, NULL, -1);
    stk_json_put_int(&out, NULL, -1);
    stk_json_open(&out, NULL, '{');
    stk_json_put_raw(&out, "raw", "[0]");
    stk_json_put_bool(&out, "b", true);
    stk_json_close(&out, '}');
    stk_json_close(&out, ']');
    stk_json_put(&out, "gone", NULL);
    stk_json_close(&out, '}');
    assert_string_equal(out.data, "{\"none\":[],\"texts\":[\"a\",\"b\\\"\"],"
                                  "\"list\":[-1,null,{\"raw\":[0],\"b\":true}],\"gone\":null}");
    const stk_json *read = stk_json_read(arena, out.data);
    stk_buf_clear(&out);
    stk_json_dump_pretty(stk_json_get(read, "list"), &out);
    assert_string_equal(out.data, "[\n  -1,\n  null,\n  {\n    \"raw\": [\n      0\n    ],\n"
                                  "    \"b\": true\n  }\n]");
    stk_buf_clear(&out);
    stk_json_dump_pretty(stk_json_get(read, "none"), &out);
    assert_string_equal(out.data, "[]");
}

/* JSON that a program wrote may be nested deeper than a person's, but not without a limit. */
static void test_nesting(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    for (int depth = STK_LIMIT_NESTED; depth <= STK_LIMIT_NESTED + 1; depth++) {
        stk_buf_clear(&out);
        for (int i = 0; i < depth; i++) {
            stk_buf_char(&out, '[');
        }
        for (int i = 0; i < depth; i++) {
            stk_buf_char(&out, ']');
        }
        const stk_json *read = stk_json_read(arena, out.data);
        assert_int_equal(read != NULL, depth == STK_LIMIT_NESTED);
        assert_true(read == NULL || strcmp(stk_json_dump_in(read, arena), out.data) == 0);
    }
    assert_null(stk_json_read(arena, NULL));
    assert_null(stk_json_read(arena, "[1"));
    assert_null(stk_json_read(NULL, "[1]"));
}

/* A program's JSON: values that a record can't keep are refused; of equal keys the last counts. */
static void test_by_program(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char *const bad[] = {"9223372036854775808", "-9223372036854775809", "\"\\ud800\"",
                                      "\"\\ude00\\ud83d\"", "1e309"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(stk_json_read(arena, bad[i]));
    }
    assert_int_equal(stk_json_whole(stk_json_read(arena, "-9223372036854775808"), 0), INT64_MIN);
    const stk_json *small = stk_json_read(arena, "{\"a\":1,\"b\":2,\"a\":3,\"c\":4,\"a\":5}");
    assert_string_equal(stk_json_dump_in(small, arena), "{\"a\":5,\"b\":2,\"c\":4}");
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 20);
    char key[16];
    stk_json_open(&text, NULL, '{');
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof key, "k%d", i % 50);
        stk_json_put_whole(&text, key, i);
    }
    stk_json_close(&text, '}');
    const stk_json *large = stk_json_read(arena, text.data);
    assert_int_equal(stk_json_n_members(large), 50);
    assert_int_equal(stk_json_get_whole(large, "k7", 0), 57);
}

static void test_as_list(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *items;
    assert_int_equal(stk_json_as_list(NULL, &items), 0);
    assert_int_equal(stk_json_as_list(stk_json_read(arena, "[]"), &items), 0);
    assert_int_equal(stk_json_as_list(stk_json_read(arena, "[1, \"b\"]"), &items), 2);
    assert_string_equal(stk_json_text(&items[1]), "b");
    assert_int_equal(stk_json_as_list(stk_json_read(arena, "{\"k\": 1}"), &items), 1);
    assert_int_equal(stk_json_get_whole(items, "k", 0), 1);
}

static void test_percent(void **state)
{
    (void)state;
    static const char text[] = "aZ0-._~/:?\xC3\xA9 \0x";
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 10);
    assert_int_equal(stk_buf_percent(&out, text, sizeof text - 1, ""), 0);
    assert_string_equal(out.data, "aZ0-._~%2F%3A%3F%C3%A9%20%00x");
    stk_buf_clear(&out);
    assert_int_equal(stk_buf_percent(&out, text, sizeof text - 1, "/:"), 0);
    assert_string_equal(out.data, "aZ0-._~/:%3F%C3%A9%20%00x");
    STK_BUF_AUTO small = STK_BUF_INIT(2);
    assert_int_equal(stk_buf_percent(&small, "a b", 3, ""), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),     cmocka_unit_test(test_by_program),
        cmocka_unit_test(test_making),    cmocka_unit_test(test_writing),
        cmocka_unit_test(test_nesting),   cmocka_unit_test(test_values),
        cmocka_unit_test(test_raw_nul),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_many_keys), cmocka_unit_test(test_asking),
        cmocka_unit_test(test_reals),     cmocka_unit_test(test_as_list),
        cmocka_unit_test(test_percent),   cmocka_unit_test(test_writing_what_is_no_utf8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
