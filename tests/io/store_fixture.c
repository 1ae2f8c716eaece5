/* store_fixture.c - the store of the tests as a child process. */
#include "tests/io/store_fixture.h"

#include "io/http_client.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SWEEP_LONG = 1000, /* seeds: from here on it says how far it is */
    SWEEP_LINES = 100
};

void store_server_use(const struct store_server *server)
{
    static const char *const gone[] = {"AWS_PROFILE",
                                       "AWS_SESSION_TOKEN",
                                       "AWS_REGION",
                                       "AWS_DEFAULT_REGION",
                                       "AWS_ENDPOINT_URL_S3",
                                       "AWS_SHARED_CREDENTIALS_FILE",
                                       "AWS_CA_BUNDLE",
                                       "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                       "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                       "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                       "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                       "AWS_WEB_IDENTITY_TOKEN_FILE",
                                       "AWS_ROLE_SESSION_NAME",
                                       "AWS_EC2_METADATA_DISABLED",
                                       "AZURE_FEDERATED_TOKEN_FILE",
                                       "SSL_CERT_FILE",
                                       "https_proxy",
                                       "HTTPS_PROXY",
                                       "all_proxy",
                                       "ALL_PROXY",
                                       "http_proxy",
                                       "HTTP_PROXY",
                                       "AZURE_STORAGE_SAS_TOKEN",
                                       "AZURE_STORAGE_CONNECTION_STRING",
                                       "GOOGLE_OAUTH_ACCESS_TOKEN",
                                       "GOOGLE_APPLICATION_CREDENTIALS"};
    char text[128];
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        unsetenv(gone[i]);
    }
    setenv("AWS_ACCESS_KEY_ID", "tern", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_ENDPOINT_URL", server->base, 1);
    snprintf(text, sizeof text, "%s/sts/", server->base);
    setenv("AWS_ENDPOINT_URL_STS", text, 1);
    setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/tern", 1);
    setenv("GS_ACCESS_KEY_ID", "tern", 1);
    setenv("GS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("STORAGE_EMULATOR_HOST", server->base, 1);
    setenv("AZURE_STORAGE_ACCOUNT", "ternaccount", 1);
    setenv("AZURE_STORAGE_KEY", "YSBrZXkgb2YgdGhlIHRlc3RzLCAzMiBieXRlcyBsb25n", 1);
    snprintf(text, sizeof text, "%s/ternaccount", server->base);
    setenv("AZURE_STORAGE_ENDPOINT", text, 1);
    setenv("TERN_METADATA_URL", server->base, 1);
    setenv("TERN_STORE_PART_BYTES", "1000", 1);
    setenv("HOME", "/nonexistent", 1);
}

/* pem: key and certificate, NULL: no TLS. */
static void start(struct store_server *server, const char *script, const char *pem)
{
    int in[2], out[2];
    TERN_CHECK(pipe(in) == 0 && pipe(out) == 0);
    server->pid = fork();
    TERN_CHECK(server->pid >= 0);
    if (server->pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        execlp("python3", "python3", script, pem != NULL ? "--tls" : (char *)NULL, pem,
               (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server->hold = in[1];
    FILE *file = fdopen(out[0], "r");
    int port = 0;
    TERN_CHECK(file != NULL && fscanf(file, "%d", &port) == 1);
    fclose(file);
    snprintf(server->base, sizeof server->base, "http%s://127.0.0.1:%d", pem != NULL ? "s" : "",
             port);
    store_server_use(server);
}

void store_server_start(struct store_server *server, const char *script)
{
    start(server, script, NULL);
}

void store_server_start_tls(struct store_server *server, const char *script, const char *folder)
{
    char command[1024], pem[256];
    snprintf(pem, sizeof pem, "%s/server.pem", folder);
    snprintf(
        command, sizeof command,
        "cd '%s' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
        "-subj /CN=tern-test -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem "
        "2>openssl.log && cat key.pem cert.pem >server.pem",
        folder);
    TERN_CHECK(system(command) == 0);
    start(server, script, pem);
}

void store_server_stop(struct store_server *server)
{
    close(server->hold);
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

static void ask(const struct store_server *server,
                const char *path,
                const char *body,
                struct tern_http_answer *answer)
{
    char url[256];
    snprintf(url, sizeof url, "%s%s", server->base, path);
    struct tern_http_call call = {.method = body != NULL ? "POST" : "GET",
                                  .url = url,
                                  .body = body,
                                  .body_bytes = body != NULL ? strlen(body) : 0,
                                  .answer_bytes_max = 64 << 20};
    TERN_CHECK(tern_http_get(&call, answer) == TERN_OK && answer->status == 200);
}

void store_server_control(const struct store_server *server, const char *json)
{
    struct tern_http_answer answer;
    ask(server, "/_control", json, &answer);
    tern_http_answer_fini(&answer);
}

void store_server_get(const struct store_server *server, const char *path, struct tern_text *out)
{
    struct tern_http_answer answer;
    ask(server, path, NULL, &answer);
    *out = answer.body;
    answer.body = (struct tern_text){0};
    tern_http_answer_fini(&answer);
}

bool store_server_shows(const struct store_server *server, const char *path, const char *what)
{
    struct tern_text page;
    store_server_get(server, path, &page);
    bool is_shown = page.data != NULL && strstr(page.data, what) != NULL;
    tern_text_fini(&page);
    return is_shown;
}

struct store_sweep store_sweep_begin(int count)
{
    const char *first_text = getenv("SWEEP_FIRST"), *count_text = getenv("SWEEP_COUNT");
    return (struct store_sweep){
        .first = first_text != NULL ? atoi(first_text) : 0,
        .count = count_text != NULL ? atoi(count_text) : count,
        .started = tern_clock_seconds(),
    };
}

void store_sweep_tick(const struct store_sweep *sweep, int seed)
{
    int done = seed - sweep->first + 1;
    double seconds = tern_clock_seconds() - sweep->started;
    if (sweep->count >= SWEEP_LONG && done % (sweep->count / SWEEP_LINES) == 0) {
        printf("seed %d: %d of %d in %.0f s, %.0f s to go\n", seed, done, sweep->count, seconds,
               seconds / done * (sweep->count - done));
        fflush(stdout);
    }
}

void store_fill(uint8_t *out, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)tern_random_u64(seed, tern_random_stream_id(TERN_STREAM_TEST, 0), i);
    }
}
