/* mask: replaces secret values by stars in everything that is shown: logs, errors, cards.
 *
 * The mask finds a value even if the writer splits it into several writes. Each byte becomes one
 * star, so offsets stay valid. The mask also hides the longer lines of a multi-line value, and the
 * value's JSON form. Best effort: a value that a step transformed (base64, upper case, every second
 * letter) stays visible. Data is never masked: outputs, metadata, items. */
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

/* `values`: NULL-terminated, copied. *ret_mask is NULL if there is nothing to hide. */
int stk_mask_new(const char *const *values, stk_mask **ret_mask, stk_err *err);
void stk_mask_free(stk_mask *mask);
/* The most bytes that masking ever holds back. */
size_t stk_mask_reach(const stk_mask *mask);
/* Sets stars[i] for every byte of `data` that belongs to a value; stars that are set stay set.
 * Returns how many of the last bytes may begin a value that continues in the next piece. */
size_t stk_mask_mark(const stk_mask *mask, const char *data, size_t n, unsigned char *stars);
/* `text` itself if it needs no stars, else a masked copy in `arena`; NULL for NULL and when out of
 * memory. */
const char *stk_mask_text(const stk_mask *mask, const char *text, stk_arena *arena);
/* Masks every string of a JSON document except keys. Appends to `out`; false: it isn't JSON. */
bool stk_mask_json(const stk_mask *mask, const char *json, size_t n, stk_buf *out);

/* The same for a parsed tree, in place; changed values are copied. STK_E_NOMEM. */
int stk_mask_node(const stk_mask *mask, stk_json *node, stk_arena *arena);
/* Masks the cards that an attempt and its ranks left in `dir`. Unreadable files stay unchanged. */
int stk_mask_in_cards(const stk_mask *mask, const char *dir, stk_arena *arena, stk_err *err);
/* Masks the error and warnings of a result file that leaves this machine, but not its data. */
void stk_mask_in_errors(const stk_mask *mask, const char *path);

/* Masks a text that arrives in pieces. Initialize it to zero except `mask`. */
typedef struct stk_mask_stream {
    const stk_mask *mask;
    char *data;
    unsigned char *stars;
    size_t n, cap;
} stk_mask_stream;

/* Appends to `out` the bytes that no later piece can change. STK_E_NOMEM. */
int stk_mask_push(stk_mask_stream *stream, const char *data, size_t n, stk_buf *out);
/* Ends the text: appends the bytes held back and frees the stream's memory. */
void stk_mask_end(stk_mask_stream *stream, stk_buf *out);

#endif
