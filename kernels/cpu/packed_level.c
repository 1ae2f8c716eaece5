/* packed_level.c - products of packed weights, compiled once a level (TERN_CPU_SUFFIX).
 *
 * A few rows: codes are unpacked in registers, a strip at a time, prefetched ahead: bound by memory. Many rows: the
 * strips of a tile of sums are expanded once into L1 or L2 and multiplied with every group of rows. */
#include "kernels/cpu/packed.h"
#include "kernels/cpu/vec16.h"

/* Without vectors of the processor's own there is nothing to keep in registers, and unrolled code takes minutes to compile.
 */
#if VF_AVX512 || VF_AVX2
#    define UNROLL VF_UNROLL
#else
#    define UNROLL
#endif

enum {
    GROUP = TERN_PACKED_GROUP,
    VECTORS = 8, /* of codes in a group */
    AHEAD_BYTES = 6144,
    LINE = 64,
};

static int zero_of(enum tern_packed packed)
{
    return packed == TERN_PACKED_Q8 ? V16_WIDE_ZERO : tern_packed_zero(packed);
}

static int group_rows(enum tern_packed packed, int64_t m)
{
    if (m <= 4) {
        return (int)m;
    }
    if (!tern_packed_is_codes(packed)) {
        return V16_FLOAT_ROWS;
    }
    return m > TERN_FEW_ROWS ? V16_MANY_ROWS : !V16_HAS_BATCH ? 4 : m <= 8 ? 8 : 16;
}

/* ---- rows of the left factor ---- */

VF_INLINE float value_of(const struct tern_packed_row *row, int64_t p)
{
    return row->a == NULL              ? 0
           : row->a_dtype == TERN_BF16 ? tern_bf16_to_f32(((const tern_bf16 *)row->a)[p])
                                       : ((const float *)row->a)[p];
}

static void pack_row_floats(const struct tern_packed_row *row)
{
    float *out = (float *)row->group + row->lane;
    for (int64_t p = 0; p < row->k; p++) {
        float x = value_of(row, p);
        out[p * row->mr] = row->is_rounded ? tern_bf16_to_f32(tern_f32_to_bf16(x)) : x;
    }
}

/* Codes of 32 floats; returns their scale. The same numbers as tern_packed_round_group. */
VF_INLINE float round_group(const float *x, int8_t *codes)
{
#if VF_AVX512
    __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
    __m512i most = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude),
                                    _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude));
    float max = tern_bits_to_f32(_mm512_reduce_max_epu32(most)), inverse = 127.0F / max;
    bool is_zero = tern_f32_to_bits(inverse) == 0x7f800000u;
    __m512 factor = _mm512_set1_ps(is_zero ? 0 : inverse);
    for (int i = 0; i < 2; i++) {
        __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], factor));
        _mm_storeu_si128((__m128i *)(void *)(codes + 16 * i), _mm512_cvtsepi32_epi8(rounded));
    }
    return is_zero ? 0 : max / 127.0F;
#elif VF_AVX2
    __m256i magnitude = _mm256_set1_epi32(0x7fffffff), most = _mm256_setzero_si256();
    for (int i = 0; i < GROUP; i += 8) {
        __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        most = _mm256_max_epu32(most, _mm256_and_si256(bits, magnitude));
    }
    uint32_t lanes[8], found = 0;
    _mm256_storeu_si256((__m256i *)(void *)lanes, most);
    for (int i = 0; i < 8; i++) {
        found = lanes[i] > found ? lanes[i] : found;
    }
    float max = tern_bits_to_f32(found), inverse = 127.0F / max;
    bool is_zero = tern_f32_to_bits(inverse) == 0x7f800000u;
    __m256 factor = _mm256_set1_ps(is_zero ? 0 : inverse);
    for (int i = 0; i < GROUP; i += 8) {
        __m256i r = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor));
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
        _mm_storel_epi64((__m128i *)(void *)(codes + i), _mm_packs_epi16(words, words));
    }
    return is_zero ? 0 : max / 127.0F;
#else
    return tern_packed_round_group(x, codes);
#endif
}

VF_INLINE int sum_bytes(const int8_t *codes, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        sum += codes[i];
    }
    return sum;
}

