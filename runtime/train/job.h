/* job.h - all that a training run holds, opened in one order and closed in the other. */
#ifndef TERN_RUNTIME_TRAIN_JOB_H
#define TERN_RUNTIME_TRAIN_JOB_H

#include "io/tokens.h"
#include "kernels/open.h"
#include "models/lora.h"
#include "runtime/chat/template.h"
#include "runtime/plan/bill.h"
#include "runtime/plan/compute.h"
#include "runtime/reclaim/memory.h"
#include "runtime/reclaim/memory_find.h"
#include "runtime/train/cursor.h"
#include "runtime/train/origin.h"
#include "runtime/train/reclaim.h"
#include "runtime/train/remote.h"
#include "runtime/train/run_dir.h"
#include "runtime/train/save.h"
#include "runtime/train/step.h"
#include "runtime/train/trainer.h"
#include "runtime/train/vitals.h"

#include <stdatomic.h>

/* The checkpoint to start from. Plain data: rank 0 tells the others. */
struct tern_job_checkpoint {
    char path[TERN_CKPT_PATH_BYTES];
    int64_t step;
    int32_t is_there;
    int32_t is_damaged; /* there are some, and none is good */
};

struct tern_job {
    struct tern_train_config config;
    struct tern_origin origin; /* of a run that is fine-tuned */
    struct tern_comm *comm;
    struct tern_run_dir run;
    struct tern_reclaim reclaim;
    struct tern_vitals vitals;
    struct tern_tokenizer *tokenizer;
    struct tern_template *template;  /* of data.format: chat; else NULL */
    struct tern_tokens *train, *val; /* val NULL: none */
    int64_t eval_sequences;
    struct tern_compute_devices devices;
    struct tern_device *copier;   /* queue of snapshots; NULL: the device is the host */
    struct tern_device *reader;   /* queue of a step's results; the same */
    struct tern_device *uploader; /* queue of batches; the same */
    double peak_flops;            /* of this run: ranks of this machine share it; 0 unknown */
    struct tern_model model;
    struct tern_lora lora; /* with has_lora: what is trained; the model is frozen */
    struct tern_train_state state;
    struct tern_pass *pass;
    struct tern_stepper *stepper;
    struct tern_saver *saver;
    struct tern_mirror *mirror; /* of checkpoint.remote; NULL none */
    int64_t pulled_step;        /* rank 0: of the checkpoint fetched from there; -1 none */
    struct tern_memory_run memory_run;
    struct tern_memory_plan memory_plan;
    struct tern_memory *memory; /* NULL: no snapshots */
    struct tern_memory_found
        *memory_found; /* an earlier launch's, that this one began from and needs until it has its
                                               own; NULL: none */
    size_t workspace_bytes; /* of kernels; on the bill */
    struct tern_prefetch *prefetch;
    struct tern_bill bill;        /* host memory */
    struct tern_bill device_bill; /* empty when the device is the host */
    struct tern_text config_yaml;
    struct tern_text model_json; /* of a run that is fine-tuned; else empty */
    int64_t steps, first_step;
    struct tern_job_checkpoint found;
    char data_id[TERN_TOKENS_DIGEST_BYTES]; /* of data.train */
    char base_hash[TERN_HASH_HEX_BYTES];
    char base[TERN_CURSOR_BASE_BYTES]; /* MODEL that the run began as; "" from the seed */
    char resumed_from[64];             /* "step-00000040"; "" when new */
    const char *source; /* of that: "disk", "shared memory", "a peer", "the bucket" */
    /* for the watchdog's thread: a launch record is there to be written; steps that were enqueued */
    _Atomic bool has_record;
    _Atomic int64_t steps_done;
    bool is_agreed; /* a failure that comes now is known to all ranks */
    bool is_done;   /* the checkpoint is at the last step already: nothing else was opened */
    bool is_finetuned;
    bool has_config, has_model, has_lora, has_state;
};

/* Everything up to the first step; with options->dry_run only up to the bill; is_done: only the run
 * directory. On failure close is still due. */
TERN_MUST_CHECK tern_status tern_job_open(struct tern_job *job,
                                          const struct tern_train_options *options);
void tern_job_close(struct tern_job *job);
/* Floating-point operations to train on one token. */
double tern_job_flops_per_token(const struct tern_job *job);
/* First 64 bits of a digest in hexadecimal. */
uint64_t tern_job_digest_bits(const char *hex);
/* The JSON that goes with a checkpoint of the state as it is. */
TERN_MUST_CHECK tern_status tern_job_progress(const struct tern_job *job, struct tern_text *out);

#endif
