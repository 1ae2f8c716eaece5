/* metrics.c - /metrics in Prometheus' text format: vLLM's names where vLLM has one, tern: for the rest. */
#include "runtime/observe/metrics_text.h"
#include "runtime/observe/step_log.h"
#include "runtime/serve/api_impl.h"

#include <stdio.h>
#include <sys/resource.h>

enum {
    LABEL_BYTES = 2 * TERN_API_NAME_BYTES + 32
};

#define ADD(text, metrics) \
    tern_metrics_add(text, metrics, (int)(sizeof(metrics) / sizeof *(metrics)))

/* model_name="..." of every number about the model. A label's value: backslash, quote and newline are escaped. */
static void label_model(const char *name, char out[LABEL_BYTES])
{
    char *at = out + sprintf(out, "model_name=\"");
    for (; *name != '\0'; name++) {
        if (*name == '\\' || *name == '"' || *name == '\n') {
            *at++ = '\\';
        }
        *at++ = *name == '\n' ? 'n' : *name;
    }
    at[0] = '"';
    at[1] = '\0';
}

/* ---- the engine ---- */

static void engine_now(struct tern_metrics_text *text,
                       const struct tern_api *api,
                       const struct tern_engine_stats *stats)
{
    double blocks = stats->blocks > 0 ? (double)stats->blocks : 1;
    const struct tern_metric metrics[] = {
        {TERN_METRIC_GAUGE, "vllm:num_requests_running", "Sequences in the batch.",
         (double)stats->running},
        {TERN_METRIC_GAUGE, "vllm:num_requests_waiting", "Sequences that wait for a place.",
         (double)stats->waiting},
        {TERN_METRIC_GAUGE, "vllm:kv_cache_usage_perc",
         "Share of key and value blocks in use, 0 to 1.", (double)stats->blocks_used / blocks},
        {TERN_METRIC_GAUGE, "tern:kv_blocks_used", "Blocks held by sequences.",
         (double)stats->blocks_used},
        {TERN_METRIC_GAUGE, "tern:kv_blocks_cached", "Blocks held by the prefix cache alone.",
         (double)stats->blocks_cached},
        {TERN_METRIC_GAUGE, "tern:engine_alive", "1: the engine thread shows signs of life.",
         stats->is_alive},
        {TERN_METRIC_GAUGE, "tern:engine_beat_age_seconds", "Since the engine's last sign of life.",
         stats->beat_age_seconds},
        {TERN_METRIC_GAUGE, "tern:queue_wait_seconds", "How long one more request would wait.",
         stats->wait_seconds},
        {TERN_METRIC_GAUGE, "tern:load_seconds", "From start to ready.", api->load_seconds},
    };
    ADD(text, metrics);
    tern_metrics_head(text, TERN_METRIC_GAUGE, "vllm:cache_config_info", "The cache's layout.");
    tern_metrics_print(text,
                       "vllm:cache_config_info{%s,block_size=\"16\",num_gpu_blocks=\"%lld\"} 1\n",
                       text->labels, (long long)stats->blocks);
}

static void engine_totals(struct tern_metrics_text *text, const struct tern_engine_stats *stats)
{
    const struct tern_metric metrics[] = {
        {TERN_METRIC_COUNTER, "vllm:prompt_tokens_total", "Tokens of prompts.",
         (double)stats->prompt_tokens},
        {TERN_METRIC_COUNTER, "vllm:generation_tokens_total", "Tokens made.",
         (double)stats->generation_tokens},
        {TERN_METRIC_COUNTER, "vllm:num_preemptions_total",
         "Sequences that gave their blocks back.", (double)stats->preemptions},
        {TERN_METRIC_COUNTER, "vllm:prefix_cache_queries_total",
         "Prompt tokens looked up in the cache.", (double)stats->prefix_queries},
        {TERN_METRIC_COUNTER, "vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.",
         (double)stats->prefix_hits},
        {TERN_METRIC_COUNTER, "vllm:spec_decode_num_draft_tokens_total", "Tokens guessed ahead.",
         (double)stats->draft_tokens},
        {TERN_METRIC_COUNTER, "vllm:spec_decode_num_accepted_tokens_total",
         "Guesses that were right.", (double)stats->accepted_tokens},
        {TERN_METRIC_COUNTER, "tern:requests_total", "Requests that the engine accepted.",
         (double)stats->requests},
        {TERN_METRIC_COUNTER, "tern:requests_refused_total", "Requests that found the queue full.",
         (double)stats->refused},
        {TERN_METRIC_COUNTER, "tern:computed_tokens_total", "Rows that went through the model.",
         (double)stats->computed_tokens},
        {TERN_METRIC_COUNTER, "tern:engine_steps_total", "Steps of the engine.",
         (double)stats->steps},
        {TERN_METRIC_COUNTER, "tern:engine_model_seconds_total", "Time inside of the model.",
         stats->model_seconds},
        {TERN_METRIC_COUNTER, "tern:engine_host_seconds_total",
         "Time of steps outside of the model.", stats->host_seconds},
    };
    ADD(text, metrics);
    tern_metrics_head(text, TERN_METRIC_COUNTER, "vllm:request_success_total",
                      "Choices by how they ended.");
    for (int i = 0; i < TERN_ENGINE_END_COUNT; i++) {
        tern_metrics_print(text, "vllm:request_success_total{%s,finished_reason=\"%s\"} %llu\n",
                           text->labels, tern_engine_end_name((enum tern_engine_end)i),
                           (unsigned long long)stats->finished[i]);
    }
}

