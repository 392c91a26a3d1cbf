/* The picture of the graph: steps (or groups of them) as boxes, layer by layer. */
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"
#include "show/show_boxes.h"
#include "show/show_private.h"
#include "show/show_svg.h"
#include "show/show_text.h"

enum {
    NODE_H = 44,
    GAP = 16,       /* between boxes of a layer */
    LAYER_GAP = 52, /* between layers */
    MARGIN = 12,
    MAX_LABEL = 16, /* columns of an edge's label */
    PAGE = 1060     /* width that fits the card without scrolling */
};

/* Layers go down the page or, if `across`, from left to right. "along" is the direction in which
 * the layers follow each other, "cross" the one at right angles to it. */
typedef struct frame {
    bool across;
    double node_w;
    double thick, side; /* a node's size along and cross */
    stk_graph_layout layout;
} frame;

static void set_direction(frame *f, bool across)
{
    f->across = across;
    f->thick = across ? f->node_w : NODE_H;
    f->side = across ? NODE_H : f->node_w;
}

typedef struct spot {
    double x, y;
} spot;

static spot spot_at(const frame *f, double along, double cross)
{
    return f->across ? (spot){along, cross} : (spot){cross, along};
}

/* The line below the name in a box. */
static void put_sub(const stk_boxes *p, const stk_boxes_group *it, stk_buf *out)
{
    const stk_view_step *step = stk_view_get_step(p->view, it->step);
    char text[64];
    if (it->alike != NULL) {
        uint32_t n = it->by_state[it->state];
        bool all = n == it->n;
        stk_buf_printf(out, "%s %s", all ? "all" : stk_text_count(n, text, sizeof text),
                       stk_state_word(it->state));
    } else if (it->n > 1) {
        stk_buf_printf(out, "%s steps", stk_text_count(it->n, text, sizeof text));
    } else if (step->n == 0) {
        stk_buf_text(out, "not reached");
    } else {
        if (step->n > 1) {
            stk_buf_printf(out, "×%s · ", stk_text_count(step->n, text, sizeof text));
        }
        if (step->started_ms > 0) {
            stk_buf_text(out, stk_units_format_duration(it->ms, text, sizeof text));
        } else {
            stk_buf_text(out, stk_state_word(it->state));
        }
    }
}

static double node_width(const stk_boxes *p)
{
    int widest = 6;
    for (uint32_t g = 0; g < p->n_groups; g++) {
        STK_BUF_AUTO sub = STK_BUF_INIT(256);
        put_sub(p, &p->groups[g], &sub);
        int width = stk_text_width(p->groups[g].label);
        int below = stk_text_width(stk_text_or(sub.data, "")) * 7 / 8; /* its font is smaller */
        width = MAX(below, width);
        widest = MAX(width, widest);
    }
    return widest > 21 ? 220 : MAX(widest * 8.2 + 46, 104);
}

static double layer_at(const frame *f, uint32_t layer)
{
    return MARGIN + layer * (f->thick + LAYER_GAP);
}

static void point(const frame *f, stk_buf *out, char letter, double along, double cross)
{
    spot at = spot_at(f, along, cross);
    stk_buf_printf(out, "%c%.1f %.1f", letter, at.x, at.y);
}

/* Writes an edge's label beside it, on the side to which it turns (-1 or 1; 0: either). */
static void draw_text(const frame *f, double along, double cross, int side, const char *text,
                      stk_buf *out)
{
    STK_BUF_AUTO cut = STK_BUF_INIT(1024);
    static const struct {
        const char *where;
        double x, y; /* from the edge's point */
    } places[2][3] = {{{" before", -6, 4}, {" beside", 6, 4}, {" beside", 6, 4}},
                      {{"", 0, -6}, {"", 0, -6}, {"", 0, 14}}};
    spot at = spot_at(f, along, cross);
    stk_text_fit(&cut, text, MAX_LABEL, false, true);
    stk_buf_printf(out, "<text class=\"on%s\" x=\"%.1f\" y=\"%.1f\">",
                   places[f->across][side + 1].where, at.x + places[f->across][side + 1].x,
                   at.y + places[f->across][side + 1].y);
    stk_buf_html(out, stk_text_or(cut.data, ""));
    stk_buf_text(out, "</text>\n");
}

