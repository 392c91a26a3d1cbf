/* show_text: a run as text for people, in lines that fit a terminal.
 *
 * Widths count terminal columns, not bytes. Nothing here reads the terminal, the locale or the
 * environment except stk_style_of, which callers use to fill a stk_style.
 */
#ifndef STK_SHOW_TEXT_H
#define STK_SHOW_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "show/runs.h"
#include "store/view/view.h"

enum { STK_STYLE_COLUMNS_MOST = 120 }; /* of a terminal's lines; files have more */

typedef struct stk_style {
    bool colour;
    bool utf8;
    int columns;    /* at least 40 */
    char cwd[1024]; /* shows paths below it relative to it; "": never */
} stk_style;

/* The style for `out`: UTF-8 by the locale's variables, the terminal's width (100 without one, at
 * most 120) and the working directory. The caller decides on colour. */
stk_style stk_style_of(FILE *out, bool colour);

/* The summary at the end of a run, also `stoker show RUN`: verdict, steps (only the slowest if
 * there are many), notes, failures with the root cause first and their last lines, totals,
 * artifacts. `card`: the path to print last, or NULL. `store`: for the time that the cache saved
 * and for whether this is the latest run, or NULL. */
int stk_text_summary(const stk_view *view, stk_store *store, const char *card, int64_t now_ms,
                     const stk_style *style, stk_buf *out, stk_err *err);
/* `stoker show RUN STEP`: everything about one task. */
int stk_text_task(const stk_view *view, uint32_t i_task, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err);
/* `stoker show RUN/STEP` of a growing run: the step's tasks, failed ones first. */
int stk_text_step(const stk_view *view, uint32_t i_step, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err);
/* Failures only, as in the summary (for --quiet). */
int stk_text_failures(const stk_view *view, stk_store *store, const stk_style *style, stk_buf *out,
                      stk_err *err);
/* `stoker runs`: a table with a head. Its values are those of `named` (NULL-terminated), then as
 * many parameters and metrics in which the runs differ as fit. */
void stk_text_runs(const stk_run_values *runs, uint32_t n, const char *currency,
                   const char *const *named, const stk_style *style, stk_buf *out);

/* --- pieces that other files use --- */

typedef enum {
    STK_INK_PLAIN,
    STK_INK_GOOD,
    STK_INK_BAD,
    STK_INK_WARN,
    STK_INK_DIM,
    STK_INK_BOLD,
    STK_INK_USE, /* of a device */
    STK_INK_MEMORY
} stk_ink;

/* The sign for an unknown value. */
static inline const char *stk_text_dash(bool utf8)
{
    return utf8 ? "–" : "-";
}

static inline const char *stk_text_times(bool utf8)
{
    return utf8 ? "×" : "x";
}

/* Adds text in the ink's colour, or plain if the style has no colour. */
void stk_text_ink(stk_buf *out, const stk_style *style, stk_ink ink, const char *text);
/* The mark and the ink of a task state or run status ("succeeded" "cached" "failed" …). */
const char *stk_text_mark(const char *status, bool utf8, stk_ink *ret_ink);
/* The columns that UTF-8 text takes; control characters take none, wide ones two. */
int stk_text_width(const char *text);
/* Adds text cut to at most `columns` with an ellipsis, then padded to exactly `columns` if `pad`;
 * control characters (terminal escapes in a user's text) become '?'. */
void stk_text_fit(stk_buf *out, const char *text, int columns, bool pad, bool utf8);
/* A table's cell and the gap behind it; the end of a line, without trailing blanks. */
void stk_text_cell(stk_buf *out, const stk_style *style, const char *text, int columns);
void stk_text_end_line(stk_buf *out);
/* Adds text with control characters made harmless; newlines are followed by `indent`. */
void stk_text_safe(stk_buf *out, const char *text, const char *indent);
/* "2 CPU, 4 GB, 1 GPU"; "-" (or an en dash) if nothing is known. */
void stk_text_amounts(stk_buf *out, const stk_view_amounts *amounts, bool utf8);
/* The path, relative to style->cwd where it lies below it. */
const char *stk_text_path(const stk_style *style, const char *path);
/* Adds the last lines of a file (at most n_lines and 16 KiB), or nothing if it can't be read. */
void stk_text_tail(stk_buf *out, const char *path, int n_lines);
/* Local time as "2026-11-21 13:05:01", or, if `utc`, UTC with a Z. */
const char *stk_text_time(int64_t ms, bool utc, char *buf, size_t size);
/* The number with commas between thousands: "10,000". */
const char *stk_text_count(uint64_t n, char *buf, size_t size);

/* A note, on a line of its own. */
void stk_text_note(const char *text, const stk_style *style, stk_buf *out);
/* The notes of a run, and the warnings of its steps unless it has more than `many` tasks. A warning
 * that several steps share appears once. */
int stk_text_notes(const stk_view *view, const stk_style *style, uint32_t many, stk_buf *out,
                   stk_err *err);

#endif
