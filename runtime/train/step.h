/* step.h - one training step: lanes, reduction, norm, update. */
#ifndef TERN_RUNTIME_TRAIN_STEP_H
#define TERN_RUNTIME_TRAIN_STEP_H

#include "runtime/train/config.h"
#include "runtime/train/state.h"

enum {
    TERN_STEP_NOTE_BYTES = 256
};

/* What a rank tells all others once a step, beside the gradients. Plain data. */
struct tern_step_word {
    double lane_loss[TERN_LANES_MAX]; /* sum of nll of each own lane */
    int64_t lane_tokens[TERN_LANES_MAX];
    int32_t stop;       /* enum tern_notice */
    int32_t wants_save; /* rank 0: a checkpoint is due */
    int32_t is_saving;  /* an earlier one is still being written or committed */
    int32_t saved;      /* 0 no news, 1 this rank's shard of save_step is durable, 2 it failed */
    int64_t save_step;
    struct tern_ckpt_file file;
    char note[TERN_STEP_NOTE_BYTES]; /* why it failed */
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

/* Everything a step needs beside the state; all memory is taken here. pass and the ids, targets,
 * nll buffers live as long. Owned: destroy. */
TERN_MUST_CHECK tern_status tern_stepper_create(const struct tern_train_config *config,
                                                struct tern_train_state *state,
                                                struct tern_device *device,
                                                struct tern_device *comm_device,
                                                struct tern_pass *pass,
                                                struct tern_stepper **out);
void tern_stepper_destroy(struct tern_stepper *stepper);
/* Bytes that create takes. */
int64_t tern_stepper_bytes(const struct tern_train_config *config,
                           const struct tern_train_state *state);

/* Own lanes forward and backward, buckets reduced meanwhile. inputs, targets: (own sequences, T).
 * Then exchanges `mine` for everybody's words (ranks of them, valid until the next step), takes the
 * norm and updates the weights with lr. state->step and the like are advanced. */
TERN_MUST_CHECK tern_status tern_stepper_run(struct tern_stepper *stepper,
                                             const int32_t *inputs,
                                             const int32_t *targets,
                                             double lr,
                                             struct tern_step_word *mine,
                                             const struct tern_step_word **words_out,
                                             struct tern_step_result *result);
/* Mean nll over the first `sequences` of the validation stream, the same for any number of ranks:
 * groups of micro_batch sequences are dealt to ranks and summed in order. */
struct tern_tokens;
TERN_MUST_CHECK tern_status tern_stepper_evaluate(struct tern_stepper *stepper,
                                                  const struct tern_tokens *tokens,
                                                  int64_t sequences,
                                                  double *loss_out);

#endif
