/* Components of cards: hostile texts stay texts, charts are drawn or say why not. */
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
        {"| a | b |\n|---|--:|\n| `x` | 2 |\n\nafter", "<td><code>x</code></td><td class=\"num\">2",
         "<p>|"},
        {"| a | b |\n|---|---|\n| x\\|y |", "<td>x|y</td><td></td>", NULL},
        {"before\n\n|<script>|\n|:-:|\n|<img src=x>|", "<td class=\"mid\">&lt;img src=x&gt;</td>",
         "<script"},
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

/* Each kind with texts that would be tags, in every place that takes a text. */
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
        "\"kind\":\"error\",\"title\":X,\"text\":X",
        "\"kind\":\"json\",\"title\":X,\"text\":X",
        "\"kind\":\"yaml\",\"title\":X,\"text\":X,\"collapsible\":false",
        "\"kind\":\"events\",\"title\":X,\"events\":[{\"theme\":X,\"priority\":X,\"at\":X,"
        "\"data\":{\"<script>\":X},\"payloads\":{\"<script>\":{\"kind\":\"json\",\"text\":X}}}]",
        "\"kind\":\"vega\",\"spec\":{\"mark\":X,\"data\":{\"values\":[{\"<script>\":X}]}}",
        "\"kind\":\"vega\",\"spec\":{\"title\":X,\"mark\":\"bar\",\"data\":{\"values\":[{\"a\":X,"
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
    /* Boxes beside each other are one row, and the row ends. */
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
    assert_non_null(strstr(shown(&out, "[{\"kind\":\"image\",\"src\":\"http://e/x.png\"}]"),
                           "a picture that is no PNG"));
    /* Deep nesting ends. */
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

#define DATA                                                                                       \
    "\"data\":{\"values\":[{\"a\":\"p\",\"b\":1,\"c\":\"u\",\"t\":\"2026-01-01\"},{\"a\":\"q\","   \
    "\"b\":3,\"c\":\"v\",\"t\":\"2026-02-01\"},{\"a\":\"p\",\"b\":2,\"c\":\"v\",\"t\":\"2026-03-"  \
    "01\"}]}"
#define XY(x, y) "\"encoding\":{\"x\":{" x "},\"y\":{" y "}}"

