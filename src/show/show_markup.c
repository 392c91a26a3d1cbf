#include "show/show_markup.h"

#include <stdarg.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_text.h"

void stk_html_open(stk_buf *out, const char *more)
{
    stk_buf_printf(out,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                   "%sstyle-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"/>\n"
                   "<meta name=\"referrer\" content=\"no-referrer\"/>\n"
                   "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                   "<meta name=\"generator\" content=\"stoker " STK_VERSION "\"/>\n<title>",
                   more);
}

void stk_html_user(stk_buf *out, const char *text)
{
    STK_BUF_AUTO safe = STK_BUF_INIT(STK_MARKUP_MAX);
    stk_text_safe(&safe, text, "");
    stk_buf_html(out, stk_text_or(safe.data, ""));
}

void stk_html_put(stk_buf *out, const char *html, ...)
{
    va_list args;
    va_start(args, html);
    for (const char *at; (at = strstr(html, "%s")) != NULL; html = at + 2) {
        stk_buf_add(out, html, (size_t)(at - html));
        stk_html_user(out, stk_text_or(va_arg(args, const char *), ""));
    }
    va_end(args);
    stk_buf_text(out, html);
}

void stk_html_cell(stk_buf *out, const char *class, const char *text)
{
    if (class != NULL) {
        stk_html_put(out, "<td class=\"%s\">%s</td>", class, text);
    } else {
        stk_html_put(out, "<td>%s</td>", text);
    }
}

void stk_html_cell_size(stk_buf *out, int64_t bytes)
{
    char text[32] = "";
    if (bytes >= 0) {
        stk_units_format_memory(bytes, text, sizeof text);
    }
    stk_html_cell(out, "num", text);
}

void stk_html_seconds(stk_buf *out, double s)
{
    char text[32];
    stk_buf_text(out, stk_units_format_duration((int64_t)(s * 1000), text, sizeof text));
}

void stk_html_status(stk_buf *out, const char *status)
{
    stk_ink ink;
    stk_buf_printf(out, "<span class=\"status s-%s\">%s %s</span>", status,
                   stk_text_mark(status, true, &ink), status);
}

void stk_html_panel_open(stk_buf *out, const char *heading)
{
    stk_html_put(out, "<section class=\"panel\"><h2>%s</h2>", heading);
}

void stk_html_panel_close(stk_buf *out)
{
    stk_buf_text(out, "</section>\n");
}

void stk_html_panel(stk_buf *out, const char *heading, const char *before, const stk_buf *body,
                    const char *behind)
{
    if (body->len > 0) {
        stk_html_panel_open(out, heading);
        stk_buf_text(out, before);
        stk_buf_add(out, body->data, body->len);
        stk_buf_text(out, behind);
        stk_html_panel_close(out);
    }
}

void stk_html_tile(stk_buf *out, const char *value, const char *what)
{
    stk_html_put(out, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", value, what);
}

void stk_html_tile_count(stk_buf *out, uint64_t n, const char *what)
{
    char text[32];
    stk_html_tile(out, stk_text_count(n, text, sizeof text), what);
}

void stk_html_tile_seconds(stk_buf *out, double s, const char *what)
{
    char text[32];
    if (s >= 0) {
        stk_html_tile(out, stk_units_format_duration((int64_t)(s * 1000), text, sizeof text), what);
    }
}

void stk_html_tile_bytes(stk_buf *out, int64_t bytes, const char *what)
{
    char text[32];
    if (bytes >= 0) {
        stk_html_tile(out, stk_units_format_memory(bytes, text, sizeof text), what);
    }
}

void stk_html_note(stk_buf *out, const char *step, const char *text)
{
    stk_buf_text(out, "<div class=\"note\">");
    if (step != NULL) {
        stk_html_put(out, "step %s: ", step);
    }
    stk_html_put(out, "%s</div>\n", text);
}

void stk_html_title(stk_buf *out, const char *title, const char *status)
{
    stk_ink ink;
    stk_html_put(out,
                 "<header><div class=\"title\"><h1>%s</h1><span class=\"pill s-%s\">%s "
                 "%s</span></div>\n",
                 title, status, stk_text_mark(status, true, &ink), status);
}

void stk_html_href(stk_buf *out, const char *page, const char *const *pairs)
{
    stk_buf_printf(out, "<a href=\"%s", page);
    for (const char *before = "?"; *pairs != NULL; pairs += 2, before = "&amp;") {
        const char *value = stk_text_or(pairs[1], "");
        stk_buf_printf(out, "%s%s=", before, pairs[0]);
        stk_buf_percent(out, value, strlen(value), "/");
    }
    stk_buf_text(out, "\">");
}
