/* zst.c - the only includer of zstd.h: shuffle, frames, the entropy probe and the pool of
 * compressing threads. */
#include "io/zst.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/thread.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#if defined(__SSE2__)
#    include <emmintrin.h>
#endif

#include <zstd.h>

enum {
    SAMPLES = 4096,
    ELEMENT_BYTES_MAX = 8,
    THREADS_MAX = 64
};
static const unsigned long long CONTENT_BYTES_MAX = 1ull << 32; /* an HDF5 chunk is smaller */

/* ---- probe ---- */

double tern_zst_estimate(const void *data, size_t bytes, size_t element_bytes)
{
    size_t count = element_bytes > 0 ? bytes / element_bytes : 0;
    if (count == 0 || element_bytes > ELEMENT_BYTES_MAX) {
        return 1;
    }
    size_t samples = count < SAMPLES ? count : SAMPLES;
    const uint8_t *from = data;
    double bits = 0;
    for (size_t plane = 0; plane < element_bytes; plane++) {
        uint32_t seen[256] = {0};
        for (size_t i = 0; i < samples; i++) {
            size_t element = (size_t)((unsigned __int128)i * count / samples);
            seen[from[element * element_bytes + plane]]++;
        }
        for (int value = 0; value < 256; value++) {
            if (seen[value] > 0) {
                double share = (double)seen[value] / (double)samples;
                bits -= share * log2(share);
            }
        }
    }
    return bits / (8.0 * (double)element_bytes);
}

/* ---- shuffle ---- */

#if defined(__SSE2__)

/* 16 elements of 4 bytes to 16 bytes of each plane; returns how many elements were done. */
static size_t shuffle4(const uint8_t *src, size_t count, uint8_t *dst)
{
    const __m128i low = _mm_set1_epi32(0xff);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i v[4];
        for (int k = 0; k < 4; k++) {
            v[k] = _mm_loadu_si128((const __m128i *)(src + 4 * i) + k);
        }
        for (size_t plane = 0; plane < 4; plane++) {
            __m128i a = _mm_packs_epi32(_mm_and_si128(v[0], low), _mm_and_si128(v[1], low));
            __m128i b = _mm_packs_epi32(_mm_and_si128(v[2], low), _mm_and_si128(v[3], low));
            _mm_storeu_si128((__m128i *)(dst + plane * count + i), _mm_packus_epi16(a, b));
            for (int k = 0; k < 4; k++) {
                v[k] = _mm_srli_epi32(v[k], 8);
            }
        }
    }
    return i;
}

static size_t shuffle2(const uint8_t *src, size_t count, uint8_t *dst)
{
    const __m128i low = _mm_set1_epi16(0xff);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(src + 2 * i));
        __m128i b = _mm_loadu_si128((const __m128i *)(src + 2 * i) + 1);
        __m128i even = _mm_packus_epi16(_mm_and_si128(a, low), _mm_and_si128(b, low));
        __m128i odd = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
        _mm_storeu_si128((__m128i *)(dst + i), even);
        _mm_storeu_si128((__m128i *)(dst + count + i), odd);
    }
    return i;
}

static size_t unshuffle4(const uint8_t *src, size_t count, uint8_t *dst)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i p0 = _mm_loadu_si128((const __m128i *)(src + i));
        __m128i p1 = _mm_loadu_si128((const __m128i *)(src + count + i));
        __m128i p2 = _mm_loadu_si128((const __m128i *)(src + 2 * count + i));
        __m128i p3 = _mm_loadu_si128((const __m128i *)(src + 3 * count + i));
        __m128i low01 = _mm_unpacklo_epi8(p0, p1), high01 = _mm_unpackhi_epi8(p0, p1);
        __m128i low23 = _mm_unpacklo_epi8(p2, p3), high23 = _mm_unpackhi_epi8(p2, p3);
        __m128i *to = (__m128i *)(dst + 4 * i);
        _mm_storeu_si128(to + 0, _mm_unpacklo_epi16(low01, low23));
        _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(low01, low23));
        _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(high01, high23));
        _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(high01, high23));
    }
    return i;
}

