/* Connections between the launchers of a gang's nodes. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/digest.h"
#include "host/launch/launch_nodes.h"
#include "host/launch/launch_ranks.h"
#include "sys/file.h"

static void error_words(int code, char *why, size_t size)
{
    (void)snprintf(why, size, "%s", strerror(code));
    why[0] = (char)tolower((unsigned char)why[0]);
}

int stk_launch_net_split(const char *text, char *host, size_t size, int32_t *port, stk_err *err)
{
    const char *colon = strrchr(text, ':');
    const char *close = strchr(text, ']');
    if (colon != NULL && text[0] != '[' && strchr(text, ':') != colon) {
        colon = NULL; /* an IPv6 address without brackets */
    }
    if (colon != NULL && close != NULL && colon < close) {
        colon = NULL;
    }
    size_t n = strlen(text);
    char *end = NULL;
    long number = NODES_PORT;
    if (colon != NULL) {
        n = (size_t)(colon - text);
        number = strtol(colon + 1, &end, 10);
    }
    const char *from = text;
    if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
        from++;
        n -= 2;
    }
    if (n == 0 || n >= size || number < 1 || number > 65535 ||
        (colon != NULL && (end == colon + 1 || *end != '\0'))) {
        return stk_err_set(
            err, STK_E_USAGE,
            "'%s' isn't a valid address of node 0; write one like 10.0.0.1:29400 or name:29400",
            text);
    }
    (void)snprintf(host, size, "%.*s", (int)n, from);
    *port = (int32_t)number;
    return 0;
}

int stk_launch_net_listen(int32_t port, int *ret_fd, stk_err *err)
{
    int one = 1, zero = 0;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const struct {
        const struct sockaddr *at;
        socklen_t size;
    } kinds[] = {{(struct sockaddr *)&six, sizeof six}, {(struct sockaddr *)&four, sizeof four}};
    int code = 0;
    for (int i = 0; i < 2 && code != EADDRINUSE; i++) {
        int family = kinds[i].at->sa_family;
        bool is_six = family == AF_INET6; /* accepts IPv4, too; the kernel may lack IPv6 */
        STK_FD_AUTO fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
            (!is_six || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero) == 0) &&
            bind(fd, kinds[i].at, kinds[i].size) == 0 && listen(fd, NODES_MAX) == 0) {
            *ret_fd = fd;
            fd = -1;
            return 0;
        }
        code = errno;
    }
    if (code == EADDRINUSE) {
        return stk_launch_port_taken(port, err);
    }
    return stk_err_sys(err, STK_E_SYS, code, "cannot listen on port %d", (int)port);
}

int32_t stk_launch_net_port(int fd)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    (void)getsockname(fd, (struct sockaddr *)&at, &len);
    if (at.ss_family == AF_INET6) {
        return ntohs(((struct sockaddr_in6 *)&at)->sin6_port);
    }
    return ntohs(((struct sockaddr_in *)&at)->sin_port);
}

