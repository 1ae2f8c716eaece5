/* memory.h - snapshots of a run in memory that outlives its processes: two blocks a rank, of which one is always whole on
 * all ranks, and a copy of each on another host.
 *
 * A snapshot is: choose the block that all ranks can spare, copy the shard into it (the only stall), seal it from a thread
 * of this rank, give a copy to the peer behind the steps, and tell all ranks with the next steps' words. A block is written
 * again only when the other one is known to be sealed by all: the newest but one, or, while a checkpoint is being written from
 * a block, the other of the two. Which blocks a launch finds again: memory_find.h.
 *
 * What a death at any moment costs: the steps since the newest snapshot that all ranks have sealed. The one that is being
 * made is lost, the one before it is in the other block. Only while a checkpoint is being written, which keeps its block from
 * being spared, is the one before in the block that is written again. If it was copied to peers it is there until all
 * ranks have sealed the new one; without peers (one host), or when a host is lost before the new one has its copies,
 * the run goes back to the snapshot of the checkpoint. That takes a checkpoint that is written for longer than two
 * intervals and a death within the copy and the seal of a later snapshot. To make no snapshots meanwhile would lose those
 * steps at every death instead, and a third block would cost as much memory as each of the two.
 *
 * Environment: TERN_MEMORY_PEER=1 (tests) gives copies to other ranks of the same host too. */
#ifndef TERN_RUNTIME_RECLAIM_MEMORY_H
#define TERN_RUNTIME_RECLAIM_MEMORY_H

#include "comm/comm.h"
#include "runtime/reclaim/memory_run.h"

struct tern_memory;

/* What there is to be taken, and who keeps whose copy. */
struct tern_memory_plan {
    bool is_on;
    int64_t block_bytes; /* one of this rank */
    int64_t bytes; /* of all blocks this rank makes: its own two, and those it keeps for others */
    int keeper;    /* rank that keeps this one's copies; -1: none, all ranks share one host */
    int64_t room_free, room_total, room_needed; /* of the fullest host, where it is too little */
};

/* Collective, before anything is taken. block_bytes: of one block (tern_segment_bytes), 0: off; reusable: bytes that lie
 * in the folder now and will be free; fits: this rank has the memory. is_on only if all ranks can. */
TERN_MUST_CHECK tern_status tern_memory_plan_make(struct tern_comm *comm,
                                                  int64_t block_bytes,
                                                  int64_t reusable,
                                                  struct tern_memory_plan *out);

/* What a rank tells all others once a step. Plain data. */
struct tern_memory_word {
    int64_t done_step; /* newest snapshot that this rank has no more to do for; -1 none */
    int64_t kept_step; /* newest that it has sealed; -1 none */
};

struct tern_memory_options {
    struct tern_comm *comm;
    struct tern_segment_layout layout; /* key, slabs and base have to live for the call */
    bool
        is_late; /* blocks of an earlier launch are there until all ranks have a snapshot of this one: the second block is
                     made when it is needed */
};

/* Takes the blocks, touches their pages behind the first steps. Owned, also after a failure: destroy. */
TERN_MUST_CHECK tern_status tern_memory_create(const struct tern_memory_options *options,
                                               struct tern_memory **out);
/* fetch makes the data be in the block, on the memory's thread; without one it is there when the copy returns. Before the
 * first snapshot. */
void tern_memory_fetch_with(struct tern_memory *memory,
                            tern_status (*fetch)(void *context, void *dst),
                            void *context);
/* Collective, when every rank has its blocks: from now on copies go to the keepers of the plan. */
TERN_MUST_CHECK tern_status tern_memory_connect(struct tern_memory *memory,
                                                const struct tern_memory_plan *plan);
/* The blocks stay: it is for the next launch to find them. Collective where ranks keep copies. NULL is fine. */
void tern_memory_destroy(struct tern_memory *memory);
/* Collective: nobody needs them any more, all that this launch made go. */
void tern_memory_forget(struct tern_memory *memory);

/* The words say that all ranks are done with the newest snapshot and can spare a block; is_saving: a checkpoint is being
 * written from the block of the newest saved step. The same on all ranks. */
bool tern_memory_may_begin(const struct tern_memory *memory, bool is_saving);
/* Where the state after `step` goes; waits for the thread. is_save: a checkpoint will be written from this block, which
 * stays as it is until none is under way; it is always there. *base_out NULL: this rank has no block for it now, which
 * the others will hear; commit all the same. Passes memory.copy. */
void tern_memory_begin(struct tern_memory *memory,
                       int64_t step,
                       bool is_saving,
                       bool is_save,
                       float **base_out);
/* The copy is made (or begun, with a fetch): seal it, with this JSON (copied). */
TERN_MUST_CHECK tern_status tern_memory_commit(struct tern_memory *memory, const char *state_json);
/* Any thread: waits until the data of the newest snapshot is in its block; why it is not, if so. */
TERN_MUST_CHECK tern_status tern_memory_wait_fetched(struct tern_memory *memory);
/* Any thread; NULL is fine. A notice has come: copies go as fast as the network lets them from now on. */
void tern_memory_hurry(struct tern_memory *memory);
/* Any thread; NULL is fine. Hurries, and waits, `seconds` at most, until this rank is done with the newest snapshot that
 * was begun: it is sealed, and copied if it is to be, or that has failed. False: the time was over first. */
bool tern_memory_settle(struct tern_memory *memory, double seconds);
/* Every step, around the exchange of words. listen: true when a snapshot has just become all ranks'. */
void tern_memory_speak(struct tern_memory *memory, struct tern_memory_word *mine);
bool tern_memory_listen(struct tern_memory *memory,
                        const struct tern_memory_word *words,
                        size_t stride);

/* For the log. */
struct tern_memory_stats {
    int64_t step;        /* newest snapshot of all ranks, -1 none */
    int64_t count;       /* begun by this launch */
    double seal_seconds; /* of the newest, on the thread */
    double copy_seconds; /* of its copy to the peer; 0: none */
    int64_t failures;    /* here */
    char failure[256];   /* the newest; "" none */
};
struct tern_memory_stats tern_memory_stats(struct tern_memory *memory);

#endif
