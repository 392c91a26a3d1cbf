/* Before an attempt on several nodes: all nodes join, are counted and try rank 0's port; otherwise
 * none starts.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/text.h"
#include "base/units.h"
#include "host/launch/launch_gang.h"
#include "host/launch/launch_nodes.h"
#include "host/launch/launch_ranks.h"
#include "sys/file.h"

/* The host of the address leads. If its port is taken there, another launcher of this host came
 * first, and leads. */
static int take_role(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    stk_err why = {0};
    bool leads = g->config->leads > 0;
    if (g->config->leads < 0) {
        leads = stk_launch_is_here(g->config->rdzv);
    }
    if (!leads) {
        return 0;
    }
    int rc = stk_launch_net_listen(s->port, &s->listener, &why);
    if (rc == 0) {
        g->me = 0;
    } else if (rc != STK_E_BUSY || g->config->leads > 0) {
        *err = why;
        return rc;
    }
    return 0;
}

static int find_place(stk_gang *g, bool starts, stk_err *err)
{
    launch_nodes *s = g->nodes;
    if (starts) {
        return 0;
    }
    STK_TRY(stk_launch_net_split(g->config->rdzv, s->host, sizeof s->host, &s->port, err));
    if (g->me == STK_LAUNCH_ANY_NODE) {
        return take_role(g, err);
    }
    if (!stk_launch_leads(g)) {
        return 0;
    }
    return stk_launch_net_listen(s->port, &s->listener, err);
}

int stk_launch_nodes_open(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes = calloc(1, sizeof *s);
    if (s == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%u nodes", g->config->nodes);
    }
    s->n = g->config->nodes;
    s->min = g->config->min_nodes;
    s->listener = -1;
    if (g->me != STK_LAUNCH_ANY_NODE && g->me >= s->n) {
        return stk_err_set(err, STK_E_USAGE, "node %u of %u nodes: they count from 0", g->me, s->n);
    }
    bool starts = g->me == 0 && g->config->node_argv != NULL;
    STK_TRY(find_place(g, starts, err));
    bool leads = stk_launch_leads(g);
    uint32_t n_peers = leads ? s->n - 1 + NODES_STRANGERS : 1;
    s->peers = calloc(n_peers, sizeof *s->peers);
    s->ranks = calloc(s->n, sizeof *s->ranks);
    if (s->peers == NULL || s->ranks == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%u nodes", s->n);
    }
    s->n_peers = n_peers;
    for (uint32_t i = 0; i < n_peers; i++) {
        s->peers[i].wire.fd = s->peers[i].node = -1;
        s->peers[i].out = STK_BUF_INIT(64 << 20);
    }
    (void)snprintf(s->key, sizeof s->key, "%s", g->config->key);
    if (starts) {
        STK_TRY(stk_launch_hosts_open(g, err));
    }
    (void)snprintf(s->master, sizeof s->master, "%s", stk_text_or(g->config->local_addr, s->host));
    if (g->config->leash && stk_launch_watch(g, STDIN_FILENO, EPOLLIN, LAUNCH_EV_LEASH, 0) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "watching the leader's pipe");
    }
    if (leads && stk_launch_watch(g, s->listener, EPOLLIN, LAUNCH_EV_LISTEN, 0) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "waiting for nodes");
    }
    return 0;
}

enum { SAY_MS = 5000, LEASH_MS = 15000 };

static bool going(const stk_gang *g)
{
    return g->ending == END_NOT && !g->nodes->bye && !g->nodes->lost;
}

static uint32_t n_joined(const launch_nodes *s)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        n += s->peers[i].node > 0;
    }
    return n;
}

#define CHECK_DNS                                                                                  \
    "check the name, and DNS (on Kubernetes, cluster DNS: `kubectl -n kube-system get pods`)"

/* Nodes find node 0 by its name: if not even node 0 can resolve it, that is why they are missing.
 * Returns false if the name has an address. */
