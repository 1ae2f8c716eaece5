/* safetensors_test.c - good files and folders of shards are read as written; broken ones are refused by saying
 * where and why. */
#include "io/file.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DATA_BYTES = 28 /* of GOOD */
};

#define GOOD \
    "{\"__metadata__\":{\"format\":\"pt\"}," \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}," \
    "\"b\":{\"data_offsets\":[24,28],\"shape\":[2],\"dtype\":\"BF16\"}} "

static char g_folder[] = "/tmp/tern-safetensors-XXXXXX";

static void path_of(char path[TERN_PATH_BYTES], const char *name)
{
    snprintf(path, TERN_PATH_BYTES, "%s/%s", g_folder, name);
}

static void write_text(const char *name, const void *data, size_t bytes)
{
    char path[TERN_PATH_BYTES];
    path_of(path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Length, header, data bytes 0, 1, 2, ... */
static void write_file(const char *name, uint64_t length, const char *header, size_t data_bytes)
{
    unsigned char block[4096];
    size_t bytes = strlen(header);
    assert_true(8 + bytes + data_bytes <= sizeof block);
    for (int i = 0; i < 8; i++) {
        block[i] = (unsigned char)(length >> 8 * i);
    }
    memcpy(block + 8, header, bytes);
    for (size_t i = 0; i < data_bytes; i++) {
        block[8 + bytes + i] = (unsigned char)i;
    }
    write_text(name, block, 8 + bytes + data_bytes);
}

static tern_status open_header(const char *header, size_t data_bytes, struct tern_tensor_file **out)
{
    char path[TERN_PATH_BYTES];
    write_file("test.safetensors", strlen(header), header, data_bytes);
    path_of(path, "test.safetensors");
    return tern_safetensors_open(path, out);
}

static void test_good_file(void **state)
{
    (void)state;
    struct tern_tensor_file *file;
    assert_int_equal(open_header(GOOD, DATA_BYTES, &file), TERN_OK);
    assert_int_equal(tern_tensor_file_count(file), 2);
    assert_int_equal(tern_tensor_file_bytes(file), 8 + strlen(GOOD) + DATA_BYTES);
    const struct tern_stored_tensor *a = tern_tensor_file_at(file, 0);
    assert_string_equal(a->name, "a");
    assert_int_equal(a->dtype, TERN_F32);
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->shape[1], 3);
    assert_int_equal(a->shape[3], 1);
    assert_int_equal(a->elements, 6);
    const struct tern_stored_tensor *b = tern_tensor_file_find(file, "b");
    assert_int_equal(b->dtype, TERN_BF16);
    assert_int_equal(b->bytes, 4);
    assert_int_equal(*(const unsigned char *)b->data, 24);
    assert_int_equal(b->offset, 8 + strlen(GOOD) + 24);
    assert_null(tern_tensor_file_find(file, "c"));
    tern_tensor_file_close(file);
}

static void test_odd_but_good(void **state)
{
    (void)state;
    struct tern_tensor_file *file;
    assert_int_equal(open_header("{}", 0, &file), TERN_OK);
    assert_int_equal(tern_tensor_file_count(file), 0);
    tern_tensor_file_close(file);
    /* a scalar, an empty tensor, escapes, blanks, every dtype, any order of offsets */
    const char *header = " {\"x\\u00e9\\/\\n\": {\"dtype\" : \"F64\", \"shape\" : [ ], "
                         "\"data_offsets\" : [0, 8] } }";
    assert_int_equal(open_header(header, 8, &file), TERN_ERR_INPUT); /* \n in a name */
    header = " {\"x\\u00e9\\/\\ud83d\\ude00\": {\"dtype\" : \"F64\",\t\"shape\" : [ ],\r\n"
             " \"data_offsets\" : [0, 8] } }  ";
    assert_int_equal(open_header(header, 8, &file), TERN_OK);
    assert_non_null(tern_tensor_file_find(file, "x\xc3\xa9/\xf0\x9f\x98\x80"));
    tern_tensor_file_close(file);
    static const struct {
        const char *name;
        enum tern_dtype dtype;
    } dtypes[] = {
        {"F32", TERN_F32},   {"BF16", TERN_BF16},       {"F16", TERN_F16},
        {"F64", TERN_F64},   {"I8", TERN_I8},           {"I16", TERN_I16},
        {"I32", TERN_I32},   {"I64", TERN_I64},         {"U8", TERN_U8},
        {"U16", TERN_U16},   {"U32", TERN_U32},         {"U64", TERN_U64},
        {"BOOL", TERN_BOOL}, {"F8_E4M3", TERN_F8_E4M3}, {"F8_E5M2", TERN_F8_E5M2},
    };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char text[512];
        size_t bytes = 3 * tern_dtype_bytes(dtypes[i].dtype);
        snprintf(text, sizeof text,
                 "{\"none\":{\"dtype\":\"U8\",\"shape\":[0,5],\"data_offsets\":[%zu,%zu]},"
                 "\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}",
                 bytes, bytes, dtypes[i].name, bytes);
        assert_int_equal(open_header(text, bytes, &file), TERN_OK);
        assert_int_equal(tern_tensor_file_find(file, "t")->dtype, dtypes[i].dtype);
        assert_int_equal(tern_tensor_file_find(file, "none")->elements, 0);
        tern_tensor_file_close(file);
    }
}

