/* remote.h - checkpoints in an object store.
 *
 *   URL/step-00001200/rank-0000.h5.<xxh3>   each file of the checkpoint under its name and hash: two
 *                                           launches that write the same step never write the same
 *                                           object with other bytes
 *   URL/step-00001200/MANIFEST.json         the very bytes of the local one, put last and only if
 *                                           there is none: the checkpoint exists if and only if
 *                                           this does
 *
 *   URL/id                                  whose they are: the 16 hexadecimal digits of the run's own
 *                                           id and a line feed; put before the first checkpoint, and
 *                                           only if there is none. Older ones have none.
 *
 * What a launch that died left (files without a manifest, uploads never completed) is removed by
 * tern_remote_clean. */
#ifndef TERN_IO_REMOTE_H
#define TERN_IO_REMOTE_H

#include "io/checkpoint.h"
#include "io/store.h"

enum {
    TERN_REMOTE_ID_BYTES = 17
};

/* Whose checkpoints the store holds. TERN_ERR_NOT_FOUND: it doesn't say; TERN_ERR_CORRUPT: URL/id is
 * no id. */
TERN_MUST_CHECK tern_status tern_remote_owner(struct tern_store *store,
                                              char id_out[TERN_REMOTE_ID_BYTES]);
/* The store is of the run `id` from now on, if it is nobody's; *owner_out: whose it is then. */
TERN_MUST_CHECK tern_status tern_remote_claim(struct tern_store *store,
                                              const char *id,
                                              char owner_out[TERN_REMOTE_ID_BYTES]);
/* Puts one file of a checkpoint: path is where it is here. Again is free: what is there already in
 * full is not sent. *sent_out, if not NULL: bytes that were. */
TERN_MUST_CHECK tern_status tern_remote_push(struct tern_store *store,
                                             int64_t step,
                                             const char *path,
                                             const struct tern_ckpt_file *file,
                                             int64_t *sent_out);
/* Makes the checkpoint in folder, whose shards were pushed, exist in the store: pushes the view,
 * looks that every file is there in its size, then puts the manifest. TERN_ERR_BUSY: another launch
 * has committed this step before. *bytes_out: of all files. */
TERN_MUST_CHECK tern_status tern_remote_commit(struct tern_store *store,
                                               int64_t step,
                                               const char *folder,
                                               int64_t *bytes_out);
/* Committed checkpoints, ascending by step; at most capacity. *count_out is how many exist. is_good:
 * a whole manifest, every file there in its size. */
TERN_MUST_CHECK tern_status tern_remote_list(struct tern_store *store,
                                             struct tern_ckpt_entry *entries,
                                             int capacity,
                                             int *count_out);
/* The newest good one; TERN_ERR_NOT_FOUND if there is none at all, TERN_ERR_CORRUPT if none is
 * good. Damaged ones are named by a warning. */
TERN_MUST_CHECK tern_status tern_remote_find(struct tern_store *store, int64_t *step_out);
/* Fetches a checkpoint into RUN/ckpt, checks every hash, and commits it there. One that is there
 * already and whole stays; a damaged one is replaced. Only while holding the run lock. */
TERN_MUST_CHECK tern_status tern_remote_pull(struct tern_store *store,
                                             int64_t step,
                                             const char *run_dir,
                                             int64_t *bytes_out);
/* Reads every byte of one checkpoint and compares the hashes. */
TERN_MUST_CHECK tern_status tern_remote_verify(struct tern_store *store, int64_t step);
/* Removes all but the newest `keep` good checkpoints (manifest first), and damaged ones older than
 * those. */
TERN_MUST_CHECK tern_status tern_remote_prune(struct tern_store *store, int keep, int *removed_out);
/* Removes what belongs to no committed checkpoint, below a step (INT64_MAX: all). */
TERN_MUST_CHECK tern_status tern_remote_clean(struct tern_store *store,
                                              int64_t below,
                                              int *removed_out);

#endif
