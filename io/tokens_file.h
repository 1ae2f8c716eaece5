/* tokens_file.h - token shards on disk, each a flat run of ids: read by mapping, written as
 * Megatron pairs.
 *
 * Megatron PREFIX.idx (little-endian, no padding): "MMIDIDX\0\0", u64 version 1, u8 dtype code,
 * u64 sequences n, u64 d, i32 sizes[n] in tokens, i64 pointers[n] in bytes, i64 documents[d]
 * (first sequence of each, then n). PREFIX.bin: the ids. llm.c .bin: 256 i32 (magic, version,
 * count, zeros), then the ids. */
#ifndef TERN_IO_TOKENS_FILE_H
#define TERN_IO_TOKENS_FILE_H

#include "io/file.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    TERN_MEGATRON_HEADER_BYTES = 34,
    TERN_LLMC_HEADER_BYTES = 1024,
    TERN_MEGATRON_U16_VOCAB_MAX = 65499, /* below 65500 ids are uint16, as Megatron decides it */
};

struct tern_shard {
    char path[TERN_PATH_BYTES]; /* of the .bin */
    struct tern_map map;
    const uint8_t *data; /* first id, inside map */
    int64_t tokens;
    int item_bytes;     /* 1, 2, 4 or 8 */
    bool is_signed;     /* 2 bytes only: int16 */
    const char *format; /* "Megatron" or "llm.c" */
    const char *dtype;  /* "uint16" */
    int64_t documents;  /* -1: the format does not say */
    int64_t sequences;
};

/* Opens PREFIX, PREFIX.bin or PREFIX.idx (Megatron, when there is an .idx), or an llm.c .bin.
 * Checks header, sizes and that both files fit together; all entries of the index when check_all
 * or when there are few. Errors name file, byte, what was found and what is expected. Owned:
 * close. */
TERN_MUST_CHECK tern_status tern_shard_open(const char *path,
                                            bool check_all,
                                            struct tern_shard *out);
void tern_shard_close(struct tern_shard *shard);
/* Of an open Megatron pair: the token at which each document begins, then the count of tokens; (documents + 1),
 * tern_alloc'd. */
TERN_MUST_CHECK tern_status tern_shard_borders(const struct tern_shard *shard,
                                               int64_t **borders_out,
                                               int64_t *documents_out);

static inline int64_t tern_shard_token(const struct tern_shard *shard, int64_t index)
{
    const uint8_t *at = shard->data + index * shard->item_bytes;
    if (shard->item_bytes == 2) {
        uint16_t value;
        memcpy(&value, at, sizeof value);
        return shard->is_signed ? (int16_t)value : value;
    }
    if (shard->item_bytes == 4) {
        int32_t value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    if (shard->item_bytes == 8) {
        int64_t value;
        memcpy(&value, at, sizeof value);
        return value;
    }
    return *at;
}

/* Writes one Megatron pair, or two (training and validation), in memory that does not grow with
 * the text. Nothing has its final name before commit. */
struct tern_shard_writer;

struct tern_shard_part {
    char prefix[TERN_PATH_BYTES];
    int64_t tokens, documents;
};

/* PREFIX.bin.tmp and PREFIX.documents.tmp are made (those of a killed run are taken over);
 * TERN_ERR_BUSY while another process holds them. sequence_tokens_max: longer documents become
 * several sequences (0: 2^30; their sizes are int32). Owned: close. */
TERN_MUST_CHECK tern_status tern_shard_writer_open(const char *prefix,
                                                   int64_t vocab_size,
                                                   int64_t sequence_tokens_max,
                                                   struct tern_shard_writer **out);
/* Drops what was not committed. */
void tern_shard_writer_close(struct tern_shard_writer *writer);
TERN_MUST_CHECK tern_status tern_shard_writer_add(struct tern_shard_writer *writer,
                                                  const int32_t *ids,
                                                  int64_t count);
/* Ends the document, if it has any token. */
TERN_MUST_CHECK tern_status tern_shard_writer_end_document(struct tern_shard_writer *writer);
/* Makes all durable under its name. val_fraction 0: PREFIX. Else PREFIX_train and PREFIX_val:
 * the last documents, cut where that fraction of the tokens comes closest, at least one document
 * each; a single document is cut at a token. */
TERN_MUST_CHECK tern_status tern_shard_writer_commit(struct tern_shard_writer *writer,
                                                     double val_fraction,
                                                     struct tern_shard_part parts_out[2],
                                                     int *part_count_out);

#endif
