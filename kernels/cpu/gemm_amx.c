/* gemm_amx.c - the matrix product with AMX bf16 tiles: 32 x 32 outputs as 2 x 2 tiles of 16 x 16,
 * 32 of k a step. */
#include "kernels/cpu/gemm_avx512.h"
#include "runtime/base/log.h"

#include <string.h>

enum {
    MR = 32,
    NR = 32,
    K_BLOCK = 1024,
    TILE_ROWS_MAX = 16,
    TILE_ROW_BYTES = 64
};

struct tile_config {
    uint8_t palette, start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* All eight tiles 16 rows of 64 bytes; panels are padded with zeros to that. Loading the
 * configuration costs some tens of cycles against thousands for a panel, and leaves nothing behind
 * for other code to trip over. */
static void configure_tiles(void)
{
    struct tile_config config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = TILE_ROW_BYTES;
        config.rows[i] = TILE_ROWS_MAX;
    }
    _tile_loadconfig(&config);
}

/* a: [k/32][32 rows][32 k], b: [k/2][32 columns][2]. Tiles 0 to 3: sums, 4 and 5: a, 6 and 7: b. */
static void tile_amx(int64_t k,
                     const void *a,
                     const void *b,
                     float *c,
                     int64_t ldc,
                     int m,
                     int n,
                     bool add)
{
    const char *ap = a, *bp = b;
    _Alignas(64) float sums[MR][NR];
    configure_tiles();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t p = 0; p < k; p += 32) {
        _tile_loadd(4, ap, TILE_ROW_BYTES);
        _tile_loadd(6, bp, 2 * TILE_ROW_BYTES);
        _tile_loadd(7, bp + TILE_ROW_BYTES, 2 * TILE_ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, ap + TILE_ROWS_MAX * TILE_ROW_BYTES, TILE_ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        ap += MR * TILE_ROW_BYTES;
        bp += TILE_ROWS_MAX * 2 * TILE_ROW_BYTES;
    }
    _tile_stored(0, sums, sizeof sums[0]);
    _tile_stored(1, &sums[0][16], sizeof sums[0]);
    _tile_stored(2, sums[16], sizeof sums[0]);
    _tile_stored(3, &sums[16][16], sizeof sums[0]);
    _tile_release();
    struct tile_out out = tile_out_of(c, ldc, n, add);
    for (int i = 0; i < m; i++) {
        store_row(out, i, _mm512_load_ps(sums[i]), _mm512_load_ps(&sums[i][16]));
    }
}

/* Lane-major: 32 values of k a lane. The other orientation goes through the plain loop's
 * definition. */
static void pack_rows(const struct tern_gemm_slice *s, int stride, void *panel)
{
    if (s->k_stride != 1 || s->dtype != TERN_BF16) {
        tern_gemm_pack_rows(s, stride, panel);
        return;
    }
    uint16_t *dst = panel;
    for (int64_t p = 0; p < s->k; p += 32) {
        __mmask32 mask = s->k - p >= 32 ? 0xffffffffu : (1u << (s->k - p)) - 1;
        for (int lane = 0; lane < stride; lane++, dst += 32) {
            __m512i x = _mm512_setzero_si512();
            if (lane < s->lanes) {
                const uint16_t *from = (const uint16_t *)s->src + lane * s->lane_stride + p;
                x = _mm512_maskz_loadu_epi16(mask, from);
            }
            _mm512_store_si512(dst, x);
        }
    }
}

/* The dot kernel's pairs, with k padded to a whole tile. */
static void pack_pairs(const struct tern_gemm_slice *s, int stride, void *panel)
{
    int64_t pairs = (s->k + 1) / 2, padded = (s->k + 31) / 32 * 16;
    tern_gemm_avx512_dot.pack_b(s, stride, panel);
    memset((int *)panel + pairs * stride, 0, (size_t)((padded - pairs) * stride) * sizeof(int));
}

const struct tern_gemm_kernel tern_gemm_amx = {
    .mr = MR,
    .a_stride = MR,
    .nr = NR,
    .b_stride = NR,
    .k_unit = 32,
    .k_block = K_BLOCK,
    .a_format = TERN_PANEL_ROWS,
    .b_format = TERN_PANEL_PAIRS,
    .pack_a = pack_rows,
    .pack_b = pack_pairs,
    .tile = tile_amx,
    .finish = tern_gemm_finish_avx512,
};
