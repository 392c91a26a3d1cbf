/* The picture of the graph: steps (or groups of them) as boxes, layer by layer. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "show/show_graph.h"
#include "show/show_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"

enum {
    MAX_NODES = 200,
    MAX_EDGES = 1500,
    NODE_H = 44,
    GAP = 16,       /* between boxes of a layer */
    LAYER_GAP = 52, /* between layers */
    MARGIN = 12,
    MAX_SAID = 16, /* columns of what is said on an edge */
    RANGES = 20,
    MAX_LAYERS = 40, /* of a collapsed graph; deeper ones are cut into RANGES */
    PAGE = 1060      /* what fits the card without scrolling */
};

typedef struct group {
    const char *label;
    uint32_t n;    /* steps */
    uint32_t step; /* the first one */
    stk_task_state state;
    int64_t ms;
} group;

/* An edge of a growing graph with what is said on it: its kind, and a case or a width. */
typedef struct grown_edge {
    uint32_t from, to;
    stk_next_kind kind;
    bool is_back; /* it leads to a step that its own leads from */
    const char *text;
} grown_edge;

typedef struct picture {
    const stk_view *view;
    int64_t now_ms;
    stk_arena *arena;
    uint32_t n_steps;
    stk_graph_edge *edges;
    uint32_t n_edges;
    uint32_t *layer;
    uint32_t n_layers;
    uint32_t *group_of;
    group *groups;
    uint32_t n_groups;
    stk_graph_edge *group_edges;
    uint32_t n_group_edges;
    grown_edge *grown; /* of a growing document */
    uint32_t n_grown;
    bool by_step; /* a box is a step */
} picture;

/* --- edges of the spec --- */

static uint64_t count_needs(const stk_input *inputs, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += inputs[i].kind == STK_INPUT_OUTPUT;
        if (inputs[i].kind == STK_INPUT_LIST) {
            sum += count_needs(inputs[i].items, inputs[i].n_items);
        }
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

/* --- edges of a document that grows --- */

/* Which edges lead back: a walk from the first step meets them while it is still below their
 * target. */
static int find_back_edges(picture *p, stk_err *err)
{
    enum { NEW, OPEN, DONE };
    const stk_spec *spec = stk_view_spec(p->view);
    unsigned char *seen = stk_arena_array(p->arena, (size_t)p->n_steps + 1, 1);
    uint32_t *stack = stk_arena_array(p->arena, (size_t)p->n_steps + 1, sizeof *stack);
    uint32_t *at = stk_arena_array(p->arena, (size_t)p->n_steps + 1, sizeof *at);
    uint32_t *first = stk_arena_array(p->arena, (size_t)p->n_steps + 2, sizeof *first);
    if (!seen || !stack || !at || !first) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        first[i + 1] = first[i] + stk_spec_step(spec, i)->n_next;
    }
    for (uint32_t root = 0; root < p->n_steps; root++) {
        uint32_t depth = 0;
        if (seen[root] == NEW) {
            stack[depth++] = root;
            seen[root] = OPEN;
        }
        while (depth > 0) {
            uint32_t v = stack[depth - 1];
            if (at[v] == stk_spec_step(spec, v)->n_next) {
                seen[v] = DONE;
                depth--;
                continue;
            }
            grown_edge *e = &p->grown[first[v] + at[v]++];
            e->is_back = seen[e->to] == OPEN;
            if (seen[e->to] == NEW) {
                seen[e->to] = OPEN;
                stack[depth++] = e->to;
            }
        }
    }
    return 0;
}

