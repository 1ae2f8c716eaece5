/* direct.c - a ring of staging blocks, one writing thread, one sticky errno. */
#include "io/direct.h"

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    BLOCK_BYTES = 4 << 20,
    BLOCK_COUNT = 3, /* one is filled, one is written, one waits */
    BLOCK_ALIGN = 2 << 20,
    DIRECT_ALIGN = 4096,
    WRITE_BACK_BYTES =
        32 << 20, /* page cache only: how much may be dirty before it is pushed out */
    NO_PROGRESS_MAX = 3,
};

struct block {
    uint8_t *data;
    size_t bytes; /* multiple of DIRECT_ALIGN when handed over */
    int64_t offset;
};

struct tern_direct {
    char path[TERN_PATH_BYTES];
    int fd;          /* O_DIRECT unless refused */
    int fd_buffered; /* patches */
    bool is_direct;
    void *memory;
    struct block blocks[BLOCK_COUNT];
    struct tern_hash *hash; /* or NULL */
    int64_t position;
    size_t filled; /* bytes in the block being filled */
    _Atomic int error;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t handed; /* blocks given to the thread; under lock, as the two below */
    int64_t written;
    bool quits;
    bool has_thread;
    double write_seconds;
    int64_t unsynced_from;
};

static void fail_with(struct tern_direct *direct, int error)
{
    int none = 0;
    atomic_compare_exchange_strong(&direct->error, &none, error);
}

int tern_direct_error(struct tern_direct *direct)
{
    return atomic_load(&direct->error);
}

/* pwrite behind the fault point; `short` writes half. */
static ssize_t write_at(int fd, const void *data, size_t bytes, int64_t offset)
{
    switch (tern_fault_pass(TERN_FAULT_FILE_WRITE)) {
    case TERN_FAULT_ENOSPC:
        errno = ENOSPC;
        return -1;
    case TERN_FAULT_EIO:
        errno = EIO;
        return -1;
    case TERN_FAULT_SHORT:
        return pwrite(fd, data, bytes > 1 ? bytes / 2 : bytes, offset);
    default:
        return pwrite(fd, data, bytes, offset);
    }
}

/* Starts the write-back of the last part and waits for the one before: dirty pages never pile up.
 */
static void push_out(struct tern_direct *direct, int64_t end)
{
    if (end - direct->unsynced_from < WRITE_BACK_BYTES) {
        return;
    }
    int64_t from = direct->unsynced_from;
    (void)sync_file_range(direct->fd, from, end - from, SYNC_FILE_RANGE_WRITE);
    if (from >= WRITE_BACK_BYTES) {
        (void)sync_file_range(direct->fd, from - WRITE_BACK_BYTES, WRITE_BACK_BYTES,
                              SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                  SYNC_FILE_RANGE_WAIT_AFTER);
    }
    direct->unsynced_from = end;
}

static void write_block(struct tern_direct *direct, const struct block *block)
{
    size_t done = 0;
    int stuck = 0;
    while (done < block->bytes) {
        ssize_t n = write_at(direct->fd, block->data + done, block->bytes - done,
                             block->offset + (int64_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EINVAL && direct->is_direct) {
            int flags = fcntl(direct->fd, F_GETFL);
            if (flags >= 0 && fcntl(direct->fd, F_SETFL, flags & ~O_DIRECT) == 0) {
                direct->is_direct = false;
                continue;
            }
            errno = EINVAL;
        }
        if (n < 0) {
            fail_with(direct, errno);
            return;
        }
        /* After a short write go on from an aligned place: some bytes are written twice. */
        size_t step = (size_t)n & ~(size_t)(DIRECT_ALIGN - 1);
        stuck = step == 0 ? stuck + 1 : 0;
        if (stuck == NO_PROGRESS_MAX) {
            fail_with(direct, EIO);
            return;
        }
        done += step;
    }
    if (!direct->is_direct) {
        push_out(direct, block->offset + (int64_t)block->bytes);
    }
}

static void *write_blocks(void *argument)
{
    struct tern_direct *direct = argument;
    pthread_mutex_lock(&direct->lock);
    for (;;) {
        while (direct->written == direct->handed && !direct->quits) {
            pthread_cond_wait(&direct->changed, &direct->lock);
        }
        if (direct->written == direct->handed) {
            break;
        }
        const struct block *block = &direct->blocks[direct->written % BLOCK_COUNT];
        pthread_mutex_unlock(&direct->lock);
        int64_t start_ns = tern_clock_ns();
        if (atomic_load(&direct->error) == 0) {
            write_block(direct, block);
        }
        double seconds = (double)(tern_clock_ns() - start_ns) * 1e-9;
        pthread_mutex_lock(&direct->lock);
        direct->write_seconds += seconds;
        direct->written++;
        pthread_cond_broadcast(&direct->changed);
    }
    pthread_mutex_unlock(&direct->lock);
    return NULL;
}

static int start_thread(struct tern_direct *direct)
{
    int error = tern_thread_start(&direct->thread, write_blocks, direct);
    direct->has_thread = error == 0;
    return error;
}

static tern_status open_files(struct tern_direct *direct)
{
    const char *path = direct->path;
    int error = tern_file_fault(TERN_FAULT_FILE_OPEN);
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot create '%s'", path);
    }
    direct->fd_buffered = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (direct->fd_buffered < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot create '%s'", path);
    }
    direct->fd = open(path, O_WRONLY | O_CLOEXEC | O_DIRECT);
    direct->is_direct = direct->fd >= 0;
    if (!direct->is_direct) {
        direct->fd = open(path, O_WRONLY | O_CLOEXEC);
    }
    if (direct->fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot open '%s'", path);
    }
    return TERN_OK;
}

