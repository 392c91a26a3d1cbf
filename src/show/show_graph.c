#include "show/show_graph.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

enum { MAX_VERTICES = 4000, SWEEPS = 12, RELAXATIONS = 48 };

/* Neighbours in one direction: those of v are list[start[v]] … list[start[v + 1] - 1]. */
typedef struct links {
    uint32_t *start;
    uint32_t *list;
} links;

static int make_links(uint32_t n, const stk_graph_edge *edges, uint32_t n_edges, bool forward,
                      stk_arena *arena, links *ret, stk_err *err)
{
    uint32_t *start = stk_arena_array(arena, (size_t)n + 2, sizeof *start);
    uint32_t *list = stk_arena_array(arena, (size_t)n_edges + 1, sizeof *list);
    if (start == NULL || list == NULL) {
        return stk_err_nomem(err);
    }
    /* Counts v at index v + 2, so that after filling `list` each start stands at its own index. */
    for (uint32_t i = 0; i < n_edges; i++) {
        uint32_t v = forward ? edges[i].from : edges[i].to;
        if (v + 2 <= n + 1) {
            start[v + 2]++;
        }
    }
    for (uint32_t v = 2; v <= n + 1; v++) {
        start[v] += start[v - 1];
    }
    for (uint32_t i = 0; i < n_edges; i++) {
        uint32_t v = forward ? edges[i].from : edges[i].to;
        list[start[v + 1]++] = forward ? edges[i].to : edges[i].from;
    }
    *ret = (links){start, list};
    return 0;
}

int stk_graph_layers(uint32_t n, const stk_graph_edge *edges, uint32_t n_edges, stk_arena *arena,
                     uint32_t **ret_layer, uint32_t *ret_n_layers, stk_err *err)
{
    links down;
    uint32_t *layer = stk_arena_array(arena, (size_t)n + 1, sizeof *layer);
    uint32_t *missing = stk_arena_array(arena, (size_t)n + 1, sizeof *missing);
    uint32_t *queue = stk_arena_array(arena, (size_t)n + 1, sizeof *queue);
    bool *is_source = stk_arena_array(arena, (size_t)n + 1, sizeof *is_source);
    if (!layer || !missing || !queue || !is_source ||
        make_links(n, edges, n_edges, true, arena, &down, err) < 0) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n_edges; i++) {
        missing[edges[i].to]++;
    }
    uint32_t head = 0, tail = 0, n_layers = n > 0 ? 1 : 0;
    for (uint32_t v = 0; v < n; v++) {
        is_source[v] = missing[v] == 0;
        if (is_source[v]) {
            queue[tail++] = v;
        }
    }
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint32_t k = down.start[v]; k < down.start[v + 1]; k++) {
            uint32_t w = down.list[k];
            layer[w] = MAX(layer[v] + 1, layer[w]);
            n_layers = MAX(layer[w] + 1, n_layers);
            if (--missing[w] == 0) {
                queue[tail++] = w;
            }
        }
    }
    for (uint32_t v = 0; v < n; v++) {
        uint32_t first = UINT32_MAX;
        for (uint32_t k = down.start[v]; is_source[v] && k < down.start[v + 1]; k++) {
            if (layer[down.list[k]] < first) {
                first = layer[down.list[k]];
            }
        }
        if (first != UINT32_MAX && first > 0) {
            layer[v] = first - 1;
        }
    }
    *ret_layer = layer;
    *ret_n_layers = n_layers;
    return 0;
}

/* --- vertices: nodes, then one a layer for each edge that passes through it --- */

typedef struct drawing {
    uint32_t n_nodes, n, n_layers;
    uint32_t *layer;       /* of each vertex */
    uint32_t *first;       /* by edge: its first passing vertex; the others follow it */
    stk_graph_edge *parts; /* edges between neighbouring layers */
    uint32_t n_parts;
    links up, down;
    uint32_t **order; /* vertices of each layer, in their order */
    uint32_t *count;  /* of each layer */
    uint32_t *place;  /* of each vertex in its layer */
} drawing;

static bool is_forward(const drawing *d, const stk_graph_edge *e)
{
    return d->layer[e->from] < d->layer[e->to];
}

