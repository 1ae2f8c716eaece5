/* state.h - everything a training run is at a step boundary, and which part of it this rank owns.
 *
 * Every rank holds all weights (in the compute dtype) to run the passes. The fp32 masters and the
 * two moments are sharded: of each bucket a rank owns one range of whole rows, the one where the
 * lane tree's reduce-scatter leaves its sum; it updates that, and an all-gather gives the weights
 * back to all. That moves as many bytes as an all-reduce of gradients, does the optimizer's work
 * once instead of once a rank, and holds its state once. */
#ifndef TERN_RUNTIME_TRAIN_STATE_H
#define TERN_RUNTIME_TRAIN_STATE_H

#include "comm/lane_tree.h"
#include "io/checkpoint.h"
#include "models/transformer.h"
#include "runtime/generate/weights.h"

struct tern_bucket_shard {
    const struct tern_range *ranges; /* one a rank: elements within the bucket */
    int64_t own_begin, own_end;      /* this rank's, in the flat block */
    int64_t at;                      /* where it lies in the shard arrays */
    int64_t first_block, end_block;  /* blocks (params.h) of the own range */
};

/* One bucket's all-gather of weights, while it is under way. */
struct tern_weight_gather {
    struct tern_dptr data;
    struct tern_range ranges[TERN_LANES_MAX]; /* bytes */
    uint64_t ticket;
    bool is_under_way; /* and nobody has waited yet */
};

struct tern_train_state {
    const struct tern_params *params; /* what is trained: a model's, or those of its adapters */
    enum tern_dtype dtype;            /* of weights */
    struct tern_device *device;
    struct tern_comm *comm; /* words between ranks: host memory */
    struct tern_comm
        *data_comm;             /* gradients and weights: the device's memory; on a host the same */
    struct tern_device *copier; /* queue of the snapshots; NULL on a host */
    struct tern_lane_plan plan;
    struct tern_bucket_shard *buckets;
    struct tern_range *ranges; /* (bucket_count, ranks) */
    struct tern_weight_gather *gathers;
    int64_t shard_size;       /* elements this rank owns */
    int64_t block_count;      /* blocks this rank owns */
    struct tern_dptr weights; /* dtype (flat): what the passes read */
    struct tern_dptr
        master; /* f32 (shard), or null in fp32: the weights themselves are the masters */
    struct tern_dptr exp_avg, exp_avg_sq;        /* f32 (shard) */
    struct tern_dptr grads[TERN_LANE_NODES_MAX]; /* f32 (flat), plan.buffers of them */
    struct tern_dptr reduce_scratch;
    int64_t reduce_scratch_floats;
    /* progress */
    int64_t step;    /* steps done */
    int64_t updates; /* optimizer updates done: step less what a non-finite gradient skipped */
    int64_t tokens;  /* target tokens seen */
};

struct tern_state_bytes {
    int64_t weights, gradients, master, moments, reduce;
};

/* Ownership only: no device memory. chunk_floats: of a message of a reduction; 0: what suits a host. Owns its tables:
 * fini. */
TERN_MUST_CHECK tern_status tern_train_state_plan(struct tern_train_state *state,
                                                  const struct tern_params *params,
                                                  enum tern_dtype dtype,
                                                  struct tern_comm *comm,
                                                  int lanes,
                                                  int64_t chunk_floats);
struct tern_state_bytes tern_train_state_bytes(const struct tern_train_state *state);
TERN_MUST_CHECK tern_status tern_train_state_alloc(struct tern_train_state *state,
                                                   struct tern_device *device);
/* Makes the blocks that messages lie in known to the communicator. Collective. */
TERN_MUST_CHECK tern_status tern_train_state_adopt(struct tern_train_state *state);
void tern_train_state_fini(struct tern_train_state *state);

