/* socket.h - TCP between the hosts of a job: listening on whatever addresses this host has, and finding a listener among
 * the addresses that it named. For comm/tcp and for the watchdog of comm/nccl. */
#ifndef TERN_COMM_SOCKET_H
#define TERN_COMM_SOCKET_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_SOCKET_ADDRESSES_MAX = 8,
    TERN_SOCKET_ADDRESS_BYTES = 48, /* an IPv6 address in digits */
};

/* Where somebody listens; travels as bytes. A host has several addresses, and not every peer reaches each: whoever
 * connects tries them in turn and makes sure by the token that it found the right process. */
struct tern_endpoint {
    uint64_t token; /* random; the listener expects it, and answers with it */
    int32_t port;
    int32_t count;
    char addresses[TERN_SOCKET_ADDRESSES_MAX][TERN_SOCKET_ADDRESS_BYTES]; /* the loopback last */
};

/* A listening socket on all interfaces, IPv4 and IPv6; port 0: any. Owned: close. */
TERN_MUST_CHECK tern_status tern_socket_listen(int port, int *fd_out, struct tern_endpoint *out);
/* Connects and says hello: afterwards both sides know each other. `id` is who calls. Tries all addresses until the
 * limit passes. Owned: close. */
TERN_MUST_CHECK tern_status tern_socket_connect(const struct tern_endpoint *endpoint,
                                                int32_t id,
                                                int64_t limit_ns,
                                                int *fd_out);
/* The other side: takes one connection if one is waiting (*fd_out is -1 otherwise, or when it was a stranger's). */
TERN_MUST_CHECK tern_status tern_socket_accept(int listener,
                                               uint64_t token,
                                               int32_t *id_out,
                                               int *fd_out);
/* All bytes, or false: the time is over or the other side gone. */
bool tern_socket_move(int fd, void *data, size_t bytes, bool is_send, int64_t until_ns);
/* A number that nobody guesses. */
uint64_t tern_socket_token(void);
/* CLOCK_MONOTONIC; a test's fake clock does not move peers. */
int64_t tern_socket_now_ns(void);

#endif
