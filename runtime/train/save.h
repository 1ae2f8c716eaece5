/* save.h - checkpoints written behind the step.
 *
 * A save is: copy the own shard to host memory (the only stall), write it from a thread of this
 * rank, tell all ranks with the next steps' words that it is durable, and, once all shards are,
 * commit from rank 0's thread: view, manifest, LATEST, prune. Nothing here waits for a disk unless
 * tern_saver_finish is called. */
#ifndef TERN_RUNTIME_TRAIN_SAVE_H
#define TERN_RUNTIME_TRAIN_SAVE_H

#include "runtime/base/text.h"
#include "runtime/train/config.h"
#include "runtime/train/state.h"
#include "runtime/train/step.h"

struct tern_saver;

struct tern_saver_event {
    int64_t step;   /* of the checkpoint */
    bool is_done;   /* committed; else failed */
    double seconds; /* from the snapshot to the commit */
    int64_t bytes;  /* all shards */
    int64_t raw_bytes;
    char reason[TERN_STEP_NOTE_BYTES]; /* why it failed */
};

int64_t tern_saver_bytes(const struct tern_train_state *state);
/* Takes and touches the staging memory, starts the thread. With a memory (borrowed, may be NULL) each copy is a snapshot
 * in it too, and on a host it is staged there. Owned: destroy, which waits for a write under way. */
TERN_MUST_CHECK tern_status tern_saver_create(const struct tern_train_config *config,
                                              const char *run_dir,
                                              struct tern_train_state *state,
                                              struct tern_memory *memory,
                                              struct tern_saver **out);
void tern_saver_destroy(struct tern_saver *saver);
/* The words of all ranks say that a checkpoint is due and that nobody is busy with an earlier
 * one. */
bool tern_saver_should_begin(const struct tern_saver *saver, const struct tern_step_word *words);
/* Snapshot of the state as it is; takes state_json over (all ranks pass it, rank 0's is written).
 * Returns after the copy. No save may be under way. */
TERN_MUST_CHECK tern_status tern_saver_begin(struct tern_saver *saver,
                                             struct tern_text *state_json);
/* The same for a snapshot that stays in memory; words: of this step. A saver with a memory. */
bool tern_saver_should_snapshot(const struct tern_saver *saver, const struct tern_step_word *words);
TERN_MUST_CHECK tern_status tern_saver_snapshot(struct tern_saver *saver,
                                                const struct tern_text *state_json,
                                                const struct tern_step_word *words);
/* Once after each snapshot that all ranks have come to have. */
bool tern_saver_take_kept(struct tern_saver *saver);
/* Before a step's exchange: what this rank has to tell. After it: all words; rank 0 starts the
 * commit when all shards are durable. Both every step, on all ranks. */
void tern_saver_speak(struct tern_saver *saver, struct tern_step_word *mine);
void tern_saver_listen(struct tern_saver *saver, const struct tern_step_word *words);
/* Rank 0: a commit that ended since the last call. False if none. Other ranks: a save that
 * failed. */
bool tern_saver_poll(struct tern_saver *saver, struct tern_saver_event *event_out);
/* Waits until the save under way, if any, is committed on all ranks or failed: collective. */
TERN_MUST_CHECK tern_status tern_saver_finish(struct tern_saver *saver);

#endif
