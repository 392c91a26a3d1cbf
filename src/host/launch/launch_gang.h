/* A gang on several nodes: how the nodes meet, and how they end together. */
#ifndef STK_LAUNCH_GANG_H
#define STK_LAUNCH_GANG_H

#include "host/launch/launch_private.h"

const char *stk_launch_nodes_address(const stk_gang *g); /* MASTER_ADDR */
/* The nodes of this attempt, and the place of this one among them. */
uint32_t stk_launch_nodes_count(const stk_gang *g);
uint32_t stk_launch_nodes_place(const stk_gang *g);
/* After an attempt, on the leader: a node joined or left, and enough may be there. */
bool stk_launch_nodes_changed(const stk_gang *g);
int stk_launch_nodes_open(stk_gang *g, stk_err *err);
/* Before an attempt: waits until all nodes have joined, know the world and reach rank 0's port. On
 * failure returns an error, or sets g->ending. */
int stk_launch_nodes_meet(stk_gang *g, stk_err *err);
void stk_launch_nodes_event(stk_gang *g, launch_event kind, uint32_t i);
/* Tells the other nodes to end their ranks, since this node's ranks are being ended. */
void stk_launch_nodes_tell(stk_gang *g);
/* After an attempt: the leader waits for every node's report, a node sends its report. */
void stk_launch_nodes_finish(stk_gang *g, stk_err *err);
/* The leader's decision: another attempt (true), or the end. */
bool stk_launch_nodes_verdict(stk_gang *g);
void stk_launch_nodes_again(stk_gang *g);
/* Nothing has moved here for `ms`: has nothing moved on all nodes? Only the leader can return true;
 * a node reports `ms` to it. */
bool stk_launch_nodes_still(stk_gang *g, int64_t ms);
/* Whether all ranks of all nodes succeeded. */
bool stk_launch_nodes_clean(const stk_gang *g);
uint32_t stk_launch_nodes_first(const stk_gang *g); /* number of the first failed rank elsewhere */
/* " on node 1 (10.0.0.2)" for the rank that failed first; "": there is only this node. */
void stk_launch_nodes_where(const stk_gang *g, char *text, size_t size);
/* Add the other nodes' members and the list of nodes to gang.json. */
void stk_launch_nodes_members(const stk_gang *g, stk_buf *out);
void stk_launch_nodes_summary(const stk_gang *g, stk_buf *out);
/* The leader sends `end` to the nodes; a node replaces its `end` by the leader's. */
void stk_launch_nodes_close(stk_gang *g, stk_launch_end *end);
void stk_launch_nodes_free(stk_gang *g);

#endif
