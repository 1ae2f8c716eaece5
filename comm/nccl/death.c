/* death.c - the end by failure: what every later call answers, ncclCommAbort, exit code 34. */
#include "comm/nccl/nccl_impl.h"
#include "runtime/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    LOCK_SECONDS_MAX = 1,
    LEAVE_SECONDS_MAX = 20 /* how long a call waits for the watchdog to end the process */
};

void tern_nccl_die(struct tern_nccl *n, tern_status status, const char *sentence)
{
    pthread_mutex_lock(&n->death_lock);
    if (!atomic_load(&n->is_dead)) {
        n->status = status;
        snprintf(n->detail, sizeof n->detail, "%s", sentence);
        atomic_store(&n->is_dead, true);
    }
    pthread_mutex_unlock(&n->death_lock);
}

void tern_nccl_report(struct tern_nccl *n, tern_status status, const char *sentence)
{
    tern_nccl_die(n, status, sentence);
    pthread_mutex_lock(&n->lock);
    if (n->error[0] == '\0') {
        snprintf(n->error, sizeof n->error, "%.*s", TERN_JUDGE_ERROR_BYTES - 1, sentence);
    }
    pthread_mutex_unlock(&n->lock);
    if (n->watch != NULL && (status == TERN_ERR_PEER_LOST || status == TERN_ERR_TIMEOUT)) {
        tern_watch_wait_end(n->watch, n->options.limit_ns);
    }
}

tern_status tern_nccl_fail_dead(struct tern_nccl *n)
{
    if (n->watch != NULL && atomic_load(&n->is_judged)) {
        tern_watch_wait_end(n->watch, (int64_t)LEAVE_SECONDS_MAX * 1000000000);
    }
    return tern_fail(n->status, "%s", n->detail);
}

/* A thread of its own, since the call may hang for ever with what it is to end. */
static void *abort_main(void *arg)
{
    struct tern_nccl *n = arg;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOCK_SECONDS_MAX;
    /* No thread may be inside NCCL on this communicator. One that is stuck there keeps the lock: then the end of the
     * process has to do. */
    if (pthread_mutex_timedlock(&n->library_lock, &until) == 0) {
        ncclComm_t handle = n->handle;
        n->handle = NULL;
        if (handle != NULL) {
            cudaSetDevice(n->ordinal);
            n->library->ncclCommAbort(handle);
        }
        pthread_mutex_unlock(&n->library_lock);
    }
    pthread_mutex_lock(&n->death_lock);
    n->is_aborted = true;
    pthread_cond_broadcast(&n->news);
    pthread_mutex_unlock(&n->death_lock);
    return NULL;
}

static void abort_library(struct tern_nccl *n)
{
    pthread_t thread;
    int64_t at = tern_socket_now_ns() + tern_judge_settle_ns(n->options.limit_ns) / 2;
    struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
    pthread_mutex_lock(&n->death_lock);
    int error = pthread_create(&thread, NULL, abort_main, n);
    n->is_aborting = error == 0;
    if (n->is_aborting) {
        pthread_detach(thread);
    }
    while (!n->is_aborted && error == 0) {
        error = pthread_cond_timedwait(&n->news, &n->death_lock, &until);
    }
    bool is_late = n->is_aborting && !n->is_aborted;
    pthread_mutex_unlock(&n->death_lock);
    if (is_late) {
        tern_log_warn("ncclCommAbort has not returned; the process ends without it");
    }
}

/* Dead first, aborted then: whoever sees the aborted collectives' results asks poll or wait before trusting them. */
void tern_nccl_stop(void *owner, const struct tern_verdict *verdict)
{
    struct tern_nccl *n = owner;
    atomic_store(&n->is_judged, true);
    tern_nccl_die(n, verdict->status, verdict->sentence);
    tern_log_error("%s", verdict->sentence);
    if (n->options.farewell.call != NULL) {
        n->options.farewell.call(n->options.farewell.context, verdict->sentence);
    }
    abort_library(n);
}

void tern_nccl_leave(void *owner)
{
    struct tern_nccl *n = owner;
    n->options.host->table->abort(n->options.host, TERN_EXIT_PEER_LOST);
}
