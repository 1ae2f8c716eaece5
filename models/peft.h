/* peft.h - adapter_config.json, as the Python package peft writes it for LoRA. */
#ifndef TERN_MODELS_PEFT_H
#define TERN_MODELS_PEFT_H

#include "models/lora.h"
#include "runtime/base/text.h"

enum {
    TERN_PEFT_TARGET_BYTES = 128,
    TERN_PEFT_BASE_BYTES = 4096
};

struct tern_peft_config {
    int64_t rank;
    double alpha; /* as if use_rslora were false: alpha / rank is the scale */
    char targets[TERN_LORA_TARGETS_MAX][TERN_PEFT_TARGET_BYTES];
    int target_count;
    char base[TERN_PEFT_BASE_BYTES]; /* base_model_name_or_path, "" if null */
};

/* `name` is the file's, for messages. What would change the arithmetic and is not here (DoRA, biases,
 * ranks that differ between modules, ...) is refused by its key: TERN_ERR_UNSUPPORTED. */
TERN_MUST_CHECK tern_status tern_peft_config_parse(const char *name,
                                                   const char *text,
                                                   size_t bytes,
                                                   struct tern_peft_config *out);
/* What parse reads as *config; is_out_in: how the model stores its matrices. */
TERN_MUST_CHECK tern_status tern_peft_config_print(const struct tern_peft_config *config,
                                                   bool is_out_in,
                                                   struct tern_text *out);

#endif
