/* http_tls.h - TLS for one connection of the loop, on a non-blocking socket. The one door to OpenSSL. */
#ifndef TERN_RUNTIME_SERVE_HTTP_TLS_H
#define TERN_RUNTIME_SERVE_HTTP_TLS_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tern_http_tls_context; /* certificate and key, shared by all connections */
struct tern_http_tls;

/* Loads and checks both files: TLS 1.2 or newer, ALPN http/1.1. */
TERN_MUST_CHECK tern_status tern_http_tls_context_create(const char *cert_file,
                                                         const char *key_file,
                                                         struct tern_http_tls_context **out);
void tern_http_tls_context_destroy(struct tern_http_tls_context *context);

/* The socket stays the caller's. NULL: out of memory. */
struct tern_http_tls *tern_http_tls_open(struct tern_http_tls_context *context, int fd);
void tern_http_tls_close(struct tern_http_tls *tls);

enum tern_http_tls_result {
    TERN_HTTP_TLS_DONE,
    TERN_HTTP_TLS_WANTS_READ,
    TERN_HTTP_TLS_WANTS_WRITE,
    TERN_HTTP_TLS_FAILED
};
enum tern_http_tls_result tern_http_tls_handshake(struct tern_http_tls *tls);
/* As recv and send of a non-blocking socket: -1 with errno EAGAIN, or another errno: the connection is lost. */
ssize_t tern_http_tls_recv(struct tern_http_tls *tls, void *bytes, size_t count);
ssize_t tern_http_tls_send(struct tern_http_tls *tls, const void *bytes, size_t count);
/* Says the end of our bytes, once. */
void tern_http_tls_shutdown(struct tern_http_tls *tls);

#endif
