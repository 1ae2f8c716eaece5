/* calls.c - what NCCL answers: done, not yet, or an error in words. */
#include "comm/nccl/nccl_impl.h"

#include <stdio.h>
#include <time.h>

/* How often a call under way is asked for: at first often, since most are done in microseconds. */
static const long POLL_NS_MIN = 5 * 1000;
static const long POLL_NS_MAX = 1000 * 1000;

void tern_nccl_words(const struct tern_nccl *n, ncclResult_t result, const char *what, char *text)
{
    const char *last = n->library->ncclGetLastError(n->handle);
    bool has_last = last != NULL && last[0] != '\0';
    snprintf(text, TERN_JUDGE_ERROR_BYTES, "NCCL, %s: %s%s%s", what,
             n->library->ncclGetErrorString(result), has_last ? ": " : "", has_last ? last : "");
}

static ncclResult_t ask(struct tern_nccl *n)
{
    ncclResult_t state = ncclInProgress;
    pthread_mutex_lock(&n->library_lock);
    ncclResult_t result =
        n->handle != NULL ? n->library->ncclCommGetAsyncError(n->handle, &state) : ncclInProgress;
    pthread_mutex_unlock(&n->library_lock);
    return result == ncclSuccess ? state : result;
}

/* A communicator that waits names its own time limit only when the watchdog has not spoken by then. */
static tern_status fail_late(const struct tern_nccl *n, const char *what)
{
    return tern_fail(TERN_ERR_TIMEOUT, "rank %d: NCCL, %s: still under way after %.1f s",
                     n->comm.rank, what, 2 * (double)n->options.limit_ns * 1e-9);
}

tern_status tern_nccl_result(struct tern_nccl *n, ncclResult_t result, const char *what)
{
    int64_t until = tern_socket_now_ns() + 2 * n->options.limit_ns;
    long poll_ns = POLL_NS_MIN;
    while (result == ncclInProgress) {
        if (atomic_load(&n->is_dead)) {
            return tern_nccl_fail_dead(n);
        }
        if (tern_socket_now_ns() > until) {
            return fail_late(n, what);
        }
        nanosleep(&(struct timespec){.tv_nsec = poll_ns}, NULL);
        poll_ns = 2 * poll_ns < POLL_NS_MAX ? 2 * poll_ns : POLL_NS_MAX;
        result = ask(n);
    }
    if (result == ncclSuccess) {
        return TERN_OK;
    }
    if (atomic_load(&n->is_dead)) {
        return tern_nccl_fail_dead(n); /* an abort makes calls fail: not the reason */
    }
    char text[TERN_JUDGE_ERROR_BYTES];
    pthread_mutex_lock(&n->library_lock);
    tern_nccl_words(n, result, what, text);
    pthread_mutex_unlock(&n->library_lock);
    return tern_fail(TERN_ERR_PEER_LOST, "rank %d: %s", n->comm.rank, text);
}
