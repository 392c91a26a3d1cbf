/* The picture of the graph: steps (or groups of them) as boxes, layer by layer. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/units.h"
#include "report/report_graph.h"
#include "report/report_private.h"
#include "report/report_svg.h"
#include "report/report_text.h"

enum {
    MAX_NODES = 200,
    MAX_EDGES = 1500,
    NODE_H = 44,
    GAP = 16,       /* between boxes of a layer */
    LAYER_GAP = 52, /* between layers */
    MARGIN = 12,
    RANGES = 20,
    MAX_LAYERS = 40, /* of a collapsed graph; deeper ones are cut into RANGES */
    PAGE = 1060      /* what fits the card without scrolling */
};

typedef struct group {
    const char *label;
    uint32_t n;    /* tasks */
    uint32_t task; /* the first one */
    stk_task_state state;
    int64_t ms;
} group;

typedef struct picture {
    const stk_view *view;
    int64_t now_ms;
    stk_arena *arena;
    uint32_t n_tasks; /* of the spec: those that have a place in the graph */
    stk_graph_edge *edges;
    uint32_t n_edges;
    uint32_t *layer;
    uint32_t n_layers;
    uint32_t *group_of;
    group *groups;
    uint32_t n_groups;
    stk_graph_edge *group_edges;
    uint32_t n_group_edges;
} picture;

static int no_memory(stk_err *err)
{
    return stk_err_set(err, STK_E_NOMEM, "out of memory for the picture of the graph");
}

/* A step: of a document whose graph grows what its tasks are together, else its one task. */
typedef struct node {
    const char *name;
    stk_task_state state;
    int64_t started_ms, ended_ms;
    uint32_t n_tasks;
} node;

static node node_of(const picture *p, uint32_t i_step)
{
    if (!stk_view_grows(p->view)) {
        const stk_view_task *task = stk_view_get_task(p->view, i_step);
        return (node){task->name, task->state, task->started_ms, task->ended_ms, 1};
    }
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    const char *name = stk_spec_step(stk_view_spec(p->view), i_step)->name;
    return (node){name, stk_view_worst(step), step->started_ms, step->ended_ms, step->n};
}

/* --- edges of the spec --- */

static uint64_t count_needs(const stk_input *inputs, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += inputs[i].kind == STK_INPUT_OUTPUT ? 1
               : inputs[i].kind == STK_INPUT_LIST ? count_needs(inputs[i].items, inputs[i].n_items)
                                                  : 0;
    }
    return sum;
}

static void add_needs(picture *p, uint32_t to, const stk_input *inputs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (inputs[i].kind == STK_INPUT_OUTPUT) {
            p->edges[p->n_edges++] = (stk_graph_edge){inputs[i].step, to};
        } else if (inputs[i].kind == STK_INPUT_LIST) {
            add_needs(p, to, inputs[i].items, inputs[i].n_items);
        }
    }
}

static int by_edge(const void *a, const void *b)
{
    const stk_graph_edge *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from)
                              : (x->to > y->to) - (x->to < y->to);
}

static uint32_t unique_edges(stk_graph_edge *edges, uint32_t n)
{
    uint32_t kept = 0;
    qsort(edges, n, sizeof *edges, by_edge);
    for (uint32_t i = 0; i < n; i++) {
        if (edges[i].from != edges[i].to &&
            (kept == 0 || by_edge(&edges[kept - 1], &edges[i]) != 0)) {
            edges[kept++] = edges[i];
        }
    }
    return kept;
}

static int find_edges(picture *p, stk_err *err)
{
    const stk_spec *spec = stk_view_spec(p->view);
    uint64_t n = 0;
    p->n_tasks = stk_spec_n_steps(spec);
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        n += step->n_after + step->n_next + count_needs(step->inputs, step->n_inputs);
    }
    p->edges = n < UINT32_MAX ? stk_arena_array(p->arena, n + 1, sizeof *p->edges) : NULL;
    if (p->edges == NULL) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < p->n_tasks; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        add_needs(p, i, step->inputs, step->n_inputs);
        for (uint32_t k = 0; k < step->n_after; k++) {
            p->edges[p->n_edges++] = (stk_graph_edge){step->after[k], i};
        }
        for (uint32_t k = 0; k < step->n_next; k++) {
            p->edges[p->n_edges++] = (stk_graph_edge){i, step->next[k]};
        }
    }
    p->n_edges = unique_edges(p->edges, p->n_edges);
    return stk_graph_layers(p->n_tasks, p->edges, p->n_edges, p->arena, &p->layer, &p->n_layers,
                            err);
}