#define ONE(fields) "{\"a\":{" fields "}}"
#define DEEP        "[[[[[[[["

/* Headers over 24 bytes of data. */
static const struct broken {
    const char *header;
    const char *found, *expected;
} g_broken[] = {
    /* what is no JSON */
    {"", "byte 8: found the end", "expected '{'"},
    {"x", "byte 8: found 'x'", "expected '{'"},
    {"[]", "byte 8: found '['", "expected '{'"},
    {"{", "byte 9: found the end", "expected '\"'"},
    {"{a", "byte 9: found 'a'", "expected '\"'"},
    {"{,}", "byte 9: found ','", "expected '\"'"},
    {"{\"a", "byte 11: found the end", "a character of a string"},
    {"{\"a\001\":1}", "byte 11: found the byte 0x01", "a character of a string"},
    {"{\"a\"}", "byte 12: found '}'", "expected ':'"},
    {"{\"a\":}", "byte 13: found '}'", "expected '{'"},
    {"{\"a\":1}", "byte 13: found '1'", "expected '{'"},
    {"{\"a\":null}", "byte 13: found 'n'", "expected '{'"},
    {"{\"a\":\"F32\"}", "byte 13: found '\"'", "expected '{'"},
    {"{}x", "byte 10: found 'x'", "expected the end"},
    {"{}{}", "byte 10: found '{'", "expected the end"},
    {"{\"\\x\":{}}", "byte 11: found 'x'", "an escape"},
    {"{\"\\u12\":{}}", "byte 14: found '\"'", "four hexadecimal digits"},
    {"{\"\\u12g4\":{}}", "byte 14: found 'g'", "four hexadecimal digits"},
    {"{\"\\ud800\":{}}", "byte 16: found '\"'", "a pair of surrogates"},
    {"{\"\\ud800\\u0041\":{}}", "byte 22: found '\"'", "low half of a pair"},
    {"{\"\\udc00\":{}}", "byte 16: found '\"'", "a pair of surrogates"},
    {"{\"\\u0000\":{}}", "found a string of NUL characters", "no U+0000"},
    {"{\"\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}", "a tensor name of 0 bytes",
     "expected 1 to 255"},
    {"{\"a b\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
     "the tensor name 'a...' has the character 0x20", "no blanks"},
    /* metadata */
    {"{\"__metadata__\":}", "byte 24: found '}'", "a value"},
    {"{\"__metadata__\":{\"a\" 1}}", "byte 29: found '1'", "expected ':'"},
    {"{\"__metadata__\":{\"a\":1,}}", "found '}'", "expected '\"'"},
    {"{\"__metadata__\":[1 2]}", "byte 27: found '2'", "expected ','"},
    {"{\"__metadata__\":{\"a\":tru}}", "byte 29: found 't'", "a value"},
    {"{\"__metadata__\":" DEEP DEEP DEEP DEEP "[", "byte 56: found '['", "32 levels of nesting"},
    {"{\"__metadata__\":" DEEP, "the end", "expected a value"},
    {"{\"__metadata__\":{\"a\":\"\\", "found the end", "a character of a string"},
    /* fields */
    {ONE(""), "tensor 'a' has no dtype", "expected dtype, shape and data_offsets"},
    {ONE("\"dtype\":\"F32\",\"shape\":[6]"), "tensor 'a' has no data_offsets", "expected"},
    {ONE("\"dtype\":\"F32\",\"data_offsets\":[0,24]"), "tensor 'a' has no shape", "expected"},
    {ONE("\"shape\":[6],\"data_offsets\":[0,24]"), "tensor 'a' has no dtype", "expected"},
    {ONE("\"dtype\":\"F32\",\"dtype\":\"F32\""), "tensor 'a' has 'dtype' twice", "expected once"},
    {ONE("\"shape\":[1],\"shape\":[1]"), "tensor 'a' has 'shape' twice", "expected once"},
    {ONE("\"dtyp\":\"F32\""), "tensor 'a' has the key 'dtyp'", "expected dtype, shape"},
    {ONE("\"dtype\":5"), "byte 22: found '5'", "expected '\"'"},
    {ONE("\"dtype\":\"F4\""), "tensor 'a' has dtype 'F4'", "expected F32"},
    {ONE("\"dtype\":\"f32\""), "tensor 'a' has dtype 'f32'", "expected F32"},
    {ONE("\"dtype\":\"\""), "tensor 'a' has dtype ''", "expected F32"},
    {ONE("\"dtype\":\"C64\""), "tensor 'a' has dtype 'C64'", "expected F32"},
    {ONE("\"dtype\":\"F8_E8M0\""), "tensor 'a' has dtype 'F8_E8M0'", "expected F32"},
    /* shapes */
    {ONE("\"shape\":6"), "byte 22: found '6'", "expected '['"},
    {ONE("\"shape\":[-1]"), "found '-'", "a whole number, 0 or more"},
    {ONE("\"shape\":[1.5]"), "found '.'", "a whole number"},
    {ONE("\"shape\":[1e3]"), "found 'e'", "a whole number"},
    {ONE("\"shape\":[\"6\"]"), "found '\"'", "a whole number"},
    {ONE("\"shape\":[6"), "found '}'", "expected ','"},
    {ONE("\"shape\":[6,]"), "found ']'", "a whole number"},
    {ONE("\"shape\":[1,1,1,1,6]"), "tensor 'a' has more than 4 dimensions", "test.safetensors"},
    {ONE("\"shape\":[9223372036854775808]"), "found '9'", "below 2^63"},
    {ONE("\"shape\":[18446744073709551616]"), "found '1'", "below 2^63"},
    {ONE("\"shape\":[99999999999999999999999999999]"), "found '9'", "below 2^63"},
    {ONE("\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,24]"),
     "shape [9223372036854775807] has more than 2^63 bytes", "expected less"},
    {ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,24]"),
     "shape [4294967296, 4294967296] has more", "expected less"},
    {ONE("\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,24]"),
     "has more than 2^63 bytes", "expected less"},
    {ONE("\"dtype\":\"F32\",\"shape\":[4611686018427387910],\"data_offsets\":[0,24]"),
     "has more than 2^63 bytes", "expected less"},
    {ONE("\"dtype\":\"F32\",\"shape\":[65536,65536,65536,65536],\"data_offsets\":[0,24]"),
     "has more than 2^63 bytes", "expected less"},
    {ONE("\"dtype\":\"F32\",\"shape\":[7],\"data_offsets\":[0,24]"),
     "24 bytes between its data_offsets", "expected 28 for shape [7] of f32"},
    {ONE("\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,24]"),
     "24 bytes between its data_offsets", "expected 16"},
    {ONE("\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,24]"),
     "24 bytes between its data_offsets", "expected 4"},
    /* offsets */
    {ONE("\"data_offsets\":24"), "found '2'", "expected '['"},
    {ONE("\"data_offsets\":[]"), "found ']'", "a whole number"},
    {ONE("\"data_offsets\":[0]"), "found ']'", "expected ','"},
    {ONE("\"data_offsets\":[0,24,25]"), "found ','", "expected ']'"},
    {ONE("\"data_offsets\":[-24,0]"), "found '-'", "a whole number"},
    {ONE("\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,25]"), "data_offsets [0, 25]",
     "within the 24 bytes"},
    {ONE("\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,48]"), "data_offsets [24, 48]",
     "within the 24 bytes"},
    {ONE("\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[24,0]"), "data_offsets [24, 0]",
     "expected a range"},
    {ONE("\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[9223372036854775783,"
         "9223372036854775807]"),
     "data_offsets [9223372036854775783, 9223372036854775807]", "within the 24 bytes"},
    /* holes, overlaps, what lies behind */
    {"{}", "no tensor has the bytes from here on", "to the end of the file"},
    {ONE("\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]"), "no tensor has the bytes",
     "to the end of the file"},
    {ONE("\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[4,24]"), "no tensor has the bytes",
     "to the end of the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[8,24]}}",
     "two tensors overlap here", "to follow each other"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}",
     "two tensors overlap here", "to follow each other"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}",
     "two tensors overlap here", "to follow each other"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
     "no tensor has the bytes", "to follow each other"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
     "tensor 'a' is there twice", "expected once"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
     "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
     "tensor 'a' is there twice", "expected once"},
};

