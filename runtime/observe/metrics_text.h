/* metrics_text.h - numbers in Prometheus' text format, version 0.0.4. */
#ifndef TERN_RUNTIME_OBSERVE_METRICS_TEXT_H
#define TERN_RUNTIME_OBSERVE_METRICS_TEXT_H

#include "runtime/base/text.h"

#include <stdint.h>

struct tern_metrics_text {
    struct tern_text *out; /* borrowed */
    const char
        *labels; /* of every number but those of _print: name="value",..., escaped; "": none */
    tern_status status; /* the first that failed; what comes after it writes nothing */
};

enum tern_metric_type {
    TERN_METRIC_GAUGE,
    TERN_METRIC_COUNTER,
    TERN_METRIC_HISTOGRAM
};

/* One number with its two comment lines. */
struct tern_metric {
    enum tern_metric_type type;
    const char *name, *help;
    double value;
};

/* The comment lines alone; the numbers follow with _print, which writes as it is told. */
void tern_metrics_head(struct tern_metrics_text *text,
                       enum tern_metric_type type,
                       const char *name,
                       const char *help);
void tern_metrics_print(struct tern_metrics_text *text, const char *format, ...) TERN_PRINTF(2, 3);
void tern_metrics_add(struct tern_metrics_text *text, const struct tern_metric *metrics, int count);
/* counts (bound_count + 1): of values up to each bound, but not up to the one before; the last one is of those above
 * all. sum: of all values. */
void tern_metrics_histogram(struct tern_metrics_text *text,
                            const char *name,
                            const char *help,
                            const double *bounds,
                            const uint64_t *counts,
                            int bound_count,
                            double sum);

#endif