static bool is_nameless(const stk_gang *g, const char *time, stk_err *err)
{
    const launch_nodes *s = g->nodes;
    char why[200] = "";
    if (stk_launch_net_resolves(s->host, why, sizeof why)) {
        return false;
    }
    stk_err_set(err, STK_E_ENV,
                "%u of %u nodes joined within %s, so nothing was started: the others look for node "
                "0 at %s, but %s; " CHECK_DNS,
                n_joined(s), s->n, time, s->host, why);
    return true;
}

static int missing_nodes(const stk_gang *g, stk_err *err)
{
    const launch_nodes *s = g->nodes;
    STK_BUF_AUTO list = STK_BUF_INIT(200);
    uint32_t n = 0, first = 0;
    char time[32];
    for (uint32_t node = 1; node < s->n; node++) {
        int32_t i = stk_launch_nodes_peer(s, node);
        if (i < 0 || !s->peers[i].ready) {
            if (n == 0) {
                first = node;
            }
            if (n++ < 8) {
                stk_buf_separate(&list, ", ");
                stk_buf_printf(&list, "%u", node);
            }
        }
    }
    (void)stk_units_format_duration(g->config->join_ms, time, sizeof time);
    if (is_nameless(g, time, err)) {
        return err->code;
    }
    const char *verb = n > 8 ? " … are" : " are";
    if (n == 1) {
        verb = " is";
    }
    return stk_err_set(
        err, STK_E_ENV,
        "%u of %u nodes joined within %s: node%s %s%s missing, so nothing was started; run there "
        "stoker launch --nnodes %u --node-rank %u --rdzv %s:%d, and open port %d",
        s->n - n, s->n, time, stk_text_plural(n), stk_text_or(list.data, ""), verb, s->n, first,
        s->host, (int)s->port, (int)s->port);
}

static int too_few_nodes(const stk_gang *g, stk_err *err)
{
    const launch_nodes *s = g->nodes;
    char time[32];
    (void)stk_units_format_duration(g->config->join_ms, time, sizeof time);
    if (is_nameless(g, time, err)) {
        return err->code;
    }
    return stk_err_set(err, STK_E_ENV,
                       "%u of at least %u nodes are there after %s; run on another one the same "
                       "stoker launch --nnodes %u:%u --rdzv %s:%d …, and open port %d",
                       n_joined(s), s->min, time, s->min, s->n, s->host, (int)s->port,
                       (int)s->port);
}

/* The number of nodes with this flag, of those that take part; the leader counts. */
static uint32_t count(const stk_gang *g, size_t flag)
{
    const launch_nodes *s = g->nodes;
    uint32_t n = 1;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        n += stk_launch_takes_part(&s->peers[i]) && *((const bool *)&s->peers[i] + flag);
    }
    return n;
}

#define COUNT(gang, member) count(gang, offsetof(launch_peer, member))

/* Whether the attempt can begin. With as few nodes as allowed, the first one waits for more until
 * *last_call_ms, which is set when the fewest are there. */
static bool is_complete(stk_gang *g, int64_t *last_call_ms)
{
    launch_nodes *s = g->nodes;
    uint32_t n = COUNT(g, ready);
    if (n >= s->n) {
        return true;
    }
    if (s->min == 0 || n < s->min || n < n_joined(s)) {
        return false;
    }
    if (s->started) {
        return true; /* who comes later joins the next attempt */
    }
    if (*last_call_ms == INT64_MAX) {
        char time[32];
        *last_call_ms = stk_launch_now_ms() + g->config->last_call_ms;
        stk_launch_say(g, "%u of at most %u nodes are there; waiting %s for more", n, s->n,
                       stk_units_format_duration(g->config->last_call_ms, time, sizeof time));
    }
    return stk_launch_now_ms() >= *last_call_ms;
}

static void count_ranks(stk_gang *g)
{
    const launch_nodes *s = g->nodes;
    g->world = g->n_before = 0;
    for (uint32_t node = 0; node < s->n; node++) {
        if (node < g->me) {
            g->n_before += s->ranks[node];
        }
        g->world += s->ranks[node];
    }
}

