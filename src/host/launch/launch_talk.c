/* Messages between the launchers of a gang's nodes: a length and JSON, as in the fork server's
 * protocol. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/text.h"
#include "host/launch/launch_nodes.h"
#include "sys/file.h"

void stk_launch_talk_begin(stk_buf *out, const char *op)
{
    (void)stk_buf_add(out, "\0\0\0\0{", 5);
    stk_json_put_text(out, "op", op);
}

static void poll_peer(stk_gang *g, uint32_t i, bool on)
{
    launch_peer *p = &g->nodes->peers[i];
    if (p->asked != on) {
        struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)LAUNCH_EV_PEER << 32 | i};
        if (on) {
            e.events |= EPOLLOUT;
        }
        (void)epoll_ctl(g->epoll, EPOLL_CTL_MOD, p->wire.fd, &e);
        p->asked = on;
    }
}

void stk_launch_talk_flush(stk_gang *g, uint32_t i_peer)
{
    launch_peer *p = &g->nodes->peers[i_peer];
    size_t sent = 0;
    while (p->wire.fd >= 0 && sent < p->out.len) {
        ssize_t n = stk_wire_send(p->wire.fd, &p->out, sent, NULL, 0);
        if (n < 0) {
            break; /* reading will report the end of the connection */
        }
        sent += (size_t)n;
    }
    if (sent > 0) {
        memmove(p->out.data, p->out.data + sent, p->out.len - sent);
        p->out.len -= sent;
    }
    if (p->wire.fd >= 0) {
        poll_peer(g, i_peer, p->out.len > 0);
    }
}

void stk_launch_talk_send(stk_gang *g, uint32_t i_peer, stk_buf *message)
{
    launch_peer *p = &g->nodes->peers[i_peer];
    if (message->data == NULL || message->failed || p->wire.fd < 0) {
        return;
    }
    if (message->data[message->len - 1] != '\n') { /* not completed yet */
        (void)stk_buf_text(message, "}\n");
        size_t len = message->len - 4;
        for (int i = 0; i < 4 && !message->failed; i++) {
            message->data[i] = (char)(unsigned char)(len >> (8 * i));
        }
    }
    if (!message->failed) {
        (void)stk_buf_add(&p->out, message->data, message->len);
        stk_launch_talk_flush(g, i_peer);
    }
}

void stk_launch_talk_all(stk_gang *g, const stk_buf *message)
{
    for (uint32_t i = 0; i < g->nodes->n_peers; i++) {
        if (g->nodes->peers[i].node >= 0 && !g->nodes->peers[i].waits) {
            stk_launch_talk_send(g, i, (stk_buf *)(uintptr_t)message);
        }
    }
}

void stk_launch_talk_number(stk_gang *g, const char *op, const char *key, int64_t number)
{
    MESSAGE_AUTO m = MESSAGE;
    stk_launch_talk_begin(&m, op);
    stk_json_put_int(&m, key, number);
    stk_launch_talk_all(g, &m);
}

bool stk_launch_talk_read(stk_gang *g, uint32_t i_peer, launch_take take, char *why, size_t size)
{
    static const stk_json_limits limits = {NODES_MESSAGE, 200000, 16};
    launch_peer *p = &g->nodes->peers[i_peer];
    for (;;) {
        errno = 0;
        ssize_t n = stk_wire_read(&p->wire);
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        int code = stk_errno_if(n < 0);
        const char *data;
        size_t len;
        int rc = 0;
        bool too_much = p->wire.n_in - p->wire.at > (p->node < 0 ? 4096u : NODES_MESSAGE);
        while (n > 0 && !too_much && p->wire.fd >= 0 &&
               (rc = stk_wire_next(&p->wire, &data, &len)) > 0) {
            STK_ARENA_AUTO arena = stk_arena_new(0);
            stk_json message;
            if (arena == NULL ||
                stk_json_parse(data, len, "message", &limits, arena, &message, NULL) < 0) {
                rc = -1;
                break;
            }
            take(g, i_peer, &message);
        }
        if (p->wire.fd < 0) {
            return true; /* `take` has closed it */
        }
        if (n <= 0 || rc < 0 || too_much) {
            if (n > 0) {
                (void)snprintf(why, size, "it sent data that isn't a message of a launcher");
            } else {
                g->silent_us = 1000 * stk_launch_net_why_lost(p->wire.fd, code, why, size);
            }
            return false;
        }
    }
}

void stk_launch_talk_close(stk_gang *g, uint32_t i_peer)
{
    launch_peer *p = &g->nodes->peers[i_peer];
    if (p->wire.fd >= 0) {
        stk_launch_unwatch(g, p->wire.fd);
    }
    stk_file_close(&p->wire.fd);
    stk_wire_done(&p->wire);
    p->wire = (stk_wire){.fd = -1};
    stk_buf_done(&p->out);
    p->out = STK_BUF_INIT(64 << 20);
    p->asked = false;
}

const char *stk_launch_talk_text(const stk_json *message, const char *key)
{
    return stk_text_or(stk_json_get_text(message, key), "");
}
