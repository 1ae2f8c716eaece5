/* model_file_tool.c - model files and block types from the command line, for tests/oracles/gguf_oracle.py.
 *
 *   model_file_tool decode TYPE ROWS WIDTH IN OUT                TYPE -> f32
 *   model_file_tool encode TYPE ROWS WIDTH IN OUT [IMPORTANCE]   f32 -> TYPE; IMPORTANCE: WIDTH f32
 *   model_file_tool list FILE           a line "tensor NAME TYPE OFFSET BYTES SHAPE..." each; for GGUF a line
 *                                       "key NAME VALUE" each, strings and arrays as CRC-32
 *   model_file_tool values FILE OUT     all tensors that can be decoded, f32, one behind the other */
#include "io/file.h"
#include "io/gguf.h"
#include "io/safetensors.h"
#include "kernels/blocks.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum tern_dtype dtype_of(const char *name)
{
    int d = 0;
    while (d < TERN_DTYPE_COUNT && strcmp(name, tern_dtype_name((enum tern_dtype)d)) != 0) {
        d++;
    }
    return (enum tern_dtype)d;
}

static tern_status convert(char **argv, const char *importance_path)
{
    bool is_encode = strcmp(argv[1], "encode") == 0;
    enum tern_dtype dtype = dtype_of(argv[2]);
    int64_t rows = atoll(argv[3]), width = atoll(argv[4]);
    struct tern_map in, importance = {0};
    size_t bytes;
    if (dtype == TERN_DTYPE_COUNT || !tern_dtype_row_bytes(dtype, rows * width, &bytes)) {
        return tern_fail(TERN_ERR_USAGE, "no such type or size");
    }
    TERN_RETURN_IF_ERR(tern_map_open(argv[5], &in));
    if (importance_path != NULL) {
        TERN_RETURN_IF_ERR(tern_map_open(importance_path, &importance));
    }
    size_t out_bytes = is_encode ? bytes : (size_t)(rows * width) * sizeof(float);
    void *out = tern_alloc("tool", out_bytes);
    if (out == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes", out_bytes);
    }
    if (is_encode) {
        TERN_RETURN_IF_ERR(tern_blocks_encode(dtype, (const float *)in.data, rows, width,
                                              (const float *)importance.data, out));
    } else {
        tern_blocks_decode(dtype, in.data, rows * width, out);
    }
    tern_status status = tern_file_replace(argv[6], out, out_bytes);
    tern_free(out);
    tern_map_close(&in);
    tern_map_close(&importance);
    return status;
}

/* CRC-32 as zlib has it; begins with 0. */
static uint32_t hash(uint32_t seed, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    seed = ~seed;
    for (size_t i = 0; i < bytes; i++) {
        seed ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            seed = seed >> 1 ^ (seed & 1 ? 0xedb88320u : 0);
        }
    }
    return ~seed;
}

static void print_array(const struct tern_gguf *gguf, const char *key)
{
    static const char *const names[] = {"integers", "floats", "bools", "strings"};
    struct tern_gguf_array array;
    uint32_t sum = 0;
    int sort = TERN_GGUF_INTEGERS;
    while (tern_gguf_array(gguf, key, (enum tern_gguf_elements)sort, &array) != TERN_OK) {
        sort++;
    }
    for (int64_t i = 0; i < array.count; i++) {
        size_t bytes = sizeof(int64_t);
        int64_t whole;
        double real;
        const void *data = &whole;
        if (sort == TERN_GGUF_STRINGS) {
            data = tern_gguf_array_string(&array, i, &bytes);
        } else if (sort == TERN_GGUF_FLOATS) {
            real = tern_gguf_array_f64(&array, i);
            data = &real;
        } else {
            whole = sort == TERN_GGUF_BOOLS ? tern_gguf_array_bool(&array, i)
                                            : tern_gguf_array_i64(&array, i);
        }
        sum = hash(sum, data, bytes);
        sum = hash(sum, "", 1);
    }
    printf("%s %" PRId64 " %08" PRIx32 "\n", names[sort], array.count, sum);
}

