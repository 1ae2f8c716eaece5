/* mpi.c - the MPI plugin: the transport of comm/transport.h over MPI_Isend and MPI_Irecv.
 *
 * Only point-to-point messages on MPI_COMM_WORLD are used; groups are told apart by tag. So nothing in
 * here blocks but MPI_Init and MPI_Finalize. Every call is made under one lock by one of the progress
 * threads: MPI_THREAD_SERIALIZED is enough, and MPI_THREAD_FUNNELED while there is one communicator. */
#include "comm/mpi/mpi_impl.h"
#include "comm/transport.h"

#include <mpi.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long an abort may take before the process ends itself. */
enum {
    ABORT_MS_MAX = 2500,
    ABORT_LOCK_SECONDS_MAX = 1
};

struct mpi_transport {
    struct tern_transport base;
    size_t piece_bytes;
    int thread_level;
    _Atomic int is_up; /* between MPI_Init and MPI_Finalize */
};

/* The requests of one exchange; a message longer than piece_bytes has several. */
struct op {
    MPI_Request *requests; /* (capacity), MPI_REQUEST_NULL once done */
    MPI_Status *statuses;
    int *indices;
    struct piece *pieces;
    int count, left, capacity;
};

struct piece {
    int message;
    int peer;
    int bytes;
    bool is_send;
};

static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;

static tern_status fail_mpi(struct tern_transport *t, int error, const char *call, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(error, text, &length);
    char who[64] = "";
    if (peer >= 0) {
        snprintf(who, sizeof who, " with rank %d", peer);
    }
    return t->host->fail(TERN_ERR_PEER_LOST, "%s%s: %s", call, who, text);
}

static tern_status mpi_start(struct tern_transport *t)
{
    struct mpi_transport *mpi = (struct mpi_transport *)t;
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &mpi->thread_level);
    if (error != MPI_SUCCESS) {
        return fail_mpi(t, error, "MPI_Init_thread", -1);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &t->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &t->size);
    int *tag_max = NULL;
    int has_tag_max = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &has_tag_max);
    t->context_max = has_tag_max ? *tag_max : 32767;
    atomic_store(&mpi->is_up, 1);
    return TERN_OK;
}

static void mpi_stop(struct tern_transport *t, bool clean)
{
    struct mpi_transport *mpi = (struct mpi_transport *)t;
    if (clean) {
        pthread_mutex_lock(&g_lock);
        atomic_store(&mpi->is_up, 0);
        MPI_Finalize();
        pthread_mutex_unlock(&g_lock);
    }
}

static void sleep_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    while (nanosleep(&span, &span) != 0) {
    }
}

static void *abort_watch(void *exit_code)
{
    sleep_ms(ABORT_MS_MAX);
    _exit((int)(intptr_t)exit_code);
}

typedef int (*pmix_abort)(int status, const char *message, void *procs, size_t proc_count);

/* Under Open MPI the launcher is told by PMIx, from any thread. MPI_Abort comes to the same but first has
 * mpirun print eight lines of its own, under which the user would have to look for the reason. */
static bool abort_by_pmix(int exit_code)
{
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = library != NULL ? dlsym(library, "PMIx_Abort") : NULL;
    pmix_abort function = NULL;
    memcpy(&function, &symbol, sizeof function);
    return function != NULL && function(exit_code, NULL, NULL, 0) == 0;
}

/* Tells the launcher, which ends the other ranks. That may wait for a launcher that is gone, and the lock
 * may be held by a thread that is stuck in MPI: a watch ends the process in any case. */
