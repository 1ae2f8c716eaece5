/* store_fixture.c - the store of the tests as a child process. */
#include "tests/io/store_fixture.h"

#include "io/http_client.h"
#include "runtime/base/check.h"
#include "runtime/base/random.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_environment(const struct store_server *server)
{
    static const char *const gone[] = {"AWS_PROFILE",
                                       "AWS_SESSION_TOKEN",
                                       "AWS_REGION",
                                       "AWS_DEFAULT_REGION",
                                       "AWS_ENDPOINT_URL_S3",
                                       "AWS_SHARED_CREDENTIALS_FILE",
                                       "AWS_CONTAINER_CREDENTIALS_FULL_URI",
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

void store_server_start(struct store_server *server, const char *script)
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
        execlp("python3", "python3", script, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    server->hold = in[1];
    FILE *file = fdopen(out[0], "r");
    int port = 0;
    TERN_CHECK(file != NULL && fscanf(file, "%d", &port) == 1);
    fclose(file);
    snprintf(server->base, sizeof server->base, "http://127.0.0.1:%d", port);
    set_environment(server);
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

void store_fill(uint8_t *out, size_t bytes, uint64_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)tern_random_u64(seed, tern_random_stream_id(TERN_STREAM_TEST, 0), i);
    }
}
