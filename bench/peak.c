/* peak.c - prints what this machine's arithmetic units reach, by kind and thread count. */
#include "kernels/cpu/peak_loops.h"

#include <stdio.h>

int main(void)
{
    int all = 0;
    struct tern_device *device;
    if (tern_cpu_open(0, &device) == TERN_OK) {
        all = tern_cpu_device_of(device)->threads;
        device->ops->device->close(device);
    }
    printf("level found: %s, bf16 dot product taken as fast: %s\n",
           tern_cpu_level_name(tern_cpu_level_found()), tern_cpu_bf16_dot_is_fast() ? "yes" : "no");
    for (int threads = 1; threads <= all;
         threads = threads < all && threads * 2 > all ? all : threads * 2) {
        tern_status status = tern_cpu_open(threads, &device);
        if (status != TERN_OK) {
            fprintf(stderr, "peak: %s\n", tern_detail());
            return tern_status_exit_code(status);
        }
        for (int kind = 0; kind < TERN_PEAK_COUNT; kind++) {
            if (tern_peak_can_run((enum tern_peak_kind)kind)) {
                double rate =
                    tern_peak_flops(tern_cpu_device_of(device), (enum tern_peak_kind)kind, 10);
                printf("%2d thread(s)  %s  %8.1f Gflop/s\n", threads,
                       tern_peak_name((enum tern_peak_kind)kind), rate * 1e-9);
            }
        }
        device->ops->device->close(device);
    }
    return 0;
}
