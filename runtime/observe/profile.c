/* profile.c - the op profile as a table. */
#include "runtime/observe/profile.h"

#include "kernels/ops.h"
#include "runtime/base/log.h"

#include <stdio.h>
#include <stdlib.h>

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct tern_op_profile *)a)->seconds;
    double y = ((const struct tern_op_profile *)b)->seconds;
    return (x < y) - (x > y);
}

void tern_profile_print(double peak_flops)
{
    struct tern_op_profile ops[TERN_OP_COUNT];
    tern_op_profile_read(ops);
    qsort(ops, TERN_OP_COUNT, sizeof ops[0], by_seconds);
    double total = 0;
    for (int i = 0; i < TERN_OP_COUNT; i++) {
        total += ops[i].seconds;
    }
    tern_log_line("%-16s %9s %10s %7s %9s %8s %6s", "op", "calls", "seconds", "share", "GFLOP/s",
                  "GB/s", "peak");
    for (int i = 0; i < TERN_OP_COUNT && ops[i].calls > 0; i++) {
        double rate = ops[i].flops / ops[i].seconds;
        char share[16] = "";
        if (peak_flops > 0) {
            snprintf(share, sizeof share, "%.1f%%", 100 * rate / peak_flops);
        }
        tern_log_line("%-16s %9lld %10.3f %6.1f%% %9.1f %8.2f %6s", ops[i].name,
                      (long long)ops[i].calls, ops[i].seconds, 100 * ops[i].seconds / total,
                      rate * 1e-9, ops[i].bytes / ops[i].seconds * 1e-9, share);
    }
}
