/* gguf.h - GGUF files (versions 2 and 3, little-endian), opened for reading: typed metadata and tensors.
 *
 * Opening reads the metadata once and copies no values: strings and arrays point into the mapped file and
 * live until close. Strings are not NUL-terminated and may hold any bytes.
 *
 * Accessors that fail answer TERN_ERR_INPUT and name file and key, what was found and what was expected;
 * a key that a model may leave out is asked for with tern_gguf_has first. */
#ifndef TERN_IO_GGUF_H
#define TERN_IO_GGUF_H

#include "io/tensor_file.h"

#include <stdbool.h>

struct tern_gguf;

/* Types of metadata, with GGUF's own numbers. */
enum tern_gguf_type {
    TERN_GGUF_U8,
    TERN_GGUF_I8,
    TERN_GGUF_U16,
    TERN_GGUF_I16,
    TERN_GGUF_U32,
    TERN_GGUF_I32,
    TERN_GGUF_F32,
    TERN_GGUF_BOOL,
    TERN_GGUF_STRING,
    TERN_GGUF_ARRAY,
    TERN_GGUF_U64,
    TERN_GGUF_I64,
    TERN_GGUF_F64,
    TERN_GGUF_TYPE_COUNT
};

/* A file, or the first of a split model (NAME-00001-of-0000N.gguf: the others must lie beside it).
 * TERN_ERR_INPUT: not a GGUF file, or broken; TERN_ERR_UNSUPPORTED: a version, byte order or tensor type
 * that Tern lacks, by name. */
TERN_MUST_CHECK tern_status tern_gguf_open(const char *path, struct tern_gguf **out);
void tern_gguf_close(struct tern_gguf *gguf); /* NULL is fine */
/* Whether a file begins as a GGUF file does. */
bool tern_gguf_is_file(const char *path);

const char *tern_gguf_path(const struct tern_gguf *gguf);
/* Borrowed until close. */
const struct tern_tensor_file *tern_gguf_tensors(const struct tern_gguf *gguf);

/* ---- single values ---- */

bool tern_gguf_has(const struct tern_gguf *gguf, const char *key);
/* Keys in file order, NULL past the end; *type_out may be NULL. */
const char *tern_gguf_key(const struct tern_gguf *gguf,
                          int64_t index,
                          enum tern_gguf_type *type_out);
/* Any integer type, if the value fits. */
TERN_MUST_CHECK tern_status tern_gguf_i64(const struct tern_gguf *gguf,
                                          const char *key,
                                          int64_t *value_out);
TERN_MUST_CHECK tern_status tern_gguf_u64(const struct tern_gguf *gguf,
                                          const char *key,
                                          uint64_t *value_out);
/* Floats, and integers that are exact in a double. */
TERN_MUST_CHECK tern_status tern_gguf_f64(const struct tern_gguf *gguf,
                                          const char *key,
                                          double *value_out);
TERN_MUST_CHECK tern_status tern_gguf_bool(const struct tern_gguf *gguf,
                                           const char *key,
                                           bool *value_out);
TERN_MUST_CHECK tern_status tern_gguf_string(const struct tern_gguf *gguf,
                                             const char *key,
                                             const char **text_out,
                                             size_t *bytes_out);
/* Whether the key is there, a string, and these characters. */
bool tern_gguf_string_is(const struct tern_gguf *gguf, const char *key, const char *text);

/* ---- arrays ---- */

/* Any integer type; f32 or f64; bool; string. */
enum tern_gguf_elements {
    TERN_GGUF_INTEGERS,
    TERN_GGUF_FLOATS,
    TERN_GGUF_BOOLS,
    TERN_GGUF_STRINGS
};

struct tern_gguf_array {
    enum tern_gguf_type type; /* of the elements */
    int64_t count;
    const uint8_t *data;     /* elements; for strings the first one's length */
    const uint32_t *strings; /* offset of each string's length behind data, (count) */
};

TERN_MUST_CHECK tern_status tern_gguf_array(const struct tern_gguf *gguf,
                                            const char *key,
                                            enum tern_gguf_elements elements,
                                            struct tern_gguf_array *out);
/* Element `index` in [0, count) of an array of that sort. A u64 beyond INT64_MAX becomes INT64_MAX. */
int64_t tern_gguf_array_i64(const struct tern_gguf_array *array, int64_t index);
double tern_gguf_array_f64(const struct tern_gguf_array *array, int64_t index);
bool tern_gguf_array_bool(const struct tern_gguf_array *array, int64_t index);
const char *tern_gguf_array_string(const struct tern_gguf_array *array,
                                   int64_t index,
                                   size_t *bytes_out);

#endif
