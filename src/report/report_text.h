/* report_text: a run as text for people. What happened, in lines that fit a terminal?
 *
 * Widths count terminal columns, not bytes. Nothing here looks at the terminal, the locale or the
 * environment: the caller says what it found (stk_style_of is the usual way to find out).
 */
#ifndef STK_REPORT_TEXT_H
#define STK_REPORT_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "report/report_view.h"

typedef struct stk_style {
    bool colour;
    bool utf8;
    int columns; /* at least 40 */
} stk_style;

/* What suits `out`: colour on a terminal unless NO_COLOR is set or TERM is dumb (FORCE_COLOR wins),
 * UTF-8 by the locale's variables, width of the terminal (100 where there is none, at most 120). */
stk_style stk_style_of(FILE *out);

/* The summary at the end of a run, also `stoker show RUN`: verdict, steps (collapsed when there are
 * many), totals, notes, artifacts, failures root cause first with their last lines. `card`: path to
 * name in the last line, or NULL. `store`: for the time saved by the cache, or NULL. */
int stk_text_summary(const stk_view *view, stk_store *store, const char *card, int64_t now_ms,
                     const stk_style *style, stk_buf *out, stk_err *err);
/* `stoker show RUN STEP`: everything about one task. */
int stk_text_task(const stk_view *view, uint32_t i_task, int64_t now_ms, const stk_style *style,
                  stk_buf *out, stk_err *err);
/* Failures only, as in the summary (for --quiet). */
int stk_text_failures(const stk_view *view, const stk_style *style, stk_buf *out, stk_err *err);
/* `stoker runs`: a table, newest first. */
void stk_text_runs(const stk_run_row *rows, uint32_t n_rows, int64_t now_ms, const stk_style *style,
                   stk_buf *out);

/* --- pieces that other commands use --- */

/* Columns that UTF-8 text takes (control characters none, wide ones two). */
int stk_text_width(const char *text);
/* Adds text cut to at most `columns` with an ellipsis, then padded to exactly `columns` if `pad`;
 * control characters (terminal escapes in a user's text) become '?'. */
void stk_text_fit(stk_buf *out, const char *text, int columns, bool pad, bool utf8);
/* Local time as "2026-11-21 13:05:01". */
const char *stk_text_time(int64_t ms, char *buf, size_t size);

#endif
