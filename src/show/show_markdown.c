/* Markdown → HTML: CommonMark by libcmark, and the simple tables that many expect of it. */
#include <cmark.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "show/show_components.h"
#include "show/show_html_private.h"
#include "show/show_text.h"

enum { MAX_COLUMNS = 64 };

/* What would come from elsewhere becomes a link, raw HTML becomes text. */
static void tame(cmark_node *root)
{
    cmark_iter *iter = cmark_iter_new(root);
    cmark_event_type event;
    while ((event = cmark_iter_next(iter)) != CMARK_EVENT_DONE) {
        cmark_node *node = cmark_iter_get_node(iter), *made = NULL;
        cmark_node_type type = cmark_node_get_type(node);
        const char *text = cmark_node_get_literal(node);
        if (type == CMARK_NODE_HTML_BLOCK) {
            made = cmark_node_new(CMARK_NODE_CODE_BLOCK);
        } else if (type == CMARK_NODE_HTML_INLINE) {
            made = cmark_node_new(CMARK_NODE_TEXT);
        } else if (type == CMARK_NODE_IMAGE && event == CMARK_EVENT_EXIT &&
                   strncmp(cmark_node_get_url(node), "data:image/", 11) != 0) {
            made = cmark_node_new(CMARK_NODE_LINK);
            cmark_node_set_url(made, cmark_node_get_url(node));
            if (cmark_node_first_child(node) == NULL) {
                cmark_node *name = cmark_node_new(CMARK_NODE_TEXT);
                cmark_node_set_literal(name, cmark_node_get_url(node));
                cmark_node_append_child(node, name);
            }
            for (cmark_node *child; (child = cmark_node_first_child(node)) != NULL;) {
                cmark_node_append_child(made, child);
            }
        }
        if (made != NULL) {
            if (type != CMARK_NODE_IMAGE) {
                cmark_node_set_literal(made, text);
            }
            cmark_node_replace(node, made);
            cmark_node_free(node);
        }
    }
    cmark_iter_free(iter);
}

/* `inside`: a cell, whose text has a dot before it (so that nothing in it begins a block): without
 * that and the paragraph around it. */
static void common(stk_buf *out, const char *text, size_t len, bool inside)
{
    cmark_node *root = cmark_parse_document(text, len, CMARK_OPT_VALIDATE_UTF8);
    if (root == NULL) {
        return;
    }
    tame(root);
    char *html = cmark_render_html(root, CMARK_OPT_SAFE);
    size_t n = html != NULL ? strlen(html) : 0;
    if (inside && n > 9 && strncmp(html, "<p>.", 4) == 0 && strcmp(html + n - 5, "</p>\n") == 0) {
        stk_buf_add(out, html + 4, n - 9);
    } else if (html != NULL) {
        stk_buf_add(out, html, n);
    }
    free(html);
    cmark_node_free(root);
}

/* --- tables --- */

typedef struct line {
    const char *text;
    size_t len; /* without its end */
    const char *next;
} line;

static line line_at(const char *text)
{
    size_t len = strcspn(text, "\n");
    return (line){text, len, text + len + (text[len] != '\0')};
}

typedef struct cells {
    const char *text[MAX_COLUMNS];
    size_t len[MAX_COLUMNS];
    uint32_t n;
} cells;

/* The parts between bars that no backslash stands before; 0 cells: no bar at all. */
static void split(line l, cells *ret)
{
    const char *s = l.text, *end = l.text + l.len;
    ret->n = 0;
    if (memchr(s, '|', l.len) == NULL) {
        return;
    }
    while (s < end && *s == ' ') {
        s++;
    }
    s += s < end && *s == '|';
    while (end > s && (end[-1] == ' ' || end[-1] == '\r')) {
        end--;
    }
    end -= end > s && end[-1] == '|' && (end - 1 == s || end[-2] != '\\');
    while (s <= end && ret->n < MAX_COLUMNS) {
        const char *at = s;
        while (at < end && !(*at == '|' && (at == s || at[-1] != '\\'))) {
            at++;
        }
        const char *from = s, *to = at;
        while (from < to && *from == ' ') {
            from++;
        }
        while (to > from && to[-1] == ' ') {
            to--;
        }
        ret->text[ret->n] = from;
        ret->len[ret->n++] = (size_t)(to - from);
        s = at + 1;
    }
}

