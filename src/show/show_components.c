#include "show/show_components.h"

#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/show_html_private.h"

enum { MAX_DEPTH = 16, MAX_TABLE_ROWS = 2000, MAX_EVENTS = 1000 };

static void component(stk_buf *out, const stk_json *one, int depth);

static void tag(stk_buf *out, const char *open, const char *text, const char *close)
{
    if (text != NULL && *text != '\0') {
        stk_buf_text(out, open);
        stk_html_user(out, text);
        stk_buf_text(out, close);
    }
}

/* A text unchanged, a number in its shortest form, anything else as compact JSON. */
static void scalar(stk_buf *out, const stk_json *value)
{
    if (stk_json_is_kind(value, STK_JSON_TEXT)) {
        stk_html_user(out, stk_text_or(stk_json_text(value), "?")); /* NULL: it has a zero byte */
    } else if (stk_json_is_kind(value, STK_JSON_REAL)) {
        stk_buf_printf(out, "%.6g", stk_json_number(value, 0));
    } else if (value != NULL && !stk_json_is_kind(value, STK_JSON_NULL)) {
        STK_BUF_AUTO text = STK_BUF_INIT(MAX_CARD_BYTES);
        stk_json_dump(value, &text);
        stk_html_user(out, stk_text_or(text.data, ""));
    }
}

static void member(stk_buf *out, const char *open, const stk_json *one, const char *key,
                   const char *close)
{
    const stk_json *value = stk_json_get(one, key);
    if (value != NULL && !stk_json_is_kind(value, STK_JSON_NULL)) {
        stk_buf_text(out, open);
        scalar(out, value);
        stk_buf_text(out, close);
    }
}

/* --- one kind after the other --- */

static void markdown(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    const char *text = stk_json_get_text(one, "text");
    stk_html_markdown(out, stk_text_or(text, ""));
}

void stk_html_frame(stk_buf *out, const char *html)
{
    stk_html_put(out, "<iframe sandbox=\"\" title=\"a page of the step\" srcdoc=\"%s\"></iframe>",
                 html);
}

static void html(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    stk_html_frame(out, stk_text_or(stk_json_get_text(one, "text"), ""));
}

static void cell(stk_buf *out, const stk_json *value, int depth)
{
    stk_buf_text(out, stk_json_is_number(value) ? "<td class=\"num\">" : "<td>");
    if (stk_json_is_map(value) && stk_json_get_text(value, "kind") != NULL) {
        component(out, value, depth + 1);
    } else {
        scalar(out, value);
    }
    stk_buf_text(out, "</td>");
}

/* The types of a frame's columns, below their names. */
static void types_row(stk_buf *out, const stk_json *types)
{
    size_t n = stk_json_n_items(types);
    for (size_t i = 0; i < n; i++) {
        stk_buf_text(out, i == 0 ? "<tr class=\"types\"><td>" : "<td>");
        scalar(out, stk_json_item(types, i));
        stk_buf_text(out, i + 1 == n ? "</td></tr>\n" : "</td>");
    }
}

static void table(stk_buf *out, const stk_json *one, int depth)
{
    const stk_json *headers = stk_json_get(one, "headers"), *rows = stk_json_get(one, "rows");
    size_t n = stk_json_n_items(rows), shown = MIN(n, MAX_TABLE_ROWS);
    stk_buf_text(out, "<div class=\"scroll\"><table class=\"data\">");
    if (stk_json_n_items(headers) > 0) {
        stk_buf_text(out, "<thead><tr>");
        for (size_t i = 0; i < stk_json_n_items(headers); i++) {
            bool is_num = stk_json_is_number(stk_json_item(stk_json_item(rows, 0), i));
            stk_buf_text(out, is_num ? "<th class=\"num\">" : "<th>");
            scalar(out, stk_json_item(headers, i));
            stk_buf_text(out, "</th>");
        }
        stk_buf_text(out, "</tr></thead>");
    }
    stk_buf_text(out, "<tbody>");
    types_row(out, stk_json_get(one, "types"));
    for (size_t i = 0; i < shown; i++) {
        const stk_json *row = stk_json_item(rows, i);
        stk_buf_text(out, "<tr>");
        for (size_t k = 0; k < stk_json_n_items(row); k++) {
            cell(out, stk_json_item(row, k), depth);
        }
        stk_buf_text(out, "</tr>\n");
    }
    stk_buf_text(out, "</tbody></table></div>");
    size_t total = (size_t)stk_json_get_whole(one, "n", (int64_t)n);
    size_t columns = (size_t)stk_json_get_whole(one, "columns", 0);
    if (columns > 0) {
        stk_buf_printf(out, "<p class=\"meta\">%zu row%s × %zu column%s</p>", total,
                       stk_text_plural(total), columns, stk_text_plural(columns));
    } else if (total > shown) {
        stk_buf_printf(out, "<p class=\"meta\">%zu of %zu rows</p>", shown, total);
    }
}

