/* safetensors_internal.h - between one file and a folder of shards. Internal to io/. */
#ifndef TERN_IO_SAFETENSORS_INTERNAL_H
#define TERN_IO_SAFETENSORS_INTERNAL_H

#include "io/tensor_file_build.h"

/* The format's name of a type, "BF16"; NULL if it has none. */
const char *tern_safetensors_dtype(enum tern_dtype dtype);
/* Adds the tensors of one file. */
TERN_MUST_CHECK tern_status tern_safetensors_add(struct tern_tensor_file *file, const char *path);
/* Adds the tensors of all shards that an index names. */
TERN_MUST_CHECK tern_status tern_safetensors_add_shards(struct tern_tensor_file *file,
                                                        const char *folder,
                                                        const char *index_path);
/* After tern_tensor_file_finish: every name of the index is there, in the shard that it says. */
TERN_MUST_CHECK tern_status tern_safetensors_check_index(const struct tern_tensor_file *file,
                                                         const char *folder,
                                                         const char *index_path);

#endif
