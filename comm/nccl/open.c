/* open.c - from ranks that know each other over host memory to a communicator between their GPUs; and its end.
 *
 * Every rank first finds out what could stop it by itself, and says so on a card that all get: so that either all go on, or
 * all end with the same sentence, and nobody waits in NCCL for a rank that has no NCCL. */
#include "comm/nccl/nccl_impl.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    PCI_BYTES = 32,
    SENTENCE_BYTES = 320,
    CLOSE_POLL_NS = 100 * 1000
};

/* What a rank tells all others; travels as bytes. */
struct card {
    int32_t status; /* tern_status: why this rank can't; the sentence then says it */
    int32_t version;
    uint64_t machine; /* the same for ranks of one host */
    char sentence[SENTENCE_BYTES];
    char host[TERN_JUDGE_HOST_BYTES];
    char pci[PCI_BYTES];
    struct tern_endpoint hub; /* of ranks that could be a hub */
    ncclUniqueId id;          /* of rank 0 */
};

static uint64_t machine_number(const char *host)
{
    char text[256];
    size_t used = (size_t)snprintf(text, sizeof text, "%s ", host);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        used += fread(text + used, 1, sizeof text - used, file);
        fclose(file);
    }
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < used; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    }
    return hash;
}

static tern_status take_events(struct tern_nccl *n)
{
    /* a call for a queue makes its GPU this thread's current one */
    TERN_RETURN_IF_ERR(n->options.table->after(n->options.queue, n->options.compute));
    TERN_RETURN_IF_ERR(tern_nccl_cuda(cudaGetDevice(&n->ordinal), "nccl: cudaGetDevice"));
    for (int i = 0; i < TERN_NCCL_MARKS; i++) {
        TERN_RETURN_IF_ERR(
            tern_nccl_cuda(cudaEventCreate(&n->marks[i].event), "nccl: cudaEventCreate"));
    }
    return n->options.table->alloc(n->options.queue, "nccl barrier", 2, &n->tokens);
}

static tern_status fill_card(struct tern_nccl *n, struct card *card, int *listener_out)
{
    gethostname(card->host, sizeof card->host - 1);
    card->machine = machine_number(card->host);
    const struct tern_nccl_library *library;
    TERN_RETURN_IF_ERR(tern_nccl_library_load(&library));
    n->library = library;
    card->version = library->info.version;
    TERN_RETURN_IF_ERR(take_events(n));
    TERN_RETURN_IF_ERR(
        tern_nccl_cuda(cudaDeviceGetPCIBusId(card->pci, sizeof card->pci, n->ordinal),
                       "nccl: cudaDeviceGetPCIBusId"));
    if (n->comm.rank == 0) {
        ncclResult_t result = n->library->ncclGetUniqueId(&card->id);
        if (result != ncclSuccess) {
            return tern_fail(TERN_ERR_UNSUPPORTED, "ncclGetUniqueId: %s",
                             n->library->ncclGetErrorString(result));
        }
    }
    return tern_socket_listen(0, listener_out, &card->hub);
}

/* The same answer on every rank. */
static tern_status check_cards(const struct card *cards, int size)
{
    for (int r = 0; r < size; r++) {
        if (cards[r].status != TERN_OK) {
            return tern_fail((tern_status)cards[r].status, "rank %d (host %s): %s", r,
                             cards[r].host, cards[r].sentence);
        }
    }
    char found[TERN_NCCL_VERSION_BYTES];
    char expected[TERN_NCCL_VERSION_BYTES];
    for (int r = 1; r < size; r++) {
        if (cards[r].version != cards[0].version) {
            return tern_fail(TERN_ERR_CONFIG,
                             "rank %d (host %s) has NCCL %s, rank 0 (host %s) %s: all hosts must "
                             "have the same",
                             r, cards[r].host, tern_nccl_version_text(cards[r].version, found),
                             cards[0].host, tern_nccl_version_text(cards[0].version, expected));
        }
        for (int q = 0; q < r; q++) {
            if (cards[q].machine == cards[r].machine && strcmp(cards[q].pci, cards[r].pci) == 0) {
                return tern_fail(TERN_ERR_CONFIG,
                                 "ranks %d and %d are on the same GPU (host %s, %s): start at most "
                                 "as many ranks on a host as it has GPUs (CUDA_VISIBLE_DEVICES "
                                 "must leave them)",
                                 q, r, cards[r].host, cards[r].pci);
            }
        }
    }
    return TERN_OK;
}