static void test_broken_headers(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof g_broken / sizeof *g_broken; i++) {
        const struct broken *row = &g_broken[i];
        struct tern_tensor_file *file;
        tern_status status = open_header(row->header, 24, &file);
        const char *said = tern_detail();
        if (tern_status_exit_code(status) != 2 || strstr(said, "test.safetensors") == NULL ||
            strstr(said, row->found) == NULL || strstr(said, row->expected) == NULL) {
            failures++;
            print_error("broken[%zu]: status %s, '%s'; expected '%s' and '%s'\n", i,
                        tern_status_name(status), said, row->found, row->expected);
        }
        assert_null(file);
        assert_int_equal(tern_mem_stats().live_blocks, 0);
    }
    assert_int_equal(failures, 0);
}

static void test_broken_lengths(void **state)
{
    (void)state;
    struct tern_tensor_file *file;
    char path[TERN_PATH_BYTES];
    path_of(path, "test.safetensors");
    static const uint64_t lengths[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 63, 200000000, 31};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_file("test.safetensors", lengths[i], "{}", 28);
        assert_int_equal(tern_safetensors_open(path, &file), TERN_ERR_INPUT);
        assert_contains(tern_detail(), "byte 0: the header has ");
        assert_contains(tern_detail(), "expected at most 30");
    }
    for (size_t bytes = 0; bytes < 8; bytes++) {
        write_text("test.safetensors", "\0\0\0\0\0\0\0", bytes);
        assert_int_equal(tern_safetensors_open(path, &file), TERN_ERR_INPUT);
        assert_contains(tern_detail(), "expected a safetensors file");
    }
    char name[1501], header[2000];
    memset(name, 'n', 1500);
    name[1500] = '\0';
    snprintf(header, sizeof header, "{\"%s\":{}}", name);
    assert_int_equal(open_header(header, 0, &file), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "found a string of more, expected at most 1023 bytes");
    name[500] = '\0';
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
    assert_int_equal(open_header(header, 1, &file), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "a tensor name of 500 bytes, expected 1 to 255");
}