/* "×1,000" of a foreach, "4 ranks", the case of a switch; NULL: nothing. */
static const char *text_of(const picture *p, const stk_step *step, uint32_t i_step, uint32_t k)
{
    char count[32];
    uint32_t width = 0, ranks = step->num_parallel;
    for (uint32_t i = 0; i < stk_view_n_tasks(p->view); i++) {
        const stk_view_task *task = stk_view_get_task(p->view, i);
        if (task->i_step == i_step) {
            width = MAX(task->width, width);
        } else if (task->i_step == step->next[k]) {
            ranks = MAX(task->ranks, ranks);
        }
    }
    switch (step->grows) {
    case STK_NEXT_FOREACH:
        return width == 0
                   ? "each"
                   : stk_arena_printf(p->arena, "×%s", stk_text_count(width, count, sizeof count));
    case STK_NEXT_PARALLEL:
        return ranks > 0 ? stk_arena_printf(p->arena, "%u ranks", ranks) : "ranks";
    case STK_NEXT_SWITCH:
        return step->cases != NULL ? step->cases[k] : NULL;
    default:
        return NULL;
    }
}

static int find_grown_edges(picture *p, stk_err *err)
{
    const stk_spec *spec = stk_view_spec(p->view);
    uint64_t n = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        n += stk_spec_step(spec, i)->n_next;
    }
    p->edges = n < UINT32_MAX ? stk_arena_array(p->arena, n + 1, sizeof *p->edges) : NULL;
    p->grown = n < UINT32_MAX ? stk_arena_array(p->arena, n + 1, sizeof *p->grown) : NULL;
    if (p->edges == NULL || p->grown == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        for (uint32_t k = 0; k < step->n_next; k++) {
            const char *text = n <= MAX_NODES ? text_of(p, step, i, k) : NULL;
            p->grown[p->n_grown++] =
                (grown_edge){.from = i, .to = step->next[k], .kind = step->grows, .text = text};
        }
    }
    int rc = find_back_edges(p, err);
    for (uint32_t i = 0; i < p->n_grown; i++) {
        if (!p->grown[i].is_back) {
            p->edges[p->n_edges++] = (stk_graph_edge){p->grown[i].from, p->grown[i].to};
        }
    }
    p->n_edges = unique_edges(p->edges, p->n_edges);
    STK_TRY(rc);
    return stk_graph_layers(p->n_steps, p->edges, p->n_edges, p->arena, &p->layer, &p->n_layers,
                            err);
}

static int find_edges(picture *p, stk_err *err)
{
    const stk_spec *spec = stk_view_spec(p->view);
    uint64_t n = 0;
    p->n_steps = stk_spec_n_steps(spec);
    if (stk_view_grows(p->view)) {
        return find_grown_edges(p, err);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        n += step->n_after + count_needs(step->inputs, step->n_inputs);
    }
    p->edges = n < UINT32_MAX ? stk_arena_array(p->arena, n + 1, sizeof *p->edges) : NULL;
    if (p->edges == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        add_needs(p, i, step->inputs, step->n_inputs);
        for (uint32_t k = 0; k < step->n_after; k++) {
            p->edges[p->n_edges++] = (stk_graph_edge){step->after[k], i};
        }
    }
    p->n_edges = unique_edges(p->edges, p->n_edges);
    return stk_graph_layers(p->n_steps, p->edges, p->n_edges, p->arena, &p->layer, &p->n_layers,
                            err);
}

/* --- groups --- */

/* What a group is called after: the step, its name without digits, the layer, a range of layers. */
typedef enum { BY_STEP, BY_STEM, BY_LAYER, BY_RANGE, N_LEVELS } level;

