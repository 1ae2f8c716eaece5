/* cmd_serve.c - tern serve: a model behind OpenAI's API, until somebody asks it to stop. */
#include "launch/commands.h"
#include "launch/model_options.h"
#include "launch/version.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/thread.h"
#include "runtime/serve/api.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct settings {
    const char *host, *name, *key_file, *template_file, *cert_file, *key_path;
    int64_t port, max_seqs, max_queue, kv_bytes, context, chunk, speculate;
    int64_t connections_max, body_bytes_max;
    int kv_dtype, mode; /* mode: enum tern_placed_mode */
    double request_seconds, drain_seconds, wait_seconds;
    bool no_prefix_cache;
};

/* One server's life. The main thread runs the HTTP loop; `loader` opens the model, `signals` waits for what asks it to
 * stop. */
struct server {
    const struct settings *settings;
    const char *model;
    double started; /* of the clock */
    struct tern_api *api;
    struct tern_http *http;
    pthread_t loader, signals;
    atomic_bool is_loaded, has_tried, is_over; /* tried: to load it, with or without success */
    struct tern_loaded loaded;
    struct tern_engine *engine;
    tern_status status; /* of the loader, with its sentence */
    char detail[TERN_DETAIL_BYTES];
};

enum {
    FLUSH_SECONDS = 5, /* for answers that are made and not yet sent */
    POLL_MS = 100
};

/* ---- stopping ---- */

static void stop_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGUSR1); /* our own: the server has ended */
}

/* True when another request to stop came within the time. */
static bool is_asked_again(const sigset_t *set)
{
    const struct timespec time = {.tv_nsec = POLL_MS * 1000000L};
    int signal = sigtimedwait(set, NULL, &time);
    return signal == SIGTERM || signal == SIGINT;
}

static void cut(struct server *server)
{
    tern_log_warn("asked to stop again: what still runs is cut");
    if (!atomic_load(&server->is_loaded)) {
        _exit(TERN_EXIT_OK);
    }
    tern_engine_abort(server->engine);
    tern_http_stop(server->http, 0);
}

/* New requests are refused, running ones end within the deadline, then the port is closed. */
static void drain(struct server *server, const sigset_t *set)
{
    double seconds = server->settings->drain_seconds;
    bool is_cut = false;
    tern_api_drain(server->api);
    if (atomic_load(&server->is_loaded)) {
        tern_log_info("asked to stop: no new requests; running ones have %.0f s", seconds);
        tern_engine_drain(server->engine, seconds);
        while (!is_cut && !tern_engine_wait_idle(server->engine, 0)) {
            is_cut = is_asked_again(set);
        }
    }
    if (!is_cut) {
        tern_http_stop(server->http, FLUSH_SECONDS);
    }
    while (!is_cut && !atomic_load(&server->is_over)) {
        is_cut = is_asked_again(set);
    }
    if (is_cut) {
        cut(server);
    }
}

static void *wait_for_signals(void *argument)
{
    struct server *server = argument;
    sigset_t set;
    stop_set(&set);
    while (!atomic_load(&server->is_over)) {
        int signal = sigwaitinfo(&set, NULL);
        if (signal == SIGTERM || signal == SIGINT) {
            drain(server, &set);
            break;
        }
    }
    return NULL;
}

/* ---- loading ---- */

static tern_status load(struct server *server)
{
    const struct settings *s = server->settings;
    const struct tern_engine_options options = {
        .max_seqs = s->max_seqs,
        .max_queue = s->max_queue,
        .kv_bytes = (size_t)s->kv_bytes,
        .chunk = s->chunk,
        .context = s->context,
        .kv_dtype = tern_option_kv_dtype_of(s->kv_dtype),
        .prefix_cache = !s->no_prefix_cache,
        .speculate = s->speculate,
        .max_wait_seconds = s->wait_seconds,
    };
    TERN_RETURN_IF_ERR(tern_loaded_open(server->model, TERN_LOADED_AUTO,
                                        (enum tern_placed_mode)s->mode, &server->loaded));
    tern_status status = tern_engine_create(&server->loaded, &options, &server->engine);
    if (status != TERN_OK) {
        tern_loaded_close(&server->loaded);
        return status;
    }
    atomic_store(&server->is_loaded, true);
    atomic_store(&server->has_tried, true); /* before the line below, which clients wait for */
    double seconds = tern_clock_seconds() - server->started;
    TERN_RETURN_IF_ERR(tern_api_open(server->api, &server->loaded, server->engine, seconds));
    const char *host = s->host;
    bool is_v6 = strchr(host, ':') != NULL;
    tern_log_info("serving %s at %s://%s%s%s:%d, ready in %.3f s", tern_api_name(server->api),
                  s->cert_file != NULL ? "https" : "http", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                  tern_http_port(server->http), seconds);
    return TERN_OK;
}

