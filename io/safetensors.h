/* safetensors.h - Hugging Face's weight files, opened for reading.
 *
 * A file: u64 length of the header; the header, a JSON object of name -> {dtype, shape, data_offsets};
 * the data, which the tensors cover without holes. A folder: model.safetensors, or the shards that
 * model.safetensors.index.json names. */
#ifndef TERN_IO_SAFETENSORS_H
#define TERN_IO_SAFETENSORS_H

#include "io/tensor_file.h"

#include <stdbool.h>

/* Path of a .safetensors file or of a folder that holds one. Owned: tern_tensor_file_close.
 * TERN_ERR_INPUT names file, tensor and byte, what was found and what was expected;
 * TERN_ERR_UNSUPPORTED a dtype or rank that Tern lacks; TERN_ERR_NOT_FOUND a missing file. */
TERN_MUST_CHECK tern_status tern_safetensors_open(const char *path, struct tern_tensor_file **out);
/* Whether a folder holds model.safetensors or its index. */
bool tern_safetensors_is_folder(const char *folder);

#endif
