/* mem.h - the only caller of the allocator: every block has a tag, counts can be read, and a thread can
 * declare that from now on it allocates nothing (the training thread does, after its first step). */
#ifndef TERN_RUNTIME_BASE_MEM_H
#define TERN_RUNTIME_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_mem_stats {
    int64_t live_blocks;
    int64_t live_bytes;
    int64_t peak_bytes;
    int64_t total_blocks;      /* allocations since the start */
    int64_t frozen_violations; /* allocations made by a frozen thread */
};

/* 64-byte aligned, not cleared. Returns NULL when exhausted or bytes overflow; bytes == 0 gives a valid block.
 * `tag` is a static string: what the memory is for. Owner frees with tern_free. */
void *tern_alloc(const char *tag, size_t bytes);
/* count * bytes checked for overflow, cleared to zero. Large blocks are fresh mappings: their pages are taken when they
 * are first touched, so that asking for gigabytes costs nothing yet. */
void *tern_alloc_zero(const char *tag, size_t count, size_t bytes);
/* Grows or shrinks; `block` may be NULL. On failure returns NULL and leaves the block as it was. */
void *tern_realloc(const char *tag, void *block, size_t bytes);
char *tern_strdup(const char *tag, const char *text);
void tern_free(void *block);

struct tern_mem_stats tern_mem_stats(void);
/* This thread's allocations are violations from now on (true) or normal (false). With TERN_MEM_FREEZE=abort
 * in the environment a violation aborts and names the tag; otherwise it is counted. */
void tern_mem_freeze(bool frozen);

#endif