/* Rank 0, and the first rank of another host if there is one, else rank 1. */
static void choose_hubs(const struct card *cards, int size, int hub_ranks[TERN_WATCH_HUBS])
{
    hub_ranks[0] = 0;
    hub_ranks[1] = 1;
    for (int r = size - 1; r > 0; r--) {
        hub_ranks[1] = cards[r].machine != cards[0].machine ? r : hub_ranks[1];
    }
}

static tern_status name_hosts(struct tern_nccl *n, const struct card *cards)
{
    size_t size = (size_t)n->comm.size;
    n->host_names = tern_alloc("nccl hosts", size * TERN_JUDGE_HOST_BYTES);
    n->hosts = tern_alloc("nccl hosts", size * sizeof *n->hosts);
    if (n->host_names == NULL || n->hosts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "nccl: no memory for the names of %zu hosts", size);
    }
    for (size_t r = 0; r < size; r++) {
        n->hosts[r] =
            memcpy(n->host_names + r * TERN_JUDGE_HOST_BYTES, cards[r].host, TERN_JUDGE_HOST_BYTES);
    }
    return TERN_OK;
}

static tern_status open_watch(struct tern_nccl *n, const struct card *cards, int *listener)
{
    TERN_RETURN_IF_ERR(name_hosts(n, cards));
    struct tern_watch_options options = {
        .rank = n->comm.rank,
        .size = n->comm.size,
        .limit_ns = n->options.limit_ns,
        .hosts = n->hosts,
        .listener = -1,
        .owner = n,
        .look = tern_nccl_look,
        .stop = tern_nccl_stop,
        .leave = tern_nccl_leave,
    };
    choose_hubs(cards, n->comm.size, options.hub_ranks);
    for (int i = 0; i < TERN_WATCH_HUBS; i++) {
        options.hubs[i] = cards[options.hub_ranks[i]].hub;
        if (options.hub_ranks[i] == n->comm.rank) {
            options.listener = *listener;
            *listener = -1;
        }
    }
    return tern_watch_open(&options, &n->watch);
}

/* All ranks come here at once; NCCL finds its way from one to the others meanwhile. */
static tern_status open_library(struct tern_nccl *n, const ncclUniqueId *id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0; /* a blocked thread could not be told that a peer is gone */
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    config.commName = "tern";
#endif
    n->options.fault();
    pthread_mutex_lock(&n->lock);
    n->calling = (struct tern_mark){.kind = TERN_COLLECTIVE_OPEN, .peer = -1};
    pthread_mutex_unlock(&n->lock);
    pthread_mutex_lock(&n->library_lock);
    ncclResult_t result =
        n->library->ncclCommInitRankConfig(&n->handle, n->comm.size, *id, n->comm.rank, &config);
    pthread_mutex_unlock(&n->library_lock);
    TERN_RETURN_IF_ERR(tern_nccl_result(n, result, "ncclCommInitRankConfig"));
    pthread_mutex_lock(&n->lock);
    n->calling.kind = TERN_COLLECTIVE_NONE;
    n->is_open = true;
    pthread_mutex_unlock(&n->lock);
    return TERN_OK;
}

/* Cards, watchdog, NCCL. */
static tern_status join(struct tern_nccl *n)
{
    size_t size = (size_t)n->comm.size;
    struct card mine = {0};
    int listener = -1;
    struct card *cards = tern_alloc("nccl cards", size * sizeof *cards);
    if (cards == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "nccl: no memory for the cards of %zu ranks", size);
    }
    tern_status status = fill_card(n, &mine, &listener);
    mine.status = (int32_t)status;
    snprintf(mine.sentence, sizeof mine.sentence, "%.*s", SENTENCE_BYTES - 1,
             status == TERN_OK ? "" : tern_detail());
    TERN_GOTO_IF_ERR(status, n->options.all_gather(n->options.host, &mine, sizeof mine, cards),
                     out);
    TERN_GOTO_IF_ERR(status, check_cards(cards, n->comm.size), out);
    TERN_GOTO_IF_ERR(status, open_watch(n, cards, &listener), out);
    TERN_GOTO_IF_ERR(status, open_library(n, &cards[0].id), out);
    if (n->comm.rank == 0) {
        char version[TERN_NCCL_VERSION_BYTES];
        tern_log_info("NCCL %s (%s) between %d GPUs; a collective may take %.0f s",
                      tern_nccl_version_text(n->library->info.version, version),
                      n->library->info.path, n->comm.size, (double)n->options.limit_ns * 1e-9);
    }
out:
    if (listener >= 0) {
        close(listener);
    }
    tern_free(cards);
    return status;
}

