/* template.h - which chat template a MODEL has, and conversations through it.
 *
 * A MODEL's template is, in this order: chat_template.jinja in its folder (others by name in
 * additional_chat_templates/), "chat_template" in tokenizer_config.json (a text, or a list of named ones), and
 * tokenizer.chat_template in a GGUF file (others as tokenizer.chat_template.NAME). Of named ones "default" is taken, and
 * "tool_use" when there are tools. Its variables are messages, tools, documents, add_generation_prompt and the special
 * tokens that the model names (bos_token, eos_token, ...). */
#ifndef TERN_RUNTIME_CHAT_TEMPLATE_H
#define TERN_RUNTIME_CHAT_TEMPLATE_H

#include "runtime/chat/jinja.h"

struct tern_template;

/* MODEL: a Hugging Face folder, a run directory or a checkpoint of one, a tokenizer.json among such files, or a GGUF
 * file. file: a template to take in place of the model's (NULL: the model's). TERN_ERR_NOT_FOUND: the model has none,
 * and the sentence says where it could be. Owned: close. */
TERN_MUST_CHECK tern_status tern_template_open(const char *model,
                                               const char *file,
                                               struct tern_template **out);
/* As tern_template_open; a model without a template whose vocabulary has the marks of a known form of conversation gets
 * that form's (known.c): GGUF files often leave it out. */
struct tern_tokenizer;
TERN_MUST_CHECK tern_status tern_template_open_known(const char *model,
                                                     const char *file,
                                                     const struct tern_tokenizer *tokenizer,
                                                     struct tern_template **out);
/* The template (Jinja) of a form whose marks are special tokens of this vocabulary, static; NULL: none is known. */
const char *tern_template_known(const struct tern_tokenizer *tokenizer);
/* The template's source, the one that is taken when there are tools. Valid until close. */
const char *tern_template_source(const struct tern_template *template, bool has_tools);
void tern_template_close(struct tern_template *template);
/* XXH3-128 (hex) of the template's text and the special tokens. */
enum {
    TERN_TEMPLATE_HASH_BYTES = 33
};
const char *tern_template_hash(const struct tern_template *template);
/* Whether it marks by {% generation %} what the assistant says. */
bool tern_template_has_generation(const struct tern_template *template);
/* The text of a special token by its name ("eos_token"); NULL: the model names none. */
const char *tern_template_special(const struct tern_template *template, const char *name);

struct tern_template_request {
    const struct tern_json
        *messages; /* a list of objects, or an object with "messages" (and "tools") */
    const struct tern_json *tools; /* a list, or NULL: those beside "messages", if any */
    int64_t message_count;         /* the first so many; -1: all */
    int64_t mark_message;          /* see tern_jinja_variable */
    const char *mark;              /* NULL: none */
    bool add_generation_prompt;
    int64_t now;                                 /* see tern_jinja_input */
    int64_t steps_max;                           /* see tern_jinja_input */
    const struct tern_jinja_variable *variables; /* more of them: they hide the others */
    int variable_count;
};

/* TERN_ERR_INPUT: messages that are none, or that the template refuses. *out as for tern_jinja_render. */
TERN_MUST_CHECK tern_status tern_template_render(const struct tern_template *template,
                                                 const struct tern_template_request *request,
                                                 struct tern_jinja_output *out);

#endif
