/* show_html: the card of a run, one self-contained HTML file: no script, no network, light and
 * dark. Every text of the user is escaped, and a Content-Security-Policy forbids what slips
 * through. Nothing is ever unpickled: artifacts appear by name, type, size and digest.
 */
#ifndef STK_SHOW_HTML_H
#define STK_SHOW_HTML_H

#include "base/buf.h"
#include "store/view/view.h"

/* `store` (or NULL): for the time the cache saved. Samples are read from the attempt directories.
 */
int stk_html_card(const stk_view *view, stk_store *store, int64_t now_ms, stk_buf *out,
                  stk_err *err);
/* Writes runs/<run>/card.html by rename; ret_path is malloc'd. Errors: STK_E_SYS, STK_E_FULL,
 * STK_E_LIMIT. */
int stk_html_write_card(const stk_view *view, stk_store *store, int64_t now_ms, char **ret_path,
                        stk_err *err);

#endif
