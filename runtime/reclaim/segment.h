/* segment.h - one rank's shard of the state after one step, in named shared memory: layout, seal, and what a reader makes
 * sure of before it believes any of it.
 *
 *   head      one page: whose it is, which step, sizes, XXH3-128 of all that follows, and the seal (XXH3-64 of the head
 *             before it). The seal is taken away before anything else is changed and put back last: a block without one
 *             is being written, or its writer died then.
 *   table     which rows of which tensor lie where in the data
 *   state     the JSON that goes with a checkpoint
 *   data      f32: masters, first and second moments
 *
 * Names: tern-RUN-LAUNCH-RANK-SLOT, with "-peer" behind it for the copy that another host keeps; RUN and LAUNCH are hashes. */
#ifndef TERN_RUNTIME_RECLAIM_SEGMENT_H
#define TERN_RUNTIME_RECLAIM_SEGMENT_H

#include "io/checkpoint.h"
#include "io/hash.h"
#include "io/shm.h"

enum {
    TERN_SEGMENT_VERSION = 2,
    TERN_SEGMENT_HEAD_BYTES = 4096,
    TERN_SEGMENT_NAME_BYTES = 80,
    TERN_SEGMENT_LAUNCH_BYTES = 48,
    TERN_SEGMENT_OWNER_BYTES = 2048,
    TERN_SEGMENT_SLABS_MAX = 1 << 20,
};

struct tern_segment_head {
    char magic[8];
    int32_t version;
    int32_t ranks, rank;
    int32_t reserved;
    uint64_t run;
    int64_t step;
    int64_t slab_count;
    int64_t state_room;  /* bytes kept for the JSON */
    int64_t state_bytes; /* that it has, without the NUL behind it */
    int64_t data_bytes;
    char launch[TERN_SEGMENT_LAUNCH_BYTES];
    char owner[TERN_SEGMENT_OWNER_BYTES]; /* the run directory, for whoever tidies up */
    char hash[40];                        /* of everything behind the head */
    uint64_t config;     /* digest of the run's configuration; 0: the run has no name */
    int64_t sealed_unix; /* seconds since 1970 */
    uint64_t seal;       /* 0: none */
};

struct tern_segment_slab {
    char group[TERN_CKPT_NAME_BYTES];
    char name[TERN_CKPT_NAME_BYTES];
    int32_t dtype, rank;
    int64_t shape[TERN_CKPT_RANK_MAX];
    int64_t row_offset, row_count;
    int64_t at; /* byte in the data */
};

/* Who a run's memory belongs to. */
struct tern_segment_key {
    uint64_t run;    /* tern_memory_run_key */
    uint64_t config; /* as in the head */
    char launch[TERN_SEGMENT_LAUNCH_BYTES];
    char owner[TERN_SEGMENT_OWNER_BYTES];
};

/* What a block is to hold. Slabs are those of a checkpoint, their data inside the data_bytes from base on. */
struct tern_segment_layout {
    const struct tern_segment_key *key;
    int rank, ranks;
    const struct tern_ckpt_slab *slabs;
    int64_t slab_count;
    const void *base;
    int64_t data_bytes, state_room;
};

struct tern_segment {
    struct tern_shm shm; /* of a block that this process fills */
    struct tern_map map; /* of one that it reads */
    const struct tern_segment_head *head;
    const struct tern_segment_slab *slabs;
    const char *state;
    const uint8_t *data;
    uint64_t seal; /* as it was when the block was opened */
};

int64_t tern_segment_bytes(int64_t slab_count, int64_t state_room, int64_t data_bytes);
/* peer: of a copy that is kept for another host's rank. */
void tern_segment_name(const struct tern_segment_key *key,
                       int rank,
                       int slot,
                       bool is_peer,
                       char out[TERN_SEGMENT_NAME_BYTES]);

/* A block to fill: head and table are there, no seal. Owned: close, which leaves it in place. */
TERN_MUST_CHECK tern_status tern_segment_create(const char *name,
                                                const struct tern_segment_layout *layout,
                                                struct tern_segment *out);
/* The data, to be written between unseal and seal. */
uint8_t *tern_segment_data(struct tern_segment *segment);
void tern_segment_unseal(struct tern_segment *segment);
/* Hashes what is there and seals it as the state after `step`. TERN_ERR_ARGUMENT when the JSON has no room. */
TERN_MUST_CHECK tern_status tern_segment_seal(struct tern_segment *segment,
                                              int64_t step,
                                              const char *state_json);
/* Opens what somebody left, to be read. TERN_ERR_CORRUPT: not sealed, not ours, or its sizes are not those of a block.
 * The hash is verify's business. Owned: close. */
TERN_MUST_CHECK tern_status tern_segment_open(const char *name, struct tern_segment *out);
/* All that is behind the head has the head's hash, and the table lies inside the data. */
TERN_MUST_CHECK tern_status tern_segment_verify(const struct tern_segment *segment);
/* Nobody has written to it since it was opened. */
bool tern_segment_is_unchanged(const struct tern_segment *segment);
void tern_segment_close(struct tern_segment *segment);

/* The slabs of a table, with their data in this block. */
void tern_segment_slab_at(const struct tern_segment *segment,
                          int64_t index,
                          struct tern_ckpt_slab *out);
/* A table that came from elsewhere is one: names, shapes and places; data_bytes: what it lies in. */
TERN_MUST_CHECK tern_status tern_segment_check_slabs(const struct tern_segment_slab *slabs,
                                                     int64_t count,
                                                     int64_t data_bytes);

#endif
