/* store_files.c - whole files up and down, in parts that several threads move at once. */
#include "io/file.h"
#include "io/pieces.h"
#include "io/source.h"
#include "io/store_parts.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#include <stdio.h>
#include <string.h>

enum {
    PART_GRAIN = 1 << 20,
    TRIES = 3,      /* of an upload that the store forgot */
    GOOD_PARTS = 4, /* after so many one more may move at once */
};

#define PAUSE_SECONDS 0.05

/* One file on its way. */
struct transfer {
    struct tern_store *store;
    const char *path; /* local */
    int64_t bytes, part_bytes;
    int part_count;
    bool is_up;
    struct tern_store_upload upload; /* up */
    struct tern_store_part *parts;   /* (part_count) up */
    const char *key;                 /* down: full */
    char etag[TERN_STORE_ETAG_BYTES];
    struct tern_pieces *pieces;
    atomic_int next;   /* part to be taken */
    atomic_int worker; /* number of the next thread */
    atomic_int good;
    atomic_bool has_failed;
    pthread_mutex_t lock; /* of the first failure */
    tern_status status;
    char sentence[1024];
};

static void fail(struct transfer *transfer, tern_status status)
{
    pthread_mutex_lock(&transfer->lock);
    if (transfer->status == TERN_OK) {
        transfer->status = status;
        snprintf(transfer->sentence, sizeof transfer->sentence, "%s", tern_detail());
    }
    pthread_mutex_unlock(&transfer->lock);
    atomic_store(&transfer->has_failed, true);
}

static size_t bytes_of(const struct transfer *transfer, int index)
{
    int64_t offset = index * transfer->part_bytes;
    int64_t left = transfer->bytes - offset;
    return (size_t)(left < transfer->part_bytes ? left : transfer->part_bytes);
}

static tern_status send_part(struct transfer *transfer,
                             struct tern_store_conn *conn,
                             struct tern_source *source,
                             int index,
                             void *buffer)
{
    const struct tern_store_backend *backend = transfer->store->backend;
    struct tern_store_part *part = &transfer->parts[index];
    size_t bytes = bytes_of(transfer, index);
    TERN_RETURN_IF_ERR(tern_source_read(source, index * transfer->part_bytes, buffer, bytes));
    if (part->number == index + 1 && backend->is_same != NULL &&
        backend->is_same(part, buffer, bytes)) {
        return TERN_OK;
    }
    *part = (struct tern_store_part){.number = index + 1, .bytes = (int64_t)bytes};
    return backend->part(transfer->store, conn, &transfer->upload, part, buffer);
}

static tern_status fetch_part(struct transfer *transfer,
                              struct tern_store_conn *conn,
                              int index,
                              void *buffer)
{
    size_t bytes = bytes_of(transfer, index);
    int64_t offset = index * transfer->part_bytes;
    TERN_RETURN_IF_ERR(transfer->store->backend->get(transfer->store, conn, transfer->key, offset,
                                                     bytes, transfer->etag, buffer));
    return tern_pieces_write(transfer->pieces, offset, buffer, bytes);
}

/* A store that said "slow down" gets fewer at once, and one more after some good ones. */
static void note_good(struct transfer *transfer)
{
    atomic_int *allowed = &transfer->store->allowed;
    if ((atomic_fetch_add(&transfer->good, 1) + 1) % GOOD_PARTS == 0 &&
        atomic_load(allowed) < transfer->store->options.parallel) {
        atomic_fetch_add(allowed, 1);
    }
}

static bool may_go_on(struct transfer *transfer, int worker)
{
    while (!atomic_load(&transfer->has_failed) &&
           atomic_load(&transfer->next) < transfer->part_count) {
        if (worker < atomic_load(&transfer->store->allowed)) {
            return true;
        }
        if (tern_store_wait(transfer->store, PAUSE_SECONDS) != TERN_OK) {
            return false; /* the others meet the same and say so */
        }
    }
    return false;
}

