/* blocks_test.c - block types are decoded to the bits that tests/oracles/make_blocks_golden.py kept, by every
 * compiled level; encoding is as close as its type allows. */
#include "io/safetensors.h"
#include "kernels/blocks.h"
#include "kernels/blocks_level.h"
#include "tests/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef bool (*decode_level)(enum tern_dtype dtype, const void *src, int64_t n, float *dst);

static bool decode_any(enum tern_dtype dtype, const void *src, int64_t n, float *dst)
{
    tern_blocks_decode(dtype, src, n, dst);
    return true;
}

/* From an odd address, over poison, and not one element further. */
static void check_decode(decode_level decode,
                         enum tern_dtype dtype,
                         const struct tern_stored_tensor *blocks,
                         const struct tern_stored_tensor *values)
{
    size_t bytes = (size_t)values->elements * sizeof(float);
    unsigned char *src = tern_alloc("test", blocks->bytes + 1);
    float *want = tern_alloc("test", bytes), *got = tern_alloc("test", bytes + sizeof *got);
    memcpy(src + 1, blocks->data, blocks->bytes);
    memcpy(want, values->data, bytes);
    memset(got, 0xee, bytes + sizeof *got);
    assert_true(decode(dtype, src + 1, values->elements, got));
    for (int64_t i = 0; i < values->elements; i++) {
        if (tern_f32_to_bits(got[i]) != tern_f32_to_bits(want[i]) &&
            !(isnan(got[i]) && isnan(want[i]))) {
            fail_msg("%s[%lld] is %.9g, expected %.9g", tern_dtype_name(dtype), (long long)i,
                     (double)got[i], (double)want[i]);
        }
    }
    assert_int_equal(tern_f32_to_bits(got[values->elements]), 0xeeeeeeeeu);
    tern_free(src);
    tern_free(want);
    tern_free(got);
}

static void test_golden_values(void **state)
{
    (void)state;
    struct tern_tensor_file *file;
    int types = 0;
    assert_int_equal(tern_safetensors_open(TERN_GOLDEN "/blocks.safetensors", &file), TERN_OK);
    for (int d = 0; d < TERN_DTYPE_COUNT; d++) {
        enum tern_dtype dtype = (enum tern_dtype)d;
        char name[64];
        if (tern_dtype_block_elements(dtype) == 1) {
            continue;
        }
        types++;
        snprintf(name, sizeof name, "%s.blocks", tern_dtype_name(dtype));
        const struct tern_stored_tensor *blocks = tern_tensor_file_find(file, name);
        snprintf(name, sizeof name, "%s.values", tern_dtype_name(dtype));
        const struct tern_stored_tensor *values = tern_tensor_file_find(file, name);
        assert_non_null(blocks);
        assert_non_null(values);
        assert_int_equal(blocks->shape[1], tern_dtype_bytes(dtype));
        assert_true(tern_blocks_can_decode(dtype));
        check_decode(decode_any, dtype, blocks, values);
        check_decode(tern_blocks_decode_generic, dtype, blocks, values);
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx2")) {
            check_decode(tern_blocks_decode_avx2, dtype, blocks, values);
        }
#endif
    }
    assert_int_equal(types, 13);
    assert_int_equal(tern_tensor_file_count(file), 2 * types);
    tern_tensor_file_close(file);
}

static void test_plain_types(void **state)
{
    (void)state;
    uint16_t half[67];
    double wide[67];
    float single[67], got[67];
    for (int i = 0; i < 67; i++) {
        half[i] = (uint16_t)(i * 977);
        wide[i] = 0.1 * i;
        single[i] = (float)i / 3;
    }
    tern_blocks_decode(TERN_F16, half, 67, got);
    for (int i = 0; i < 67; i++) {
        float want = tern_f16_to_f32(half[i]);
        assert_true(got[i] == want || (isnan(got[i]) && isnan(want)));
    }
    tern_blocks_decode(TERN_BF16, half, 67, got);
    for (int i = 0; i < 67; i++) {
        float want = tern_bf16_to_f32(half[i]);
        assert_true(got[i] == want || (isnan(got[i]) && isnan(want)));
    }
    tern_blocks_decode(TERN_F64, wide, 67, got);
    assert_true(got[66] == (float)wide[66]);
    tern_blocks_decode(TERN_F32, single, 67, got);
    assert_memory_equal(got, single, sizeof got);
    assert_false(tern_blocks_can_decode(TERN_I32));
    assert_false(tern_blocks_can_decode(TERN_F8_E4M3));
    assert_false(tern_blocks_decode_generic(TERN_U8, half, 1, got));
}