static size_t unshuffle2(const uint8_t *src, size_t count, uint8_t *dst)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i p0 = _mm_loadu_si128((const __m128i *)(src + i));
        __m128i p1 = _mm_loadu_si128((const __m128i *)(src + count + i));
        _mm_storeu_si128((__m128i *)(dst + 2 * i), _mm_unpacklo_epi8(p0, p1));
        _mm_storeu_si128((__m128i *)(dst + 2 * i) + 1, _mm_unpackhi_epi8(p0, p1));
    }
    return i;
}

#endif

void tern_zst_shuffle(const void *src, size_t bytes, size_t element_bytes, void *dst)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    size_t count = element_bytes > 0 ? bytes / element_bytes : 0;
    size_t done = 0;
#if defined(__SSE2__)
    if (element_bytes == 4) {
        done = shuffle4(from, count, to);
    } else if (element_bytes == 2) {
        done = shuffle2(from, count, to);
    }
#endif
    for (size_t plane = 0; plane < element_bytes; plane++) {
        for (size_t i = done; i < count; i++) {
            to[plane * count + i] = from[i * element_bytes + plane];
        }
    }
    size_t whole = count * element_bytes;
    memcpy(to + whole, from + whole, bytes - whole);
}

void tern_zst_unshuffle(const void *src, size_t bytes, size_t element_bytes, void *dst)
{
    const uint8_t *from = src;
    uint8_t *to = dst;
    size_t count = element_bytes > 0 ? bytes / element_bytes : 0;
    size_t done = 0;
#if defined(__SSE2__)
    if (element_bytes == 4) {
        done = unshuffle4(from, count, to);
    } else if (element_bytes == 2) {
        done = unshuffle2(from, count, to);
    }
#endif
    for (size_t plane = 0; plane < element_bytes; plane++) {
        for (size_t i = done; i < count; i++) {
            to[i * element_bytes + plane] = from[plane * count + i];
        }
    }
    size_t whole = count * element_bytes;
    memcpy(to + whole, from + whole, bytes - whole);
}

/* ---- frames ---- */

tern_status tern_zst_check_level(int level)
{
    if (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel() || level == 0) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "zstd level %d is out of range, expected 1 to %d (or below 0: faster)",
                         level, ZSTD_maxCLevel());
    }
    return TERN_OK;
}

size_t tern_zst_bound(size_t bytes)
{
    return ZSTD_compressBound(bytes);
}

static tern_status compress_with(ZSTD_CCtx *zstd,
                                 const void *src,
                                 size_t bytes,
                                 void *dst,
                                 size_t capacity,
                                 size_t *bytes_out)
{
    size_t n = ZSTD_compress2(zstd, dst, capacity, src, bytes);
    if (ZSTD_isError(n)) {
        return tern_fail(TERN_ERR_MEMORY, "zstd cannot compress %zu bytes: %s", bytes,
                         ZSTD_getErrorName(n));
    }
    *bytes_out = n;
    return TERN_OK;
}

static ZSTD_CCtx *make_context(int level)
{
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    if (zstd != NULL &&
        ZSTD_isError(ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, level))) {
        ZSTD_freeCCtx(zstd);
        return NULL;
    }
    return zstd;
}

tern_status tern_zst_compress(const void *src,
                              size_t bytes,
                              int level,
                              void *dst,
                              size_t capacity,
                              size_t *bytes_out)
{
    ZSTD_CCtx *zstd = make_context(level);
    if (zstd == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a zstd context of level %d", level);
    }
    tern_status status = compress_with(zstd, src, bytes, dst, capacity, bytes_out);
    ZSTD_freeCCtx(zstd);
    return status;
}

tern_status tern_zst_decompress(const void *src, size_t src_bytes, void *dst, size_t bytes)
{
    size_t n = ZSTD_decompress(dst, bytes, src, src_bytes);
    if (ZSTD_isError(n)) {
        return tern_fail(TERN_ERR_CORRUPT, "zstd cannot read a frame of %zu bytes: %s", src_bytes,
                         ZSTD_getErrorName(n));
    }
    if (n != bytes) {
        return tern_fail(TERN_ERR_CORRUPT, "a zstd frame holds %zu bytes, expected %zu", n, bytes);
    }
    return TERN_OK;
}

