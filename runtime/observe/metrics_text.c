/* metrics_text.c - lines "name{labels} value", with what the format writes for numbers that are none. */
#include "runtime/observe/metrics_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

enum {
    VALUE_BYTES = 32,
    LINES_BYTES = 4096 /* of one call; labels are names, which are bounded */
};

void tern_metrics_print(struct tern_metrics_text *text, const char *format, ...)
{
    char lines[LINES_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(lines, sizeof lines, format, args);
    va_end(args);
    if (text->status == TERN_OK) {
        text->status = length < LINES_BYTES
                           ? tern_text_append(text->out, lines, (size_t)length)
                           : tern_fail(TERN_ERR_ARGUMENT, "a metric's line has %d bytes", length);
    }
}

void tern_metrics_head(struct tern_metrics_text *text,
                       enum tern_metric_type type,
                       const char *name,
                       const char *help)
{
    static const char *const types[] = {[TERN_METRIC_GAUGE] = "gauge",
                                        [TERN_METRIC_COUNTER] = "counter",
                                        [TERN_METRIC_HISTOGRAM] = "histogram"};
    tern_metrics_print(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

static const char *value_text(double value, char out[VALUE_BYTES])
{
    if (isnan(value)) {
        return "NaN";
    }
    if (isinf(value)) {
        return value > 0 ? "+Inf" : "-Inf";
    }
    snprintf(out, VALUE_BYTES, "%.17g", value);
    return out;
}

/* name, an ending of it, and the labels in braces, if any. */
static void put(struct tern_metrics_text *text, const char *name, const char *ending, double value)
{
    char number[VALUE_BYTES];
    bool has_labels = text->labels[0] != '\0';
    tern_metrics_print(text, "%s%s%s%s%s %s\n", name, ending, has_labels ? "{" : "", text->labels,
                       has_labels ? "}" : "", value_text(value, number));
}

void tern_metrics_add(struct tern_metrics_text *text, const struct tern_metric *metrics, int count)
{
    for (int i = 0; i < count; i++) {
        tern_metrics_head(text, metrics[i].type, metrics[i].name, metrics[i].help);
        put(text, metrics[i].name, "", metrics[i].value);
    }
}

void tern_metrics_histogram(struct tern_metrics_text *text,
                            const char *name,
                            const char *help,
                            const double *bounds,
                            const uint64_t *counts,
                            int bound_count,
                            double sum)
{
    const char *comma = text->labels[0] != '\0' ? "," : "";
    uint64_t count = 0;
    tern_metrics_head(text, TERN_METRIC_HISTOGRAM, name, help);
    for (int i = 0; i < bound_count; i++) {
        count += counts[i];
        tern_metrics_print(text, "%s_bucket{%s%sle=\"%.10g\"} %llu\n", name, text->labels, comma,
                           bounds[i], (unsigned long long)count);
    }
    count += counts[bound_count];
    tern_metrics_print(text, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, text->labels, comma,
                       (unsigned long long)count);
    put(text, name, "_sum", sum);
    put(text, name, "_count", (double)count);
}
