/* What the files that draw Vega-Lite charts share. */
#ifndef STK_SHOW_VEGA_H
#define STK_SHOW_VEGA_H

#include "base/map.h"
#include "show/show_components.h"
#include "show/show_html_private.h"

enum { VEGA_X, VEGA_Y, VEGA_COLOR, VEGA_N };
enum { VEGA_MAX_LAYERS = 8, VEGA_MAX_ROWS = 20000, VEGA_MAX_BANDS = 300 };

typedef enum { SCALE_NONE, SCALE_LINEAR, SCALE_TIME, SCALE_BAND } vega_kind;
typedef enum {
    MARK_BAR,
    MARK_LINE,
    MARK_AREA,
    MARK_POINT,
    MARK_CIRCLE,
    MARK_TICK,
    MARK_RECT,
    MARK_RULE
} vega_mark;

/* One for each of x, y and colour, shared by the layers. */
typedef struct vega_scale {
    vega_kind kind;
    double min, max; /* LINEAR, TIME (seconds): what the axis shows */
    bool known;      /* min and max are */
    bool fixed;      /* the specification says them */
    bool log, no_zero;
    bool untitled;
    char title[120];
    const char **names; /* BAND: the categories, in the order of the axis */
    double *sums;       /* … and what the other axis has of each, for sorting by it */
    uint32_t n;
    stk_map index;
    const stk_json *sort; /* as the specification says it; NULL: it doesn't */
} vega_scale;

typedef struct vega_row {
    double at[VEGA_N];  /* BAND: the category's number */
    double end[VEGA_N]; /* of a bin; else as `at` */
    double from;        /* along the axis of values: where a stacked bar or area begins */
    double sum, least, most;
    uint32_t n; /* records, where they are put together */
} vega_row;

typedef struct vega_layer {
    vega_mark mark;
    bool has[VEGA_N];
    bool dots; /* of a line: its points as well */
    bool stacks;
    int along; /* the axis of values: VEGA_Y, of lying bars VEGA_X */
    vega_row *rows;
    uint32_t n;
} vega_layer;

typedef struct vega_chart {
    char title[200];
    vega_scale scales[VEGA_N];
    vega_layer layers[VEGA_MAX_LAYERS];
    uint32_t n_layers;
    stk_arena *arena;
    char *why;
    size_t why_size;
} vega_chart;

/* False: the chart is of a kind that isn't drawn, and `why` says which. */
bool stk_vega_read(vega_chart *chart, const stk_json *spec);
void stk_vega_draw(const vega_chart *chart, bool narrow, stk_buf *out);
/* The step of ticks or bins: 1, 2 or 5 of a power of ten, at most `n` of them in `extent`. */
double stk_vega_step(double extent, int n);

#endif
