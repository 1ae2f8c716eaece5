/* self.c - a world of one rank: jobs run on a progress thread, messages are copies. */
#include "comm/engine.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

static tern_status self_start(struct tern_transport *t)
{
    t->rank = 0;
    t->size = 1;
    return TERN_OK;
}

static void self_stop(struct tern_transport *t, bool clean)
{
    (void)t;
    (void)clean;
}

/* The job is this process: its caller ends it. */
static void self_abort(struct tern_transport *t, int exit_code)
{
    (void)t;
    (void)exit_code;
}

static void self_destroy(struct tern_transport *t)
{
    tern_free(t);
}

static tern_status self_op_open(struct tern_transport *t, void **op_out)
{
    (void)t;
    *op_out = NULL;
    return TERN_OK;
}

static void self_op_close(struct tern_transport *t, void *op)
{
    (void)t;
    (void)op;
}

/* There is no other rank that a message could come from. */
static tern_status self_begin(struct tern_transport *t,
                              void *op,
                              int context,
                              const struct tern_transport_message *messages,
                              int count)
{
    (void)t;
    (void)op;
    (void)context;
    (void)messages;
    TERN_CHECK(count == 0);
    return TERN_OK;
}

static tern_status self_test(struct tern_transport *t, void *op, int *left_out)
{
    (void)t;
    (void)op;
    *left_out = 0;
    return TERN_OK;
}

static void self_cancel(struct tern_transport *t, void *op)
{
    (void)t;
    (void)op;
}

static int self_first_left(struct tern_transport *t, void *op)
{
    (void)t;
    (void)op;
    return 0;
}

static const struct tern_transport_table g_self = {
    .name = "self",
    .start = self_start,
    .stop = self_stop,
    .abort = self_abort,
    .destroy = self_destroy,
    .op_open = self_op_open,
    .op_close = self_op_close,
    .begin = self_begin,
    .test = self_test,
    .cancel = self_cancel,
    .first_left = self_first_left,
};

tern_status tern_self_open(struct tern_comm **out)
{
    struct tern_transport *transport = tern_alloc("comm self", sizeof *transport);
    if (transport == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "communicator: no memory for %zu bytes",
                         sizeof *transport);
    }
    tern_transport_init(transport, &g_self);
    return tern_comm_engine_open(transport, (int64_t)60 * 1000000000, out);
}
