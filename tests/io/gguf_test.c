/* gguf_test.c - a good GGUF file is read as it was written; a broken one is refused by saying where and why. */
#include "io/file.h"
#include "io/gguf.h"
#include "tests/io/gguf_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char g_folder[] = "/tmp/tern-gguf-XXXXXX";

static void path_of(char path[TERN_PATH_BYTES], const char *name)
{
    snprintf(path, TERN_PATH_BYTES, "%s/%s", g_folder, name);
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static tern_status open_bytes(const void *data, size_t bytes, struct tern_gguf **out)
{
    char path[TERN_PATH_BYTES];
    path_of(path, "test.gguf");
    write_file(path, data, bytes);
    return tern_gguf_open(path, out);
}

static void test_values(void **state)
{
    (void)state;
    struct gguf_fixture file;
    struct tern_gguf *gguf;
    int64_t i64;
    uint64_t u64;
    double f64;
    bool flag = false;
    const char *text;
    size_t bytes;
    enum tern_gguf_type type;
    make_gguf(&file);
    assert_int_equal(open_bytes(file.bytes, file.size, &gguf), TERN_OK);
    assert_int_equal(tern_gguf_i64(gguf, "llama.block_count", &i64), TERN_OK);
    assert_int_equal(i64, 2);
    assert_int_equal(tern_gguf_i64(gguf, "test.negative", &i64), TERN_OK);
    assert_int_equal(i64, -7);
    assert_int_equal(tern_gguf_u64(gguf, "general.alignment", &u64), TERN_OK);
    assert_int_equal(u64, 32);
    assert_int_equal(tern_gguf_f64(gguf, "llama.attention.layer_norm_rms_epsilon", &f64), TERN_OK);
    assert_true(f64 == (double)1e-5f);
    assert_int_equal(tern_gguf_f64(gguf, "test.negative", &f64), TERN_OK);
    assert_true(f64 == -7);
    assert_int_equal(tern_gguf_bool(gguf, "tokenizer.ggml.add_bos_token", &flag), TERN_OK);
    assert_true(flag);
    assert_int_equal(tern_gguf_string(gguf, "general.architecture", &text, &bytes), TERN_OK);
    assert_int_equal(bytes, 5);
    assert_memory_equal(text, "llama", 5);
    assert_true(tern_gguf_string_is(gguf, "general.architecture", "llama"));
    assert_false(tern_gguf_string_is(gguf, "general.architecture", "llam"));
    assert_false(tern_gguf_string_is(gguf, "general.alignment", "llama"));
    assert_false(tern_gguf_string_is(gguf, "none", "llama"));
    assert_true(tern_gguf_has(gguf, "test.negative"));
    assert_string_equal(tern_gguf_key(gguf, KEY_TOKENS, &type), "tokenizer.ggml.tokens");
    assert_int_equal(type, TERN_GGUF_ARRAY);
    assert_null(tern_gguf_key(gguf, KEY_COUNT, NULL));
    tern_gguf_close(gguf);
}

static void test_arrays(void **state)
{
    (void)state;
    struct gguf_fixture file;
    struct tern_gguf *gguf;
    struct tern_gguf_array array;
    size_t bytes;
    make_gguf(&file);
    assert_int_equal(open_bytes(file.bytes, file.size, &gguf), TERN_OK);
    assert_int_equal(tern_gguf_array(gguf, "tokenizer.ggml.tokens", TERN_GGUF_STRINGS, &array),
                     TERN_OK);
    assert_int_equal(array.count, 3);
    assert_memory_equal(tern_gguf_array_string(&array, 1, &bytes), "bc", 2);
    assert_int_equal(bytes, 2);
    tern_gguf_array_string(&array, 2, &bytes);
    assert_int_equal(bytes, 0);
    assert_int_equal(tern_gguf_array(gguf, "tokenizer.ggml.scores", TERN_GGUF_FLOATS, &array),
                     TERN_OK);
    assert_int_equal(array.count, 2);
    assert_true(tern_gguf_array_f64(&array, 0) == -1 && tern_gguf_array_f64(&array, 1) == 0.5);
    assert_int_equal(tern_gguf_array(gguf, "tokenizer.ggml.token_type", TERN_GGUF_INTEGERS, &array),
                     TERN_OK);
    assert_int_equal(array.count, 3);
    assert_int_equal(tern_gguf_array_i64(&array, 1), -2);
    tern_gguf_close(gguf);
}

static void test_tensors(void **state)
{
    (void)state;
    struct gguf_fixture file;
    struct tern_gguf *gguf;
    make_gguf(&file);
    assert_int_equal(open_bytes(file.bytes, file.size, &gguf), TERN_OK);
    const struct tern_tensor_file *tensors = tern_gguf_tensors(gguf);
    assert_int_equal(tern_tensor_file_count(tensors), TENSOR_COUNT);
    assert_int_equal(tern_tensor_file_bytes(tensors), file.size);
    const struct tern_stored_tensor *q = tern_tensor_file_find(tensors, "blk.0.attn_q.weight");
    assert_ptr_equal(q, tern_tensor_file_at(tensors, 1));
    assert_null(tern_tensor_file_find(tensors, "blk.0.attn_k.weight"));
    assert_int_equal(q->dtype, TERN_Q8_0);
    assert_int_equal(q->rank, 2);
    assert_int_equal(q->shape[0], 2);
    assert_int_equal(q->shape[1], 32);
    assert_int_equal(q->shape[2], 1);
    assert_int_equal(q->elements, 64);
    assert_int_equal(q->bytes, 68);
    assert_int_equal(q->offset, file.at[DATA][1]);
    assert_int_equal((uintptr_t)q->data % 32, 0);
    assert_memory_equal(q->data, file.bytes + file.at[DATA][1], 68);
    const struct tern_stored_tensor *norm = tern_tensor_file_at(tensors, 2);
    assert_string_equal(norm->name, "output_norm.weight");
    assert_int_equal(norm->dtype, TERN_F16);
    assert_int_equal(norm->bytes, 10);
    tern_gguf_close(gguf);
}

/* Accessors on a good file with the wrong question. */
static void test_wrong_questions(void **state)
{
    (void)state;
    struct gguf_fixture file;
    struct tern_gguf *gguf;
    struct tern_gguf_array array;
    int64_t i64;
    uint64_t u64;
    double f64;
    bool flag;
    const char *text;
    size_t bytes;
    make_gguf(&file);
    assert_int_equal(open_bytes(file.bytes, file.size, &gguf), TERN_OK);
#define REFUSED(call, words) \
    do { \
        assert_int_equal(call, TERN_ERR_INPUT); \
        assert_contains(tern_detail(), "test.gguf"); \
        assert_contains(tern_detail(), words); \
    } while (0)
    REFUSED(tern_gguf_i64(gguf, "none", &i64), "found no key 'none', expected an integer");
    REFUSED(tern_gguf_i64(gguf, "general.architecture", &i64),
            "'general.architecture' is a value of type string, expected an integer");
    REFUSED(tern_gguf_i64(gguf, "tokenizer.ggml.token_type", &i64),
            "is an array of i32, expected an integer");
    REFUSED(tern_gguf_u64(gguf, "test.negative", &u64), "is -7, expected 0 or more");
    REFUSED(tern_gguf_u64(gguf, "none", &u64), "found no key 'none'");
    REFUSED(tern_gguf_f64(gguf, "tokenizer.ggml.add_bos_token", &f64), "expected a number");
    REFUSED(tern_gguf_f64(gguf, "none", &f64), "expected a number");
    REFUSED(tern_gguf_bool(gguf, "llama.block_count", &flag), "type u32, expected a bool");
    REFUSED(tern_gguf_bool(gguf, "none", &flag), "expected a bool");
    REFUSED(tern_gguf_string(gguf, "llama.block_count", &text, &bytes), "expected a string");
    REFUSED(tern_gguf_string(gguf, "none", &text, &bytes), "expected a string");
    REFUSED(tern_gguf_array(gguf, "none", TERN_GGUF_BOOLS, &array), "expected an array of bools");
    REFUSED(tern_gguf_array(gguf, "llama.block_count", TERN_GGUF_INTEGERS, &array),
            "is a value of type u32, expected an array of integers");
    REFUSED(tern_gguf_array(gguf, "tokenizer.ggml.tokens", TERN_GGUF_FLOATS, &array),
            "is an array of string, expected an array of floats");
#undef REFUSED
    tern_gguf_close(gguf);
}

struct broken {
    enum field field;
    int index; /* of the key or tensor */
    int delta; /* bytes behind the field's beginning */
    int width; /* bytes that are replaced; 0: the file ends there */
    uint64_t value;
    const char *found, *expected;
};

#define ALL  UINT64_MAX
#define HALF (UINT64_C(1) << 63)

static const struct broken g_broken[] = {
    /* the head */
    {HEAD, 0, 0, 4, 0x46554746, "byte 0: found 0x46554746", "expected the mark"},
    {HEAD, 0, 0, 4, 0, "byte 0: found 0x00000000", "expected the mark"},
    {HEAD, 0, 4, 4, 0, "version is 0", "expected 2 or 3"},
    {HEAD, 0, 4, 4, 1, "version is 1", "expected 2 or 3"},
    {HEAD, 0, 4, 4, 4, "version is 4", "expected 2 or 3"},
    {HEAD, 0, 4, 4, 0x03000000, "(a big-endian file)", "expected 2 or 3"},
    {HEAD, 0, 8, 8, ALL, "byte 8: found 18446744073709551615 tensors", "expected at most"},
    {HEAD, 0, 8, 8, HALF, "found 9223372036854775808 tensors", "expected at most"},
    {HEAD, 0, 8, 8, 1 << 20, "found 1048576 tensors", "expected at most"},
    {HEAD, 0, 8, 8, 4, "tensor '' has its data at 0", "expected 160"},
    {HEAD, 0, 16, 8, ALL, "18446744073709551615 keys", "expected at most"},
    {HEAD, 0, 16, 8, 1 << 20, "1048576 keys", "expected at most"},
    {HEAD, 0, 16, 8, UINT64_C(1) << 56, "72057594037927936 keys", "expected at most"},
    {HEAD, 0, 16, 8, KEY_COUNT + 1, "the name of a tensor takes", "left of the file"},
    {HEAD, 0, 16, 8, KEY_COUNT - 1, "dimensions", "expected at most 4"},
    {HEAD, 0, 0, 0, 0, "byte 0: the mark GGUF takes 4 bytes", "at most the 0"},
    {HEAD, 0, 3, 0, 0, "byte 0: the mark GGUF takes 4 bytes", "at most the 3"},
    {HEAD, 0, 4, 0, 0, "byte 4: the version takes 4", "at most the 0"},
    {HEAD, 0, 15, 0, 0, "byte 8: the count of tensors takes 8", "at most the 7"},
    {HEAD, 0, 16, 0, 0, "byte 16: the count of keys takes 8", "at most the 0"},
    {HEAD, 0, 24, 0, 0, "byte 24: a key takes 8", "at most the 0"},
    /* keys */
    {KEY, KEY_BLOCKS, 0, 8, ALL, "a key takes 18446744073709551615", "left of the file"},
    {KEY, KEY_BLOCKS, 0, 8, HALF, "a key takes 9223372036854775808", "left of the file"},
    {KEY, KEY_BLOCKS, 0, 8, ALL - 7, "a key takes 18446744073709551608", "left of the file"},
    {KEY, KEY_BLOCKS, 0, 8, 0, "a key of 0 bytes", "expected 1 to 255"},
    {KEY, KEY_BLOCKS, 0, 8, 300, "a key of 300 bytes", "expected 1 to 255"},
    {KEY, KEY_BLOCKS, 8, 1, 0, "a key of 17 bytes", "printable ASCII"},
    {KEY, KEY_BLOCKS, 12, 1, ' ', "begins with 'llam'", "printable ASCII"},
    {KEY, KEY_BLOCKS, 12, 1, 0xff, "begins with 'llam'", "printable ASCII"},
    {KEY, KEY_BLOCKS, 4, 0, 0, "a key takes 8 bytes", "at most the 4"},
    {KEY, KEY_BLOCKS, 12, 0, 0, "a key takes 17 bytes", "at most the 4"},
    {TYPE, KEY_BLOCKS, 0, 4, 13, "'llama.block_count' has type 13", "expected 0 to 12"},
    {TYPE, KEY_BLOCKS, 0, 4, UINT32_MAX, "has type 4294967295", "expected 0 to 12"},
    {TYPE, KEY_BLOCKS, 2, 0, 0, "a type takes 4 bytes", "at most the 2"},
    {TYPE, KEY_BLOCKS, 0, 4, 8, "takes", "left of the file"},
    {TYPE, KEY_ALIGNMENT, 0, 4, 5, "'general.alignment' is 0 (i32)", "power of two"},
    {TYPE, KEY_LAST, 0, 4, 8, "takes 18446744073709551609", "left of the file"},
    {VALUE, KEY_ALIGNMENT, 0, 4, 0, "'general.alignment' is 0", "power of two"},
    {VALUE, KEY_ALIGNMENT, 0, 4, 24, "'general.alignment' is 24", "power of two"},
    {VALUE, KEY_ALIGNMENT, 0, 4, 1 << 21, "is 2097152", "power of two up to 1048576"},
    {VALUE, KEY_ALIGNMENT, 0, 4, UINT32_MAX, "is 4294967295", "power of two"},
    {VALUE, KEY_ALIGNMENT, 0, 4, 64, "has its data at 32", "expected 64"},
    {VALUE, KEY_ALIGNMENT, 0, 4, 1, "has its data at 32", "expected 24"},
    {VALUE, KEY_FLAG, 0, 1, 2, "'tokenizer.ggml.add_bos_token' has the boolean 2", "0 or 1"},
    {VALUE, KEY_LAST, 3, 0, 0, "test.negative takes 8 bytes", "at most the 3"},
    /* strings */
    {VALUE, KEY_ARCHITECTURE, 0, 8, ALL, "takes 18446744073709551615 bytes", "left of the file"},
    {VALUE, KEY_ARCHITECTURE, 0, 8, HALF - 1, "takes 9223372036854775807", "left of the file"},
    {VALUE, KEY_ARCHITECTURE, 0, 8, UINT32_MAX, "takes 4294967295 bytes", "left of the file"},
    {VALUE, KEY_ARCHITECTURE, 4, 0, 0, "general.architecture", "at most 0"},
    {VALUE, KEY_ARCHITECTURE, 9, 0, 0, "takes 5 bytes", "at most the 1"},
    /* arrays */
    {VALUE, KEY_TOKENS, 0, 4, 9, "is an array of arrays", "expected single values"},
    {VALUE, KEY_TOKENS, 0, 4, 13, "has type 13", "expected 0 to 12"},
    {VALUE, KEY_TOKENS, 4, 8, ALL, "has 18446744073709551615 elements", "expected fewer"},
    {VALUE, KEY_TOKENS, 4, 8, HALF - 1, "has 9223372036854775807 strings", "expected at most"},
    {VALUE, KEY_TOKENS, 4, 8, UINT64_C(1) << 61, "strings", "expected at most"},
    {VALUE, KEY_TOKENS, 4, 8, 1 << 30, "has 1073741824 strings", "expected at most"},
    {VALUE, KEY_TOKENS, 4, 8, 50, "a string of an array takes", "left of the file"},
    {VALUE, KEY_TOKENS, 4, 8, 4, "takes", "left of the file"},
    {VALUE, KEY_TOKENS, 12, 8, ALL, "a string of an array takes 18446744073709551615",
     "left of the file"},
    {VALUE, KEY_TOKENS, 12, 8, HALF, "takes 9223372036854775808", "left of the file"},
    {VALUE, KEY_TOKENS, 12, 0, 0, "has 3 strings", "expected at most 0"},
    {VALUE, KEY_SCORES, 4, 8, ALL, "has 18446744073709551615 elements", "expected fewer"},
    {VALUE, KEY_SCORES, 4, 8, HALF - 1, "takes", "left of the file"},
    {VALUE, KEY_SCORES, 4, 8, UINT64_C(1) << 62, "takes", "left of the file"},
    {VALUE, KEY_SCORES, 4, 8, (UINT64_C(1) << 62) + 1, "takes", "left of the file"},
    {VALUE, KEY_SCORES, 4, 8, 1 << 20, "tokenizer.ggml.scores takes 4194304 bytes",
     "left of the file"},
    {VALUE, KEY_SCORES, 0, 4, 12, "takes", "left of the file"},
    {VALUE, KEY_SCORES, 2, 0, 0, "a type takes 4 bytes", "at most the 2"},
    {VALUE, KEY_SCORES, 6, 0, 0, "the length of an array takes 8", "at most the 2"},
    {VALUE, KEY_SCORES, 13, 0, 0, "tokenizer.ggml.scores takes 8 bytes", "at most the 1"},
    {VALUE, KEY_KINDS, 0, 4, 7, "a key takes", "left of the file"},
    /* names of tensors */
    {NAME, 0, 0, 8, ALL, "the name of a tensor takes 18446744073709551615", "left of the file"},
    {NAME, 0, 0, 8, HALF, "the name of a tensor takes", "left of the file"},
    {NAME, 0, 0, 8, 0, "tensor '' has 1701539700 dimensions", "expected at most 4"},
    {NAME, 0, 8, 1, 0, "the tensor name '...' has the character 0x00", "no control characters"},
    {NAME, 0, 12, 1, '\n', "the tensor name 'toke...' has the character 0x0a", "no control"},
    {NAME, 2, 12, 0, 0, "the name of a tensor takes 18 bytes", "at most the 4"},
    /* ranks and dimensions */
    {RANK, 0, 0, 4, 5, "'token_embd.weight' has 5 dimensions", "expected at most 4"},
    {RANK, 0, 0, 4, UINT32_MAX, "has 4294967295 dimensions", "expected at most 4"},
    {RANK, 1, 0, 4, 1, "'blk.0.attn_q.weight' has its data at", "expected 32"},
    {DIMENSION, 0, 0, 8, ALL, "has a dimension of 18446744073709551615", "less than 2^63"},
    {DIMENSION, 0, 0, 8, HALF, "has a dimension of 9223372036854775808", "less than 2^63"},
    {DIMENSION, 0, 0, 8, HALF - 1, "shape [2, 9223372036854775807]", "less than 2^63 bytes"},
    {DIMENSION, 0, 0, 8, UINT64_C(1) << 62, "shape [2, 4611686018427387904]", "less than 2^63"},
    {DIMENSION, 0, 8, 8, UINT64_C(1) << 61, "shape [2305843009213693952, 3]", "less than 2^63"},
    {DIMENSION, 0, 8, 8, (UINT64_C(1) << 62) / 3, "", "expected"},
    {DIMENSION, 0, 8, 8, 1 << 20, "has its data at 32", "expected 12582912"},
    {DIMENSION, 2, 0, 8, 1 << 20, "tensor 2 takes 2097152 bytes from here", "cut off"},
    {DIMENSION, 2, 0, 8, 6, "tensor 2 takes 12 bytes from here", "cut off"},
    {DIMENSION, 2, 0, 8, (HALF - 256) / 2, "takes 9223372036854775552 bytes", "cut off"},
    {DIMENSION, 2, 0, 8, (HALF - 2) / 2, "ends beyond 2^63", "within the file's"},
    {DIMENSION, 0, 0, 8, 100, "has its data at 32", "expected 800"},
    {DIMENSION, 1, 0, 8, 33, "shape [2, 33] has q8_0", "rows of a multiple of 32"},
    {DIMENSION, 1, 0, 8, 1, "shape [2, 1] has q8_0", "rows of a multiple of 32"},
    {DIMENSION, 1, 0, 8, 0, "has its data at 128", "expected 32"},
    {DIMENSION, 1, 0, 8, UINT64_C(1) << 62, "shape [2, 4611686018427387904]", "multiple of 32"},
    {DIMENSION, 1, 12, 0, 0, "a dimension of a tensor takes 8", "at most the 4"},
    /* types */
    {DTYPE, 0, 0, 4, 4, "type 4 (none that is known)", "expected F32"},
    {DTYPE, 0, 0, 4, 31, "type 31 (none that is known)", "expected F32"},
    {DTYPE, 0, 0, 4, 9, "type 9 (Q8_1)", "expected F32"},
    {DTYPE, 0, 0, 4, 16, "'token_embd.weight' has type 16 (IQ2_XXS)", "expected F32"},
    {DTYPE, 0, 0, 4, 34, "type 34 (TQ1_0)", "expected F32"},
    {DTYPE, 0, 0, 4, 40, "type 40 (NVFP4)", "expected F32"},
    {DTYPE, 0, 0, 4, 1000, "type 1000", "expected F32"},
    {DTYPE, 0, 0, 4, UINT32_MAX, "type 4294967295", "expected F32"},
    {DTYPE, 0, 0, 4, 28, "has its data at 32", "expected 64"},
    {DTYPE, 0, 0, 4, 12, "shape [2, 3] has q4_k", "rows of a multiple of 256"},
    {DTYPE, 0, 2, 0, 0, "the type of a tensor takes 4", "at most the 2"},
    /* offsets */
    {OFFSET, 0, 0, 8, 32, "has its data at 32", "expected 0"},
    {OFFSET, 1, 0, 8, 0, "has its data at 0", "expected 32"},
    {OFFSET, 1, 0, 8, 33, "has its data at 33", "expected 32"},
    {OFFSET, 1, 0, 8, 64, "has its data at 64", "expected 32"},
    {OFFSET, 1, 0, 8, ALL, "has its data at 18446744073709551615", "expected 32"},
    {OFFSET, 2, 0, 8, ALL - 31, "has its data at 18446744073709551584", "expected 128"},
    {OFFSET, 2, 0, 8, HALF, "has its data at 9223372036854775808", "expected 128"},
    {OFFSET, 2, 4, 0, 0, "the offset of a tensor takes 8", "at most the 4"},
    /* data */
    {OFFSET, 2, 8, 0, 0, "tensor 0 takes 24 bytes from here", "cut off"},
    {DATA, 0, 0, 0, 0, "tensor 0 takes 24 bytes from here", "cut off"},
    {DATA, 1, 67, 0, 0, "tensor 1 takes 68 bytes from here", "cut off"},
    {DATA, 2, 9, 0, 0, "tensor 2 takes 10 bytes from here", "cut off"},
};

static void test_broken_files(void **state)
{
    (void)state;
    struct gguf_fixture good, file;
    struct tern_gguf *gguf;
    int failures = 0;
    make_gguf(&good);
    for (size_t i = 0; i < sizeof g_broken / sizeof *g_broken; i++) {
        const struct broken *row = &g_broken[i];
        size_t at = good.at[row->field][row->index] + (size_t)row->delta;
        file = good;
        for (int b = 0; b < row->width; b++) {
            file.bytes[at + (size_t)b] = (unsigned char)(row->value >> 8 * b);
        }
        tern_status status = open_bytes(file.bytes, row->width > 0 ? file.size : at, &gguf);
        const char *said = tern_detail();
        if ((status != TERN_ERR_INPUT && status != TERN_ERR_UNSUPPORTED) ||
            strstr(said, "test.gguf") == NULL || strstr(said, row->found) == NULL ||
            strstr(said, row->expected) == NULL || tern_status_exit_code(status) != 2) {
            failures++;
            print_error("broken[%zu]: status %s, '%s'; expected '%s' and '%s'\n", i,
                        tern_status_name(status), said, row->found, row->expected);
        }
        assert_null(gguf);
        assert_int_equal(tern_mem_stats().live_blocks, 0);
    }
    assert_int_equal(failures, 0);
}

/* Two keys, and two tensors, of one name. */
static void test_duplicates(void **state)
{
    (void)state;
    struct gguf_fixture file;
    struct tern_gguf *gguf;
    make_gguf(&file);
    /* "tokenizer.ggml.scores" and "tokenizer.ggml.tokens" have one length */
    memcpy(file.bytes + file.at[KEY][KEY_SCORES], file.bytes + file.at[KEY][KEY_TOKENS], 29);
    assert_int_equal(open_bytes(file.bytes, file.size, &gguf), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "key 'tokenizer.ggml.tokens' is there twice");
    make_gguf(&file);
    struct gguf_fixture twice = file;
    twice.size = file.at[NAME][1];
    put_tensor(&twice, 1, "token_embd.weight", (int[]){32, 2}, 2, 8, 32);
    size_t rest = file.size - file.at[NAME][2];
    memcpy(twice.bytes + twice.size, file.bytes + file.at[NAME][2], rest);
    memset(twice.bytes + twice.size + rest, 0, 64);
    assert_int_equal(open_bytes(twice.bytes, twice.size + rest + 64, &gguf), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "tensor 'token_embd.weight' is there twice");
}

/* No prefix of the file is a file, no byte of it turned over is worse than an error. */
static void test_cuts_and_flips(void **state)
{
    (void)state;
    struct gguf_fixture good, file;
    struct tern_gguf *gguf;
    make_gguf(&good);
    for (size_t bytes = 0; bytes < good.size; bytes++) {
        assert_int_equal(open_bytes(good.bytes, bytes, &gguf), TERN_ERR_INPUT);
    }
    static const unsigned char flips[] = {0x01, 0x80, 0xff};
    for (size_t at = 0; at < good.size; at++) {
        for (size_t f = 0; f < sizeof flips; f++) {
            file = good;
            file.bytes[at] ^= flips[f];
            if (open_bytes(file.bytes, file.size, &gguf) == TERN_OK) {
                tern_gguf_close(gguf);
            }
            assert_int_equal(tern_mem_stats().live_blocks, 0);
        }
    }
}

static void write_split(const char *name, int number, int count)
{
    struct gguf_fixture file;
    char path[TERN_PATH_BYTES], tensor[32];
    memset(&file, 0, sizeof file);
    put(&file, 0x46554747, 4);
    put(&file, 2, 4);
    put(&file, 1, 8);
    put(&file, 2, 8);
    put_key(&file, 0, "split.no", 2);
    put(&file, (uint64_t)number, 2);
    put_key(&file, 1, "split.count", 2);
    put(&file, (uint64_t)count, 2);
    snprintf(tensor, sizeof tensor, "t%d", number);
    put_tensor(&file, 0, tensor, (int[]){4}, 1, 0, 0);
    file.size = ((file.size + 31) & ~(size_t)31) + 16;
    path_of(path, name);
    write_file(path, file.bytes, file.size);
}

static void test_splits(void **state)
{
    (void)state;
    struct tern_gguf *gguf;
    char path[TERN_PATH_BYTES];
    write_split("m-00001-of-00002.gguf", 0, 2);
    path_of(path, "m-00001-of-00002.gguf");
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_ERR_NOT_FOUND);
    assert_contains(tern_detail(), "m-00002-of-00002.gguf");
    write_split("m-00002-of-00002.gguf", 1, 2);
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_OK);
    const struct tern_tensor_file *tensors = tern_gguf_tensors(gguf);
    assert_int_equal(tern_tensor_file_count(tensors), 2);
    assert_contains(tern_tensor_file_find(tensors, "t1")->file, "m-00002-of-00002.gguf");
    tern_gguf_close(gguf);
    path_of(path, "m-00002-of-00002.gguf");
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "part 2 of 2, expected the first");
    write_split("wrong.gguf", 0, 2);
    path_of(path, "wrong.gguf");
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "named NAME-00001-of-00002.gguf");
}

static void test_which_files(void **state)
{
    (void)state;
    char path[TERN_PATH_BYTES];
    struct tern_gguf *gguf;
    path_of(path, "m-00001-of-00002.gguf");
    assert_true(tern_gguf_is_file(path));
    path_of(path, "no.gguf");
    assert_false(tern_gguf_is_file(path));
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_ERR_NOT_FOUND);
    write_file(path, "GGU", 3);
    assert_false(tern_gguf_is_file(path));
    assert_false(tern_gguf_is_file(g_folder));
    assert_int_equal(tern_gguf_open(g_folder, &gguf), TERN_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_values),          CHECKED(test_arrays),       CHECKED(test_tensors),
        CHECKED(test_wrong_questions), CHECKED(test_broken_files), CHECKED(test_duplicates),
        CHECKED(test_cuts_and_flips),  CHECKED(test_splits),       CHECKED(test_which_files),
    };
    if (mkdtemp(g_folder) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return tern_file_remove_tree(g_folder) == TERN_OK ? failed : 1;
}