static void print_key(const struct tern_gguf *gguf, const char *key, enum tern_gguf_type type)
{
    int64_t whole;
    uint64_t natural;
    double real;
    bool flag;
    const char *text;
    size_t bytes;
    printf("key %s ", key);
    if (type == TERN_GGUF_ARRAY) {
        print_array(gguf, key);
    } else if (tern_gguf_i64(gguf, key, &whole) == TERN_OK) {
        printf("%" PRId64 "\n", whole);
    } else if (tern_gguf_u64(gguf, key, &natural) == TERN_OK) {
        printf("%" PRIu64 "\n", natural);
    } else if (tern_gguf_f64(gguf, key, &real) == TERN_OK) {
        printf("%.17g\n", real);
    } else if (tern_gguf_bool(gguf, key, &flag) == TERN_OK) {
        printf("%s\n", flag ? "True" : "False");
    } else if (tern_gguf_string(gguf, key, &text, &bytes) == TERN_OK) {
        printf("%08" PRIx32 "\n", hash(0, text, bytes));
    }
}

/* One of the two is set. */
struct opened {
    struct tern_gguf *gguf;
    struct tern_tensor_file *safetensors;
};

static tern_status open_any(const char *path, struct opened *out)
{
    *out = (struct opened){0};
    return tern_gguf_is_file(path) ? tern_gguf_open(path, &out->gguf)
                                   : tern_safetensors_open(path, &out->safetensors);
}

static const struct tern_tensor_file *tensors_of(const struct opened *opened)
{
    return opened->gguf != NULL ? tern_gguf_tensors(opened->gguf) : opened->safetensors;
}

static void close_any(struct opened *opened)
{
    tern_gguf_close(opened->gguf);
    tern_tensor_file_close(opened->safetensors);
}

static tern_status list(const char *path)
{
    struct opened opened;
    enum tern_gguf_type type;
    TERN_RETURN_IF_ERR(open_any(path, &opened));
    const struct tern_tensor_file *file = tensors_of(&opened);
    for (int64_t i = 0; i < tern_tensor_file_count(file); i++) {
        const struct tern_stored_tensor *t = tern_tensor_file_at(file, i);
        printf("tensor %s %s %" PRIu64 " %zu", t->name, tern_dtype_name(t->dtype), t->offset,
               t->bytes);
        for (int d = 0; d < t->rank; d++) {
            printf(" %" PRId64, t->shape[d]);
        }
        printf("\n");
    }
    for (int64_t i = 0; opened.gguf != NULL && tern_gguf_key(opened.gguf, i, &type) != NULL; i++) {
        print_key(opened.gguf, tern_gguf_key(opened.gguf, i, &type), type);
    }
    close_any(&opened);
    return TERN_OK;
}

static tern_status values(const char *path, const char *out_path)
{
    struct opened opened;
    FILE *out = fopen(out_path, "wb");
    TERN_RETURN_IF_ERR(open_any(path, &opened));
    const struct tern_tensor_file *file = tensors_of(&opened);
    tern_status status = TERN_OK;
    for (int64_t i = 0; i < tern_tensor_file_count(file) && status == TERN_OK; i++) {
        const struct tern_stored_tensor *t = tern_tensor_file_at(file, i);
        if (!tern_blocks_can_decode(t->dtype)) {
            continue;
        }
        float *block = tern_alloc("tool", (size_t)t->elements * sizeof *block);
        if (block == NULL || out == NULL) {
            status = tern_fail(TERN_ERR_MEMORY, "cannot write '%s'", out_path);
        } else {
            tern_blocks_decode(t->dtype, t->data, t->elements, block);
            fwrite(block, sizeof *block, (size_t)t->elements, out);
        }
        tern_free(block);
    }
    close_any(&opened);
    if (out != NULL && fclose(out) != 0 && status == TERN_OK) {
        status = tern_fail(TERN_ERR_IO, "cannot write '%s'", out_path);
    }
    return status;
}

int main(int argc, char **argv)
{
    tern_status status;
    if (argc == 3 && strcmp(argv[1], "list") == 0) {
        status = list(argv[2]);
    } else if (argc == 4 && strcmp(argv[1], "values") == 0) {
        status = values(argv[2], argv[3]);
    } else if (argc == 7 || argc == 8) {
        status = convert(argv, argv[7]);
    } else {
        status = tern_fail(TERN_ERR_USAGE, "see the head of tests/io/model_file_tool.c");
    }
    if (status != TERN_OK) {
        fprintf(stderr, "model_file_tool: %s\n", tern_detail());
    }
    return tern_status_exit_code(status);
}
