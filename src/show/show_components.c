#include "show/show_components.h"

#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/show_html_private.h"

enum { MAX_DEPTH = 16, MAX_TABLE_ROWS = 2000, MAX_EVENTS = 1000 };

static void component(stk_buf *out, const json_t *one, int depth);

static void tag(stk_buf *out, const char *open, const char *text, const char *close)
{
    if (text != NULL && *text != '\0') {
        stk_buf_text(out, open);
        stk_html_user(out, text);
        stk_buf_text(out, close);
    }
}

/* A text as it is, a number in its shortest form, else compact JSON. */
static void scalar(stk_buf *out, const json_t *value)
{
    if (json_is_string(value)) {
        stk_html_user(out, json_string_value(value));
    } else if (json_is_real(value)) {
        stk_buf_printf(out, "%.6g", json_real_value(value));
    } else if (value != NULL && !json_is_null(value)) {
        STK_BUF_AUTO text = STK_BUF_INIT(MAX_CARD_BYTES);
        stk_doc_put(&text, value);
        stk_html_user(out, stk_text_or(text.data, ""));
    }
}

static void member(stk_buf *out, const char *open, const json_t *one, const char *key,
                   const char *close)
{
    const json_t *value = json_object_get(one, key);
    if (value != NULL && !json_is_null(value)) {
        stk_buf_text(out, open);
        scalar(out, value);
        stk_buf_text(out, close);
    }
}

/* --- one kind after the other --- */

static void markdown(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    const char *text = stk_doc_text(one, "text");
    stk_html_markdown(out, stk_text_or(text, ""));
}

static void cell(stk_buf *out, const json_t *value, int depth)
{
    stk_buf_text(out, json_is_number(value) ? "<td class=\"num\">" : "<td>");
    if (json_is_object(value) && stk_doc_text(value, "kind") != NULL) {
        component(out, value, depth + 1);
    } else {
        scalar(out, value);
    }
    stk_buf_text(out, "</td>");
}

static void table(stk_buf *out, const json_t *one, int depth)
{
    const json_t *headers = json_object_get(one, "headers"), *rows = json_object_get(one, "rows");
    size_t n = json_array_size(rows), shown = MIN(n, MAX_TABLE_ROWS);
    stk_buf_text(out, "<div class=\"scroll\"><table class=\"data\">");
    if (json_array_size(headers) > 0) {
        stk_buf_text(out, "<thead><tr>");
        for (size_t i = 0; i < json_array_size(headers); i++) {
            bool is_num = json_is_number(json_array_get(json_array_get(rows, 0), i));
            stk_buf_text(out, is_num ? "<th class=\"num\">" : "<th>");
            scalar(out, json_array_get(headers, i));
            stk_buf_text(out, "</th>");
        }
        stk_buf_text(out, "</tr></thead>");
    }
    stk_buf_text(out, "<tbody>");
    for (size_t i = 0; i < shown; i++) {
        const json_t *row = json_array_get(rows, i);
        stk_buf_text(out, "<tr>");
        for (size_t k = 0; k < json_array_size(row); k++) {
            cell(out, json_array_get(row, k), depth);
        }
        stk_buf_text(out, "</tr>\n");
    }
    stk_buf_text(out, "</tbody></table></div>");
    size_t total = (size_t)stk_doc_integer(one, "n", (int64_t)n);
    if (total > shown) {
        stk_buf_printf(out, "<p class=\"meta\">%zu of %zu rows</p>", shown, total);
    }
}

/* data:image/KIND;base64,… with nothing else in it. */
static bool is_picture(const char *src)
{
    static const char *const kinds[] = {"png", "jpeg", "gif", "webp", "svg+xml", "bmp"};
    const char *kind = src != NULL && strncmp(src, "data:image/", 11) == 0 ? src + 11 : "";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(kind, kinds[i], n) == 0 && strncmp(kind + n, ";base64,", 8) == 0) {
            const char *data = kind + n + 8;
            return data[strspn(data, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789+/=")] == '\0';
        }
    }
    return false;
}

static void image(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    const char *src = stk_doc_text(one, "src"), *label = stk_doc_text(one, "label");
    stk_buf_text(out, "<figure>");
    if (is_picture(src)) {
        stk_buf_text(out, "<img alt=\"");
        stk_html_user(out, stk_text_or(label, ""));
        stk_buf_text(out, "\" src=\"");
        stk_buf_text(out, src);
        stk_buf_text(out, "\"/>");
    } else {
        stk_buf_text(out, "<p class=\"dim\">a picture that is no PNG, JPEG, GIF, WebP or SVG</p>");
    }
    tag(out, "<figcaption>", label, "</figcaption>");
    stk_buf_text(out, "</figure>");
}