size_t tern_zst_content_bytes(const void *src, size_t src_bytes)
{
    unsigned long long bytes = ZSTD_getFrameContentSize(src, src_bytes);
    bool is_known = bytes != ZSTD_CONTENTSIZE_UNKNOWN && bytes != ZSTD_CONTENTSIZE_ERROR;
    return is_known && bytes < CONTENT_BYTES_MAX ? (size_t)bytes : 0;
}

/* ---- pool ---- */

enum slot_state {
    SLOT_FREE,
    SLOT_BUSY,
    SLOT_DONE
};

struct slot {
    enum slot_state state;
    uint8_t *packed;    /* bound(chunk_bytes_max) */
    uint8_t *padded;    /* chunk_bytes_max: the last chunk of an array */
    const void *result; /* in packed, padded or the array */
    size_t result_bytes;
    bool is_raw;
    tern_status status;
    char detail[TERN_DETAIL_BYTES];
};

struct worker {
    struct tern_zst_pool *pool;
    pthread_t thread;
    ZSTD_CCtx *zstd;
    uint8_t *planes; /* chunk_bytes_max */
};

struct tern_zst_pool {
    int threads; /* started */
    int worker_count;
    int slot_count;
    size_t chunk_bytes_max;
    struct worker *workers;
    struct slot *slots; /* chunk i uses slot i % slot_count */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    const struct tern_zst_array *array; /* all below under lock */
    int64_t chunk_count, claimed, limit;
    bool quits;
};

static void pack_chunk(struct worker *worker,
                       const struct tern_zst_array *array,
                       int64_t chunk,
                       struct slot *slot)
{
    size_t bytes = array->chunk_bytes;
    size_t offset = (size_t)chunk * bytes;
    size_t left = array->bytes - offset;
    const uint8_t *from = (const uint8_t *)array->data + offset;
    if (left < bytes) {
        memcpy(slot->padded, from, left);
        memset(slot->padded + left, 0, bytes - left);
        from = slot->padded;
    }
    tern_zst_shuffle(from, bytes, array->element_bytes, worker->planes);
    slot->result = slot->packed;
    slot->status = compress_with(worker->zstd, worker->planes, bytes, slot->packed,
                                 tern_zst_bound(bytes), &slot->result_bytes);
    if (slot->status != TERN_OK) {
        strcpy(slot->detail, tern_detail());
    }
    slot->is_raw = slot->status == TERN_OK && slot->result_bytes >= bytes;
    if (slot->is_raw) {
        slot->result = from;
        slot->result_bytes = bytes;
    }
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct tern_zst_pool *pool = worker->pool;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->claimed >= pool->limit && !pool->quits) {
            pthread_cond_wait(&pool->work, &pool->lock);
        }
        if (pool->quits) {
            break;
        }
        int64_t chunk = pool->claimed++;
        const struct tern_zst_array *array = pool->array;
        struct slot *slot = &pool->slots[chunk % pool->slot_count];
        slot->state = SLOT_BUSY;
        pthread_mutex_unlock(&pool->lock);
        pack_chunk(worker, array, chunk, slot);
        pthread_mutex_lock(&pool->lock);
        slot->state = SLOT_DONE;
        pthread_cond_broadcast(&pool->done);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static tern_status start_workers(struct tern_zst_pool *pool, int threads)
{
    int error = 0;
    for (int i = 0; i < threads && error == 0; i++) {
        error = tern_thread_start(&pool->workers[i].thread, work, &pool->workers[i]);
        pool->threads += error == 0;
    }
    return error == 0
               ? TERN_OK
               : tern_fail_errno(TERN_ERR_MEMORY, error, "cannot start a thread that compresses");
}

