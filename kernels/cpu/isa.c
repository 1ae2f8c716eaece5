/* isa.c - which instruction levels this processor has, and which of them TERN_CPU_ISA allows. */
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#    include <cpuid.h>
#    include <sys/syscall.h>
#    include <unistd.h>
#endif

static const char *const g_level_names[TERN_CPU_LEVEL_COUNT] = {
    "generic", "avx2", "avx512", "avx512_bf16", "avx512_vnni", "amx",
};

const char *tern_cpu_level_name(enum tern_cpu_level level)
{
    return (unsigned)level < TERN_CPU_LEVEL_COUNT ? g_level_names[level] : "unknown";
}

#if defined(__x86_64__)

enum {
    ARCH_REQ_XCOMP_PERM_CODE =
        0x1023, /* asm/prctl.h of Linux 5.16; Debian 12's libc headers lack it */
    XFEATURE_TILE_DATA = 18,
    XCR0_YMM = 0x6,
    XCR0_ZMM = 0xe0,
    XCR0_TILE = 0x60000,
};

static bool has_bit(unsigned reg, int bit)
{
    return (reg >> bit & 1u) != 0;
}

/* Register state that the operating system saves (XCR0); 0 if it does not say. */
static unsigned os_saved_state(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bit(c, 27)) {
        return 0;
    }
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* Linux hands out the 8 KiB of tile state on request only; asking twice is harmless. */
static bool tile_state_granted(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM_CODE, XFEATURE_TILE_DATA) == 0;
}

static enum tern_cpu_level find_level(void)
{
    unsigned a, b, c, d;
    unsigned state = os_saved_state();
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return TERN_CPU_GENERIC;
    }
    bool fma_f16c = has_bit(c, 12) && has_bit(c, 29);
    unsigned b7, c7, d7, most;
    if (!__get_cpuid_count(7, 0, &most, &b7, &c7, &d7)) {
        return TERN_CPU_GENERIC;
    }
    if (!fma_f16c || !has_bit(b7, 5) || (state & XCR0_YMM) != XCR0_YMM) {
        return TERN_CPU_GENERIC;
    }
    bool f_dq_bw_vl = has_bit(b7, 16) && has_bit(b7, 17) && has_bit(b7, 30) && has_bit(b7, 31);
    if (!f_dq_bw_vl || (state & XCR0_ZMM) != XCR0_ZMM) {
        return TERN_CPU_AVX2;
    }
    unsigned a71 = 0, b71, c71, d71;
    if (most < 1 || !__get_cpuid_count(7, 1, &a71, &b71, &c71, &d71) || !has_bit(a71, 5)) {
        return TERN_CPU_AVX512;
    }
    if (!has_bit(c7, 11)) {
        return TERN_CPU_AVX512_BF16;
    }
    bool amx = has_bit(d7, 22) && has_bit(d7, 24) && has_bit(d7, 25);
    if (!amx || (state & XCR0_TILE) != XCR0_TILE || !tile_state_granted()) {
        return TERN_CPU_AVX512_VNNI;
    }
    return TERN_CPU_AMX;
}

/* CPUID leaves a virtual machine (20 to 70 us a time), so each answer is kept, plus 1; 0: not asked
 * yet. */
enum tern_cpu_level tern_cpu_level_found(void)
{
    static atomic_int kept;
    int value = atomic_load_explicit(&kept, memory_order_relaxed);
    if (value == 0) {
        value = (int)find_level() + 1;
        atomic_store_explicit(&kept, value, memory_order_relaxed);
    }
    return (enum tern_cpu_level)(value - 1);
}

static bool is_dot_fast(void)
{
    /* Register-only loops (bench_peak), vdpbf16ps against fp32 FMA in flop/s: AMD Zen 4 2.0 (234
     * against 117 Gflop/s a core); Intel Sapphire Rapids 0.46 (155 against 336 on two cores). So:
     * AMD yes, others no until they have been measured. */
    unsigned a, b, c, d;
    if (tern_cpu_level_found() < TERN_CPU_AVX512_BF16 || !__get_cpuid(0, &a, &b, &c, &d)) {
        return false;
    }
    return b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}

bool tern_cpu_bf16_dot_is_fast(void)
{
    static atomic_int kept;
    int value = atomic_load_explicit(&kept, memory_order_relaxed);
    if (value == 0) {
        value = (int)is_dot_fast() + 1;
        atomic_store_explicit(&kept, value, memory_order_relaxed);
    }
    return value == 2;
}

bool tern_cpu_has_vnni(void)
{
    static atomic_int kept;
    int value = atomic_load_explicit(&kept, memory_order_relaxed);
    if (value == 0) {
        unsigned a, b, c, d;
        bool has = tern_cpu_level_found() >= TERN_CPU_AVX512 &&
                   __get_cpuid_count(7, 0, &a, &b, &c, &d) && has_bit(c, 11);
        value = (int)has + 1;
        atomic_store_explicit(&kept, value, memory_order_relaxed);
    }
    return value == 2;
}

#else /* not x86-64 */

bool tern_cpu_has_vnni(void)
{
    return false;
}

enum tern_cpu_level tern_cpu_level_found(void)
{
    return TERN_CPU_GENERIC;
}

bool tern_cpu_bf16_dot_is_fast(void)
{
    return false;
}

#endif

tern_status tern_cpu_level_allowed(enum tern_cpu_level *level_out)
{
    enum tern_cpu_level found = tern_cpu_level_found();
    const char *text = getenv("TERN_CPU_ISA");
    *level_out = found;
    if (text == NULL || text[0] == '\0') {
        return TERN_OK;
    }
    for (int i = 0; i < TERN_CPU_LEVEL_COUNT; i++) {
        if (strcmp(text, g_level_names[i]) == 0) {
            *level_out = (int)found < i ? found : (enum tern_cpu_level)i;
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_USAGE,
                     "TERN_CPU_ISA=%s: unknown level, expected one of generic, avx2, avx512, "
                     "avx512_bf16, avx512_vnni, amx",
                     text);
}
