/* doc: a JSON document as a tree of jansson's values: read, asked for members, written.
 *
 * base/json.h reads what a person wrote, with line numbers; a doc is what a program wrote.
 */
#ifndef STK_BASE_DOC_H
#define STK_BASE_DOC_H

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"

static inline void stk_doc_release(json_t **json)
{
    json_decref(*json);
}
#define STK_DOC_AUTO __attribute__((cleanup(stk_doc_release))) json_t *

/* The document, or NULL: `text` is NULL or damaged. The caller's. */
json_t *stk_doc_read(const char *text);
/* Adds it as compact JSON; numbers in the shortest form that reads back the same. */
void stk_doc_put(stk_buf *out, const json_t *value);
/* The same as text in `arena`; NULL: `value` is NULL, or no memory. */
const char *stk_doc_dup(stk_arena *arena, const json_t *value);
/* Members of an object; NULL or `fallback` where one is absent or of another type. */
const char *stk_doc_text(const json_t *object, const char *key);
double stk_doc_number(const json_t *object, const char *key, double fallback);
int64_t stk_doc_integer(const json_t *object, const char *key, int64_t fallback);

#endif
