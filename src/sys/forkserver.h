/* The client side of fork servers (docs/formats/server-protocol.md): messages, and the descriptors
 * that travel with them. The server is python/stoker/_worker/server.py. */
#ifndef STK_SYS_FORKSERVER_H
#define STK_SYS_FORKSERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

enum { STK_SERVER_PROTOCOL = 1, STK_WIRE_FDS = 256 };

/* Receive state. Zero-initialise all but `fd`. */
typedef struct stk_wire {
    int fd;
    char *in;
    size_t at, n_in, cap_in; /* complete bytes not yet taken begin at `at` */
    int fds[STK_WIRE_FDS];   /* received, not yet claimed by a message */
    uint32_t n_fds;
} stk_wire;

/* One read that doesn't wait. Returns bytes, 0 at end of file, or -1 with errno. */
ssize_t stk_wire_read(stk_wire *wire);
/* The next whole message: 1, 0 (none yet), or STK_E_LIMIT. The data is valid until the next read.
 */
int stk_wire_next(stk_wire *wire, const char **ret_data, size_t *ret_len);
/* The descriptor of the message just taken, now owned by the caller; -1: it has none. */
int stk_wire_claim(stk_wire *wire);
/* Sends as much of a message as fits without waiting; its descriptors go with the first byte. -1
 * with errno. */
ssize_t stk_wire_send(int fd, const stk_buf *message, size_t n_sent, const int *fds,
                      uint32_t n_fds);
/* Frees the received data; the caller still owns `fd`. */
void stk_wire_done(stk_wire *wire);

typedef struct stk_server_spawn {
    uint32_t id;
    const char *dir, *step; /* step: for messages, may be NULL */
    const char *const *env; /* "K=V", NULL-terminated, or NULL; added to the server's environment */
    const char *const *unset;
    const char *const *cgroup_procs;
    uint32_t n_cgroup_procs;
    const uint32_t *cpus;
    uint32_t n_cpus, threads;
    const char *cwd; /* NULL: ours */
    const char *hook, *hook_error;
} stk_server_spawn;

/* Writes the whole message, with its length in front, into the empty `buf`. STK_E_LIMIT: too large.
 */
int stk_server_spawn_message(const stk_server_spawn *spawn, stk_buf *buf, stk_err *err);

#endif