static void test_cuts_and_flips(void **state)
{
    (void)state;
    struct tern_tensor_file *file;
    char path[TERN_PATH_BYTES], *data;
    size_t bytes;
    write_file("test.safetensors", strlen(GOOD), GOOD, DATA_BYTES);
    path_of(path, "test.safetensors");
    assert_int_equal(tern_file_read(path, 4096, &data, &bytes), TERN_OK);
    for (size_t cut = 0; cut < bytes; cut++) {
        write_text("test.safetensors", data, cut);
        assert_int_equal(tern_safetensors_open(path, &file), TERN_ERR_INPUT);
    }
    static const char flips[] = {0x01, 0x10, (char)0x80, (char)0xff};
    for (size_t at = 0; at < bytes; at++) {
        for (size_t f = 0; f < sizeof flips; f++) {
            data[at] = (char)(data[at] ^ flips[f]);
            write_text("test.safetensors", data, bytes);
            if (tern_safetensors_open(path, &file) == TERN_OK) {
                tern_tensor_file_close(file);
            }
            data[at] = (char)(data[at] ^ flips[f]);
        }
    }
    tern_free(data);
}

#define SHARD(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static tern_status open_index(const char *index, struct tern_tensor_file **out)
{
    write_text("model.safetensors.index.json", index, strlen(index));
    return tern_safetensors_open(g_folder, out);
}

