/* cpu_isa.c - TERN_CPU_ISA lowers the level and names what it does not know; the variant follows
 * shape and level. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/gemm.h"
#include "runtime/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static void test_every_level_is_an_upper_bound(void **state)
{
    (void)state;
    enum tern_cpu_level found = tern_cpu_level_found();
    print_message("level found: %s\n", tern_cpu_level_name(found));
    for (int i = 0; i < TERN_CPU_LEVEL_COUNT; i++) {
        enum tern_cpu_level level;
        setenv("TERN_CPU_ISA", tern_cpu_level_name((enum tern_cpu_level)i), 1);
        assert_int_equal(tern_cpu_level_allowed(&level), TERN_OK);
        assert_int_equal(level, i < (int)found ? i : (int)found);
    }
    unsetenv("TERN_CPU_ISA");
}

static void test_unknown_level_is_named(void **state)
{
    (void)state;
    static const char *const wrong[] = {"avx", "AVX2", "avx512 ", "avx10", "1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tern_device *device;
        int64_t live = tern_mem_stats().live_blocks;
        setenv("TERN_CPU_ISA", wrong[i], 1);
        assert_int_equal(tern_cpu_open(1, &device), TERN_ERR_USAGE);
        assert_null(device);
        assert_non_null(strstr(tern_detail(), wrong[i]));
        for (int level = 0; level < TERN_CPU_LEVEL_COUNT; level++) {
            assert_non_null(strstr(tern_detail(), tern_cpu_level_name((enum tern_cpu_level)level)));
        }
        assert_int_equal(tern_mem_stats().live_blocks, live);
    }
    unsetenv("TERN_CPU_ISA");
}

static void test_open_takes_the_forced_level(void **state)
{
    (void)state;
    struct tern_device *device;
    int64_t live = tern_mem_stats().live_blocks;
    setenv("TERN_CPU_ISA", "generic", 1);
    assert_int_equal(tern_cpu_open(3, &device), TERN_OK);
    assert_int_equal(tern_cpu_device_of(device)->level, TERN_CPU_GENERIC);
    assert_int_equal(tern_cpu_device_of(device)->threads, 3);
    device->ops->device->close(device);
    unsetenv("TERN_CPU_ISA");
    assert_int_equal(tern_cpu_open(-1, &device), TERN_ERR_ARGUMENT);
    assert_int_equal(tern_mem_stats().live_blocks, live);
}

struct pick {
    int64_t m;
    enum tern_dtype b, compute;
    enum tern_cpu_level level;
    bool dot_is_fast;
    enum tern_gemm_variant want;
};

static void test_pick_variant(void **state)
{
    (void)state;
    static const struct pick picks[] = {
        {1024, TERN_F32, TERN_F32, TERN_CPU_GENERIC, true, TERN_GEMM_GENERIC},
        {1024, TERN_F32, TERN_F32, TERN_CPU_AVX2, true, TERN_GEMM_AVX2},
        {1024, TERN_F32, TERN_F32, TERN_CPU_AVX512, true, TERN_GEMM_AVX512},
        {1024, TERN_BF16, TERN_F32, TERN_CPU_AMX, true, TERN_GEMM_AVX512},
        {1024, TERN_BF16, TERN_BF16, TERN_CPU_AVX512, true, TERN_GEMM_AVX512},
        {1024, TERN_BF16, TERN_BF16, TERN_CPU_AVX512_BF16, true, TERN_GEMM_AVX512_DOT},
        {1024, TERN_BF16, TERN_BF16, TERN_CPU_AVX512_BF16, false, TERN_GEMM_AVX512},
        {1024, TERN_F32, TERN_BF16, TERN_CPU_AVX512_VNNI, true, TERN_GEMM_AVX512_DOT},
        {1024, TERN_F32, TERN_BF16, TERN_CPU_AMX, false, TERN_GEMM_AMX},
        {1024, TERN_BF16, TERN_BF16, TERN_CPU_AVX2, true, TERN_GEMM_AVX2},
        {1, TERN_BF16, TERN_BF16, TERN_CPU_AMX, true, TERN_GEMM_FEW_AVX512},
        {8, TERN_F32, TERN_F32, TERN_CPU_AVX2, true, TERN_GEMM_FEW_AVX2},
        {8, TERN_F32, TERN_F32, TERN_CPU_GENERIC, true, TERN_GEMM_FEW_GENERIC},
        {9, TERN_F32, TERN_F32, TERN_CPU_AVX512, true, TERN_GEMM_AVX512},
        /* f32 weights that must be rounded first */
        {4, TERN_F32, TERN_BF16, TERN_CPU_AVX512, true, TERN_GEMM_AVX512},
    };
    for (size_t i = 0; i < sizeof picks / sizeof picks[0]; i++) {
        const struct pick *p = &picks[i];
        struct tern_gemm_args args = {
            .m = p->m, .n = 768, .k = 768, .b_dtype = p->b, .compute = p->compute};
        enum tern_gemm_variant got = tern_gemm_pick_variant(&args, p->level, p->dot_is_fast);
        print_message("pick %zu: %s\n", i, tern_gemm_variant_name(got));
        assert_int_equal(got, p->want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_level_is_an_upper_bound),
        cmocka_unit_test(test_unknown_level_is_named),
        cmocka_unit_test(test_open_takes_the_forced_level),
        cmocka_unit_test(test_pick_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