static const char *key_of(const picture *p, level how, uint32_t step, char *buf, size_t size)
{
    const char *name = stk_spec_step(stk_view_spec(p->view), step)->name;
    uint32_t layer = p->layer[step];
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

/* Of one task its last attempt, of many from the first start to the last end. */
static int64_t took_ms(const picture *p, uint32_t i_step)
{
    const stk_view_step *step = stk_view_get_step(p->view, i_step);
    if (step->n == 0) {
        return 0;
    }
    const stk_view_task *task = stk_view_get_task(p->view, step->first);
    int64_t from = step->n == 1 ? task->started_ms : step->started_ms;
    bool runs = step->by_state[STK_TASK_RUNNING] + step->by_state[STK_TASK_BACKOFF] > 0;
    int64_t end = runs ? 0 : step->ended_ms;
    if (step->n == 1) {
        end = task->ended_ms;
    }
    if (!end) {
        end = p->now_ms;
    }
    return from > 0 && end > from ? end - from : 0;
}

static int add_to_group(picture *p, level how, uint32_t i, stk_map *known, stk_err *err)
{
    char buf[STK_LIMIT_NAME + 32];
    const char *key = key_of(p, how, i, buf, sizeof buf);
    const char *name = stk_spec_step(stk_view_spec(p->view), i)->name;
    stk_task_state state = stk_view_worst(stk_view_get_step(p->view, i));
    uint64_t g = i;
    if (how == BY_STEP || !stk_map_get(known, key, &g)) {
        if (p->n_groups == MAX_NODES) {
            return STK_E_LIMIT;
        }
        const char *own = stk_arena_dup(p->arena, key);
        g = p->n_groups++;
        if (own == NULL || (how != BY_STEP && stk_map_put(known, own, g) < 0)) {
            return stk_err_nomem(err);
        }
        const char *space = how == BY_STEM ? strchr(own, ' ') : NULL;
        p->groups[g] =
            (group){.label = space ? space + 1 : own, .step = i, .state = STK_TASK_CACHED};
    }
    group *to = &p->groups[g];
    to->n++;
    to->ms += took_ms(p, i);
    if (to->n == 1 && how == BY_STEM) {
        to->label = name;
    }
    if (badness(state) > badness(to->state)) {
        to->state = state;
    }
    p->group_of[i] = (uint32_t)g;
    return 0;
}

/* STK_E_LIMIT: still too many nodes or edges on this level. */
static int make_groups(picture *p, level how, stk_err *err)
{
    stk_map known = {0};
    int rc = how != BY_STEP && how != BY_RANGE && p->n_layers > MAX_LAYERS ? STK_E_LIMIT : 0;
    p->n_groups = 0;
    for (uint32_t i = 0; rc == 0 && i < p->n_steps; i++) {
        rc = add_to_group(p, how, i, &known, err);
    }
    for (uint32_t g = 0; rc == 0 && how == BY_STEM && g < p->n_groups; g++) {
        if (p->groups[g].n > 1) { /* the label of the first one was its own name */
            char buf[STK_LIMIT_NAME + 32];
            key_of(p, how, p->groups[g].step, buf, sizeof buf);
            p->groups[g].label = stk_arena_dup(p->arena, strchr(buf, ' ') + 1);
        }
    }
    stk_map_done(&known);
    for (uint32_t i = 0; rc == 0 && i < p->n_edges; i++) {
        p->group_edges[i] =
            (stk_graph_edge){p->group_of[p->edges[i].from], p->group_of[p->edges[i].to]};
    }
    p->n_group_edges = rc == 0 ? unique_edges(p->group_edges, p->n_edges) : 0;
    STK_TRY(rc);
    return p->n_group_edges > MAX_EDGES ? STK_E_LIMIT : 0;
}

/* --- drawing --- */

typedef struct frame {
    bool across; /* layers go from left to right */
    double node_w;
    stk_graph_layout layout;
} frame;

/* Below the name in its box. */
static void put_sub(const picture *p, const group *it, stk_buf *out)
{
    const stk_view_step *step = stk_view_get_step(p->view, it->step);
    char text[64];
    if (it->n > 1) {
        stk_buf_printf(out, "%s steps", stk_text_count(it->n, text, sizeof text));
    } else if (step->n == 0) {
        stk_buf_text(out, "not reached");
    } else {
        if (step->n > 1) {
            stk_buf_printf(out, "×%s · ", stk_text_count(step->n, text, sizeof text));
        }
        stk_buf_text(out, step->started_ms > 0
                              ? stk_units_format_duration(it->ms, text, sizeof text)
                              : stk_state_word(it->state));
    }
}

static double node_width(const picture *p)
{
    int widest = 6;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        STK_BUF_AUTO sub = STK_BUF_INIT(256);
        put_sub(p, &p->groups[g], &sub);
        int width = stk_text_width(p->groups[g].label);
        int below = stk_text_width(stk_text_or(sub.data, "")) * 7 / 8; /* its letters are smaller */
        width = MAX(below, width);
        widest = MAX(width, widest);
    }
    return widest > 21 ? 220 : MAX(widest * 8.2 + 46, 104);
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
    double x = f->across ? along : cross;
    double y = f->across ? cross : along;
    stk_buf_printf(out, "%c%.1f %.1f", letter, x, y);
}