static void test_shards(void **state)
{
    (void)state;
    struct tern_tensor_file *file;
    assert_false(tern_safetensors_is_folder(g_folder));
    assert_int_equal(tern_safetensors_open(g_folder, &file), TERN_ERR_NOT_FOUND);
    assert_contains(tern_detail(), "found neither model.safetensors nor");
    write_file("s1.safetensors", strlen(SHARD("a")), SHARD("a"), 4);
    write_file("s2.safetensors", strlen(SHARD("b")), SHARD("b"), 4);
    assert_int_equal(open_index("{\"metadata\":{\"total_size\":8},\"weight_map\":"
                                "{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}",
                                &file),
                     TERN_OK);
    assert_true(tern_safetensors_is_folder(g_folder));
    assert_int_equal(tern_tensor_file_count(file), 2);
    assert_string_equal(tern_tensor_file_at(file, 1)->name, "b");
    assert_contains(tern_tensor_file_find(file, "a")->file, "/s1.safetensors");
    tern_tensor_file_close(file);
}

static void test_broken_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *index, *said;
        tern_status status;
    } rows[] = {
        {"", "byte 0: found the end, expected '{'", TERN_ERR_INPUT},
        {"{}", "found no key 'weight_map'", TERN_ERR_INPUT},
        {"{\"weight_map\":[]}", "found '[', expected '{'", TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":1}}", "found '1', expected '\"'", TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", "expected the name of a file beside",
         TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "expected the name of a file beside",
         TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"..\"}}", "expected the name of a file beside", TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"\"}}", "expected the name of a file beside", TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"s3.safetensors\"}}", "s3.safetensors", TERN_ERR_NOT_FOUND},
        {"{\"weight_map\":{\"a\":\"s2.safetensors\"}}",
         "tensor 'a' is to be in 's2.safetensors', which does not have it", TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}}", "; found it in ",
         TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\"}} x", "found 'x', expected the end",
         TERN_ERR_INPUT},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"a2\":\"s4.safetensors\"}}",
         "tensor 'a' is there twice", TERN_ERR_INPUT},
    };
    write_file("s4.safetensors", strlen(SHARD("a")), SHARD("a"), 4);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tern_tensor_file *file;
        assert_int_equal(open_index(rows[i].index, &file), rows[i].status);
        assert_contains(tern_detail(), rows[i].said);
        assert_null(file);
    }
}

/* ---- writing ---- */

enum {
    WRITTEN = 6
};

static const struct tern_stored_tensor g_written[WRITTEN] = {
    {.name = "first", .dtype = TERN_F32, .rank = 2, .shape = {5, 4}},
    {.name = "none", .dtype = TERN_F32, .rank = 2, .shape = {0, 4}},
    {.name = "scalar", .dtype = TERN_F64, .rank = 0},
    {.name = "halves", .dtype = TERN_F16, .rank = 1, .shape = {33}},
    {.name = "large", .dtype = TERN_BF16, .rank = 3, .shape = {10, 10, 3}},
    {.name = "last", .dtype = TERN_U8, .rank = 4, .shape = {1, 2, 1, 7}},
};
static const size_t g_sizes[WRITTEN] = {80, 0, 8, 66, 600, 14};

