/* tally.h - what all ranks found in a step: squares of the gradients and losses, added up where the gradients are.
 *
 * The scale of the update comes from a norm over all ranks, and a step whose norm or loss is not finite is skipped. Both are
 * decided on the device, by the same additions in the same order whatever the number of ranks and the backend, so that
 * the update can be enqueued behind them without asking. The host reads the numbers when it likes. */
#ifndef TERN_RUNTIME_TRAIN_TALLY_H
#define TERN_RUNTIME_TRAIN_TALLY_H

#include "runtime/train/state.h"

struct tern_tally;

struct tern_tally_options {
    const struct tern_train_state *state;
    struct tern_device *device; /* computes */
    struct tern_device *reader; /* queue of the read-back; device itself on a host */
    struct tern_dptr nll; /* f32 (own lanes, lane_tokens): losses, 0 where there is no target */
    int64_t lane_tokens;
    double max_norm; /* clipping; 0: none */
};

struct tern_tally_found {
    double loss;                         /* sum over all lanes, in lane order */
    double sum_squares;                  /* of the gradient of that sum */
    bool is_skipped;                     /* one of them is not finite: the scale was a NaN */
    char culprit[TERN_PARAM_NAME_BYTES]; /* first tensor with such a gradient, "" if none */
};

/* All memory is taken here; what the options point to lives as long. Owned: destroy. */
TERN_MUST_CHECK tern_status tern_tally_create(const struct tern_tally_options *options,
                                              struct tern_tally **out);
void tern_tally_destroy(struct tern_tally *tally);
/* Bytes that create takes. */
int64_t tern_tally_bytes(const struct tern_train_state *state);

/* Enqueues, behind the reduced gradients and the losses: sums, their exchange, the scale, the read-back. count: target
 * tokens of all ranks. Collective. What the take before found was read. */
TERN_MUST_CHECK tern_status tern_tally_take(struct tern_tally *tally, double count);
/* f32 (1) on the device: what AdamW multiplies gradients by, a NaN to skip. */
struct tern_dptr tern_tally_scale(const struct tern_tally *tally);
/* Waits for the last take, and for nothing that was enqueued after it. */
TERN_MUST_CHECK tern_status tern_tally_read(struct tern_tally *tally,
                                            struct tern_tally_found *found_out);

#endif
