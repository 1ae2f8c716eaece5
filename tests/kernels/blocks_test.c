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

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_golden_values),
        CHECKED(test_plain_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
