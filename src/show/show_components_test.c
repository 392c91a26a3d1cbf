/* Components of cards: hostile texts stay texts; charts are pictures or say why they aren't. */
#include <stdlib.h>
#include <string.h>

#include "base/testing.h"
#include "show/show_components.h"
#include "show/show_testing.h"

static const char *shown(stk_buf *out, const char *json)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *list = stk_json_read(scratch, json);
    assert_non_null(list);
    stk_buf_clear(out);
    stk_buf_text(out, "");
    stk_html_components(out, list);
    stk_case_well_formed(out->data);
    return out->data;
}

static void test_markdown(void **state)
{
    (void)state;
    static const struct {
        const char *text, *has, *hasnt;
    } cases[] = {
        {"# A *b*\n\n- x", "<h1>A <em>b</em></h1>", NULL},
        {"<script>alert(1)</script>", "&lt;script&gt;", "<script"},
        {"a <b onclick=\"x()\">b</b>", "&lt;b onclick=", "<b onclick"},
        {"[x](javascript:alert(1))", "<a href=\"\">x</a>", "javascript"},
        {"[x](data:text/html;base64,AA)", "<a href=\"\">x</a>", "data:text"},
        {"![p](http://e.example/x.png)", "<a href=\"http://e.example/x.png\">p</a>", "<img"},
        {"![](//e.example/x.png)", ">//e.example/x.png</a>", "<img"},
        {"![p](data:image/png;base64,AAAA)", "<img src=\"data:image/png;base64,AAAA\"", NULL},
        {"| a | b |\n|---|--:|\n| `x` | 2 |\n\nafter",
         "<td><code>x</code></td>\n<td align=\"right\">2", "<p>|"},
        {"| a | b |\n|---|---|\n| x\\|y |", "<td>x|y</td>\n<td></td>", NULL},
        {"before\n\n|<script>|\n|:-:|\n|<img src=x>|",
         "<td align=\"center\">&lt;img src=x&gt;</td>", "<script"},
        {"```\n| a |\n|---|\n```", "| a |", "<table"},
        {"| a | b |\n| c | d |", "| c | d |", "<table"},
        {"a\033[31mb", "a?[31mb", "\033"},
        {"", "<div class=\"md\"></div>", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
        stk_html_markdown(&out, cases[i].text);
        stk_case_well_formed(out.data);
        if (strstr(out.data, cases[i].has) == NULL ||
            (cases[i].hasnt != NULL && strstr(out.data, cases[i].hasnt) != NULL)) {
            fail_msg("%s: %s", cases[i].text, out.data);
        }
    }
}

/* Every component kind, with texts that look like tags in every place that takes a text. */
static void test_escaped(void **state)
{
    (void)state;
    static const char *const kinds[] = {
        "\"kind\":\"table\",\"headers\":[X,X],\"rows\":[[X,1],[{\"kind\":\"artifact\",\"text\":X}]"
        "]",
        "\"kind\":\"image\",\"src\":X,\"label\":X",
        "\"kind\":\"image\",\"src\":\"data:image/png;base64,AA\\\" onerror=\\\"x\",\"label\":X",
        "\"kind\":\"artifact\",\"name\":X,\"type\":X,\"text\":X",
        "\"kind\":\"progress\",\"max\":X,\"value\":3,\"label\":X,\"unit\":X,\"details\":X",
        "\"kind\":\"value\",\"title\":X,\"value\":X,\"subtitle\":X,\"theme\":X,\"change\":X",
        "\"kind\":\"code\",\"text\":X",
        "\"kind\":\"html\",\"text\":X",
        "\"kind\":\"error\",\"title\":X,\"text\":X",
        "\"kind\":\"json\",\"title\":X,\"text\":X",
        "\"kind\":\"yaml\",\"title\":X,\"text\":X,\"collapsible\":false",
        "\"kind\":\"events\",\"title\":X,\"events\":[{\"theme\":X,\"priority\":X,\"at\":X,"
        "\"data\":{\"<script>\":X},\"payloads\":{\"<script>\":{\"kind\":\"json\",\"text\":X}}}]",
        "\"kind\":\"vega\",\"spec\":{\"mark\":X,\"data\":{\"values\":[{\"<script>\":X}]}}",
        "\"kind\":\"vega\",\"src\":X,\"why\":X,\"spec\":{\"title\":X,\"mark\":\"bar\",\"data\":{"
        "\"values\":[{\"a\":X,"
        "\"b\":1}]},\"encoding\":{\"x\":{\"field\":\"a\",\"title\":X},\"y\":{\"field\":\"b\","
        "\"title\":X},\"color\":{\"field\":\"a\",\"title\":X}}}",
        "\"kind\":X,\"text\":X",
        "\"text\":X",
    };
    static const char hostile[] = "\"<script>\\\"'><img src=x onerror=alert(1)>&\\u001b\"";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        STK_BUF_AUTO json = STK_BUF_INIT(1u << 16);
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
        stk_buf_text(&json, "[{");
        for (const char *s = kinds[i]; *s != '\0'; s++) {
            if (*s == 'X') {
                stk_buf_text(&json, hostile);
            } else {
                stk_buf_char(&json, *s);
            }
        }
        stk_buf_text(&json, "},3,null,\"<script>\"]");
        const char *html = shown(&out, json.data);
        bool clean = strstr(html, "<script") == NULL && strstr(html, "<img src=x") == NULL &&
                     strchr(html, '\033') == NULL && strstr(html, "onerror=\"") == NULL;
        if (!clean || strstr(html, "&lt;script&gt;") == NULL) {
            fail_msg("%s: %s", kinds[i], html);
        }
    }
}