static void *run_loader(void *argument)
{
    struct server *server = argument;
    (void)tern_fault_pass(TERN_FAULT_SERVE_LOAD);
    server->status = load(server);
    atomic_store(&server->has_tried, true);
    if (server->status != TERN_OK) {
        snprintf(server->detail, sizeof server->detail, "%s", tern_detail());
        tern_http_stop(server->http, 0);
    }
    return NULL;
}

/* ---- the whole ---- */

static tern_status start_thread(pthread_t *thread, void *(*body)(void *), struct server *server)
{
    int error = tern_thread_start(thread, body, server);
    return error == 0 ? TERN_OK : tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start a thread");
}

static tern_status open_port(struct server *server)
{
    const struct settings *s = server->settings;
    size_t count;
    const struct tern_http_route *routes = tern_api_routes(&count);
    const struct tern_http_options options = {
        .host = s->host,
        .port = (int)s->port,
        .routes = routes,
        .route_count = count,
        .context = server->api,
        .error_body = tern_api_error_body,
        .cert_file = s->cert_file,
        .key_file = s->key_path,
        .connections_max = (int)s->connections_max,
        .body_bytes_max = (size_t)s->body_bytes_max,
    };
    TERN_RETURN_IF_ERR(tern_http_create(&options, &server->http));
    tern_api_watch(server->api, server->http);
    return TERN_OK;
}

static tern_status serve(struct server *server)
{
    TERN_RETURN_IF_ERR(start_thread(&server->signals, wait_for_signals, server));
    tern_status status = start_thread(&server->loader, run_loader, server);
    bool has_loader = status == TERN_OK;
    if (has_loader) {
        status = tern_http_run(server->http);
    }
    atomic_store(&server->is_over, true);
    pthread_kill(server->signals, SIGUSR1);
    pthread_join(server->signals, NULL);
    if (has_loader && !atomic_load(&server->has_tried)) {
        _exit(TERN_EXIT_OK); /* asked to stop while loading, which cannot be interrupted */
    }
    if (has_loader) {
        pthread_join(server->loader, NULL);
    }
    if (status == TERN_OK && server->status != TERN_OK) {
        tern_detail_set(server->detail);
        status = server->status;
    }
    return status;
}

static tern_status run(const char *model, const struct settings *settings, double started)
{
    struct server server = {.settings = settings, .model = model, .started = started};
    const struct tern_api_options options = {
        .model = model,
        .name = settings->name,
        .template_file = settings->template_file,
        .key_file = settings->key_file,
        .version = tern_version_number(),
        .request_seconds = settings->request_seconds,
    };
    sigset_t set;
    stop_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    TERN_RETURN_IF_ERR(tern_api_create(&options, &server.api));
    tern_status status = open_port(&server);
    if (status == TERN_OK) {
        status = serve(&server);
    }
    tern_api_close(server.api);
    if (atomic_load(&server.is_loaded)) {
        tern_engine_destroy(server.engine);
        tern_loaded_close(&server.loaded);
    }
    tern_http_destroy(server.http);
    tern_api_destroy(server.api);
    return status;
}

static tern_status check(const struct settings *s)
{
    if ((s->cert_file == NULL) != (s->key_path == NULL)) {
        return tern_fail(TERN_ERR_USAGE, "%s: expected --tls-cert and --tls-key together",
                         s->cert_file != NULL ? "--tls-cert" : "--tls-key");
    }
    if (s->name != NULL && (s->name[0] == '\0' || strlen(s->name) > 200)) {
        return tern_fail(TERN_ERR_USAGE, "--served-model-name: found %zu bytes, expected 1 to 200",
                         strlen(s->name));
    }
    return TERN_OK;
}