static struct tern_nccl *nccl_new(const struct tern_nccl_options *options)
{
    struct tern_nccl *n = tern_alloc_zero("nccl", 1, sizeof *n);
    if (n == NULL) {
        return NULL;
    }
    const struct tern_comm *host = options->host;
    n->comm = (struct tern_comm){
        .table =
            host->size <= TERN_NCCL_GATHER_RANKS_MAX ? &tern_nccl_table : &tern_nccl_wide_table,
        .rank = host->rank,
        .size = host->size,
        .local_rank = host->local_rank,
        .local_size = host->local_size,
    };
    n->options = *options;
    n->stream = options->table->native(options->queue);
    n->compute_stream = options->table->native(options->compute);
    n->calling.peer = -1;
    pthread_mutex_init(&n->library_lock, NULL);
    pthread_mutex_init(&n->submit_lock, NULL);
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->death_lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->news, &attr);
    pthread_condattr_destroy(&attr);
    return n;
}

static void nccl_free(struct tern_nccl *n)
{
    cudaSetDevice(n->ordinal);
    for (int i = 0; i < TERN_NCCL_MARKS; i++) {
        if (n->marks[i].event != NULL) {
            cudaEventDestroy(n->marks[i].event);
        }
    }
    n->options.table->free(n->options.queue, n->tokens);
    pthread_mutex_destroy(&n->library_lock);
    pthread_mutex_destroy(&n->submit_lock);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->death_lock);
    pthread_cond_destroy(&n->news);
    tern_free(n->host_names);
    tern_free((void *)n->hosts);
    tern_free(n);
}

tern_status tern_nccl_comm_open(const struct tern_nccl_options *options, struct tern_comm **out)
{
    *out = NULL;
    struct tern_nccl *n = nccl_new(options);
    if (n == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "nccl: no memory for %zu bytes", sizeof *n);
    }
    tern_status status;
    TERN_GOTO_IF_ERR(status, n->comm.size > 1 ? join(n) : take_events(n), fail);
    *out = &n->comm;
    return TERN_OK;
fail:;
    char sentence[TERN_DETAIL_BYTES];
    snprintf(sentence, sizeof sentence, "%s", tern_detail());
    tern_nccl_report(n, status, sentence);
    tern_nccl_close(&n->comm);
    return tern_fail(status, "%s", sentence);
}

/* ---- the end ---- */

/* What was submitted comes to its end, or the watchdog to its verdict. */
static void drain(struct tern_nccl *n)
{
    tern_status status = TERN_ERR_AGAIN;
    while (status == TERN_ERR_AGAIN) {
        status = n->comm.table->poll(&n->comm, n->submitted);
        if (status == TERN_ERR_AGAIN) {
            nanosleep(&(struct timespec){.tv_nsec = CLOSE_POLL_NS}, NULL);
        }
    }
    if (status != TERN_OK && !atomic_load(&n->is_dead)) {
        tern_nccl_die(n, status, tern_detail());
    }
}

static void close_library(struct tern_nccl *n)
{
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&n->library_lock);
    ncclComm_t handle = n->handle;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    for (int i = 0; i < n->block_count && handle != NULL; i++) {
        n->library->ncclCommDeregister(handle, n->blocks[i]);
    }
#endif
    bool is_good = handle != NULL && !atomic_load(&n->is_dead);
    if (is_good) {
        result = n->library->ncclCommFinalize(handle);
    }
    pthread_mutex_unlock(&n->library_lock);
    is_good = is_good && tern_nccl_result(n, result, "ncclCommFinalize") == TERN_OK;
    pthread_mutex_lock(&n->library_lock);
    handle = n->handle;
    n->handle = NULL;
    if (handle != NULL) {
        (is_good ? n->library->ncclCommDestroy : n->library->ncclCommAbort)(handle);
    }
    pthread_mutex_unlock(&n->library_lock);
}

/* A thread that hangs in ncclCommAbort still uses the communicator: then it stays. */
static bool is_left_behind(struct tern_nccl *n)
{
    pthread_mutex_lock(&n->death_lock);
    bool is_stuck = n->is_aborting && !n->is_aborted;
    pthread_mutex_unlock(&n->death_lock);
    return is_stuck;
}

void tern_nccl_close(struct tern_comm *comm)
{
    struct tern_nccl *n = tern_nccl_of(comm);
    if (!atomic_load(&n->is_dead)) {
        drain(n);
    }
    if (n->library != NULL && !atomic_load(&n->is_judged)) {
        close_library(n);
    }
    tern_watch_close(n->watch, !atomic_load(&n->is_dead));
    if (!is_left_behind(n)) {
        nccl_free(n);
    }
}