tern_status tern_zst_pool_create(int threads,
                                 int level,
                                 size_t chunk_bytes_max,
                                 struct tern_zst_pool **out)
{
    TERN_RETURN_IF_ERR(tern_zst_check_level(level));
    threads = threads < 0 ? 0 : threads > THREADS_MAX ? THREADS_MAX : threads;
    struct tern_zst_pool *pool = tern_alloc_zero("compression", 1, sizeof *pool);
    if (pool == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for the compressing threads");
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    pool->worker_count = threads > 0 ? threads : 1;
    pool->slot_count = threads > 0 ? 2 * threads + 1 : 1;
    pool->chunk_bytes_max = chunk_bytes_max;
    pool->workers =
        tern_alloc_zero("compression", (size_t)pool->worker_count, sizeof *pool->workers);
    pool->slots = tern_alloc_zero("compression", (size_t)pool->slot_count, sizeof *pool->slots);
    bool ok = pool->workers != NULL && pool->slots != NULL;
    for (int i = 0; ok && i < pool->worker_count; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->zstd = make_context(level);
        worker->planes = tern_alloc("compression", chunk_bytes_max);
        ok = worker->zstd != NULL && worker->planes != NULL;
    }
    for (int i = 0; ok && i < pool->slot_count; i++) {
        pool->slots[i].packed = tern_alloc("compression", tern_zst_bound(chunk_bytes_max));
        pool->slots[i].padded = tern_alloc("compression", chunk_bytes_max);
        ok = pool->slots[i].packed != NULL && pool->slots[i].padded != NULL;
    }
    tern_status status =
        ok ? start_workers(pool, threads)
           : tern_fail(TERN_ERR_MEMORY, "no memory for %d compressing threads", threads);
    if (status != TERN_OK) {
        tern_zst_pool_destroy(pool);
        return status;
    }
    *out = pool;
    return TERN_OK;
}

void tern_zst_pool_destroy(struct tern_zst_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->quits = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->threads; i++) {
        pthread_join(pool->workers[i].thread, NULL);
    }
    for (int i = 0; pool->workers != NULL && i < pool->worker_count; i++) {
        ZSTD_freeCCtx(pool->workers[i].zstd);
        tern_free(pool->workers[i].planes);
    }
    for (int i = 0; pool->slots != NULL && i < pool->slot_count; i++) {
        tern_free(pool->slots[i].packed);
        tern_free(pool->slots[i].padded);
    }
    tern_free(pool->workers);
    tern_free(pool->slots);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    tern_free(pool);
}

/* Waits for (or makes) the slot of this chunk. */
static void await_chunk(struct tern_zst_pool *pool, int64_t chunk, struct slot *slot)
{
    if (pool->threads == 0) {
        pack_chunk(&pool->workers[0], pool->array, chunk, slot);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    while (slot->state != SLOT_DONE) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}

static void release_slot(struct tern_zst_pool *pool, int64_t chunk, struct slot *slot)
{
    pthread_mutex_lock(&pool->lock);
    slot->state = SLOT_FREE;
    int64_t limit = chunk + 1 + pool->slot_count;
    pool->limit = limit < pool->chunk_count ? limit : pool->chunk_count;
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

/* No thread may touch the array after this. */
static void stop_claims(struct tern_zst_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->limit = pool->claimed;
    for (int i = 0; i < pool->slot_count; i++) {
        while (pool->slots[i].state == SLOT_BUSY) {
            pthread_cond_wait(&pool->done, &pool->lock);
        }
        pool->slots[i].state = SLOT_FREE;
    }
    pthread_mutex_unlock(&pool->lock);
}

tern_status tern_zst_pool_run(struct tern_zst_pool *pool,
                              const struct tern_zst_array *array,
                              tern_zst_sink sink,
                              void *context)
{
    TERN_CHECK(array->chunk_bytes > 0 && array->chunk_bytes <= pool->chunk_bytes_max);
    TERN_CHECK(array->element_bytes > 0 && array->chunk_bytes % array->element_bytes == 0);
    int64_t count = (int64_t)((array->bytes + array->chunk_bytes - 1) / array->chunk_bytes);
    pthread_mutex_lock(&pool->lock);
    pool->array = array;
    pool->chunk_count = count;
    pool->claimed = 0;
    pool->limit = pool->threads == 0 ? 0 : count < pool->slot_count ? count : pool->slot_count;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    tern_status status = TERN_OK;
    for (int64_t chunk = 0; chunk < count && status == TERN_OK; chunk++) {
        struct slot *slot = &pool->slots[chunk % pool->slot_count];
        await_chunk(pool, chunk, slot);
        status = slot->status;
        if (status != TERN_OK) {
            tern_detail_set(slot->detail);
        } else {
            status = sink(context, chunk, slot->result, slot->result_bytes, slot->is_raw);
        }
        if (pool->threads > 0) {
            release_slot(pool, chunk, slot);
        }
    }
    stop_claims(pool);
    return status;
}
