/* show_text: a run as text for people. What happened, in lines that fit a terminal?
 *
 * Widths count terminal columns, not bytes. Nothing here looks at the terminal, the locale or the
 * environment: the caller says what it found (stk_style_of is the usual way to find out).
 */
#ifndef STK_SHOW_TEXT_H
#define STK_SHOW_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "store/view/view.h"

typedef struct stk_style {
    bool colour;
    bool utf8;
    int columns;    /* at least 40 */
    char cwd[1024]; /* paths below it are shown relative to it; "": never */
} stk_style;

/* What suits `out`: UTF-8 by the locale's variables, the width of the terminal (100 where there is
 * none, at most 120), the working directory. Colour is the caller's decision. */
stk_style stk_style_of(FILE *out, bool colour);

/* The summary at the end of a run, also `stoker show RUN`: verdict, steps (collapsed when there are
 * many), totals, notes, artifacts, failures root cause first with their last lines. `card`: path to
 * name in the last line, or NULL. `store`: for the time saved by the cache, or NULL. */
int stk_text_summary(const stk_view *view, stk_store *store, const char *card, int64_t now_ms,
                     const stk_style *style, stk_buf *out, stk_err *err);
/* `stoker show RUN STEP`: everything about one task. */
int stk_text_task(const stk_view *view, uint32_t i_task, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err);
/* `stoker show RUN/STEP` of a growing run: the step's tasks, those that failed first. */
int stk_text_step(const stk_view *view, uint32_t i_step, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err);
/* Failures only, as in the summary (for --quiet). */
int stk_text_failures(const stk_view *view, const stk_style *style, stk_buf *out, stk_err *err);
/* `stoker runs`: a table, newest first. */
void stk_text_runs(const stk_run_row *rows, uint32_t n_rows, const stk_style *style, stk_buf *out);

/* --- pieces that others use --- */

typedef enum {
    STK_INK_PLAIN,
    STK_INK_GOOD,
    STK_INK_BAD,
    STK_INK_WARN,
    STK_INK_DIM,
    STK_INK_BOLD
} stk_ink;

/* For what is not known. */
static inline const char *stk_text_dash(bool utf8)
{
    return utf8 ? "–" : "-";
}

static inline const char *stk_text_times(bool utf8)
{
    return utf8 ? "×" : "x";
}

/* Text in a colour (as it is where the style has none). */
void stk_text_ink(stk_buf *out, const stk_style *style, stk_ink ink, const char *text);
/* The mark and the ink of a task state or run status ("succeeded" "cached" "failed" …). */
const char *stk_text_mark(const char *status, bool utf8, stk_ink *ret_ink);
/* Columns that UTF-8 text takes (control characters none, wide ones two). */
int stk_text_width(const char *text);
/* Adds text cut to at most `columns` with an ellipsis, then padded to exactly `columns` if `pad`;
 * control characters (terminal escapes in a user's text) become '?'. */
void stk_text_fit(stk_buf *out, const char *text, int columns, bool pad, bool utf8);
/* A cell of a table, with the gap to the next; the end of its line, without blanks before it. */
void stk_text_cell(stk_buf *out, const stk_style *style, const char *text, int columns);
void stk_text_end_line(stk_buf *out);
/* Text with control characters made harmless; newlines are followed by `indent`. */
void stk_text_safe(stk_buf *out, const char *text, const char *indent);
/* "2 CPU, 4 GB, 1 GPU"; "-" (or an en dash) when nothing is known. */
void stk_text_amounts(stk_buf *out, const stk_view_amounts *amounts, bool utf8);
/* The path, relative to style->cwd where it lies below it. */
const char *stk_text_path(const stk_style *style, const char *path);
/* The last lines of a file (at most n_lines and 16 KiB), or nothing when it can't be read. */
void stk_text_tail(stk_buf *out, const char *path, int n_lines);
/* Local time as "2026-11-21 13:05:01", UTC with a Z where `utc`. */
const char *stk_text_time(int64_t ms, bool utc, char *buf, size_t size);
/* Counts with thin grouping: "10,000". */
const char *stk_text_count(uint64_t n, char *buf, size_t size);

/* A note, on a line of its own. */
void stk_text_note(const char *text, const stk_style *style, stk_buf *out);
/* The notes of a run, and the warnings of its steps unless there are more than `many` of these;
 * what is the same of several is said once. */
int stk_text_notes(const stk_view *view, const stk_style *style, uint32_t many, stk_buf *out,
                   stk_err *err);

#endif