/* f32 address of the master of element own_begin of a bucket. */
struct tern_dptr tern_train_state_master(const struct tern_train_state *state, int bucket);
/* Masters fresh from the seed, or those of a MODEL, with zero moments; or all three from an open
 * checkpoint, whatever rank count wrote it. Only what this rank owns: when every rank has done it
 * (a failure of one is known to all first), publish. threads: helpers on the host. */
TERN_MUST_CHECK tern_status tern_train_state_init(struct tern_train_state *state,
                                                  uint64_t seed,
                                                  int threads);
TERN_MUST_CHECK tern_status tern_train_state_adopt_model(struct tern_train_state *state,
                                                         struct tern_weights *weights);
TERN_MUST_CHECK tern_status tern_train_state_load(struct tern_train_state *state,
                                                  struct tern_ckpt_reader *reader);
/* The same from rows that come in any order: of some rows of one tensor what this rank owns. *elements is advanced by what
 * that was; when all have come it is tern_train_state_elements. TERN_ERR_CONFIG: not of this model. */
TERN_MUST_CHECK tern_status tern_train_state_put(const struct tern_train_state *state,
                                                 const struct tern_ckpt_slab *rows,
                                                 int64_t *elements);
int64_t tern_train_state_elements(const struct tern_train_state *state);
/* Moments of zero again, after rows that did not all come. */
TERN_MUST_CHECK tern_status tern_train_state_clear(const struct tern_train_state *state);
/* Starts giving this rank's part of a bucket's weights to all. What is enqueued after need_shared finds the bucket
 * whole, after wait_shared all of them; both may be called again. */
TERN_MUST_CHECK tern_status tern_train_state_share(struct tern_train_state *state, int bucket);
TERN_MUST_CHECK tern_status tern_train_state_need_shared(struct tern_train_state *state,
                                                         int bucket);
TERN_MUST_CHECK tern_status tern_train_state_wait_shared(struct tern_train_state *state);
/* Collective, after masters changed: casts the own ranges into weights, then all ranks exchange
 * them. */
TERN_MUST_CHECK tern_status tern_train_state_publish(struct tern_train_state *state);

/* The slabs of a checkpoint: own rows of each tensor, three groups, data at base (host copy of
 * master, exp_avg, exp_avg_sq, each shard_size floats, in this order). slabs has room for
 * tern_train_state_slab_count(). */
int64_t tern_train_state_slab_count(const struct tern_train_state *state);
void tern_train_state_slabs(const struct tern_train_state *state,
                            const float *base,
                            struct tern_ckpt_slab *slabs);
/* Copies the own shard (master, exp_avg, exp_avg_sq) to host memory, 3 * shard_size floats. With a copier base is pinned
 * and this only begins the copy: settle_snapshot, from any thread, returns when it is done; what changes the shard waits
 * on the device (guard_snapshot). */
TERN_MUST_CHECK tern_status tern_train_state_snapshot(const struct tern_train_state *state,
                                                      float *base);
TERN_MUST_CHECK tern_status tern_train_state_settle_snapshot(const struct tern_train_state *state);
TERN_MUST_CHECK tern_status tern_train_state_guard_snapshot(const struct tern_train_state *state);

/* ---- inside state*.c: what of each tensor this rank owns ---- */

/* Groups of a checkpoint: masters, first and second moments. */
extern const char *const tern_train_state_groups[3];

/* One run of elements, whole rows, that this rank owns of one tensor. */
struct tern_state_piece {
    const struct tern_param *param;
    int bucket;
    int64_t begin, end; /* in the flat block */
};
/* The next piece at or after parameter *index; false at the end. */
bool tern_train_state_piece(const struct tern_train_state *state,
                            int *index,
                            struct tern_state_piece *piece);
/* Address of a piece's first element in the masters, and its index in the shard arrays. */
struct tern_dptr tern_train_state_piece_master(const struct tern_train_state *state,
                                               const struct tern_state_piece *piece);
int64_t tern_train_state_piece_index(const struct tern_train_state *state,
                                     const struct tern_state_piece *piece);

#endif
