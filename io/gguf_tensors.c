/* gguf_tensors.c - the table of tensors of a GGUF file. */
#include "io/gguf_internal.h"

#include <inttypes.h>

/* GGUF's numbers of tensor types. Those without a dtype are known by name only. */
static const struct {
    uint32_t id;
    enum tern_dtype dtype;
    const char *name;
} g_types[] = {
    {0, TERN_F32, "F32"},
    {1, TERN_F16, "F16"},
    {2, TERN_Q4_0, "Q4_0"},
    {3, TERN_Q4_1, "Q4_1"},
    {6, TERN_Q5_0, "Q5_0"},
    {7, TERN_Q5_1, "Q5_1"},
    {8, TERN_Q8_0, "Q8_0"},
    {9, TERN_DTYPE_COUNT, "Q8_1"},
    {10, TERN_Q2_K, "Q2_K"},
    {11, TERN_Q3_K, "Q3_K"},
    {12, TERN_Q4_K, "Q4_K"},
    {13, TERN_Q5_K, "Q5_K"},
    {14, TERN_Q6_K, "Q6_K"},
    {15, TERN_DTYPE_COUNT, "Q8_K"},
    {16, TERN_DTYPE_COUNT, "IQ2_XXS"},
    {17, TERN_DTYPE_COUNT, "IQ2_XS"},
    {18, TERN_DTYPE_COUNT, "IQ3_XXS"},
    {19, TERN_DTYPE_COUNT, "IQ1_S"},
    {20, TERN_IQ4_NL, "IQ4_NL"},
    {21, TERN_DTYPE_COUNT, "IQ3_S"},
    {22, TERN_DTYPE_COUNT, "IQ2_S"},
    {23, TERN_IQ4_XS, "IQ4_XS"},
    {24, TERN_I8, "I8"},
    {25, TERN_I16, "I16"},
    {26, TERN_I32, "I32"},
    {27, TERN_I64, "I64"},
    {28, TERN_F64, "F64"},
    {29, TERN_DTYPE_COUNT, "IQ1_M"},
    {30, TERN_BF16, "BF16"},
    {34, TERN_DTYPE_COUNT, "TQ1_0"},
    {35, TERN_DTYPE_COUNT, "TQ2_0"},
    {39, TERN_MXFP4, "MXFP4"},
    {40, TERN_DTYPE_COUNT, "NVFP4"},
    {41, TERN_DTYPE_COUNT, "Q1_0"},
    {42, TERN_DTYPE_COUNT, "Q2_0"},
};

bool tern_gguf_dtype_id(enum tern_dtype dtype, uint32_t *id_out)
{
    for (size_t i = 0; i < sizeof g_types / sizeof *g_types; i++) {
        if (g_types[i].dtype == dtype) {
            *id_out = g_types[i].id;
            return true;
        }
    }
    return false;
}

static tern_status take_dtype(struct tern_gguf_reading *in,
                              const char *name,
                              uint64_t name_bytes,
                              enum tern_dtype *out)
{
    uint64_t id;
    const char *found = "none that is known";
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 4, "the type of a tensor", &id));
    for (size_t i = 0; i < sizeof g_types / sizeof *g_types; i++) {
        if (g_types[i].id == id && g_types[i].dtype != TERN_DTYPE_COUNT) {
            *out = g_types[i].dtype;
            return TERN_OK;
        }
        found = g_types[i].id == id ? g_types[i].name : found;
    }
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "%s: byte %zu: tensor '%.*s' has type %" PRIu64
                     " (%s), expected F32, F16, BF16, F64, an integer type, Q4_0 to Q8_0, Q2_K to "
                     "Q6_K, IQ4_NL, IQ4_XS or MXFP4",
                     in->path, in->at - 4, (int)name_bytes, name, id, found);
}

