/* comm.c - one rank of a group whose other ranks keep step with it: messages cost time and carry nothing. */
#include "bench/roofline/roofline.h"
#include "comm/engine.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

struct roof_comm {
    struct tern_comm base;
    struct tern_device *compute, *queue;
    double latency_seconds, bytes_per_second;
    double done[TERN_ROOF_TICKETS_MAX]; /* when the job of a ticket is */
    uint64_t tickets;
    double exposed;
};

static struct roof_comm *of(struct tern_comm *comm)
{
    return (struct roof_comm *)comm;
}

static void roof_close(struct tern_comm *comm)
{
    tern_free(comm);
}

static tern_status roof_submit(struct tern_comm *comm,
                               tern_comm_job job,
                               void *arg,
                               uint64_t *ticket_out)
{
    struct roof_comm *c = of(comm);
    TERN_CHECK(c->tickets < TERN_ROOF_TICKETS_MAX);
    tern_roof_device_wait_until(c->queue, tern_roof_device_now(c->compute));
    tern_comm_enter(comm);
    tern_status status = job(comm, arg);
    tern_comm_enter(NULL);
    *ticket_out = c->tickets;
    c->done[c->tickets++] = tern_roof_device_now(c->queue);
    return status;
}

static tern_status roof_wait(struct tern_comm *comm, uint64_t ticket)
{
    struct roof_comm *c = of(comm);
    double before = tern_roof_device_now(c->compute);
    tern_roof_device_wait_until(c->compute, c->done[ticket]);
    c->exposed += tern_roof_device_now(c->compute) - before;
    return TERN_OK;
}

static tern_status roof_poll(struct tern_comm *comm, uint64_t ticket)
{
    (void)comm;
    (void)ticket;
    return TERN_OK;
}

/* Both directions at once: the longer one counts. */
static tern_status roof_exchange(struct tern_comm *comm,
                                 const struct tern_comm_message *messages,
                                 int count)
{
    struct roof_comm *c = of(comm);
    double way[2] = {0, 0};
    for (int i = 0; i < count; i++) {
        way[messages[i].is_send] += (double)messages[i].bytes;
    }
    comm->counters.exchanges++;
    comm->counters.bytes_sent += (int64_t)way[1];
    comm->counters.bytes_received += (int64_t)way[0];
    double bytes = way[0] > way[1] ? way[0] : way[1];
    double seconds = c->latency_seconds + bytes / c->bytes_per_second;
    tern_roof_device_wait_until(c->queue, tern_roof_device_now(c->queue) + seconds);
    c->exposed += c->queue == c->compute ? seconds : 0;
    return TERN_OK;
}

/* The peers post as much as they take, so that the exchanges that follow have the time in them. */
static tern_status roof_post(struct tern_comm *comm,
                             const struct tern_comm_message *messages,
                             int count,
                             size_t piece_bytes)
{
    (void)piece_bytes;
    for (int i = 0; i < count; i++) {
        comm->counters.bytes_sent += (int64_t)messages[i].bytes;
    }
    return TERN_OK;
}

static tern_status roof_nothing(struct tern_comm *comm)
{
    (void)comm;
    return TERN_OK;
}

static const struct tern_comm_table g_table = {
    .name = "roofline",
    .close = roof_close,
    .submit = roof_submit,
    .wait = roof_wait,
    .poll = roof_poll,
    .exchange = roof_exchange,
    .post = roof_post,
    .settle = roof_nothing,
    .barrier = roof_nothing,
};

tern_status tern_roof_comm_open(int ranks,
                                struct tern_device *compute,
                                struct tern_device *queue,
                                double latency_seconds,
                                double bytes_per_second,
                                struct tern_comm **out)
{
    struct roof_comm *comm = tern_alloc_zero("roofline", 1, sizeof *comm);
    if (comm == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a communicator");
    }
    comm->base = (struct tern_comm){.table = &g_table, .size = ranks, .local_size = ranks};
    comm->compute = compute;
    comm->queue = queue;
    comm->latency_seconds = latency_seconds;
    comm->bytes_per_second = bytes_per_second;
    *out = &comm->base;
    return TERN_OK;
}

double tern_roof_comm_exposed(const struct tern_comm *comm)
{
    return ((const struct roof_comm *)comm)->exposed;
}
