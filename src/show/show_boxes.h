/* show_boxes: the boxes and edges of a graph's picture. In a large graph one box stands for a group
 * of steps. */
#ifndef STK_SHOW_BOXES_H
#define STK_SHOW_BOXES_H

#include "show/show_alike.h"
#include "show/show_graph.h"
#include "store/view/view.h"

enum { STK_BOXES_MAX = 200 };

typedef struct stk_boxes_group {
    const char *label;
    uint32_t n;    /* number of steps */
    uint32_t step; /* its first step */
    stk_task_state state;
    int64_t ms;
    const stk_alike_group *alike;  /* the steps are of this group, which is shown as one; or NULL */
    uint32_t by_state[STK_TASK_N]; /* number of steps; a step of several tasks by its worst */
} stk_boxes_group;

/* An edge of a growing graph with its label: a case of the switch or a number of tasks. */
typedef struct stk_boxes_edge {
    uint32_t from, to;
    stk_next_kind kind;
    bool is_back; /* it closes a loop: its target leads to its source */
    const char *text;
} stk_boxes_edge;

typedef struct stk_boxes {
    const stk_view *view;
    int64_t now_ms;
    stk_arena *arena;
    uint32_t n_steps;
    stk_graph_edge *edges;
    uint32_t n_edges;
    uint32_t *layer;
    uint32_t n_layers;
    uint32_t *group_of;
    stk_boxes_group *groups;
    uint32_t n_groups;
    stk_graph_edge *group_edges;
    uint32_t n_group_edges;
    stk_boxes_edge *grown; /* edges of a growing document */
    uint32_t n_grown;
    stk_alike alike;
    uint32_t *n_near; /* by step: how many of its group its layer has; 0: none */
    bool by_step;     /* every box is one step, or one group of alike ones */
} stk_boxes;

/* What steps of one group have in common: nothing (a step each, but many
 * alike ones of a layer together), the name without its digits, the
 * layer, a range of layers. */
typedef enum {
    STK_BOXES_BY_STEP,
    STK_BOXES_BY_STEM,
    STK_BOXES_BY_LAYER,
    STK_BOXES_BY_RANGE,
    STK_BOXES_N_LEVELS
} stk_boxes_level;

/* Finds the steps, edges and layers of the run that `view` shows, and allocates the groups. */
int stk_boxes_init(stk_boxes *p, stk_err *err);
/* Groups the steps by `how`. STK_E_LIMIT: this level still has too many boxes or edges. */
int stk_boxes_make(stk_boxes *p, stk_boxes_level how, stk_err *err);

#endif
