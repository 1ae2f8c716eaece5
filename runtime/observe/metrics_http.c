/* metrics_http.c - the numbers, the text, and the server's thread. */
#include "runtime/observe/metrics_http.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"
#include "runtime/observe/metrics_text.h"
#include "runtime/serve/http.h"

#include <math.h>

enum {
    CONNECTIONS_MAX = 64,
    BUCKETS = 12
};

/* Seconds of a step. */
static const double g_bounds[BUCKETS] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};

struct tern_metrics_http {
    struct tern_metrics_options options;
    struct tern_http *http;
    pthread_t thread;
    pthread_mutex_t lock;         /* over what follows */
    struct tern_step_record step; /* the newest */
    double step_at;               /* clock when it came; 0: none yet */
    int64_t steps_total, tokens_total, skipped_total;
    double data_seconds, comm_seconds, stall_seconds, step_seconds;
    uint64_t buckets[BUCKETS + 1];
    double eval_loss; /* NaN: none yet */
    int64_t checkpoints_total, checkpoints_failed, checkpoint_step, checkpoint_bytes;
    double checkpoint_seconds;
    int straggler; /* rank; -1: none */
    double straggler_factor;
};

/* ---- what the trainer says ---- */

void tern_metrics_http_step(struct tern_metrics_http *m, const struct tern_step_record *record)
{
    if (m == NULL) {
        return;
    }
    int bucket = 0;
    while (bucket < BUCKETS && record->step_seconds > g_bounds[bucket]) {
        bucket++;
    }
    pthread_mutex_lock(&m->lock);
    m->step = *record;
    m->step_at = tern_clock_seconds();
    m->steps_total++;
    m->tokens_total += record->tokens;
    m->skipped_total += record->is_skipped;
    m->step_seconds += record->step_seconds;
    m->data_seconds += record->data_seconds;
    m->comm_seconds += record->comm_seconds;
    m->stall_seconds += record->checkpoint_stall_seconds;
    m->buckets[bucket]++;
    pthread_mutex_unlock(&m->lock);
}

void tern_metrics_http_eval(struct tern_metrics_http *m, double loss)
{
    if (m != NULL) {
        pthread_mutex_lock(&m->lock);
        m->eval_loss = loss;
        pthread_mutex_unlock(&m->lock);
    }
}

void tern_metrics_http_checkpoint(struct tern_metrics_http *m,
                                  int64_t step,
                                  bool is_done,
                                  double seconds,
                                  int64_t bytes)
{
    if (m == NULL) {
        return;
    }
    pthread_mutex_lock(&m->lock);
    if (is_done) {
        m->checkpoints_total++;
        m->checkpoint_step = step;
        m->checkpoint_seconds = seconds;
        m->checkpoint_bytes = bytes;
    } else {
        m->checkpoints_failed++;
    }
    pthread_mutex_unlock(&m->lock);
}

void tern_metrics_http_straggler(struct tern_metrics_http *m, int rank, double factor)
{
    if (m != NULL) {
        pthread_mutex_lock(&m->lock);
        m->straggler = rank;
        m->straggler_factor = factor;
        pthread_mutex_unlock(&m->lock);
    }
}

/* ---- the text ---- */

#define ADD(text, metrics) \
    tern_metrics_add(text, metrics, (int)(sizeof(metrics) / sizeof *(metrics)))

