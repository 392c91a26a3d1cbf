#include "cli/cli_live.h"

#include <stdio.h>

#include "cli/cli_cancelling.h"
#include "cli/cli_read.h"
#include "cli/cli_redraw.h"
#include "show/top/top.h"

enum { SAID = 300 };

typedef struct live {
    stk_top *top;
    stk_top_screen *screen;
    stk_cli_cancelling cancelling;
} live;

static void begin_cancel(live *l)
{
    const char *store = NULL, *run = NULL;
    char text[SAID];
    stk_err err = {0};
    stk_top_screen_asked(l->screen, &store, &run);
    if (stk_cli_cancelling_begin(&l->cancelling, store, NULL, run, &err) < 0) {
        stk_top_screen_say(l->screen, err.text, true);
    } else {
        (void)snprintf(text, sizeof text, "cancelling run %s", run);
        stk_top_screen_say(l->screen, text, false);
    }
}

/* --- the loop's calls --- */

static int draw_live(void *arg, const stk_cli_frame *frame, stk_buf *out, stk_err *err)
{
    live *l = arg;
    stk_style style = stk_cli_style(stdout);
    style.columns = frame->columns;
    if (frame->is_due) {
        STK_TRY(stk_top_look(l->top, err));
    }
    char said[SAID];
    bool is_done = false;
    if (stk_cli_cancelling_hear(&l->cancelling, said, sizeof said, &is_done)) {
        stk_top_screen_say(l->screen, said, !is_done);
    }
    return stk_top_screen_draw(l->screen, &style, frame->rows, out, err);
}

static bool press_key(void *arg, int key)
{
    live *l = arg;
    switch (stk_top_screen_key(l->screen, key)) {
    case STK_TOP_QUIT:
        return true;
    case STK_TOP_CANCEL:
        begin_cancel(l);
        break;
    case STK_TOP_STAY:
        break;
    }
    return false;
}

int stk_cli_live(const stk_cli *cli, bool processes, int64_t period_ms, int64_t n_times,
                 stk_err *err)
{
    live l = {.cancelling = STK_CLI_CANCELLING_NONE};
    const stk_cli_picture picture = {.draw = draw_live, .key = press_key, .arg = &l};
    int rc = stk_top_open(&l.top, err);
    if (rc == 0) {
        l.screen = stk_top_screen_new(l.top, processes);
        rc = stk_err_if_null(l.screen, err);
    }
    if (rc == 0) {
        rc = stk_cli_redraw(cli, period_ms, n_times, &picture, err);
    }
    stk_top_screen_free(l.screen);
    stk_top_close(l.top);
    stk_cli_cancelling_done(&l.cancelling);
    return rc;
}
