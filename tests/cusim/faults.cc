/* faults.cc - what a SIGSEGV means when its address is one of the simulator's. */
#include "tests/cusim/sim.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace cusim
{

enum {
    HANDLER_STACK_BYTES = 256 << 10
};

static struct sigaction g_previous;

static void handle(int signal, siginfo_t *info, void *context)
{
    const void *p = info->si_addr;
    const void *code = (const void *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (is_device_address(p) && !is_on_kernel()) {
        cusim_fail("the host touches %s, at %s", describe_address(p).c_str(),
                   describe_code(code).c_str());
    }
    if (is_device_address(p) || is_shared_address(p)) {
        cusim_fail("touches %s, at %s", describe_address(p).c_str(), describe_code(code).c_str());
    }
    if (is_stack_guard(p)) {
        cusim_fail("a kernel's thread needs more stack than the simulator gives, at %s",
                   describe_code(code).c_str());
    }
    if (is_on_kernel()) {
        cusim_fail("touches address %p, at %s", p, describe_code(code).c_str());
    }
    if (g_previous.sa_flags & SA_SIGINFO) {
        g_previous.sa_sigaction(signal, info, context);
    } else if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
        g_previous.sa_handler(signal);
    } else {
        sigaction(signal, &g_previous, nullptr); /* the instruction faults again, and for good */
    }
}

void catch_faults()
{
    struct sigaction action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &g_previous);
}

void catch_faults_here()
{
    static thread_local bool is_done;
    stack_t now;
    if (!is_done && sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE)) {
        void *block = mmap(nullptr, HANDLER_STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t stack = {block, 0, HANDLER_STACK_BYTES}; /* the thread's, for good */
        sigaltstack(&stack, nullptr);
    }
    is_done = true;
}

} // namespace cusim