static void send_world(stk_gang *g)
{
    const launch_nodes *s = g->nodes;
    MESSAGE_AUTO m = MESSAGE;
    stk_launch_talk_begin(&m, "world");
    stk_json_put_int(&m, "port", g->port.number);
    stk_json_put_text(&m, "addr", s->master);
    stk_json_open(&m, "ranks", '[');
    for (uint32_t i = 0; i < s->n; i++) {
        stk_json_put_whole(&m, NULL, s->ranks[i]);
    }
    stk_json_close(&m, ']');
    stk_launch_talk_all(g, &m);
}

/* Tries to reach rank 0's port from here; `why` is "" on success. */
static void probe(stk_gang *g, char *why, size_t size)
{
    why[0] = '\0';
    STK_FD_AUTO fd = stk_launch_net_connect(g->nodes->master, g->port.number, g->config->local_addr,
                                            NODES_PROBE_MS, why, size);
    if (fd >= 0) {
        stk_launch_net_interface(fd, g->nodes->interface, sizeof g->nodes->interface);
    }
}

static int closed_pair(const stk_gang *g, uint32_t node, const char *why, uint32_t n_more,
                       stk_err *err)
{
    char who[200];
    char more[64] = "";
    stk_launch_nodes_name(g, node, who, sizeof who);
    if (n_more > 0) {
        (void)snprintf(more, sizeof more, " (the same holds for %u other node%s)", n_more,
                       stk_text_plural(n_more));
    }
    return stk_err_set(err, STK_E_ENV,
                       "%s can't reach node 0 at %s:%d: %s%s; let that port through "
                       "between them, or name one that is open: --port PORT, in a pipeline gang: "
                       "{port: PORT}",
                       who, g->nodes->master, (int)g->port.number, why, more);
}

static int check_probes(const stk_gang *g, const char *own, stk_err *err)
{
    const launch_nodes *s = g->nodes;
    uint32_t n = own[0] != '\0';
    const launch_peer *first = NULL;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (stk_launch_takes_part(&s->peers[i]) && s->peers[i].trouble[0] != '\0') {
            n++;
            if (first == NULL || s->peers[i].node < first->node) {
                first = &s->peers[i];
            }
        }
    }
    if (n == 0) {
        return 0;
    }
    if (first == NULL) {
        return closed_pair(g, 0, own, 0, err);
    }
    return closed_pair(g, (uint32_t)first->node, first->trouble, n - 1, err);
}

static int lead(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    int64_t until = stk_launch_now_ms() + g->config->join_ms, last_call_ms = INT64_MAX;
    while (going(g) && !is_complete(g, &last_call_ms)) {
        if (last_call_ms == INT64_MAX && stk_launch_now_ms() >= until) {
            return s->min > 0 ? too_few_nodes(g, err) : missing_nodes(g, err);
        }
        STK_TRY(stk_launch_turn(g, last_call_ms == INT64_MAX ? until : last_call_ms, err));
        if (s->trouble[0] != '\0') {
            return stk_err_set(err, STK_E_ENV, "%s", s->trouble);
        }
    }
    if (!going(g)) {
        return 0;
    }
    s->started = s->counted = true;
    memset(s->ranks, 0, s->n * sizeof *s->ranks);
    s->ranks[0] = g->n;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        if (stk_launch_takes_part(&s->peers[i])) {
            s->ranks[s->peers[i].node] = s->peers[i].ranks;
        }
    }
    count_ranks(g);
    char own[160];
    STK_FD_AUTO listener = -1;
    STK_TRY(stk_launch_port(g->config->port, &g->port, err));
    STK_TRY(stk_launch_net_listen(g->port.number, &listener, err));
    send_world(g);
    probe(g, own, sizeof own);
    until = stk_launch_now_ms() + 2 * NODES_PROBE_MS;
    while (going(g) && COUNT(g, probed) < stk_launch_nodes_count(g) &&
           stk_launch_now_ms() < until) {
        STK_TRY(stk_launch_turn(g, until, err));
    }
    if (!going(g)) {
        return 0;
    }
    STK_TRY(check_probes(g, own, err));
    MESSAGE_AUTO m = MESSAGE;
    stk_file_close(&listener); /* rank 0 will listen there; we still hold the port */
    stk_launch_talk_begin(&m, "go");
    stk_launch_talk_all(g, &m);
    return 0;
}