static void draw_edge(const frame *f, const stk_graph_route *route, uint32_t from_layer,
                      const stk_boxes_edge *grown, stk_buf *out)
{
    double thick = f->thick, centre = MARGIN + f->side / 2;
    bool maybe = grown != NULL && grown->kind == STK_NEXT_SWITCH;
    stk_buf_printf(out, "<path class=\"edge%s\" marker-end=\"url(#tip)\" d=\"",
                   stk_text_when(maybe, " maybe"));
    for (uint32_t k = 0; k + 1 < route->n; k++) {
        double tip = k + 2 == route->n ? 5 : 0;
        double a = layer_at(f, from_layer + k) + thick;
        double b = layer_at(f, from_layer + k + 1) - tip;
        double from = centre + route->cross[k], to = centre + route->cross[k + 1];
        point(f, out, k == 0 ? 'M' : 'L', a, from);
        point(f, out, 'C', (a + b) / 2, from);
        point(f, out, ' ', (a + b) / 2, to);
        point(f, out, ' ', b, to);
    }
    stk_buf_text(out, "\"/>\n");
    if (grown != NULL && grown->text != NULL && route->n > 1) {
        double a = layer_at(f, from_layer) + thick, b = layer_at(f, from_layer + 1);
        double turn = route->cross[1] - route->cross[0];
        draw_text(f, a + (b - a) * (f->across ? 0.5 : 0.62), centre + route->cross[1],
                  (turn > 1) - (turn < -1), grown->text, out);
    }
}

