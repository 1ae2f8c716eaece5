/* memory_find_impl.h - the list of blocks that all ranks have alike, shared by finding and reading. */
#ifndef TERN_RUNTIME_RECLAIM_MEMORY_FIND_IMPL_H
#define TERN_RUNTIME_RECLAIM_MEMORY_FIND_IMPL_H

#include "runtime/reclaim/memory_find.h"

/* One sealed block somewhere. Plain data. */
struct tern_memory_copy {
    char launch[TERN_SEGMENT_LAUNCH_BYTES];
    char name[TERN_SEGMENT_NAME_BYTES];
    int64_t step, bytes;
    int32_t ranks, rank;
    int32_t is_peer, is_bad;
    int32_t place; /* lowest rank that sees it */
};

struct tern_memory_found {
    struct tern_comm *comm; /* borrowed */
    uint64_t *places;       /* (ranks): equal numbers see the same blocks */
    struct tern_memory_copy *copies;
    int64_t copy_count;
    struct tern_memory_copy set; /* launch, step and ranks of what was chosen */
};

/* The lowest rank that sees the same folder; how many ranks before this one see it. */
int tern_memory_place_of(const struct tern_memory_found *found, int rank);
int tern_memory_place_index(const struct tern_memory_found *found, int rank);
/* Which of the ranks of a place answers for a shard there. */
int tern_memory_rank_of(const struct tern_memory_found *found, int place, int shard);
/* NULL: nobody has it. */
const struct tern_memory_copy *tern_memory_copy_of(const struct tern_memory_found *found,
                                                   int place,
                                                   int shard);

#endif
