/* memory_fixture.h - a made-up state of a few tensors, cut among any number of ranks, whose every value says which step,
 * tensor and place it is. */
#ifndef TERN_TESTS_RUNTIME_RECLAIM_MEMORY_FIXTURE_H
#define TERN_TESTS_RUNTIME_RECLAIM_MEMORY_FIXTURE_H

#include "runtime/reclaim/memory.h"
#include "runtime/reclaim/memory_find.h"
#include "tests/runtime/fixture.h"

enum {
    MEMORY_TENSORS = 3,
    MEMORY_ROWS = 17,
    MEMORY_WIDTH = 301,
    MEMORY_STATE_ROOM = 512
};

static const char *const memory_names[MEMORY_TENSORS] = {"a.weight", "b.weight", "c.bias"};

static inline float memory_value(int64_t step, int tensor, int64_t row, int64_t column)
{
    return (float)(step * 31 + tensor * 7 + row) + (float)column / 512;
}

/* Rows of each tensor that a rank has. */
static inline int64_t memory_first_row(int rank, int ranks)
{
    return (int64_t)MEMORY_ROWS * rank / ranks;
}

static inline int64_t memory_row_count(int rank, int ranks)
{
    return memory_first_row(rank + 1, ranks) - memory_first_row(rank, ranks);
}

static inline int64_t memory_data_bytes(int rank, int ranks)
{
    return MEMORY_TENSORS * memory_row_count(rank, ranks) * MEMORY_WIDTH * (int64_t)sizeof(float);
}

/* slabs: MEMORY_TENSORS of them. */
static inline void memory_slabs(int rank,
                                int ranks,
                                const float *base,
                                struct tern_ckpt_slab *slabs)
{
    for (int tensor = 0; tensor < MEMORY_TENSORS; tensor++) {
        slabs[tensor] = (struct tern_ckpt_slab){
            .group = "model",
            .name = memory_names[tensor],
            .dtype = TERN_F32,
            .rank = 2,
            .global_shape = {MEMORY_ROWS, MEMORY_WIDTH},
            .row_offset = memory_first_row(rank, ranks),
            .row_count = memory_row_count(rank, ranks),
            .data = base + tensor * memory_row_count(rank, ranks) * MEMORY_WIDTH,
        };
    }
}

static inline void memory_fill(int rank, int ranks, int64_t step, float *base)
{
    for (int tensor = 0; tensor < MEMORY_TENSORS; tensor++) {
        for (int64_t row = 0; row < memory_row_count(rank, ranks); row++) {
            for (int64_t column = 0; column < MEMORY_WIDTH; column++) {
                *base++ = memory_value(step, tensor, memory_first_row(rank, ranks) + row, column);
            }
        }
    }
}

static inline void memory_layout(const struct tern_segment_key *key,
                                 int rank,
                                 int ranks,
                                 struct tern_ckpt_slab *slabs,
                                 struct tern_segment_layout *out)
{
    static const float base[MEMORY_TENSORS * MEMORY_ROWS * MEMORY_WIDTH];
    memory_slabs(rank, ranks, base, slabs);
    *out = (struct tern_segment_layout){
        .key = key,
        .rank = rank,
        .ranks = ranks,
        .slabs = slabs,
        .slab_count = MEMORY_TENSORS,
        .base = base,
        .data_bytes = memory_data_bytes(rank, ranks),
        .state_room = MEMORY_STATE_ROOM,
    };
}

/* What a restore has seen. */
struct memory_seen {
    int64_t step;
    int64_t elements;
};

static inline tern_status memory_sink(void *context, const struct tern_ckpt_slab *rows)
{
    struct memory_seen *seen = context;
    int tensor = 0;
    while (tensor < MEMORY_TENSORS && strcmp(rows->name, memory_names[tensor]) != 0) {
        tensor++;
    }
    MUST(tensor < MEMORY_TENSORS, "a tensor %s", rows->name);
    const float *data = rows->data;
    for (int64_t row = 0; row < rows->row_count; row++) {
        for (int64_t column = 0; column < MEMORY_WIDTH; column++) {
            float expected = memory_value(seen->step, tensor, rows->row_offset + row, column);
            MUST(*data == expected, "step %lld, %s[%lld][%lld]: %g, expected %g",
                 (long long)seen->step, rows->name, (long long)(rows->row_offset + row),
                 (long long)column, (double)*data, (double)expected);
            data++;
            seen->elements++;
        }
    }
    return TERN_OK;
}

#endif