static tern_status move_parts(struct transfer *transfer,
                              int worker,
                              struct tern_store_conn *conn,
                              struct tern_source *source,
                              void *buffer)
{
    while (may_go_on(transfer, worker)) {
        int index = atomic_fetch_add(&transfer->next, 1);
        if (index >= transfer->part_count) {
            break;
        }
        TERN_RETURN_IF_ERR(tern_store_check(transfer->store));
        TERN_RETURN_IF_ERR(transfer->is_up ? send_part(transfer, conn, source, index, buffer)
                                           : fetch_part(transfer, conn, index, buffer));
        note_good(transfer);
    }
    return TERN_OK;
}

static void *work(void *arg)
{
    struct transfer *transfer = arg;
    struct tern_store_conn *conn = NULL;
    struct tern_source *source = NULL;
    int worker = atomic_fetch_add(&transfer->worker, 1);
    void *buffer = tern_alloc(
        "store part",
        (size_t)(transfer->bytes < transfer->part_bytes ? transfer->bytes : transfer->part_bytes));
    tern_status status = buffer != NULL ? tern_store_borrow(transfer->store, &conn)
                                        : tern_fail(TERN_ERR_MEMORY, "no memory for a part");
    if (status == TERN_OK && transfer->is_up) {
        status = tern_source_open(transfer->path, &source);
    }
    if (status == TERN_OK) {
        status = move_parts(transfer, worker, conn, source, buffer);
    }
    if (status != TERN_OK) {
        fail(transfer, status);
    }
    if (source != NULL) {
        tern_source_close(source);
    }
    if (conn != NULL) {
        tern_store_give_back(transfer->store, conn);
    }
    tern_free(buffer);
    return NULL;
}

/* All parts, on this thread and others. */
static tern_status move_all(struct transfer *transfer)
{
    pthread_t threads[TERN_STORE_PARALLEL_MAX];
    int count = 0;
    int wanted = transfer->store->options.parallel;
    wanted = transfer->part_count < wanted ? transfer->part_count : wanted;
    pthread_mutex_init(&transfer->lock, NULL);
    while (count < wanted - 1 && tern_thread_start(&threads[count], work, transfer) == 0) {
        count++;
    }
    work(transfer);
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_destroy(&transfer->lock);
    if (transfer->status == TERN_OK && atomic_load(&transfer->next) < transfer->part_count) {
        return tern_store_check(transfer->store); /* it ended all of them */
    }
    if (transfer->status != TERN_OK) {
        tern_detail_set(transfer->sentence);
    }
    return transfer->status;
}

static void cut(struct transfer *transfer)
{
    int64_t part = transfer->store->options.part_bytes;
    while ((transfer->bytes + part - 1) / part > TERN_STORE_PARTS_MAX) {
        part = (part * 2 + PART_GRAIN - 1) / PART_GRAIN * PART_GRAIN;
    }
    transfer->part_bytes = part;
    transfer->part_count = (int)((transfer->bytes + part - 1) / part);
}

/* ---- up ---- */

static tern_status put_small(struct transfer *transfer, struct tern_store_conn *conn)
{
    char *data;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_file_read(transfer->path, transfer->bytes, &data, &bytes));
    tern_status status = transfer->store->backend->put(transfer->store, conn, transfer->upload.key,
                                                       data, bytes, false);
    tern_free(data);
    return status;
}

/* Is the object there as it is to be? Asked when the answer to the completion was lost. */
static tern_status check_done(struct transfer *transfer, struct tern_store_conn *conn)
{
    struct tern_store_info info;
    tern_status status =
        transfer->store->backend->head(transfer->store, conn, transfer->upload.key, &info);
    if (status == TERN_OK && info.bytes == transfer->bytes) {
        return TERN_OK;
    }
    return status == TERN_OK || status == TERN_ERR_NOT_FOUND ? TERN_ERR_AGAIN : status;
}

