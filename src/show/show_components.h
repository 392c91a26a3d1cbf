/* show_components: the components of a card as HTML: what Markdown, Table, Image … of
 * python/stoker/flow/cards wrote as JSON. Nothing in them is trusted: all text is escaped, pictures
 * are data URIs of known kinds, Markdown's raw HTML is shown as text. A component that can't be
 * shown says so in its place. */
#ifndef STK_SHOW_COMPONENTS_H
#define STK_SHOW_COMPONENTS_H

#include "base/buf.h"
#include "base/json.h"

/* A JSON list of components; those that aren't objects are shown as text. */
void stk_html_components(stk_buf *out, const stk_json *components);
/* CommonMark, and tables as GitHub has them: `| a | b |`. */
void stk_html_markdown(stk_buf *out, const char *text);
/* Python with its words, texts and comments told apart. */
void stk_html_python(stk_buf *out, const char *code);

#endif