static tern_status take_shape(struct tern_gguf_reading *in,
                              const char *name,
                              uint64_t name_bytes,
                              struct tern_stored_tensor *tensor)
{
    uint64_t rank;
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 4, "the rank of a tensor", &rank));
    if (rank > TERN_STORED_RANK_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: tensor '%.*s' has %" PRIu64
                         " dimensions, expected at most %d",
                         in->path, in->at - 4, (int)name_bytes, name, rank, TERN_STORED_RANK_MAX);
    }
    tensor->rank = (int)rank;
    for (int i = tensor->rank; i-- > 0;) { /* stored fastest first */
        uint64_t size;
        TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 8, "a dimension of a tensor", &size));
        if (size > INT64_MAX) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %zu: tensor '%.*s' has a dimension of %" PRIu64
                             ", expected less than 2^63",
                             in->path, in->at - 8, (int)name_bytes, name, size);
        }
        tensor->shape[i] = (int64_t)size;
    }
    return TERN_OK;
}

/* One row of the table. Its offset must be the next multiple of the alignment behind the tensor before, as
 * every writer and llama.cpp's reader have it: so nothing overlaps, and nothing is hidden. */
static tern_status take_tensor(struct tern_gguf_reading *in, uint64_t *next)
{
    struct tern_stored_tensor tensor = {.file = in->path};
    const char *name;
    char shape[TERN_STORED_SHAPE_BYTES];
    uint64_t name_bytes, padded;
    size_t start = in->at;
    TERN_RETURN_IF_ERR(tern_gguf_take_string(in, "the name of a tensor", &name, &name_bytes));
    int shown = name_bytes < 64 ? (int)name_bytes : 64;
    TERN_RETURN_IF_ERR(take_shape(in, name, (uint64_t)shown, &tensor));
    TERN_RETURN_IF_ERR(take_dtype(in, name, (uint64_t)shown, &tensor.dtype));
    TERN_RETURN_IF_ERR(tern_gguf_take_number(in, 8, "the offset of a tensor", &tensor.offset));
    if (!tern_stored_tensor_size(&tensor)) {
        int64_t block = tern_dtype_block_elements(tensor.dtype);
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: tensor '%.*s' of shape %s has %s, expected %s%lld elements "
                         "and less than 2^63 bytes",
                         in->path, start, shown, name, tern_stored_shape_text(&tensor, shape),
                         tern_dtype_name(tensor.dtype),
                         block > 1 ? "rows of a multiple of " : "whole ", (long long)block);
    }
    if (tensor.offset != *next) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: tensor '%.*s' has its data at %" PRIu64
                         ", expected %" PRIu64 ": right behind the tensor before, aligned to "
                         "%" PRIu64,
                         in->path, in->at - 8, shown, name, tensor.offset, *next, in->alignment);
    }
    if (__builtin_add_overflow(tensor.offset, tensor.bytes, &padded) ||
        __builtin_add_overflow(padded, in->alignment - 1, &padded) || padded > INT64_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %zu: tensor '%.*s' of %zu bytes ends beyond 2^63, expected "
                         "tensors within the file's %zu bytes",
                         in->path, start, shown, name, tensor.bytes, in->bytes);
    }
    *next = padded & ~(in->alignment - 1);
    return tern_tensor_file_add(in->gguf->tensors, &tensor, name, (size_t)name_bytes, start + 8);
}

/* Offsets become pointers once it is known where the data begins. */
static tern_status place_tensors(struct tern_gguf_reading *in, int64_t first)
{
    uint64_t start = (in->at + in->alignment - 1) & ~(in->alignment - 1);
    for (int64_t i = first; i < tern_tensor_file_count(in->gguf->tensors); i++) {
        struct tern_stored_tensor *tensor = tern_tensor_file_edit(in->gguf->tensors, i);
        if (start > in->bytes || tensor->offset > in->bytes - start ||
            tensor->bytes > in->bytes - start - tensor->offset) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %" PRIu64 ": tensor %lld takes %zu bytes from here, "
                             "expected the file to end no earlier than that; it has %zu bytes: it "
                             "is cut off or broken",
                             in->path, start + tensor->offset, (long long)(i - first),
                             tensor->bytes, in->bytes);
        }
        tensor->offset += start;
        tensor->data = in->data + tensor->offset;
    }
    return TERN_OK;
}

tern_status tern_gguf_read_tensors(struct tern_gguf_reading *in, uint64_t count)
{
    int64_t first = tern_tensor_file_count(in->gguf->tensors);
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(take_tensor(in, &next));
    }
    return place_tensors(in, first);
}