static void artifact(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    stk_buf_text(out, "<div class=\"artifact\">");
    tag(out, "<b>", stk_doc_text(one, "name"), "</b> ");
    tag(out, "<code class=\"dim\">", stk_doc_text(one, "type"), "</code>");
    tag(out, "<pre>", stk_doc_text(one, "text"), "</pre>");
    stk_buf_text(out, "</div>");
}

static void progress(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    double max = stk_doc_number(one, "max", 100), value = stk_doc_number(one, "value", 0);
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

static void value_box(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    static const char *const themes[][2] = {{"success", "t-good"},
                                            {"warning", "t-warn"},
                                            {"danger", "t-bad"},
                                            {"bg-gradient-indigo-purple", "t-strong"}};
    const char *theme = stk_doc_text(one, "theme"), *class = "";
    for (size_t i = 0; theme != NULL && i < sizeof themes / sizeof *themes; i++) {
        if (strcmp(theme, themes[i][0]) == 0) {
            class = themes[i][1];
        }
    }
    stk_buf_printf(out, "<div class=\"value %s\">", class);
    member(out, "<span class=\"what\">", one, "title", "</span>");
    member(out, "<b>", one, "value", "</b>");
    member(out, "<span>", one, "subtitle", "</span>");
    member(out, "<em>", one, "change", "</em>");
    stk_buf_text(out, "</div>");
}

static void code(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    const char *text = stk_doc_text(one, "text");
    stk_html_python(out, stk_text_or(text, ""));
}

static void failure(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    stk_buf_text(out, "<div class=\"wrong\">");
    tag(out, "<b>", stk_doc_text(one, "title"), "</b>");
    tag(out, "<pre>", stk_doc_text(one, "text"), "</pre>");
    stk_buf_text(out, "</div>");
}

/* JSON and YAML as the worker wrote it, folded where it says so. */
static void viewer(stk_buf *out, const json_t *one, int depth)
{
    (void)depth;
    const char *title = stk_doc_text(one, "title"), *kind = stk_doc_text(one, "kind");
    const char *text = stk_doc_text(one, "text");
    bool folds = !json_is_false(json_object_get(one, "collapsible"));
    stk_buf_text(out, folds ? "<details class=\"viewer\" open=\"open\"><summary>"
                            : "<div class=\"viewer\"><div class=\"meta\">");
    stk_html_user(out, stk_text_or(title, strcmp(kind, "json") == 0 ? "JSON" : "YAML"));
    stk_buf_text(out, folds ? "</summary>" : "</div>");
    tag(out, "<pre class=\"code\">", stk_text_or(text, "null"), "</pre>");
    stk_buf_text(out, folds ? "</details>" : "</div>");
}

static const char *theme_of(const json_t *event)
{
    static const char *const themes[][2] = {
        {"success", "t-good"}, {"warning", "t-warn"},  {"error", "t-bad"},      {"info", "t-info"},
        {"primary", "t-info"}, {"tool_call", "t-mem"}, {"ai_response", "t-gpu"}};
    const char *theme = stk_doc_text(event, "theme");
    for (size_t i = 0; theme != NULL && i < sizeof themes / sizeof *themes; i++) {
        if (strcmp(theme, themes[i][0]) == 0) {
            return themes[i][1];
        }
    }
    return "";
}

static void event(stk_buf *out, const json_t *one, int depth)
{
    const char *key, *priority = stk_doc_text(one, "priority");
    json_t *value;
    bool urgent =
        priority != NULL && (strcmp(priority, "high") == 0 || strcmp(priority, "critical") == 0);
    stk_buf_printf(out, "<li class=\"%s%s\">", theme_of(one), urgent ? " urgent" : "");
    tag(out, "<time>", stk_doc_text(one, "at"), "</time>");
    stk_buf_text(out, "<div class=\"facts\">");
    json_object_foreach(json_object_get(one, "data"), key, value)
    {
        tag(out, "<span><span class=\"dim\">", key, "</span> ");
        scalar(out, value);
        stk_buf_text(out, "</span>");
    }
    stk_buf_text(out, "</div>");
    json_object_foreach(json_object_get(one, "payloads"), key, value)
    {
        stk_buf_text(out, "<details><summary>");
        stk_html_user(out, key);
        stk_buf_text(out, "</summary>");
        component(out, value, depth + 1);
        stk_buf_text(out, "</details>");
    }
    stk_buf_text(out, "</li>\n");
}

static void events(stk_buf *out, const json_t *one, int depth)
{
    const json_t *list = json_object_get(one, "events");
    size_t n = json_array_size(list), shown = MIN(n, MAX_EVENTS);
    int64_t total = stk_doc_integer(one, "n", (int64_t)n);
    stk_buf_text(out, "<div class=\"events\">");
    tag(out, "<h3>", stk_doc_text(one, "title"), "</h3>");
    stk_buf_printf(out, "<div class=\"meta\">%lld event%s%s</div><ol>", (long long)total,
                   stk_text_plural((uint64_t)total),
                   json_is_true(json_object_get(one, "finished")) ? ", finished" : "");
    for (size_t i = 0; i < shown; i++) {
        event(out, json_array_get(list, i), depth);
    }
    stk_buf_text(out, "</ol></div>");
}

/* --- a chart, or what it was to be drawn from --- */

static const json_t *values_of(const json_t *spec)
{
    const json_t *data = json_object_get(spec, "data");
    const char *name = stk_doc_text(data, "name");
    return name != NULL ? json_object_get(json_object_get(spec, "datasets"), name)
                        : json_object_get(data, "values");
}

/* The records as a table with the first one's keys. */
static void records(stk_buf *out, const json_t *values)
{
    const json_t *first = json_array_get(values, 0);
    STK_DOC_AUTO headers = json_array();
    STK_DOC_AUTO rows = json_array();
    STK_DOC_AUTO made = json_object();
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)first, key, value)
    {
        json_array_append_new(headers, json_string(key));
    }
    for (size_t i = 0; i < json_array_size(values) && i < MAX_TABLE_ROWS; i++) {
        json_t *row = json_array();
        for (size_t k = 0; k < json_array_size(headers); k++) {
            value = json_object_get(json_array_get(values, i),
                                    json_string_value(json_array_get(headers, k)));
            json_array_append_new(row, value != NULL ? json_incref(value) : json_null());
        }
        json_array_append_new(rows, row);
    }
    json_object_set(made, "headers", headers);
    json_object_set(made, "rows", rows);
    json_object_set_new(made, "n", json_integer((json_int_t)json_array_size(values)));
    table(out, made, MAX_DEPTH);
}

