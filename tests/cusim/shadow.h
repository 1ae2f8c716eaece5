/* shadow.h - who touched which memory when. Behind each two bytes of device and shared memory stands a cell with its last
 * write and its reads since then; an access that nothing orders against one of them is a race, whether or not this run
 * of the program was harmed by it.
 *
 * A record is one number. From the low end: the thread (or several, or none), how many __syncwarp and how many
 * __syncthreads its block had passed, and the run: in device memory the operation and the block, in shared memory the
 * number of the block of all blocks of the process, so that an old block's records need no clearing. */
#ifndef TERN_TESTS_CUSIM_SHADOW_H
#define TERN_TESTS_CUSIM_SHADOW_H

#include "tests/cusim/sim.h"

namespace cusim
{

using record = uint64_t;

struct cell {
    record write, read;
};

enum {
    CELL_BYTES = 2,
    THREAD_BITS = 11,
    WARP_EPOCH_BITS = 6,
    BARRIER_BITS = 16,
    BLOCK_BITS = 8,
    OPERATION_BITS = 23,
    WARP_EPOCH_AT = THREAD_BITS,
    BARRIER_AT = WARP_EPOCH_AT + WARP_EPOCH_BITS,
    RUN_AT = BARRIER_AT + BARRIER_BITS,
    OPERATION_AT = RUN_AT + BLOCK_BITS,
    WARP_EPOCH_MAX = (1 << WARP_EPOCH_BITS) - 1,
    THREAD_MASK = (1 << THREAD_BITS) - 1,

    /* instead of a thread's number */
    LANES_OF = THREADS_MAX,       /* + w: several lanes of warp w */
    WARPS = LANES_OF + WARPS_MAX, /* threads of several warps */
    IN_FLIGHT,                    /* cp.async is writing it */
    WHOLE_OPERATION,              /* no kernel: a copy, a memset, a library's operation */

    BLOCKS = (1 << BLOCK_BITS) - 1, /* instead of a block's number: several */
    SETS = 1 << 16,                 /* operation numbers that stand for several readers */
    SET_FIRST = (1 << OPERATION_BITS) - SETS,
};

/* Records of memory that nobody wrote. Nothing is known at first, so that an allocation costs nothing: is it device
 * memory, then the list of allocations knows whether it is there. */
static const record NOT_KNOWN = 0, NOT_WRITTEN = 1;

static inline uint32_t operation_of(record it)
{
    return (uint32_t)(it >> OPERATION_AT);
}

extern cell *g_cells; /* of the region's first two bytes */

static inline cell *cell_of(const void *p)
{
    return g_cells + (size_t)((const char *)p - g_region) / CELL_BYTES;
}

/* The operation that runs. */
struct running {
    uint32_t number;
    const vector_clock *clock;
    char *memory; /* of its GPU: DEVICE_SPAN from here */
};
extern running g_running;

void shadow_map(size_t bytes); /* for the region */
/* shared.cc: what is there to be used, not written yet. */
void shadow_allocate(char *start, size_t bytes);
/* memory.cc: whole pages that are not there any more. */
void shadow_release(char *start, size_t bytes);
/* A cell that nobody wrote: is there memory at all? */
bool is_there(const cell *at);

/* streams.cc: a number for each operation that is enqueued, and what a report says of it. */
uint32_t shadow_operation(int stream, uint32_t position, const char *name, const void *kernel);
void shadow_begin(uint32_t operation, const vector_clock &clock, int device);
/* Has it, or have all of that set of operations, happened before the one that runs? */
bool is_before_asked(uint32_t operation);
extern uint32_t g_last_before; /* the last answer that was yes */
static inline bool is_before(uint32_t operation)
{
    return operation == g_last_before || is_before_asked(operation);
}
uint32_t add_reader(uint32_t operation_or_set, uint32_t reader);
std::string describe_operation(uint32_t operation);

/* Operations that are no kernels: the whole of a range, checked and marked. what: "cudaMemcpyAsync". */
void shadow_read(const char *what, const cusim_range &range);
void shadow_write(const char *what, const cusim_range &range);
/* A copy inside device memory: what was not written stays so. */
void shadow_copy(const char *what, char *to, const char *from, size_t bytes);

/* hooks.cc: a kernel's own accesses. */
void shadow_here(uint32_t block, uint64_t block_of_all);                     /* a block begins */
void shadow_thread(int thread, unsigned warp_epoch, unsigned barrier_epoch); /* who runs now */
void check_read(const void *p, size_t bytes, const void *code);
void check_write(const void *p, size_t bytes, const void *code);
/* cp.async: the target's bytes are on their way; and have come. */
void check_in_flight(void *p, size_t bytes, const void *code);
void check_landed(void *p, size_t bytes);
/* ldmatrix: the row is read for the whole warp. */
void check_warp_read(const void *p, size_t bytes, const void *code);

/* The same as cusim_fail, with the source line of `code`. */
void fail_at(const void *code, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

} // namespace cusim

#endif