/* A row of dashes, with colons at the side that the column leans to: 'l' 'r' 'c' for each. */
static bool is_rule(const cells *row, char *ret_sides)
{
    for (uint32_t i = 0; i < row->n; i++) {
        const char *s = row->text[i];
        size_t n = row->len[i], left = n > 0 && s[0] == ':', right = n > 1 && s[n - 1] == ':';
        if (n <= left + right || strspn(s + left, "-") < n - left - right) {
            return false;
        }
        ret_sides[i] = "llrc"[2 * right + left];
    }
    return row->n > 0;
}

static void table_row(stk_buf *out, const cells *row, uint32_t n, const char *sides,
                      const char *tag)
{
    stk_buf_text(out, "<tr>");
    for (uint32_t i = 0; i < n; i++) {
        static const char *const classes[128] = {
            ['r'] = " class=\"num\"", ['c'] = " class=\"mid\""};
        const char *class = stk_text_or(classes[(unsigned char)sides[i] & 127], "");
        stk_buf_printf(out, "<%s%s>", tag, class);
        STK_BUF_AUTO text = STK_BUF_INIT(MAX_CARD_BYTES); /* a bar's backslash is the table's */
        stk_buf_char(&text, '.');
        for (size_t k = 0; i < row->n && k < row->len[i]; k++) {
            bool is_bar = row->text[i][k] == '\\' && row->text[i][k + 1] == '|';
            stk_buf_add(&text, &row->text[i][k += is_bar], 1);
        }
        if (text.len > 1) {
            common(out, text.data, text.len, true);
        }
        stk_buf_printf(out, "</%s>", tag);
    }
    stk_buf_text(out, "</tr>\n");
}

/* A table that begins at `text`: shown, and where it ends; NULL: none begins there. */
static const char *table_at(stk_buf *out, const char *text)
{
    cells head, row;
    char sides[MAX_COLUMNS];
    line l = line_at(text);
    split(l, &head);
    if (head.n == 0 || *l.next == '\0') {
        return NULL;
    }
    l = line_at(l.next);
    split(l, &row);
    if (row.n != head.n || !is_rule(&row, sides)) {
        return NULL;
    }
    stk_buf_text(out, "<div class=\"scroll\"><table class=\"data\"><thead>");
    table_row(out, &head, head.n, sides, "th");
    stk_buf_text(out, "</thead><tbody>");
    for (text = l.next; *text != '\0'; text = l.next) {
        l = line_at(text);
        split(l, &row);
        if (row.n == 0) {
            break;
        }
        table_row(out, &row, head.n, sides, "td");
    }
    stk_buf_text(out, "</tbody></table></div>\n");
    return text;
}

void stk_html_markdown(stk_buf *out, const char *text)
{
    STK_BUF_AUTO safe = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_text_safe(&safe, text, "");
    const char *from = stk_text_or(safe.data, ""), *at = from;
    bool fenced = false;
    stk_buf_text(out, "<div class=\"md\">");
    while (*at != '\0') {
        line l = line_at(at);
        size_t indent = strspn(at, " ");
        bool fence = indent < 4 &&
                     (strncmp(at + indent, "```", 3) == 0 || strncmp(at + indent, "~~~", 3) == 0);
        fenced ^= fence;
        STK_BUF_AUTO table = STK_BUF_INIT(MAX_CARD_BYTES);
        const char *after = fenced || fence || indent > 3 ? NULL : table_at(&table, at);
        if (after != NULL) {
            common(out, from, (size_t)(at - from), false);
            stk_buf_add(out, table.data, table.len);
            from = at = after;
        } else {
            at = l.next;
        }
    }
    common(out, from, strlen(from), false);
    stk_buf_text(out, "</div>");
}