static tern_status make_blocks(struct tern_direct *direct)
{
    size_t bytes = (size_t)BLOCK_COUNT * BLOCK_BYTES;
    direct->memory = tern_alloc("file staging", bytes + BLOCK_ALIGN);
    if (direct->memory == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot write '%s': no memory for %zu bytes of staging",
                         direct->path, bytes);
    }
    uintptr_t base = ((uintptr_t)direct->memory + BLOCK_ALIGN - 1) & ~(uintptr_t)(BLOCK_ALIGN - 1);
    (void)madvise((void *)base, bytes, MADV_HUGEPAGE);
    for (int i = 0; i < BLOCK_COUNT; i++) {
        direct->blocks[i].data = (uint8_t *)base + (size_t)i * BLOCK_BYTES;
    }
    return TERN_OK;
}

tern_status tern_direct_create(const char *path, bool wants_hash, struct tern_direct **out)
{
    struct tern_direct *direct = tern_alloc_zero("file staging", 1, sizeof *direct);
    if (direct == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to write '%s'", path);
    }
    direct->fd = direct->fd_buffered = -1;
    pthread_mutex_init(&direct->lock, NULL);
    pthread_cond_init(&direct->changed, NULL);
    tern_status status = tern_path_join(direct->path, "", path);
    if (status == TERN_OK) {
        status = make_blocks(direct);
    }
    if (status == TERN_OK && wants_hash) {
        status = tern_hash_create(&direct->hash);
    }
    if (status == TERN_OK) {
        status = open_files(direct);
    }
    if (status == TERN_OK) {
        int error = start_thread(direct);
        if (error != 0) {
            status = tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start a thread to write '%s'",
                                     path);
        }
    }
    if (status != TERN_OK) {
        tern_direct_abandon(direct);
        return status;
    }
    *out = direct;
    return TERN_OK;
}

