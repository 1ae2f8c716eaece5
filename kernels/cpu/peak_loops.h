/* peak_loops.h - what the arithmetic units alone reach: the yardstick of the other benches. */
#ifndef TERN_KERNELS_CPU_PEAK_LOOPS_H
#define TERN_KERNELS_CPU_PEAK_LOOPS_H

#include "kernels/cpu/cpu.h"

enum tern_peak_kind {
    TERN_PEAK_FMA_AVX2,
    TERN_PEAK_FMA_AVX512,
    TERN_PEAK_DOT_BF16,
    TERN_PEAK_DOT_I8,
    TERN_PEAK_COUNT
};

const char *tern_peak_name(enum tern_peak_kind kind);
bool tern_peak_can_run(enum tern_peak_kind kind);
/* Best rate of `rounds` runs on all threads of the device at once, in flop/s (a product and a sum
 * are two). */
double tern_peak_flops(struct tern_cpu_device *device, enum tern_peak_kind kind, int rounds);

#endif
