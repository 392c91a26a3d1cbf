/* Shared by launch_nodes*.c, launch_join.c, launch_meet.c, launch_hosts.c, launch_talk.c and
 * launch_net.c: this node's view of the gang's nodes. */
#ifndef STK_LAUNCH_NODES_H
#define STK_LAUNCH_NODES_H

#include "base/json.h"
#include "host/launch/launch_private.h"

enum {
    NODES_MAX = 1024,
    NODES_PORT = 29400,      /* the default port, as torchrun's */
    NODES_STRANGERS = 16,    /* connections that haven't named their node yet */
    NODES_PROBE_MS = 5000,   /* a port that doesn't answer within this is closed */
    NODES_SILENCE_MS = 5000, /* a node that is silent for this long is lost */
    NODES_LINGER_MS = 2000,
    NODES_REPORT_MS = 15000, /* beyond the grace time: the wait for reports from other nodes */
    NODES_NONCE = 32,
    NODES_MESSAGE = 8 << 20
};

/* A connection: the leader has one to each other node, a node has one to the leader. */
typedef struct launch_peer {
    stk_wire wire; /* fd -1: none */
    stk_buf out;   /* not sent yet */
    bool asked;    /* epoll waits until the socket is writable */
    int32_t node;  /* -1: unknown yet */
    bool ready, probed, done, clean;
    bool waits;    /* it joined during this attempt, and takes part in the next one */
    uint32_t came; /* bit set of the gates that all of its ranks have reached */
    uint32_t ranks, others;
    int64_t still_ms;  /* how long nothing has moved there */
    char trouble[160]; /* "connection refused": it can't reach rank 0's port */
    char addr[64], host[65], nonce[NODES_NONCE + 1];
    char *members; /* its members of gang.json in this attempt */
} launch_peer;

/* A node that the leader has started. */
typedef struct launch_host {
    uint32_t node;
    char name[64];
    pid_t pid;
    int pidfd, leash;
} launch_host;

typedef struct launch_nodes {
    uint32_t n;   /* nodes that the gang may have */
    uint32_t min; /* nodes that it must have, if it may run with fewer than n; else 0 */
    char host[256];
    char master[256];   /* MASTER_ADDR: the leader's --local-addr, or `host` */
    int32_t port;       /* of the leader */
    char interface[64]; /* by which this node reaches the leader; "" unknown */
    char key[256];
    int listener;
    launch_host *hosts;
    uint32_t n_hosts;
    char trouble[400]; /* why a node could not be started */
    launch_peer *peers;
    uint32_t n_peers;
    uint32_t *ranks; /* number of ranks per node in this attempt; 0: the node isn't there */
    bool started;    /* the first attempt's nodes have joined */
    bool counted;    /* the leader has chosen the nodes of this attempt */
    bool changed;    /* a node joined or left during this attempt */
    bool world, go, again, bye, lost;
    bool heard; /* the reason for the end came from the leader */
    uint32_t first_rank, first_node;
    stk_launch_end end; /* the end as the leader reported it */
} launch_nodes;

#define MESSAGE_AUTO STK_BUF_AUTO
#define MESSAGE STK_BUF_INIT(NODES_MESSAGE)

/* --- launch_nodes.c --- */

static inline bool stk_launch_leads(const stk_gang *g)
{
    return g->me == 0;
}
/* Whether the peer is a node of this attempt. */
static inline bool stk_launch_takes_part(const launch_peer *p)
{
    return p->node > 0 && !p->waits;
}
/* Index of the node among the leader's peers; -1: not connected. */
int32_t stk_launch_nodes_peer(const launch_nodes *nodes, uint32_t node);
/* "node 1", of this one; "this node" before its leader has numbered it. */
void stk_launch_nodes_own(const stk_gang *g, char *text, size_t size);
/* "node 1 (10.0.0.2, ws2)" */
void stk_launch_nodes_name(const stk_gang *g, uint32_t node, char *text, size_t size);
/* Records that a rank of another node was the first to fail. */
void stk_launch_nodes_blame(stk_gang *g, int64_t rank, int64_t node);
/* The connection to a peer has ended, or it doesn't answer. */
void stk_launch_nodes_lost(stk_gang *g, uint32_t i, const char *why);

