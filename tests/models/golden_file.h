/* golden_file.h - reads the committed golden cases: safetensors of F32 and I32, written by tests/oracles/make_golden.py. */
#ifndef TERN_TESTS_MODELS_GOLDEN_FILE_H
#define TERN_TESTS_MODELS_GOLDEN_FILE_H

#include "io/file.h"
#include "io/json.h"
#include "models/model.h"

struct golden {
    struct tern_map map;
    struct tern_json *header;
    const uint8_t *data;
    struct tern_model_config config;
    double lr, beta1, beta2, eps, weight_decay, clip;
};

struct golden_tensor {
    const void *data; /* f32 or i32 */
    int64_t size;
    int rank;
    int64_t shape[4];
};

/* Fails the test when anything is not as expected. */
void golden_open(struct golden *golden, const char *path);
void golden_close(struct golden *golden);
struct golden_tensor golden_tensor(const struct golden *golden, const char *name);

#endif