/* --- groups --- */

/* What a group is called after: the step, its name without digits, the layer, a range of layers. */
typedef enum { BY_STEP, BY_STEM, BY_LAYER, BY_RANGE, N_LEVELS } level;

static const char *key_of(const picture *p, level how, uint32_t task, char *buf, size_t size)
{
    const char *name = node_of(p, task).name;
    uint32_t layer = p->layer[task];
    if (how == BY_STEM) {
        size_t n = (size_t)snprintf(buf, size, "%u ", layer);
        for (const char *s = name; *s != '\0' && n + 1 < size; s++) {
            bool digit = *s >= '0' && *s <= '9';
            if (!digit) {
                buf[n++] = *s;
            } else if (buf[n - 1] != '#') {
                buf[n++] = '#';
            }
        }
        buf[n] = '\0';
    } else if (how == BY_LAYER) {
        (void)snprintf(buf, size, "layer %u", layer + 1);
    } else {
        uint64_t range = (uint64_t)layer * RANGES / p->n_layers;
        (void)snprintf(buf, size, "layers %u–%u",
                       (uint32_t)((range * p->n_layers + RANGES - 1) / RANGES) + 1,
                       (uint32_t)(((range + 1) * p->n_layers - 1) / RANGES) + 1);
    }
    return how == BY_STEP ? name : buf;
}

static int badness(stk_task_state state)
{
    static const stk_task_state order[] = {STK_TASK_CACHED,  STK_TASK_SUCCEEDED, STK_TASK_WAITING,
                                           STK_TASK_SKIPPED, STK_TASK_CANCELLED, STK_TASK_BACKOFF,
                                           STK_TASK_RUNNING, STK_TASK_FAILED};
    for (int i = 0; i < 8; i++) {
        if (order[i] == state) {
            return i;
        }
    }
    return 0;
}

static int64_t took_ms(const node *it, int64_t now_ms)
{
    int64_t end = it->ended_ms ? it->ended_ms : now_ms;
    return it->started_ms > 0 && end > it->started_ms ? end - it->started_ms : 0;
}

static int add_to_group(picture *p, level how, uint32_t i, stk_map *known, stk_err *err)
{
    char buf[STK_LIMIT_NAME + 32];
    const char *key = key_of(p, how, i, buf, sizeof buf);
    const node it = node_of(p, i);
    uint64_t g = i;
    if (how == BY_STEP || !stk_map_get(known, key, &g)) {
        if (p->n_groups == MAX_NODES) {
            return STK_E_LIMIT;
        }
        const char *own = stk_arena_dup(p->arena, key);
        g = p->n_groups++;
        if (own == NULL || (how != BY_STEP && stk_map_put(known, own, g) < 0)) {
            return no_memory(err);
        }
        const char *space = how == BY_STEM ? strchr(own, ' ') : NULL;
        p->groups[g] =
            (group){.label = space ? space + 1 : own, .task = i, .state = STK_TASK_CACHED};
    }
    group *to = &p->groups[g];
    to->n++;
    to->ms += took_ms(&it, p->now_ms);
    to->label = to->n == 1 && how == BY_STEM ? it.name : to->label;
    to->state = badness(it.state) > badness(to->state) ? it.state : to->state;
    p->group_of[i] = (uint32_t)g;
    return 0;
}

