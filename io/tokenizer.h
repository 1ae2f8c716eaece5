/* tokenizer.h - text to token ids and back: byte-level BPE as Hugging Face's tokenizer.json defines it. */
#ifndef TERN_IO_TOKENIZER_H
#define TERN_IO_TOKENIZER_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_tokenizer;

/* Reads a tokenizer.json, or the one in a folder. Owned: close. */
TERN_MUST_CHECK tern_status tern_tokenizer_open(const char *path, struct tern_tokenizer **out);
void tern_tokenizer_close(struct tern_tokenizer *tokenizer);

int64_t tern_tokenizer_vocab_size(const struct tern_tokenizer *tokenizer); /* largest id + 1 */
/* Id of a token's exact text (special or not), -1 if there is none. */
int32_t tern_tokenizer_id(const struct tern_tokenizer *tokenizer, const char *token);
/* End-of-document token: "<|endoftext|>", "</s>", "<|end_of_text|>", ... whichever exists; -1 if none. */
int32_t tern_tokenizer_eos(const struct tern_tokenizer *tokenizer);
bool tern_tokenizer_is_special(const struct tern_tokenizer *tokenizer, int32_t id);

/* Ids of any bytes, valid UTF-8 or not. parse_special: special tokens in the text become their ids (Hugging Face's
 * behaviour); false: they are encoded as ordinary text. *ids_out is tern_alloc'd. Linear in the input's length. */
TERN_MUST_CHECK tern_status tern_tokenizer_encode(const struct tern_tokenizer *tokenizer, const char *text, size_t bytes,
                                                  bool parse_special, int32_t **ids_out, int64_t *count_out);
/* The bytes of one id (no NUL; length in *bytes_out); NULL for an id that does not exist. Borrowed. */
const char *tern_tokenizer_piece(const struct tern_tokenizer *tokenizer, int32_t id, size_t *bytes_out);
/* Bytes of a sequence, tern_alloc'd and NUL-terminated; skip_special leaves special tokens out. */
TERN_MUST_CHECK tern_status tern_tokenizer_decode(const struct tern_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                                                  bool skip_special, char **text_out, size_t *bytes_out);

/* Learns merges from the files (byte-level BPE, GPT-2 splitting pattern) and writes a Hugging Face tokenizer.json.
 * vocab_size counts the 256 bytes, the merges and the special tokens. Deterministic: ties go to the smaller pair. */
TERN_MUST_CHECK tern_status tern_tokenizer_train(const char *const *paths, int path_count, int64_t vocab_size,
                                                 const char *const *specials, int special_count, const char *out_path);

#endif
