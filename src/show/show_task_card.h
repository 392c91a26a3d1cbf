/* show_task_card: the page of one task. It shows what the step's @card wrote
 * (docs/formats/task-directory.md, "Cards") together with the engine's own record of the task, as
 * one self-contained HTML file with a light and a dark style, without scripts and network access.
 * Everything that a step wrote is escaped, except that a card class may write a whole HTML page:
 * that page is returned unchanged. */
#ifndef STK_SHOW_TASK_CARD_H
#define STK_SHOW_TASK_CARD_H

#include "base/buf.h"
#include "store/view/view.h"

/* A card of a task, perhaps still being written. */
typedef struct stk_task_card {
    const char *name;  /* its file's name without the ending; --id takes it, too */
    const char *id;    /* as the user gave it, or NULL */
    const char *type;  /* "default", "blank", "gpu_profile", or a custom class's type */
    const char *title; /* or NULL */
    const char *path;  /* the file that changes when the card does */
    const char *html;  /* path of the HTML page that its class wrote, or NULL */
} stk_task_card;

/* Lists the cards in <attempt>/cards (a rank K > 0 of a gang has its own folder) by name, then the
 * device page of a step with @gpu_profile. rank -1: the task's own. A task without cards is no
 * error. */
int stk_task_cards(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena,
                   stk_task_card **ret_cards, uint32_t *ret_n, stk_err *err);
/* Adds them as a JSON list of {"id", "name", "type", "title", "path"}. */
int stk_task_cards_json(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena,
                        stk_buf *out, stk_err *err);

typedef struct stk_task_card_options {
    int64_t rank;   /* of a gang; -1: the task's own */
    const char *id; /* or name; NULL: the card without an id, else the first; a task without cards
                       has the default page */
    const stk_buf *graph; /* the run's graph as SVG, for many pages of one run; NULL: it is drawn */
    bool linked;          /* the page lies in the run's folder */
    bool served;          /* only the page's content, for a page of `stoker ui`; not the HTML page
                             that a card class wrote */
    int reload_s;         /* how often the page of a live task reloads itself; 0: never */
} stk_task_card_options;

/* Errors: STK_E_NOT_FOUND: no card has that id; STK_E_LIMIT. */
int stk_html_task_card(const stk_view *view, uint32_t i_task, const stk_task_card_options *options,
                       int64_t now_ms, stk_buf *out, stk_err *err);
/* Writes that page to `path`. */
int stk_html_write_task_card(const stk_view *view, uint32_t i_task,
                             const stk_task_card_options *options, int64_t now_ms, const char *path,
                             stk_err *err);
/* The page of a card's file alone, of a step that is in no run: what the step reported and, unless
 * the card is blank, what it says of its artifacts. Errors: STK_E_NOT_FOUND: it isn't a card;
 * STK_E_LIMIT. */
int stk_html_card_file(const char *path, stk_buf *out, stk_err *err);
/* Where the page lies in the run's folder, in `arena`; NULL if the view has no store. */
const char *stk_task_card_path(const stk_view *view, uint32_t i_task, stk_arena *arena);

#endif
