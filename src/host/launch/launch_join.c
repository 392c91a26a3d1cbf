/* How a node joins: the leader greets it, the node proves that it knows the gang's key and tells
 * who it is, the leader welcomes it or says why not. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/launch/launch_nodes.h"

void stk_launch_join_greet(stk_gang *g, uint32_t i)
{
    MESSAGE_AUTO m = MESSAGE;
    stk_launch_net_nonce(g->nodes->peers[i].nonce);
    stk_launch_talk_begin(&m, "hello");
    stk_json_put_int(&m, "stoker", 1);
    stk_json_put_text(&m, "nonce", g->nodes->peers[i].nonce);
    stk_launch_talk_send(g, i, &m);
}

/* A node's proof that it knows the key. The proof includes the node's number, so that no node can
 * pose as another. */
static void join_proof(const stk_gang *g, const char *nonce, int64_t node, int64_t nodes,
                       const char *id, char hex[65])
{
    char words[512];
    (void)snprintf(words, sizeof words, "join %s %lld %lld %.300s", nonce, (long long)node,
                   (long long)nodes, id);
    stk_launch_net_proof(g->nodes->key, words, hex);
}

static void welcome_proof(const stk_gang *g, const char *nonce, int64_t node, char hex[65])
{
    char words[128];
    (void)snprintf(words, sizeof words, "welcome %.64s %lld", nonce, (long long)node);
    stk_launch_net_proof(g->nodes->key, words, hex);
}

void stk_launch_join_ask(stk_gang *g, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    char proof[65], host[65] = "";
    MESSAGE_AUTO out = MESSAGE;
    (void)gethostname(host, sizeof host - 1);
    stk_launch_net_nonce(s->peers[0].nonce);
    int64_t me = g->me == STK_LAUNCH_ANY_NODE ? -1 : (int64_t)g->me;
    join_proof(g, stk_launch_talk_text(m, "nonce"), me, s->n, g->config->run_id, proof);
    stk_launch_talk_begin(&out, "join");
    stk_json_put_int(&out, "stoker", 1);
    stk_json_put_int(&out, "node", me);
    stk_json_put_int(&out, "nodes", s->n);
    stk_json_put_text(&out, "id", g->config->run_id);
    stk_json_put_text(&out, "host", host);
    stk_json_put_text(&out, "nonce", s->peers[0].nonce);
    stk_json_put_text(&out, "proof", proof);
    stk_launch_talk_send(g, 0, &out);
}

static void refuse_node(stk_gang *g, uint32_t i, const char *text)
{
    MESSAGE_AUTO m = MESSAGE;
    stk_launch_say(g, "refused a node at %s: %s", g->nodes->peers[i].addr, text);
    stk_launch_talk_begin(&m, "refused");
    stk_json_put_text(&m, "text", text);
    stk_launch_talk_send(g, i, &m);
    stk_launch_talk_close(g, i);
}

/* The lowest number that no node has; the number of nodes if all are there. */
static int64_t free_number(const launch_nodes *s)
{
    uint32_t node = 1;
    while (node < s->n && stk_launch_nodes_peer(s, node) >= 0) {
        node++;
    }
    return node;
}

void stk_launch_join_asked(stk_gang *g, uint32_t i, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    launch_peer *p = &s->peers[i];
    int64_t node = stk_json_get_whole(m, "node", -1);
    int64_t nodes = stk_json_get_whole(m, "nodes", -1);
    const char *id = stk_launch_talk_text(m, "id");
    char proof[65], text[300] = "";
    join_proof(g, p->nonce, node, nodes, id, proof);
    bool numbered = node >= 0;
    if (!numbered) {
        node = free_number(s);
    }
    if (strcmp(proof, stk_launch_talk_text(m, "proof")) != 0) {
        (void)snprintf(text, sizeof text, "it doesn't know the gang's key (STOKER_GANG_KEY)");
    } else if (strcmp(id, g->config->run_id) != 0) {
        (void)snprintf(text, sizeof text, "it belongs to gang '%.64s', but this one is '%.64s'", id,
                       g->config->run_id);
    } else if (nodes != (int64_t)s->n) {
        (void)snprintf(text, sizeof text, "it was started for %lld nodes, but this gang has %u",
                       (long long)nodes, s->n);
    } else if (!numbered && (node == (int64_t)s->n || (s->started && s->min == 0))) {
        (void)snprintf(text, sizeof text, "all %u nodes are there already", s->n);
    } else if (node < 1 || node >= (int64_t)s->n) {
        (void)snprintf(text, sizeof text, "a gang of %u nodes has no node %lld that can join", s->n,
                       (long long)node);
    } else if (stk_launch_nodes_peer(s, (uint32_t)node) >= 0 || (s->started && s->min == 0)) {
        (void)snprintf(text, sizeof text,
                       "node %lld has already joined; give each node its own number",
                       (long long)node);
    }
    if (text[0] != '\0') {
        refuse_node(g, i, text);
        return;
    }
    MESSAGE_AUTO out = MESSAGE;
    p->node = (int32_t)node;
    p->waits = s->counted;
    p->ready = p->done = false;
    (void)snprintf(p->host, sizeof p->host, "%.64s", stk_launch_talk_text(m, "host"));
    welcome_proof(g, stk_launch_talk_text(m, "nonce"), node, proof);
    stk_launch_talk_begin(&out, "welcome");
    stk_json_put_int(&out, "node", node);
    stk_json_put_text(&out, "proof", proof);
    stk_launch_talk_send(g, i, &out);
}

void stk_launch_join_done(stk_gang *g, const stk_json *m)
{
    launch_nodes *s = g->nodes;
    char proof[65];
    int64_t node = stk_json_get_whole(m, "node", -1);
    welcome_proof(g, s->peers[0].nonce, node, proof);
    if (strcmp(proof, stk_launch_talk_text(m, "proof")) != 0) {
        stk_launch_nodes_set_end(
            s, "the program that answers there doesn't know the gang's key (STOKER_GANG_KEY)");
        return;
    }
    if (g->me == STK_LAUNCH_ANY_NODE && node > 0 && node < (int64_t)s->n) {
        g->me = (uint32_t)node;
    }
    s->peers[0].node = 0;
    s->started = true; /* from now on, losing it ends the gang */
    stk_launch_talk_number(g, "ready", "ranks", g->n);
}