static void test_kinds(void **state)
{
    (void)state;
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    assert_non_null(
        strstr(shown(&out, "[{\"kind\":\"progress\",\"max\":10,\"value\":7}]"), "width:70.0%"));
    assert_non_null(
        strstr(shown(&out, "[{\"kind\":\"progress\",\"max\":0,\"value\":7}]"), "width:0.0%"));
    assert_non_null(
        strstr(shown(&out, "[{\"kind\":\"progress\",\"max\":2,\"value\":7}]"), "width:100.0%"));
    /* Adjacent value boxes share a row, which ends after them. */
    shown(&out, "[{\"kind\":\"value\",\"value\":1},{\"kind\":\"value\",\"value\":2},"
                "{\"kind\":\"markdown\",\"text\":\"a\"},{\"kind\":\"value\",\"value\":3}]");
    const char *row = strstr(out.data, "<div class=\"values\">");
    assert_non_null(row);
    assert_non_null(strstr(row + 1, "<div class=\"values\">"));
    assert_null(strstr(strstr(row + 1, "<div class=\"values\">") + 1, "<div class=\"values\">"));
    assert_non_null(strstr(shown(&out, "[{\"kind\":\"code\",\"text\":\"def f(): # x\"}]"),
                           "<span class=\"py-k\">def</span> f(): <span class=\"py-c\"># x</span>"));
    assert_non_null(
        strstr(shown(&out, "[{\"kind\":\"image\",\"src\":\"data:image/png;base64,AAAA\"}]"),
               "src=\"data:image/png;base64,AAAA\""));
    assert_non_null(
        strstr(shown(&out, "[{\"kind\":\"image\",\"src\":\"http://e/x.png\"}]"), "PNG, JPEG, GIF"));
    assert_non_null(
        strstr(shown(&out, "[{\"kind\":\"html\",\"text\":\"<b id='a'>\\\"x\\\"</b>\"}]"),
               "<iframe sandbox=\"\" title=\"a page of the step\" srcdoc=\"&lt;b"));
    /* Nesting that is too deep is cut off. */
    STK_BUF_AUTO deep = STK_BUF_INIT(1u << 20);
    stk_buf_char(&deep, '[');
    for (int i = 0; i < 300; i++) {
        stk_buf_text(&deep, "{\"kind\":\"table\",\"rows\":[[");
    }
    for (int i = 0; i < 300; i++) {
        stk_buf_text(&deep, "]]}");
    }
    stk_buf_char(&deep, ']');
    shown(&out, deep.data);
}

