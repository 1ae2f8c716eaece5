/* cuda_attention_test.c - which attention tiles fit which GPU, and the order of blocks. */
#include "kernels/cuda/attention_plan.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum {
    KIB = 1024,
    SM_80 = 163 * KIB, /* shared memory of a block, by compute capability */
    SM_86 = 99 * KIB,
    SM_90 = 227 * KIB,
    PASSES = 3
};

static const int64_t g_widths[] = {64, 80, 96, 128, 256};
enum {
    WIDTHS = sizeof g_widths / sizeof g_widths[0]
};

static const struct tern_attention_tile *pick(int pass, int64_t width, size_t shared_bytes_max)
{
    return tern_attention_pick((enum tern_attention_pass)pass, width, shared_bytes_max);
}

static void test_fits(void **state)
{
    (void)state;
    static const size_t limits[] = {SM_80, SM_86, SM_90};
    for (int i = 0; i < WIDTHS * PASSES; i++) {
        for (size_t j = 0; j < sizeof limits / sizeof limits[0]; j++) {
            const struct tern_attention_tile *tile =
                pick(i % PASSES, g_widths[i / PASSES], limits[j]);
            if (tile == NULL) {
                fail_msg("pass %d, width %d: nothing fits %zu bytes", i % PASSES,
                         (int)g_widths[i / PASSES], limits[j]);
            }
            assert_int_equal(tile->pass, i % PASSES);
            assert_int_equal(tile->width, g_widths[i / PASSES]);
            assert_true(tern_attention_shared_bytes(tile) <= limits[j]);
        }
    }
}

/* A multiprocessor of an H100 has 1 KiB more than a block may have, and loses 1 KiB to every block. */
static void test_two_blocks_on_sm_90(void **state)
{
    (void)state;
    for (int i = 0; i < WIDTHS * PASSES; i++) {
        const struct tern_attention_tile *tile = pick(i % PASSES, g_widths[i / PASSES], SM_90);
        assert_non_null(tile);
        assert_true(2 * (tern_attention_shared_bytes(tile) + KIB) <= SM_90 + KIB);
    }
}

static void test_smaller_tiles(void **state)
{
    (void)state;
    const struct tern_attention_tile *large = pick(TERN_ATTENTION_DQ, 128, SM_90);
    const struct tern_attention_tile *small = pick(TERN_ATTENTION_DQ, 128, SM_80);
    assert_non_null(large);
    assert_non_null(small);
    assert_int_equal(tern_attention_block_rows(large), 128);
    assert_int_equal(tern_attention_block_rows(small), 64); /* two of these fit */
    large = pick(TERN_ATTENTION_DKV, 256, SM_90);
    small = pick(TERN_ATTENTION_DKV, 256, SM_86);
    assert_non_null(large);
    assert_non_null(small);
    assert_true(tern_attention_shared_bytes(small) < tern_attention_shared_bytes(large));
}

static void test_nothing(void **state)
{
    (void)state;
    assert_null(pick(TERN_ATTENTION_FWD, 72, SM_90));
    assert_null(pick(TERN_ATTENTION_FWD, 512, SM_90));
    assert_null(pick(TERN_ATTENTION_FWD, 0, SM_90));
    assert_null(pick(TERN_ATTENTION_FWD, 128, 48 * KIB));
    const struct tern_attention_tile *tile = pick(TERN_ATTENTION_FWD, 128, SM_86);
    assert_non_null(tile);
    assert_null(pick(TERN_ATTENTION_FWD, 128, tern_attention_shared_bytes(tile) - 1));
    assert_non_null(pick(TERN_ATTENTION_FWD, 128, tern_attention_shared_bytes(tile)));
}

static void test_section(void **state)
{
    (void)state;
    const int64_t mib = 1 << 20;
    assert_int_equal(tern_attention_section(96, 4, 2 * mib), 32); /* 8 groups in 16 MiB */
    assert_int_equal(tern_attention_section(96, 4, 64 * mib), 4); /* one group at least */
    assert_int_equal(tern_attention_section(96, 4, 1), 96);       /* everything */
    assert_int_equal(tern_attention_section(28, 4, 2 * mib), 28);
    assert_int_equal(tern_attention_section(1, 1, 64 * mib), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),          cmocka_unit_test(test_two_blocks_on_sm_90),
        cmocka_unit_test(test_smaller_tiles), cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_section),
    };
    return cmocka_run_group_tests_name("kernels_cuda_attention", tests, NULL, NULL);
}
