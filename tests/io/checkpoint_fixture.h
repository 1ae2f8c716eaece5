/* checkpoint_fixture.h - a small model's state, written and read back under any number of ranks. */
#ifndef TERN_TESTS_IO_CHECKPOINT_FIXTURE_H
#define TERN_TESTS_IO_CHECKPOINT_FIXTURE_H

#include "io/checkpoint.h"
#include "io/file.h"

enum {
    FIXTURE_TENSORS_MAX = 24
};

struct fixture_tensor {
    const char *group, *name;
    enum tern_dtype dtype;
    int rank;
    int64_t shape[TERN_CKPT_RANK_MAX];
    size_t bytes;
    void *data;
};

struct fixture {
    struct fixture_tensor tensors[FIXTURE_TENSORS_MAX];
    int count;
};

/* Tensors of all dtypes, from 3 values to some MiB, as a function of the seed. is_small: no tensor
 * above 64 KiB. */
void fixture_make(struct fixture *fixture, uint64_t seed, bool is_small);
void fixture_free(struct fixture *fixture);
/* Writes shards of all ranks, then commits. cursor: goes into the state. */
tern_status fixture_write(const struct fixture *fixture,
                          const char *run_dir,
                          int64_t step,
                          int ranks,
                          enum tern_ckpt_compression compression,
                          int level,
                          int threads,
                          int keep);
/* Reads every tensor in `ranks` pieces and compares all bits; fails the test with the tensor's
 * name. */
void fixture_check(const struct fixture *fixture, const char *ckpt_dir, int ranks);
/* Rows of one rank: balanced, the first ones get one more. */
void fixture_rows(int64_t rows, int rank, int ranks, int64_t *offset_out, int64_t *count_out);

/* TERN_FAULT for this process from now on; NULL: none. */
void fixture_arm(const char *rules);
/* A folder under TMPDIR or /tmp, removed by fixture_remove_folder. */
void fixture_make_folder(char out[TERN_PATH_BYTES]);

#endif