tern_status tern_direct_reserve(struct tern_direct *direct, int64_t bytes)
{
    /* Not every file system can; what counts is the answer of one that can and has no room. */
    if (bytes > 0 && fallocate(direct->fd_buffered, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 &&
        (errno == ENOSPC || errno == EDQUOT)) {
        int error = errno;
        fail_with(direct, error);
        return tern_fail_errno(TERN_ERR_IO, error, "cannot reserve %lld bytes for '%s'",
                               (long long)bytes, direct->path);
    }
    return TERN_OK;
}

/* Gives the filled block to the thread and waits until the next one is free. */
static void hand_over(struct tern_direct *direct)
{
    struct block *block = &direct->blocks[direct->handed % BLOCK_COUNT];
    if (direct->hash != NULL && atomic_load(&direct->error) == 0) {
        tern_hash_update(direct->hash, block->data, direct->filled);
    }
    size_t padded = (direct->filled + DIRECT_ALIGN - 1) & ~(size_t)(DIRECT_ALIGN - 1);
    memset(block->data + direct->filled, 0, padded - direct->filled);
    block->bytes = padded;
    block->offset = direct->position - (int64_t)direct->filled;
    direct->filled = 0;
    pthread_mutex_lock(&direct->lock);
    direct->handed++;
    pthread_cond_broadcast(&direct->changed);
    while (direct->handed - direct->written >= BLOCK_COUNT) {
        pthread_cond_wait(&direct->changed, &direct->lock);
    }
    pthread_mutex_unlock(&direct->lock);
}

void tern_direct_append(struct tern_direct *direct, const void *data, int64_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0) {
        /* handed is only changed by this thread: reading it needs no lock */
        struct block *block = &direct->blocks[direct->handed % BLOCK_COUNT];
        size_t room = BLOCK_BYTES - direct->filled;
        size_t part = bytes < (int64_t)room ? (size_t)bytes : room;
        if (from != NULL) {
            memcpy(block->data + direct->filled, from, part);
            from += part;
        } else {
            memset(block->data + direct->filled, 0, part);
        }
        direct->filled += part;
        direct->position += (int64_t)part;
        bytes -= (int64_t)part;
        if (direct->filled == BLOCK_BYTES) {
            hand_over(direct);
        }
    }
}

int64_t tern_direct_position(const struct tern_direct *direct)
{
    return direct->position;
}

void tern_direct_drain(struct tern_direct *direct)
{
    if (!direct->has_thread) {
        return;
    }
    if (direct->filled > 0) {
        hand_over(direct);
    }
    pthread_mutex_lock(&direct->lock);
    direct->quits = true;
    pthread_cond_broadcast(&direct->changed);
    pthread_mutex_unlock(&direct->lock);
    pthread_join(direct->thread, NULL);
    direct->has_thread = false;
}

void tern_direct_patch(struct tern_direct *direct, int64_t offset, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    while (bytes > 0 && tern_direct_error(direct) == 0) {
        ssize_t n = write_at(direct->fd_buffered, from, bytes, offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            fail_with(direct, n < 0 ? errno : EIO);
            return;
        }
        from += n;
        offset += n;
        bytes -= (size_t)n;
    }
}

tern_status tern_direct_finish(struct tern_direct *direct,
                               int64_t bytes,
                               char hash_out[TERN_HASH_HEX_BYTES],
                               struct tern_direct_stats *stats_out)
{
    tern_direct_drain(direct);
    if (tern_direct_error(direct) == 0 && ftruncate(direct->fd_buffered, bytes) != 0) {
        fail_with(direct, errno);
    }
    int64_t start_ns = tern_clock_ns();
    if (tern_direct_error(direct) == 0) {
        int error = tern_file_fault(TERN_FAULT_FILE_FSYNC);
        if (error == 0 && fsync(direct->fd_buffered) != 0) {
            error = errno;
        }
        if (error != 0) {
            fail_with(direct, error);
        }
    }
    if (stats_out != NULL) {
        double seconds = direct->write_seconds + (double)(tern_clock_ns() - start_ns) * 1e-9;
        *stats_out = (struct tern_direct_stats){bytes, seconds, direct->is_direct};
    }
    if (hash_out != NULL && direct->hash != NULL) {
        tern_hash_hex(direct->hash, hash_out);
    }
    if (close(direct->fd_buffered) != 0) {
        fail_with(direct, errno);
    }
    direct->fd_buffered = -1;
    int error = tern_direct_error(direct);
    tern_status status = error == 0
                             ? TERN_OK
                             : tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s' (%lld bytes)",
                                               direct->path, (long long)bytes);
    tern_direct_abandon(direct);
    return status;
}

void tern_direct_abandon(struct tern_direct *direct)
{
    if (direct == NULL) {
        return;
    }
    if (direct->has_thread) {
        fail_with(direct, ECANCELED); /* what waits is dropped */
        direct->filled = 0;
        tern_direct_drain(direct);
    }
    if (direct->fd >= 0) {
        close(direct->fd);
    }
    if (direct->fd_buffered >= 0) {
        close(direct->fd_buffered);
    }
    tern_hash_destroy(direct->hash);
    tern_free(direct->memory);
    pthread_cond_destroy(&direct->changed);
    pthread_mutex_destroy(&direct->lock);
    tern_free(direct);
}
