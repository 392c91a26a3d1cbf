/* Markdown → HTML by libcmark-gfm: CommonMark with GitHub's tables. */
#include <cmark-gfm-core-extensions.h>
#include <cmark-gfm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "show/show_components.h"
#include "show/show_html_private.h"
#include "show/show_text.h"

enum { MAX_CELLS = 1000000 }; /* in all tables of one text */

/* Turns pictures from elsewhere into links and raw HTML into text. */
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

/* cmark fills short rows with empty cells: without a limit, a small text could take all memory. */
static bool is_table_small(const char *text)
{
    size_t n_lines = 1, n_bars = 0, most = 0;
    for (; *text != '\0'; text++) {
        n_lines += *text == '\n';
        n_bars = *text == '\n' ? 0 : n_bars + (*text == '|');
        most = MAX(most, n_bars);
    }
    return n_lines * most <= MAX_CELLS;
}

void stk_html_markdown(stk_buf *out, const char *text)
{
    STK_BUF_AUTO safe = STK_BUF_INIT(MAX_CARD_BYTES);
    stk_text_safe(&safe, text, "");
    text = stk_text_or(safe.data, "");
    cmark_gfm_core_extensions_ensure_registered();
    cmark_parser *parser = cmark_parser_new(CMARK_OPT_VALIDATE_UTF8);
    if (is_table_small(text)) {
        cmark_parser_attach_syntax_extension(parser, cmark_find_syntax_extension("table"));
    }
    cmark_parser_feed(parser, text, strlen(text));
    cmark_node *root = cmark_parser_finish(parser);
    tame(root);
    char *html = cmark_render_html(root, CMARK_OPT_SAFE, NULL);
    stk_buf_text(out, "<div class=\"md\">");
    stk_buf_text(out, html);
    stk_buf_text(out, "</div>");
    free(html);
    cmark_node_free(root);
    cmark_parser_free(parser);
}