/* True for data:image/KIND;base64,… followed by base64 only. */
static bool is_picture(const char *src)
{
    static const char *const kinds[] = {"data:image/png;base64,",     "data:image/jpeg;base64,",
                                        "data:image/gif;base64,",     "data:image/webp;base64,",
                                        "data:image/svg+xml;base64,", "data:image/bmp;base64,"};
    for (size_t i = 0; src != NULL && i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(src, kinds[i], n) == 0) {
            const char *data = src + n;
            return data[strspn(data, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789+/=")] == '\0';
        }
    }
    return false;
}

static void put_picture(stk_buf *out, const char *alt, const char *src)
{
    stk_html_put(out, "<img alt=\"%s\" src=\"", alt);
    stk_buf_text(out, src);
    stk_buf_text(out, "\"/>");
}

static void image(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    const char *src = stk_json_get_text(one, "src"), *label = stk_json_get_text(one, "label");
    stk_buf_text(out, "<figure>");
    if (is_picture(src)) {
        put_picture(out, label, src);
    } else {
        stk_buf_text(out, "<p class=\"dim\">not shown: the picture is not a PNG, JPEG, GIF, WebP, "
                          "BMP or SVG</p>");
    }
    tag(out, "<figcaption>", label, "</figcaption>");
    stk_buf_text(out, "</figure>");
}

static void artifact(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    stk_buf_text(out, "<div class=\"artifact\">");
    tag(out, "<b>", stk_json_get_text(one, "name"), "</b> ");
    tag(out, "<code class=\"dim\">", stk_json_get_text(one, "type"), "</code>");
    tag(out, "<pre>", stk_json_get_text(one, "text"), "</pre>");
    stk_buf_text(out, "</div>");
}

static void progress(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    double max = stk_json_get_number(one, "max", 100), value = stk_json_get_number(one, "value", 0);
    double part = max > 0 ? value / max * 100 : 0;
    stk_buf_text(out, "<div class=\"progress\"><div class=\"said\"><span>");
    member(out, "", one, "label", "");
    stk_buf_text(out, "</span><span class=\"amount\">");
    member(out, "", one, "value", "");
    member(out, " / ", one, "max", "");
    member(out, " ", one, "unit", "");
    part = part < 0 ? 0 : MIN(part, 100);
    stk_buf_printf(out, "</span></div><div class=\"track\"><i style=\"width:%.1f%%\"></i></div>",
                   part);
    member(out, "<div class=\"meta\">", one, "details", "</div>");
    stk_buf_text(out, "</div>");
}

typedef struct theme {
    const char *name, *class;
} theme;

/* `themes` ends with an entry without a name: its class is the default. */
static const char *theme_class(const stk_json *one, const theme *themes)
{
    while (themes->name != NULL && !stk_json_is(stk_json_get(one, "theme"), themes->name)) {
        themes++;
    }
    return themes->class;
}

static void value_box(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    static const theme themes[] = {{"success", "t-good"},
                                   {"warning", "t-warn"},
                                   {"danger", "t-bad"},
                                   {"bg-gradient-indigo-purple", "t-strong"},
                                   {NULL, ""}};
    stk_buf_printf(out, "<div class=\"value %s\">", theme_class(one, themes));
    member(out, "<span class=\"what\">", one, "title", "</span>");
    member(out, "<b>", one, "value", "</b>");
    member(out, "<span>", one, "subtitle", "</span>");
    member(out, "<em>", one, "change", "</em>");
    stk_buf_text(out, "</div>");
}

static void code(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    const char *text = stk_json_get_text(one, "text");
    stk_html_python(out, stk_text_or(text, ""));
}

static void failure(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    stk_buf_text(out, "<div class=\"wrong\">");
    tag(out, "<b>", stk_json_get_text(one, "title"), "</b>");
    tag(out, "<pre>", stk_json_get_text(one, "text"), "</pre>");
    stk_buf_text(out, "</div>");
}

/* JSON and YAML as the worker formatted them, in a box that folds if the card says so. */
static void viewer(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    bool folds = !stk_json_is_false(stk_json_get(one, "collapsible"));
    const char *word = stk_json_is(stk_json_get(one, "kind"), "json") ? "JSON" : "YAML";
    const char *end = folds ? "</details>" : "</div>";
    stk_buf_text(out, folds ? "<details class=\"viewer\" open=\"open\"><summary>"
                            : "<div class=\"viewer\"><div class=\"meta\">");
    stk_html_user(out, stk_text_or(stk_json_get_text(one, "title"), word));
    stk_buf_text(out, folds ? "</summary>" : "</div>");
    tag(out, "<pre class=\"code\">", stk_text_or(stk_json_get_text(one, "text"), "null"), "</pre>");
    stk_buf_text(out, end);
}

static void event(stk_buf *out, const stk_json *one, int depth)
{
    static const theme themes[] = {
        {"success", "t-good"}, {"warning", "t-warn"},  {"error", "t-bad"},       {"info", "t-info"},
        {"primary", "t-info"}, {"tool_call", "t-mem"}, {"ai_response", "t-gpu"}, {NULL, ""}};
    const stk_json *priority = stk_json_get(one, "priority");
    stk_buf_printf(out, "<li class=\"%s", theme_class(one, themes));
    if (stk_json_is(priority, "high") || stk_json_is(priority, "critical")) {
        stk_buf_text(out, " urgent");
    }
    stk_buf_text(out, "\">");
    tag(out, "<time>", stk_json_get_text(one, "at"), "</time>");
    stk_buf_text(out, "<div class=\"facts\">");
    for (uint32_t k = 0; k < stk_json_n_members(stk_json_get(one, "data")); k++) {
        const char *key = stk_json_key(stk_json_get(one, "data"), k)->text;
        const stk_json *value = stk_json_value(stk_json_get(one, "data"), k);
        tag(out, "<span><span class=\"dim\">", key, "</span> ");
        scalar(out, value);
        stk_buf_text(out, "</span>");
    }
    stk_buf_text(out, "</div>");
    for (uint32_t k = 0; k < stk_json_n_members(stk_json_get(one, "payloads")); k++) {
        const char *key = stk_json_key(stk_json_get(one, "payloads"), k)->text;
        const stk_json *value = stk_json_value(stk_json_get(one, "payloads"), k);
        stk_html_put(out, "<details><summary>%s</summary>", key);
        component(out, value, depth + 1);
        stk_buf_text(out, "</details>");
    }
    stk_buf_text(out, "</li>\n");
}

static void events(stk_buf *out, const stk_json *one, int depth)
{
    const stk_json *list = stk_json_get(one, "events");
    size_t n = stk_json_n_items(list), shown = MIN(n, MAX_EVENTS);
    int64_t total = stk_json_get_whole(one, "n", (int64_t)n);
    stk_buf_text(out, "<div class=\"events\">");
    tag(out, "<h3>", stk_json_get_text(one, "title"), "</h3>");
    stk_buf_printf(out, "<div class=\"meta\">%lld event%s%s</div><ol>", (long long)total,
                   stk_text_plural((uint64_t)total),
                   stk_text_when(stk_json_is_true(stk_json_get(one, "finished")), ", finished"));
    for (size_t i = 0; i < shown; i++) {
        event(out, stk_json_item(list, i), depth);
    }
    stk_buf_text(out, "</ol></div>");
}

/* --- a chart: the picture that the worker made of it, or what it was to be drawn from --- */

static const stk_json *chart_records(const stk_json *spec)
{
    const stk_json *data = stk_json_get(spec, "data");
    const char *name = stk_json_get_text(data, "name");
    if (name != NULL) {
        return stk_json_get(stk_json_get(spec, "datasets"), name);
    }
    return stk_json_get(data, "values");
}

/* The records as a table whose columns are the keys of the first record. */
static void records(stk_buf *out, const stk_json *values)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *first = stk_json_item(values, 0);
    uint32_t n = stk_json_n_items(values), n_columns = stk_json_n_members(first);
    stk_json headers = stk_json_of_list(), rows = stk_json_of_list(), made = stk_json_of_map();
    for (uint32_t k = 0; k < n_columns; k++) {
        (void)stk_json_append(scratch, &headers, *stk_json_key(first, k));
    }
    for (uint32_t i = 0; i < n; i++) {
        stk_json row = stk_json_of_list(), missing = {.kind = STK_JSON_NULL};
        for (uint32_t k = 0; k < n_columns; k++) {
            const char *key = stk_json_key(first, k)->text;
            const stk_json *value = stk_json_get(stk_json_item(values, i), key);
            (void)stk_json_append(scratch, &row, *(value == NULL ? &missing : value));
        }
        (void)stk_json_append(scratch, &rows, row);
    }
    (void)stk_json_set(scratch, &made, "headers", headers);
    (void)stk_json_set(scratch, &made, "rows", rows);
    table(out, &made, MAX_DEPTH);
}

