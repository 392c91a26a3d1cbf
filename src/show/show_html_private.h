/* What the files that write a card share. */
#ifndef STK_SHOW_HTML_PRIVATE_H
#define STK_SHOW_HTML_PRIVATE_H

#include "show/show_html.h"
#include "show/show_private.h"

/* What is listed in full; more is counted. */
enum {
    MAX_ROWS = 500,
    MAX_CURVES = 40,
    MAX_FAILURES = 10,
    MAX_ARTIFACTS = 500,
    TAIL_LINES = 30,
    MAX_WIDE = 3
};
#define MAX_CARD_BYTES ((size_t)256 << 20)

typedef struct page {
    const stk_view *view;
    const stk_view_run *run;
    stk_view_totals totals;
    int64_t now_ms;
    stk_arena *arena; /* scratch: reset after each task */
    stk_buf *out;
    stk_err *err;
} page;

int stk_html_details(const page *p, uint32_t i_task,
                     stk_view_details *ret); /* in p->arena, reset */
/* Escaped, with control characters made visible: everything that isn't ours goes through here. */
void stk_html_user(stk_buf *out, const char *text);
/* HTML of ours, in which each %s is such a text. */
void stk_html_put(stk_buf *out, const char *html, ...) __attribute__((format(printf, 2, 3)));
void stk_html_cell(stk_buf *out, const char *class, const char *text); /* class NULL: none */
void stk_html_cell_size(stk_buf *out, int64_t bytes);                  /* < 0: empty */
void stk_html_seconds(stk_buf *out, double s);
/* How long it ran, or has run by now. */
void stk_html_took(const page *p, const stk_view_task *task);
void stk_html_status(stk_buf *out, const char *status);
/* One task as a row of the table of steps. */
int stk_html_step_row(const page *p, uint32_t i_task);
void stk_html_more(const page *p, uint32_t n, uint32_t shown, const char *what);
/* Up to the title's text; `more`: what the Content-Security-Policy allows besides our own style. */
void stk_html_open(stk_buf *out, const char *more);
/* `step`: whose it is; NULL: the run's. */
void stk_html_note(stk_buf *out, const char *step, const char *text);
void stk_html_panel_open(stk_buf *out, const char *heading);
void stk_html_panel_close(stk_buf *out);
/* A panel with `body`, and what stands before and behind it; none where it is empty. */
void stk_html_panel(stk_buf *out, const char *heading, const char *before, const stk_buf *body,
                    const char *behind);
void stk_html_tile_count(stk_buf *out, uint64_t n, const char *what);
void stk_html_tile_seconds(stk_buf *out, double s, const char *what);    /* < 0: none */
void stk_html_tile_bytes(stk_buf *out, int64_t bytes, const char *what); /* < 0: none */
void stk_html_tile(stk_buf *out, const char *value, const char *what);
/* Rows of two cells, the members of a JSON object, long values cut; a panel with such rows. */
void stk_html_pairs_panel(stk_buf *out, const char *heading, const stk_buf *rows);
void stk_html_pairs(const page *p, stk_buf *out, const char *prefix, const char *json);
/* What a task failed by, as a panel. */
int stk_html_failure(const page *p, uint32_t i_task);
/* What a task used over time; the first that has some (*n_shown is 0) opens the panel. */
int stk_html_curves(const page *p, uint32_t i_task, uint32_t *n_shown);
void stk_html_artifacts_open(stk_buf *out);
void stk_html_artifact_row(stk_buf *out, const char *step, const stk_view_ref *ref);

/* --- show_html_tables.c --- */

int stk_html_steps(const page *p);
int stk_html_artifacts(const page *p);
int stk_html_facts(const page *p); /* parameters and metadata */
void stk_html_origin(const page *p);

/* --- show_task_cards.c --- */

/* What a step wrote there: NULL where it can't be read. */
const stk_json *stk_show_read_card(const char *path, stk_arena *arena);

/* --- show_html_grow.c: a growing run --- */

/* The body of the table of steps, a row a step; then the tasks of those that have many. */
int stk_html_grown_steps(const page *p);
/* Artifacts, what many tasks of a step made as one row. */
int stk_html_grown_artifacts(const page *p);

#endif