static void test_charts(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *has; /* in the picture; or why there is none, after a '!' */
    } cases[] = {
        {"\"mark\":\"bar\"," DATA
         "," XY("\"field\":\"a\"", "\"field\":\"b\",\"aggregate\":\"sum\""),
         "<title>a: p, sum of b: 3</title>"},
        {"\"mark\":\"bar\"," DATA "," XY("\"field\":\"a\"", "\"aggregate\":\"count\""),
         "<title>a: p, count of records: 2</title>"},
        {"\"mark\":\"bar\"," DATA
         "," XY("\"field\":\"b\",\"aggregate\":\"mean\"", "\"field\":\"a\""),
         "<title>mean of b: 1.5, a: p</title>"},
        {"\"mark\":\"bar\"," DATA "," XY("\"field\":\"b\",\"bin\":true", "\"aggregate\":\"count\""),
         "<title>b: 1, count of records: 1</title>"},
        {"\"mark\":{\"type\":\"line\",\"point\":true}," DATA
         "," XY("\"field\":\"t\",\"type\":\"temporal\"", "\"field\":\"b\""),
         "<circle"},
        {"\"mark\":\"area\"," DATA
         "," XY("\"field\":\"t\",\"type\":\"temporal\"", "\"field\":\"b\""),
         ">15 Jan</text>"},
        {"\"mark\":\"point\"," DATA "," XY("\"field\":\"b\"", "\"field\":\"b\""), "<circle"},
        {"\"mark\":\"tick\"," DATA "," XY("\"field\":\"b\"", "\"field\":\"a\""), "v14"},
        {"\"mark\":\"rect\"," DATA "," XY("\"field\":\"a\"", "\"field\":\"c\""), "<rect"},
        {"\"mark\":\"line\",\"datasets\":{\"d\":[{\"b\":1},{\"b\":100}]},\"data\":{\"name\":\"d\"}"
         "," XY("\"field\":\"b\"", "\"field\":\"b\",\"scale\":{\"type\":\"log\"}"),
         ">10</text>"},
        {"\"title\":{\"text\":\"T\"},\"layer\":[{\"mark\":\"bar\"},{\"mark\":\"rule\"}]," DATA
         "," XY("\"field\":\"a\"", "\"field\":\"b\""),
         ">T</text>"},
        {"\"mark\":\"bar\"," DATA ",\"encoding\":{\"x\":{\"field\":\"a\"},\"y\":{\"field\":\"b\"},"
         "\"color\":{\"field\":\"c\"}}",
         "style=\"fill:var(--k1)\""},
        {"\"mark\":\"boxplot\"," DATA, "!the mark 'boxplot'"},
        {"\"mark\":\"bar\"," DATA, "!it has neither x nor y"},
        {"\"mark\":\"bar\"," DATA "," XY("\"field\":\"a\"", "\"field\":\"c\""),
         "!its bars have no amounts"},
        {"\"mark\":\"bar\",\"data\":{\"url\":\"http://e\"}," XY("\"field\":\"a\"",
                                                                "\"field\":\"b\""),
         "!its data is not in the specification"},
        {"\"mark\":\"bar\"," DATA
         ",\"encoding\":{\"x\":{\"field\":\"a\"},\"size\":{\"field\":\"b\"}}",
         "!the channel 'size'"},
        {"\"mark\":\"bar\"," DATA
         "," XY("\"field\":\"a\"", "\"field\":\"b\",\"aggregate\":\"stdev\""),
         "!the aggregate 'stdev'"},
        {"\"hconcat\":[]", "!it has 'hconcat'"},
        {"\"mark\":\"bar\",\"data\":{\"values\":[]}," XY("\"field\":\"a\"", "\"field\":\"b\""),
         "!"},
        {"", "!"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_BUF_AUTO json = STK_BUF_INIT(1u << 16);
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
        char why[160];
        stk_buf_printf(&json, "{%s}", cases[i].spec);
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *spec = stk_json_read(scratch, json.data);
        assert_non_null(spec);
        bool drawn = stk_svg_vega(spec, false, &out, why, sizeof why);
        bool right =
            drawn ? strstr(out.data, cases[i].has) != NULL
                  : cases[i].has[0] == '!' && strstr(why, cases[i].has + 1) != NULL && out.len == 0;
        if (!right) {
            fail_msg("%s: %s", json.data, drawn ? out.data : why);
        }
        if (drawn) {
            stk_case_well_formed(out.data);
            assert_null(strstr(out.data, "nan"));
            assert_null(strstr(out.data, "inf"));
        }
    }
}

/* Stacked bars end where their sums do, whatever order the data has. */
static void test_stack(void **state)
{
    (void)state;
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    char why[160];
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *spec = stk_json_read(
        scratch, "{\"mark\":\"bar\",\"data\":{\"values\":[{\"a\":1,\"b\":30,\"c\":2},{"
                 "\"a\":2,\"b\":5,\"c\":1},"
                 "{\"a\":1,\"b\":10,\"c\":1},{\"a\":1,\"b\":-20,\"c\":3}]},"
                 "\"encoding\":{\"x\":{\"field\":\"a\","
                 "\"type\":\"ordinal\"},\"y\":{\"field\":\"b\"},\"color\":{\"field\":"
                 "\"c\",\"type\":\"nominal\"}}}");
    assert_true(stk_svg_vega(spec, true, &out, why, sizeof why));
    assert_non_null(strstr(out.data, "<title>a: 1, b: 30, c: 2</title>"));
    assert_non_null(strstr(out.data, "<title>a: 1, b: -20, c: 3</title>"));
    assert_non_null(strstr(out.data, ">40</text>"));
    assert_non_null(strstr(out.data, ">-20</text>"));
    assert_null(strstr(out.data, ">60</text>"));
}