static void vega(stk_buf *out, const json_t *one, int depth)
{
    const json_t *spec = json_object_get(one, "spec"), *values = values_of(spec);
    char why[160];
    STK_BUF_AUTO svg = STK_BUF_INIT(MAX_CARD_BYTES);
    if (stk_svg_vega(spec, depth > 0, &svg, why, sizeof why)) {
        stk_buf_text(out, "<div class=\"scroll\">");
        stk_buf_add(out, svg.data, svg.len);
        stk_buf_text(out, "</div>");
        return;
    }
    stk_buf_text(out, "<div class=\"undrawn\"><p class=\"meta\">This chart is not drawn (");
    stk_html_user(out, why);
    stk_buf_text(out, "); here are its data and its specification.</p>");
    if (json_is_object(json_array_get(values, 0))) {
        records(out, values);
    }
    char *text = json_dumps(spec, JSON_INDENT(2));
    stk_buf_text(out, "<details><summary>specification</summary>");
    tag(out, "<pre class=\"code\">", text, "</pre>");
    stk_buf_text(out, "</details></div>");
    free(text);
}

/* --- all --- */

static const struct {
    const char *kind;
    void (*show)(stk_buf *out, const json_t *one, int depth);
} kinds[] = {{"markdown", markdown}, {"table", table},     {"image", image}, {"artifact", artifact},
             {"progress", progress}, {"value", value_box}, {"code", code},   {"error", failure},
             {"json", viewer},       {"yaml", viewer},     {"vega", vega},   {"events", events}};

static void component(stk_buf *out, const json_t *one, int depth)
{
    const char *kind = stk_doc_text(one, "kind");
    for (size_t i = 0; kind != NULL && depth < MAX_DEPTH && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i].kind) == 0) {
            kinds[i].show(out, one, depth);
            return;
        }
    }
    stk_buf_text(out, "<pre>");
    scalar(out, one);
    stk_buf_text(out, "</pre>");
}

void stk_html_components(stk_buf *out, const json_t *components)
{
    bool in_row = false; /* boxes with values stand side by side */
    for (size_t i = 0; i < json_array_size(components); i++) {
        const json_t *one = json_array_get(components, i);
        const char *kind = stk_doc_text(one, "kind");
        bool is_value = kind != NULL && strcmp(kind, "value") == 0;
        if (is_value != in_row) {
            stk_buf_text(out, is_value ? "<div class=\"values\">" : "</div>\n");
            in_row = is_value;
        }
        stk_buf_text(out, is_value ? "" : "<div class=\"component\">");
        component(out, one, 0);
        stk_buf_text(out, is_value ? "" : "</div>\n");
    }
    stk_buf_text(out, in_row ? "</div>\n" : "");
}
