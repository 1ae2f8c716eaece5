/* http_tls_test.c - the server behind a certificate made here: answers, streams, clients that leave, and what is refused. */
#include "tests/runtime/serve/http_fixture.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct fixture fixture;
static char folder[64] = "/tmp/tern-tls.XXXXXX";
static char cert_file[96], key_file[96], other_key_file[96];

static EVP_PKEY *write_key(const char *path)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    FILE *file = fopen(path, "w");
    assert_non_null(key);
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    return key;
}

/* A certificate for localhost, signed by itself. */
static void write_cert(const char *path, EVP_PKEY *key)
{
    X509 *cert = X509_new();
    X509_NAME *name = X509_get_subject_name(cert);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"localhost", -1, -1,
                               0);
    X509_set_issuer_name(cert, name);
    X509_set_pubkey(cert, key);
    assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, cert), 1);
    fclose(file);
    X509_free(cert);
}

static int make_files(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(cert_file, sizeof cert_file, "%s/cert.pem", folder);
    snprintf(key_file, sizeof key_file, "%s/key.pem", folder);
    snprintf(other_key_file, sizeof other_key_file, "%s/other.pem", folder);
    EVP_PKEY *key = write_key(key_file);
    write_cert(cert_file, key);
    EVP_PKEY_free(key);
    EVP_PKEY_free(write_key(other_key_file));
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(cert_file);
    unlink(key_file);
    unlink(other_key_file);
    return rmdir(folder);
}

static void start(void)
{
    fixture_start(&fixture,
                  &(struct tern_http_options){.cert_file = cert_file, .key_file = key_file});
}

struct client {
    SSL_CTX *ctx;
    SSL *ssl;
    int fd;
};

/* alpn: protocols as ALPN lists them; newest: of TLS. Returns what SSL_connect does. */
static int client_connect(struct client *client, const char *alpn, int newest)
{
    client->ctx = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(client->ctx, 0);
    SSL_CTX_set_max_proto_version(client->ctx, newest);
    SSL_CTX_set_min_proto_version(client->ctx, TLS1_VERSION);
    SSL_CTX_set_mode(client->ctx, SSL_MODE_AUTO_RETRY);
    client->ssl = SSL_new(client->ctx);
    client->fd = client_open(&fixture);
    if (alpn != NULL) {
        SSL_set_alpn_protos(client->ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn));
    }
    SSL_set_fd(client->ssl, client->fd);
    return SSL_connect(client->ssl);
}

static void client_close(struct client *client)
{
    SSL_free(client->ssl);
    SSL_CTX_free(client->ctx);
    if (client->fd >= 0) {
        close(client->fd);
    }
}

static void put(struct client *client, const char *bytes, size_t count)
{
    assert_int_equal(SSL_write(client->ssl, bytes, (int)count), count);
}

static void put_text(struct client *client, const char *text)
{
    put(client, text, strlen(text));
}

/* Reads until text has come; what came before it is in `have`. */
static void read_until(struct client *client, char *have, size_t room, const char *text)
{
    size_t length = 0;
    have[0] = '\0';
    while (strstr(have, text) == NULL) {
        assert_true(length + 1 < room);
        int got = SSL_read(client->ssl, have + length, 1);
        if (got != 1) {
            fail_msg("the end came before '%s'", text);
        }
        have[++length] = '\0';
    }
}

static void read_exactly(struct client *client, char *bytes, size_t count)
{
    for (size_t have = 0; have < count;) {
        int got = SSL_read(client->ssl, bytes + have, (int)(count - have));
        assert_true(got > 0);
        have += (size_t)got;
    }
}

static void expect_end(struct client *client)
{
    char byte;
    assert_true(SSL_read(client->ssl, &byte, 1) <= 0);
}

static void test_answers(void **state)
{
    (void)state;
    static const char alpn[] = "\x02h2\x08http/1.1";
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    start();
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        struct client client;
        char have[4096];
        const unsigned char *chosen;
        unsigned int chosen_bytes;
        assert_int_equal(client_connect(&client, alpn, versions[i]), 1);
        SSL_get0_alpn_selected(client.ssl, &chosen, &chosen_bytes);
        assert_int_equal(chosen_bytes, 8);
        assert_memory_equal(chosen, "http/1.1", 8);
        put_text(&client, "GET /light HTTP/1.1\r\nHost: a\r\n\r\n");
        read_until(&client, have, sizeof have, "\r\n\r\nok");
        assert_contains(have, "HTTP/1.1 200 OK");
        put_text(&client, "GET /light HTTP/1.1\r\nHost: a\r\n\r\nPOST /stream HTTP/1.1\r\nHost: "
                          "a\r\nContent-Length: 5\r\n\r\nhello");
        read_until(&client, have, sizeof have, "\r\n\r\nok");
        read_until(&client, have, sizeof have, "data: hello\n\n\r\n0\r\n\r\n");
        put_text(&client, "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        read_until(&client, have, sizeof have, "404}}\n");
        expect_end(&client);
        assert_true((SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN) != 0);
        client_close(&client);
    }
    fixture_stop(&fixture);
}

