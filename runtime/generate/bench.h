/* bench.h - how fast a loaded model reads a prompt and writes on, and what share that is of what the machine can do. */
#ifndef TERN_RUNTIME_GENERATE_BENCH_H
#define TERN_RUNTIME_GENERATE_BENCH_H

#include "runtime/generate/loaded.h"

struct tern_bench_options {
    int64_t prompt;    /* tokens of a prompt; 0: none is measured */
    int64_t generated; /* tokens that each sequence goes on by, one at a time; 0: not measured */
    int64_t batch;     /* sequences that go on together */
    int64_t rounds;    /* the best of these counts */
    enum tern_dtype kv_dtype;
};

/* Rates are 0 where nothing was measured, shares where the machine's peak is not known. */
struct tern_bench_result {
    double prefill_seconds, decode_seconds;  /* of a round */
    double prefill_rate, decode_rate;        /* tokens/s; decode: of all sequences together */
    double prefill_operations, decode_bytes; /* of a round, as kernels/cost.h counts them */
    double peak_operations, read_rate;       /* operations/s and bytes/s, measured in between */
    double prefill_share_of_peak, decode_share_of_bandwidth;
    int64_t resident_bytes; /* of the process, after all rounds; -1: not known */
};

/* Tokens are random, nothing is sampled. TERN_ERR_INPUT: longer than the model's context. */
TERN_MUST_CHECK tern_status tern_bench(const struct tern_loaded *loaded,
                                       const struct tern_bench_options *options,
                                       struct tern_bench_result *out);

#endif
