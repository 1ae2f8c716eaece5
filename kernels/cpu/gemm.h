/* gemm.h - inside the matrix product: the choice of variant, and the table that each variant fills.
 *
 * Factors are packed into panels in the order in which the tile kernel reads them. A panel holds
 * `width` rows of op(a) (or columns of op(b)): its lanes, `stride` apart along k. Formats, with k
 * padded by zeros to a multiple of k_unit:
 *
 *   F32    float [k][stride]
 *   PAIRS  bf16 [k/2][stride][2]: what vdpbf16ps multiplies, and the right tiles of AMX
 *   ROWS   bf16 [k/32][32][32]: lane-major blocks, the left tiles of AMX */
#ifndef TERN_KERNELS_CPU_GEMM_H
#define TERN_KERNELS_CPU_GEMM_H

#include "kernels/cpu/cpu.h"

enum tern_gemm_variant {
    /* Packed panels. */
    TERN_GEMM_GENERIC,
    TERN_GEMM_AVX2,
    TERN_GEMM_AVX512,
    TERN_GEMM_AVX512_DOT, /* vdpbf16ps */
    TERN_GEMM_AMX,
    /* A few rows (m <= TERN_GEMM_FEW_ROWS) against b as it is stored: bound by memory. */
    TERN_GEMM_FEW_GENERIC,
    TERN_GEMM_FEW_AVX2,
    TERN_GEMM_FEW_AVX512,
    TERN_GEMM_VARIANT_COUNT
};

enum {
    TERN_GEMM_FEW_ROWS = 8,
    TERN_GEMM_FEW_ROWS_STORED = 32, /* of a against blocks: packing them takes as long */
    TERN_GEMM_LANES_MAX = 32,       /* the widest panel */
};

/* The most rows of a that the few-rows variants take with this b. */
int64_t tern_gemm_few_rows(const struct tern_gemm_args *args);
const char *tern_gemm_variant_name(enum tern_gemm_variant variant);
/* A pure function of its arguments: equal machines choose alike. */
enum tern_gemm_variant tern_gemm_pick_variant(const struct tern_gemm_args *args,
                                              enum tern_cpu_level level,
                                              bool dot_is_fast);
/* The product by a given variant, which the device's level must include. The tests force every one.
 */
tern_status tern_gemm_run(struct tern_cpu_device *device,
                          const struct tern_gemm_args *args,
                          enum tern_gemm_variant variant);
/* `level`, or the one below AMX when the tile unit does not agree with the scalar loop (a warning
 * says so). */
enum tern_cpu_level tern_cpu_gemm_level_checked(enum tern_cpu_level level);

/* A slice of a factor that becomes one panel. Element (lane, p) is src[lane * lane_stride + p *
 * k_stride]; one of the strides is 1. */
struct tern_gemm_slice {
    const void *src;
    enum tern_dtype dtype;
    int64_t lane_stride, k_stride;
    int lanes; /* 1 to the panel's width; the rest is zeros */
    int64_t k;
    bool round; /* f32 values are rounded to bf16 first */
};

/* Elements [first, first + k) of `lanes` rows of stored weights, f32 in dst; returns how far apart the rows are there.
 * The first element asked for lies at dst + *skip_out: rows are decoded in whole blocks. */
int64_t tern_gemm_decode(const struct tern_gemm_args *args,
                         int64_t row,
                         int lanes,
                         int64_t first,
                         int64_t k,
                         float *dst,
                         int64_t *skip_out);

enum tern_gemm_format {
    TERN_PANEL_F32,
    TERN_PANEL_PAIRS,
    TERN_PANEL_ROWS
};

/* Writes 16 * groups lanes (stride 16 * groups) or, generic, any width. */
typedef void (*tern_gemm_pack_fn)(const struct tern_gemm_slice *slice, int stride, void *panel);

/* What happens to a tile of sums: d = [d +] c [+ bias], gelu. c may be d itself when that is f32.
 */
struct tern_gemm_finish {
    const float *c;
    int64_t ldc;
    void *d, *aux; /* at the tile's first element; aux NULL unless BIAS_GELU */
    int64_t ldd;
    enum tern_dtype d_dtype;
    const void *bias; /* at the tile's first column; NULL for epilogue NONE */
    enum tern_dtype bias_dtype;
    bool accumulate;
    int64_t m, n;
};

/* c (m, n) f32 = or += a panel * b panel over k (a multiple of k_unit); m <= mr, n <= nr. */
typedef void (*tern_gemm_tile_fn)(int64_t k,
                                  const void *a,
                                  const void *b,
                                  float *c,
                                  int64_t ldc,
                                  int m,
                                  int n,
                                  bool add);

struct tern_gemm_kernel {
    int mr, a_stride; /* rows of a tile; lanes stored in a panel of a */
    int nr, b_stride;
    int k_unit;
    int k_block; /* longest panel, in elements of k */
    enum tern_gemm_format a_format, b_format;
    tern_gemm_pack_fn pack_a, pack_b;
    tern_gemm_tile_fn tile;
    void (*finish)(const struct tern_gemm_finish *finish);
};

/* c (m, n) f32 = a (m, k) * columns of b as stored. a: f32, row stride lda. b_trans: b is (n, k).
 */
struct tern_gemm_few {
    const float *a;
    int64_t lda;
    const void *b; /* at the first of the n columns */
    int64_t ldb;
    enum tern_dtype b_dtype;
    bool b_trans;
    float *c;
    int64_t ldc;
    int64_t m, n, k;
};

struct tern_gemm_few_kernel {
    void (*run)(const struct tern_gemm_few *few);
    void (*finish)(const struct tern_gemm_finish *finish);
};

/* d (and aux) from the sums c of a tile of m rows and n columns; i, j count from the start of the matrix. */
void tern_gemm_finish_tile(const struct tern_gemm_args *args,
                           void (*finish)(const struct tern_gemm_finish *),
                           const float *c,
                           int64_t ldc,
                           int64_t i,
                           int64_t j,
                           int64_t m,
                           int64_t n,
                           bool accumulate);
/* The device's level of it. */
void (*tern_gemm_finish_of(const struct tern_cpu_device *device))(const struct tern_gemm_finish *);

/* gemm_generic.c: any processor. */
extern const struct tern_gemm_kernel tern_gemm_generic;
extern const struct tern_gemm_few_kernel tern_gemm_few_generic;
void tern_gemm_pack_f32(const struct tern_gemm_slice *slice, int stride, void *panel);
void tern_gemm_pack_pairs(const struct tern_gemm_slice *slice, int stride, void *panel);
void tern_gemm_pack_rows(const struct tern_gemm_slice *slice, int stride, void *panel);

#if defined(__x86_64__)
/* One file a level, each compiled with that level's flags. */
extern const struct tern_gemm_kernel tern_gemm_avx2;
extern const struct tern_gemm_few_kernel tern_gemm_few_avx2;
extern const struct tern_gemm_kernel tern_gemm_avx512;
extern const struct tern_gemm_few_kernel tern_gemm_few_avx512;
extern const struct tern_gemm_kernel tern_gemm_avx512_dot;
extern const struct tern_gemm_kernel tern_gemm_amx;
void tern_gemm_finish_avx512(const struct tern_gemm_finish *finish);
#endif

#endif
