/* arena.c - bump allocation with marks; freed ranges are poisoned under AddressSanitizer. */
#include "runtime/base/arena.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#    include <sanitizer/asan_interface.h>
#    define POISON(address, bytes)   ASAN_POISON_MEMORY_REGION(address, bytes)
#    define UNPOISON(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#else
#    define POISON(address, bytes)   ((void)0)
#    define UNPOISON(address, bytes) ((void)0)
#endif

enum {
    ALIGN = 64
};

tern_status tern_arena_init(struct tern_arena *arena, const char *tag, size_t size_bytes)
{
    *arena = (struct tern_arena){.base = tern_alloc(tag, size_bytes), .size_bytes = size_bytes};
    if (arena->base == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes for %s", size_bytes, tag);
    }
    POISON(arena->base, size_bytes);
    return TERN_OK;
}

void tern_arena_fini(struct tern_arena *arena)
{
    if (arena->base != NULL) {
        UNPOISON(arena->base, arena->size_bytes);
    }
    tern_free(arena->base);
    *arena = (struct tern_arena){0};
}

void *tern_arena_alloc(struct tern_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - ALIGN) {
        return NULL;
    }
    size_t rounded = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (rounded > arena->size_bytes - arena->used_bytes) {
        return NULL;
    }
    void *block = arena->base + arena->used_bytes;
    UNPOISON(block, bytes);
    arena->used_bytes += rounded;
    if (arena->used_bytes > arena->peak_bytes) {
        arena->peak_bytes = arena->used_bytes;
    }
    return block;
}

size_t tern_arena_mark(const struct tern_arena *arena)
{
    return arena->used_bytes;
}

void tern_arena_reset(struct tern_arena *arena, size_t mark)
{
    TERN_CHECK(mark <= arena->used_bytes);
    POISON(arena->base + mark, arena->used_bytes - mark);
    arena->used_bytes = mark;
}
