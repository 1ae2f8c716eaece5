/* arena.h - one block carved from the front; freed as a whole or back to a mark. */
#ifndef TERN_RUNTIME_BASE_ARENA_H
#define TERN_RUNTIME_BASE_ARENA_H

#include "runtime/base/status.h"

#include <stddef.h>

struct tern_arena {
    char *base;
    size_t size_bytes;
    size_t used_bytes;
    size_t peak_bytes;
};

/* Takes size_bytes from tern_alloc under `tag`. */
TERN_MUST_CHECK tern_status tern_arena_init(struct tern_arena *arena,
                                            const char *tag,
                                            size_t size_bytes);
void tern_arena_fini(struct tern_arena *arena);
/* 64-byte aligned, not cleared; NULL when the arena is full. */
void *tern_arena_alloc(struct tern_arena *arena, size_t bytes);
size_t tern_arena_mark(const struct tern_arena *arena);
void tern_arena_reset(struct tern_arena *arena, size_t mark);

#endif
