/* Ends connections whose request or answer takes too long, however slowly bytes trickle: libevent's
 * own time limits begin anew with each byte. Each connection carries one request. */
#include <event2/bufferevent.h>
#include <stdlib.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "sys/clock.h"
#include "ui/ui_private.h"

/* Known by its socket: libevent frees what belongs to it without telling us. */
typedef struct connection {
    struct bufferevent *io; /* with a reference, until the socket is known; then NULL */
    int fd;
    ino_t inode; /* of the socket: the number may be another connection's by now */
    struct event *end;
    bool is_asked; /* its request is complete */
    struct ui_connections *of;
    struct connection *next;
} connection;

struct ui_connections {
    struct event_base *base;
    connection *first; /* newest first */
    uint32_t n;
};

static ino_t inode_of(int fd)
{
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? st.st_ino : 0;
}

static bool is_open(const connection *c)
{
    return c->io != NULL || (c->inode != 0 && inode_of(c->fd) == c->inode);
}

/* Makes libevent see the end of the connection, and close it. */
static void cut(const connection *c)
{
    if (c->io == NULL && is_open(c)) {
        (void)shutdown(c->fd, SHUT_RDWR);
    }
}

static void forget_connection(connection *c)
{
    connection **at = &c->of->first;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    c->of->n--;
    if (c->io != NULL) {
        bufferevent_decref(c->io);
    }
    event_free(c->end);
    free(c);
}

static void set_end(const connection *c, int64_t ms)
{
    struct timeval after = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    (void)evtimer_add(c->end, &after);
}

/* The first time at once, when libevent has set the socket; then when its time is over. */
static void on_end(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    connection *c = arg;
    if (c->io != NULL) {
        c->fd = bufferevent_getfd(c->io);
        c->inode = inode_of(c->fd);
        bufferevent_decref(c->io);
        c->io = NULL;
        set_end(c, c->is_asked ? UI_ANSWER_MS : UI_REQUEST_MS);
        return;
    }
    cut(c);
    forget_connection(c);
}

/* Makes room by giving up those that closed, and then the oldest whose request is incomplete. */
static void make_room(struct ui_connections *all)
{
    connection *oldest = NULL;
    for (connection *c = all->first, *next; c != NULL; c = next) {
        next = c->next;
        if (!is_open(c)) {
            forget_connection(c);
        } else if (!c->is_asked) {
            oldest = c;
        }
    }
    if (all->n >= UI_CONNECTIONS && oldest != NULL) {
        cut(oldest);
        forget_connection(oldest);
    }
}

static struct bufferevent *make_io(struct event_base *base, void *arg)
{
    struct ui_connections *all = arg;
    struct bufferevent *io = bufferevent_socket_new(base, -1, 0);
    connection *c = io == NULL ? NULL : calloc(1, sizeof *c);
    if (all->n >= UI_CONNECTIONS / 2) {
        make_room(all);
    }
    if (c == NULL || (c->end = evtimer_new(base, on_end, c)) == NULL) {
        free(c);
        return io; /* without memory, its end comes by libevent's time limit */
    }
    bufferevent_incref(io);
    c->io = io;
    c->of = all;
    c->next = all->first;
    all->first = c;
    all->n++;
    set_end(c, 0);
    return io;
}

void stk_ui_connection_asked(stk_ui *ui, struct evhttp_request *http)
{
    struct evhttp_connection *from = evhttp_request_get_connection(http);
    if (from == NULL) {
        return;
    }
    struct bufferevent *io = evhttp_connection_get_bufferevent(from);
    ino_t inode = inode_of(bufferevent_getfd(io));
    for (connection *c = ui->connections->first; c != NULL; c = c->next) {
        if (c->io == io || (c->io == NULL && c->inode == inode)) {
            c->is_asked = true;
            if (c->io == NULL) {
                set_end(c, UI_ANSWER_MS);
            }
            return;
        }
    }
}

int stk_ui_connections_open(stk_ui *ui, stk_err *err)
{
    ui->connections = calloc(1, sizeof *ui->connections);
    STK_TRY(stk_err_if_null(ui->connections, err));
    ui->connections->base = ui->base;
    evhttp_set_bevcb(ui->http, make_io, ui->connections);
    return 0;
}

void stk_ui_connections_close(stk_ui *ui)
{
    while (ui->connections != NULL && ui->connections->first != NULL) {
        forget_connection(ui->connections->first);
    }
    free(ui->connections);
    ui->connections = NULL;
}
