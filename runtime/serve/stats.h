/* stats.h - histograms of what the engine measures; bounds as dashboards for such servers expect
 * them. */
#ifndef TERN_RUNTIME_SERVE_STATS_H
#define TERN_RUNTIME_SERVE_STATS_H

#include "runtime/serve/engine.h"

/* Sets the bounds of all histograms; counts are zero. */
void tern_engine_stats_init(struct tern_engine_stats *stats);
void tern_engine_observe(struct tern_engine_histogram *histogram, double value);

#endif
