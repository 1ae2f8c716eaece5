/* cusim_target.cuh - the kernels' language (kernels/cuda/target.cuh) for g++ and the simulated CUDA. */
#ifndef TERN_TESTS_CUSIM_TARGET_CUH
#define TERN_TESTS_CUSIM_TARGET_CUH

#include <cuda_runtime.h>

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define TERN_UNROLL
#define TERN_DEVICE      static inline
#define TERN_HOST_DEVICE static inline

/* ---- where a thread is ---- */

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

/* One object, so that the access hooks know it as a whole. */
struct cusim_place {
    uint3 thread, block;
    dim3 block_size, grid_size;
};
extern cusim_place cusim_here;
#define threadIdx (cusim_here.thread)
#define blockIdx  (cusim_here.block)
#define blockDim  (cusim_here.block_size)
#define gridDim   (cusim_here.grid_size)
static const int warpSize = 32;

/* ---- shared memory ---- */

void *cusim_shared(const void *tag, size_t bytes, const char *name);
void *cusim_dynamic_shared();

/* Each variable is a place of its own in the engine's arena, found by the address of a tag that every template instance
 * has for itself. */
#define TERN_SHARED(type, name, dims) \
    static char name##_tag; \
    auto &name = \
        *reinterpret_cast<type(*) dims>(cusim_shared(&name##_tag, sizeof(type dims), #name))

#define TERN_DYNAMIC_SHARED(type, name) \
    type *name = reinterpret_cast<type *>(cusim_dynamic_shared())

/* ---- barriers, votes, shuffles: the place of the call is what threads must agree about ---- */

struct cusim_site {
    const char *file;
    int line;
};
/* The last parameters of what a kernel calls; the defaults are those of the calling line. */
#define CUSIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

enum cusim_vote {
    CUSIM_PLAIN,
    CUSIM_COUNT,
    CUSIM_AND,
    CUSIM_OR
};
int cusim_barrier(cusim_vote vote, int predicate, cusim_site site);

static inline void __syncthreads(CUSIM_SITE)
{
    cusim_barrier(CUSIM_PLAIN, 0, {file, line});
}

static inline int __syncthreads_count(int predicate, CUSIM_SITE)
{
    return cusim_barrier(CUSIM_COUNT, predicate, {file, line});
}

static inline int __syncthreads_and(int predicate, CUSIM_SITE)
{
    return cusim_barrier(CUSIM_AND, predicate, {file, line});
}

static inline int __syncthreads_or(int predicate, CUSIM_SITE)
{
    return cusim_barrier(CUSIM_OR, predicate, {file, line});
}

void cusim_syncwarp(unsigned mask, cusim_site site);

static inline void __syncwarp(unsigned mask = 0xffffffffu, CUSIM_SITE)
{
    cusim_syncwarp(mask, {file, line});
}

unsigned cusim_ballot(unsigned mask, int predicate, cusim_site site);

static inline unsigned __ballot_sync(unsigned mask, int predicate, CUSIM_SITE)
{
    return cusim_ballot(mask, predicate, {file, line});
}

static inline int __any_sync(unsigned mask, int predicate, CUSIM_SITE)
{
    return cusim_ballot(mask, predicate, {file, line}) != 0;
}

static inline int __all_sync(unsigned mask, int predicate, CUSIM_SITE)
{
    return cusim_ballot(mask, !predicate, {file, line}) == 0;
}

enum cusim_shuffle_kind {
    CUSIM_INDEX,
    CUSIM_XOR,
    CUSIM_UP,
    CUSIM_DOWN
};
uint64_t cusim_shuffle(cusim_shuffle_kind kind,
                       unsigned mask,
                       uint64_t bits,
                       int lane,
                       int width,
                       cusim_site site);

template <typename T>
static inline T cusim_shuffle_as(cusim_shuffle_kind kind,
                                 unsigned mask,
                                 T value,
                                 int lane,
                                 int width,
                                 cusim_site site)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = cusim_shuffle(kind, mask, bits, lane, width, site);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, CUSIM_SITE)
{
    return cusim_shuffle_as(CUSIM_INDEX, mask, value, lane, width, {file, line});
}

template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane, int width = 32, CUSIM_SITE)
{
    return cusim_shuffle_as(CUSIM_XOR, mask, value, lane, width, {file, line});
}

template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, CUSIM_SITE)
{
    return cusim_shuffle_as(CUSIM_UP, mask, value, (int)by, width, {file, line});
}

template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, CUSIM_SITE)
{
    return cusim_shuffle_as(CUSIM_DOWN, mask, value, (int)by, width, {file, line});
}

/* ---- arithmetic ---- */

/* Macros, because the C library's <math.h> declares functions of these names. */
#define __expf  expf
#define __logf  logf
#define __log2f log2f
#define __powf  powf
#define __sinf  sinf
#define __cosf  cosf

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static inline float __fdividef(float x, float y)
{
    return x / y;
}

static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}

static inline float __fmul_rn(float x, float y)
{
    return x * y;
}

static inline float __fadd_rn(float x, float y)
{
    return x + y;
}

static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}

template <typename To, typename From> static inline To cusim_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits in another type");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

static inline unsigned __float_as_uint(float x)
{
    return cusim_bits<unsigned>(x);
}

static inline int __float_as_int(float x)
{
    return cusim_bits<int>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return cusim_bits<float>(x);
}

static inline float __int_as_float(int x)
{
    return cusim_bits<float>(x);
}

static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}

template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

/* ---- launching ---- */

/* A kernel with its arguments, as the engine keeps it: in a stream, and in a graph as long as that lives. */
struct cusim_launch {
    void (*run)(void *call); /* one thread of the kernel */
    void (*drop)(void *call);
    void *call;
    size_t call_bytes;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
};
void cusim_launch_kernel(const cusim_launch &launch, cudaStream_t stream);
void cusim_check_argument(const void *kernel, int index, const void *pointer);

template <typename... Parameters> struct cusim_call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
};

template <typename... Parameters> static void cusim_call_run(void *call)
{
    auto *it = static_cast<cusim_call<Parameters...> *>(call);
    std::apply(it->kernel, it->arguments);
}

template <typename... Parameters> static void cusim_call_drop(void *call)
{
    delete static_cast<cusim_call<Parameters...> *>(call);
}

template <typename T> static inline void cusim_argument(const void *, int, const T &)
{
}

template <typename T> static inline void cusim_argument(const void *kernel, int index, T *const &p)
{
    cusim_check_argument(kernel, index, p);
}

template <typename... Parameters, typename... Arguments>
static inline void tern_launch(void (*kernel)(Parameters...),
                               dim3 grid,
                               dim3 block,
                               size_t shared_bytes,
                               cudaStream_t stream,
                               Arguments... arguments)
{
    const void *address = reinterpret_cast<const void *>(kernel);
    auto *call = new cusim_call<Parameters...>{
        kernel, std::tuple<Parameters...>(static_cast<Parameters>(arguments)...)};
    int index = 0;
    std::apply([&](const auto &...each) { (cusim_argument(address, ++index, each), ...); },
               call->arguments);
    cusim_launch_kernel({cusim_call_run<Parameters...>, cusim_call_drop<Parameters...>, call,
                         sizeof *call, address, grid, block, shared_bytes},
                        stream);
}

template <typename... Parameters>
static inline cudaError_t tern_allow_shared(void (*kernel)(Parameters...), size_t bytes)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

#endif
