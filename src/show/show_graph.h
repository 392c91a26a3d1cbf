/* show_graph: where to draw the nodes and edges of a graph. Pure.
 *
 * Sugiyama's way, light: layers by longest path, invisible vertices where an edge crosses a layer,
 * order within a layer by barycentre sweeps (the sweep with the fewest crossings wins), positions
 * by least squares with a minimum distance. Coordinates are (layer, cross): the caller turns layers
 * into columns or rows.
 */
#ifndef STK_SHOW_GRAPH_H
#define STK_SHOW_GRAPH_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

typedef struct stk_graph_edge {
    uint32_t from;
    uint32_t to;
} stk_graph_edge;

typedef struct stk_graph_route {
    uint32_t n;          /* points, one a layer from the layer of `from` to that of `to` */
    const double *cross; /* of each point */
} stk_graph_route;

typedef struct stk_graph_layout {
    uint32_t n_layers;
    double extent;                 /* cross runs from 0 to this: centres of the outermost nodes */
    const uint32_t *layer;         /* of each node */
    const double *cross;           /* of each node's centre */
    const stk_graph_route *routes; /* of each edge */
} stk_graph_layout;

/* Layer of each node by the longest path to it; nodes nothing leads to stand just before their
 * first user. Edges of a cycle are ignored. O(nodes + edges). Errors: STK_E_NOMEM. */
int stk_graph_layers(uint32_t n_nodes, const stk_graph_edge *edges, uint32_t n_edges,
                     stk_arena *arena, uint32_t **ret_layer, uint32_t *ret_n_layers, stk_err *err);

/* The layout, with at least `node_gap` between the centres of nodes of one layer and `edge_gap`
 * between an edge that passes by and its neighbours. STK_E_LIMIT when the picture would have more
 * than 4,000 vertices, passing edges included: nobody could read it. */
int stk_graph_place(uint32_t n_nodes, const stk_graph_edge *edges, uint32_t n_edges,
                    double node_gap, double edge_gap, stk_arena *arena,
                    stk_graph_layout *ret_layout, stk_err *err);

#endif
