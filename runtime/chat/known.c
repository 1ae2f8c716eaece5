/* known.c - conversations of models whose files have no chat template: by the special tokens that mark their turns. */
#include "io/tokenizer.h"
#include "runtime/chat/template.h"

/* {system, user, assistant} with <start_of_turn>: what the system says goes before what the user says first. */
static const char g_turns[] =
    "{{ bos_token }}{% set lead = namespace(text='') %}"
    "{% for message in messages %}"
    "{% if message.role == 'system' %}"
    "{% if not loop.first %}{{ raise_exception('a system message must be the first') }}{% endif %}"
    "{% set lead.text = message.content | trim + '\n\n' %}"
    "{% else %}"
    "<start_of_turn>{{ 'model' if message.role == 'assistant' else 'user' }}\n"
    "{{ '' if message.role == 'assistant' else lead.text }}{{ message.content | trim }}"
    "<end_of_turn>{{ '\n' }}"
    "{% if message.role != 'assistant' %}{% set lead.text = '' %}{% endif %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model{{ '\n' }}{% endif %}";

/* ChatML: <|im_start|>role, the text, <|im_end|>. */
static const char g_chatml[] =
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}{{ '\n' }}{{ message.content }}<|im_end|>{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}";

/* The headers of Llama 3. */
static const char g_headers[] =
    "{{ bos_token }}{% for message in messages %}"
    "<|start_header_id|>{{ message.role }}<|end_header_id|>{{ '\n\n' }}"
    "{{ message.content | trim }}<|eot_id|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "<|start_header_id|>assistant<|end_header_id|>{{ '\n\n' }}{% endif %}";

static const struct {
    const char *begin, *end; /* tokens that must be there, and special */
    const char *text;
} g_known[] = {
    {"<start_of_turn>", "<end_of_turn>", g_turns},
    {"<|im_start|>", "<|im_end|>", g_chatml},
    {"<|start_header_id|>", "<|eot_id|>", g_headers},
};

static bool has_special(const struct tern_tokenizer *tokenizer, const char *token)
{
    int32_t id = tern_tokenizer_id(tokenizer, token);
    return id >= 0 && tern_tokenizer_is_special(tokenizer, id);
}

const char *tern_template_known(const struct tern_tokenizer *tokenizer)
{
    for (size_t i = 0; i < sizeof g_known / sizeof g_known[0]; i++) {
        if (has_special(tokenizer, g_known[i].begin) && has_special(tokenizer, g_known[i].end)) {
            return g_known[i].text;
        }
    }
    return NULL;
}