static void mpi_abort(struct tern_transport *t, int exit_code)
{
    struct mpi_transport *mpi = (struct mpi_transport *)t;
    static _Atomic int aborts;
    if (atomic_fetch_add(&aborts, 1) > 0) {
        for (;;) { /* another thread is at it */
            pause();
        }
    }
    pthread_t watch;
    if (!atomic_load(&mpi->is_up) ||
        pthread_create(&watch, NULL, abort_watch, (void *)(intptr_t)exit_code) != 0) {
        _exit(exit_code);
    }
    if (!abort_by_pmix(exit_code)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += ABORT_LOCK_SECONDS_MAX;
        (void)pthread_mutex_timedlock(&g_lock, &until);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    for (;;) {
        pause(); /* until the launcher or the watch ends this process */
    }
}

static void mpi_destroy(struct tern_transport *t)
{
    t->host->free(t);
}

static void op_free(struct tern_transport *t, struct op *op)
{
    t->host->free(op->requests);
    t->host->free(op->statuses);
    t->host->free(op->indices);
    t->host->free(op->pieces);
    memset(op, 0, sizeof *op);
}

static tern_status mpi_op_open(struct tern_transport *t, void **op_out)
{
    struct mpi_transport *mpi = (struct mpi_transport *)t;
    if (mpi->thread_level < MPI_THREAD_SERIALIZED && atomic_load(&t->users) > 0) {
        return t->host->fail(TERN_ERR_UNSUPPORTED,
                             "this MPI library allows calls from one thread only (level %d, needed "
                             "%d): no second communicator",
                             mpi->thread_level, MPI_THREAD_SERIALIZED);
    }
    struct op *op = t->host->alloc("comm mpi op", sizeof *op);
    if (op == NULL) {
        return t->host->fail(TERN_ERR_MEMORY, "mpi: no memory for %zu bytes", sizeof *op);
    }
    memset(op, 0, sizeof *op);
    *op_out = op;
    return TERN_OK;
}

static void mpi_op_close(struct tern_transport *t, void *op)
{
    op_free(t, op);
    t->host->free(op);
}

static tern_status reserve(struct tern_transport *t, struct op *op, size_t pieces)
{
    if (pieces <= (size_t)op->capacity) {
        return TERN_OK;
    }
    op_free(t, op);
    size_t capacity = pieces < 64 ? 64 : pieces;
    op->requests = t->host->alloc("comm mpi op", capacity * sizeof *op->requests);
    op->statuses = t->host->alloc("comm mpi op", capacity * sizeof *op->statuses);
    op->indices = t->host->alloc("comm mpi op", capacity * sizeof *op->indices);
    op->pieces = t->host->alloc("comm mpi op", capacity * sizeof *op->pieces);
    if (pieces > INT_MAX || op->requests == NULL || op->statuses == NULL || op->indices == NULL ||
        op->pieces == NULL) {
        op_free(t, op);
        return t->host->fail(TERN_ERR_MEMORY, "mpi: no memory for %zu messages", pieces);
    }
    op->capacity = (int)capacity;
    return TERN_OK;
}

static tern_status post(struct tern_transport *t,
                        struct op *op,
                        int context,
                        int index,
                        const struct tern_transport_message *message)
{
    size_t piece_bytes = ((struct mpi_transport *)t)->piece_bytes;
    for (size_t done = 0; done < message->bytes; done += piece_bytes) {
        size_t rest = message->bytes - done;
        int bytes = (int)(rest < piece_bytes ? rest : piece_bytes);
        char *at = (char *)message->data + done;
        MPI_Request *request = &op->requests[op->count];
        int error =
            message->is_send
                ? MPI_Isend(at, bytes, MPI_BYTE, message->peer, context, MPI_COMM_WORLD, request)
                : MPI_Irecv(at, bytes, MPI_BYTE, message->peer, context, MPI_COMM_WORLD, request);
        if (error != MPI_SUCCESS) {
            return fail_mpi(t, error, message->is_send ? "MPI_Isend" : "MPI_Irecv", message->peer);
        }
        op->pieces[op->count++] = (struct piece){index, message->peer, bytes, message->is_send};
    }
    return TERN_OK;
}

static tern_status mpi_begin(struct tern_transport *t,
                             void *op_arg,
                             int context,
                             const struct tern_transport_message *messages,
                             int count)
{
    struct op *op = op_arg;
    size_t piece_bytes = ((struct mpi_transport *)t)->piece_bytes;
    size_t pieces = 0;
    for (int i = 0; i < count; i++) {
        pieces += (messages[i].bytes + piece_bytes - 1) / piece_bytes;
    }
    TERN_RETURN_IF_ERR(reserve(t, op, pieces));
    op->count = 0;
    tern_status status = TERN_OK;
    pthread_mutex_lock(&g_lock);
    /* Receives first: what arrives at once then goes straight where it belongs. */
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count && status == TERN_OK; i++) {
            if (messages[i].is_send == (pass == 1)) {
                status = post(t, op, context, i, &messages[i]);
            }
        }
    }
    pthread_mutex_unlock(&g_lock);
    op->left = op->count;
    return status;
}

