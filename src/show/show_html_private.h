/* Shared by the files that write cards. */
#ifndef STK_SHOW_HTML_PRIVATE_H
#define STK_SHOW_HTML_PRIVATE_H

#include "show/show_html.h"
#include "show/show_markup.h"
#include "show/show_private.h"

/* The most items that a card lists; of further ones it shows the number. */
enum {
    MAX_ROWS = 500,
    MAX_CURVES = 40,
    MAX_FAILURES = 10,
    MAX_ARTIFACTS = 500,
    TAIL_LINES = 30,
    MAX_WIDE = 3
};
#define MAX_CARD_BYTES STK_MARKUP_MAX
#define MAX_PREVIEWS_BYTES ((size_t)24 << 20) /* of all artifacts on a page */

typedef struct page {
    const stk_view *view;
    const stk_view_run *run;
    stk_view_totals totals;
    stk_store *store; /* or NULL */
    bool linked;      /* the page lies in the run's folder */
    bool served;      /* a part of a page of `stoker ui`, whose pages links lead to */
    int64_t now_ms;
    stk_arena *arena;     /* scratch: reset after each task */
    size_t *preview_room; /* bytes that previews of artifacts may still take */
    stk_buf *out;
    stk_err *err;
} page;

int stk_html_details(const page *p, uint32_t i_task,
                     stk_view_details *ret); /* uses p->arena and resets it first */
/* Adds how long the task ran, or has been running. */
void stk_html_took(const page *p, const stk_view_task *task);
/* One task as a row of the table of steps. */
int stk_html_step_row(const page *p, uint32_t i_task);
void stk_html_more(const page *p, uint32_t n, uint32_t shown, const char *what);
/* A page that isn't a card, up to the inside of its <header>; its end. --- show_page.c */
void stk_html_page_open(stk_buf *out, const char *title);
void stk_html_page_close(stk_buf *out);
/* Adds the members of a JSON object as rows of two cells, long values cut; and a panel of such
 * rows. */
void stk_html_pairs_panel(stk_buf *out, const char *heading, const stk_buf *rows);
void stk_html_pairs(const page *p, stk_buf *out, const char *prefix, const char *json);
/* A panel with the task's error and the end of its stderr. */
int stk_html_failure(const page *p, uint32_t i_task);
/* The task's usage over time. Opens the panel before the first task that has samples (*n_shown is
 * 0). */
int stk_html_curves(const page *p, uint32_t i_task, uint32_t *n_shown);
/* What the task measured over time; opens its panel like stk_html_curves. --- show_html_metrics.c
 */
int stk_html_metrics(const page *p, uint32_t i_task, uint32_t *n_shown);
int stk_html_all_metrics(const page *p);
/* The table of artifacts. `step` before the name, or NULL; `about`: a text for a value that has no
 * JSON, or NULL. */
void stk_html_artifacts_open(stk_buf *out, const char *heading);
void stk_html_artifact_row(const page *p, const char *step, const stk_view_ref *ref,
                           const char *about);
void stk_html_artifacts_close(stk_buf *out);

/* --- show_cards.c: links, which only a page in the run's folder or of `stoker ui` has --- */

/* `text`, as a link to the task's card if that is there. */
void stk_html_task_link(const page *p, uint32_t i_task, const char *text);
/* " stdout stderr", as links to those that aren't empty. */
void stk_html_log_links(const page *p, uint32_t i_task, const stk_view_details *d);
/* The name of an artifact, as a link to its page. */
void stk_html_artifact_link(const page *p, const char *step, const stk_view_ref *ref);
void stk_html_before_link(const page *p);

/* --- show_preview.c --- */

/* A cell with the value of an artifact, if it is short, or with `about`. */
void stk_html_value(stk_buf *out, const stk_view_ref *ref, const char *about);
/* A row of the table of artifacts with what can be seen of one: a frame's first rows, a picture, a
 * page, a text. Nothing if its value says it all, or it can't be shown. */
void stk_html_preview(const page *p, stk_buf *out, const stk_view_ref *ref);

/* --- show_html_time.c --- */

/* When each step ran, and what each device and the CPUs did then. */
int stk_html_timelines(const page *p);

/* --- show_html_alike.c --- */

/* The table of steps; from STK_ALIKE_MIN on, alike ones are one row, and listed below. */
int stk_html_steps(const page *p);

/* --- show_html_tables.c --- */

int stk_html_artifacts(const page *p);
int stk_html_facts(const page *p); /* parameters and metadata */
void stk_html_origin(const page *p);

/* --- show_task_cards.c --- */

/* Reads the card that a step wrote. Returns NULL if it can't be read. */
const stk_json *stk_show_read_card(const char *path, stk_arena *arena);

/* --- show_html_grow.c: a growing run --- */

/* Artifacts; those of several tasks of one step share a row. */
int stk_html_grown_artifacts(const page *p);

#endif
