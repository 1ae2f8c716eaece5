/* memory_impl.h - what the files of the memory share: its blocks, its thread, and the copies between hosts. */
#ifndef TERN_RUNTIME_RECLAIM_MEMORY_IMPL_H
#define TERN_RUNTIME_RECLAIM_MEMORY_IMPL_H

#include "runtime/base/text.h"
#include "runtime/reclaim/memory.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    TERN_MEMORY_SLOTS = 2
};

struct tern_memory_slot {
    struct tern_segment segment; /* open if shm.data is not NULL */
    int64_t step;                /* begun in it here; -1 none */
    int64_t common_step;         /* the same where all ranks have sealed it; else -1 */
};

struct tern_memory_peers;

struct tern_memory {
    struct tern_segment_key key;
    struct tern_comm *comm; /* borrowed */
    int rank, ranks;
    struct tern_segment_layout
        layout; /* its slabs are owned here, with their data in the first block */
    struct tern_memory_slot slots[TERN_MEMORY_SLOTS];
    struct tern_memory_peers *peers; /* NULL: no copies */
    tern_status (*fetch)(void *context, void *dst);
    void *context;
    /* the training thread's */
    int newest, saved; /* slots: of the newest snapshot, of the newest that is saved to disk; -1 */
    int64_t settled_step; /* newest snapshot that all ranks are done with, kept or not */
    int64_t count;
    bool is_skipped; /* there was no block for the newest one; read by the thread while it works */
    /* shared with the thread, under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, is_stopping;
    _Atomic bool is_hurried; /* copies take what network there is */
    enum {
        TERN_MEMORY_TOUCHING,
        TERN_MEMORY_IDLE,
        TERN_MEMORY_FETCHING,
        TERN_MEMORY_SEALING
    } phase;
    int working; /* slot of the work under way */
    struct tern_text state_json;
    tern_status fetched;
    char reason[TERN_DETAIL_BYTES]; /* why not */
    int64_t begun_step;             /* newest that a block was chosen for */
    int64_t done_step, kept_step;
    struct tern_memory_stats stats;
};

/* ---- copies to and from other hosts (memory_peer.c) ---- */

/* Collective. *out NULL: nobody keeps copies. block_bytes: of this rank's blocks. is_hurried (borrowed): from when on this
 * rank's copies, and those that it is asked to keep, are not slowed down. */
TERN_MUST_CHECK tern_status tern_memory_peers_create(struct tern_comm *comm,
                                                     const struct tern_segment_key *key,
                                                     int keeper,
                                                     int64_t block_bytes,
                                                     const _Atomic bool *is_hurried,
                                                     struct tern_memory_peers **out);
/* Called for each copy that ended, on the communicator's thread. */
typedef void (*tern_memory_copied)(void *context,
                                   int64_t step,
                                   double seconds,
                                   const char *failure);
/* Starts the copy of a sealed block (NULL: this rank has none of this step; the others' come all the same). On all ranks
 * for the same steps in the same order. `segment` stays as it is until the copy has ended or was stopped. */
TERN_MUST_CHECK tern_status tern_memory_peers_copy(struct tern_memory_peers *peers,
                                                   const struct tern_segment *segment,
                                                   int slot,
                                                   int64_t step,
                                                   tern_memory_copied copied,
                                                   void *context);
/* Returns when no block of this rank is being read any more; the other ends of the copy hear of it. for_good: later ones
 * end at once too. */
void tern_memory_peers_stop(struct tern_memory_peers *peers, bool for_good);
/* Collective, after a stop for good: waits until the others have stopped too; then closes, and with `forget` removes the copies kept here. */
void tern_memory_peers_destroy(struct tern_memory_peers *peers, bool forget);

#endif
