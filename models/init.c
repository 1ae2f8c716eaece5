/* init.c - initial weights: normal numbers by the million, the same bits on every machine.
 *
 * One Philox4x32-10 call gives four normals: two Box-Muller pairs. Logarithm, sine and cosine are
 * polynomials in plain fp32 arithmetic without fused multiply-add (the build turns contraction
 * off), written as loops over a small batch so that the compiler vectorises them: 124 M values in a
 * fraction of a second, where libm takes seconds. */
#include "models/params.h"
#include "runtime/base/random.h"

#include <math.h>
#include <string.h>

enum {
    BATCH = 256
}; /* Philox calls in one batch */

/* log(u) for u in (0, 1]: u = 2^e (1 + f), atanh series; absolute error below 1e-6. */
static inline float log_unit(float u)
{
    uint32_t bits;
    memcpy(&bits, &u, sizeof bits);
    uint32_t shifted = bits - 0x3f3504f3u; /* mantissa into [sqrt(1/2), sqrt(2)) */
    float exponent = (float)((int32_t)shifted >> 23);
    uint32_t mantissa = (shifted & 0x007fffffu) + 0x3f3504f3u;
    float m;
    memcpy(&m, &mantissa, sizeof m);
    float s = (m - 1.0F) / (m + 1.0F);
    float z = s * s;
    float series = 2.0F + z * (0.66666667F + z * (0.4F + z * (0.28571429F + z * 0.22222222F)));
    return exponent * 0.69314718F + s * series;
}

/* cos and sin of 2 pi w for w in [-1/8, 1/8): Taylor, below 1e-6. */
static inline float cos_eighth(float w)
{
    float x = 6.2831853F * w;
    float z = x * x;
    return 1.0F + z * (-0.5F + z * (0.041666667F + z * (-0.0013888889F + z * 2.4801587e-5F)));
}

static inline float sin_eighth(float w)
{
    float x = 6.2831853F * w;
    float z = x * x;
    return x * (1.0F + z * (-0.16666667F +
                            z * (0.0083333333F + z * (-0.00019841270F + z * 2.7557319e-6F))));
}

/* Two uniforms to two normals. */
static inline void box_muller(uint32_t a, uint32_t b, float *first, float *second)
{
    float u = (float)((a >> 8) + 1) * 0x1p-24F;
    float radius = sqrtf(-2.0F * log_unit(u));
    uint32_t quarter = b >> 30;
    float w = (float)((b >> 6) & 0xffffffu) * 0x1p-26F - 0.125F; /* [-1/8, 1/8) */
    float c = cos_eighth(w);
    float s = sin_eighth(w);
    float x = quarter & 1 ? s : c;
    float y = quarter & 1 ? c : s;
    *first = (quarter & 2 ? -x : x) * radius;
    *second = (quarter == 1 || quarter == 2 ? -y : y) * radius;
}

/* counts calls from `call` on; out receives 4 a call. */
static void normal_batch(uint64_t seed,
                         uint64_t stream,
                         uint64_t call,
                         int count,
                         float scale,
                         float *out)
{
    uint32_t v[4][BATCH];
    for (int i = 0; i < count; i++) {
        uint32_t c0 = (uint32_t)(call + (uint64_t)i);
        uint32_t c1 = (uint32_t)((call + (uint64_t)i) >> 32);
        uint32_t c2 = (uint32_t)stream;
        uint32_t c3 = (uint32_t)(stream >> 32);
        uint32_t k0 = (uint32_t)seed;
        uint32_t k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0;
            uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
            uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
            c1 = (uint32_t)p1;
            c3 = (uint32_t)p0;
            c0 = n0;
            c2 = n2;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        v[0][i] = c0;
        v[1][i] = c1;
        v[2][i] = c2;
        v[3][i] = c3;
    }
    float n[4][BATCH];
    for (int i = 0; i < count; i++) {
        box_muller(v[0][i], v[1][i], &n[0][i], &n[1][i]);
    }
    for (int i = 0; i < count; i++) {
        box_muller(v[2][i], v[3][i], &n[2][i], &n[3][i]);
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < 4; j++) {
            out[4 * i + j] = n[j][i] * scale;
        }
    }
}

static void fill_normal(uint64_t seed,
                        uint64_t stream,
                        int64_t first,
                        int64_t count,
                        float scale,
                        float *out)
{
    float batch[4 * BATCH];
    int64_t done = 0;
    while (done < count) {
        int64_t at = first + done;
        int64_t call = at / 4;
        int64_t skip = at % 4;
        int64_t calls = (skip + count - done + 3) / 4;
        calls = calls < BATCH ? calls : BATCH;
        normal_batch(seed, stream, (uint64_t)call, (int)calls, scale, batch);
        int64_t take = 4 * calls - skip;
        take = take < count - done ? take : count - done;
        memcpy(out + done, batch + skip, (size_t)take * sizeof *out);
        done += take;
    }
}

/* In [-bound, bound): tables of adapters are small, one draw a value will do. */
static void fill_uniform(uint64_t seed,
                         uint64_t stream,
                         int64_t first,
                         int64_t count,
                         double bound,
                         float *out)
{
    for (int64_t i = 0; i < count; i++) {
        double u = tern_random_uniform(seed, stream, (uint64_t)(first + i));
        out[i] = (float)((2 * u - 1) * bound);
    }
}

void tern_param_initial(const struct tern_params *params,
                        const struct tern_param *param,
                        int64_t layers,
                        uint64_t seed,
                        int64_t first,
                        int64_t count,
                        float *out)
{
    uint32_t number = (uint32_t)(param - params->items);
    uint64_t stream = tern_random_stream_id(TERN_STREAM_INIT, number);
    switch (param->init) {
    case TERN_INIT_ZERO:
        memset(out, 0, (size_t)count * sizeof *out);
        return;
    case TERN_INIT_ONE:
        for (int64_t i = 0; i < count; i++) {
            out[i] = 1.0F;
        }
        return;
    case TERN_INIT_NORMAL:
        fill_normal(seed, stream, first, count, 0.02F, out);
        return;
    case TERN_INIT_NORMAL_RESIDUAL:
        fill_normal(seed, stream, first, count, (float)(0.02 / sqrt(2.0 * (double)layers)), out);
        return;
    case TERN_INIT_UNIFORM:
        fill_uniform(seed, stream, first, count, 1 / sqrt((double)param->shape[1]), out);
        return;
    }
}
