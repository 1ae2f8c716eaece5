/* shards.h - token shards written by hand, byte for byte, for the tests. */
#ifndef TERN_TESTS_IO_SHARDS_H
#define TERN_TESTS_IO_SHARDS_H

#include "runtime/base/text.h"
#include "tests/io/data_fixture.h"

static inline void put(struct tern_text *out, int64_t value, size_t bytes)
{
    assert_ok(tern_text_append(out, &value, bytes)); /* little-endian */
}

/* NAME.bin with an llm.c header; ids of `item_bytes`. */
static inline void write_llmc(const char *name,
                              int magic,
                              int version,
                              int64_t count,
                              const int32_t *ids,
                              int item_bytes)
{
    struct tern_text out;
    tern_text_init(&out);
    put(&out, magic, 4);
    put(&out, version, 4);
    put(&out, count, 4);
    while (out.length < 1024) {
        put(&out, 0, 4);
    }
    for (int64_t i = 0; i < count; i++) {
        put(&out, ids[i], (size_t)item_bytes);
    }
    write_file(name, out.data, out.length);
    tern_text_fini(&out);
}

/* STEM.bin and STEM.idx: documents of one sequence each. */
static inline void write_megatron(const char *stem,
                                  int dtype_code,
                                  int item_bytes,
                                  const int32_t *ids,
                                  const int32_t *document_tokens,
                                  int documents)
{
    struct tern_text bin, idx;
    char name[128];
    tern_text_init(&bin);
    tern_text_init(&idx);
    assert_ok(tern_text_append(&idx, "MMIDIDX\0\0", 9));
    put(&idx, 1, 8);
    put(&idx, dtype_code, 1);
    put(&idx, documents, 8);
    put(&idx, documents + 1, 8);
    int64_t total = 0;
    for (int d = 0; d < documents; d++) {
        put(&idx, document_tokens[d], 4);
    }
    for (int d = 0; d < documents; d++) {
        put(&idx, total * item_bytes, 8);
        total += document_tokens[d];
    }
    for (int d = 0; d <= documents; d++) {
        put(&idx, d, 8);
    }
    for (int64_t i = 0; i < total; i++) {
        put(&bin, ids[i], (size_t)item_bytes);
    }
    snprintf(name, sizeof name, "%s.bin", stem);
    write_file(name, bin.data, bin.length);
    snprintf(name, sizeof name, "%s.idx", stem);
    write_file(name, idx.data, idx.length);
    tern_text_fini(&bin);
    tern_text_fini(&idx);
}

/* A pair of int32 ids first, first + 1, ... in one document. */
static inline void write_counting(const char *stem, int32_t first, int32_t count)
{
    int32_t *ids = tern_alloc("test ids", (size_t)count * sizeof *ids);
    assert_non_null(ids);
    for (int32_t i = 0; i < count; i++) {
        ids[i] = first + i;
    }
    write_megatron(stem, 4, 4, ids, &count, 1);
    tern_free(ids);
}

#endif
