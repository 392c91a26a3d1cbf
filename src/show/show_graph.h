/* show_graph: where to draw the nodes and edges of a graph. Pure.
 *
 * A light version of Sugiyama's method: longest paths give the layers, an edge gets an invisible
 * vertex in each layer that it crosses, barycentre sweeps order each layer (the sweep with the
 * fewest crossings wins), and least squares with a minimum distance give the positions. Coordinates
 * are (layer, cross): the caller turns layers into columns or rows.
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
    uint32_t n;          /* points: one per layer from that of `from` to that of `to` */
    const double *cross; /* of each point */
} stk_graph_route;

typedef struct stk_graph_layout {
    uint32_t n_layers;
    double extent;                 /* cross is 0 … extent, measured at the nodes' centres */
    const uint32_t *layer;         /* of each node */
    const double *cross;           /* of each node's centre */
    const stk_graph_route *routes; /* of each edge */
} stk_graph_layout;

/* The layer of each node is the length of the longest path to it. A node without incoming edges
 * stands just before the first node that it leads to. Edges of a cycle are ignored. O(nodes +
 * edges). Errors: STK_E_NOMEM. */
int stk_graph_layers(uint32_t n_nodes, const stk_graph_edge *edges, uint32_t n_edges,
                     stk_arena *arena, uint32_t **ret_layer, uint32_t *ret_n_layers, stk_err *err);

/* Lays out the graph. The centres of two nodes of one layer are at least `node_gap` apart; an edge
 * that passes through a layer keeps `edge_gap` from its neighbours. STK_E_LIMIT: the picture would
 * have more than 4,000 vertices, passing edges included, and be unreadable. */
int stk_graph_place(uint32_t n_nodes, const stk_graph_edge *edges, uint32_t n_edges,
                    double node_gap, double edge_gap, stk_arena *arena,
                    stk_graph_layout *ret_layout, stk_err *err);

#endif