/* What is said on an edge, beside it: on the side to which it turns (-1, 1; 0 on either). */
static void draw_text(const frame *f, double along, double cross, int side, const char *text,
                      stk_buf *out)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(1024);
    double x = cross + (side < 0 ? -6 : 6), y = along + 4;
    stk_text_fit(&cut, text, MAX_SAID, false, true);
    const char *where = side < 0 ? " before" : " beside";
    if (f->across) {
        x = along;
        y = cross + (side > 0 ? 14 : -6);
        where = "";
    }
    stk_buf_printf(out, "<text class=\"on%s\" x=\"%.1f\" y=\"%.1f\">", where, x, y);
    stk_buf_html(out, stk_text_or(cut.data, ""));
    stk_buf_text(out, "</text>\n");
}

static void draw_edge(const frame *f, const stk_graph_route *route, uint32_t from_layer,
                      const grown_edge *said, stk_buf *out)
{
    double thick = f->across ? f->node_w : NODE_H;
    double centre = MARGIN + (f->across ? NODE_H : f->node_w) / 2;
    stk_buf_printf(out, "<path class=\"edge%s\" marker-end=\"url(#tip)\" d=\"",
                   said != NULL && said->kind == STK_NEXT_SWITCH ? " maybe" : "");
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
    if (said != NULL && said->text != NULL && route->n > 1) {
        double a = layer_at(f, from_layer) + thick, b = layer_at(f, from_layer + 1);
        double turn = route->cross[1] - route->cross[0];
        draw_text(f, a + (b - a) * (f->across ? 0.5 : 0.62), centre + route->cross[1],
                  (turn > 1) - (turn < -1), said->text, out);
    }
}

/* A loop's way back: out of the box at its side, along the picture's edge (`rail`), and in again.
 */
static void draw_back(const frame *f, const grown_edge *e, double rail, stk_buf *out)
{
    double thick = f->across ? f->node_w : NODE_H;
    double side = f->across ? NODE_H : f->node_w;
    double spread = e->from == e->to ? thick / 4 : thick / 8;
    double a = layer_at(f, f->layout.layer[e->from]) + thick / 2 + spread;
    double b = layer_at(f, f->layout.layer[e->to]) + thick / 2 - spread;
    double from = MARGIN + f->layout.cross[e->from] + side;
    double to = MARGIN + f->layout.cross[e->to] + side + 6;
    stk_buf_text(out, "<path class=\"edge maybe\" marker-end=\"url(#tip)\" d=\"");
    point(f, out, 'M', a, from);
    point(f, out, 'C', a, rail);
    point(f, out, ' ', a, rail);
    point(f, out, ' ', a - thick / 8, rail);
    point(f, out, 'L', b + thick / 8, rail);
    point(f, out, 'C', b, rail);
    point(f, out, ' ', b, rail);
    point(f, out, ' ', b, to);
    stk_buf_text(out, "\"/>\n");
    if (e->text != NULL) {
        draw_text(f, (a + b) / 2, rail, 0, e->text, out);
    }
}

