/* safetensors_fuzz.c - any bytes as a safetensors file; those behind an 'I' as an index of shards. */
#include "io/safetensors.h"
#include "io/safetensors_internal.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile unsigned g_sink;

static void read_file(const char *path)
{
    struct tern_tensor_file *file;
    if (tern_safetensors_open(path, &file) != TERN_OK) {
        return;
    }
    for (int64_t i = 0; i < tern_tensor_file_count(file); i++) {
        const struct tern_stored_tensor *tensor = tern_tensor_file_at(file, i);
        const uint8_t *at = tensor->data;
        if (tern_tensor_file_find(file, tensor->name) != tensor) {
            abort();
        }
        g_sink += tensor->bytes > 0 ? at[0] + at[tensor->bytes - 1] : 0u;
    }
    tern_tensor_file_close(file);
}

static void read_index(const char *path)
{
    struct tern_tensor_file *file;
    if (tern_tensor_file_create("fuzz", &file) != TERN_OK) {
        abort();
    }
    g_sink += tern_safetensors_add_shards(file, "/dev/null", path);
    if (tern_tensor_file_finish(file) != TERN_OK) {
        abort();
    }
    g_sink += tern_safetensors_check_index(file, "/dev/null", path);
    tern_tensor_file_close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes > 0 && data[0] == 'I') {
        read_index(memory_file(data + 1, bytes - 1));
    } else {
        read_file(memory_file(data, bytes));
    }
    check_memory(bytes);
    return 0;
}
