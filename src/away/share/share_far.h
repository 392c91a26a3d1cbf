/* Private to share: the far end of ssh:// stores. */
#ifndef STK_SHARE_FAR_H
#define STK_SHARE_FAR_H

#include "away/link/link.h"
#include "away/share/share_private.h"

/* The store that a request names, kept open as long as this process lives. */
int stk_share_far_open(const stk_json *ask, stk_share **ret, const char **ret_key, stk_err *err);
/* This and the next are stk_link_handlers. A file that comes in pieces: begins or goes on; a piece;
 * gets its key; is given up. */
int stk_share_far_begin(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                        stk_buf *ret_body, stk_err *err);
int stk_share_far_piece(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                        stk_buf *ret_body, stk_err *err);
int stk_share_far_end(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err);
int stk_share_far_drop(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                       stk_buf *ret_body, stk_err *err);

#endif