static void pack_row_codes(const struct tern_packed_row *row)
{
    int mr = row->mr, zero = zero_of(row->packed);
    char *group = row->group;
    for (int64_t p = 0; p < row->k; p += GROUP, group += mr * TERN_ROW_GROUP_BYTES) {
        float values[GROUP];
        const float *x = values;
        if (row->a != NULL && row->a_dtype == TERN_F32) {
            x = (const float *)row->a + p;
        } else {
            for (int i = 0; i < GROUP; i++) {
                values[i] = value_of(row, p + i);
            }
        }
        int8_t *codes = (int8_t *)group + row->lane * GROUP;
        float *scale = (float *)(void *)(group + mr * GROUP) + row->lane;
        int32_t *start = (int32_t *)(void *)(group + mr * (GROUP + 8)) + row->lane;
        scale[0] = round_group(x, codes);
        int low = sum_bytes(codes, GROUP / 2), high = sum_bytes(codes + GROUP / 2, GROUP / 2);
        scale[mr] = scale[0] * (float)(low + high);
        start[0] = -zero * (row->packed == TERN_PACKED_Q6 ? low : low + high);
        start[mr] = -zero * high;
    }
}

static void pack_row(const struct tern_packed_row *row)
{
    if (tern_packed_is_codes(row->packed)) {
        pack_row_codes(row);
    } else {
        pack_row_floats(row);
    }
}

/* ---- codes ---- */

/* Vector i of the codes of a tile. */
VF_INLINE v64b unpack(enum tern_packed packed, const char *tile, int i)
{
    const char *extra = tile + 4 * TERN_TILE_VECTOR;
    if (packed == TERN_PACKED_Q8) {
        return v64_load(tile + i * TERN_TILE_VECTOR);
    }
    v64b pairs = v64_load(tile + i % 4 * TERN_TILE_VECTOR);
    v64b codes = v64_and(i < 4 ? pairs : v64_shift(pairs, -4), 15);
    if (packed == TERN_PACKED_Q5 || packed == TERN_PACKED_Q5A) {
        codes = v64_or(codes, v64_and(v64_shift(v64_load(extra), 4 - i), 16));
    } else if (packed == TERN_PACKED_Q6) {
        v64b upper = v64_load(extra + i / 4 * TERN_TILE_VECTOR);
        codes = v64_or(codes, v64_and(v64_shift(upper, 4 - 2 * (i % 4)), 48));
    }
    return codes;
}

VF_INLINE v16i add_products(enum tern_packed packed, v16i sum, v64b codes, const int8_t *x)
{
    int four;
    memcpy(&four, x, sizeof four);
    return packed == TERN_PACKED_Q8 ? v16_dot_wide(sum, codes, four) : v16_dot(sum, codes, four);
}

/* Pointers into 32 of k of a group of mr rows. */
struct part {
    const int8_t *codes;
    const float *scale;
    const int32_t *start;
};

VF_INLINE struct part part_of(const char *rows, int mr)
{
    return (struct part){(const int8_t *)rows, (const float *)(const void *)(rows + mr * GROUP),
                         (const int32_t *)(const void *)(rows + mr * (GROUP + 8))};
}

VF_INLINE void prefetch(const char *tile, int64_t bytes)
{
    for (int64_t line = 0; line < bytes; line += LINE) {
        __builtin_prefetch(tile + AHEAD_BYTES + line);
    }
}

VF_INLINE void put(const struct tern_packed_block *block, int64_t row, int64_t column, v16f y)
{
    float *c = block->c + row * block->ldc + column;
    if (column + TERN_STRIP <= block->n) {
        v16_store(c, y);
    } else {
        v16_store_part(c, y, (int)(block->n - column));
    }
}