static int add_vertices(drawing *d, const uint32_t *layer, const stk_graph_edge *edges,
                        uint32_t n_edges, stk_arena *arena, stk_err *err)
{
    uint64_t n = d->n_nodes, n_parts = 0;
    for (uint32_t i = 0; i < n_edges; i++) {
        uint32_t from = layer[edges[i].from], to = layer[edges[i].to];
        if (from < to) {
            n += to - from - 1;
            n_parts += to - from;
        }
    }
    if (n > MAX_VERTICES) {
        return stk_err_set(err, STK_E_LIMIT, "the graph is too large for a picture");
    }
    d->layer = stk_arena_array(arena, n + 1, sizeof *d->layer);
    d->first = stk_arena_array(arena, (size_t)n_edges + 1, sizeof *d->first);
    d->parts = stk_arena_array(arena, n_parts + 1, sizeof *d->parts);
    if (!d->layer || !d->first || !d->parts) {
        return stk_err_nomem(err);
    }
    memcpy(d->layer, layer, d->n_nodes * sizeof *layer);
    d->n = d->n_nodes;
    for (uint32_t i = 0; i < n_edges; i++) {
        if (!is_forward(d, &edges[i])) {
            continue;
        }
        d->first[i] = d->n;
        uint32_t last = edges[i].from;
        for (uint32_t at = layer[edges[i].from] + 1; at < layer[edges[i].to]; at++) {
            d->layer[d->n] = at;
            d->parts[d->n_parts++] = (stk_graph_edge){last, d->n};
            last = d->n++;
        }
        d->parts[d->n_parts++] = (stk_graph_edge){last, edges[i].to};
    }
    STK_TRY(make_links(d->n, d->parts, d->n_parts, true, arena, &d->down, err));
    return make_links(d->n, d->parts, d->n_parts, false, arena, &d->up, err);
}

static int make_order(drawing *d, stk_arena *arena, stk_err *err)
{
    d->count = stk_arena_array(arena, (size_t)d->n_layers + 1, sizeof *d->count);
    d->order = stk_arena_array(arena, (size_t)d->n_layers + 1, sizeof *d->order);
    d->place = stk_arena_array(arena, (size_t)d->n + 1, sizeof *d->place);
    uint32_t *all = stk_arena_array(arena, (size_t)d->n + 1, sizeof *all);
    if (!d->count || !d->order || !d->place || !all) {
        return stk_err_nomem(err);
    }
    for (uint32_t v = 0; v < d->n; v++) {
        d->count[d->layer[v]]++;
    }
    for (uint32_t l = 0; l < d->n_layers; l++) {
        d->order[l] = all;
        all += d->count[l];
        d->count[l] = 0;
    }
    for (uint32_t v = 0; v < d->n; v++) {
        uint32_t l = d->layer[v];
        d->place[v] = d->count[l];
        d->order[l][d->count[l]++] = v;
    }
    return 0;
}

/* --- order --- */

typedef struct keyed {
    double key;
    uint32_t place, vertex;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    int by = (x->key > y->key) - (x->key < y->key);
    if (by == 0) {
        by = (x->place > y->place) - (x->place < y->place);
    }
    return by;
}

static void sort_layer(drawing *d, uint32_t l, const links *towards, keyed *scratch)
{
    for (uint32_t i = 0; i < d->count[l]; i++) {
        uint32_t v = d->order[l][i];
        uint32_t from = towards->start[v], to = towards->start[v + 1];
        double sum = 0;
        for (uint32_t k = from; k < to; k++) {
            sum += d->place[towards->list[k]];
        }
        scratch[i] = (keyed){i, i, v};
        if (from < to) {
            scratch[i].key = sum / (to - from);
        }
    }
    qsort(scratch, d->count[l], sizeof *scratch, by_key);
    for (uint32_t i = 0; i < d->count[l]; i++) {
        d->order[l][i] = scratch[i].vertex;
        d->place[scratch[i].vertex] = i;
    }
}

/* Counts the crossings between neighbouring layers: inversions, by a Fenwick tree over the places
 * in the lower layer. */
