/* gguf_fixture.h - a small GGUF file in memory, and where each of its fields lies. */
#ifndef TERN_TESTS_IO_GGUF_FIXTURE_H
#define TERN_TESTS_IO_GGUF_FIXTURE_H

#include "tests/base/check.h"

#include <stdbool.h>
#include <string.h>

/* The keys of the file, in order. */
enum {
    KEY_ARCHITECTURE, /* string "llama" */
    KEY_ALIGNMENT,    /* u32 32 */
    KEY_BLOCKS,       /* u32 2 */
    KEY_EPSILON,      /* f32 1e-5 */
    KEY_FLAG,         /* bool true */
    KEY_TOKENS,       /* strings "a", "bc", "" */
    KEY_SCORES,       /* f32 -1, 0.5 */
    KEY_KINDS,        /* i32 1, -2, 3 */
    KEY_LAST,         /* i64 -7 */
    KEY_COUNT
};

/* Its tensors: f32 [2, 3], q8_0 [2, 32], f16 [5]. */
enum {
    TENSOR_COUNT = 3,
    FIXTURE_BYTES = 2048
};

enum field {
    HEAD,      /* byte 0 */
    KEY,       /* u64 length, then the text */
    TYPE,      /* of a key: u32 */
    VALUE,     /* of a key; of an array the element type: u32, u64 count, elements */
    NAME,      /* of a tensor: u64 length, then the text */
    RANK,      /* u32 */
    DIMENSION, /* u64 each, fastest first */
    DTYPE,     /* u32 */
    OFFSET,    /* u64 */
    DATA       /* of a tensor, in the data section */
};

struct gguf_fixture {
    unsigned char bytes[FIXTURE_BYTES];
    size_t size;
    size_t at[DATA + 1][KEY_COUNT]; /* position of each field of each key or tensor */
};

static inline void put(struct gguf_fixture *file, uint64_t value, size_t bytes)
{
    assert_true(file->size + bytes <= FIXTURE_BYTES);
    for (size_t i = 0; i < bytes; i++) {
        file->bytes[file->size++] = (unsigned char)(value >> 8 * i);
    }
}

static inline void put_text(struct gguf_fixture *file, const char *text)
{
    put(file, strlen(text), 8);
    for (; *text != '\0'; text++) {
        put(file, (unsigned char)*text, 1);
    }
}

static inline void put_float(struct gguf_fixture *file, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(file, bits, 4);
}

static inline void put_key(struct gguf_fixture *file, int key, const char *name, int type)
{
    file->at[KEY][key] = file->size;
    put_text(file, name);
    file->at[TYPE][key] = file->size;
    put(file, (uint64_t)type, 4);
    file->at[VALUE][key] = file->size;
}

static inline void put_array(struct gguf_fixture *file, int type, int count)
{
    put(file, (uint64_t)type, 4);
    put(file, (uint64_t)count, 8);
}

static inline void put_tensor(struct gguf_fixture *file,
                              int tensor,
                              const char *name,
                              const int *dims,
                              int rank,
                              int type,
                              int offset)
{
    file->at[NAME][tensor] = file->size;
    put_text(file, name);
    file->at[RANK][tensor] = file->size;
    put(file, (uint64_t)rank, 4);
    file->at[DIMENSION][tensor] = file->size;
    for (int i = 0; i < rank; i++) {
        put(file, (uint64_t)dims[i], 8);
    }
    file->at[DTYPE][tensor] = file->size;
    put(file, (uint64_t)type, 4);
    file->at[OFFSET][tensor] = file->size;
    put(file, (uint64_t)offset, 8);
}

static inline void put_keys(struct gguf_fixture *file)
{
    put_key(file, KEY_ARCHITECTURE, "general.architecture", 8);
    put_text(file, "llama");
    put_key(file, KEY_ALIGNMENT, "general.alignment", 4);
    put(file, 32, 4);
    put_key(file, KEY_BLOCKS, "llama.block_count", 4);
    put(file, 2, 4);
    put_key(file, KEY_EPSILON, "llama.attention.layer_norm_rms_epsilon", 6);
    put_float(file, 1e-5f);
    put_key(file, KEY_FLAG, "tokenizer.ggml.add_bos_token", 7);
    put(file, 1, 1);
    put_key(file, KEY_TOKENS, "tokenizer.ggml.tokens", 9);
    put_array(file, 8, 3);
    put_text(file, "a");
    put_text(file, "bc");
    put_text(file, "");
    put_key(file, KEY_SCORES, "tokenizer.ggml.scores", 9);
    put_array(file, 6, 2);
    put_float(file, -1.0f);
    put_float(file, 0.5f);
    put_key(file, KEY_KINDS, "tokenizer.ggml.token_type", 9);
    put_array(file, 5, 3);
    put(file, 1, 4);
    put(file, (uint64_t)-2, 4);
    put(file, 3, 4);
    put_key(file, KEY_LAST, "test.negative", 11);
    put(file, (uint64_t)-7, 8);
}

static inline void make_gguf(struct gguf_fixture *file)
{
    memset(file, 0, sizeof *file);
    put(file, 0x46554747, 4);
    put(file, 3, 4);
    put(file, TENSOR_COUNT, 8);
    put(file, KEY_COUNT, 8);
    put_keys(file);
    put_tensor(file, 0, "token_embd.weight", (int[]){3, 2}, 2, 0, 0);
    put_tensor(file, 1, "blk.0.attn_q.weight", (int[]){32, 2}, 2, 8, 32);
    put_tensor(file, 2, "output_norm.weight", (int[]){5}, 1, 1, 128);
    file->size = (file->size + 31) & ~(size_t)31;
    static const int bytes[TENSOR_COUNT] = {24, 68, 10}, padded[TENSOR_COUNT] = {32, 96, 10};
    for (int t = 0; t < TENSOR_COUNT; t++) {
        file->at[DATA][t] = file->size;
        for (int i = 0; i < padded[t]; i++) {
            put(file, i < bytes[t] ? (uint64_t)(t + 1) : 0, 1);
        }
    }
}

#endif
