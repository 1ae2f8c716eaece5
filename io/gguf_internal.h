/* gguf_internal.h - what an opened GGUF file is, between its parser and its accessors. */
#ifndef TERN_IO_GGUF_INTERNAL_H
#define TERN_IO_GGUF_INTERNAL_H

#include "io/gguf.h"
#include "io/tensor_file_build.h"

struct tern_gguf_entry {
    char *key;
    enum tern_gguf_type type;
    struct tern_gguf_array array; /* a single value: of one element, that of `type` */
    uint64_t offset;              /* of the key's length in the file, for messages */
    const uint8_t *data;          /* there, and all bytes of key and value */
    size_t bytes;
};

struct tern_gguf {
    struct tern_tensor_file *tensors;
    struct tern_gguf_entry *entries; /* in file order */
    int64_t count, capacity;
    int64_t string_count; /* in arrays: each costs 4 bytes */
    struct tern_gguf_entry **by_key;
};

/* One file while it is read. */
struct tern_gguf_reading {
    struct tern_gguf *gguf;
    const char *path;
    const uint8_t *data;
    size_t bytes, at;
    bool is_first; /* the metadata of further splits is checked and dropped */
    uint64_t alignment;
};

/* Passes `bytes` of `what` and says where they are. */
TERN_MUST_CHECK tern_status tern_gguf_take(struct tern_gguf_reading *in,
                                           uint64_t bytes,
                                           const char *what,
                                           const uint8_t **data_out);
TERN_MUST_CHECK tern_status tern_gguf_take_number(struct tern_gguf_reading *in,
                                                  size_t bytes,
                                                  const char *what,
                                                  uint64_t *value_out);
TERN_MUST_CHECK tern_status tern_gguf_take_string(struct tern_gguf_reading *in,
                                                  const char *what,
                                                  const char **text_out,
                                                  uint64_t *bytes_out);
/* `count` keys with their values into in->gguf, found by key afterwards. */
TERN_MUST_CHECK tern_status tern_gguf_read_entries(struct tern_gguf_reading *in, uint64_t count);
void tern_gguf_free_entry(struct tern_gguf_entry *entry);
/* `count` tensors, and where their data lies. */
TERN_MUST_CHECK tern_status tern_gguf_read_tensors(struct tern_gguf_reading *in, uint64_t count);

/* GGUF's number of a type; false if it has none. */
bool tern_gguf_dtype_id(enum tern_dtype dtype, uint32_t *id_out);
/* Key `index` and its value as they are in the file. */
const void *tern_gguf_entry_bytes(const struct tern_gguf *gguf, int64_t index, size_t *bytes_out);
/* Bytes of a value, 0 for strings and arrays. */
size_t tern_gguf_type_bytes(enum tern_gguf_type type);
const char *tern_gguf_type_name(enum tern_gguf_type type); /* "u32", "string" */
/* NULL if there is none. */
const struct tern_gguf_entry *tern_gguf_find(const struct tern_gguf *gguf, const char *key);
/* Little-endian, at any address. */
uint64_t tern_gguf_load(const uint8_t *data, size_t bytes);

#endif