/* One strip times one group of mr rows, the first of them number `first`. */
VF_INLINE void strip_few(enum tern_packed packed,
                         int mr,
                         const struct tern_packed_block *block,
                         const char *tile,
                         const char *rows,
                         int64_t first,
                         int64_t column)
{
    const int64_t bytes = tern_tile_bytes(packed);
    const bool has_min = tern_packed_has_min(packed);
    const int halves = packed == TERN_PACKED_Q6 ? 2 : 1, span = VECTORS / halves;
    v16f y[16];
    UNROLL for (int r = 0; r < mr; r++)
    {
        y[r] = v16_set1(0);
    }
    for (int64_t g = 0; g < block->k / GROUP; g++) {
        struct part part = part_of(rows, mr);
        const char *scales = tile + tern_tile_vectors(packed) * TERN_TILE_VECTOR;
        prefetch(tile, bytes);
        UNROLL for (int half = 0; half < halves; half++)
        {
            v16f scale = v16_load_f16(scales + half * 2 * TERN_STRIP);
            v16i sum[16];
            UNROLL for (int r = 0; r < mr; r++)
            {
                sum[r] = v16_set1_int(part.start[half * mr + r]);
            }
            UNROLL for (int i = 0; i < span; i++)
            {
                int at = half * 4 + i;
                v64b codes = unpack(packed, tile, at);
                UNROLL for (int r = 0; r < mr; r++)
                {
                    sum[r] = add_products(packed, sum[r], codes, part.codes + r * GROUP + 4 * at);
                }
            }
            UNROLL for (int r = 0; r < mr; r++)
            {
                y[r] = v16_fma(v16_float(sum[r]), v16_mul(scale, v16_set1(part.scale[r])), y[r]);
            }
        }
        if (has_min) {
            v16f min = v16_load_f16(scales + 2 * TERN_STRIP);
            UNROLL for (int r = 0; r < mr; r++)
            {
                y[r] = v16_fma(min, v16_set1(part.scale[mr + r]), y[r]);
            }
        }
        tile += bytes;
        rows += mr * TERN_ROW_GROUP_BYTES;
    }
    UNROLL for (int r = 0; r < mr; r++)
    {
        if (first + r < block->m) {
            put(block, first + r, column, y[r]);
        }
    }
}

