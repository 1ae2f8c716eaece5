/* gguf_write.h - a GGUF file (version 3), written: keys, the table of tensors, then their bytes.
 *
 * What goes wrong while keys are put sticks, and begin answers it. */
#ifndef TERN_IO_GGUF_WRITE_H
#define TERN_IO_GGUF_WRITE_H

#include "io/gguf.h"

struct tern_gguf_writer;

/* Owned: finish or abandon. */
TERN_MUST_CHECK tern_status tern_gguf_create(struct tern_gguf_writer **out);

/* ---- keys; each once ---- */

void tern_gguf_put_u32(struct tern_gguf_writer *writer, const char *key, uint32_t value);
void tern_gguf_put_f32(struct tern_gguf_writer *writer, const char *key, float value);
void tern_gguf_put_bool(struct tern_gguf_writer *writer, const char *key, bool value);
void tern_gguf_put_string(struct tern_gguf_writer *writer,
                          const char *key,
                          const char *text,
                          size_t bytes);
/* An array; exactly count elements of its type follow. */
void tern_gguf_put_array(struct tern_gguf_writer *writer,
                         const char *key,
                         enum tern_gguf_type type,
                         int64_t count);
void tern_gguf_put_element_string(struct tern_gguf_writer *writer, const char *text, size_t bytes);
void tern_gguf_put_element_f32(struct tern_gguf_writer *writer, float value);
void tern_gguf_put_element_i32(struct tern_gguf_writer *writer, int32_t value);
void tern_gguf_put_element_bool(struct tern_gguf_writer *writer, bool value);
/* Key `index` of an opened file with its value, as it is there. */
void tern_gguf_put_copy(struct tern_gguf_writer *writer,
                        const struct tern_gguf *gguf,
                        int64_t index);

/* ---- tensors ---- */

/* The next tensor: name, dtype, rank and shape are read. */
void tern_gguf_put_tensor(struct tern_gguf_writer *writer, const struct tern_stored_tensor *tensor);
/* Writes all that was put into a new file. */
TERN_MUST_CHECK tern_status tern_gguf_begin(struct tern_gguf_writer *writer, const char *path);
/* The next bytes of the tensors, in their order, in any pieces. */
TERN_MUST_CHECK tern_status tern_gguf_append(struct tern_gguf_writer *writer,
                                             const void *data,
                                             size_t bytes);
/* After the last byte: the file is on storage. The writer is gone, whatever the answer. */
TERN_MUST_CHECK tern_status tern_gguf_finish(struct tern_gguf_writer *writer);
/* Leaves what was written; NULL is fine. */
void tern_gguf_abandon(struct tern_gguf_writer *writer);

#endif