tern_status tern_command_serve(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    double started = tern_clock_seconds();
    struct settings s = {.host = "127.0.0.1",
                         .port = 8000,
                         .drain_seconds = 30,
                         .wait_seconds = 30,
                         .mode = TERN_PLACED_AUTO};
    const struct tern_option options[] = {
        {.name = "host",
         .kind = TERN_OPTION_STRING,
         .target = &s.host,
         .value_name = "H",
         .help = "name or address to listen on; 0.0.0.0: every IPv4 one (default: 127.0.0.1)"},
        {.name = "port",
         .kind = TERN_OPTION_I64,
         .target = &s.port,
         .value_name = "N",
         .min = 0,
         .max = 65535,
         .help = "0: any free one, named on stderr (default: 8000)"},
        {.name = "served-model-name",
         .kind = TERN_OPTION_STRING,
         .target = &s.name,
         .value_name = "S",
         .help = "what clients call it (default: the last part of MODEL)"},
        {.name = "chat-template",
         .kind = TERN_OPTION_STRING,
         .target = &s.template_file,
         .value_name = "FILE",
         .help = "a template (Jinja) in place of the model's own"},
        {.name = "max-seqs",
         .kind = TERN_OPTION_I64,
         .target = &s.max_seqs,
         .value_name = "N",
         .min = 0,
         .max = 1024,
         .help = "sequences that run at once; 0: 16 (default: 0)"},
        {.name = "max-queue",
         .kind = TERN_OPTION_I64,
         .target = &s.max_queue,
         .value_name = "N",
         .min = 0,
         .max = 1e6,
         .help = "requests that wait, then 429; 0: 256 (default: 0)"},
        {.name = "max-wait",
         .kind = TERN_OPTION_F64,
         .target = &s.wait_seconds,
         .value_name = "X",
         .min = 0,
         .max = 1e6,
         .help =
             "seconds in the queue, as far as can be told; 429 for who would wait longer; 0: any "
             "(default: 30)"},
        {.name = "context",
         .kind = TERN_OPTION_I64,
         .target = &s.context,
         .value_name = "N",
         .min = 0,
         .max = 1e9,
         .help =
             "tokens of a sequence, prompt and answer; 0: as many as the model has (default: 0)"},
        {.name = "kv-bytes",
         .kind = TERN_OPTION_BYTES,
         .target = &s.kv_bytes,
         .value_name = "SIZE",
         .min = 0,
         .max = 1e15,
         .help = "memory of keys and values; 0: what --max-seqs of --context need, at most 1G, at "
                 "least one (default: 0)"},
        tern_option_kv_dtype(&s.kv_dtype),
        tern_option_weights(&s.mode),
        {.name = "chunk",
         .kind = TERN_OPTION_I64,
         .target = &s.chunk,
         .value_name = "N",
         .min = 0,
         .max = 65536,
         .help = "prompt tokens a step, which is what others wait for; 0: 256 (default: 0)"},
        {.name = "no-prefix-cache",
         .kind = TERN_OPTION_FLAG,
         .target = &s.no_prefix_cache,
         .help = "forget prompts; texts stay the same, only slower"},
        {.name = "speculate",
         .kind = TERN_OPTION_I64,
         .target = &s.speculate,
         .value_name = "N",
         .min = 0,
         .max = 15,
         .help = "tokens guessed ahead from the prompt; texts stay the same; 0: none (default: 0)"},
        {.name = "api-key-file",
         .kind = TERN_OPTION_STRING,
         .target = &s.key_file,
         .value_name = "FILE",
         .help = "keys, one a line, of which clients must send one (default: none needed)"},
        {.name = "tls-cert",
         .kind = TERN_OPTION_STRING,
         .target = &s.cert_file,
         .value_name = "FILE",
         .help = "certificate chain (PEM): https (default: http)"},
        {.name = "tls-key",
         .kind = TERN_OPTION_STRING,
         .target = &s.key_path,
         .value_name = "FILE",
         .help = "its key (PEM)"},
        {.name = "request-timeout",
         .kind = TERN_OPTION_F64,
         .target = &s.request_seconds,
         .value_name = "X",
         .min = 0,
         .max = 1e6,
         .help = "seconds that a request may take, waiting included; 0: any (default: 0)"},
        {.name = "drain-timeout",
         .kind = TERN_OPTION_F64,
         .target = &s.drain_seconds,
         .value_name = "X",
         .min = 0,
         .max = 1e6,
         .help = "seconds that running requests have after SIGTERM (default: 30)"},
        {.name = "max-connections",
         .kind = TERN_OPTION_I64,
         .target = &s.connections_max,
         .value_name = "N",
         .min = 0,
         .max = 1e6,
         .help = "open connections, then 503; 0: 3000 (default: 0)"},
        {.name = "max-body",
         .kind = TERN_OPTION_BYTES,
         .target = &s.body_bytes_max,
         .value_name = "SIZE",
         .min = 0,
         .max = 1 << 30,
         .help = "of a request, then 413; 0: 4M (default: 0)"},
    };
    const struct tern_command_spec spec = {
        .name = "serve",
        .usage = "MODEL [options]",
        .summary = "Serve a model by OpenAI's API over HTTP: chat, completions, embeddings, a chat "
                   "page at /, metrics. MODEL is a run directory, one of its checkpoints, a "
                   "Hugging Face folder or a GGUF file. SIGTERM or SIGINT ends it when running "
                   "requests are done; a second one at once.",
        .example = "tern serve model.gguf --port 8080 --api-key-file keys.txt",
        .options = options,
        .option_count = (int)(sizeof options / sizeof options[0]),
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(check(&s));
    TERN_RETURN_IF_ERR(tern_model_fetch(&positionals));
    return run(positionals.items[0], &s, started);
}
