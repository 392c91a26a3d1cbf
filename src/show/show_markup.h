/* show_markup: pieces of HTML that cards and the pages of `stoker ui` are made of. The classes of
 * show_css.c give them their looks. */
#ifndef STK_SHOW_MARKUP_H
#define STK_SHOW_MARKUP_H

#include "base/buf.h"
#include "base/err.h"

#define STK_MARKUP_MAX ((size_t)256 << 20) /* bytes of a page */

/* Adds text, escaped and with control characters made visible. Every text that isn't ours must go
 * through this function or stk_html_put. */
void stk_html_user(stk_buf *out, const char *text);
/* Adds our own HTML; the text for each %s is escaped as above. */
void stk_html_put(stk_buf *out, const char *html, ...) __attribute__((format(printf, 2, 3)));
void stk_html_cell(stk_buf *out, const char *class, const char *text); /* class NULL: none */
void stk_html_cell_size(stk_buf *out, int64_t bytes);                  /* < 0: empty */
void stk_html_seconds(stk_buf *out, double s);
void stk_html_status(stk_buf *out, const char *status);
/* Begins the page, up to the text of its title. `more`: further sources that the
 * Content-Security-Policy allows. */
void stk_html_open(stk_buf *out, const char *more);
/* `step`: the step that the note is about, or NULL: the run. */
void stk_html_note(stk_buf *out, const char *step, const char *text);
void stk_html_panel_open(stk_buf *out, const char *heading);
void stk_html_panel_close(stk_buf *out);
/* A panel with `before`, `body` and `behind`; nothing if `body` is empty. */
void stk_html_panel(stk_buf *out, const char *heading, const char *before, const stk_buf *body,
                    const char *behind);
void stk_html_tile_count(stk_buf *out, uint64_t n, const char *what);
void stk_html_tile_seconds(stk_buf *out, double s, const char *what);    /* < 0: none */
void stk_html_tile_bytes(stk_buf *out, int64_t bytes, const char *what); /* < 0: none */
void stk_html_tile(stk_buf *out, const char *value, const char *what);
/* Opens a link to a page of `stoker ui`; `pairs`: names and values of its query, then NULL. */
void stk_html_href(stk_buf *out, const char *page, const char *const *pairs);
/* The name of a page with a status beside it; the caller closes the <header>. */
void stk_html_title(stk_buf *out, const char *title, const char *status);

#endif