static void put_steps(struct tern_metrics_text *text, const struct tern_metrics_http *m)
{
    const struct tern_step_record *s = &m->step;
    bool is_there = m->step_at > 0;
    double nothing = is_there ? 0 : NAN;
    const struct tern_metric metrics[] = {
        {TERN_METRIC_GAUGE, "tern_train_step", "Steps done, of the whole run.",
         (double)(is_there ? s->step : m->options.first_step)},
        {TERN_METRIC_GAUGE, "tern_train_steps", "Steps of the whole run.",
         (double)m->options.steps},
        {TERN_METRIC_GAUGE, "tern_train_loss", "Mean loss of the newest step.", s->loss + nothing},
        {TERN_METRIC_GAUGE, "tern_train_grad_norm", "Norm of the gradient, before clipping.",
         s->grad_norm + nothing},
        {TERN_METRIC_GAUGE, "tern_train_learning_rate", "Learning rate of the newest step.",
         s->lr + nothing},
        {TERN_METRIC_GAUGE, "tern_train_tokens_per_second", "Of the newest step.",
         s->step_seconds > 0 ? (double)s->tokens / s->step_seconds : 0},
        {TERN_METRIC_GAUGE, "tern_train_mfu",
         "Share of the machine's peak, 0 to 1; NaN: not known.",
         s->mfu >= 0 && is_there ? s->mfu : NAN},
        {TERN_METRIC_GAUGE, "tern_train_eval_loss", "Loss of the newest evaluation; NaN: none yet.",
         m->eval_loss},
        {TERN_METRIC_GAUGE, "tern_train_seconds_since_step",
         "Since the newest step was done; NaN: none yet.",
         is_there ? tern_clock_seconds() - m->step_at : NAN},
        {TERN_METRIC_COUNTER, "tern_train_steps_done_total", "Steps done by this launch.",
         (double)m->steps_total},
        {TERN_METRIC_COUNTER, "tern_train_tokens_total", "Tokens trained on by this launch.",
         (double)m->tokens_total},
        {TERN_METRIC_COUNTER, "tern_train_steps_skipped_total", "Updates left out: not finite.",
         (double)m->skipped_total},
        {TERN_METRIC_COUNTER, "tern_train_data_seconds_total", "Waited for batches.",
         m->data_seconds},
        {TERN_METRIC_COUNTER, "tern_train_comm_seconds_total", "Waited for other ranks.",
         m->comm_seconds},
        {TERN_METRIC_COUNTER, "tern_train_checkpoint_stall_seconds_total",
         "Stopped for checkpoints.", m->stall_seconds},
    };
    ADD(text, metrics);
    tern_metrics_histogram(text, "tern_train_step_seconds", "Time of a step.", g_bounds, m->buckets,
                           BUCKETS, m->step_seconds);
}

static void put_run(struct tern_metrics_text *text, const struct tern_metrics_http *m)
{
    double nothing = m->checkpoints_total > 0 ? 0 : NAN;
    const struct tern_metric metrics[] = {
        {TERN_METRIC_COUNTER, "tern_train_checkpoints_total",
         "Checkpoints committed by this launch.", (double)m->checkpoints_total},
        {TERN_METRIC_COUNTER, "tern_train_checkpoints_failed_total",
         "Checkpoints that could not be written.", (double)m->checkpoints_failed},
        {TERN_METRIC_GAUGE, "tern_train_checkpoint_step",
         "Step of the newest checkpoint; NaN: none yet.", (double)m->checkpoint_step + nothing},
        {TERN_METRIC_GAUGE, "tern_train_checkpoint_seconds", "From its snapshot to its commit.",
         m->checkpoint_seconds + nothing},
        {TERN_METRIC_GAUGE, "tern_train_checkpoint_bytes", "Size of it.",
         (double)m->checkpoint_bytes + nothing},
        {TERN_METRIC_GAUGE, "tern_train_ranks", "Ranks of this launch.", m->options.ranks},
        {TERN_METRIC_GAUGE, "tern_train_machines", "Hosts of this launch.", m->options.machines},
        {TERN_METRIC_GAUGE, "tern_train_straggler_rank", "A rank that stays slow; -1: none.",
         m->straggler},
        {TERN_METRIC_GAUGE, "tern_train_straggler_factor", "How many times the median it takes.",
         m->straggler >= 0 ? m->straggler_factor : NAN},
        {TERN_METRIC_GAUGE, "process_resident_memory_bytes", "Resident set of rank 0.",
         (double)tern_rss_bytes()},
    };
    ADD(text, metrics);
    tern_metrics_head(text, TERN_METRIC_GAUGE, "tern_train_info", "The launch.");
    tern_metrics_print(text, "tern_train_info{launch=\"%s\"} 1\n", m->options.launch);
}

