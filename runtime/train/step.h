/* step.h - one training step: lanes, reduction, norm, update. */
#ifndef TERN_RUNTIME_TRAIN_STEP_H
#define TERN_RUNTIME_TRAIN_STEP_H

#include "runtime/reclaim/memory.h"
#include "runtime/train/config.h"
#include "runtime/train/state.h"

enum {
    TERN_STEP_NOTE_BYTES = 256
};

/* What a rank tells all others once a step, beside the gradients. Plain data. */
struct tern_step_word {
    int64_t tokens;         /* of its lanes that count in the loss */
    double lane_seconds;    /* of its own computing in the step, a lane; 0: not known */
    int32_t stop;           /* enum tern_notice */
    int32_t wants_save;     /* rank 0: a checkpoint is due; any rank: it was asked for one */
    int32_t wants_snapshot; /* rank 0: one in memory is */
    double stop_seconds;    /* with stop: until this rank must be gone, as it sees it */
    double need_seconds;    /* for a clean end, as far as it knows */
    int32_t is_saving;      /* an earlier one is still being written or committed */
    int32_t saved; /* 0 no news, 1 this rank's shard of save_step is durable, 2 it failed */
    int64_t save_step;
    struct tern_memory_word memory;
    struct tern_ckpt_file file;
    char note[TERN_STEP_NOTE_BYTES]; /* why it failed */
    /* of the bucket: remote.h */
    int64_t send_step;  /* rank 0: the step that is to go there next; 0 none */
    int32_t is_sending; /* an upload is under way */
    int32_t sent;       /* 0 no news, 1 this rank's shard is there, 2 it failed */
    char send_note[TERN_STEP_NOTE_BYTES];
};

struct tern_step_result {
    double loss;                         /* mean nll over all target tokens */
    double grad_norm;                    /* of the mean loss, before clipping */
    int64_t tokens;                      /* target tokens of the step, all ranks */
    bool is_skipped;                     /* non-finite: no update was made */
    char culprit[TERN_PARAM_NAME_BYTES]; /* first tensor with a non-finite gradient, "" if none */
    double comm_seconds;                 /* waited for others, not hidden under computation */
};

struct tern_stepper;

/* Queues of one device. */
struct tern_stepper_queues {
    struct tern_device *compute;  /* the passes and the update */
    struct tern_device *comm;     /* adds inside reductions, on the communicator's thread */
    struct tern_device *reader;   /* results back; NULL: the host's memory */
    struct tern_device *uploader; /* batches ahead; NULL: the same */
};

/* Everything a step needs beside the state; all memory is taken here. pass lives as long. Owned: destroy. */
TERN_MUST_CHECK tern_status tern_stepper_create(const struct tern_train_config *config,
                                                struct tern_train_state *state,
                                                const struct tern_stepper_queues *queues,
                                                struct tern_pass *pass,
                                                struct tern_stepper **out);
void tern_stepper_destroy(struct tern_stepper *stepper);
/* Bytes that create takes; is_ahead: with queues for reading and uploading. */
int64_t tern_stepper_bytes(const struct tern_train_config *config,
                           const struct tern_train_state *state,
                           bool is_ahead);

/* A step is begun, ended and settled. None of begin and end waits for the device; settle waits for the step that was ended
 * last, and for nothing that was begun since. So with queues of its own (is_late) a step is begun, the one before is
 * settled while the device works, and then it is ended. */

/* Own lanes forward and backward, buckets reduced meanwhile. inputs, targets: (own sequences, T), valid until end. */
TERN_MUST_CHECK tern_status tern_stepper_begin(struct tern_stepper *stepper,
                                               const int32_t *inputs,
                                               const int32_t *targets,
                                               const int32_t *starts);
/* Exchanges `mine` for everybody's words (ranks of them, valid until the next end), takes the norm and updates the weights
 * with lr; where the norm or the loss is not finite they stay as they are, which settle tells. state->step and tokens are
 * advanced. The step before is settled. */
TERN_MUST_CHECK tern_status tern_stepper_end(struct tern_stepper *stepper,
                                             double lr,
                                             struct tern_step_word *mine,
                                             const struct tern_step_word **words_out);
/* What came of the step that was ended; state->updates is advanced unless it was skipped. */
TERN_MUST_CHECK tern_status tern_stepper_settle(struct tern_stepper *stepper,
                                                struct tern_step_result *result);
/* A step was ended and not settled. */
bool tern_stepper_is_pending(const struct tern_stepper *stepper);
bool tern_stepper_is_late(const struct tern_stepper *stepper);
/* Mean nll over the first `sequences` of the validation stream, the same for any number of ranks:
 * groups of micro_batch sequences are dealt to ranks and summed in order. */
struct tern_tokens;
TERN_MUST_CHECK tern_status tern_stepper_evaluate(struct tern_stepper *stepper,
                                                  const struct tern_tokens *tokens,
                                                  int64_t sequences,
                                                  double *loss_out);

#endif