/* This node's end, with exit status 1. */
void stk_launch_nodes_set_end(launch_nodes *nodes, const char *text);

/* --- launch_join.c: in this order; the messages are "hello", "join", "welcome" or "refused" --- */

void stk_launch_join_greet(stk_gang *g, uint32_t i);                    /* the leader */
void stk_launch_join_ask(stk_gang *g, const stk_json *m);               /* a node, greeted */
void stk_launch_join_asked(stk_gang *g, uint32_t i, const stk_json *m); /* the leader */
void stk_launch_join_done(stk_gang *g, const stk_json *m);              /* a node, welcomed */

/* --- launch_nodes_end.c --- */

/* Handles a node's report on how its ranks ended. */
void stk_launch_nodes_on_done(stk_gang *g, uint32_t i, const stk_json *m);

/* --- launch_hosts.c --- */

/* Listens, and starts the other nodes. */
int stk_launch_hosts_open(stk_gang *g, stk_err *err);
void stk_launch_hosts_event(stk_gang *g, uint32_t i);
void stk_launch_hosts_close(stk_gang *g);

/* --- launch_net.c --- */

/* "HOST", "HOST:PORT", "[ADDRESS]:PORT". */
int stk_launch_net_split(const char *text, char *host, size_t size, int32_t *port, stk_err *err);
/* Listens on every address of this host. */
int stk_launch_net_listen(int32_t port, int *ret_fd, stk_err *err); /* 0: any */
int32_t stk_launch_net_port(int fd);
/* Returns a socket that is connected from the address `from` (NULL: any), or -1 with the reason in
 * `why`. */
int stk_launch_net_connect(const char *host, int32_t port, const char *from, int timeout_ms,
                           char *why, size_t size);
/* True if the name has an address; otherwise `why` tells that it hasn't. */
bool stk_launch_net_resolves(const char *host, char *why, size_t size);
/* Makes the kernel detect a cut connection within NODES_SILENCE_MS. A busy launcher doesn't count
 * as lost. */
void stk_launch_net_keep(int fd);
/* Describes why a connection ended: `code` is errno, 0 at end of file. Returns how many ms the peer
 * had been silent, 0 unless the connection timed out. */
int64_t stk_launch_net_why_lost(int fd, int code, char *why, size_t size);
void stk_launch_net_name(int fd, char *text, size_t size);
/* The network interface with the connection's local address; "" if none is found. */
void stk_launch_net_interface(int fd, char *name, size_t size);
void stk_launch_net_nonce(char ret_hex[NODES_NONCE + 1]);
/* HMAC-SHA-256 of the words in hex: proves that the sender knows the key; the words contain a nonce
 * against replay. */
void stk_launch_net_proof(const char *key, const char *words, char ret_hex[65]);

/* --- launch_talk.c: messages (docs/formats/task-directory.md, "Ranks") --- */

void stk_launch_talk_begin(stk_buf *out, const char *op);
/* Completes the message and sends it without blocking; sends the rest later. */
void stk_launch_talk_send(stk_gang *g, uint32_t i_peer, stk_buf *message);
void stk_launch_talk_all(stk_gang *g, const stk_buf *message);
/* Sends a message with one number to all peers; a node's only peer is its leader. */
void stk_launch_talk_number(stk_gang *g, const char *op, const char *key, int64_t number);
void stk_launch_talk_flush(stk_gang *g, uint32_t i_peer);
/* Reads the available messages and passes each to `take`; false: the connection has ended for the
 * reason `why`. */
typedef void (*launch_take)(stk_gang *g, uint32_t i_peer, const stk_json *message);
bool stk_launch_talk_read(stk_gang *g, uint32_t i_peer, launch_take take, char *why, size_t size);
void stk_launch_talk_close(stk_gang *g, uint32_t i_peer);
/* A text member of a message; never NULL. */
const char *stk_launch_talk_text(const stk_json *message, const char *key);

#endif