/* A piece that ended: did it end well, and with the bytes that both sides agreed on? */
static tern_status check_piece(struct tern_transport *t,
                               const struct piece *piece,
                               const MPI_Status *status,
                               bool has_error)
{
    int class = MPI_SUCCESS;
    if (has_error && status->MPI_ERROR != MPI_SUCCESS) {
        MPI_Error_class(status->MPI_ERROR, &class);
        if (class != MPI_ERR_TRUNCATE) {
            return fail_mpi(t, status->MPI_ERROR, piece->is_send ? "sending" : "receiving",
                            piece->peer);
        }
    }
    int bytes = piece->bytes;
    if (!piece->is_send && class == MPI_SUCCESS) {
        MPI_Get_count(status, MPI_BYTE, &bytes);
    }
    if (class == MPI_ERR_TRUNCATE || bytes != piece->bytes) {
        return t->host->fail(TERN_ERR_STATE,
                             "rank %d expects %d bytes from rank %d and gets %s%d: out of step",
                             t->rank, piece->bytes, piece->peer,
                             class == MPI_ERR_TRUNCATE ? "more than " : "", bytes);
    }
    return TERN_OK;
}

static tern_status mpi_test(struct tern_transport *t, void *op_arg, int *left_out)
{
    struct op *op = op_arg;
    int done = 0;
    tern_status result = TERN_OK;
    pthread_mutex_lock(&g_lock);
    int error = MPI_Testsome(op->count, op->requests, &done, op->indices, op->statuses);
    if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) {
        result = fail_mpi(t, error, "MPI_Testsome", -1);
    }
    done = done == MPI_UNDEFINED ? 0 : done;
    for (int i = 0; i < done && result == TERN_OK; i++) {
        result = check_piece(t, &op->pieces[op->indices[i]], &op->statuses[i],
                             error == MPI_ERR_IN_STATUS);
    }
    pthread_mutex_unlock(&g_lock);
    op->left -= done;
    *left_out = op->left;
    return result;
}

/* Receives that wait for nobody can be taken back. What is already under way cannot; but after a failure
 * no progress is made any more, so it will not land either. */
static void mpi_cancel(struct tern_transport *t, void *op_arg)
{
    (void)t;
    struct op *op = op_arg;
    pthread_mutex_lock(&g_lock);
    for (int i = 0; i < op->count; i++) {
        if (op->requests[i] != MPI_REQUEST_NULL && !op->pieces[i].is_send) {
            MPI_Cancel(&op->requests[i]);
            MPI_Request_free(&op->requests[i]);
        }
    }
    op->count = 0;
    pthread_mutex_unlock(&g_lock);
}

static int mpi_first_left(struct tern_transport *t, void *op_arg)
{
    (void)t;
    struct op *op = op_arg;
    int i = 0;
    while (i < op->count - 1 && op->requests[i] == MPI_REQUEST_NULL) {
        i++;
    }
    return op->pieces[i].message;
}

static const struct tern_transport_table g_mpi = {
    .name = "mpi",
    .leaves_together = true,
    .start = mpi_start,
    .stop = mpi_stop,
    .abort = mpi_abort,
    .destroy = mpi_destroy,
    .op_open = mpi_op_open,
    .op_close = mpi_op_close,
    .begin = mpi_begin,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .first_left = mpi_first_left,
};

static const char *library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
    return text;
}

static tern_status create(const struct tern_transport_host *host,
                          size_t piece_bytes,
                          struct tern_transport **out)
{
    struct mpi_transport *mpi = host->alloc("comm mpi", sizeof *mpi);
    if (mpi == NULL) {
        return host->fail(TERN_ERR_MEMORY, "mpi: no memory for %zu bytes", sizeof *mpi);
    }
    memset(mpi, 0, sizeof *mpi);
    mpi->base.table = &g_mpi;
    mpi->base.host = host;
    mpi->base.context_next = 1;
    mpi->piece_bytes = piece_bytes;
    tern_mpi_setup_environment();
    *out = &mpi->base;
    return TERN_OK;
}

extern const struct tern_mpi_plugin tern_mpi_plugin;
__attribute__((visibility("default"))) const struct tern_mpi_plugin tern_mpi_plugin = {
    .version = TERN_TRANSPORT_VERSION,
    .transport_bytes = sizeof(struct tern_transport),
    .library = library,
    .create = create,
};
