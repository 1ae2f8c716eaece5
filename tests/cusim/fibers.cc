/* fibers.cc - a stack for each thread of a block, and the switch between them. x86-64, System V. */
#include "tests/cusim/sim.h"

#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#    error "the simulated CUDA has its switch between fibers for x86-64 only"
#endif

/* Saves what a called function must keep (rbx, rbp, r12 to r15) on the stack, and takes it from the other stack. */
asm(R"(
    .text
    .p2align 4
    .type cusim_switch_stacks, @function
cusim_switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cusim_switch_stacks, . - cusim_switch_stacks
)");
extern "C" __attribute__((visibility("hidden"))) void cusim_switch_stacks(void **save, void *load);

namespace cusim
{

enum {
    GUARD_BYTES = 4096,
    SAVED_WORDS = 6
};

char *g_own_stack, *g_stacks, *g_stacks_end;

static void map_stacks()
{
    size_t each = STACK_BYTES + GUARD_BYTES, bytes = each * THREADS_MAX;
    void *stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) {
        perror("cusim: the stacks of a block's threads");
        abort();
    }
    g_stacks = (char *)stacks;
    g_stacks_end = g_stacks + bytes;
    for (int i = 0; i < THREADS_MAX; i++) {
        mprotect(g_stacks + (size_t)i * each, GUARD_BYTES, PROT_NONE);
    }
}

void fiber_prepare(fiber &it, int i, void (*entry)())
{
    static bool is_mapped = (map_stacks(), true);
    (void)is_mapped;
    char *top = g_stacks + (size_t)(i + 1) * (STACK_BYTES + GUARD_BYTES);
    void **words = (void **)top;
    words[-1] = nullptr; /* entry's return address, which it never uses: rsp is 16n + 8 there */
    words[-2] = (void *)entry;
    for (int k = 0; k < SAVED_WORDS; k++) {
        words[-3 - k] = nullptr;
    }
    it.stack = top - STACK_BYTES;
    it.stack_bytes = STACK_BYTES;
    /* what the last thread that ended here left poisoned: it never returned from its functions */
    ASAN_UNPOISON_MEMORY_REGION(it.stack, STACK_BYTES);
    it.stack_pointer = &words[-2 - SAVED_WORDS];
}

/* AddressSanitizer must know on which stack the program is. */
#ifdef __SANITIZE_ADDRESS__
static void announce(fiber &from, const fiber &to)
{
    __sanitizer_start_switch_fiber(&from.shadow, to.stack, to.stack_bytes);
}

static void arrive(void *shadow, fiber *host)
{
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(shadow, &stack, &bytes);
    if (host != nullptr && ((char *)stack < g_stacks || (char *)stack >= g_stacks_end)) {
        host->stack = stack;
        host->stack_bytes = bytes;
    }
}
#else
static void announce(fiber &, const fiber &)
{
}

static void arrive(void *, fiber *)
{
}
#endif

void fiber_switch(fiber &from, fiber &to)
{
    announce(from, to);
    cusim_switch_stacks(&from.stack_pointer, to.stack_pointer);
    arrive(from.shadow, nullptr);
}

void fiber_entered(fiber &host)
{
    arrive(nullptr, &host);
}

void fiber_here(int i)
{
    g_own_stack = g_stacks + (size_t)i * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES;
}

bool is_stack_guard(const void *p)
{
    size_t at = (size_t)((const char *)p - g_stacks);
    return at < (size_t)(g_stacks_end - g_stacks) && at % (STACK_BYTES + GUARD_BYTES) < GUARD_BYTES;
}

} // namespace cusim
