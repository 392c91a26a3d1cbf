/* The port where ranks meet: holds it for rank 0, or finds out which process has it. */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc.h"

/* "pid 123: python train.py" */
static void name_process(int pid, char *text, size_t size)
{
    char words[200];
    ssize_t n = stk_proc_read(pid, "cmdline", words, sizeof words);
    for (ssize_t i = 0; i + 1 < n; i++) {
        if ((unsigned char)words[i] < ' ') {
            words[i] = ' ';
        }
    }
    if (n > 0) {
        (void)snprintf(text, size, "pid %d: %.120s", pid, words);
    } else {
        (void)snprintf(text, size, "pid %d", pid);
    }
}

/* The inode of the socket that listens on `port`; 0: none, or unknown. */
static unsigned long listener_inode(const char *table, int port)
{
    char line[512];
    unsigned long found = 0;
    FILE *file = fopen(table, "re");
    while (file != NULL && found == 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned local, state;
        unsigned long inode;
        if (sscanf(line, " %*[^:]: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*d %lu",
                   &local, &state, &inode) == 3 &&
            local == (unsigned)port && state == 10) { /* TCP_LISTEN */
            found = inode;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

static bool has_socket(const char *pid, unsigned long inode)
{
    char path[300], wanted[64], target[64];
    bool found = false;
    (void)snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    (void)snprintf(path, sizeof path, "/proc/%s/fd", pid);
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read(path, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && !found && i < dir.n; i++) {
        ssize_t n = readlinkat(dir.fd, dir.items[i].name, target, sizeof target - 1);
        target[MAX(n, 0)] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    return found;
}

static void name_listener(int port, char *text, size_t size)
{
    unsigned long inode = listener_inode("/proc/net/tcp", port);
    if (inode == 0) {
        inode = listener_inode("/proc/net/tcp6", port);
    }
    (void)snprintf(text, size, "another program");
    STK_DIR_AUTO dir = {0};
    if (inode == 0 || stk_dir_read("/proc", &dir, NULL) < 0) {
        return;
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        int pid = atoi(dir.items[i].name);
        if (pid > 0 && has_socket(dir.items[i].name, inode)) {
            name_process(pid, text, size);
            break;
        }
    }
}

/* Two launchers could bind the same port, and the ranks of one could then meet the other's. So a
 * launcher also binds an abstract socket name, which is unique within the port's network
 * namespace. */
static int claim(int port, int *ret_fd, char *who, size_t size)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "stoker-launch-port-%d", port);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    STK_FD_AUTO fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&name, len) == 0 && listen(fd, 8) == 0) {
        *ret_fd = fd;
        fd = -1;
        return 0;
    }
    struct ucred peer = {0};
    socklen_t peer_size = sizeof peer;
    (void)snprintf(who, size, "another launcher");
    STK_FD_AUTO ask = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (ask >= 0 && connect(ask, (struct sockaddr *)&name, len) == 0 &&
        getsockopt(ask, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0 && peer.pid > 0) {
        name_process(peer.pid, who, size);
    }
    return -1;
}

static int taken(int port, const char *who, stk_err *err)
{
    return stk_err_set(err, STK_E_BUSY,
                       "port %d is used by another program on this host (%s); choose another port, "
                       "or none to use a free one",
                       port, who);
}

int stk_launch_port_taken(int port, stk_err *err)
{
    char who[200];
    name_listener(port, who, sizeof who);
    return taken(port, who, err);
}

/* Rank 0's store can bind the port, too (SO_REUSEADDR on both sides, and our socket never listens),
 * but the kernel won't assign it to a process that wants any free port. */
int stk_launch_port(int32_t wanted, launch_port *ret_port, stk_err *err)
{
    char who[200];
    for (int again = 0; again < 8; again++) {
        STK_FD_AUTO fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int one = 1;
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)wanted)};
        socklen_t size = sizeof at;
        if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
            bind(fd, (struct sockaddr *)&at, size) < 0 ||
            getsockname(fd, (struct sockaddr *)&at, &size) < 0) {
            if (errno == EADDRINUSE && wanted > 0) {
                return stk_launch_port_taken(wanted, err);
            }
            return stk_err_sys(err, STK_E_SYS, errno, "cannot hold port %d for rank 0",
                               (int)wanted);
        }
        if (claim(ntohs(at.sin_port), &ret_port->claim, who, sizeof who) == 0) {
            ret_port->number = ntohs(at.sin_port);
            ret_port->fd = fd;
            fd = -1;
            return 0;
        }
        if (wanted > 0) {
            break;
        }
    }
    return taken(wanted, who, err);
}

void stk_launch_port_close(launch_port *port)
{
    stk_file_close(&port->fd);
    stk_file_close(&port->claim);
}
