/* sim.h - inside the engine: what its files share. Everything is under one lock, taken by the API functions. */
#ifndef TERN_TESTS_CUSIM_SIM_H
#define TERN_TESTS_CUSIM_SIM_H

#include "kernels/cuda/mma.cuh"
#include "tests/cusim/engine.h"

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cusim
{

enum {
    WARP = 32,
    THREADS_MAX = 1024,
    WARPS_MAX = THREADS_MAX / WARP,
    DEVICES_MAX = 8,
    SHARED_DEFAULT_BYTES = 48 << 10,
    SHARED_OPTIN_BYTES = 227 << 10, /* as an H100 */
    MULTIPROCESSORS = 4, /* few, so that grids sized by it have blocks with several turns */
};

/* ---- report.cc ---- */

struct random {
    uint64_t state;
    uint64_t next();
    uint64_t below(uint64_t n);
};
extern random g_random;
/* Recursive only for the small questions of engine.h, which stand-ins ask inside and outside of their operations. */
extern std::recursive_mutex g_lock;
using guard = std::unique_lock<std::recursive_mutex>;

int devices();                            /* CUSIM_DEVICES */
size_t device_memory();                   /* bytes of each */
cudaError_t set_error(cudaError_t error); /* remembers it for cudaGetLastError; returns it */
void count_live(const char *what, int change);
/* "kernel_name (file:line)" of a code address. */
std::string describe_code(const void *address);

/* ---- memory.cc ---- */

/* Device memory: one range of addresses, a part for each device, that only a running kernel can touch. The engine goes
 * through raw(), the same pages at another address. */
char *range_start();
char *range_end();
static inline bool is_device_address(const void *p)
{
    return (const char *)p >= range_start() && (const char *)p < range_end();
}
void *raw(const void *p);
void open_device_memory();  /* for kernels */
void close_device_memory(); /* before the host goes on */
cudaError_t allocate(size_t bytes, int device, void **out);
void release(void *block);
size_t free_memory(int device);
cudaError_t pin(void *block, size_t bytes, int device);
bool unpin(void *block); /* false: it was not pinned */
/* What a report says of an address: "byte 64 of 256 bytes of device memory 3". */
std::string describe_address(const void *p);

/* ---- fibers.cc ---- */

struct fiber {
    void *stack_pointer;
};
/* Makes fiber i start at entry when it is next switched to. */
void fiber_prepare(fiber &it, int i, void (*entry)());
void fiber_switch(fiber &from, fiber &to);
/* The host thread's own stack, around the fibers; and a stack for signal handlers. */
void fiber_host_prepare();
bool is_on_fiber(); /* does the caller run on a fiber's stack? */

/* ---- block.cc ---- */

struct kernel_run {
    cusim_launch launch;
    uint64_t seed; /* of this run's schedule */
};
void run_kernel(const kernel_run &run);
/* A sentence about the thread that runs: "kernel f, block (0,0,0), thread (3,0,0)"; empty on the host. */
std::string describe_place();
/* For warp.cc: waits until all living lanes of the mask have come to the same call; then `act` runs once, over all. */
struct post {
    const char *what; /* "__shfl_sync" */
    unsigned mask;
    cusim_site site;
    void *data;
};
struct gathering {
    unsigned lanes; /* who takes part */
    void *data[WARP];
    int first_thread; /* lane 0's number in the block */
};
void gather(const post &mine, void (*act)(gathering &all));
int current_thread(); /* its number in the block */
int current_lane();

/* ---- warp.cc ---- */

void forget_copies(); /* at the start of a block: cp.async of the last one */
/* At a thread's end: copies that it never waited for. */
void end_copies(int thread);

/* ---- shared.cc ---- */

void use_dynamic_shared(size_t bytes); /* for the blocks that follow */
void begin_shared();                   /* a block begins: nothing is in its shared memory */

/* ---- streams.cc ---- */

/* By stream index: how many of its operations have happened before. */
using vector_clock = std::vector<uint32_t>;

/* A point in a stream's order: behind its position-th operation. */
struct moment {
    int stream;
    uint32_t position;
    vector_clock clock;
};

struct operation {
    const char *name;
    std::function<void()> start;         /* may be empty */
    std::function<cusim_step()> attempt; /* may be empty: nothing to do */
    std::vector<moment> after;           /* what must be done first, on other streams */
    bool is_started;
};

/* Makes the operation anew for each time that it runs: once, or once a replay of the graph that captured it. */
using recipe = std::function<operation()>;

/* Every API function holds one of these while it runs. */
struct api_call {
    guard lock{g_lock};
    ~api_call()
    {
        close_device_memory();
    }
};

cudaError_t enqueue(cudaStream_t stream, const recipe &make);
moment push(CUstream_st &stream, operation op); /* not captured, at once in the queue */
moment last_moment(CUstream_st &stream);
void await(const moment &when, guard &lock); /* the host waits; it knows then that this is done */
bool is_done(const moment &when);            /* tries to bring it about, a little */
cudaError_t drain_device(int device, guard &lock);
CUstream_st *find_stream(cudaStream_t stream); /* nullptr is the device's own; unknown: nullptr */
CUstream_st *make_stream(int device, bool is_blocking);
void forget_stream(CUstream_st &stream); /* nothing is in it any more */
int current_device();

/* ---- graph.cc ---- */

struct capture;
/* For streams that capture: adds the recipe to the graph. */
cudaError_t capture_operation(CUstream_st &stream, const recipe &make);
cudaError_t capture_record(CUstream_st &stream, CUevent_st &event);
cudaError_t capture_wait(CUstream_st &stream, CUevent_st &event);
/* cudaSuccess, or the error of an API function that must not be called now; the capture is then lost. */
cudaError_t check_not_capturing(CUstream_st *stream);
cudaError_t check_no_capture_of_this_thread();

} // namespace cusim

struct CUstream_st {
    int index;
    int device;
    bool is_blocking; /* ordered with the legacy default stream */
    std::deque<cusim::operation> queue;
    uint32_t enqueued, done; /* operations so far */
    cusim::vector_clock clock;
    std::shared_ptr<cusim::capture> capture;
    int lane; /* in the capture */
};

struct CUevent_st {
    unsigned flags;
    bool is_recorded;
    cusim::moment when;
    std::shared_ptr<double> time_ms;
    /* of a record in a capture: the node of each lane that lies before it */
    std::weak_ptr<cusim::capture> capture;
    std::vector<int> nodes;
};

#endif