/* A loop's way back: out of the box's side, along the picture's border at `rail`, and in again. */
static void draw_back(const frame *f, const stk_boxes_edge *e, double rail, stk_buf *out)
{
    double thick = f->thick, side = f->side;
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

static void draw_node(const stk_boxes *p, const frame *f, uint32_t g, stk_buf *out)
{
    const stk_boxes_group *it = &p->groups[g];
    const char *status = stk_state_word(it->state);
    const stk_view_step *step = stk_view_get_step(p->view, it->step);
    const char *mark = "", *far = " far";
    spot at = spot_at(f, layer_at(f, f->layout.layer[g]), MARGIN + f->layout.cross[g]);
    double x = at.x, y = at.y;
    STK_BUF_AUTO state = STK_BUF_INIT(4096);
    if (it->n > 1 || step->n > 0) { /* it was reached */
        stk_ink ink;
        mark = stk_text_mark(status, true, &ink);
        far = "";
    }
    stk_view_step many = {.n = it->n};
    memcpy(many.by_state, it->by_state, sizeof many.by_state);
    if (it->alike != NULL) {
        stk_show_counts(&many, &state);
    } else if (it->n > 1 || step->n == 1) {
        stk_buf_text(&state, status);
    } else if (step->n > 1) {
        stk_show_counts(step, &state);
    }
    stk_buf_printf(out, "<g class=\"node s-%s%s\"><title>", status, far);
    stk_buf_html(out, it->label);
    stk_buf_printf(out, ": %s", stk_text_or(state.data, "not reached"));
    stk_buf_printf(out,
                   "</title><rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%d\" rx=\"8\"/>",
                   x, y, f->node_w, NODE_H);
    stk_buf_printf(out, "<text class=\"mark\" x=\"%.1f\" y=\"%.1f\">%s</text>", x + 18, y + 27,
                   mark);
    STK_BUF_AUTO label = STK_BUF_INIT(1024);
    stk_text_fit(&label, it->label, 21, false, true);
    stk_buf_printf(out, "<text class=\"name\" x=\"%.1f\" y=\"%.1f\">", x + 32, y + 19);
    stk_buf_html(out, stk_text_or(label.data, ""));
    stk_buf_printf(out, "</text><text class=\"sub\" x=\"%.1f\" y=\"%.1f\">", x + 32, y + 34);
    put_sub(p, it, out);
    stk_buf_text(out, "</text></g>\n");
}

static int place(const stk_boxes *p, frame *f, stk_err *err)
{
    uint32_t *layer, n_layers;
    f->node_w = node_width(p);
    STK_TRY(stk_graph_layers(p->n_groups, p->group_edges, p->n_group_edges, p->arena, &layer,
                             &n_layers, err));
    set_direction(f, n_layers * (f->node_w + LAYER_GAP) <= PAGE + LAYER_GAP);
    return stk_graph_place(p->n_groups, p->group_edges, p->n_group_edges, f->side + GAP,
                           f->side / 2 + GAP, p->arena, &f->layout, err);
}

/* The edge of a growing graph between two boxes, or NULL. */
static const stk_boxes_edge *grown_edge(const stk_boxes *p, const stk_graph_edge *edge)
{
    for (uint32_t i = 0; p->by_step && i < p->n_grown; i++) {
        if (p->grown[i].from == edge->from && p->grown[i].to == edge->to) {
            return &p->grown[i];
        }
    }
    return NULL;
}

/* The room beside the boxes that the ways back and their labels take. */
static double back_room(const stk_boxes *p, const frame *f, double each)
{
    double room = 0, text = 0;
    for (uint32_t i = 0; p->by_step && i < p->n_grown; i++) {
        if (p->grown[i].is_back) {
            int columns = stk_text_width(stk_text_or(p->grown[i].text, ""));
            columns = MIN(columns, MAX_LABEL);
            room += each;
            text = MAX(columns * 7, text);
        }
    }
    if (!f->across) {
        room += text;
    }
    return room;
}

static void draw(const stk_boxes *p, const frame *f, stk_buf *out)
{
    enum { RAIL = 26 }; /* distance between the loops' ways back */
    double along = 2 * MARGIN - LAYER_GAP + f->layout.n_layers * (f->thick + LAYER_GAP);
    double cross = 2 * MARGIN + f->layout.extent + f->side;
    double rail = cross - MARGIN + RAIL;
    spot end = spot_at(f, along, cross + back_room(p, f, RAIL));
    stk_buf_printf(
        out,
        "<svg class=\"graph%s\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "
        "role=\"img\" aria-label=\"graph of the steps\">"
        "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"2\" refY=\"4\" "
        "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">"
        "<path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
        stk_text_when(end.x <= 1.4 * PAGE, " fit"), end.x, end.y, end.x, end.y);
    for (uint32_t i = 0; i < p->n_group_edges; i++) {
        if (f->layout.routes[i].n > 1) {
            draw_edge(f, &f->layout.routes[i], f->layout.layer[p->group_edges[i].from],
                      grown_edge(p, &p->group_edges[i]), out);
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
    stk_boxes p = {.view = view, .now_ms = now_ms, .arena = arena};
    frame f = {0};
    stk_err own = {0};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_boxes_init(&p, err));
    int rc = STK_E_LIMIT, how = STK_BOXES_BY_STEP;
    for (; rc == STK_E_LIMIT && how < STK_BOXES_N_LEVELS; how++) {
        rc = stk_boxes_make(&p, (stk_boxes_level)how, &own);
        if (rc == 0) {
            rc = place(&p, &f, &own);
        }
    }
    *ret_collapsed = how - 1 > STK_BOXES_BY_STEP;
    p.by_step = !*ret_collapsed;
    if (rc < 0) {
        return stk_err_set(err, rc, "%s", own.text);
    }
    draw(&p, &f, out);
    return 0;
}
