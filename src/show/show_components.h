/* show_components: the components of a card as HTML. The classes Markdown, Table, Image … of
 * python/stoker/flow/cards write them as JSON. Nothing in them is trusted: all text is escaped,
 * pictures must be data URIs of known kinds, and raw HTML in Markdown is shown as text. A component
 * that can't be shown says so in its place. */
#ifndef STK_SHOW_COMPONENTS_H
#define STK_SHOW_COMPONENTS_H

#include "base/buf.h"
#include "base/json.h"

/* `components` is a JSON list. Items that aren't objects are shown as text. */
void stk_html_components(stk_buf *out, const stk_json *components);
void stk_html_component(stk_buf *out, const stk_json *one);
/* A page that a step wrote, in a frame that runs no script; the policy of the page around it holds
 * for it, too. */
void stk_html_frame(stk_buf *out, const char *html);
/* CommonMark with GitHub's tables: `| a | b |`. */
void stk_html_markdown(stk_buf *out, const char *text);
/* Python with its keywords, strings, numbers and comments coloured. */
void stk_html_python(stk_buf *out, const char *code);

#endif