static uint64_t count_crossings(const drawing *d, uint32_t *tree)
{
    uint64_t crossings = 0;
    for (uint32_t l = 0; l + 1 < d->n_layers; l++) {
        uint32_t size = d->count[l + 1], seen = 0;
        memset(tree, 0, ((size_t)size + 1) * sizeof *tree);
        for (uint32_t i = 0; i < d->count[l]; i++) {
            uint32_t v = d->order[l][i], from = d->down.start[v], to = d->down.start[v + 1];
            for (uint32_t k = from; k < to; k++) {
                uint32_t at_most = 0;
                for (uint32_t p = d->place[d->down.list[k]] + 1; p > 0; p &= p - 1) {
                    at_most += tree[p];
                }
                crossings += seen - at_most;
            }
            for (uint32_t k = from; k < to; k++, seen++) {
                for (uint32_t p = d->place[d->down.list[k]] + 1; p <= size; p += p & -p) {
                    tree[p]++;
                }
            }
        }
    }
    return crossings;
}

static int order_layers(drawing *d, stk_arena *arena, stk_err *err)
{
    keyed *scratch = stk_arena_array(arena, (size_t)d->n + 1, sizeof *scratch);
    uint32_t *best = stk_arena_array(arena, (size_t)d->n + 1, sizeof *best);
    uint32_t *tree = stk_arena_array(arena, (size_t)d->n + 2, sizeof *tree);
    if (!scratch || !best || !tree) {
        return stk_err_nomem(err);
    }
    uint64_t fewest = UINT64_MAX;
    for (int sweep = 0; sweep <= SWEEPS && fewest > 0; sweep++) {
        uint64_t crossings = count_crossings(d, tree);
        if (crossings < fewest) {
            fewest = crossings;
            memcpy(best, d->place, d->n * sizeof *best);
        }
        for (uint32_t l = 1; sweep % 2 == 0 && l < d->n_layers; l++) {
            sort_layer(d, l, &d->up, scratch);
        }
        for (uint32_t l = d->n_layers; sweep % 2 == 1 && l-- > 1;) {
            sort_layer(d, l - 1, &d->down, scratch);
        }
    }
    for (uint32_t v = 0; v < d->n; v++) {
        d->place[v] = best[v];
        d->order[d->layer[v]][best[v]] = v;
    }
    return 0;
}

/* --- positions --- */

/* Finds the positions nearest to the wanted ones (least squares) that keep order and distances:
 * subtracts the room before each vertex, pools neighbours that are out of order into blocks at
 * their mean (isotonic regression), and adds the room again. */
static void settle(const drawing *d, uint32_t l, const double *wanted, const double *room,
                   double *cross, double *mean, uint32_t *size)
{
    uint32_t n_blocks = 0;
    for (uint32_t i = 0; i < d->count[l]; i++) {
        mean[n_blocks] = wanted[i] - room[i];
        size[n_blocks++] = 1;
        while (n_blocks > 1 && mean[n_blocks - 2] > mean[n_blocks - 1]) {
            uint32_t a = n_blocks - 2, b = n_blocks - 1;
            mean[a] = (mean[a] * size[a] + mean[b] * size[b]) / (size[a] + size[b]);
            size[a] += size[b];
            n_blocks--;
        }
    }
    for (uint32_t block = 0, i = 0; block < n_blocks; block++) {
        for (uint32_t k = 0; k < size[block]; k++, i++) {
            cross[d->order[l][i]] = mean[block] + room[i];
        }
    }
}

/* Sum and weight of the neighbours' positions. Passing vertices pull hard, so that long edges run
 * straight. */
static void pull(const drawing *d, const links *towards, uint32_t v, const double *cross,
                 double *sum, double *weight)
{
    for (uint32_t k = towards->start[v]; k < towards->start[v + 1]; k++) {
        uint32_t w = towards->list[k];
        static const double strengths[] = {1, 0.25, 8}; /* by the number of passing vertices */
        double strength = strengths[(v >= d->n_nodes) + (w >= d->n_nodes)];
        *sum += strength * cross[w];
        *weight += strength;
    }
}

/* The wanted positions of a layer's vertices. The first pass places them by their order, centred;
 * the next ones at the mean of their neighbours in the layer before or after; the last ones at the
 * mean of both. */
