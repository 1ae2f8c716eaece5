/* safetensors_write.h - Hugging Face's weight files, written: one file, or shards and their index. */
#ifndef TERN_IO_SAFETENSORS_WRITE_H
#define TERN_IO_SAFETENSORS_WRITE_H

#include "io/tensor_file.h"

struct tern_safetensors_writer;

#define TERN_SAFETENSORS_SHARD_BYTES INT64_C(5000000000) /* as Hugging Face cuts models */

/* Plans and begins model.safetensors in a folder, or model-0000i-of-0000n.safetensors with
 * model.safetensors.index.json when the tensors take more than shard_bytes; a tensor is never cut.
 * Of each tensor name, dtype, rank and shape are read (and must live until finish); block types are
 * TERN_ERR_UNSUPPORTED. Owned: finish or abandon. */
TERN_MUST_CHECK tern_status tern_safetensors_create(const char *folder,
                                                    const struct tern_stored_tensor *tensors,
                                                    int64_t count,
                                                    int64_t shard_bytes,
                                                    struct tern_safetensors_writer **out);
/* The next bytes of the tensors, in their order, in any pieces. */
TERN_MUST_CHECK tern_status tern_safetensors_append(struct tern_safetensors_writer *writer,
                                                    const void *data,
                                                    size_t bytes);
/* After the last byte: everything is on storage. The writer is gone, whatever the answer. */
TERN_MUST_CHECK tern_status tern_safetensors_finish(struct tern_safetensors_writer *writer);
/* Leaves what was written; NULL is fine. */
void tern_safetensors_abandon(struct tern_safetensors_writer *writer);

#endif