static void chart(stk_buf *out, const stk_json *one, int depth)
{
    (void)depth;
    const stk_json *spec = stk_json_get(one, "spec"), *values = chart_records(spec);
    if (is_picture(stk_json_get_text(one, "src"))) {
        stk_buf_text(out, "<figure>");
        put_picture(out, stk_json_get_text(spec, "title"), stk_json_get_text(one, "src"));
        stk_buf_text(out, "</figure>");
        return;
    }
    stk_html_put(out,
                 "<p class=\"meta\">This chart is not drawn (%s); here are its data and its "
                 "specification.</p>",
                 stk_text_or(stk_json_get_text(one, "why"), "it has no picture"));
    if (stk_json_is_map(stk_json_item(values, 0))) {
        records(out, values);
    }
    if (stk_json_is_map(spec) || stk_json_is_list(spec)) {
        STK_BUF_AUTO text = STK_BUF_INIT(MAX_CARD_BYTES);
        stk_json_dump_pretty(spec, &text);
        stk_buf_text(out, "<details><summary>specification</summary>");
        tag(out, "<pre class=\"code\">", text.data, "</pre>");
        stk_buf_text(out, "</details>");
    }
}

/* --- all --- */

static const struct {
    const char *kind;
    void (*show)(stk_buf *out, const stk_json *one, int depth);
} kinds[] = {{"markdown", markdown}, {"table", table}, {"image", image},
             {"artifact", artifact}, {"html", html},   {"progress", progress},
             {"value", value_box},   {"code", code},   {"error", failure},
             {"json", viewer},       {"yaml", viewer}, {"vega", chart},
             {"events", events}};

