/* The style of rows, boxes and bands that stand for many alike steps. */
#include "show/show_css.h"

const char stk_show_alike_css[] =
    ".spread{margin:0 0 2px;fill:var(--gpu);max-width:100%}.spread .bad{fill:var(--bad)}\n"
    ".three{display:block;white-space:nowrap}.dim.three{font-size:11.5px}\n"
    "details.alike{margin:14px 0 0}details.alike[open]>summary{margin-bottom:10px}\n"
    "@media(max-width:700px){.graph.fit{max-width:none}}\n"
    "@media print{.scroll,.tall{overflow:visible;max-height:none}.graph{max-width:100%;"
    "height:auto}.timeline{min-width:0}}\n";
