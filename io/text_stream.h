/* text_stream.h - a text file or standard input in blocks: files are mapped, pipes are buffered. */
#ifndef TERN_IO_TEXT_STREAM_H
#define TERN_IO_TEXT_STREAM_H

#include "io/file.h"
#include "io/tokenizer.h"
#include "runtime/base/text.h"

enum {
    TERN_TEXT_BLOCK_BYTES = 1 << 20,
    TERN_TEXT_BLOCK_BYTES_MAX = 1 << 30, /* without a place to cut: refused */
};

struct tern_text_stream {
    const char *name; /* borrowed; "standard input" for "-" */
    struct tern_map map;
    bool is_mapped;
    int fd;
    struct tern_text buffer; /* pipes: what is ahead begins at start */
    size_t start;
    size_t given; /* bytes handed out by the last call */
    bool at_end;
    int64_t offset;      /* of what the last call handed out */
    int64_t total_bytes; /* -1: unknown */
};

/* "-" is standard input. Owned: close. */
TERN_MUST_CHECK tern_status tern_text_stream_open(const char *path, struct tern_text_stream *out);
void tern_text_stream_close(struct tern_text_stream *stream);
/* The next block, cut where tern_tokenizer_cut allows; *bytes_out 0 at the end. Valid until the
 * next call. */
TERN_MUST_CHECK tern_status tern_text_stream_block(struct tern_text_stream *stream,
                                                   const struct tern_tokenizer *tokenizer,
                                                   const char **data_out,
                                                   size_t *bytes_out);
/* The next record without its delimiter; the last one may lack it. *is_end_out at the end. Valid
 * until the next call. */
TERN_MUST_CHECK tern_status tern_text_stream_record(struct tern_text_stream *stream,
                                                    char delimiter,
                                                    const char **data_out,
                                                    size_t *bytes_out,
                                                    bool *is_end_out);
/* Sum of the files' sizes, -1 if one is a pipe: for an ETA. */
TERN_MUST_CHECK tern_status tern_text_stream_total(const char *const *paths,
                                                   int count,
                                                   int64_t *bytes_out);

#endif
