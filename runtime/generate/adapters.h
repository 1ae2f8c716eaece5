/* adapters.h - low-rank adapters in host memory, to be added to the weights that they belong to. */
#ifndef TERN_RUNTIME_GENERATE_ADAPTERS_H
#define TERN_RUNTIME_GENERATE_ADAPTERS_H

#include "io/checkpoint.h"
#include "models/lora.h"
#include "models/peft.h"

struct tern_adapters {
    struct tern_model model; /* tables only */
    struct tern_lora lora;
    /* As peft's file has it, alpha apart where that is scaled by the root of the rank. */
    struct tern_peft_config config;
    float *values; /* A and B as lora.params lays them out */
};

/* Of a run's checkpoint, beside a model of these numbers. Owned: close. */
TERN_MUST_CHECK tern_status tern_adapters_open_run(const struct tern_model_config *model,
                                                   const struct tern_peft_config *config,
                                                   struct tern_ckpt_reader *reader,
                                                   struct tern_adapters *out);
/* Of a folder that peft wrote: adapter_model.safetensors, which holds all of A and B and nothing
 * else. */
TERN_MUST_CHECK tern_status tern_adapters_open_peft(const struct tern_model_config *model,
                                                    const struct tern_peft_config *config,
                                                    const char *folder,
                                                    struct tern_adapters *out);
void tern_adapters_close(struct tern_adapters *adapters);
/* Rows [row, row + count) of a tensor of the model, f32: what its adapters add, if it has some. */
void tern_adapters_merge(const struct tern_adapters *adapters,
                         const struct tern_param *param,
                         int64_t row,
                         int64_t count,
                         float *rows);

#endif
