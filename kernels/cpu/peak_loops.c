/* peak_loops.c - register-only loops: 24 independent chains of fused multiply-adds, bf16 or int8 dot
 * products; and a loop that only reads memory. */
#include "kernels/cpu/peak_loops.h"

#include "runtime/base/mem.h"

#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    enum tern_cpu_level level;
    double flops; /* of one turn of the loop */
} g_kinds[TERN_PEAK_COUNT] = {
    [TERN_PEAK_FMA_AVX2] = {"fp32 fma, 256 bit", TERN_CPU_AVX2, 12 * 8 * 2},
    [TERN_PEAK_FMA_AVX512] = {"fp32 fma, 512 bit", TERN_CPU_AVX512, 24 * 16 * 2},
    [TERN_PEAK_DOT_BF16] = {"bf16 dot, 512 bit", TERN_CPU_AVX512_BF16, 24 * 32 * 2},
    [TERN_PEAK_DOT_I8] = {"int8 dot, 512 bit", TERN_CPU_AVX512, 24 * 64 * 2},
};

enum {
    TURNS = 200000
};

const char *tern_peak_name(enum tern_peak_kind kind)
{
    return g_kinds[kind].name;
}

bool tern_peak_can_run(enum tern_peak_kind kind)
{
    return tern_cpu_level_found() >= g_kinds[kind].level &&
           (kind != TERN_PEAK_DOT_I8 || tern_cpu_has_vnni());
}

#if defined(__x86_64__)
#    include <immintrin.h>

#    ifdef __clang__
#        define UNROLL _Pragma("unroll")
#    else
#        define UNROLL _Pragma("GCC unroll 24")
#    endif

/* An empty assembly line that claims to change the sums: the loop must be executed as it stands. */
#    define KEEP(x) __asm__ volatile("" : "+v"(x))

__attribute__((target("avx2,fma"))) static void loop_fma_avx2(int64_t turns)
{
    __m256 sum[12], x = _mm256_set1_ps(0.5f);
    UNROLL for (int i = 0; i < 12; i++)
    {
        sum[i] = _mm256_set1_ps(1.0f);
    }
    for (int64_t t = 0; t < turns; t++) {
        UNROLL for (int i = 0; i < 12; i++)
        {
            sum[i] = _mm256_fmadd_ps(sum[i], x, x);
            KEEP(sum[i]);
        }
    }
}

__attribute__((target("avx512f"))) static void loop_fma_avx512(int64_t turns)
{
    __m512 sum[24], x = _mm512_set1_ps(0.5f);
    UNROLL for (int i = 0; i < 24; i++)
    {
        sum[i] = _mm512_set1_ps(1.0f);
    }
    for (int64_t t = 0; t < turns; t++) {
        UNROLL for (int i = 0; i < 24; i++)
        {
            sum[i] = _mm512_fmadd_ps(sum[i], x, x);
            KEEP(sum[i]);
        }
    }
}

__attribute__((target("avx512f,avx512bf16"))) static void loop_dot_bf16(int64_t turns)
{
    __m512 sum[24];
    __m512bh x = (__m512bh)_mm512_set1_epi16(0x3d00);
    UNROLL for (int i = 0; i < 24; i++)
    {
        sum[i] = _mm512_setzero_ps();
    }
    for (int64_t t = 0; t < turns; t++) {
        UNROLL for (int i = 0; i < 24; i++)
        {
            sum[i] = _mm512_dpbf16_ps(sum[i], x, x);
            KEEP(sum[i]);
        }
    }
}

__attribute__((target("avx512f,avx512vnni"))) static void loop_dot_i8(int64_t turns)
{
    __m512i sum[24], x = _mm512_set1_epi8(3);
    UNROLL for (int i = 0; i < 24; i++)
    {
        sum[i] = _mm512_setzero_si512();
    }
    for (int64_t t = 0; t < turns; t++) {
        UNROLL for (int i = 0; i < 24; i++)
        {
            sum[i] = _mm512_dpbusd_epi32(sum[i], x, x);
            KEEP(sum[i]);
        }
    }
}

static void run_loop(enum tern_peak_kind kind, int64_t turns)
{
    switch (kind) {
    case TERN_PEAK_FMA_AVX2:
        loop_fma_avx2(turns);
        break;
    case TERN_PEAK_FMA_AVX512:
        loop_fma_avx512(turns);
        break;
    case TERN_PEAK_DOT_BF16:
        loop_dot_bf16(turns);
        break;
    default:
        loop_dot_i8(turns);
        break;
    }
}

