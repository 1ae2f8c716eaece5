/* mem.c - tagged, counted, aligned allocation. */
#include "runtime/base/mem.h"

#include "runtime/base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ALIGN = 64,
    MAP_BYTES =
        4 << 20, /* zeroed blocks from here on are fresh mappings: pages cost when they are used */
};

/* Stands in front of every block; ALIGN bytes, so that the block stays aligned. */
struct header {
    size_t bytes;
    const char *tag;
    size_t mapped_bytes; /* 0: from the allocator; else the size of a mapping of its own */
    char pad[ALIGN - 2 * sizeof(size_t) - sizeof(const char *)];
};

static _Atomic int64_t g_live_blocks;
static _Atomic int64_t g_live_bytes;
static _Atomic int64_t g_peak_bytes;
static _Atomic int64_t g_total_blocks;
static _Atomic int64_t g_violations;
static _Thread_local bool g_frozen;

static void note_violation(const char *tag, size_t bytes)
{
    atomic_fetch_add(&g_violations, 1);
    const char *mode = getenv("TERN_MEM_FREEZE");
    if (mode != NULL && strcmp(mode, "abort") == 0) {
        tern_log_error("allocation of %zu bytes for '%s' after the freeze", bytes, tag);
        abort();
    }
}

/* Counts a new block and hands out what follows its header. */
static void *enter(struct header *head, const char *tag, size_t bytes, size_t mapped_bytes)
{
    head->bytes = bytes;
    head->tag = tag;
    head->mapped_bytes = mapped_bytes;
    atomic_fetch_add(&g_live_blocks, 1);
    atomic_fetch_add(&g_total_blocks, 1);
    int64_t live = atomic_fetch_add(&g_live_bytes, (int64_t)bytes) + (int64_t)bytes;
    int64_t peak = atomic_load(&g_peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&g_peak_bytes, &peak, live)) {
    }
    return head + 1;
}

/* Bytes with header, rounded up to ALIGN; 0 on overflow. */
static size_t with_header(size_t bytes)
{
    size_t total;
    if (__builtin_add_overflow(bytes, sizeof(struct header) + ALIGN - 1, &total)) {
        return 0;
    }
    return total & ~(size_t)(ALIGN - 1);
}

void *tern_alloc(const char *tag, size_t bytes)
{
    if (g_frozen) {
        note_violation(tag, bytes);
    }
    size_t total = with_header(bytes);
    struct header *head = total > 0 ? aligned_alloc(ALIGN, total) : NULL;
    return head != NULL ? enter(head, tag, bytes, 0) : NULL;
}

void *tern_alloc_zero(const char *tag, size_t count, size_t bytes)
{
    size_t wanted;
    if (__builtin_mul_overflow(count, bytes, &wanted)) {
        return NULL;
    }
    if (wanted < MAP_BYTES) {
        void *block = tern_alloc(tag, wanted);
        if (block != NULL) {
            memset(block, 0, wanted);
        }
        return block;
    }
    if (g_frozen) {
        note_violation(tag, wanted);
    }
    size_t total = with_header(wanted);
    void *head = total > 0
                     ? mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                     : MAP_FAILED;
    return head != MAP_FAILED ? enter(head, tag, wanted, total) : NULL;
}

void *tern_realloc(const char *tag, void *block, size_t bytes)
{
    void *grown = tern_alloc(tag, bytes);
    if (grown != NULL && block != NULL) {
        size_t old = ((struct header *)block - 1)->bytes;
        memcpy(grown, block, old < bytes ? old : bytes);
        tern_free(block);
    }
    return grown;
}

char *tern_strdup(const char *tag, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = tern_alloc(tag, bytes);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
    }
    return copy;
}

void tern_free(void *block)
{
    if (block == NULL) {
        return;
    }
    struct header *head = (struct header *)block - 1;
    atomic_fetch_sub(&g_live_blocks, 1);
    atomic_fetch_sub(&g_live_bytes, (int64_t)head->bytes);
    if (head->mapped_bytes > 0) {
        munmap(head, head->mapped_bytes);
        return;
    }
    free(head);
}

struct tern_mem_stats tern_mem_stats(void)
{
    return (struct tern_mem_stats){
        .live_blocks = atomic_load(&g_live_blocks),
        .live_bytes = atomic_load(&g_live_bytes),
        .peak_bytes = atomic_load(&g_peak_bytes),
        .total_blocks = atomic_load(&g_total_blocks),
        .frozen_violations = atomic_load(&g_violations),
    };
}

void tern_mem_freeze(bool frozen)
{
    g_frozen = frozen;
}