static void engine_histograms(struct tern_metrics_text *text, const struct tern_engine_stats *stats)
{
    const struct {
        const char *name, *help;
        const struct tern_engine_histogram *from;
    } histograms[] = {
        {"vllm:time_to_first_token_seconds", "From submit to the first token.", &stats->ttft},
        {"vllm:inter_token_latency_seconds", "Between two tokens of a sequence.",
         &stats->inter_token},
        {"vllm:e2e_request_latency_seconds", "From submit to the end.", &stats->e2e},
        {"vllm:request_queue_time_seconds", "In the queue.", &stats->queue},
        {"vllm:request_prefill_time_seconds", "From the queue to the first token.",
         &stats->prefill},
        {"vllm:request_decode_time_seconds", "From the first token to the last.", &stats->decode},
        {"vllm:request_prompt_tokens", "Tokens of a prompt.", &stats->request_prompt_tokens},
        {"vllm:request_generation_tokens", "Tokens of an answer.",
         &stats->request_generation_tokens},
        {"vllm:iteration_tokens_total", "Rows of a step.", &stats->step_tokens},
    };
    for (size_t i = 0; i < sizeof histograms / sizeof histograms[0]; i++) {
        const struct tern_engine_histogram *from = histograms[i].from;
        tern_metrics_histogram(text, histograms[i].name, histograms[i].help, from->bounds,
                               from->counts, from->bound_count, from->sum);
    }
}

/* ---- HTTP and the process ---- */

static void answers(struct tern_metrics_text *text, struct tern_api *api)
{
    static const char *const names[TERN_API_ROUTE_COUNT] = {
        "chat_completions", "completions", "embeddings", "models",
        "tokenize",         "detokenize",  "other"};
    tern_metrics_head(text, TERN_METRIC_COUNTER, "tern:http_answers_total",
                      "Answers by route and class of status.");
    for (int route = 0; route < TERN_API_ROUTE_COUNT; route++) {
        for (int class = 2; class < TERN_API_STATUS_CLASSES; class ++) {
            uint64_t count =
                atomic_load_explicit(&api->answers[route][class], memory_order_relaxed);
            if (count > 0) {
                tern_metrics_print(text,
                                   "tern:http_answers_total{route=\"%s\",status=\"%dxx\"} %llu\n",
                                   names[route], class, (unsigned long long)count);
            }
        }
    }
}

static void http(struct tern_metrics_text *text, const struct tern_http_stats *stats)
{
    const struct tern_metric metrics[] = {
        {TERN_METRIC_GAUGE, "tern:http_connections", "Open connections.",
         (double)stats->connections},
        {TERN_METRIC_COUNTER, "tern:http_connections_total", "Connections accepted.",
         (double)stats->connections_total},
        {TERN_METRIC_COUNTER, "tern:http_connections_refused_total", "Connections over the limit.",
         (double)stats->connections_refused},
        {TERN_METRIC_COUNTER, "tern:http_requests_total", "Requests with a well-formed head.",
         (double)stats->requests_total},
        {TERN_METRIC_COUNTER, "tern:http_clients_gone_total",
         "Clients that left before their answer.", (double)stats->gone_total},
    };
    ADD(text, metrics);
}

/* Without labels: what every program has. */
static void process(struct tern_metrics_text *text, const struct tern_api *api)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    const struct tern_metric metrics[] = {
        {TERN_METRIC_GAUGE, "process_resident_memory_bytes", "Resident memory.",
         (double)tern_rss_bytes()},
        {TERN_METRIC_COUNTER, "process_cpu_seconds_total", "User and system time.",
         (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
             1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)},
        {TERN_METRIC_GAUGE, "process_start_time_seconds", "When the process began, since 1970.",
         (double)api->start_seconds},
    };
    ADD(text, metrics);
}

tern_status tern_api_metrics(struct tern_api *api, struct tern_text *out)
{
    char labels[LABEL_BYTES];
    struct tern_metrics_text text = {.out = out, .labels = labels};
    int state = atomic_load(&api->state);
    const struct tern_metric ready[] = {{TERN_METRIC_GAUGE, "tern:ready",
                                         "1: requests are accepted.",
                                         state == TERN_API_STATE_READY}};
    label_model(api->model.name, labels);
    ADD(&text, ready);
    if (state != TERN_API_STATE_LOADING && api->engine != NULL) {
        struct tern_engine_stats stats;
        tern_engine_stats(api->engine, &stats);
        engine_now(&text, api, &stats);
        engine_totals(&text, &stats);
        engine_histograms(&text, &stats);
    }
    answers(&text, api);
    if (api->http != NULL) {
        struct tern_http_stats stats;
        tern_http_stats(api->http, &stats);
        http(&text, &stats);
    }
    text.labels = "";
    process(&text, api);
    return text.status;
}
