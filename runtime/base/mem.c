/* mem.c - tagged, counted, aligned allocation. */
#include "runtime/base/mem.h"

#include "runtime/base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 64
};

/* Stands in front of every block; ALIGN bytes, so that the block stays aligned. */
struct header {
    size_t bytes;
    const char *tag;
    char pad[ALIGN - sizeof(size_t) - sizeof(const char *)];
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

void *tern_alloc(const char *tag, size_t bytes)
{
    if (g_frozen) {
        note_violation(tag, bytes);
    }
    size_t total;
    if (__builtin_add_overflow(bytes, sizeof(struct header) + ALIGN - 1, &total)) {
        return NULL;
    }
    total &= ~(size_t)(ALIGN - 1);
    struct header *head = aligned_alloc(ALIGN, total);
    if (head == NULL) {
        return NULL;
    }
    head->bytes = bytes;
    head->tag = tag;
    atomic_fetch_add(&g_live_blocks, 1);
    atomic_fetch_add(&g_total_blocks, 1);
    int64_t live = atomic_fetch_add(&g_live_bytes, (int64_t)bytes) + (int64_t)bytes;
    int64_t peak = atomic_load(&g_peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&g_peak_bytes, &peak, live)) {
    }
    return head + 1;
}

void *tern_alloc_zero(const char *tag, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        return NULL;
    }
    void *block = tern_alloc(tag, total);
    if (block != NULL) {
        memset(block, 0, total);
    }
    return block;
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