/* Any specification ends in a picture or a reason: words of real ones put together at random. */
static stk_json random_value(stk_arena *arena, uint32_t *seed, int depth)
{
    static const char *const words[] = {
        "x",     "y",    "color", "field",     "type",  "quantitative", "nominal", "temporal",
        "mark",  "bar",  "line",  "area",      "rect",  "values",       "data",    "encoding",
        "layer", "sort", "-y",    "aggregate", "count", "bin",          "scale",   "domain",
        "log",   "b",    "a",     "stack",     "title", "2026-01-02",   "maxbins", "step"};
    *seed = *seed * 1664525u + 1013904223u;
    uint32_t r = *seed >> 8;
    if (depth > 4 || r % 10 < 3) {
        return stk_json_of_text(words[r / 10 % 32]);
    }
    if (r % 10 < 5) {
        static const double numbers[] = {0, -1, 1e300, 1e-300, 3.5, 1e15, -7, 12345678};
        char digits[32];
        stk_json_format_real(numbers[r / 10 % 8], digits);
        return r % 20 == 3 ? (stk_json){0}
                           : stk_json_of_digits(stk_arena_dup(arena, digits), STK_JSON_REAL);
    }
    stk_json made = r % 10 < 8 ? stk_json_of_map() : stk_json_of_list();
    for (uint32_t i = 0; i < r / 10 % 6; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        stk_json value = random_value(arena, seed, depth + 1);
        if (stk_json_is_list(&made)) {
            assert_non_null(stk_json_append(arena, &made, value));
        } else {
            assert_non_null(stk_json_set(arena, &made, words[(*seed >> 8) % 32], value));
        }
    }
    return made;
}

static void test_any_chart(void **state)
{
    (void)state;
    uint32_t seed = 7, n_drawn = 0;
    static const char *const marks[] = {"bar", "line", "area", "point", "tick", "rect", "rule"};
    for (int i = 0; i < 3000; i++) {
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 22);
        char why[160];
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        stk_json spec = *stk_json_read(
            scratch, "{\"data\":{\"values\":[]},\"encoding\":{\"x\":{\"field\":\"a\"},"
                     "\"y\":{\"field\":\"b\"}}}");
        stk_json data = *stk_json_get(&spec, "data"), encoding = *stk_json_get(&spec, "encoding");
        stk_json rows = stk_json_of_list(), x = *stk_json_get(&encoding, "x");
        for (int k = 0; k < i % 5; k++) {
            stk_json row = stk_json_of_map();
            assert_non_null(stk_json_set(scratch, &row, "a", random_value(scratch, &seed, 4)));
            assert_non_null(stk_json_set(scratch, &row, "b", random_value(scratch, &seed, 4)));
            assert_non_null(stk_json_append(scratch, &rows, row));
        }
        stk_json more = random_value(scratch, &seed, 1);
        assert_true(stk_json_update(scratch, &x, &more));
        assert_non_null(stk_json_set(scratch, &encoding, "x", x));
        assert_non_null(stk_json_set(scratch, &data, "values", rows));
        assert_non_null(stk_json_set(scratch, &spec, "encoding", encoding));
        assert_non_null(stk_json_set(scratch, &spec, "data", data));
        assert_non_null(stk_json_set(scratch, &spec, "mark", stk_json_of_text(marks[i % 7])));
        n_drawn += stk_svg_vega(&spec, i % 2, &out, why, sizeof why);
        if (out.len > 0) {
            stk_case_well_formed(out.data);
        }
    }
    assert_true(n_drawn > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_markdown), cmocka_unit_test(test_escaped),
        cmocka_unit_test(test_kinds),    cmocka_unit_test(test_charts),
        cmocka_unit_test(test_stack),    cmocka_unit_test(test_any_chart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