/* STK_E_LIMIT: still too many nodes or edges on this level. */
static int make_groups(picture *p, level how, stk_err *err)
{
    stk_map known = {0};
    int rc = how != BY_STEP && how != BY_RANGE && p->n_layers > MAX_LAYERS ? STK_E_LIMIT : 0;
    p->n_groups = 0;
    for (uint32_t i = 0; rc == 0 && i < p->n_tasks; i++) {
        rc = add_to_group(p, how, i, &known, err);
    }
    for (uint32_t g = 0; rc == 0 && how == BY_STEM && g < p->n_groups; g++) {
        if (p->groups[g].n > 1) { /* the label of the first one was its own name */
            char buf[STK_LIMIT_NAME + 32];
            key_of(p, how, p->groups[g].task, buf, sizeof buf);
            p->groups[g].label = stk_arena_dup(p->arena, strchr(buf, ' ') + 1);
        }
    }
    stk_map_done(&known);
    for (uint32_t i = 0; rc == 0 && i < p->n_edges; i++) {
        p->group_edges[i] =
            (stk_graph_edge){p->group_of[p->edges[i].from], p->group_of[p->edges[i].to]};
    }
    p->n_group_edges = rc == 0 ? unique_edges(p->group_edges, p->n_edges) : 0;
    return rc < 0 ? rc : p->n_group_edges > MAX_EDGES ? STK_E_LIMIT : 0;
}

/* --- drawing --- */

typedef struct frame {
    bool across; /* layers go from left to right */
    double node_w;
    stk_graph_layout layout;
} frame;

static double node_width(const picture *p)
{
    int widest = 6;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        int width = stk_text_width(p->groups[g].label);
        widest = width > widest ? width : widest;
    }
    return widest > 21 ? 220 : widest * 8.2 + 46 < 104 ? 104 : widest * 8.2 + 46;
}

static double layer_at(const frame *f, uint32_t layer)
{
    return MARGIN + layer * ((f->across ? f->node_w : NODE_H) + LAYER_GAP);
}

/* Top left corner of a node. */
static void corner(const frame *f, uint32_t g, double *ret_x, double *ret_y)
{
    double along = layer_at(f, f->layout.layer[g]);
    double cross = MARGIN + f->layout.cross[g];
    *ret_x = f->across ? along : cross;
    *ret_y = f->across ? cross : along;
}

static void point(const frame *f, stk_buf *out, char letter, double along, double cross)
{
    double x = f->across ? along : cross, y = f->across ? cross : along;
    stk_buf_printf(out, "%c%.1f %.1f", letter, x, y);
}

static void draw_edge(const frame *f, const stk_graph_route *route, uint32_t from_layer,
                      stk_buf *out)
{
    double thick = f->across ? f->node_w : NODE_H;
    double centre = MARGIN + (f->across ? NODE_H : f->node_w) / 2;
    stk_buf_text(out, "<path class=\"edge\" marker-end=\"url(#tip)\" d=\"");
    for (uint32_t k = 0; k + 1 < route->n; k++) {
        bool last = k + 2 == route->n;
        double a = layer_at(f, from_layer + k) + thick;
        double b = layer_at(f, from_layer + k + 1) - (last ? 5 : 0);
        double from = centre + route->cross[k], to = centre + route->cross[k + 1];
        point(f, out, k == 0 ? 'M' : 'L', a, from);
        point(f, out, 'C', (a + b) / 2, from);
        point(f, out, ' ', (a + b) / 2, to);
        point(f, out, ' ', b, to);
    }
    stk_buf_text(out, "\"/>\n");
}

