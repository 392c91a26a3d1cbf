/* show_html: the card of a run as one self-contained HTML file, with a light and a dark style and
 * without scripts or network access. All of the user's text is escaped, and a
 * Content-Security-Policy blocks what slips through. Nothing is ever unpickled: artifacts appear by
 * name, type, size and digest. */
#ifndef STK_SHOW_HTML_H
#define STK_SHOW_HTML_H

#include "base/buf.h"
#include "store/view/view.h"

/* `store` gives the time that the cache saved and the run before; it may be NULL. Samples come from
 * the attempts' directories. `linked`: the page lies in the run's folder, and links to the tasks'
 * cards there, the logs and the card of the run before. */
int stk_html_card(const stk_view *view, stk_store *store, int64_t now_ms, bool linked, stk_buf *out,
                  stk_err *err);
/* The same without the document around it, for a page of `stoker ui`: its links lead to other pages
 * there. */
int stk_html_run_served(const stk_view *view, stk_store *store, int64_t now_ms, stk_buf *out,
                        stk_err *err);
/* A table with one artifact of the store at this path, and its preview, for such a page. */
int stk_html_artifact_served(const stk_view_ref *ref, const char *store, stk_buf *out,
                             stk_err *err);
/* Writes runs/<run>/card.html and the cards of its first 100 tasks, each renamed into place; the
 * caller frees *ret_path. A task's card that can't be written is left out. Errors: STK_E_SYS,
 * STK_E_FULL, STK_E_LIMIT. */
int stk_html_write_card(const stk_view *view, stk_store *store, int64_t now_ms, char **ret_path,
                        stk_err *err);

#endif
