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

/* Are the kernels compiled with access hooks (hooks.cc), or with other sanitizers? */
#ifdef CUSIM_NO_HOOKS
static const bool HAS_HOOKS = false;
#else
static const bool HAS_HOOKS = true;
#endif

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

uint64_t number_from(const char *name, uint64_t otherwise); /* of the environment */
int devices();                                              /* CUSIM_DEVICES */
size_t device_memory();                                     /* bytes of each */
cudaError_t set_error(cudaError_t error); /* remembers it for cudaGetLastError; returns it */
void count_live(const char *what, int change);
/* "kernel_name (file:line)" of a code address. */
std::string describe_code(const void *address);

/* ---- memory.cc ---- */

/* Device memory: one range of addresses, a part for each device, that only a running kernel can touch. The engine goes
 * through raw(), the same pages at another address. Shared memory lies behind it: one region for both. */
static const size_t DEVICE_SPAN =
    (size_t)8 << 30; /* far more than a device's memory: addresses are not reused soon */
static const size_t SHARED_SPAN = (size_t)64 << 20;
static const size_t REGION_BYTES = DEVICE_SPAN * DEVICES_MAX + SHARED_SPAN;
extern char *g_region; /* its start; mapped when the program or plugin is loaded */
static inline char *range_start()
{
    return g_region;
}
static inline char *range_end() /* of device memory; there shared memory starts */
{
    return g_region + DEVICE_SPAN * DEVICES_MAX;
}
static inline bool is_device_address(const void *p)
{
    return (size_t)((const char *)p - g_region) < DEVICE_SPAN * DEVICES_MAX;
}
void *raw(const void *p);
void open_device_memory();  /* for kernels */
void close_device_memory(); /* before the host goes on */
cudaError_t allocate(size_t bytes, int device, void **out);
void release(void *block);
bool is_allocated(const void *p); /* device memory, to the byte */
size_t free_memory(int device);
cudaError_t pin(void *block, size_t bytes, int device);
size_t pinned_bytes(const void *block);
bool unpin(void *block); /* false: it was not pinned */
/* What a report says of an address: "byte 64 of 256 bytes of device memory 3". */
std::string describe_address(const void *p);

/* ---- faults.cc ---- */

void catch_faults(); /* SIGSEGV on device memory, shared memory or a fiber's stack gets a report */
void catch_faults_here(); /* on this host thread also when the stack is a fiber's */

/* ---- fibers.cc ---- */

struct fiber {
    void *stack_pointer;
    const void *stack; /* its lowest address */
    size_t stack_bytes;
    void *shadow; /* AddressSanitizer's */
};
bool is_stack_guard(const void *p);
void fiber_here(int i); /* fiber i runs now */
extern char *g_own_stack, *g_stacks, *g_stacks_end;
static const size_t STACK_BYTES = HAS_HOOKS ? 64 << 10 : 256 << 10; /* other sanitizers take more */
static inline bool is_own_stack(const void *p)                      /* the running thread's */
{
    return (size_t)((const char *)p - g_own_stack) < STACK_BYTES;
}
/* Makes fiber i start at entry when it is next switched to. */
void fiber_prepare(fiber &it, int i, void (*entry)());
void fiber_switch(fiber &from, fiber &to);
void fiber_entered(fiber &host); /* first thing on a fiber; host: what fiber_switch began with */

static inline bool is_on_fiber() /* does the caller run on a fiber's stack? */
{
    char *here = (char *)__builtin_frame_address(0);
    return here >= g_stacks && here < g_stacks_end;
}

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
/* __syncwarp: what these lanes do from now on comes after what they did so far. */
void advance_warp(gathering &all);
bool is_on_kernel();             /* does one run? */
bool is_argument(const void *p); /* of the kernel that runs */
int current_thread();            /* its number in the block */
int current_lane();

/* ---- warp.cc ---- */

/* At a thread's end: copies that it never waited for. */
void end_copies(int thread);

/* ---- shared.cc ---- */

static inline bool is_shared_address(const void *p)
{
    return (size_t)((const char *)p - range_end()) < SHARED_SPAN;
}
std::string describe_shared(const void *p);

void use_dynamic_shared(size_t bytes); /* for the blocks that follow */
/* A block begins: nothing is in its shared memory. Returns its number among all blocks of the process. */
uint64_t begin_shared();

/* ---- streams.cc ---- */

/* By stream index: how many of its operations have happened before. */
using vector_clock = std::vector<uint32_t>;

/* A point in a stream's order: behind its position-th operation. */
struct moment {
    int stream;
    uint32_t position;
    vector_clock clock;
};

/* What the host sees of a copy to or from its pinned memory, once it has waited for it. */
struct host_effect {
    moment when;
    std::function<void()> finish;
    const char *start; /* the host memory */
    size_t bytes;
    bool is_download;
};

struct operation {
    const char *name;
    std::function<void()> start;         /* may be empty */
    std::function<cusim_step()> attempt; /* may be empty: nothing to do */
    std::vector<moment> after;           /* what must be done first, on other streams */
    const void *kernel;                  /* nullptr: it is something else */
    std::shared_ptr<host_effect> effect; /* on host memory; may be empty */
    bool is_started;
    uint32_t number; /* of all operations */
    vector_clock clock;
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
/* For cudaFree, which waits for the device, and for cudaDeviceSynchronize, from which the host may also conclude so. */
void drain_device(int device, bool is_to_learn, guard &lock);
CUstream_st *find_stream(cudaStream_t stream); /* nullptr is the device's own; unknown: nullptr */
CUstream_st *make_stream(int device, bool is_blocking);
void forget_stream(CUstream_st &stream); /* nothing is in it any more */
int current_device();

/* ---- copies.cc ---- */

void add_effect(const std::shared_ptr<host_effect> &effect);
/* The host has waited: what is covered by its clock has its effect now. */
void finish_effects(const vector_clock &host);
/* The same for all that touch this host memory, which is about to go. */
void finish_effects_on(const void *start, size_t bytes);
cudaError_t copy_async(void *to,
                       const void *from,
                       size_t bytes,
                       enum cudaMemcpyKind kind,
                       cudaStream_t stream,
                       guard &lock);
cudaError_t set_async(void *to, int value, size_t bytes, cudaStream_t stream);

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
