/* tokenizer.h - text to token ids and back: byte-level BPE, SentencePiece-style BPE and unigram, as
 * Hugging Face's tokenizer.json defines them. */
#ifndef TERN_IO_TOKENIZER_H
#define TERN_IO_TOKENIZER_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_tokenizer;

/* Reads a tokenizer.json, the one in a folder (with the names in the tokenizer_config.json beside it),
 * or a GGUF file's. What it cannot do exactly as Hugging Face does
 * (other models, normalizers, pre-tokenizers, ...) it refuses by name, TERN_ERR_UNSUPPORTED.
 * Owned: close. */
TERN_MUST_CHECK tern_status tern_tokenizer_open(const char *path, struct tern_tokenizer **out);
void tern_tokenizer_close(struct tern_tokenizer *tokenizer);

int64_t tern_tokenizer_vocab_size(const struct tern_tokenizer *tokenizer); /* largest id + 1 */
/* Id of a token's exact text (special or not), -1 if there is none. */
int32_t tern_tokenizer_id(const struct tern_tokenizer *tokenizer, const char *token);
/* End-of-document token: what tokenizer_config.json names, else "<|endoftext|>", "</s>", "<|end_of_text|>", ... whichever exists; -1 if
 * none. */
int32_t tern_tokenizer_eos(const struct tern_tokenizer *tokenizer);
/* Beginning of text: what tokenizer_config.json names, else the first id of the prefix; -1 if none. */
int32_t tern_tokenizer_bos(const struct tern_tokenizer *tokenizer);
bool tern_tokenizer_is_special(const struct tern_tokenizer *tokenizer, int32_t id);
int64_t tern_tokenizer_merge_count(const struct tern_tokenizer *tokenizer);
/* Appends lines that say what kind it is: "model       byte-level BPE\n" and so on. */
TERN_MUST_CHECK tern_status tern_tokenizer_describe(const struct tern_tokenizer *tokenizer,
                                                    struct tern_text *out);
/* XXH3-128 (hex) of the file it was read from; of what decides the ids for a GGUF file. */
const char *tern_tokenizer_hash(const struct tern_tokenizer *tokenizer);
/* Ids that the file's post-processor puts before and after a text (BOS, EOS), borrowed; none for
 * GPT-2's kind. */
const int32_t *tern_tokenizer_prefix(const struct tern_tokenizer *tokenizer, int *count_out);
const int32_t *tern_tokenizer_suffix(const struct tern_tokenizer *tokenizer, int *count_out);

/* Ids of any bytes, valid UTF-8 or not. parse_special: special tokens in the text become their
 * ids (Hugging Face's behaviour); false: they are encoded as ordinary text. *ids_out is
 * tern_alloc'd. Linear in the input's length. */
TERN_MUST_CHECK tern_status tern_tokenizer_encode(const struct tern_tokenizer *tokenizer,
                                                  const char *text,
                                                  size_t bytes,
                                                  bool parse_special,
                                                  int32_t **ids_out,
                                                  int64_t *count_out);
/* For many texts: an encoder keeps its scratch memory and a bounded cache of words between
 * calls. One thread each. */
struct tern_encoder;
struct tern_ids {
    int32_t *data; /* tern_alloc'd; the owner frees it */
    int64_t count, capacity;
};
TERN_MUST_CHECK tern_status tern_encoder_create(const struct tern_tokenizer *tokenizer,
                                                struct tern_encoder **out);
void tern_encoder_destroy(struct tern_encoder *encoder);
/* As tern_tokenizer_encode, appended to ids. After a failure the encoder can be used again. */
TERN_MUST_CHECK tern_status tern_encoder_append(struct tern_encoder *encoder,
                                                const char *text,
                                                size_t bytes,
                                                bool parse_special,
                                                struct tern_ids *ids);
/* The next append goes on with the text of the last one, which was cut where tern_tokenizer_cut
 * says: nothing that belongs to the beginning of a text (a blank put first) is added again. */
void tern_encoder_continue(struct tern_encoder *encoder);
/* For streams: the largest n <= bytes such that encoding text[0, n) and, after
 * tern_encoder_continue, what follows gives the ids of the whole; 0 if there is no such place yet
 * (read more). It is a blank after a character that is none. */
size_t tern_tokenizer_cut(const struct tern_tokenizer *tokenizer, const char *text, size_t bytes);
/* The bytes of one id in the middle of a text (no NUL; length in *bytes_out); NULL for an id that
 * does not exist. Borrowed. */
const char *tern_tokenizer_piece(const struct tern_tokenizer *tokenizer,
                                 int32_t id,
                                 size_t *bytes_out);
/* Bytes of a sequence, tern_alloc'd and NUL-terminated; skip_special leaves special tokens out. */
TERN_MUST_CHECK tern_status tern_tokenizer_decode(const struct tern_tokenizer *tokenizer,
                                                  const int32_t *ids,
                                                  int64_t count,
                                                  bool skip_special,
                                                  char **text_out,
                                                  size_t *bytes_out);

/* The same piece by piece, for streams: bytes come out as they are, half characters too. */
struct tern_decoder {
    const struct tern_tokenizer *tokenizer;
    bool skip_special;
    bool is_first;       /* nothing was pushed yet */
    size_t strip_blanks; /* still to go from the text's beginning */
    int64_t position;    /* ids pushed, those left out too */
};
void tern_decoder_init(struct tern_decoder *decoder,
                       const struct tern_tokenizer *tokenizer,
                       bool skip_special);
/* Appends the bytes of the next id; TERN_ERR_INPUT for one that is not in the vocabulary. */
TERN_MUST_CHECK tern_status tern_decoder_push(struct tern_decoder *decoder,
                                              int32_t id,
                                              struct tern_text *out);

/* Learns merges from the files (byte-level BPE, GPT-2 splitting pattern) and writes a Hugging
 * Face tokenizer.json. vocab_size counts the 256 bytes, the merges and the special tokens. Ids:
 * special tokens, bytes in the order of their characters, merges. Deterministic: ties go to the
 * smaller pair. The same vocabulary as Hugging Face's BpeTrainer learns from the same texts.
 * Path "-" is standard input. A text too small for vocab_size gives fewer tokens, with a
 * warning. */
TERN_MUST_CHECK tern_status tern_tokenizer_train(const char *const *paths,
                                                 int path_count,
                                                 int64_t vocab_size,
                                                 const char *const *specials,
                                                 int special_count,
                                                 const char *out_path);

#endif
