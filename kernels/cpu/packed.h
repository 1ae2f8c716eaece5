/* packed.h - inside kernels/cpu/: how packed weights lie, and the products that each instruction level has.
 *
 * A strip is TERN_PACKED_ROWS rows (outputs) of the matrix, one vector of lanes; strips follow one another. A strip of
 * floats is [k][16], f32 or bf16. A strip of codes is k / 32 tiles, one a group; in a tile every vector of 64 bytes has
 * in byte 4 r + b something of row r:
 *
 *   q8            8 vectors: the codes of k = 4 i + b
 *   others        4 vectors: codes of k = 4 i + b in the low nibbles (lower four bits), of 16 + 4 i + b in the high ones
 *     q5, q5a     1 vector: bit i is the fifth bit of k = 4 i + b
 *     q6          2 vectors, one a half: bits 2 i, 2 i + 1 are the upper bits of k = 4 i + b of the half
 *   then f16 [16] scales, and f16 [16] minima (q4a, q5a) or scales of the second half (q6).
 *
 * Rows of the left factor go in groups of `mr`, packed for one kind. Codes: for each 32 of k
 *   s8 [mr][32] codes, f32 [mr] scale, f32 [mr] scale * sum of codes, i32 [2][mr] where sums of products start:
 *   -zero * (sum of codes), for q6 of the first and of the second half.
 * Floats: f32 [k][mr].
 *
 * One output is one chain over ascending k: of codes y = fma(float(sum), scale_b * scale_a, y), then for a minimum
 * y = fma(min, scale_a * sum of codes, y); of floats y = fma(a, b, y). Every kernel here keeps to it, so that bits do
 * not depend on which of them computed an output. */
#ifndef TERN_KERNELS_CPU_PACKED_H
#define TERN_KERNELS_CPU_PACKED_H

#include "kernels/cpu/cpu.h"
#include "kernels/packed.h"

enum {
    TERN_STRIP = TERN_PACKED_ROWS,
    TERN_TILE_VECTOR = 64, /* bytes */
    TERN_FEW_ROWS =
        16, /* up to here codes are unpacked in registers, beyond they are expanded first */
    TERN_TILE_STRIPS_MAX = 2,
    TERN_ROW_GROUP_BYTES = TERN_PACKED_GROUP + 16, /* of one row of codes and 32 of k */
    TERN_EXPANDED_BYTES =
        8 * TERN_TILE_VECTOR + 2 * 64, /* a tile with its codes in bytes, its scales in f32 */
};

static inline bool tern_packed_has_min(enum tern_packed packed)
{
    return packed == TERN_PACKED_Q4A || packed == TERN_PACKED_Q5A;
}

/* Vectors of codes in a tile, without their scales. */
static inline int tern_tile_vectors(enum tern_packed packed)
{
    return packed == TERN_PACKED_Q8                                ? 8
           : packed == TERN_PACKED_Q6                              ? 6
           : packed == TERN_PACKED_Q5 || packed == TERN_PACKED_Q5A ? 5
                                                                   : 4;
}

static inline int64_t tern_tile_bytes(enum tern_packed packed)
{
    bool has_two = tern_packed_has_min(packed) || packed == TERN_PACKED_Q6;
    return tern_tile_vectors(packed) * TERN_TILE_VECTOR + 2 * TERN_STRIP * (has_two ? 2 : 1);
}

static inline int64_t tern_strip_bytes(enum tern_packed packed, int64_t k)
{
    return tern_packed_is_codes(packed) ? k / TERN_PACKED_GROUP * tern_tile_bytes(packed)
                                        : k * TERN_STRIP * (packed == TERN_PACKED_F32 ? 4 : 2);
}

/* One row of the left factor into its group of mr. */
struct tern_packed_row {
    const void *a; /* a_dtype (k); NULL: zeros */
    enum tern_dtype a_dtype;
    enum tern_packed packed; /* what it will be multiplied with */
    bool is_rounded;         /* to bf16 */
    int64_t k;
    int mr, lane; /* of the group, and the row's place in it */
    void *group;
};

/* c[i][j] of m rows by n columns, ldc apart; b: the first of the strips. The rows' groups lie one behind the other. */
struct tern_packed_block {
    enum tern_packed packed;
    const char *b;
    int64_t k, m, n;
    int mr;
    const char *rows;
    float *c;
    int64_t ldc;
    /* Of a product of more than TERN_FEW_ROWS: room for a tile's strips, k / 32 * TERN_EXPANDED_BYTES each; else NULL. */
    char *expanded;
};

struct tern_packed_level {
    /* Rows of a group for a product of m rows. */
    int (*group_rows)(enum tern_packed packed, int64_t m);
    int strips; /* of a tile of sums */
    void (*pack_row)(const struct tern_packed_row *row);
    void (*multiply)(const struct tern_packed_block *block);
};

extern const struct tern_packed_level tern_packed_generic;
extern const struct tern_packed_level tern_packed_avx2;
extern const struct tern_packed_level tern_packed_vnni;
const struct tern_packed_level *tern_packed_level_of(const struct tern_cpu_device *device);

size_t tern_cpu_packed_bytes(struct tern_device *device,
                             enum tern_packed packed,
                             int64_t n,
                             int64_t k);
tern_status tern_cpu_pack(struct tern_device *device, const struct tern_pack_args *args);
/* A product with packed weights, its epilogue not DGELU. */
tern_status tern_cpu_gemm_packed(struct tern_cpu_device *device, const struct tern_gemm_args *args);
/* Elements [first, first + count) of row `row` of a packed matrix; of codes whole groups. */
void tern_cpu_packed_row(enum tern_packed packed,
                         const void *base,
                         int64_t row,
                         int64_t k,
                         int64_t first,
                         int64_t count,
                         float *out);
void tern_cpu_packed_needs(const struct tern_op_limits *limits, size_t *shared, size_t *scratch);

#endif
