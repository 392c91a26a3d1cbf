/* The head and the end of pages that aren't cards. */
#include "base/text.h"
#include "show/show_css.h"
#include "show/show_html_private.h"

void stk_html_page_open(stk_buf *out, const char *title)
{
    stk_html_open(out, "img-src data:; ");
    stk_html_put(out, "%s</title>\n<style>\n", title);
    stk_buf_text(out, stk_show_css);
    stk_buf_text(out, stk_show_parts_css);
    stk_buf_text(out, stk_show_plot_css);
    stk_html_put(out,
                 "</style></head>\n<body><main>\n<header><div class=\"title\"><h1>%s</h1></div>\n",
                 title);
}

void stk_html_page_close(stk_buf *out)
{
    stk_buf_text(out, "<footer>stoker " STK_VERSION "</footer>\n</main></body></html>\n");
}