#else

static void run_loop(enum tern_peak_kind kind, int64_t turns)
{
    (void)kind;
    (void)turns;
}

#endif

static void peak_task(void *arg, int64_t task, int thread)
{
    (void)task;
    (void)thread;
    run_loop(*(enum tern_peak_kind *)arg, TURNS);
}

double tern_peak_flops(struct tern_cpu_device *device, enum tern_peak_kind kind, int rounds)
{
    enum {
        PIECES = 8
    }; /* a thread: so that a late one does not halve the rate */
    int64_t tasks = (int64_t)device->threads * PIECES;
    double best = 0;
    for (int i = 0; i < rounds; i++) {
        struct timespec start, end;
        clockid_t clock = device->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
        clock_gettime(clock, &start);
        tern_cpu_parallel(device, tasks, peak_task, &kind);
        clock_gettime(clock, &end);
        double seconds =
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
        double rate = (double)tasks * TURNS * g_kinds[kind].flops / seconds;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Best rate of one thread by its own processor time, which other work on the machine does not shorten. */
static double thread_rate(enum tern_peak_kind kind)
{
    enum {
        ROUNDS = 12 /* about a millisecond each */
    };
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec start, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        run_loop(kind, TURNS);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        double seconds =
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
        double rate = TURNS * g_kinds[kind].flops / seconds;
        best = rate > best ? rate : best;
    }
    return best;
}

double tern_cpu_peak_flops(struct tern_device *device, enum tern_dtype compute)
{
    struct tern_cpu_device *cpu = tern_cpu_device_of(device);
    bool is_unknown = compute == TERN_I8 && !(cpu->level >= TERN_CPU_AVX512 && tern_cpu_has_vnni());
    if (cpu->level < TERN_CPU_AVX2 || (cpu->level == TERN_CPU_AMX && compute == TERN_BF16) ||
        is_unknown) {
        return 0;
    }
    enum tern_peak_kind kind =
        cpu->level >= TERN_CPU_AVX512 ? TERN_PEAK_FMA_AVX512 : TERN_PEAK_FMA_AVX2;
    if (compute == TERN_BF16 && cpu->level >= TERN_CPU_AVX512_BF16 && tern_cpu_bf16_dot_is_fast()) {
        kind = TERN_PEAK_DOT_BF16;
    }
    return thread_rate(compute == TERN_I8 ? TERN_PEAK_DOT_I8 : kind) * cpu->threads;
}

/* ---- reading ---- */

enum {
    READ_BYTES = 192 << 20, /* beyond any cache */
    READ_PIECE = 1 << 20,
    READ_AHEAD = 4096,
    READ_ROUNDS = 6
};

struct read_job {
    const char *data;
    uint64_t sums[READ_BYTES / READ_PIECE]; /* so that the loads are not left out */
};

static void read_task(void *arg, int64_t task, int thread)
{
    struct read_job *job = arg;
    const char *from = job->data + task * READ_PIECE;
    uint64_t sum[8] = {0};
    (void)thread;
    for (int64_t at = 0; at < READ_PIECE; at += 64) {
        uint64_t line[8];
        memcpy(line, from + at, sizeof line);
        __builtin_prefetch(from + at + READ_AHEAD);
        for (int i = 0; i < 8; i++) {
            sum[i] ^= line[i];
        }
    }
    job->sums[task] = sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

double tern_cpu_read_rate(struct tern_device *device)
{
    struct tern_cpu_device *cpu = tern_cpu_device_of(device);
    struct read_job *job = tern_alloc_zero("bench", 1, sizeof *job);
    char *data = tern_alloc("bench", READ_BYTES);
    double best = 0;
    for (int round = 0; job != NULL && data != NULL && round < READ_ROUNDS; round++) {
        struct timespec start, end;
        if (round == 0) {
            memset(data, 1, READ_BYTES);
            job->data = data;
        }
        clock_gettime(CLOCK_MONOTONIC, &start);
        tern_cpu_parallel(cpu, READ_BYTES / READ_PIECE, read_task, job);
        clock_gettime(CLOCK_MONOTONIC, &end);
        double seconds =
            (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) * 1e-9;
        best = READ_BYTES / seconds > best ? READ_BYTES / seconds : best;
    }
    tern_free(job);
    tern_free(data);
    return best;
}