static tern_status upload_once(struct transfer *transfer, struct tern_store_conn *conn)
{
    const struct tern_store_backend *backend = transfer->store->backend;
    memset(transfer->parts, 0, (size_t)transfer->part_count * sizeof *transfer->parts);
    atomic_store(&transfer->next, 0);
    atomic_store(&transfer->worker, 0);
    atomic_store(&transfer->has_failed, false);
    transfer->status = TERN_OK;
    TERN_RETURN_IF_ERR(backend->begin(transfer->store, conn, &transfer->upload, transfer->parts,
                                      transfer->part_count));
    tern_status status = move_all(transfer);
    if (status == TERN_OK) {
        status = backend->complete(transfer->store, conn, &transfer->upload, transfer->parts,
                                   transfer->part_count);
    }
    if (backend->drop != NULL) {
        backend->drop(&transfer->upload);
    }
    bool is_forgotten = status == TERN_ERR_AGAIN || status == TERN_ERR_NOT_FOUND;
    return is_forgotten ? check_done(transfer, conn) : status;
}

static tern_status put_parts(struct transfer *transfer, struct tern_store_conn *conn)
{
    transfer->parts =
        tern_alloc_zero("store parts", (size_t)transfer->part_count, sizeof *transfer->parts);
    if (transfer->parts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %d parts", transfer->part_count);
    }
    transfer->is_up = true;
    tern_status status = TERN_ERR_AGAIN;
    for (int i = 0; i < TRIES && status == TERN_ERR_AGAIN; i++) {
        status = upload_once(transfer, conn);
    }
    tern_free(transfer->parts);
    return status != TERN_ERR_AGAIN
               ? status
               : tern_fail(TERN_ERR_IO, "%s: the store forgot the upload of %s %d times",
                           transfer->store->url, transfer->upload.key, TRIES);
}

tern_status tern_store_put_file(struct tern_store *store, const char *key, const char *path)
{
    char full[TERN_STORE_KEY_BYTES];
    struct tern_store_conn *conn;
    struct transfer transfer = {.store = store, .path = path};
    TERN_RETURN_IF_ERR(tern_store_full_key(store, key, full));
    TERN_RETURN_IF_ERR(tern_file_size(path, &transfer.bytes));
    TERN_RETURN_IF_ERR(tern_store_check(store));
    TERN_RETURN_IF_ERR(tern_store_borrow(store, &conn));
    cut(&transfer);
    transfer.upload.key = full;
    transfer.upload.bytes = transfer.bytes;
    transfer.upload.part_bytes = transfer.part_bytes;
    tern_status status =
        transfer.part_count > 1 ? put_parts(&transfer, conn) : put_small(&transfer, conn);
    tern_store_give_back(store, conn);
    return status;
}

/* ---- down ---- */

static tern_status fetch(struct transfer *transfer)
{
    TERN_RETURN_IF_ERR(tern_pieces_create(transfer->path, transfer->bytes, &transfer->pieces));
    tern_status status = transfer->part_count > 0 ? move_all(transfer) : TERN_OK;
    if (status != TERN_OK) {
        tern_pieces_abandon(transfer->pieces);
        return status;
    }
    return tern_pieces_finish(transfer->pieces, false);
}

tern_status tern_store_get_file(struct tern_store *store,
                                const char *key,
                                const char *path,
                                struct tern_store_info *info_out)
{
    char full[TERN_STORE_KEY_BYTES];
    struct tern_store_info info;
    struct transfer transfer = {.store = store, .path = path, .key = full};
    TERN_RETURN_IF_ERR(tern_store_full_key(store, key, full));
    TERN_RETURN_IF_ERR(tern_store_head(store, key, &info));
    transfer.bytes = info.bytes;
    strcpy(transfer.etag, info.etag);
    cut(&transfer);
    if (info_out != NULL) {
        *info_out = info;
    }
    return fetch(&transfer);
}
