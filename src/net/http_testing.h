/* http_testing: a server on loopback for the tests of net, with one thread per connection. */
#ifndef STK_NET_HTTP_TESTING_H
#define STK_NET_HTTP_TESTING_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/testing.h"

enum { HTTP_SERVER_CONNECTIONS = 256 };

typedef struct http_server {
    int fd, port;
    pthread_t thread;
    atomic_int n_connections;
    void *(*converse)(void *fd); /* owns the connection, which is (int)(intptr_t)fd */
} http_server;

static void *http_server_run(void *arg)
{
    http_server *server = arg;
    pthread_t threads[HTTP_SERVER_CONNECTIONS];
    uint32_t n = 0;
    int fd;
    while ((fd = accept(server->fd, NULL, NULL)) >= 0) {
        atomic_fetch_add(&server->n_connections, 1);
        assert_true(n < HTTP_SERVER_CONNECTIONS);
        assert_int_equal(
            pthread_create(&threads[n++], NULL, server->converse, (void *)(intptr_t)fd), 0);
    }
    while (n > 0) {
        (void)pthread_join(threads[--n], NULL);
    }
    return NULL;
}

/* Serves on a free port until http_server_stop. Returns 0, or another value on failure. */
static int http_server_start(http_server *server, void *(*converse)(void *fd))
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    server->converse = converse;
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return bind(server->fd, (struct sockaddr *)&in, sizeof in) < 0 ||
           getsockname(server->fd, (struct sockaddr *)&in, &len) < 0 ||
           listen(server->fd, 64) < 0 || (server->port = ntohs(in.sin_port)) == 0 ||
           pthread_create(&server->thread, NULL, http_server_run, server) != 0;
}

/* Waits for the threads of all connections, whose clients must have closed their ends.
 * LeakSanitizer would report a thread that is still running at exit as a leak. */
static int http_server_stop(http_server *server)
{
    (void)shutdown(server->fd, SHUT_RDWR);
    int rc = pthread_join(server->thread, NULL);
    close(server->fd);
    return rc;
}

#endif