/* Bodies of megabytes, there and back, and answers that fill the socket. */
static void test_long(void **state)
{
    (void)state;
    enum {
        SIZE = 3 << 20
    };
    struct client client;
    char have[4096];
    char *body = malloc(SIZE), *back = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) {
        body[i] = (char)('a' + i % 23);
    }
    start();
    assert_int_equal(client_connect(&client, NULL, TLS1_3_VERSION), 1);
    snprintf(have, sizeof have, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
             SIZE);
    put_text(&client, have);
    for (int at = 0; at < SIZE; at += 12345) {
        put(&client, body + at, (size_t)(SIZE - at < 12345 ? SIZE - at : 12345));
    }
    read_until(&client, have, sizeof have, "\r\n\r\n");
    read_exactly(&client, back, SIZE);
    assert_memory_equal(back, body, SIZE);
    for (int i = 0; i < 4; i++) {
        put_text(&client, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for (int i = 0; i < 4; i++) {
        read_until(&client, have, sizeof have, "\r\n\r\n");
        read_exactly(&client, back, ROUTES_BIG_BYTES);
        assert_int_equal(back[ROUTES_BIG_BYTES - 1], 'b');
    }
    client_close(&client);
    free(body);
    free(back);
    fixture_stop(&fixture);
}

/* By close_notify and FIN, by FIN alone, by a reset. */
static void test_gone(void **state)
{
    (void)state;
    static const char *const paths[] = {"/hold", "/tick"};
    start();
    int expected = 0;
    for (int i = 0; i < 6; i++) {
        struct client client;
        char text[128];
        assert_int_equal(client_connect(&client, NULL, TLS1_3_VERSION), 1);
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", paths[i / 3]);
        put_text(&client, text);
        wait_for(&fixture.routes.held, 1, "held");
        if (i % 3 == 0) {
            SSL_shutdown(client.ssl);
        } else if (i % 3 == 1) {
            client_reset(client.fd);
            client.fd = -1;
        }
        client_close(&client);
        wait_for(&fixture.routes.gone, ++expected, "gone");
        routes_tick(&fixture.routes);
        wait_for(&fixture.routes.held, 0, "held");
    }
    fixture_stop(&fixture);
}

static void test_refused_clients(void **state)
{
    (void)state;
    struct client client;
    start();
    assert_int_not_equal(client_connect(&client, "\x02h2", TLS1_3_VERSION), 1);
    client_close(&client);
    assert_int_not_equal(client_connect(&client, NULL, TLS1_1_VERSION), 1);
    client_close(&client);
    int plain = client_open(&fixture);
    client_print(plain, "GET /light HTTP/1.1\r\nHost: a\r\n\r\n");
    client_expect_cut(plain);
    assert_int_equal(client_connect(&client, NULL, TLS1_3_VERSION), 1); /* and it still serves */
    client_close(&client);
    fixture_stop(&fixture);
}

/* A handshake that never ends, and one with no request behind it. */
static void test_slow_handshake(void **state)
{
    (void)state;
    struct client client;
    clock_stop();
    start();
    int fd = client_open(&fixture);
    assert_true(client_send(fd, "\x16\x03\x01", 3));
    assert_int_equal(client_connect(&client, NULL, TLS1_3_VERSION), 1);
    clock_go(11);
    client_expect_cut(fd);
    expect_end(&client);
    client_close(&client);
    fixture_stop(&fixture);
    clock_restore();
}

static void test_stop(void **state)
{
    (void)state;
    struct client client;
    char have[4096];
    start();
    assert_int_equal(client_connect(&client, NULL, TLS1_3_VERSION), 1);
    put_text(&client, "GET /tick HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_for(&fixture.routes.held, 1, "held");
    tern_http_stop(fixture.http, 1000);
    while (routes_tick(&fixture.routes) == 0) {
    }
    routes_end(&fixture.routes);
    read_until(&client, have, sizeof have, "\r\n0\r\n\r\n");
    expect_end(&client);
    client_close(&client);
    fixture_join(&fixture);
    fixture_stop(&fixture);
}

static void assert_refused(const char *cert, const char *key, const char *words)
{
    struct tern_http *http;
    struct tern_http_options options = {.cert_file = cert, .key_file = key};
    assert_int_equal(tern_http_create(&options, &http), TERN_ERR_USAGE);
    assert_contains(tern_detail(), words);
    assert_contains(tern_detail(), folder);
}

static void test_bad_files(void **state)
{
    (void)state;
    assert_refused(key_file, key_file, "certificate");
    assert_refused(cert_file, cert_file, "key");
    assert_refused(cert_file, other_key_file, "key");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_answers),         CHECKED(test_long),           CHECKED(test_gone),
        CHECKED(test_refused_clients), CHECKED(test_slow_handshake), CHECKED(test_stop),
        CHECKED(test_bad_files),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