static int find_leader(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    int64_t wait_ms = g->config->join_ms;
    if (g->config->leash && wait_ms > LEASH_MS) { /* the leader runs, since it started us */
        wait_ms = LEASH_MS;
    }
    int64_t until = stk_launch_now_ms() + wait_ms;
    int64_t say_ms = stk_launch_now_ms() + SAY_MS; /* report early: the port may be blocked */
    char why[200] = "it closed the connection";
    char own[32];
    stk_launch_nodes_own(g, own, sizeof own);
    while (g->ending == END_NOT && !s->started && !s->bye) {
        int64_t now = stk_launch_now_ms();
        if (now >= until) {
            char time[32];
            const char *way =
                "start its launcher there with --node-rank 0, or let that port through";
            if (!stk_launch_net_resolves(s->host, why, sizeof why)) {
                way = CHECK_DNS;
            }
            (void)stk_units_format_duration(wait_ms, time, sizeof time);
            return stk_err_set(err, STK_E_ENV,
                               "%s can't reach node 0 at %s:%d: %s (tried for %s); %s", own,
                               s->host, (int)s->port, why, time, way);
        }
        if (now >= say_ms) {
            say_ms = INT64_MAX;
            stk_launch_say(g, "%s can't reach node 0 at %s:%d yet: %s", own, s->host, (int)s->port,
                           why);
        }
        if (s->peers[0].wire.fd < 0) {
            int fd = stk_launch_net_connect(s->host, s->port, g->config->local_addr, 2000, why,
                                            sizeof why);
            if (fd >= 0) {
                stk_launch_net_keep(fd);
                s->peers[0].wire.fd = fd;
                s->lost = false;
                (void)stk_launch_watch(g, fd, EPOLLIN, LAUNCH_EV_PEER, 0);
                (void)snprintf(why, sizeof why, "it doesn't answer");
            }
        }
        bool open = s->peers[0].wire.fd >= 0;
        STK_TRY(stk_launch_turn(g, open ? until : now + 200, err));
    }
    return 0;
}

static int follow(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    if (!s->started) {
        STK_TRY(find_leader(g, err));
    } else {
        stk_launch_talk_number(g, "ready", "ranks", g->n);
    }
    while (going(g) && !s->world) {
        STK_TRY(stk_launch_turn(g, -1, err));
    }
    if (going(g)) {
        char why[160];
        MESSAGE_AUTO m = MESSAGE;
        count_ranks(g);
        probe(g, why, sizeof why);
        stk_launch_talk_begin(&m, "probed");
        stk_json_put_text(&m, "trouble", why);
        stk_launch_talk_send(g, 0, &m);
    }
    while (going(g) && !s->go) {
        STK_TRY(stk_launch_turn(g, -1, err));
    }
    if (s->bye && s->end.exit_status == 0) {
        g->ending = END_LOST; /* the gang has ended well while this node waited for its turn */
        return 0;
    }
    if (!s->bye) {
        return 0;
    }
    return stk_err_set(err, STK_E_ENV, "%s", s->end.text);
}

int stk_launch_nodes_meet(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    s->world = s->go = s->again = s->heard = s->counted = s->changed = false;
    s->first_rank = s->first_node = 0;
    for (uint32_t i = 0; i < s->n_peers; i++) {
        launch_peer *p = &s->peers[i];
        p->done = p->clean = p->probed = p->waits = false;
        p->still_ms = 0;
        p->others = 0;
        p->trouble[0] = '\0';
        free(p->members);
        p->members = NULL;
    }
    if (stk_launch_leads(g)) {
        return lead(g, err);
    }
    return follow(g, err);
}
