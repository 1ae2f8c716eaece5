/* thread.c - all signals blocked but those that a fault of the thread's own raises. */
#include "runtime/base/thread.h"

#include <signal.h>
#include <stddef.h>

int tern_thread_start(pthread_t *thread, void *(*body)(void *), void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t all;
    sigset_t kept;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        sigdelset(&all, faults[i]);
    }
    pthread_sigmask(SIG_BLOCK, &all, &kept);
    int error = pthread_create(thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &kept, NULL);
    return error;
}
