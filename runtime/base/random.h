/* random.h - counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers:
 * As Easy as 1, 2, 3", SC 2011). A value is a pure function of (seed, stream, index): nothing to save but
 * numbers, and the same on every rank, thread and device. */
#ifndef TERN_RUNTIME_BASE_RANDOM_H
#define TERN_RUNTIME_BASE_RANDOM_H

#include <stdint.h>

/* What the numbers are for: keeps uses from ever sharing a sequence. */
enum tern_random_stream {
    TERN_STREAM_INIT = 1,    /* weight initialisation; sub-stream: tensor number */
    TERN_STREAM_SHUFFLE = 2, /* data order */
    TERN_STREAM_SAMPLE = 3,  /* token sampling */
    TERN_STREAM_JITTER = 4,  /* pauses between attempts */
    TERN_STREAM_TEST = 9,
};

/* Four 32-bit values for 128-bit counter (index, stream) and 64-bit key seed. */
void tern_philox4x32(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);

static inline uint64_t tern_random_stream_id(enum tern_random_stream stream, uint32_t sub)
{
    return ((uint64_t)stream << 32) | sub;
}

/* Uniform 64 bits; uniform in [0, 1) with 53 bits; standard normal (Box-Muller on both halves of one draw). */
uint64_t tern_random_u64(uint64_t seed, uint64_t stream, uint64_t index);
double tern_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
double tern_random_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* A keyed bijection of [0, n): where `index` goes. Feistel network over the next even power of two with cycle
 * walking; no table. n in [1, 2^62]. */
uint64_t tern_random_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t index);

#endif
