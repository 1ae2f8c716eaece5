/* open.h - the only place that knows all backends. */
#ifndef TERN_KERNELS_OPEN_H
#define TERN_KERNELS_OPEN_H

#include "kernels/ops.h"

/* Why a backend cannot run here; "" if it can. */
struct tern_backend_info {
    const char *name;
    char reason[256];
};

/* Opens the backend named by `name` ("auto", "ref", "cpu", "cuda") with `threads` compute threads (0: one a core of
 * this process's affinity mask). The CPU backend honours TERN_CPU_ISA. *out is owned: close with tern_device_close. */
TERN_MUST_CHECK tern_status tern_device_open(const char *name,
                                             int threads,
                                             struct tern_device **out);
/* Where the caller sits among the ranks of its host: on a GPU backend that decides which GPU is its own. */
struct tern_device_seat {
    int threads;
    int local_rank, local_size;
};
TERN_MUST_CHECK tern_status tern_device_open_at(const char *name,
                                                const struct tern_device_seat *seat,
                                                struct tern_device **out);
/* Whether the device computes from host memory: *out is then the address of `host` to its ops, which must only read
 * there. */
bool tern_device_borrow(struct tern_device *device, const void *host, struct tern_dptr *out);
void tern_device_close(struct tern_device *device);
/* Writes up to `capacity` rows; returns how many backends there are. */
int tern_backend_list(struct tern_backend_info *out, int capacity);
/* CPU features found ("avx2 avx512f avx512_bf16 ..."), and those that the open level uses. Static storage. */
const char *tern_cpu_features(void);
const char *tern_device_isa(const struct tern_device *device);
int tern_device_threads(const struct tern_device *device);
/* Arithmetic peak of the device for products computed in `compute`, flop/s: of a CPU measured now in some 30 ms, of a GPU
 * what its data sheet says; 0: not known. */
double tern_device_peak_flops(struct tern_device *device, enum tern_dtype compute);
/* The rate at which it reads memory, bytes/s: of a CPU measured now; 0: not known. */
double tern_device_read_rate(struct tern_device *device);

#endif