/* Bytes of the tensors run on from 0, in pieces that respect no border. */
static void write_all(const char *folder, int64_t shard_bytes)
{
    struct tern_safetensors_writer *writer;
    struct tern_stored_tensor tensors[WRITTEN];
    unsigned char bytes[768];
    memcpy(tensors, g_written, sizeof tensors);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)i;
    }
    assert_int_equal(tern_file_make_folder(folder), TERN_OK);
    assert_int_equal(tern_safetensors_create(folder, tensors, WRITTEN, shard_bytes, &writer),
                     TERN_OK);
    for (size_t at = 0, step = 1; at < sizeof bytes; at += step, step = 97) {
        step = step < sizeof bytes - at ? step : sizeof bytes - at;
        assert_int_equal(tern_safetensors_append(writer, bytes + at, step), TERN_OK);
    }
    assert_int_equal(tern_safetensors_finish(writer), TERN_OK);
}

static void check_all(const char *folder)
{
    struct tern_tensor_file *file;
    size_t at = 0;
    if (tern_safetensors_open(folder, &file) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    assert_int_equal(tern_tensor_file_count(file), WRITTEN);
    for (int i = 0; i < WRITTEN; i++) {
        const struct tern_stored_tensor *tensor = tern_tensor_file_find(file, g_written[i].name);
        assert_non_null(tensor);
        assert_int_equal(tensor->dtype, g_written[i].dtype);
        assert_int_equal(tensor->rank, g_written[i].rank);
        for (int d = 0; d < tensor->rank; d++) {
            assert_int_equal(tensor->shape[d], g_written[i].shape[d]);
        }
        assert_int_equal(tensor->bytes, g_sizes[i]);
        for (size_t b = 0; b < tensor->bytes; b++) {
            assert_int_equal(((const unsigned char *)tensor->data)[b], (at + b) & 255);
        }
        at += tensor->bytes;
    }
    tern_tensor_file_close(file);
}

static void test_written_files(void **state)
{
    (void)state;
    static const struct {
        int64_t shard_bytes;
        const char *last; /* the last shard's name */
    } rows[] = {{1000000, "model.safetensors"},
                {768, "model.safetensors"},
                {700, "model-00002-of-00002.safetensors"},
                {100, "model-00004-of-00004.safetensors"},
                {1, "model-00005-of-00005.safetensors"}};
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    path_of(folder, "written");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_all(folder, rows[i].shard_bytes);
        check_all(folder);
        assert_int_equal(tern_path_join(path, folder, rows[i].last), TERN_OK);
        assert_true(tern_file_exists(path));
        assert_int_equal(tern_path_join(path, folder, "model.safetensors.index.json"), TERN_OK);
        assert_int_equal(tern_file_exists(path), i >= 2);
        assert_int_equal(tern_file_remove_tree(folder), TERN_OK);
    }
    struct tern_safetensors_writer *writer;
    struct tern_stored_tensor block = {.name = "q", .dtype = TERN_Q8_0, .rank = 1, .shape = {32}};
    assert_int_equal(tern_file_make_folder(folder), TERN_OK);
    assert_int_equal(tern_safetensors_create(folder, &block, 1, 100, &writer),
                     TERN_ERR_UNSUPPORTED);
    assert_contains(tern_detail(), "tensor 'q' of type q8_0 cannot be stored");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_good_file),      CHECKED(test_odd_but_good),   CHECKED(test_broken_headers),
        CHECKED(test_broken_lengths), CHECKED(test_cuts_and_flips), CHECKED(test_shards),
        CHECKED(test_broken_indexes), CHECKED(test_written_files),
    };
    if (mkdtemp(g_folder) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return tern_file_remove_tree(g_folder) == TERN_OK ? failed : 1;
}
