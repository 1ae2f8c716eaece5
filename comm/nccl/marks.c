/* marks.c - events behind every collective, and what they say of where the GPU is. */
#include "comm/nccl/nccl_impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const long ROOM_POLL_NS = 50 * 1000;

tern_status tern_nccl_cuda(cudaError_t error, const char *what)
{
    return error == cudaSuccess ? TERN_OK
                                : tern_fail(TERN_ERR_DEVICE, "%s: %s (%s)", what,
                                            cudaGetErrorString(error), cudaGetErrorName(error));
}

/* Time on the queue from where an operation began, behind the compute queue, to its end: adding it up gives what the
 * communicator was busy. */
static void count_time(struct tern_nccl *n, uint64_t end)
{
    const struct tern_mark *last = &n->marks[end % TERN_NCCL_MARKS];
    uint64_t start = n->starts[last->ticket % TERN_NCCL_TICKETS];
    float ms = 0;
    bool is_there = n->next <= start + TERN_NCCL_MARKS; /* else its event serves another mark */
    if (is_there && cudaEventElapsedTime(&ms, n->marks[start % TERN_NCCL_MARKS].event,
                                         last->event) == cudaSuccess) {
        atomic_fetch_add_explicit(&n->comm.counters.busy_ns, (int64_t)((double)ms * 1e6),
                                  memory_order_relaxed);
    }
}

void tern_nccl_advance(struct tern_nccl *n)
{
    while (n->first < n->next) {
        const struct tern_mark *mark = &n->marks[n->first % TERN_NCCL_MARKS];
        cudaError_t error = cudaEventQuery(mark->event);
        if (error == cudaErrorNotReady) {
            return;
        }
        if (error != cudaSuccess) {
            snprintf(n->error, sizeof n->error, "its GPU failed at operation %llu: %s (%s)",
                     (unsigned long long)mark->ticket, cudaGetErrorString(error),
                     cudaGetErrorName(error));
            return;
        }
        if (mark->step == 0) {
            n->entered = mark->ticket;
        } else if (mark->kind == TERN_COLLECTIVE_NONE) {
            n->done = mark->ticket;
            count_time(n, n->first);
        }
        n->first++;
    }
}

/* Waits until a mark is free. */
static tern_status wait_room(struct tern_nccl *n)
{
    for (;;) {
        pthread_mutex_lock(&n->lock);
        tern_nccl_advance(n);
        bool has_room =
            n->next - n->first < TERN_NCCL_MARKS && n->submitted - n->done < TERN_NCCL_TICKETS;
        tern_status status =
            n->error[0] != '\0' ? tern_fail(TERN_ERR_DEVICE, "nccl: %s", n->error) : TERN_OK;
        pthread_mutex_unlock(&n->lock);
        if (atomic_load(&n->is_dead)) {
            return tern_nccl_fail_dead(n);
        }
        TERN_RETURN_IF_ERR(status);
        if (has_room) {
            return TERN_OK;
        }
        nanosleep(&(struct timespec){.tv_nsec = ROOM_POLL_NS}, NULL);
    }
}

tern_status tern_nccl_mark(struct tern_nccl *n, const struct tern_mark *what)
{
    TERN_RETURN_IF_ERR(wait_room(n));
    pthread_mutex_lock(&n->lock);
    struct tern_mark *mark = &n->marks[n->next % TERN_NCCL_MARKS];
    cudaEvent_t event = mark->event;
    *mark = *what;
    mark->event = event;
    tern_status status = tern_nccl_cuda(cudaEventRecord(event, n->stream), "nccl: cudaEventRecord");
    if (status == TERN_OK) {
        uint64_t *ends = what->step == 0 ? n->starts : n->ends;
        ends[what->ticket % TERN_NCCL_TICKETS] = n->next;
        n->next++;
    }
    n->calling.kind = TERN_COLLECTIVE_NONE;
    pthread_mutex_unlock(&n->lock);
    return status;
}

/* Whether NCCL noticed something by itself. While the program's thread is inside NCCL the next look will do. */
static void look_at_library(struct tern_nccl *n, char *error_out)
{
    if (n->library == NULL || pthread_mutex_trylock(&n->library_lock) != 0) {
        return;
    }
    ncclResult_t state = ncclSuccess;
    if (n->handle != NULL && n->library->ncclCommGetAsyncError(n->handle, &state) == ncclSuccess &&
        state != ncclSuccess && state != ncclInProgress) {
        tern_nccl_words(n, state, "in the background", error_out);
    }
    pthread_mutex_unlock(&n->library_lock);
}

void tern_nccl_look(void *owner,
                    struct tern_place *place_out,
                    char error_out[TERN_JUDGE_ERROR_BYTES])
{
    struct tern_nccl *n = owner;
    cudaSetDevice(n->ordinal); /* a thread's current GPU is its own affair */
    if (error_out[0] == '\0') {
        look_at_library(n, error_out);
    }
    /* whoever has the lock for longer is inside CUDA, which may be waiting for what this thread is to end */
    if (pthread_mutex_trylock(&n->lock) != 0) {
        return;
    }
    tern_nccl_advance(n);
    const struct tern_mark *now = &n->marks[n->first % TERN_NCCL_MARKS];
    uint64_t serial = n->first;
    if (n->first == n->next || now->kind == TERN_COLLECTIVE_NONE) {
        now =
            &n->calling; /* NCCL itself may be waiting for the others, the first time that it connects to them */
        serial = n->next;
    }
    bool is_early = now->kind != TERN_COLLECTIVE_NONE && now->ticket > n->entered;
    *place_out = (struct tern_place){
        .enqueued = n->submitted,
        .entered = is_early ? now->ticket : n->entered,
        .bytes = now->bytes,
        .step = now->step,
        .kind = now->kind,
        .peer = now->kind != TERN_COLLECTIVE_NONE ? now->peer : -1,
        .serial = serial,
        .opened = n->is_open,
    };
    if (error_out[0] == '\0' && n->error[0] != '\0') {
        memcpy(error_out, n->error, TERN_JUDGE_ERROR_BYTES);
    }
    pthread_mutex_unlock(&n->lock);
}
