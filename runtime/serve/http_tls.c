/* http_tls.c - OpenSSL on the loop's sockets. */
#include "runtime/serve/http_tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

/* Both types are OpenSSL's own, under a name that the header can give. */
static SSL_CTX *ctx_of(struct tern_http_tls_context *context)
{
    return (SSL_CTX *)context;
}

static SSL *ssl_of(struct tern_http_tls *tls)
{
    return (SSL *)tls;
}

static tern_status fail_ssl(const char *what, const char *file)
{
    char reason[256];
    ERR_error_string_n(ERR_get_error(), reason, sizeof reason);
    ERR_clear_error();
    return tern_fail(TERN_ERR_USAGE, "%s '%s' (PEM expected): %s", what, file, reason);
}

/* http/1.1 if the client offers it; a client that offers only others is turned away by name. */
static int choose_protocol(SSL *ssl,
                           const unsigned char **out,
                           unsigned char *out_bytes,
                           const unsigned char *in,
                           unsigned int in_bytes,
                           void *arg)
{
    static const unsigned char ours[] = "\x08http/1.1";
    (void)ssl;
    (void)arg;
    unsigned char *chosen;
    int found = SSL_select_next_proto(&chosen, out_bytes, ours, sizeof ours - 1, in, in_bytes);
    *out = chosen;
    return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

tern_status tern_http_tls_context_create(const char *cert_file,
                                         const char *key_file,
                                         struct tern_http_tls_context **out)
{
    *out = NULL;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    if (ctx == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot set TLS up: no memory");
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    ERR_clear_error();
    tern_status status = TERN_OK;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert_file) != 1) {
        status = fail_ssl("cannot use the TLS certificate", cert_file);
    } else if (SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) != 1) {
        status = fail_ssl("cannot use the TLS key", key_file);
    } else if (SSL_CTX_check_private_key(ctx) != 1) {
        status = fail_ssl("the TLS key does not belong to the certificate; key", key_file);
    }
    if (status != TERN_OK) {
        SSL_CTX_free(ctx);
        return status;
    }
    *out = (struct tern_http_tls_context *)ctx;
    return TERN_OK;
}

void tern_http_tls_context_destroy(struct tern_http_tls_context *context)
{
    SSL_CTX_free(ctx_of(context));
}

struct tern_http_tls *tern_http_tls_open(struct tern_http_tls_context *context, int fd)
{
    SSL *ssl = SSL_new(ctx_of(context));
    if (ssl == NULL || SSL_set_fd(ssl, fd) != 1) {
        SSL_free(ssl);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return (struct tern_http_tls *)ssl;
}

void tern_http_tls_close(struct tern_http_tls *tls)
{
    SSL_free(ssl_of(tls));
}

static enum tern_http_tls_result result_of(struct tern_http_tls *tls, int returned)
{
    int error = SSL_get_error(ssl_of(tls), returned);
    ERR_clear_error();
    return error == SSL_ERROR_NONE         ? TERN_HTTP_TLS_DONE
           : error == SSL_ERROR_WANT_READ  ? TERN_HTTP_TLS_WANTS_READ
           : error == SSL_ERROR_WANT_WRITE ? TERN_HTTP_TLS_WANTS_WRITE
                                           : TERN_HTTP_TLS_FAILED;
}

enum tern_http_tls_result tern_http_tls_handshake(struct tern_http_tls *tls)
{
    return result_of(tls, SSL_do_handshake(ssl_of(tls)));
}

/* What recv or send would say. */
static ssize_t moved(struct tern_http_tls *tls, int returned)
{
    if (returned > 0) {
        return returned;
    }
    int error = SSL_get_error(ssl_of(tls), returned);
    ERR_clear_error();
    if (error == SSL_ERROR_ZERO_RETURN) {
        return 0;
    }
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
}

ssize_t tern_http_tls_recv(struct tern_http_tls *tls, void *bytes, size_t count)
{
    return moved(tls, SSL_read(ssl_of(tls), bytes, (int)(count < INT_MAX ? count : INT_MAX)));
}

ssize_t tern_http_tls_send(struct tern_http_tls *tls, const void *bytes, size_t count)
{
    return moved(tls, SSL_write(ssl_of(tls), bytes, (int)(count < INT_MAX ? count : INT_MAX)));
}

void tern_http_tls_shutdown(struct tern_http_tls *tls)
{
    (void)SSL_shutdown(ssl_of(tls));
    ERR_clear_error();
}
