/* grammar.h - JSON mode and JSON schemas as a mask over the next token: what is sampled under the mask is JSON, and
 * valid under the schema.
 *
 * A grammar is a pushdown automaton over bytes: a string, an object and an array are each a rule that begins and ends
 * with a byte that says so, which makes it deterministic with one stack (a visibly pushdown automaton; Alur and
 * Madhusudan, "Visibly pushdown languages", STOC 2004). States of the deterministic automaton and masks are made when
 * they are first needed and kept within a budget.
 *
 * The schema subset (anything else is TERN_ERR_INPUT with the JSON pointer and the keyword; nothing is ever ignored but
 * annotations):
 *   type (one or a list), nullable, enum, const, anyOf, oneOf (as anyOf: one alternative or several may hold), allOf and
 *   keywords beside $ref or anyOf (the conjunction is formed), $ref to "#" or "#/..." (recursive too), $defs;
 *   properties, required, additionalProperties (false, true, a schema); items, prefixItems, minItems, maxItems;
 *   minLength, maxLength, pattern, format; minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf 1.
 *   Ignored: title, description, default, examples, deprecated, readOnly, writeOnly, discriminator, $schema, $id,
 *   $comment, x-...
 * What is narrower than JSON Schema, so that a model cannot wander:
 *   properties come in the order of the schema, those that it does not name behind them; without additionalProperties an
 *   object that has `properties` has no others; a schema without type that has a type's keywords means that type.
 *   Numbers have at most 18 digits before and 17 behind the point and an exponent of 2; integers no point, and
 *   18 digits unless bounded; numbers with bounds have no exponent. Keys, and strings with a pattern, a format, an enum
 *   or a const, have one spelling: escapes only where JSON needs them. Blanks: where JSON allows them one
 *   space, or a line feed and up to 32 spaces or tabs; none behind the document. Values are nested at most 200 levels
 *   deep (a string is one), or as deep as the schema needs.
 *   format: date, time, date-time, duration, uuid, email, hostname, ipv4, ipv6 (all groups), uri; others are refused.
 *   pattern: an ECMA-262 expression, searched in the string (^ and $ at its ends only) over characters, of literals,
 *   classes, groups, |, * + ? {m,n}, \d \w \s; refused: look-around, back references, \b, \p. */
#ifndef TERN_RUNTIME_SERVE_GRAMMAR_H
#define TERN_RUNTIME_SERVE_GRAMMAR_H

#include "io/json.h"
#include "io/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

struct
    tern_grammar_vocab; /* the tokens' bytes as a tree; immutable, shared by all grammars of a model */
struct tern_grammar;    /* shared by requests; safe from any thread */
struct tern_grammar_state; /* where one sequence is; one thread at a time */

/* vocab_size: of the logits, at least the tokenizer's. Special tokens, ids without bytes and ids that the tokenizer does
 * not have are never allowed; end_ids (borrowed for the call) exactly where the document is whole. The tokenizer is not
 * kept. Takes about 0.4 microseconds a token (0.1 s for 262,144): made when a request first needs it.
 * Owned: release. */
TERN_MUST_CHECK tern_status tern_grammar_vocab_create(const struct tern_tokenizer *tokenizer,
                                                      int64_t vocab_size,
                                                      const int32_t *end_ids,
                                                      int end_count,
                                                      struct tern_grammar_vocab **out);
struct tern_grammar_vocab *tern_grammar_vocab_retain(struct tern_grammar_vocab *vocab);
void tern_grammar_vocab_release(struct tern_grammar_vocab *vocab);

/* The schema is read during the call only; the vocabulary is retained. TERN_ERR_INPUT: what is wrong or not
 * supported, "/properties/a: \"not\" is not supported" (the pointer of the whole schema is ""). Owned: release. */
TERN_MUST_CHECK tern_status tern_grammar_compile_schema(struct tern_grammar_vocab *vocab,
                                                        const struct tern_json *schema,
                                                        struct tern_grammar **out);
/* Any JSON object, {"type": "object"}: OpenAI's response_format json_object. */
TERN_MUST_CHECK tern_status tern_grammar_compile_json(struct tern_grammar_vocab *vocab,
                                                      struct tern_grammar **out);
/* One of several texts of the form prefix + document + suffix (tool calls: `<tool_call>{"name": "f", "arguments": `,
 * the parameters' schema, `}</tool_call>`); schema NULL is any JSON object. Alternatives may share beginnings. */
struct tern_grammar_frame {
    const char *prefix, *suffix; /* NULL: none; UTF-8 */
    const struct tern_json *schema;
};
TERN_MUST_CHECK tern_status tern_grammar_compile_frames(struct tern_grammar_vocab *vocab,
                                                        const struct tern_grammar_frame *frames,
                                                        int count,
                                                        struct tern_grammar **out);
struct tern_grammar *tern_grammar_retain(struct tern_grammar *grammar);
void tern_grammar_release(struct tern_grammar *grammar);

/* At the beginning of a document; retains the grammar. Owned: destroy. */
TERN_MUST_CHECK tern_status tern_grammar_state_create(struct tern_grammar *grammar,
                                                      struct tern_grammar_state **out);
TERN_MUST_CHECK tern_status tern_grammar_state_copy(const struct tern_grammar_state *state,
                                                    struct tern_grammar_state **out);
void tern_grammar_state_destroy(struct tern_grammar_state *state);
/* Writes a bit for each id that may come next, (vocab_size + 31) / 32 words, bit id % 32 of word id / 32. At least one
 * is set unless an end id was accepted, or the vocabulary cannot spell what must follow. TERN_ERR_MEMORY, or
 * TERN_ERR_INPUT when it would take more than 4,000,000 steps (which no schema that people write comes near). */
TERN_MUST_CHECK tern_status tern_grammar_mask(struct tern_grammar_state *state, uint32_t *bits);
/* Goes on with a token; false, and nothing changes, when the grammar does not allow it. */
bool tern_grammar_accept(struct tern_grammar_state *state, int32_t id);
/* What was accepted is a whole document: an end id may follow (it may also be that nothing else may). */
bool tern_grammar_is_complete(const struct tern_grammar_state *state);

#endif