/* ---- encoding ---- */

enum {
    ROWS = 6,
    WIDTH = 1024
};

static const struct {
    enum tern_dtype dtype;
    double error; /* of normal values: root mean square, relative to theirs, at most */
} g_encoded[] = {
    {TERN_Q4_0, 0.085},  {TERN_Q5_0, 0.042},  {TERN_Q8_0, 0.0055},
    {TERN_Q4_K, 0.070},  {TERN_Q5_K, 0.035},  {TERN_Q6_K, 0.0175},
    {TERN_BF16, 0.0018}, {TERN_F16, 0.00025}, {TERN_F32, 0},
};

enum {
    ENCODED = sizeof g_encoded / sizeof *g_encoded
};

/* About normal, standard deviation 1 / 50: the sum of 12 uniform numbers. */
static void fill(float *x, int64_t count, uint32_t seed)
{
    for (int64_t i = 0; i < count; i++) {
        float sum = -6;
        for (int k = 0; k < 12; k++) {
            seed = seed * 1664525u + 1013904223u;
            sum += (float)(seed >> 8) * 0x1p-24f;
        }
        x[i] = sum / 50;
    }
}

/* Root of the weighted mean squared error, relative to the values'. */
static double relative_error(enum tern_dtype dtype,
                             const float *x,
                             const void *blocks,
                             const float *importance)
{
    static float back[ROWS * WIDTH];
    double error = 0, total = 0;
    tern_blocks_decode(dtype, blocks, ROWS * WIDTH, back);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        double w = importance != NULL ? (double)importance[i % WIDTH] : 1;
        double rest = (double)back[i] - (double)x[i];
        error += w * rest * rest;
        total += w * (double)x[i] * (double)x[i];
    }
    return sqrt(error / total);
}

static float g_x[ROWS * WIDTH], g_importance[WIDTH];
static unsigned char g_y[ROWS * WIDTH * 4 + 1], g_z[ROWS * WIDTH * 4];

static void test_encode_is_close(void **state)
{
    (void)state;
    fill(g_x, ROWS * WIDTH, 7);
    for (int i = 0; i < WIDTH; i++) {
        g_importance[i] = i % 7 == 0 ? 30.0f : 0.1f;
    }
    for (int e = 0; e < ENCODED; e++) {
        enum tern_dtype dtype = g_encoded[e].dtype;
        size_t bytes;
        assert_true(tern_blocks_can_encode(dtype));
        assert_true(tern_dtype_row_bytes(dtype, ROWS * WIDTH, &bytes));
        memset(g_y, 0xee, sizeof g_y);
        assert_int_equal(tern_blocks_encode(dtype, g_x, ROWS, WIDTH, NULL, g_y), TERN_OK);
        assert_int_equal(g_y[bytes], 0xee);
        double plain = relative_error(dtype, g_x, g_y, NULL);
        double plain_weighted = relative_error(dtype, g_x, g_y, g_importance);
        if (!(plain <= g_encoded[e].error) || plain < g_encoded[e].error / 2) {
            fail_msg("%s: error %g, expected at most %g, and not much less", tern_dtype_name(dtype),
                     plain, g_encoded[e].error);
        }
        assert_int_equal(tern_blocks_encode(dtype, g_x, ROWS, WIDTH, g_importance, g_z), TERN_OK);
        double weighted = relative_error(dtype, g_x, g_z, g_importance);
        if (tern_dtype_block_elements(dtype) > 1 && !(weighted < 0.97 * plain_weighted)) {
            fail_msg("%s: error %g with importance, %g without", tern_dtype_name(dtype), weighted,
                     plain_weighted);
        }
    }
}

