/* checkpoint_parts.h - what the checkpoint files share among themselves: names, the manifest as a
 * struct. */
#ifndef TERN_IO_CHECKPOINT_PARTS_H
#define TERN_IO_CHECKPOINT_PARTS_H

#include "io/checkpoint.h"
#include "io/file.h"
#include "io/h5.h"

enum {
    TERN_CKPT_RANKS_MAX = 9999,
    TERN_CKPT_VERSION = 1
};

#define TERN_CKPT_VIEW     "model.h5"
#define TERN_CKPT_MANIFEST "MANIFEST.json"
#define TERN_CKPT_LATEST   "LATEST"
#define TERN_CKPT_STATE    "/state/json"
#define TERN_CKPT_SLABS    "/state/slabs" /* of each shard: what it holds */

/* Rows of one tensor in the shard of one rank. */
struct tern_ckpt_place {
    int rank;
    int64_t row_offset, row_count;
};

struct tern_ckpt_tensor {
    char group[TERN_CKPT_NAME_BYTES];
    char name[TERN_CKPT_NAME_BYTES];
    enum tern_dtype dtype;
    int rank;
    int64_t shape[TERN_CKPT_RANK_MAX];
    int64_t first_place, place_count; /* in places[], ascending and covering all rows once */
};

struct tern_ckpt_manifest {
    int64_t step;
    int ranks;
    char time[32];
    char version[32];
    char config_digest[128];
    struct tern_ckpt_file *files; /* ranks + 1: the shards in rank order, then the view */
    int file_count;
    struct tern_ckpt_tensor *tensors; /* in written order */
    int64_t tensor_count;
    struct tern_ckpt_place *places;
    int64_t place_count;
    int64_t *sorted; /* tensor numbers by group, then name */
};

/* ckpt_dir/MANIFEST.json, checked: its own hash, every number, every tensor covered.
 * TERN_ERR_CORRUPT names what is wrong. Fini also after a failure. */
TERN_MUST_CHECK tern_status tern_ckpt_manifest_read(const char *ckpt_dir,
                                                    struct tern_ckpt_manifest *out);
/* The same of a text, which it changes; name stands for it in sentences. */
TERN_MUST_CHECK tern_status tern_ckpt_manifest_parse(const char *name,
                                                     char *text,
                                                     size_t bytes,
                                                     struct tern_ckpt_manifest *out);
TERN_MUST_CHECK tern_status tern_ckpt_manifest_write(const char *ckpt_dir,
                                                     const struct tern_ckpt_manifest *manifest);
void tern_ckpt_manifest_fini(struct tern_ckpt_manifest *manifest);
/* The same checks on a manifest made in memory; sorts it. */
TERN_MUST_CHECK tern_status tern_ckpt_manifest_check(struct tern_ckpt_manifest *manifest);
/* NULL if there is none. */
const struct tern_ckpt_tensor *tern_ckpt_manifest_find(const struct tern_ckpt_manifest *manifest,
                                                       const char *group,
                                                       const char *name);
const struct tern_ckpt_manifest *tern_ckpt_reader_manifest(const struct tern_ckpt_reader *reader);
/* "a/b" and "x.y": characters that need no escape in JSON, HDF5 names and virtual sources. */
bool tern_ckpt_is_group(const char *group);
bool tern_ckpt_is_name(const char *name);
/* TERN_DTYPE_CKPT_COUNT if unknown. */
enum tern_dtype tern_ckpt_dtype(const char *name);
/* "/group/name" */
TERN_MUST_CHECK tern_status tern_ckpt_dataset(char out[2 * TERN_CKPT_NAME_BYTES + 2],
                                              const char *group,
                                              const char *name);
enum {
    TERN_CKPT_DATASET_BYTES = 2 * TERN_CKPT_NAME_BYTES + 2
};
/* The dataset that holds a place of a tensor. */
struct tern_h5_shape tern_ckpt_shape(const struct tern_ckpt_tensor *tensor,
                                     int64_t row_offset,
                                     int64_t row_count);

/* RUN/ckpt; RUN/ckpt/step-N; the folder that step N is being written to: the same, or step-N.new
 * while step N exists already and must stay whole until the new one is. */
TERN_MUST_CHECK tern_status tern_ckpt_root(const char *run_dir, char out[TERN_PATH_BYTES]);
TERN_MUST_CHECK tern_status tern_ckpt_folder(const char *run_dir,
                                             int64_t step,
                                             char out[TERN_PATH_BYTES]);
TERN_MUST_CHECK tern_status tern_ckpt_folder_new(const char *run_dir,
                                                 int64_t step,
                                                 char out[TERN_PATH_BYTES]);
bool tern_ckpt_is_committed(const char *ckpt_dir);
void tern_ckpt_shard_name(int rank, char out[32]);
/* The step of a folder name "step-00001200", or -1. */
int64_t tern_ckpt_step_of(const char *name);

/* Compares size and hash of a file of a checkpoint. may_trust: this process has hashed the very
 * same file before (same inode, size and times). TERN_ERR_CORRUPT names it. */
TERN_MUST_CHECK tern_status tern_ckpt_check_file(const char *ckpt_dir,
                                                 const struct tern_ckpt_file *file,
                                                 bool may_trust);
/* Prune with a checkpoint that is known to be good: keeps it and the newest `keep` up to its step;
 * leaves newer ones. */
TERN_MUST_CHECK tern_status tern_ckpt_prune_behind(const char *run_dir,
                                                   int64_t good_step,
                                                   int keep,
                                                   int *removed_out);
/* As tern_ckpt_clean, but only steps below this one: another rank may be writing the next. */
TERN_MUST_CHECK tern_status tern_ckpt_clean_below(const char *run_dir, int64_t step);
/* Makes LATEST name a step. */
TERN_MUST_CHECK tern_status tern_ckpt_point_latest(const char *run_dir, int64_t step);
/* As errno of a ckpt fault point, with a sentence. */
TERN_MUST_CHECK tern_status tern_ckpt_fault(enum tern_fault_point point,
                                            const char *run_dir,
                                            int64_t step);

#endif
