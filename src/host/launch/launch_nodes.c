/* Several nodes: all start together and end together, or none starts
 * (docs/decisions/0006-ranks.md).
 *
 * The launcher of node 0 leads: the others connect to it, report their number of ranks, receive the
 * world, try rank 0's port, and start when all have reached it. A node that finds a reason to end
 * tells the leader, and the leader tells all; each node ends its ranks and reports how they ended.
 * A lost connection means a lost node: there is no other evidence, and both sides act on it. */
#include "host/launch/launch_nodes.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/launch/launch_gang.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "sys/file.h"

const char *stk_launch_nodes_address(const stk_gang *g)
{
    return g->nodes == NULL ? "127.0.0.1" : g->nodes->master;
}

uint32_t stk_launch_nodes_count(const stk_gang *g)
{
    uint32_t n = 0;
    for (uint32_t i = 0; g->nodes != NULL && i < g->nodes->n; i++) {
        n += g->nodes->ranks[i] > 0;
    }
    return n == 0 ? 1 : n;
}

uint32_t stk_launch_nodes_place(const stk_gang *g)
{
    uint32_t place = 0;
    for (uint32_t i = 0; g->nodes != NULL && i < g->me; i++) {
        place += g->nodes->ranks[i] > 0;
    }
    return place;
}

uint32_t stk_launch_nodes_first(const stk_gang *g)
{
    return g->nodes == NULL ? 0 : g->nodes->first_rank;
}

int32_t stk_launch_nodes_peer(const launch_nodes *s, uint32_t node)
{
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (s->peers[i].node == (int32_t)node) {
            return (int32_t)i;
        }
    }
    return -1;
}

void stk_launch_nodes_own(const stk_gang *g, char *text, size_t size)
{
    if (g->me == STK_LAUNCH_ANY_NODE) {
        (void)snprintf(text, size, "this node");
    } else {
        (void)snprintf(text, size, "node %u", g->me);
    }
}

void stk_launch_nodes_name(const stk_gang *g, uint32_t node, char *text, size_t size)
{
    const launch_nodes *s = g->nodes;
    int32_t i = -1;
    if (node > 0 && g->me == 0) {
        i = stk_launch_nodes_peer(s, node);
    }
    if (node == 0) {
        (void)snprintf(text, size, "node 0 (%s)", s->host);
    } else if (i < 0) {
        (void)snprintf(text, size, "node %u", node);
    } else if (s->peers[i].host[0] == '\0') {
        (void)snprintf(text, size, "node %u (%s)", node, s->peers[i].addr);
    } else {
        (void)snprintf(text, size, "node %u (%s, %s)", node, s->peers[i].addr, s->peers[i].host);
    }
}

void stk_launch_nodes_where(const stk_gang *g, char *text, size_t size)
{
    text[0] = '\0';
    if (g->nodes != NULL && g->first >= 0) {
        bool here = (uint32_t)g->first != g->config->ranks;
        (void)snprintf(text, size, " on ");
        stk_launch_nodes_name(g, here ? g->me : g->nodes->first_node, text + 4, size - 4);
    }
}

/* --- ending the gang --- */

void stk_launch_nodes_tell(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    if (s == NULL || (s->heard && !stk_launch_leads(g))) {
        return;
    }
    MESSAGE_AUTO m = MESSAGE;
    bool here = g->first >= 0 && (uint32_t)g->first != g->config->ranks;
    stk_launch_talk_begin(&m, "end");
    stk_json_put_int(&m, "cause", g->ending);
    stk_json_put_int(&m, "number", g->number);
    stk_json_put_int(&m, "rank", stk_launch_first(g));
    stk_json_put_int(&m, "node", here ? g->me : s->first_node);
    stk_json_put_text(&m, "text", g->text);
    stk_json_put_bool(&m, "preempted", g->preempted);
    stk_launch_talk_all(g, &m);
}

