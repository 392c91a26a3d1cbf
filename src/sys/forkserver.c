#include "sys/forkserver.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"

/* --- sending --- */

static void put_variables(stk_buf *buf, const char *const *env)
{
    STK_BUF_AUTO name = STK_BUF_INIT(STK_LIMIT_MESSAGE_BYTES);
    stk_json_open(buf, "env", '{');
    for (size_t i = 0; env != NULL && env[i] != NULL; i++) {
        size_t n = strcspn(env[i], "=");
        stk_buf_clear(&name);
        (void)stk_buf_add(&name, env[i], n);
        const char *value = env[i] + n;
        stk_json_put_text(buf, stk_text_or(name.data, ""), value + (*value == '='));
    }
    buf->failed = buf->failed || name.failed;
    stk_json_close(buf, '}');
}

int stk_server_spawn_message(const stk_server_spawn *j, stk_buf *buf, stk_err *err)
{
    char cwd[PATH_MAX];
    (void)stk_buf_add(buf, "\0\0\0\0", 4);
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "op", "spawn");
    stk_json_put_whole(buf, "id", j->id);
    stk_json_put_text(buf, "dir", j->dir);
    stk_json_put_text(buf, "step", j->step);
    put_variables(buf, j->env);
    stk_json_put_texts(buf, "unset", j->unset);
    stk_json_open(buf, "cgroup_procs", '[');
    for (uint32_t i = 0; i < j->n_cgroup_procs; i++) {
        stk_json_put_text(buf, NULL, j->cgroup_procs[i]);
    }
    stk_json_close(buf, ']');
    stk_json_open(buf, "cpus", '[');
    for (uint32_t i = 0; i < j->n_cpus; i++) {
        stk_json_put_whole(buf, NULL, j->cpus[i]);
    }
    stk_json_close(buf, ']');
    stk_json_put_whole(buf, "threads", j->threads);
    stk_json_put_raw(buf, "rlimits", "{}");
    stk_json_put_text(buf, "cwd", stk_text_or(j->cwd, getcwd(cwd, sizeof cwd)));
    stk_json_put_text(buf, "hook", j->hook);
    stk_json_put_text(buf, "error", j->hook_error);
    stk_json_close(buf, '}');
    if (buf->failed) {
        return stk_err_set(err, STK_E_LIMIT,
                           "step '%s': its environment is too large for one message (%u MB)",
                           stk_text_or(j->step, ""), STK_LIMIT_MESSAGE_BYTES >> 20);
    }
    uint32_t len = (uint32_t)(buf->len - 4);
    for (int i = 0; i < 4; i++) {
        buf->data[i] = (char)(unsigned char)(len >> (8 * i));
    }
    return 0;
}

ssize_t stk_wire_send(int fd, const stk_buf *message, size_t n_sent, const int *fds, uint32_t n_fds)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(STK_WIRE_FDS * sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = message->data + n_sent, .iov_len = message->len - n_sent};
    struct msghdr out = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_sent == 0 && n_fds > 0) {
        out.msg_control = control.room;
        out.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *head = CMSG_FIRSTHDR(&out);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(head), fds, n_fds * sizeof(int));
    }
    ssize_t n;
    while ((n = sendmsg(fd, &out, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR) {
    }
    return n;
}

/* --- receiving --- */

int stk_wire_claim(stk_wire *wire)
{
    if (wire->n_fds == 0) {
        return -1;
    }
    int fd = wire->fds[0];
    wire->n_fds--;
    memmove(wire->fds, wire->fds + 1, wire->n_fds * sizeof(int));
    return fd;
}

static int make_read_room(stk_wire *w)
{
    if (w->at > 0) {
        memmove(w->in, w->in + w->at, w->n_in - w->at);
        w->n_in -= w->at;
        w->at = 0;
    }
    if (w->cap_in - w->n_in < 4096) {
        size_t cap = w->cap_in < 8192 ? 16384 : w->cap_in * 2;
        char *grown = realloc(w->in, cap);
        if (grown == NULL) {
            errno = ENOMEM;
            return -1;
        }
        w->in = grown;
        w->cap_in = cap;
    }
    return 0;
}

/* Keeps descriptors in order. */
ssize_t stk_wire_read(stk_wire *wire)
{
    if (make_read_room(wire) < 0) {
        return -1;
    }
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(64 * sizeof(int))];
    } control;
    struct iovec part = {.iov_base = wire->in + wire->n_in, .iov_len = wire->cap_in - wire->n_in};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t n;
    while ((n = recvmsg(wire->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 &&
           errno == EINTR) {
    }
    for (struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&message); c != NULL;
         c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t n_fds = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n_fds; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            if (wire->n_fds < STK_WIRE_FDS) {
                wire->fds[wire->n_fds++] = fd;
            } else {
                (void)close(fd);
            }
        }
    }
    if (n > 0) {
        wire->n_in += (size_t)n;
    }
    return n;
}

int stk_wire_next(stk_wire *wire, const char **ret_data, size_t *ret_len)
{
    if (wire->n_in - wire->at < 4) {
        return 0;
    }
    const unsigned char *head = (const unsigned char *)wire->in + wire->at;
    size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (len > STK_LIMIT_MESSAGE_BYTES) {
        return STK_E_LIMIT;
    }
    if (wire->n_in - wire->at - 4 < len) {
        return 0;
    }
    *ret_data = wire->in + wire->at + 4;
    *ret_len = len;
    wire->at += 4 + len;
    return 1;
}

void stk_wire_done(stk_wire *wire)
{
    for (uint32_t i = 0; i < wire->n_fds; i++) {
        (void)close(wire->fds[i]);
    }
    wire->n_fds = 0;
    free(wire->in);
    wire->in = NULL;
}
