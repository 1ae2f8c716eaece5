/* metrics.c - /metrics in Prometheus' text format: vLLM's names where vLLM has one, tern: for the rest. */
#include "runtime/serve/api_impl.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct writer {
    struct tern_text *out;
    tern_status status;                        /* the first that failed */
    char labels[2 * TERN_API_NAME_BYTES + 32]; /* model_name="..." */
};

#define PUT(writer, ...) \
    do { \
        if ((writer)->status == TERN_OK) { \
            (writer)->status = tern_text_printf((writer)->out, __VA_ARGS__); \
        } \
    } while (0)

/* A label's value: backslash, quote and newline are escaped. */
static void label_model(struct writer *writer, const char *name)
{
    char *at = writer->labels + sprintf(writer->labels, "model_name=\"");
    for (; *name != '\0'; name++) {
        if (*name == '\\' || *name == '"' || *name == '\n') {
            *at++ = '\\';
        }
        *at++ = *name == '\n' ? 'n' : *name;
    }
    at[0] = '"';
    at[1] = '\0';
}

static void head(struct writer *writer, const char *name, const char *type, const char *help)
{
    PUT(writer, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void gauge(struct writer *writer, const char *name, const char *help, double value)
{
    head(writer, name, "gauge", help);
    PUT(writer, "%s{%s} %.17g\n", name, writer->labels, value);
}

static void counter(struct writer *writer, const char *name, const char *help, double value)
{
    head(writer, name, "counter", help);
    PUT(writer, "%s{%s} %.17g\n", name, writer->labels, value);
}

static void histogram(struct writer *writer,
                      const char *name,
                      const char *help,
                      const struct tern_engine_histogram *from)
{
    uint64_t sum = 0;
    head(writer, name, "histogram", help);
    for (int i = 0; i < from->bound_count; i++) {
        sum += from->counts[i];
        PUT(writer, "%s_bucket{%s,le=\"%.10g\"} %llu\n", name, writer->labels, from->bounds[i],
            (unsigned long long)sum);
    }
    sum += from->counts[from->bound_count];
    PUT(writer, "%s_bucket{%s,le=\"+Inf\"} %llu\n", name, writer->labels, (unsigned long long)sum);
    PUT(writer, "%s_sum{%s} %.17g\n%s_count{%s} %llu\n", name, writer->labels, from->sum, name,
        writer->labels, (unsigned long long)sum);
}

/* ---- the engine ---- */

static void engine_now(struct writer *writer,
                       const struct tern_api *api,
                       const struct tern_engine_stats *stats)
{
    double blocks = stats->blocks > 0 ? (double)stats->blocks : 1;
    gauge(writer, "vllm:num_requests_running", "Sequences in the batch.", (double)stats->running);
    gauge(writer, "vllm:num_requests_waiting", "Sequences that wait for a place.",
          (double)stats->waiting);
    gauge(writer, "vllm:kv_cache_usage_perc", "Share of key and value blocks in use, 0 to 1.",
          (double)stats->blocks_used / blocks);
    head(writer, "vllm:cache_config_info", "gauge", "The cache's layout.");
    PUT(writer, "vllm:cache_config_info{%s,block_size=\"16\",num_gpu_blocks=\"%lld\"} 1\n",
        writer->labels, (long long)stats->blocks);
    gauge(writer, "tern:kv_blocks_used", "Blocks held by sequences.", (double)stats->blocks_used);
    gauge(writer, "tern:kv_blocks_cached", "Blocks held by the prefix cache alone.",
          (double)stats->blocks_cached);
    gauge(writer, "tern:engine_alive", "1: the engine thread shows signs of life.",
          stats->is_alive);
    gauge(writer, "tern:engine_beat_age_seconds", "Since the engine's last sign of life.",
          stats->beat_age_seconds);
    gauge(writer, "tern:queue_wait_seconds", "How long one more request would wait.",
          stats->wait_seconds);
    gauge(writer, "tern:load_seconds", "From start to ready.", api->load_seconds);
}

static void engine_totals(struct writer *writer, const struct tern_engine_stats *stats)
{
    counter(writer, "vllm:prompt_tokens_total", "Tokens of prompts.", (double)stats->prompt_tokens);
    counter(writer, "vllm:generation_tokens_total", "Tokens made.",
            (double)stats->generation_tokens);
    head(writer, "vllm:request_success_total", "counter", "Choices by how they ended.");
    for (int i = 0; i < TERN_ENGINE_END_COUNT; i++) {
        PUT(writer, "vllm:request_success_total{%s,finished_reason=\"%s\"} %llu\n", writer->labels,
            tern_engine_end_name((enum tern_engine_end)i), (unsigned long long)stats->finished[i]);
    }
    counter(writer, "vllm:num_preemptions_total", "Sequences that gave their blocks back.",
            (double)stats->preemptions);
    counter(writer, "vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.",
            (double)stats->prefix_queries);
    counter(writer, "vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.",
            (double)stats->prefix_hits);
    counter(writer, "vllm:spec_decode_num_draft_tokens_total", "Tokens guessed ahead.",
            (double)stats->draft_tokens);
    counter(writer, "vllm:spec_decode_num_accepted_tokens_total", "Guesses that were right.",
            (double)stats->accepted_tokens);
    counter(writer, "tern:requests_total", "Requests that the engine accepted.",
            (double)stats->requests);
    counter(writer, "tern:requests_refused_total", "Requests that found the queue full.",
            (double)stats->refused);
    counter(writer, "tern:computed_tokens_total", "Rows that went through the model.",
            (double)stats->computed_tokens);
    counter(writer, "tern:engine_steps_total", "Steps of the engine.", (double)stats->steps);
    counter(writer, "tern:engine_model_seconds_total", "Time inside of the model.",
            stats->model_seconds);
    counter(writer, "tern:engine_host_seconds_total", "Time of steps outside of the model.",
            stats->host_seconds);
}

static void engine_histograms(struct writer *writer, const struct tern_engine_stats *stats)
{
    histogram(writer, "vllm:time_to_first_token_seconds", "From submit to the first token.",
              &stats->ttft);
    histogram(writer, "vllm:inter_token_latency_seconds", "Between two tokens of a sequence.",
              &stats->inter_token);
    histogram(writer, "vllm:e2e_request_latency_seconds", "From submit to the end.", &stats->e2e);
    histogram(writer, "vllm:request_queue_time_seconds", "In the queue.", &stats->queue);
    histogram(writer, "vllm:request_prefill_time_seconds", "From the queue to the first token.",
              &stats->prefill);
    histogram(writer, "vllm:request_decode_time_seconds", "From the first token to the last.",
              &stats->decode);
    histogram(writer, "vllm:request_prompt_tokens", "Tokens of a prompt.",
              &stats->request_prompt_tokens);
    histogram(writer, "vllm:request_generation_tokens", "Tokens of an answer.",
              &stats->request_generation_tokens);
    histogram(writer, "vllm:iteration_tokens_total", "Rows of a step.", &stats->step_tokens);
}

/* ---- HTTP and the process ---- */

static void answers(struct writer *writer, struct tern_api *api)
{
    static const char *const names[TERN_API_ROUTE_COUNT] = {
        "chat_completions", "completions", "embeddings", "models",
        "tokenize",         "detokenize",  "other"};
    head(writer, "tern:http_answers_total", "counter", "Answers by route and class of status.");
    for (int route = 0; route < TERN_API_ROUTE_COUNT; route++) {
        for (int class = 2; class < TERN_API_STATUS_CLASSES; class ++) {
            uint64_t count =
                atomic_load_explicit(&api->answers[route][class], memory_order_relaxed);
            if (count > 0) {
                PUT(writer, "tern:http_answers_total{route=\"%s\",status=\"%dxx\"} %llu\n",
                    names[route], class, (unsigned long long)count);
            }
        }
    }
}

static void http(struct writer *writer, const struct tern_http_stats *stats)
{
    gauge(writer, "tern:http_connections", "Open connections.", (double)stats->connections);
    counter(writer, "tern:http_connections_total", "Connections accepted.",
            (double)stats->connections_total);
    counter(writer, "tern:http_connections_refused_total", "Connections over the limit.",
            (double)stats->connections_refused);
    counter(writer, "tern:http_requests_total", "Requests with a well-formed head.",
            (double)stats->requests_total);
    counter(writer, "tern:http_clients_gone_total", "Clients that left before their answer.",
            (double)stats->gone_total);
}

static double resident_bytes(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%*s %lld", &pages) != 1) {
        pages = 0;
    }
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void process(struct writer *writer, const struct tern_api *api)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    double seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    head(writer, "process_resident_memory_bytes", "gauge", "Resident memory.");
    PUT(writer, "process_resident_memory_bytes %.0f\n", resident_bytes());
    head(writer, "process_cpu_seconds_total", "counter", "User and system time.");
    PUT(writer, "process_cpu_seconds_total %.3f\n", seconds);
    head(writer, "process_start_time_seconds", "gauge", "When the process began, since 1970.");
    PUT(writer, "process_start_time_seconds %lld\n", (long long)api->start_seconds);
}

tern_status tern_api_metrics(struct tern_api *api, struct tern_text *out)
{
    struct writer writer = {.out = out};
    int state = atomic_load(&api->state);
    label_model(&writer, api->model.name);
    gauge(&writer, "tern:ready", "1: requests are accepted.", state == TERN_API_STATE_READY);
    if (state != TERN_API_STATE_LOADING && api->engine != NULL) {
        struct tern_engine_stats stats;
        tern_engine_stats(api->engine, &stats);
        engine_now(&writer, api, &stats);
        engine_totals(&writer, &stats);
        engine_histograms(&writer, &stats);
    }
    answers(&writer, api);
    if (api->http != NULL) {
        struct tern_http_stats stats;
        tern_http_stats(api->http, &stats);
        http(&writer, &stats);
    }
    process(&writer, api);
    return writer.status;
}