static void want(const drawing *d, uint32_t l, int pass, const double *cross, const double *room,
                 double *wanted)
{
    bool both = pass > RELAXATIONS / 3;
    for (uint32_t i = 0; i < d->count[l]; i++) {
        uint32_t v = d->order[l][i];
        double sum = 0, weight = 0, width = room[d->count[l] - 1];
        if (pass > 0 && (both || pass % 2 == 0)) {
            pull(d, &d->up, v, cross, &sum, &weight);
        }
        if (pass > 0 && (both || pass % 2 == 1)) {
            pull(d, &d->down, v, cross, &sum, &weight);
        }
        wanted[i] = pass == 0 ? room[i] - width / 2 : cross[v];
        if (weight > 0) {
            wanted[i] = sum / weight;
        }
    }
}

static double *positions(const drawing *d, double node_gap, double edge_gap, stk_arena *arena)
{
    double *cross = stk_arena_array(arena, (size_t)d->n + 1, sizeof *cross);
    double *wanted = stk_arena_array(arena, (size_t)d->n + 1, sizeof *wanted);
    double *room = stk_arena_array(arena, (size_t)d->n + 1, sizeof *room);
    double *mean = stk_arena_array(arena, (size_t)d->n + 1, sizeof *mean);
    uint32_t *size = stk_arena_array(arena, (size_t)d->n + 1, sizeof *size);
    if (!cross || !wanted || !room || !mean || !size) {
        return NULL;
    }
    for (int pass = 0; pass <= RELAXATIONS; pass++) {
        for (uint32_t k = 0; k < d->n_layers; k++) {
            uint32_t l = pass % 2 == 0 ? k : d->n_layers - 1 - k;
            room[0] = 0;
            for (uint32_t i = 1; i < d->count[l]; i++) {
                bool thin = d->order[l][i] >= d->n_nodes || d->order[l][i - 1] >= d->n_nodes;
                room[i] = room[i - 1] + (thin ? edge_gap : node_gap);
            }
            want(d, l, pass, cross, room, wanted);
            settle(d, l, wanted, room, cross, mean, size);
        }
    }
    return cross;
}

static int make_routes(const drawing *d, const stk_graph_edge *edges, uint32_t n_edges,
                       const double *cross, stk_arena *arena, stk_graph_layout *ret, stk_err *err)
{
    stk_graph_route *routes = stk_arena_array(arena, (size_t)n_edges + 1, sizeof *routes);
    STK_TRY(stk_err_if_null(routes, err));
    for (uint32_t i = 0; i < n_edges; i++) {
        if (!is_forward(d, &edges[i])) {
            continue;
        }
        uint32_t n = d->layer[edges[i].to] - d->layer[edges[i].from] + 1;
        double *points = stk_arena_array(arena, n, sizeof *points);
        STK_TRY(stk_err_if_null(points, err));
        points[0] = cross[edges[i].from];
        for (uint32_t k = 1; k + 1 < n; k++) {
            points[k] = cross[d->first[i] + k - 1];
        }
        points[n - 1] = cross[edges[i].to];
        routes[i] = (stk_graph_route){n, points};
    }
    ret->routes = routes;
    return 0;
}

int stk_graph_place(uint32_t n_nodes, const stk_graph_edge *edges, uint32_t n_edges,
                    double node_gap, double edge_gap, stk_arena *arena,
                    stk_graph_layout *ret_layout, stk_err *err)
{
    drawing d = {.n_nodes = n_nodes};
    uint32_t *layer;
    STK_TRY(stk_graph_layers(n_nodes, edges, n_edges, arena, &layer, &d.n_layers, err));
    STK_TRY(add_vertices(&d, layer, edges, n_edges, arena, err));
    STK_TRY(make_order(&d, arena, err));
    STK_TRY(order_layers(&d, arena, err));
    double *cross = positions(&d, node_gap, edge_gap, arena);
    STK_TRY(stk_err_if_null(cross, err));
    double low = cross[0], high = low; /* 0 if there are no vertices */
    for (uint32_t v = 0; v < d.n; v++) {
        low = MIN(cross[v], low);
        high = MAX(cross[v], high);
    }
    for (uint32_t v = 0; v < d.n; v++) {
        cross[v] -= low;
    }
    *ret_layout = (stk_graph_layout){
        .n_layers = d.n_layers, .extent = high - low, .layer = layer, .cross = cross};
    return make_routes(&d, edges, n_edges, cross, arena, ret_layout, err);
}