static bool is_same_address(const struct sockaddr *a, const struct sockaddr *b)
{
    if (b == NULL || a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    }
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

bool stk_launch_is_here(const char *text)
{
    char host[256], own[256] = "";
    int32_t port;
    size_t n = strlen(text);
    if (n > 2 && strcmp(text + n - 2, ":0") == 0) { /* torchrun: any port */
        n -= 2;
    }
    (void)snprintf(own, sizeof own, "%.*s", (int)n, text);
    if (stk_launch_net_split(own, host, sizeof host, &port, NULL) < 0) {
        return false;
    }
    own[0] = '\0';
    (void)gethostname(own, sizeof own - 1);
    if (strcmp(host, "localhost") == 0 || strcmp(host, own) == 0) {
        return true;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    struct ifaddrs *ours = NULL;
    bool found = false;
    if (getaddrinfo(host, NULL, &hints, &list) == 0 && getifaddrs(&ours) == 0) {
        for (const struct addrinfo *at = list; at != NULL && !found; at = at->ai_next) {
            for (const struct ifaddrs *i = ours; i != NULL && !found; i = i->ifa_next) {
                found = is_same_address(at->ai_addr, i->ifa_addr);
            }
        }
        freeifaddrs(ours);
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
    return found;
}

/* Connects from the address `from`, or from any (NULL). */
static int connect_to(const struct addrinfo *at, const struct addrinfo *from, int timeout_ms)
{
    STK_FD_AUTO fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (from != NULL && bind(fd, from->ai_addr, from->ai_addrlen) < 0)) {
        return -1;
    }
    if (connect(fd, at->ai_addr, at->ai_addrlen) < 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        int code = errno;
        socklen_t size = sizeof code;
        if (code == EINPROGRESS) {
            int n;
            while ((n = poll(&p, 1, timeout_ms)) < 0 && errno == EINTR) {
            }
            code = n == 0 ? ETIMEDOUT : 0;
            if (n > 0) {
                (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
            }
        }
        if (code != 0) {
            errno = code;
            return -1;
        }
    }
    int taken = fd;
    fd = -1;
    return taken;
}

static void say_unresolved(int code, char *why, size_t size)
{
    (void)snprintf(why, size, "its name can't be resolved (%s)", gai_strerror(code));
}

bool stk_launch_net_resolves(const char *host, char *why, size_t size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, NULL, &hints, &list);
    if (code != 0) {
        say_unresolved(code, why, size);
        return false;
    }
    freeaddrinfo(list);
    return true;
}

int stk_launch_net_connect(const char *host, int32_t port, const char *from, int timeout_ms,
                           char *why, size_t size)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    (void)snprintf(service, sizeof service, "%d", (int)port);
    int code = getaddrinfo(host, service, &hints, &list);
    if (code != 0) {
        say_unresolved(code, why, size);
        return -1;
    }
    int fd = -1;
    struct addrinfo *own = NULL;
    struct addrinfo of_own = {.ai_socktype = SOCK_STREAM};
    code = from == NULL ? 0 : getaddrinfo(from, NULL, &of_own, &own);
    if (code != 0) {
        (void)snprintf(why, size, "--local-addr %.100s is no address (%s)", from,
                       gai_strerror(code));
    }
    for (const struct addrinfo *at = list; at != NULL && fd < 0 && code == 0; at = at->ai_next) {
        fd = connect_to(at, own, timeout_ms);
        if (fd < 0) {
            error_words(errno, why, size);
        }
    }
    freeaddrinfo(list);
    if (own != NULL) {
        freeaddrinfo(own);
    }
    return fd;
}

void stk_launch_net_keep(int fd)
{
    int one = 1;
    unsigned silence = NODES_SILENCE_MS;
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, sizeof silence);
}

int64_t stk_launch_net_why_lost(int fd, int code, char *why, size_t size)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    if (code == 0 || code == ECONNRESET || code == EPIPE) {
        (void)snprintf(why, size, "its launcher ended");
    } else if (code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH) {
        (void)getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
        uint32_t ms = info.tcpi_last_ack_recv;
        if (ms < NODES_SILENCE_MS / 2 || ms >= 10 * NODES_SILENCE_MS) {
            ms = NODES_SILENCE_MS;
        }
        (void)snprintf(why, size, "nothing was heard from it for %.1f s", ms / 1000.0);
        return ms;
    } else {
        error_words(code, why, size);
    }
    return 0;
}

void stk_launch_net_name(int fd, char *text, size_t size)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    (void)snprintf(text, size, "?");
    if (getpeername(fd, (struct sockaddr *)&at, &len) == 0) {
        (void)getnameinfo((struct sockaddr *)&at, len, text, (socklen_t)size, NULL, 0,
                          NI_NUMERICHOST);
    }
    if (strncmp(text, "::ffff:", 7) == 0 && strchr(text, '.') != NULL) {
        memmove(text, text + 7, strlen(text + 7) + 1);
    }
}

static bool same_address(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a == NULL || a->sa_family != b->ss_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return memcmp(&((const struct sockaddr_in *)a)->sin_addr,
                      &((const struct sockaddr_in *)b)->sin_addr, sizeof(struct in_addr)) == 0;
    }
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

void stk_launch_net_interface(int fd, char *name, size_t size)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    struct ifaddrs *list = NULL;
    name[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0 || getifaddrs(&list) < 0) {
        return;
    }
    for (const struct ifaddrs *i = list; i != NULL && name[0] == '\0'; i = i->ifa_next) {
        if (same_address(i->ifa_addr, &at)) {
            (void)snprintf(name, size, "%s", i->ifa_name);
        }
    }
    freeifaddrs(list);
}

void stk_launch_net_nonce(char ret_hex[NODES_NONCE + 1])
{
    unsigned char data[NODES_NONCE / 2];
    if (getrandom(data, sizeof data, 0) != (ssize_t)sizeof data) {
        abort(); /* getrandom never fails for so few bytes */
    }
    for (size_t i = 0; i < sizeof data; i++) {
        (void)snprintf(ret_hex + 2 * i, 3, "%02x", data[i]);
    }
}

void stk_launch_net_proof(const char *key, const char *words, char ret_hex[65])
{
    unsigned char sum[STK_DIGEST_BYTES];
    stk_hmac_sha256(key, strlen(key), words, strlen(words), sum);
    stk_digest_hex(sum, ret_hex);
}