void stk_launch_nodes_blame(stk_gang *g, int64_t rank, int64_t node)
{
    launch_rank *r = &g->ranks[g->config->ranks];
    r->status = -1;
    r->why[0] = r->tail[0] = '\0';
    r->n_tail = 0;
    g->nodes->first_rank = (uint32_t)rank;
    g->nodes->first_node = (uint32_t)node;
    g->first = (int32_t)g->config->ranks;
}

static void end_lost(stk_gang *g)
{
    g->first = -1;
    g->noticed_us = g->silent_us > 0 ? g->silent_us : g->late_us;
    stk_launch_end_all(g, END_LOST, SIGTERM);
}

/* On the leader of a gang whose nodes may join and leave: node i did during this attempt, so the
 * attempt ends and the next one has other nodes. */
static void change_nodes(stk_gang *g, uint32_t i, const char *what)
{
    char who[200];
    g->nodes->changed = true;
    if (g->ending == END_NOT) {
        stk_launch_nodes_name(g, (uint32_t)g->nodes->peers[i].node, who, sizeof who);
        (void)snprintf(g->text, sizeof g->text, "%s %s", who, what);
        end_lost(g);
    }
}

static void on_end_message(stk_gang *g, uint32_t i, const stk_json *m)
{
    int64_t cause = stk_json_get_whole(m, "cause", END_LOST);
    int64_t number = stk_json_get_whole(m, "number", SIGTERM);
    int64_t rank = stk_json_get_whole(m, "rank", -1);
    launch_nodes *s = g->nodes;
    if (g->ending != END_NOT || cause <= END_NOT || cause > END_START || number < 0 ||
        number > SIGRTMAX) {
        return; /* the first failure is already known */
    }
    if (s->min > 0 && stk_launch_leads(g) && cause == END_SIGNAL) {
        change_nodes(g, i, "leaves: it was told to end");
        return;
    }
    s->heard = true;
    g->preempted = stk_json_is_true(stk_json_get(m, "preempted"));
    (void)snprintf(g->text, sizeof g->text, "%s", stk_launch_talk_text(m, "text"));
    if (cause == END_SIGNAL) {
        g->number = (int)number;
    } else if (cause == END_HANG) {
        stk_launch_hang_tell(g);
    } else if (rank >= 0) {
        int64_t node = stk_json_get_whole(m, "node", 0);
        stk_launch_nodes_blame(g, rank, stk_launch_leads(g) ? s->peers[i].node : node);
    }
    if (cause != END_SIGNAL) {
        number = SIGTERM;
    }
    stk_launch_end_all(g, (end_cause)cause, (int)number);
}

/* Its place is free for another node. */
static void lose_node(stk_gang *g, uint32_t i, const char *why)
{
    launch_peer *p = &g->nodes->peers[i];
    char what[200], who[200];
    (void)snprintf(what, sizeof what, "was lost: %s", why);
    if (stk_launch_takes_part(p) && g->nodes->counted && !p->done) {
        change_nodes(g, i, what);
    } else if (!p->done) {
        stk_launch_nodes_name(g, (uint32_t)p->node, who, sizeof who);
        stk_launch_say(g, "%s %s", who, what);
    }
    p->node = -1;
    p->ready = p->done = p->waits = false;
}

