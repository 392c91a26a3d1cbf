/* A gang on several nodes: who they are, how they meet, one end of all. */
#ifndef STK_LAUNCH_GANG_H
#define STK_LAUNCH_GANG_H

#include "host/launch/launch_private.h"

const char *stk_launch_nodes_address(const stk_gang *g); /* MASTER_ADDR */
int stk_launch_nodes_open(stk_gang *g, stk_err *err);
/* Before an attempt: all nodes are there, know each other, and reach rank 0's port; or an error, or
 * g->ending says why not. */
int stk_launch_nodes_meet(stk_gang *g, stk_err *err);
void stk_launch_nodes_event(stk_gang *g, launch_event kind, uint32_t i);
/* This node's ranks are being ended: so are the others'. */
void stk_launch_nodes_tell(stk_gang *g);
/* After an attempt: the leader has heard how it ended everywhere, a node has told. */
void stk_launch_nodes_finish(stk_gang *g, stk_err *err);
/* What the leader decided: again (true), or the end. */
bool stk_launch_nodes_verdict(stk_gang *g);
void stk_launch_nodes_again(stk_gang *g);
/* Nothing has moved here for `ms`: is it so on all nodes? A node tells its leader, and is told. */
bool stk_launch_nodes_still(stk_gang *g, int64_t ms);
/* Did every rank leave well, here and elsewhere? */
bool stk_launch_nodes_clean(const stk_gang *g);
uint32_t stk_launch_nodes_first(const stk_gang *g); /* the number of a rank elsewhere that failed */
/* " on node 1 (10.0.0.2)", of the rank that failed first; "": here is the only node. */
void stk_launch_nodes_where(const stk_gang *g, char *text, size_t size);
/* gang.json's members of the other nodes, and the nodes themselves. */
void stk_launch_nodes_members(const stk_gang *g, stk_buf *out);
void stk_launch_nodes_summary(const stk_gang *g, stk_buf *out);
/* The leader tells `end` (`text`: it could not be started), a node takes the leader's. */
void stk_launch_nodes_close(stk_gang *g, stk_launch_end *end);
void stk_launch_nodes_free(stk_gang *g);

#endif