static void draw_node(const picture *p, const frame *f, uint32_t g, stk_buf *out)
{
    const group *it = &p->groups[g];
    const char *status = stk_state_word(it->state);
    const node one = node_of(p, it->task);
    char text[64];
    stk_ink ink;
    double x, y;
    corner(f, g, &x, &y);
    stk_buf_printf(out, "<g class=\"node s-%s\"><title>", status);
    stk_buf_html(out, it->label);
    stk_buf_printf(out,
                   ": %s</title><rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%d\" rx=\"8\"/>",
                   status, x, y, f->node_w, NODE_H);
    stk_buf_printf(out, "<text class=\"mark\" x=\"%.1f\" y=\"%.1f\">%s</text>", x + 18, y + 27,
                   stk_text_mark(status, true, &ink));
    STK_BUF_AUTO label = STK_BUF_INIT(1024);
    stk_text_fit(&label, it->label, 21, false, true);
    stk_buf_printf(out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">", x + 32, y + 19);
    stk_buf_html(out, label.data ? label.data : "");
    stk_buf_printf(out, "</text><text class=\"sub\" x=\"%.1f\" y=\"%.1f\">", x + 32, y + 34);
    if (it->n > 1) {
        stk_buf_printf(out, "%s steps", stk_text_count(it->n, text, sizeof text));
    } else if (one.n_tasks > 1) {
        stk_buf_printf(out, "%s tasks", stk_text_count(one.n_tasks, text, sizeof text));
    } else if (one.started_ms > 0) {
        stk_buf_text(out, stk_units_format_duration(it->ms, text, sizeof text));
    } else {
        stk_buf_text(out, status);
    }
    stk_buf_text(out, "</text></g>\n");
}

static int place(const picture *p, frame *f, stk_err *err)
{
    uint32_t *layer, n_layers;
    f->node_w = node_width(p);
    int rc = stk_graph_layers(p->n_groups, p->group_edges, p->n_group_edges, p->arena, &layer,
                              &n_layers, err);
    if (rc < 0) {
        return rc;
    }
    f->across = n_layers * (f->node_w + LAYER_GAP) <= PAGE + LAYER_GAP;
    double size = f->across ? NODE_H : f->node_w;
    return stk_graph_place(p->n_groups, p->group_edges, p->n_group_edges, size + GAP,
                           size / 2 + GAP, p->arena, &f->layout, err);
}

static void draw(const picture *p, const frame *f, stk_buf *out)
{
    double along = 2 * MARGIN - LAYER_GAP +
                   f->layout.n_layers * ((f->across ? f->node_w : NODE_H) + LAYER_GAP);
    double cross = 2 * MARGIN + f->layout.extent + (f->across ? NODE_H : f->node_w);
    double w = f->across ? along : cross, h = f->across ? cross : along;
    stk_buf_printf(
        out,
        "<svg class=\"graph%s\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
        "role=\"img\" aria-label=\"graph of the steps\">"
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"2\" refY=\"4\" "
        "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
        "<path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
        w <= 1.4 * PAGE ? " fit" : "", w, h, w, h);
    for (uint32_t i = 0; i < p->n_group_edges; i++) {
        if (f->layout.routes[i].n > 1) {
            draw_edge(f, &f->layout.routes[i], f->layout.layer[p->group_edges[i].from], out);
        }
    }
    for (uint32_t g = 0; g < p->n_groups; g++) {
        draw_node(p, f, g, out);
    }
    stk_buf_text(out, "</svg>\n");
}

int stk_svg_graph(const stk_view *view, int64_t now_ms, stk_buf *out, bool *ret_collapsed,
                  stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    picture p = {.view = view, .now_ms = now_ms, .arena = arena};
    frame f = {0};
    stk_err own = {0};
    if (arena == NULL) {
        return no_memory(err);
    }
    int rc = find_edges(&p, err);
    if (rc < 0) {
        return rc;
    }
    p.group_of = stk_arena_array(arena, (size_t)p.n_tasks + 1, sizeof *p.group_of);
    p.groups = stk_arena_array(arena, MAX_NODES, sizeof *p.groups);
    p.group_edges = stk_arena_array(arena, (size_t)p.n_edges + 1, sizeof *p.group_edges);
    if (!p.group_of || !p.groups || !p.group_edges) {
        return no_memory(err);
    }
    rc = STK_E_LIMIT;
    int how = BY_STEP;
    for (; rc == STK_E_LIMIT && how < N_LEVELS; how++) {
        rc = make_groups(&p, (level)how, &own);
        rc = rc < 0 ? rc : place(&p, &f, &own);
    }
    *ret_collapsed = how - 1 > BY_STEP;
    if (rc < 0) {
        return stk_err_set(err, rc, "%s", own.text);
    }
    draw(&p, &f, out);
    return 0;
}
