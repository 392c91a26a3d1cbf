#include <stdio.h>

#include "report/report_components.h"

bool stk_svg_vega(const json_t *spec, stk_buf *out, char *why, size_t why_size)
{
    (void)spec;
    (void)out;
    (void)snprintf(why, why_size, "no drawing yet");
    return false;
}