static void draw_node(const picture *p, const frame *f, uint32_t g, stk_buf *out)
{
    const group *it = &p->groups[g];
    const char *status = stk_state_word(it->state);
    const stk_view_step *step = stk_view_get_step(p->view, it->step);
    bool reached = it->n > 1 || step->n > 0;
    stk_ink ink;
    double x, y;
    corner(f, g, &x, &y);
    stk_buf_printf(out, "<g class=\"node s-%s%s\"><title>", status, reached ? "" : " far");
    stk_buf_html(out, it->label);
    stk_buf_text(out, ": ");
    if (it->n == 1 && step->n > 1) {
        stk_show_counts(step, out);
    } else {
        stk_buf_text(out, reached ? status : "not reached");
    }
    stk_buf_printf(out,
                   "</title><rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%d\" rx=\"8\"/>",
                   x, y, f->node_w, NODE_H);
    stk_buf_printf(out, "<text class=\"mark\" x=\"%.1f\" y=\"%.1f\">%s</text>", x + 18, y + 27,
                   reached ? stk_text_mark(status, true, &ink) : "");
    STK_BUF_AUTO label = STK_BUF_INIT(1024);
    stk_text_fit(&label, it->label, 21, false, true);
    stk_buf_printf(out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">", x + 32, y + 19);
    stk_buf_html(out, stk_text_or(label.data, ""));
    stk_buf_printf(out, "</text><text class=\"sub\" x=\"%.1f\" y=\"%.1f\">", x + 32, y + 34);
    put_sub(p, it, out);
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

/* What is said on an edge between two boxes; NULL: nothing. */
static const grown_edge *said_on(const picture *p, const stk_graph_edge *edge)
{
    for (uint32_t i = 0; p->by_step && i < p->n_grown; i++) {
        if (p->grown[i].from == edge->from && p->grown[i].to == edge->to) {
            return &p->grown[i];
        }
    }
    return NULL;
}

/* The room that the ways back take beside the boxes, with what is said on them. */
static double back_room(const picture *p, const frame *f, double each)
{
    double room = 0, text = 0;
    for (uint32_t i = 0; p->by_step && i < p->n_grown; i++) {
        if (p->grown[i].is_back) {
            int columns = p->grown[i].text != NULL ? stk_text_width(p->grown[i].text) : 0;
            columns = MIN(columns, MAX_SAID);
            room += each;
            text = MAX(columns * 7, text);
        }
    }
    return room + (f->across ? 0 : text);
}

static void draw(const picture *p, const frame *f, stk_buf *out)
{
    enum { RAIL = 26 }; /* between the ways back of loops */
    double along = 2 * MARGIN - LAYER_GAP +
                   f->layout.n_layers * ((f->across ? f->node_w : NODE_H) + LAYER_GAP);
    double cross = 2 * MARGIN + f->layout.extent + (f->across ? NODE_H : f->node_w);
    double rail = cross - MARGIN + RAIL;
    cross += back_room(p, f, RAIL);
    double w = f->across ? along : cross;
    double h = f->across ? cross : along;
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
            draw_edge(f, &f->layout.routes[i], f->layout.layer[p->group_edges[i].from],
                      said_on(p, &p->group_edges[i]), out);
        }
    }
    for (uint32_t i = 0; p->by_step && i < p->n_grown; i++) {
        if (p->grown[i].is_back) {
            draw_back(f, &p->grown[i], rail, out);
            rail += RAIL;
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
        return stk_err_nomem(err);
    }
    int rc = find_edges(&p, err);
    if (rc < 0) {
        return rc;
    }
    p.group_of = stk_arena_array(arena, (size_t)p.n_steps + 1, sizeof *p.group_of);
    p.groups = stk_arena_array(arena, MAX_NODES, sizeof *p.groups);
    p.group_edges = stk_arena_array(arena, (size_t)p.n_edges + 1, sizeof *p.group_edges);
    if (!p.group_of || !p.groups || !p.group_edges) {
        return stk_err_nomem(err);
    }
    rc = STK_E_LIMIT;
    int how = BY_STEP;
    for (; rc == STK_E_LIMIT && how < N_LEVELS; how++) {
        rc = make_groups(&p, (level)how, &own);
        rc = rc < 0 ? rc : place(&p, &f, &own);
    }
    *ret_collapsed = how - 1 > BY_STEP;
    p.by_step = !*ret_collapsed;
    if (rc < 0) {
        return stk_err_set(err, rc, "%s", own.text);
    }
    draw(&p, &f, out);
    return 0;
}
