/* metrics_http.h - GET /metrics of a training run, in Prometheus' text format, and /health; rank 0, on a thread of its own. */
#ifndef TERN_RUNTIME_OBSERVE_METRICS_HTTP_H
#define TERN_RUNTIME_OBSERVE_METRICS_HTTP_H

#include "runtime/observe/ledger.h"
#include "runtime/observe/step_log.h"

struct tern_metrics_http;

struct tern_metrics_options {
    const char *host;           /* NULL: 127.0.0.1 */
    int port;                   /* 0: any free one */
    struct tern_ledger *ledger; /* outlives it */
    const char *launch;
    int64_t steps, first_step;
    int ranks, machines;
};

TERN_MUST_CHECK tern_status tern_metrics_http_open(const struct tern_metrics_options *options,
                                                   struct tern_metrics_http **out);
void tern_metrics_http_close(struct tern_metrics_http *metrics);
int tern_metrics_http_port(const struct tern_metrics_http *metrics);
/* What scrapes see from now on. Allocates nothing. NULL is fine, here and below. */
void tern_metrics_http_step(struct tern_metrics_http *metrics,
                            const struct tern_step_record *record);
void tern_metrics_http_eval(struct tern_metrics_http *metrics, double loss);
void tern_metrics_http_checkpoint(struct tern_metrics_http *metrics,
                                  int64_t step,
                                  bool is_done,
                                  double seconds,
                                  int64_t bytes);
void tern_metrics_http_straggler(struct tern_metrics_http *metrics, int rank, double factor);

#endif