void stk_launch_nodes_lost(stk_gang *g, uint32_t i, const char *why)
{
    launch_nodes *s = g->nodes;
    launch_peer *p = &s->peers[i];
    char who[200];
    if (!stk_launch_leads(g)) {
        s->lost = true;
        stk_launch_talk_close(g, i);
        if (!s->started || s->bye) {
            return; /* it will retry, or the gang has already ended */
        }
        if (g->ending == END_NOT || g->ending == END_FAILED) {
            (void)snprintf(g->text, sizeof g->text,
                           "node %u lost its leader, node 0 at %s:%d: %s; the ranks here were "
                           "ended because of it",
                           g->me, s->host, (int)s->port, why);
        }
        if (g->ending == END_NOT) {
            end_lost(g);
        }
        return;
    }
    stk_launch_talk_close(g, i);
    if (p->node < 0 || s->bye) {
        return;
    }
    if (s->min > 0 && s->started) {
        lose_node(g, i, why);
        return;
    }
    stk_launch_nodes_name(g, (uint32_t)p->node, who, sizeof who);
    if (!s->started) { /* it may connect again */
        stk_launch_say(g, "%s left before all nodes had joined: %s", who, why);
        p->node = -1;
        p->ready = false;
        return;
    }
    if (!p->done && g->ending == END_NOT) {
        (void)snprintf(g->text, sizeof g->text,
                       "%s was lost: %s; the other nodes' ranks were ended because of it", who,
                       why);
        end_lost(g);
    }
    p->done = true;
}

void stk_launch_nodes_set_end(launch_nodes *s, const char *text)
{
    s->bye = true;
    s->end = (stk_launch_end){.exit_status = 1, .failure = STK_FAIL_START};
    (void)snprintf(s->end.text, sizeof s->end.text, "%s", text);
}

/* --- messages --- */

static void from_node(stk_gang *g, uint32_t i, const stk_json *m)
{
    launch_peer *p = &g->nodes->peers[i];
    const char *op = stk_launch_talk_text(m, "op");
    if (p->node < 0) {
        if (strcmp(op, "join") == 0) {
            stk_launch_join_asked(g, i, m);
        }
        return;
    }
    if (strcmp(op, "ready") == 0) {
        int64_t ranks = stk_json_get_whole(m, "ranks", 0);
        p->ready = ranks >= 1 && ranks <= STK_LAUNCH_MAX_RANKS;
        p->ranks = (uint32_t)ranks;
        if (p->ready && p->waits && g->n_live > 0) {
            change_nodes(g, i, "joined");
        }
    } else if (strcmp(op, "probed") == 0) {
        p->probed = true;
        (void)snprintf(p->trouble, sizeof p->trouble, "%s", stk_launch_talk_text(m, "trouble"));
    } else if (strcmp(op, "end") == 0) {
        on_end_message(g, i, m);
    } else if (strcmp(op, "done") == 0) {
        stk_launch_nodes_on_done(g, i, m);
    } else if (strcmp(op, "still") == 0) {
        p->still_ms = stk_json_get_whole(m, "ms", 0);
    } else if (strcmp(op, "came") == 0) {
        stk_launch_line_node(g, i, m);
    }
}

static void on_world(stk_gang *g, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    const stk_json *ranks = stk_json_get(m, "ranks");
    int64_t port = stk_json_get_whole(m, "port", 0);
    bool good = stk_json_n_items(ranks) == s->n && port > 0 && port < 65536;
    for (uint32_t i = 0; good && i < s->n; i++) {
        int64_t n = 0;
        good = stk_json_int(&ranks->items[i], &n) && n >= 0 && n <= STK_LAUNCH_MAX_RANKS &&
               (n > 0 || (s->min > 0 && i != g->me));
        s->ranks[i] = (uint32_t)n;
    }
    if (good) {
        const char *master = stk_launch_talk_text(m, "addr");
        (void)snprintf(s->master, sizeof s->master, "%s", *master == '\0' ? s->host : master);
        s->world = true;
        g->port.number = (int32_t)port;
    }
}

static void on_bye(stk_gang *g, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    int64_t failure = stk_json_get_whole(m, "failure", STK_FAIL_LOST);
    stk_launch_nodes_set_end(s, stk_launch_talk_text(m, "text"));
    s->end.exit_status = (int)(stk_json_get_whole(m, "exit_status", 1) & 0xff);
    s->end.failure = STK_FAIL_LOST;
    if (failure >= 0 && failure < STK_FAIL_N) {
        s->end.failure = (stk_failure)failure;
    }
    if (g->ending == END_NOT && g->n_live > 0) { /* the leader can't continue */
        s->heard = true;
        end_lost(g);
    } else if (g->n_live > 0) { /* the leader no longer waits */
        stk_launch_signal(g, SIGKILL);
    }
}