static void component(stk_buf *out, const stk_json *one, int depth)
{
    const stk_json *kind = stk_json_get(one, "kind");
    for (size_t i = 0; depth < MAX_DEPTH && i < sizeof kinds / sizeof *kinds; i++) {
        if (stk_json_is(kind, kinds[i].kind)) {
            kinds[i].show(out, one, depth);
            return;
        }
    }
    stk_buf_text(out, "<pre>");
    scalar(out, one);
    stk_buf_text(out, "</pre>");
}

void stk_html_component(stk_buf *out, const stk_json *one)
{
    component(out, one, 0);
}

void stk_html_components(stk_buf *out, const stk_json *components)
{
    bool in_row = false; /* value boxes stand side by side */
    for (size_t i = 0; i < stk_json_n_items(components); i++) {
        const stk_json *one = stk_json_item(components, i);
        bool is_value = stk_json_is(stk_json_get(one, "kind"), "value");
        if (is_value != in_row) {
            stk_buf_text(out, is_value ? "<div class=\"values\">" : "</div>\n");
            in_row = is_value;
        }
        if (is_value) {
            component(out, one, 0);
        } else {
            stk_buf_text(out, "<div class=\"component\">");
            component(out, one, 0);
            stk_buf_text(out, "</div>\n");
        }
    }
    if (in_row) {
        stk_buf_text(out, "</div>\n");
    }
}
