/* socket.c - listening, connecting, and making sure who is at the other end. */
#include "comm/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    /* How long one address may take to answer before the next is tried, and a caller to say who it is. */
    ANSWER_MS_MAX = 1000,
    RETRY_MS = 50
};

/* First bytes in both directions. */
struct hello {
    uint64_t token;
    int32_t id;
    int32_t version;
};

enum {
    HELLO_VERSION = 1
};

int64_t tern_socket_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t tern_socket_token(void)
{
    uint64_t token = 0;
    if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token) {
        token = (uint64_t)tern_socket_now_ns() * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid() << 32;
    }
    return token;
}

/* Addresses of this host that are up, those of networks first, the loopback last. */
static void find_addresses(struct tern_endpoint *out, bool is_v6)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next) {
            bool is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
            if (i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 || is_loopback != (pass == 1) ||
                out->count == TERN_SOCKET_ADDRESSES_MAX) {
                continue;
            }
            char *text = out->addresses[out->count];
            if (i->ifa_addr->sa_family == AF_INET) {
                const struct sockaddr_in *v4 = (const void *)i->ifa_addr;
                out->count +=
                    inet_ntop(AF_INET, &v4->sin_addr, text, TERN_SOCKET_ADDRESS_BYTES) != NULL;
            } else if (i->ifa_addr->sa_family == AF_INET6 && is_v6) {
                const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
                bool is_usable =
                    !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr); /* would need its interface */
                out->count += is_usable && inet_ntop(AF_INET6, &v6->sin6_addr, text,
                                                     TERN_SOCKET_ADDRESS_BYTES) != NULL;
            }
        }
    }
    freeifaddrs(all);
}

/* IPv6 with IPv4 on the same socket where the kernel has both, else IPv4. */
static int listen_on(int port, bool is_v6)
{
    int fd = socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    int on = 1;
    int off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (is_v6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    int error = is_v6 ? bind(fd, (void *)&v6, sizeof v6) : bind(fd, (void *)&v4, sizeof v4);
    if (error != 0 || listen(fd, BACKLOG) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

tern_status tern_socket_listen(int port, int *fd_out, struct tern_endpoint *out)
{
    memset(out, 0, sizeof *out);
    bool is_v6 = true;
    int fd = listen_on(port, true);
    if (fd < 0 && errno != EADDRINUSE) {
        is_v6 = false;
        fd = listen_on(port, false);
    }
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot listen on TCP port %d", port);
    }
    union {
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } bound;
    socklen_t length = sizeof bound;
    if (getsockname(fd, (void *)&bound, &length) != 0) {
        int error = errno;
        close(fd);
        return tern_fail_errno(TERN_ERR_IO, error, "cannot listen on TCP port %d", port);
    }
    out->port = ntohs(is_v6 ? bound.v6.sin6_port : bound.v4.sin_port);
    out->token = tern_socket_token();
    find_addresses(out, is_v6);
    *fd_out = fd;
    return TERN_OK;
}

/* Waits until the socket is ready; false when the time is over. */
static bool wait_ready(int fd, short events, int64_t until_ns)
{
    for (;;) {
        int64_t left = until_ns - tern_socket_now_ns();
        struct pollfd p = {.fd = fd, .events = events};
        int ready = poll(&p, 1, left > 0 ? (int)((left + 999999) / 1000000) : 0);
        if (ready > 0) {
            return true;
        }
        if (ready == 0 || errno != EINTR) {
            return false;
        }
    }
}

bool tern_socket_move(int fd, void *data, size_t bytes, bool is_send, int64_t until_ns)
{
    size_t done = 0;
    while (done < bytes) {
        char *at = (char *)data + done;
        ssize_t n =
            is_send ? send(fd, at, bytes - done, MSG_NOSIGNAL) : recv(fd, at, bytes - done, 0);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return false;
        } else if (!wait_ready(fd, is_send ? POLLOUT : POLLIN, until_ns)) {
            return false;
        }
    }
    return true;
}

static void set_prompt(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/* One address: -1 and errno when it is not the one. */
static int try_address(const char *address, int port, int64_t until_ns)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -1;
    }
    int error = is_v4 ? connect(fd, (void *)&v4, sizeof v4) : connect(fd, (void *)&v6, sizeof v6);
    int code = error == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
        socklen_t length = sizeof code;
        code = ETIMEDOUT;
        if (wait_ready(fd, POLLOUT, until_ns)) {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length);
        }
    }
    if (code != 0) {
        close(fd);
        errno = code;
        return -1;
    }
    set_prompt(fd);
    return fd;
}

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* All addresses once. */
static int try_all(const struct tern_endpoint *endpoint, int32_t id, int64_t until_ns, int *error)
{
    for (int i = 0; i < endpoint->count; i++) {
        int64_t answer_ns = tern_socket_now_ns() + (int64_t)ANSWER_MS_MAX * 1000000;
        answer_ns = min_i64(answer_ns, until_ns);
        int fd = try_address(endpoint->addresses[i], endpoint->port, answer_ns);
        if (fd < 0) {
            *error = errno;
            continue;
        }
        struct hello mine = {endpoint->token, id, HELLO_VERSION};
        struct hello theirs = {0};
        if (tern_socket_move(fd, &mine, sizeof mine, true, answer_ns) &&
            tern_socket_move(fd, &theirs, sizeof theirs, false, answer_ns) &&
            theirs.token == endpoint->token && theirs.version == HELLO_VERSION) {
            return fd;
        }
        *error = ETIMEDOUT;
        close(fd); /* a stranger, or somebody who does not answer */
    }
    return -1;
}

tern_status tern_socket_connect(const struct tern_endpoint *endpoint,
                                int32_t id,
                                int64_t limit_ns,
                                int *fd_out)
{
    int64_t until_ns = tern_socket_now_ns() + limit_ns;
    int error = EADDRNOTAVAIL;
    do {
        *fd_out = try_all(endpoint, id, until_ns, &error);
        if (*fd_out >= 0) {
            return TERN_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = (long)RETRY_MS * 1000000}, NULL);
    } while (tern_socket_now_ns() < until_ns);
    char list[TERN_SOCKET_ADDRESSES_MAX * (TERN_SOCKET_ADDRESS_BYTES + 2)] = "";
    for (int i = 0, used = 0; i < endpoint->count; i++) {
        used += snprintf(list + used, sizeof list - (size_t)used, "%s%s", i > 0 ? ", " : "",
                         endpoint->addresses[i]);
    }
    return tern_fail_errno(TERN_ERR_PEER_LOST, error,
                           "nobody answers at %s, TCP port %d, in %.1f s", list, endpoint->port,
                           (double)limit_ns * 1e-9);
}

tern_status tern_socket_accept(int listener, uint64_t token, int32_t *id_out, int *fd_out)
{
    *fd_out = -1;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        bool is_calm = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        return is_calm ? TERN_OK : tern_fail_errno(TERN_ERR_IO, errno, "accept");
    }
    int64_t until_ns = tern_socket_now_ns() + (int64_t)ANSWER_MS_MAX * 1000000;
    struct hello theirs = {0};
    struct hello mine = {token, -1, HELLO_VERSION};
    if (!tern_socket_move(fd, &theirs, sizeof theirs, false, until_ns) || theirs.token != token ||
        theirs.version != HELLO_VERSION ||
        !tern_socket_move(fd, &mine, sizeof mine, true, until_ns)) {
        close(fd);
        return TERN_OK;
    }
    set_prompt(fd);
    *id_out = theirs.id;
    *fd_out = fd;
    return TERN_OK;
}
