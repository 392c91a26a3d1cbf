/* The line from a Python step's ranks to their launcher: how far each has come, and which one
 * failed first.
 *
 * All ranks write into one pipe which gates they have reached. A rank waits at a gate, an eventfd
 * that the launcher opens once every rank of every node has reached it
 * (docs/formats/task-directory.md, "Ranks"). A rank that ends before it reaches a gate fails the
 * gang, which ends the waiting ranks. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/launch/launch_nodes.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "sys/file.h"

enum { RECORD = 4 }; /* rank of this node (2 bytes, little-endian), what, 0 */

int stk_launch_line_open(stk_gang *g, stk_err *err)
{
    launch_line *line = &g->line;
    int ends[2];
    *line = LAUNCH_LINE_NONE;
    for (uint32_t i = 0; g->nodes != NULL && i < g->nodes->n_peers; i++) {
        g->nodes->peers[i].came = 0;
    }
    if (!g->config->is_python || g->config->dir == NULL) {
        return 0;
    }
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "the ranks' line to their launcher");
    }
    line->from = ends[0];
    line->fds[0] = ends[1];
    for (int i = 0; i < LINE_GATES; i++) {
        line->fds[1 + i] = eventfd(0, EFD_CLOEXEC);
        if (line->fds[1 + i] < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "a gate of %u ranks", g->n);
        }
    }
    memcpy(g->inherited + g->n_inherited, line->fds, sizeof line->fds);
    if (stk_launch_watch(g, line->from, EPOLLIN, LAUNCH_EV_LINE, 0) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "watching %u ranks", g->n);
    }
    return 0;
}

void stk_launch_line_close(stk_gang *g)
{
    if (g->line.from >= 0) {
        stk_launch_unwatch(g, g->line.from);
    }
    stk_file_close(&g->line.from);
    for (int i = 0; i < LINE_FDS; i++) {
        stk_file_close(&g->line.fds[i]);
    }
}

/* --- gates --- */

static void open_gate(stk_gang *g, uint32_t gate)
{
    uint64_t one = 1;
    if (g->line.from >= 0 && (g->line.open & 1u << gate) == 0) {
        g->line.open |= 1u << gate;
        ssize_t n = write(g->line.fds[1 + gate], &one, sizeof one);
        (void)n; /* writing 1 to an unread eventfd can't fail */
    }
}

/* Whether rank 0 may end: all ranks that might need what it hosts have ended. */
static bool all_others_ended(const stk_gang *g)
{
    bool ended = g->n_before == 0;
    for (uint32_t i = 1; i < g->n; i++) {
        ended = ended && g->ranks[i].state == RANK_ENDED;
    }
    for (uint32_t i = 0; g->nodes != NULL && i < g->nodes->n_peers; i++) {
        const launch_peer *p = &g->nodes->peers[i];
        ended = ended && (!stk_launch_takes_part(p) || p->done);
    }
    return ended;
}

static bool all_came(const stk_gang *g, uint32_t gate)
{
    bool came = true;
    for (uint32_t i = 0; i < g->n; i++) {
        came = came && (g->ranks[i].came & 1u << gate) != 0;
    }
    return came;
}

static void look_at_gate(stk_gang *g, uint32_t gate)
{
    if (gate == LINE_ALONE) {
        if (all_others_ended(g)) {
            open_gate(g, gate);
        }
        return;
    }
    bool came = all_came(g, gate);
    if (came && g->nodes != NULL && !stk_launch_leads(g)) {
        stk_launch_talk_number(g, "came", "gate", gate);
        return; /* the leader opens the gate for all nodes */
    }
    for (uint32_t i = 0; g->nodes != NULL && i < g->nodes->n_peers; i++) {
        const launch_peer *p = &g->nodes->peers[i];
        came = came && (!stk_launch_takes_part(p) || (p->came & 1u << gate) != 0);
    }
    if (came) {
        open_gate(g, gate);
        if (g->nodes != NULL) {
            stk_launch_talk_number(g, "open", "gate", gate);
        }
    }
}

void stk_launch_line_node(stk_gang *g, uint32_t i_peer, const stk_json *m)
{
    int64_t gate = stk_json_get_whole(m, "gate", -1);
    if (gate < 0 || gate >= LINE_GATES) {
        return;
    }
    if (!stk_launch_leads(g)) {
        open_gate(g, (uint32_t)gate);
        return;
    }
    g->nodes->peers[i_peer].came |= 1u << gate;
    look_at_gate(g, (uint32_t)gate);
}

void stk_launch_line_ended(stk_gang *g)
{
    if (g->line.from >= 0 && (g->ranks[0].came & 1u << LINE_ALONE) != 0) {
        look_at_gate(g, LINE_ALONE);
    }
}

/* --- records of ranks --- */

static void on_record(stk_gang *g, const unsigned char record[RECORD])
{
    uint32_t rank = record[0] | (uint32_t)record[1] << 8;
    uint32_t what = record[2];
    if (rank >= g->n) {
        return;
    }
    launch_rank *r = &g->ranks[rank];
    if (what == LINE_FAILED && r->fell == 0 && g->ending == END_NOT) {
        r->fell = ++g->line.n_fell;
    } else if (what < LINE_GATES && (r->came & 1u << what) == 0) {
        r->came |= 1u << what;
        look_at_gate(g, what);
    }
}

void stk_launch_line_read(stk_gang *g)
{
    unsigned char data[1024 * RECORD]; /* a 4-byte write to a pipe is atomic */
    ssize_t n;
    while (g->line.from >= 0 && (n = read(g->line.from, data, sizeof data)) > 0) {
        for (ssize_t at = 0; at + RECORD <= n; at += RECORD) {
            on_record(g, data + at);
        }
    }
}

int32_t stk_launch_line_first(const stk_gang *g)
{
    int32_t first = -1;
    for (uint32_t i = 0; i < g->n; i++) {
        if (g->ranks[i].fell > 0 && (first < 0 || g->ranks[i].fell < g->ranks[first].fell)) {
            first = (int32_t)i;
        }
    }
    return first;
}

void stk_launch_line_tell_why(stk_gang *g)
{
    char path[PATH_MAX];
    for (uint32_t i = 0; g->config->dir != NULL && i < g->n; i++) {
        if (g->ranks[i].state == RANK_RUNNING) {
            STK_FD_AUTO fd = open(stk_launch_path(g, i, "ended", path),
                                  O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        }
    }
}

void stk_launch_line_forget_why(stk_gang *g, uint32_t rank)
{
    char path[PATH_MAX];
    if (g->config->dir != NULL) {
        (void)unlink(stk_launch_path(g, rank, "ended", path));
    }
}
