/* memory_find.h - what earlier launches of a run left in memory: which of it is newest and whole, how every rank gets its
 * part of it whatever the number of ranks now, and what may go. */
#ifndef TERN_RUNTIME_RECLAIM_MEMORY_FIND_H
#define TERN_RUNTIME_RECLAIM_MEMORY_FIND_H

#include "comm/comm.h"
#include "runtime/reclaim/memory_run.h"

struct tern_memory_found; /* a snapshot that all ranks can read */

/* Collective. The newest snapshot after `after_step` of which some rank can read every shard, in a block or a copy whose
 * hash is right; damaged ones are named by a warning and left out. *out NULL: there is none. Owned: close. */
TERN_MUST_CHECK tern_status tern_memory_find(struct tern_comm *comm,
                                             const struct tern_memory_run *run,
                                             int64_t after_step,
                                             struct tern_memory_found **out);
void tern_memory_found_close(struct tern_memory_found *found);
int64_t tern_memory_found_step(const struct tern_memory_found *found);
const char *tern_memory_found_launch(const struct tern_memory_found *found);
/* "shared memory", or "a peer" if the copy of a shard is all that is left of it. */
const char *tern_memory_found_source(const struct tern_memory_found *found);
/* Of the blocks that it lies in, here. */
int64_t tern_memory_found_bytes(const struct tern_memory_found *found);

/* Some rows of one tensor, f32 in host memory, valid during the call. */
typedef tern_status (*tern_memory_sink)(void *context, const struct tern_ckpt_slab *rows);
/* Collective. Gives the sink rows until this rank has seen all of the state, once each, in any order; *json_out
 * (tern_alloc'd): what goes with it. A sink that fails has this rank's failure returned when all ranks are through.
 * TERN_ERR_CORRUPT when somebody wrote to a block meanwhile. Passes memory.restore. */
TERN_MUST_CHECK tern_status tern_memory_found_read(struct tern_memory_found *found,
                                                   tern_memory_sink sink,
                                                   void *context,
                                                   char **json_out);

/* Removes what is of no use any more from this host's memory: blocks of this run that are neither of its present launch nor
 * part of `keep` (may be NULL), and those of runs that are gone, unless a process has them open. A block that can't be
 * removed is named by a warning. */
void tern_memory_sweep(const struct tern_memory_run *run, const struct tern_memory_found *keep);

#endif
