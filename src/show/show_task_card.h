/* show_task_card: the page of one task. What its step's @card wrote
 * (docs/formats/task-directory.md, "Cards") is shown with what the engine knows of the task itself:
 * one self-contained HTML file, light and dark, without a script and without a network. Everything
 * that a step wrote is escaped; a card whose class renders HTML itself is given as it is.
 */
#ifndef STK_SHOW_TASK_CARD_H
#define STK_SHOW_TASK_CARD_H

#include "base/buf.h"
#include "store/view/view.h"

/* A card that a task has, or has so far. */
typedef struct stk_task_card {
    const char *name;  /* of its file, without the ending: what --id takes as well as `id` */
    const char *id;    /* as the user gave it, or NULL */
    const char *type;  /* "default", "blank", "gpu_profile", a class's own */
    const char *title; /* or NULL */
    const char *path;  /* the file whose change is a change of the card */
    const char *html;  /* of a class that renders HTML: the page; else NULL */
} stk_task_card;

/* The cards in <attempt>/cards (of rank K > 0 of a gang in its own folder), by name, then the
 * devices' page of a step with @gpu_profile. rank -1: the task's own. None is no error. */
int stk_task_cards(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena,
                   stk_task_card **ret_cards, uint32_t *ret_n, stk_err *err);
/* A JSON list of them: {"id", "name", "type", "title", "path"}. */
int stk_task_cards_json(const stk_view *view, uint32_t i_task, int64_t rank, stk_arena *arena,
                        stk_buf *out, stk_err *err);

typedef struct stk_task_card_options {
    int64_t rank;   /* of a gang; -1: the task's own */
    const char *id; /* or name; NULL: the one without an id, else the first; a task without cards
                       has the default page */
    int reload_s;   /* the page of a live task loads itself anew so often; 0: never */
} stk_task_card_options;

/* Errors: STK_E_NOT_FOUND, no such card; STK_E_LIMIT. */
int stk_html_task_card(const stk_view *view, uint32_t i_task, const stk_task_card_options *options,
                       int64_t now_ms, stk_buf *out, stk_err *err);

#endif
