/* show_boxes: which boxes and edges the picture of a graph has. Of a large graph a box is a group
 * of steps. */
#ifndef STK_SHOW_BOXES_H
#define STK_SHOW_BOXES_H

#include "show/show_graph.h"
#include "store/view/view.h"

enum { STK_BOXES_MAX = 200 };

typedef struct stk_boxes_group {
    const char *label;
    uint32_t n;    /* steps */
    uint32_t step; /* the first one */
    stk_task_state state;
    int64_t ms;
} stk_boxes_group;

/* An edge of a growing graph with what is said on it: its kind, and a case or a width. */
typedef struct stk_boxes_edge {
    uint32_t from, to;
    stk_next_kind kind;
    bool is_back; /* it leads to a step that its own leads from */
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
    stk_boxes_edge *grown; /* of a growing document */
    uint32_t n_grown;
    bool by_step; /* a box is a step */
} stk_boxes;

/* What a group is called after: the step, its name without digits, the layer, a range of layers. */
typedef enum {
    STK_BOXES_BY_STEP,
    STK_BOXES_BY_STEM,
    STK_BOXES_BY_LAYER,
    STK_BOXES_BY_RANGE,
    STK_BOXES_N_LEVELS
} stk_boxes_level;

/* Steps, edges and layers of the run that `view` shows; room for the groups. */
int stk_boxes_init(stk_boxes *p, stk_err *err);
/* STK_E_LIMIT: still too many boxes or edges on this level. */
int stk_boxes_make(stk_boxes *p, stk_boxes_level how, stk_err *err);

#endif