/* Both levels give the same bits. */
static void test_encode_is_the_same_at_every_level(void **state)
{
    (void)state;
#if defined(__x86_64__)
    fill(g_x, ROWS * WIDTH, 11);
    for (int e = 0; e < ENCODED && __builtin_cpu_supports("avx2"); e++) {
        enum tern_dtype dtype = g_encoded[e].dtype;
        if (tern_dtype_block_elements(dtype) > 1) {
            size_t bytes;
            assert_true(tern_dtype_row_bytes(dtype, ROWS * WIDTH, &bytes));
            assert_true(tern_blocks_encode_generic(dtype, g_x, ROWS * WIDTH, NULL, g_y));
            assert_true(tern_blocks_encode_avx2(dtype, g_x, ROWS * WIDTH, NULL, g_z));
            assert_memory_equal(g_y, g_z, bytes);
        }
    }
    assert_false(tern_blocks_encode_generic(TERN_Q2_K, g_x, WIDTH, NULL, g_y));
#endif
}

/* Zeros, one value alone, all the same, tiny and huge: no NaN, and an error that the type explains. */
static void test_encode_odd_blocks(void **state)
{
    (void)state;
    static const float peaks[] = {0, 1e-45f, 1e-30f, 6e-5f, 1, -1, 3e4f, -3e4f, 1e30f, 3e38f};
    static float back[256], x[256], none[256];
    for (int e = 0; e < ENCODED; e++) {
        enum tern_dtype dtype = g_encoded[e].dtype;
        for (size_t p = 0; p < sizeof peaks / sizeof *peaks; p++) {
            for (int shape = 0; shape < 3; shape++) {
                for (int i = 0; i < 256; i++) {
                    x[i] = shape == 0 ? peaks[p] : shape == 1 && i % 32 == 3 ? peaks[p] : 0;
                    x[i] = shape == 2 ? peaks[p] * ((float)(i % 16) / 16) : x[i];
                }
                if (dtype == TERN_F16 && fabsf(peaks[p]) > 65504) {
                    continue;
                }
                assert_int_equal(tern_blocks_encode(dtype, x, 1, 256, NULL, g_y), TERN_OK);
                assert_int_equal(tern_blocks_encode(dtype, x, 1, 256, none, g_z), TERN_OK);
                tern_blocks_decode(dtype, g_z, 256, back);
                assert_true(isfinite(back[0]));
                tern_blocks_decode(dtype, g_y, 256, back);
                bool is_ordinary = fabsf(peaks[p]) > 0.5f && fabsf(peaks[p]) < 1e5f;
                for (int i = 0; i < 256; i++) {
                    float error = fabsf(back[i] - x[i]), limit = fabsf(peaks[p]) * 0.07f;
                    if (!isfinite(back[i]) || (is_ordinary && !(error <= limit))) {
                        fail_msg("%s: %g became %g (shape %d, largest %g)", tern_dtype_name(dtype),
                                 (double)x[i], (double)back[i], shape, (double)peaks[p]);
                    }
                }
            }
        }
    }
}

static void test_encode_refuses(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int e = 0; e < ENCODED; e++) {
        for (int b = 0; b < 3; b++) {
            fill(g_x, ROWS * WIDTH, 3);
            g_x[2 * 512 + 77] = bad[b];
            assert_int_equal(tern_blocks_encode(g_encoded[e].dtype, g_x, 3, 512, NULL, g_y),
                             TERN_ERR_NONFINITE);
            assert_contains(tern_detail(), "row 2, column 77: the value ");
            assert_contains(tern_detail(), "expected a finite number");
        }
    }
    fill(g_x, 512, 3);
    g_x[5] = 65520;
    assert_int_equal(tern_blocks_encode(TERN_F16, g_x, 1, 512, NULL, g_y), TERN_ERR_NONFINITE);
    assert_contains(tern_detail(), "the value 65520 cannot become f16");
    assert_int_equal(tern_blocks_encode(TERN_BF16, g_x, 1, 512, NULL, g_y), TERN_OK);
    assert_false(tern_blocks_can_encode(TERN_Q2_K));
    assert_false(tern_blocks_can_encode(TERN_I32));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_golden_values),     CHECKED(test_plain_types),
        CHECKED(test_encode_is_close),   CHECKED(test_encode_is_the_same_at_every_level),
        CHECKED(test_encode_odd_blocks), CHECKED(test_encode_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
