/* export_impl.h - an export under way, between its parts. Inside runtime/export/. */
#ifndef TERN_RUNTIME_EXPORT_EXPORT_IMPL_H
#define TERN_RUNTIME_EXPORT_EXPORT_IMPL_H

#include "io/file.h"
#include "io/gguf_write.h"
#include "runtime/export/export.h"
#include "runtime/generate/weights.h"

struct tern_export_imatrix;

struct tern_export {
    const struct tern_export_options *options;
    struct tern_weights *weights;
    const struct tern_model_config *config;
    struct tern_params params;
    enum tern_dtype dtype; /* of plain matrices; of others the type before exceptions */
    int threads;
    struct tern_export_imatrix *imatrix;
    char work[TERN_PATH_BYTES]; /* the temporary name */
    int64_t parameters, bytes;  /* of what was written */
};

/* One tensor as it will be stored. */
struct tern_export_tensor {
    struct tern_stored_tensor stored; /* name points to the next field */
    char name[TERN_PARAM_NAME_BYTES];
    const struct tern_param *param; /* the first, of experts; NULL: values */
    int64_t parts;                  /* parameters of which it is made, stacked: experts */
    enum tern_layout layout;
    const float *values;
};

struct tern_export_list {
    struct tern_export_tensor *items;
    int64_t count, capacity;
};

void tern_export_list_fini(struct tern_export_list *list);
/* Room for one more, cleared; NULL when out of memory. */
struct tern_export_tensor *tern_export_list_add(struct tern_export_list *list);

/* Converts all tensors of a list and hands their bytes to append, in order. */
typedef tern_status (*tern_export_append)(void *context, const void *data, size_t bytes);
TERN_MUST_CHECK tern_status tern_export_stream(struct tern_export *export,
                                               const struct tern_export_list *list,
                                               tern_export_append append,
                                               void *context);

/* The formats. work is a folder that does not exist yet, or a file. */
TERN_MUST_CHECK tern_status tern_export_hf(struct tern_export *export);
TERN_MUST_CHECK tern_status tern_export_gguf(struct tern_export *export);
TERN_MUST_CHECK tern_status tern_export_peft(struct tern_export *export);
/* Into the folder: tokenizer.json and what belongs to it, chat template included. */
TERN_MUST_CHECK tern_status tern_export_tokenizer(const struct tern_export *export);

/* GGUF: the keys of config and tokenizer, the factors of rotary frequencies (pairs f32; *far_out
 * NULL: one set for all lengths), and the type of a tensor. */
TERN_MUST_CHECK tern_status tern_export_gguf_keys(const struct tern_export *export,
                                                  struct tern_gguf_writer *writer);
TERN_MUST_CHECK tern_status tern_export_gguf_vocab(const struct tern_export *export,
                                                   struct tern_gguf_writer *writer);
void tern_export_llama3_factors(const struct tern_model_config *config, float *out);
enum tern_dtype tern_export_gguf_type(const struct tern_export *export,
                                      const struct tern_export_tensor *tensor);
/* GGUF's general.file_type. */
uint32_t tern_export_file_type(const struct tern_export *export);

/* Appends a tokenizer.json that encodes as the vocabulary of a GGUF file does; TERN_ERR_UNSUPPORTED
 * names what has none. */
TERN_MUST_CHECK tern_status tern_export_print_tokenizer(const struct tern_gguf *gguf,
                                                        struct tern_text *out);

/* Importances of the columns of matrices, from a GGUF file as llama.cpp's imatrix writes it. */
TERN_MUST_CHECK tern_status tern_export_imatrix_open(const char *path,
                                                     struct tern_export_imatrix **out);
void tern_export_imatrix_close(struct tern_export_imatrix *imatrix); /* NULL is fine */
/* Of part `part` of a tensor of GGUF's name, (width) f32; *out NULL: not in the file. Valid until the
 * next call. */
TERN_MUST_CHECK tern_status tern_export_imatrix_find(struct tern_export_imatrix *imatrix,
                                                     const char *name,
                                                     int64_t part,
                                                     int64_t width,
                                                     const float **out);

#endif
