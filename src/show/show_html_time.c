/* The timelines of a run's card. */
#include "show/show_html_private.h"
#include "show/show_svg.h"

int stk_html_timelines(const page *p)
{
    STK_BUF_AUTO steps = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_BUF_AUTO lanes = STK_BUF_INIT(MAX_CARD_BYTES);
    STK_TRY(stk_svg_timeline(p->view, p->now_ms, &steps, p->err));
    stk_html_panel(p->out, "Timeline", "<div class=\"scroll\">", &steps, "</div>");
    STK_TRY(stk_svg_lanes(p->view, p->now_ms, &lanes, p->err));
    stk_html_panel(
        p->out, "Devices and CPUs over time", "<div class=\"scroll\">", &lanes,
        "</div><p class=\"meta\">Grey is idle; a box is a task that held the device, and "
        "what is filled in it is how busy the device was.</p>");
    return 0;
}
