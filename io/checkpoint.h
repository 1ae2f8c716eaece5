/* checkpoint.h - state on disk: what is written, in which order, and how any rank count reads it
 * back.
 *
 *   RUN/ckpt/step-00001200/rank-0000.h5 ...   one serial HDF5 file a rank: its hyperslab of each
 * tensor model.h5           virtual datasets: every tensor whole, for h5py and h5dump MANIFEST.json
 * written last; the checkpoint exists if and only if this does RUN/ckpt/LATEST replaced by rename
 *
 * Every file: temporary name, write, flush, close, fsync, rename, fsync of the folder. The manifest
 * lists size and XXH3-128 of each file; a reader checks them before HDF5 opens anything. */
#ifndef TERN_IO_CHECKPOINT_H
#define TERN_IO_CHECKPOINT_H

#include "io/file.h"
#include "runtime/base/dtype.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    TERN_CKPT_RANK_MAX = 4,
    TERN_CKPT_NAME_BYTES = 160,
    TERN_CKPT_PATH_BYTES = 4096,
    TERN_CKPT_HASH_BYTES = 33
};

/* One rank's rows of one logical tensor: the dataset is "/<group>/<name>", attributes global_shape
 * and offset. Only the first axis is ever cut: count equals global_shape beyond axis 0. */
struct tern_ckpt_slab {
    const char *group; /* "model", "optimizer/exp_avg", "optimizer/exp_avg_sq" */
    const char *name;  /* Hugging Face tensor name */
    enum tern_dtype dtype;
    int rank;
    int64_t global_shape[TERN_CKPT_RANK_MAX];
    int64_t row_offset; /* along axis 0 */
    int64_t row_count;
    const void *data; /* borrowed until the write is done; host memory */
};

enum tern_ckpt_compression {
    TERN_CKPT_AUTO,
    TERN_CKPT_NONE,
    TERN_CKPT_ZSTD
};

/* What a finished file is, as the manifest records it. Plain data: it travels between ranks as
 * bytes. */
struct tern_ckpt_file {
    char name[32];
    int64_t bytes;
    int64_t raw_bytes; /* before compression */
    char xxh3[TERN_CKPT_HASH_BYTES];
};

struct tern_ckpt_write {
    const char *run_dir;
    int64_t step;
    int rank, ranks;
    const struct tern_ckpt_slab *slabs;
    int64_t slab_count;
    const char *state_json; /* rank 0 only, else NULL: everything that is not a tensor; stored under
                               /state */
    enum tern_ckpt_compression compression;
    int level;   /* zstd */
    int threads; /* that compress, besides the caller's */
};

/* Writes this rank's shard, durable under its final name, and describes it. Any thread, one at a
 * time a process. The folder step-N is made by whoever comes first; leftovers of an earlier attempt
 * at this step are replaced. */
TERN_MUST_CHECK tern_status tern_ckpt_write_shard(const struct tern_ckpt_write *write,
                                                  struct tern_ckpt_file *file_out);
/* Rank 0, when every shard is durable: model.h5, MANIFEST.json, LATEST, then removes all but the
 * newest `keep`
 * (>= 2) checkpoints and all leftovers of older attempts. `slabs_of_rank` is not needed: the shards
 * are read. */
TERN_MUST_CHECK tern_status tern_ckpt_commit(const char *run_dir,
                                             int64_t step,
                                             const struct tern_ckpt_file *files,
                                             int ranks,
                                             const char *config_digest,
                                             int keep);
/* The lock of a run directory (RUN/lock): whoever writes checkpoints into it or removes some holds
 * it. TERN_ERR_BUSY names the holder. Dropped by tern_lock_drop. */
TERN_MUST_CHECK tern_status tern_ckpt_lock(const char *run_dir, struct tern_lock *out);
/* Removes uncommitted leftovers (step folders without a manifest, temporary files), and makes
 * LATEST name the newest committed checkpoint where a commit died before that. Only while holding
 * the run lock. */
TERN_MUST_CHECK tern_status tern_ckpt_clean(const char *run_dir);
/* Removes all but the newest keep committed checkpoints; never the newest good one. *removed_out
 * counts. */
TERN_MUST_CHECK tern_status tern_ckpt_prune(const char *run_dir, int keep, int *removed_out);

struct tern_ckpt_entry {
    int64_t step;
    int ranks;
    int64_t bytes;
    char time[32];
    bool is_good;    /* manifest whole, every file there with its size; the hashes are
                        tern_ckpt_verify's business */
    char fault[512]; /* why not */
};
/* Committed checkpoints, ascending by step; at most capacity. *count_out is how many exist. */
TERN_MUST_CHECK tern_status tern_ckpt_list(const char *run_dir,
                                           struct tern_ckpt_entry *entries,
                                           int capacity,
                                           int *count_out);
/* Reads every file of one checkpoint and compares size and hash, then opens it and checks every
 * dataset. */
TERN_MUST_CHECK tern_status tern_ckpt_verify(const char *ckpt_dir);
/* The newest checkpoint that verifies (its path in path_out); damaged ones are named by a warning
 * and skipped. TERN_ERR_NOT_FOUND if there is none at all, TERN_ERR_CORRUPT if there were some and
 * none is good. */
TERN_MUST_CHECK tern_status tern_ckpt_find(const char *run_dir,
                                           char path_out[TERN_CKPT_PATH_BYTES],
                                           int64_t *step_out);

struct tern_ckpt_reader;
/* Opens a verified checkpoint folder. Owned: close. */
TERN_MUST_CHECK tern_status tern_ckpt_open(const char *ckpt_dir, struct tern_ckpt_reader **out);
void tern_ckpt_close(struct tern_ckpt_reader *reader);
int64_t tern_ckpt_step(const struct tern_ckpt_reader *reader);
/* The state JSON as written; valid until close. */
const char *tern_ckpt_state_json(const struct tern_ckpt_reader *reader);
/* Tensors of a group, in written order: returns the name or NULL past the end; fills rank, shape
 * and dtype. */
const char *tern_ckpt_tensor(const struct tern_ckpt_reader *reader,
                             const char *group,
                             int64_t index,
                             int *rank_out,
                             int64_t shape_out[TERN_CKPT_RANK_MAX],
                             enum tern_dtype *dtype_out);
/* Rows [row_offset, row_offset + row_count) of a tensor into dst (dense, same dtype), gathered from
 * whichever shards hold them. Errors name the tensor and what is missing. */
TERN_MUST_CHECK tern_status tern_ckpt_read(struct tern_ckpt_reader *reader,
                                           const char *group,
                                           const char *name,
                                           int64_t row_offset,
                                           int64_t row_count,
                                           void *dst);

/* XXH3-128 (hex) of the logical tensors: the same whatever the rank count, compression or files
 * that hold them. */
struct tern_ckpt_digest {
    char model[TERN_CKPT_HASH_BYTES];
    char exp_avg[TERN_CKPT_HASH_BYTES];
    char exp_avg_sq[TERN_CKPT_HASH_BYTES];
    char cursor[TERN_CKPT_HASH_BYTES]; /* of the state JSON's "cursor" object, canonical form */
};
TERN_MUST_CHECK tern_status tern_ckpt_digest(const char *ckpt_dir, struct tern_ckpt_digest *out);

#endif