static void from_leader(stk_gang *g, uint32_t i, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    const char *op = stk_launch_talk_text(m, "op");
    if (strcmp(op, "refused") == 0) {
        char text[512], own[32];
        stk_launch_nodes_own(g, own, sizeof own);
        (void)snprintf(text, sizeof text, "node 0 at %s:%d refused %s: %.300s", s->host,
                       (int)s->port, own, stk_launch_talk_text(m, "text"));
        stk_launch_nodes_set_end(s, text);
    } else if (!s->started) {
        if (strcmp(op, "hello") == 0) {
            stk_launch_join_ask(g, m);
        } else if (strcmp(op, "welcome") == 0) {
            stk_launch_join_done(g, m);
        }
    } else if (strcmp(op, "world") == 0) {
        on_world(g, m);
    } else if (strcmp(op, "go") == 0) {
        s->go = true;
    } else if (strcmp(op, "open") == 0) {
        stk_launch_line_node(g, i, m);
    } else if (strcmp(op, "again") == 0) {
        s->again = true;
        s->changed = stk_json_is_true(stk_json_get(m, "changed"));
    } else if (strcmp(op, "end") == 0) {
        on_end_message(g, i, m);
    } else if (strcmp(op, "bye") == 0) {
        on_bye(g, m);
    }
}

/* If all places are taken, drops an unidentified connection: an idle stranger must not keep a node
 * out, and a node that is dropped this way connects again. */
static void make_place(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    int32_t stranger = -1;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (s->peers[i].node < 0 && s->peers[i].wire.fd < 0) {
            return;
        }
        if (s->peers[i].node < 0 && stranger < 0) {
            stranger = (int32_t)i;
        }
    }
    if (stranger >= 0) {
        stk_launch_talk_close(g, (uint32_t)stranger);
    }
}

static void on_connection(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    STK_FD_AUTO fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    make_place(g);
    for (uint32_t i = 0; fd >= 0 && i < s->n_peers; i++) {
        launch_peer *p = &s->peers[i];
        if (p->wire.fd < 0 && p->node < 0) {
            stk_launch_net_keep(fd);
            stk_launch_net_name(fd, p->addr, sizeof p->addr);
            p->wire.fd = fd;
            fd = -1;
            (void)stk_launch_watch(g, p->wire.fd, EPOLLIN, LAUNCH_EV_PEER, i);
            stk_launch_join_greet(g, i);
            return;
        }
    }
}

/* The leader writes nothing there while we run, so the descriptor becomes readable only at end of
 * file. */
static void on_leash(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    char data[256];
    ssize_t n = read(STDIN_FILENO, data, sizeof data);
    if (n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN))) {
        return;
    }
    stk_launch_unwatch(g, STDIN_FILENO);
    if (!s->started) {
        stk_launch_nodes_set_end(s, "its leader ended before all nodes had joined");
    } else if (!s->bye && !s->lost) {
        stk_launch_nodes_lost(g, 0, "its launcher ended");
    }
}

void stk_launch_nodes_event(stk_gang *g, launch_event kind, uint32_t i)
{
    char why[200];
    if (kind == LAUNCH_EV_LISTEN) {
        on_connection(g);
    } else if (kind == LAUNCH_EV_HOST) {
        stk_launch_hosts_event(g, i);
    } else if (kind == LAUNCH_EV_LEASH) {
        on_leash(g);
    } else if (g->nodes->peers[i].wire.fd >= 0) {
        launch_take take = stk_launch_leads(g) ? from_node : from_leader;
        stk_launch_talk_flush(g, i);
        if (!stk_launch_talk_read(g, i, take, why, sizeof why)) {
            stk_launch_nodes_lost(g, i, why);
        }
    }
}