/* A chart is the picture that the worker made, or else a table of its records. */
static void test_charts(void **state)
{
    (void)state;
    static const struct {
        const char *chart, *has, *hasnt;
    } cases[] = {
        {"\"spec\":{\"title\":\"T<\"},\"src\":\"data:image/svg+xml;base64,AAAA\"",
         "<figure><img alt=\"T&lt;\" src=\"data:image/svg+xml;base64,AAAA\"/></figure>",
         "specification"},
        {"\"src\":\"data:image/svg+xml;base64,AAAA\\\" onload=\\\"x\"", "This chart is not drawn",
         "<img"},
        {"\"src\":\"http://e.example/x.svg\"", "This chart is not drawn", "<img"},
        {"\"spec\":{\"mark\":\"bar\",\"data\":{\"values\":[{\"a\":\"p\",\"b\":1},{\"b\":2.5}]}},"
         "\"why\":\"no <reason>\"",
         "(no &lt;reason&gt;); here", "<img"},
        {"\"spec\":{\"data\":{\"values\":[{\"a\":\"p\",\"b\":1},{\"b\":2.5}]}}",
         "<thead><tr><th>a</th><th class=\"num\">b</th></tr></thead><tbody><tr><td>p</td>"
         "<td class=\"num\">1</td></tr>\n<tr><td></td><td class=\"num\">2.5</td></tr>",
         "reason"},
        {"\"spec\":{\"datasets\":{\"d\":[{\"c\":7}]},\"data\":{\"name\":\"d\"}}",
         "<td class=\"num\">7</td>", "<img"},
        {"\"spec\":{\"data\":{\"values\":[1,2]}}", "<summary>specification</summary>", "<table"},
        {"\"spec\":null", "(it has no picture)", "null"},
        {"\"spec\":7", "(it has no picture)", "<summary>"},
        {"\"spec\":{\"data\":{\"values\":[{\"a\":\"x\\u0000y\"}]}}", "<td>?</td>", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO json = STK_BUF_INIT(1u << 16);
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
        stk_buf_printf(&json, "[{\"kind\":\"vega\",%s}]", cases[i].chart);
        const char *html = shown(&out, json.data);
        if (strstr(html, cases[i].has) == NULL ||
            (cases[i].hasnt != NULL && strstr(html, cases[i].hasnt) != NULL)) {
            fail_msg("%s: %s", json.data, html);
        }
    }
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    shown(&out, "[{\"kind\":\"vega\"}]");
    assert_null(strstr(out.data, "null"));
    assert_non_null(strstr(out.data, "(it has no picture)"));
}

/* A chart's long table is cut like any other table, and says so. */
static void test_long_chart(void **state)
{
    (void)state;
    STK_BUF_AUTO json = STK_BUF_INIT(1u << 20);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 22);
    stk_buf_text(&json, "[{\"kind\":\"vega\",\"spec\":{\"data\":{\"values\":[{\"a\":0}");
    for (int i = 1; i < 2500; i++) {
        stk_buf_printf(&json, ",{\"a\":%d}", i);
    }
    stk_buf_text(&json, "]}}}]");
    assert_non_null(strstr(shown(&out, json.data), "2000 of 2500 rows"));
}

/* A text with a zero byte is shown as a question mark in every place. */
static void test_zero_byte(void **state)
{
    (void)state;
    static const char *const lists[] = {
        "[\"a\\u0000b\"]",
        "[{\"kind\":\"a\\u0000b\"}]",
        "[{\"kind\":\"table\",\"headers\":[\"a\\u0000b\"],\"rows\":[[\"a\\u0000b\"]]}]",
        "[{\"kind\":\"value\",\"title\":\"a\\u0000b\",\"value\":\"a\\u0000b\"}]",
        "[{\"kind\":\"progress\",\"label\":\"a\\u0000b\",\"value\":1}]",
        "[{\"kind\":\"events\",\"events\":[{\"theme\":\"\\u0000\",\"priority\":\"\\u0000\","
        "\"data\":{\"k\":\"a\\u0000b\"}}]}]",
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
        const char *html = shown(&out, lists[i]);
        if (strchr(html, '?') == NULL && strstr(html, "u0000") == NULL) {
            fail_msg("%s: %s", lists[i], html);
        }
    }
}

/* Filling up short rows would turn this table of 400 KB into 10,000,000,000 cells. */
static void test_wide_table(void **state)
{
    (void)state;
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 22);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    for (int i = 0; i < 100000; i++) {
        stk_buf_text(&text, "|a");
    }
    stk_buf_char(&text, '\n');
    for (int i = 0; i < 100000; i++) {
        stk_buf_text(&text, "|-");
    }
    for (int i = 0; i < 100000; i++) {
        stk_buf_text(&text, "\na");
    }
    stk_html_markdown(&out, text.data);
    assert_non_null(strstr(out.data, "|a|a|a"));
    assert_null(strstr(out.data, "<table"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_markdown),   cmocka_unit_test(test_escaped),
        cmocka_unit_test(test_kinds),      cmocka_unit_test(test_charts),
        cmocka_unit_test(test_long_chart), cmocka_unit_test(test_zero_byte),
        cmocka_unit_test(test_wide_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