/* Of all launches of the run so far. */
static void put_ledger(struct tern_metrics_text *text, struct tern_ledger *ledger)
{
    struct tern_ledger_account account;
    tern_ledger_sum(ledger, &account);
    tern_metrics_head(text, TERN_METRIC_COUNTER, "tern_ledger_machine_seconds_total",
                      "Machine-seconds of the run by kind, earlier launches included.");
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        tern_metrics_print(text, "tern_ledger_machine_seconds_total{kind=\"%s\"} %.6f\n",
                           tern_ledger_kind_name((enum tern_ledger_kind)k), account.seconds[k]);
    }
    const struct tern_metric ratio[] = {{TERN_METRIC_GAUGE, "tern_ledger_effective_training_time",
                                         "Productive share of them, 0 to 1.",
                                         tern_ledger_ratio(&account)}};
    ADD(text, ratio);
    if (account.has_cost) {
        tern_metrics_head(text, TERN_METRIC_COUNTER, "tern_ledger_cost_total",
                          "What they cost; an estimate.");
        tern_metrics_print(text, "tern_ledger_cost_total{currency=\"%s\"} %.17g\n",
                           account.currency, account.total_cost);
    }
    if (tern_ledger_per_million(&account) >= 0) {
        tern_metrics_head(text, TERN_METRIC_GAUGE, "tern_ledger_cost_per_million_tokens",
                          "Of tokens that were kept.");
        tern_metrics_print(text, "tern_ledger_cost_per_million_tokens{currency=\"%s\"} %.17g\n",
                           account.currency, tern_ledger_per_million(&account));
    }
}

static void get_metrics(void *context,
                        const struct tern_http_request *request,
                        struct tern_http_reply *reply)
{
    (void)request;
    struct tern_metrics_http *m = context;
    struct tern_text text;
    tern_text_init(&text);
    struct tern_metrics_text out = {.out = &text, .labels = ""};
    pthread_mutex_lock(&m->lock);
    put_steps(&out, m);
    put_run(&out, m);
    pthread_mutex_unlock(&m->lock);
    put_ledger(&out, m->options.ledger);
    if (out.status == TERN_OK) {
        tern_http_reply_send(reply, 200, "text/plain; version=0.0.4; charset=utf-8", text.data,
                             text.length);
    } else {
        tern_http_reply_send(reply, 500, "text/plain", "out of memory\n", 14);
    }
    tern_text_fini(&text);
}

static void get_health(void *context,
                       const struct tern_http_request *request,
                       struct tern_http_reply *reply)
{
    (void)context;
    (void)request;
    tern_http_reply_send(reply, 200, "application/json", "{\"status\":\"ok\"}\n", 16);
}

/* ---- the server ---- */

static void *serve_main(void *arg)
{
    struct tern_metrics_http *m = arg;
    if (tern_http_run(m->http) != TERN_OK) {
        tern_log_warn("no /metrics any more: %s", tern_detail());
    }
    return NULL;
}

tern_status tern_metrics_http_open(const struct tern_metrics_options *options,
                                   struct tern_metrics_http **out)
{
    static const struct tern_http_route routes[] = {
        {"/metrics", TERN_HTTP_GET, true, get_metrics},
        {"/health", TERN_HTTP_GET, true, get_health},
    };
    struct tern_metrics_http *m = tern_alloc_zero("metrics", 1, sizeof *m);
    if (m == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate the metrics");
    }
    m->options = *options;
    m->eval_loss = NAN;
    m->straggler = -1;
    pthread_mutex_init(&m->lock, NULL);
    const struct tern_http_options http = {
        .host = options->host,
        .port = options->port,
        .routes = routes,
        .route_count = sizeof routes / sizeof routes[0],
        .context = m,
        .workers = 1,
        .connections_max = CONNECTIONS_MAX,
    };
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_http_create(&http, &m->http), fail);
    int error = tern_thread_start(&m->thread, serve_main, m);
    if (error != 0) {
        status = tern_fail_errno(TERN_ERR_MEMORY, error, "no thread for the metrics");
        goto fail;
    }
    *out = m;
    return TERN_OK;
fail:
    tern_http_destroy(m->http);
    pthread_mutex_destroy(&m->lock);
    tern_free(m);
    return status;
}

int tern_metrics_http_port(const struct tern_metrics_http *m)
{
    return tern_http_port(m->http);
}

void tern_metrics_http_close(struct tern_metrics_http *m)
{
    if (m == NULL) {
        return;
    }
    tern_http_stop(m->http, 0);
    pthread_join(m->thread, NULL);
    tern_http_destroy(m->http);
    pthread_mutex_destroy(&m->lock);
    tern_free(m);
}
