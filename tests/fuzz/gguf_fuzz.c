/* gguf_fuzz.c - any bytes as a GGUF file, through everything that reads one: metadata, tensors, the model's
 * config and its parameters, the tokenizer, and the tokenizer.json that export makes of it. */
#include "io/gguf.h"
#include "io/tokenizer.h"
#include "kernels/blocks.h"
#include "models/pretrained.h"
#include "runtime/export/export_impl.h"
#include "tests/fuzz/memory_file.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* What the compiler must not leave out. */
static volatile double g_sink;

static void read_array(const struct tern_gguf *gguf, const char *key)
{
    struct tern_gguf_array array;
    size_t bytes;
    if (tern_gguf_array(gguf, key, TERN_GGUF_STRINGS, &array) == TERN_OK) {
        for (int64_t i = 0; i < array.count; i++) {
            const char *text = tern_gguf_array_string(&array, i, &bytes);
            g_sink += bytes > 0 ? text[0] + text[bytes - 1] : 0;
        }
    }
    for (int sort = TERN_GGUF_INTEGERS; sort < TERN_GGUF_STRINGS; sort++) {
        if (tern_gguf_array(gguf, key, (enum tern_gguf_elements)sort, &array) == TERN_OK &&
            array.count > 0) {
            int64_t last = array.count - 1;
            g_sink += sort == TERN_GGUF_INTEGERS ? (double)tern_gguf_array_i64(&array, last)
                      : sort == TERN_GGUF_FLOATS ? tern_gguf_array_f64(&array, last)
                                                 : tern_gguf_array_bool(&array, last);
        }
    }
}

static void read_keys(const struct tern_gguf *gguf)
{
    const char *key;
    for (int64_t i = 0; (key = tern_gguf_key(gguf, i, NULL)) != NULL; i++) {
        int64_t whole = 0;
        uint64_t natural = 0;
        double real = 0;
        bool truth = false;
        const char *text;
        size_t bytes;
        if (!tern_gguf_has(gguf, key)) {
            abort();
        }
        g_sink += tern_gguf_i64(gguf, key, &whole) == TERN_OK ? (double)whole : 0;
        g_sink += tern_gguf_u64(gguf, key, &natural) == TERN_OK ? (double)natural : 0;
        g_sink += tern_gguf_f64(gguf, key, &real) == TERN_OK ? real : 0;
        g_sink += tern_gguf_bool(gguf, key, &truth) == TERN_OK ? truth : 0;
        if (tern_gguf_string(gguf, key, &text, &bytes) == TERN_OK && bytes > 0) {
            g_sink += text[0] + text[bytes - 1];
        }
        read_array(gguf, key);
    }
}

static void read_tensors(const struct tern_tensor_file *file)
{
    static float values[256];
    for (int64_t i = 0; i < tern_tensor_file_count(file); i++) {
        const struct tern_stored_tensor *tensor = tern_tensor_file_at(file, i);
        if (tern_tensor_file_find(file, tensor->name) != tensor) {
            abort();
        }
        if (tensor->bytes > 0) {
            const uint8_t *at = tensor->data;
            g_sink += at[0] + at[tensor->bytes - 1];
        }
        int64_t block = tern_dtype_block_elements(tensor->dtype);
        if (tern_blocks_can_decode(tensor->dtype) && tensor->elements >= block) {
            tern_blocks_decode(tensor->dtype, tensor->data, block, values);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = memory_file(data, bytes);
    struct tern_gguf *gguf;
    struct tern_pretrained pretrained;
    struct tern_tokenizer *tokenizer;
    if (tern_gguf_open(path, &gguf) == TERN_OK) {
        struct tern_text text;
        read_keys(gguf);
        read_tensors(tern_gguf_tensors(gguf));
        tern_text_init(&text);
        g_sink += tern_export_print_tokenizer(gguf, &text);
        tern_text_fini(&text);
        tern_gguf_close(gguf);
        if (tern_pretrained_open(path, &pretrained) == TERN_OK) {
            tern_pretrained_close(&pretrained);
        }
        if (tern_tokenizer_open(path, &tokenizer) == TERN_OK) {
            tern_tokenizer_close(tokenizer);
        }
    }
    check_memory(bytes);
    return 0;
}