/* All strips and groups. Functions of their own: what is inlined into one body by the dozen is compiled badly. */
#define FEW(packed, mr) \
    static \
        __attribute__((noinline)) void few_##packed##_##mr(const struct tern_packed_block *block) \
    { \
        int64_t strip = tern_strip_bytes(TERN_PACKED_##packed, block->k); \
        int64_t group = block->k / GROUP * (mr)*TERN_ROW_GROUP_BYTES; \
        for (int64_t j = 0; j < block->n; j += TERN_STRIP) { \
            for (int64_t i = 0; i < block->m; i += (mr)) { \
                strip_few(TERN_PACKED_##packed, mr, block, block->b + j / TERN_STRIP * strip, \
                          block->rows + i / (mr)*group, i, j); \
            } \
        } \
    }

/* Codes in bytes, then scales and what comes second in f32, of one tile. */
VF_INLINE void expand_tile(enum tern_packed packed, const char *tile, char *out, int64_t stride)
{
    UNROLL for (int i = 0; i < VECTORS; i++)
    {
        v64_store(out + i * stride, unpack(packed, tile, i));
    }
    const char *scales = tile + tern_tile_vectors(packed) * TERN_TILE_VECTOR;
    float *to = (float *)(void *)(out + VECTORS * stride);
    bool has_second = packed == TERN_PACKED_Q6 || tern_packed_has_min(packed);
    v16_store(to, v16_load_f16(scales));
    v16_store(to + stride / 4, has_second ? v16_load_f16(scales + 2 * TERN_STRIP) : v16_set1(0));
}

/* V16_MANY_STRIPS strips, expanded, times V16_MANY_ROWS rows. */
VF_INLINE void tile_many(enum tern_packed packed,
                         const struct tern_packed_block *block,
                         const char *rows,
                         int64_t first,
                         int64_t column)
{
    enum {
        MR = V16_MANY_ROWS,
        STRIPS = V16_MANY_STRIPS
    };
    const bool has_min = tern_packed_has_min(packed);
    const int halves = packed == TERN_PACKED_Q6 ? 2 : 1, span = VECTORS / halves;
    const char *tile = block->expanded;
    v16f y[MR][STRIPS];
    UNROLL for (int r = 0; r < MR * STRIPS; r++)
    {
        y[r / STRIPS][r % STRIPS] = v16_set1(0);
    }
    for (int64_t g = 0; g < block->k / GROUP; g++) {
        struct part part = part_of(rows, MR);
        const float *scales =
            (const float *)(const void *)(tile + VECTORS * STRIPS * TERN_TILE_VECTOR);
        UNROLL for (int half = 0; half < halves; half++)
        {
            v16i sum[MR][STRIPS];
            UNROLL for (int r = 0; r < MR * STRIPS; r++)
            {
                sum[r / STRIPS][r % STRIPS] = v16_set1_int(part.start[half * MR + r / STRIPS]);
            }
            UNROLL for (int i = 0; i < span; i++)
            {
                int at = half * 4 + i;
                v64b codes[STRIPS];
                UNROLL for (int s = 0; s < STRIPS; s++)
                {
                    codes[s] = v64_load(tile + (at * STRIPS + s) * TERN_TILE_VECTOR);
                }
                UNROLL for (int r = 0; r < MR * STRIPS; r++)
                {
                    v16i *to = &sum[r / STRIPS][r % STRIPS];
                    *to = add_products(packed, *to, codes[r % STRIPS],
                                       part.codes + r / STRIPS * GROUP + 4 * at);
                }
            }
            UNROLL for (int r = 0; r < MR * STRIPS; r++)
            {
                v16f scale = v16_load(scales + (half * STRIPS + r % STRIPS) * TERN_STRIP);
                v16f *to = &y[r / STRIPS][r % STRIPS];
                *to = v16_fma(v16_float(sum[r / STRIPS][r % STRIPS]),
                              v16_mul(scale, v16_set1(part.scale[r / STRIPS])), *to);
            }
        }
        if (has_min) {
            UNROLL for (int r = 0; r < MR * STRIPS; r++)
            {
                v16f *to = &y[r / STRIPS][r % STRIPS];
                *to = v16_fma(v16_load(scales + (STRIPS + r % STRIPS) * TERN_STRIP),
                              v16_set1(part.scale[MR + r / STRIPS]), *to);
            }
        }
        tile += STRIPS * TERN_EXPANDED_BYTES;
        rows += MR * TERN_ROW_GROUP_BYTES;
    }
    UNROLL for (int r = 0; r < MR * STRIPS; r++)
    {
        int64_t j = column + r % STRIPS * TERN_STRIP;
        if (first + r / STRIPS < block->m && j < block->n) {
            put(block, first + r / STRIPS, j, y[r / STRIPS][r % STRIPS]);
        }
    }
}

/* Strips that lie beyond n are taken to be the last one again: their sums go nowhere. */
#define MANY(packed) \
    static __attribute__((noinline)) void expand_##packed(const struct tern_packed_block *block, \
                                                          int64_t column) \
    { \
        int64_t strip = tern_strip_bytes(TERN_PACKED_##packed, block->k); \
        int64_t last = (block->n - 1) / TERN_STRIP, bytes = tern_tile_bytes(TERN_PACKED_##packed); \
        for (int64_t s = 0; s < V16_MANY_STRIPS; s++) { \
            int64_t at = column / TERN_STRIP + s; \
            const char *tile = block->b + (at < last ? at : last) * strip; \
            char *out = block->expanded + s * TERN_TILE_VECTOR; \
            for (int64_t g = 0; g < block->k / GROUP; g++) { \
                expand_tile(TERN_PACKED_##packed, tile, out, V16_MANY_STRIPS *TERN_TILE_VECTOR); \
                tile += bytes; \
                out += V16_MANY_STRIPS * TERN_EXPANDED_BYTES; \
            } \
        } \
    } \
    static __attribute__((noinline)) void many_##packed(const struct tern_packed_block *block) \
    { \
        int64_t group = block->k / GROUP * V16_MANY_ROWS * TERN_ROW_GROUP_BYTES; \
        for (int64_t j = 0; j < block->n; j += V16_MANY_STRIPS * TERN_STRIP) { \
            expand_##packed(block, j); \
            for (int64_t i = 0; i < block->m; i += V16_MANY_ROWS) { \
                tile_many(TERN_PACKED_##packed, block, block->rows + i / V16_MANY_ROWS * group, i, \
                          j); \
            } \
        } \
    }

/* Rows in groups of more than four only where there are registers for them. */
#if V16_HAS_BATCH
#    define BATCH(packed) FEW(packed, 8) FEW(packed, 16)
#    define BATCH_CASES(packed) \
    case 8: \
        few_##packed##_8(block); \
        return; \
    case 16: \
        few_##packed##_16(block); \
        return;
#else
#    define BATCH(packed)
#    define BATCH_CASES(packed)
#endif

#define CODES(packed) \
    FEW(packed, 1) \
    FEW(packed, 2) \
    FEW(packed, 3) \
    FEW(packed, 4) \
    BATCH(packed) \
        MANY(packed) static void multiply_##packed(const struct tern_packed_block *block) \
    { \
        if (block->expanded != NULL) { \
            many_##packed(block); \
            return; \
        } \
        switch (block->mr) { \
            BATCH_CASES(packed) \
        case 1: \
            few_##packed##_1(block); \
            return; \
        case 2: \
            few_##packed##_2(block); \
            return; \
        case 3: \
            few_##packed##_3(block); \
            return; \
        default: \
            few_##packed##_4(block); \
            return; \
        } \
    }
CODES(Q8)
CODES(Q6)
CODES(Q5)
CODES(Q5A)
CODES(Q4)
CODES(Q4A)

/* ---- floats ---- */

VF_INLINE v16f load_floats(bool is_half, const char *strip, int64_t p)
{
    return is_half ? v16_load_bf16(strip + p * 2 * TERN_STRIP)
                   : v16_load((const float *)(const void *)strip + p * TERN_STRIP);
}

/* One or two strips (the second may be the first again: its sums go nowhere) times a group of mr rows. */
VF_INLINE void tile_floats(bool is_half,
                           int mr,
                           int strips,
                           const struct tern_packed_block *block,
                           const char *const *strip,
                           const float *rows,
                           int64_t first,
                           int64_t column)
{
    v16f y[V16_FLOAT_ROWS][2];
    UNROLL for (int r = 0; r < mr * strips; r++)
    {
        y[r / strips][r % strips] = v16_set1(0);
    }
    for (int64_t p = 0; p < block->k; p++, rows += mr) {
        v16f w[2];
        UNROLL for (int s = 0; s < strips; s++)
        {
            w[s] = load_floats(is_half, strip[s], p);
            if (mr <= 4) {
                __builtin_prefetch(strip[s] + p * TERN_STRIP * (is_half ? 2 : 4) + AHEAD_BYTES);
            }
        }
        UNROLL for (int r = 0; r < mr * strips; r++)
        {
            y[r / strips][r % strips] =
                v16_fma(v16_set1(rows[r / strips]), w[r % strips], y[r / strips][r % strips]);
        }
    }
    UNROLL for (int r = 0; r < mr * strips; r++)
    {
        int64_t j = column + r % strips * TERN_STRIP;
        if (first + r / strips < block->m && j < block->n) {
            put(block, first + r / strips, j, y[r / strips][r % strips]);
        }
    }
}

#define FLOATS(name, is_half, mr, strips) \
    static __attribute__((noinline)) void name(const struct tern_packed_block *block) \
    { \
        int64_t bytes = tern_strip_bytes(block->packed, block->k); \
        int64_t last = (block->n - 1) / TERN_STRIP; \
        for (int64_t j = 0; j < block->n; j += (strips)*TERN_STRIP) { \
            int64_t at = j / TERN_STRIP; \
            const char *strip[2] = {block->b + at * bytes, \
                                    block->b + (at < last ? at + 1 : last) * bytes}; \
            for (int64_t i = 0; i < block->m; i += (mr)) { \
                tile_floats(is_half, mr, strips, block, strip, \
                            (const float *)(const void *)block->rows + i * block->k, i, j); \
            } \
        } \
    }
#define ALL_FLOATS(name, is_half) \
    FLOATS(name##_1, is_half, 1, V16_FLOAT_STRIPS) \
    FLOATS(name##_2, is_half, 2, V16_FLOAT_STRIPS) \
    FLOATS(name##_3, is_half, 3, V16_FLOAT_STRIPS) \
    FLOATS(name##_4, is_half, 4, V16_FLOAT_STRIPS) \
    FLOATS(name##_many, is_half, V16_FLOAT_ROWS, V16_FLOAT_STRIPS) \
    static void name(const struct tern_packed_block *block) \
    { \
        switch (block->expanded != NULL ? V16_FLOAT_ROWS : block->mr) { \
        case 1: \
            name##_1(block); \
            return; \
        case 2: \
            name##_2(block); \
            return; \
        case 3: \
            name##_3(block); \
            return; \
        case 4: \
            name##_4(block); \
            return; \
        default: \
            name##_many(block); \
            return; \
        } \
    }
ALL_FLOATS(multiply_f32, false)
ALL_FLOATS(multiply_bf16, true)

static void multiply(const struct tern_packed_block *block)
{
    switch (block->packed) {
    case TERN_PACKED_Q8:
        multiply_Q8(block);
        break;
    case TERN_PACKED_Q6:
        multiply_Q6(block);
        break;
    case TERN_PACKED_Q5:
        multiply_Q5(block);
        break;
    case TERN_PACKED_Q5A:
        multiply_Q5A(block);
        break;
    case TERN_PACKED_Q4:
        multiply_Q4(block);
        break;
    case TERN_PACKED_Q4A:
        multiply_Q4A(block);
        break;
    case TERN_PACKED_BF16:
        multiply_bf16(block);
        break;
    default:
        multiply_f32(block);
        break;
    }
}

const struct tern_packed_level TERN_CPU_JOIN(tern_packed, TERN_CPU_SUFFIX) = {
    .strips = V16_MANY_STRIPS,
    .group_rows = group_rows,
    .pack_row = pack_row,
    .multiply = multiply,
};
