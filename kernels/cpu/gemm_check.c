/* gemm_check.c - does the tile unit compute what the plain loop does? Asked once a process, before
 * AMX is used. */
#include "kernels/cpu/gemm.h"
#include "runtime/base/log.h"

#include <math.h>
#include <stdatomic.h>

#if defined(__x86_64__)

enum {
    SIDE = 32,
    LENGTH = 96
};

/* Small integers: every product and sum is exact in bf16 and fp32, so the two must agree to the
 * bit. */
static float check_value(int i, int p)
{
    return (float)((i * 7 + p * 13) % 17 - 8);
}

static bool amx_agrees(void)
{
    static const int lengths[] = {32, LENGTH, LENGTH - 5};
    _Alignas(64) tern_bf16 a_panel[SIDE * LENGTH], b_panel[SIDE * LENGTH];
    _Alignas(64) tern_bf16 a[SIDE * LENGTH], b[SIDE * LENGTH];
    float c[SIDE * SIDE];
    for (int i = 0; i < SIDE * LENGTH; i++) {
        a[i] = tern_f32_to_bf16(check_value(i / LENGTH, i % LENGTH));
        b[i] = tern_f32_to_bf16(check_value(i % SIDE + 3, i / SIDE));
    }
    for (int t = 0; t < 3; t++) {
        int k = lengths[t];
        struct tern_gemm_slice slice = {.src = a,
                                        .dtype = TERN_BF16,
                                        .lane_stride = LENGTH,
                                        .k_stride = 1,
                                        .lanes = SIDE,
                                        .k = k};
        tern_gemm_amx.pack_a(&slice, SIDE, a_panel);
        slice.src = b;
        slice.lane_stride = 1;
        slice.k_stride = SIDE;
        tern_gemm_amx.pack_b(&slice, SIDE, b_panel);
        tern_gemm_amx.tile((k + 31) / 32 * 32, a_panel, b_panel, c, SIDE, SIDE, SIDE, false);
        for (int i = 0; i < SIDE * SIDE; i++) {
            float sum = 0;
            for (int p = 0; p < k; p++) {
                sum += check_value(i / SIDE, p) * check_value(i % SIDE + 3, p);
            }
            if (!(c[i] == sum)) {
                tern_log_warn("cpu: AMX computes %g where the plain loop computes %g (row %d, "
                              "column %d, k %d): AMX is not used",
                              (double)c[i], (double)sum, i / SIDE, i % SIDE, k);
                return false;
            }
        }
    }
    return true;
}

enum tern_cpu_level tern_cpu_gemm_level_checked(enum tern_cpu_level level)
{
    static atomic_int kept; /* 0: not checked yet, 1: disagrees, 2: agrees */
    if (level < TERN_CPU_AMX) {
        return level;
    }
    int value = atomic_load_explicit(&kept, memory_order_relaxed);
    if (value == 0) {
        value = amx_agrees() ? 2 : 1;
        atomic_store_explicit(&kept, value, memory_order_relaxed);
    }
    return value == 2 ? level : TERN_CPU_AVX512_VNNI;
}

#else

enum tern_cpu_level tern_cpu_gemm_level_checked(enum tern_cpu_level level)
{
    return level;
}

#endif
