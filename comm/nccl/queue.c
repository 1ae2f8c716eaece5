/* queue.c - operations in order, tickets, and the table.
 *
 * submit runs the job on the caller's thread: what it does is enqueue. Two events are the edges: the communicator's queue
 * waits for what the compute queue had when the operation was submitted, and wait makes the compute queue wait for the
 * operation's last mark. The host waits for neither; whoever has read a result of the compute queue asks poll whether the
 * group was alive for it. */
#include "comm/nccl/nccl_impl.h"
#include "runtime/base/check.h"

#include <stdio.h>

static tern_status run_job(struct tern_nccl *n, tern_comm_job job, void *arg, uint64_t ticket)
{
    n->step = 0;
    TERN_RETURN_IF_ERR(tern_nccl_cuda(cudaSetDevice(n->ordinal), "nccl: cudaSetDevice"));
    TERN_RETURN_IF_ERR(n->options.table->after(n->options.queue, n->options.compute));
    TERN_RETURN_IF_ERR(tern_nccl_mark(n, &(struct tern_mark){.ticket = ticket, .peer = -1}));
    n->options.enter(&n->comm);
    tern_status status = job(&n->comm, arg);
    n->options.enter(NULL);
    TERN_RETURN_IF_ERR(status);
    TERN_CHECK(n->piece_bytes == 0); /* a post that nobody settled */
    return tern_nccl_mark(n,
                          &(struct tern_mark){.ticket = ticket, .step = n->step + 1, .peer = -1});
}

static tern_status nccl_submit(struct tern_comm *comm,
                               tern_comm_job job,
                               void *arg,
                               uint64_t *ticket_out)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    pthread_mutex_lock(&n->submit_lock);
    tern_status status;
    if (atomic_load(&n->is_dead)) {
        status = tern_nccl_fail_dead(n);
    } else {
        pthread_mutex_lock(&n->lock);
        uint64_t ticket = ++n->submitted;
        pthread_mutex_unlock(&n->lock);
        *ticket_out = ticket;
        status = run_job(n, job, arg, ticket);
        if (status != TERN_OK && !atomic_load(&n->is_dead)) {
            char sentence[TERN_JUDGE_SENTENCE_BYTES];
            snprintf(sentence, sizeof sentence, "%.*s", (int)sizeof sentence - 1, tern_detail());
            tern_nccl_report(n, status, sentence);
        }
    }
    pthread_mutex_unlock(&n->submit_lock);
    return status;
}

static tern_status nccl_wait(struct tern_comm *comm, uint64_t ticket)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    if (atomic_load(&n->is_dead)) {
        return tern_nccl_fail_dead(n);
    }
    pthread_mutex_lock(&n->lock);
    TERN_CHECK(ticket >= 1 && ticket <= n->submitted);
    tern_status status = TERN_OK;
    if (ticket > n->done) {
        cudaEvent_t end = n->marks[n->ends[ticket % TERN_NCCL_TICKETS] % TERN_NCCL_MARKS].event;
        status = tern_nccl_cuda(cudaStreamWaitEvent(n->compute_stream, end, 0),
                                "nccl: cudaStreamWaitEvent");
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

static tern_status nccl_poll(struct tern_comm *comm, uint64_t ticket)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    if (atomic_load(&n->is_dead)) {
        return tern_nccl_fail_dead(n);
    }
    pthread_mutex_lock(&n->lock);
    tern_nccl_advance(n);
    tern_status status = n->done >= ticket ? TERN_OK : TERN_ERR_AGAIN;
    if (status != TERN_OK && n->error[0] != '\0') {
        status = tern_fail(TERN_ERR_DEVICE, "nccl: %s", n->error);
    }
    pthread_mutex_unlock(&n->lock);
    return status;
}

static void nccl_abort(struct tern_comm *comm, int exit_code)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    n->options.host->table->abort(n->options.host, exit_code);
}

static tern_status nccl_split(struct tern_comm *comm, int color, int key, struct tern_comm **out)
{
    (void)comm;
    (void)color;
    (void)key;
    *out = NULL;
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "nccl: a communicator between GPUs is not split; split the one between hosts "
                     "and open another on it");
}

#define NCCL_TABLE(gather) \
    { \
        .name = "nccl", .is_device = true, .close = tern_nccl_close, .submit = nccl_submit, \
        .wait = nccl_wait, .poll = nccl_poll, .abort = nccl_abort, .exchange = tern_nccl_exchange, \
        .post = tern_nccl_post, .settle = tern_nccl_settle, .barrier = tern_nccl_barrier, \
        .split = nccl_split, .all_gatherv = (gather), .reduce_ranges = tern_nccl_reduce_ranges, \
        .adopt = tern_nccl_adopt \
    }
const struct tern_comm_table tern_nccl_table = NCCL_TABLE(tern_nccl_all_gatherv);
const struct tern_comm_table tern_nccl_wide_table = NCCL_TABLE(NULL);
