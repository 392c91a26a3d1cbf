/* mask: stars in place of values that nobody may read, in what is shown: logs, errors, cards.
 *
 * A value is found however it was cut into pieces by who wrote it. Its stars are as many as its
 * bytes, so nobody's offsets move. Of a value of several lines each line of some length is hidden
 * as well, and the value as JSON writes it. Best effort: a value that a step changed (base64, upper
 * case, every second letter) is not known. Data is never masked: outputs, metadata, items. */
#ifndef STK_RUNNER_MASK_H
#define STK_RUNNER_MASK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

enum { STK_MASK_SHORTEST = 4 }; /* bytes; shorter values would star out half of any text */

typedef struct stk_mask stk_mask;

/* `values`: NULL-terminated, not kept. *ret_mask is NULL where nothing is to be hidden. */
int stk_mask_new(const char *const *values, stk_mask **ret_mask, stk_err *err);
void stk_mask_free(stk_mask *mask);
/* No more than so many bytes are ever held back. */
size_t stk_mask_reach(const stk_mask *mask);
/* Sets stars[i] for every byte of `data` that belongs to a value; those that are set stay. Returns
 * how many of the last bytes may be the beginning of a value, with what comes next. */
size_t stk_mask_mark(const stk_mask *mask, const char *data, size_t n, unsigned char *stars);
/* `text` itself where there is nothing to hide in it, else a copy in `arena`; NULL for NULL, and
 * when out of memory. */
const char *stk_mask_text(const stk_mask *mask, const char *text, stk_arena *arena);
/* In every string of a JSON document, not its keys. Appends to `out`; false: it is none. */
bool stk_mask_json(const stk_mask *mask, const char *json, size_t n, stk_buf *out);

/* The same of a tree, in place; its values are copied. STK_E_NOMEM. */
int stk_mask_node(const stk_mask *mask, stk_json *node, stk_arena *arena);
/* In the cards that an attempt and its ranks left in `dir`. What can't be read stays. */
int stk_mask_in_cards(const stk_mask *mask, const char *dir, stk_arena *arena, stk_err *err);
/* In a result's error and warnings: of what leaves this machine. Its data stays. */
void stk_mask_in_errors(const stk_mask *mask, const char *path);

/* A text that comes in pieces. Zero but for `mask`. */
typedef struct stk_mask_stream {
    const stk_mask *mask;
    char *data;
    unsigned char *stars;
    size_t n, cap;
} stk_mask_stream;

/* Appends to `out` what is sure by now. STK_E_NOMEM. */
int stk_mask_push(stk_mask_stream *stream, const char *data, size_t n, stk_buf *out);
/* The end: what was held back. Frees what the stream has. */
void stk_mask_end(stk_mask_stream *stream, stk_buf *out);

#endif
