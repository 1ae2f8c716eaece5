/* random.c - Philox4x32-10 and what is drawn from it. */
#include "runtime/base/random.h"

#include "runtime/base/check.h"

#include <math.h>

static inline void round_once(uint32_t c[4], uint32_t k0, uint32_t k1)
{
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1];
    uint32_t c3 = c[3];
    c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)p0;
}

void tern_philox4x32(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    out[0] = (uint32_t)index;
    out[1] = (uint32_t)(index >> 32);
    out[2] = (uint32_t)stream;
    out[3] = (uint32_t)(stream >> 32);
    for (int i = 0; i < 10; i++) {
        round_once(out, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

uint64_t tern_random_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t v[4];
    tern_philox4x32(seed, stream, index, v);
    return (uint64_t)v[1] << 32 | v[0];
}

double tern_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(tern_random_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double tern_random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t v[4];
    tern_philox4x32(seed, stream, index, v);
    double u = (double)((((uint64_t)v[1] << 32 | v[0]) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double w = (double)(((uint64_t)v[3] << 32 | v[2]) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586476925 * w);
}

uint64_t tern_random_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t index)
{
    TERN_CHECK(n >= 1 && n <= (uint64_t)1 << 62 && index < n);
    int half = 1;
    while (half < 31 && (uint64_t)1 << (2 * half) < n) {
        half++;
    }
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = index >> half;
        uint64_t right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t mixed = tern_random_u64(seed, stream, right << 3 | round) & mask;
            uint64_t next = left ^ mixed;
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= n); /* at most 4x the range: expected under 4 walks */
    return index;
}
