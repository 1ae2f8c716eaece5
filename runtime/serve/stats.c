/* stats.c - bounds of the histograms and their counting. */
#include "runtime/serve/stats.h"

static const double g_first_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                        0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                        20,    40,    80,   160,  640,  2560};
static const double g_gap_bounds[] = {0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03,
                                      0.04,  0.05,  0.075, 0.1,  0.15,  0.2,  0.3,   0.4,
                                      0.5,   0.75,  1,     2.5,  5,     7.5,  10,    20};
static const double g_span_bounds[] = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,
                                       10,   15,   20,  30,  40,  50,  60, 120, 240, 480, 960};
static const double g_token_bounds[] = {1,   2,    5,    10,   20,  50,  100, 200,
                                        500, 1000, 2000, 5000, 1e4, 2e4, 5e4, 1e5};

static void set_bounds(struct tern_engine_histogram *histogram, const double *bounds, size_t bytes)
{
    histogram->bounds = bounds;
    histogram->bound_count = (int)(bytes / sizeof *bounds);
}

void tern_engine_stats_init(struct tern_engine_stats *stats)
{
    *stats = (struct tern_engine_stats){0};
    set_bounds(&stats->ttft, g_first_bounds, sizeof g_first_bounds);
    set_bounds(&stats->inter_token, g_gap_bounds, sizeof g_gap_bounds);
    set_bounds(&stats->queue, g_span_bounds, sizeof g_span_bounds);
    set_bounds(&stats->prefill, g_span_bounds, sizeof g_span_bounds);
    set_bounds(&stats->decode, g_span_bounds, sizeof g_span_bounds);
    set_bounds(&stats->e2e, g_span_bounds, sizeof g_span_bounds);
    set_bounds(&stats->request_prompt_tokens, g_token_bounds, sizeof g_token_bounds);
    set_bounds(&stats->request_generation_tokens, g_token_bounds, sizeof g_token_bounds);
    set_bounds(&stats->step_tokens, g_token_bounds, sizeof g_token_bounds);
}

void tern_engine_observe(struct tern_engine_histogram *histogram, double value)
{
    int at = 0;
    while (at < histogram->bound_count && value > histogram->bounds[at]) {
        at++;
    }
    histogram->counts[at]++;
    histogram->count++;
    histogram->sum += value;
}

const char *tern_engine_end_name(enum tern_engine_end end)
{
    static const char *const names[TERN_ENGINE_END_COUNT] = {
        [TERN_ENGINE_END_STOP] = "stop",   [TERN_ENGINE_END_LENGTH] = "length",
        [TERN_ENGINE_END_ABORT] = "abort", [TERN_ENGINE_END_TIMEOUT] = "timeout",
        [TERN_ENGINE_END_ERROR] = "error", [TERN_ENGINE_END_EMBEDDING] = "embedding",
    };
    return names[end];
}
