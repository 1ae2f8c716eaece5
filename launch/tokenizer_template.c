/* tokenizer_template.c - "tern tokenizer template": messages as the text that a model's chat template makes of them. */
#include "launch/tokenizer_template.h"

#include "io/file.h"
#include "io/json.h"
#include "launch/options.h"
#include "runtime/base/mem.h"
#include "runtime/chat/template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    JSON_BYTES_MAX = 256 << 20
};

struct settings {
    const char *tokenizer, *template, *messages, *tools;
    bool generation_prompt;
    struct tern_option_list variables;
};

static tern_status read_json(const char *path, struct tern_json **out)
{
    char *text;
    size_t bytes;
    TERN_RETURN_IF_ERR(tern_file_read(path, JSON_BYTES_MAX, &text, &bytes));
    tern_status status = tern_json_parse(path, text, bytes, out);
    tern_free(text);
    return status;
}

static tern_status write_text(const struct tern_text *text)
{
    if (fwrite(text->data, 1, text->length, stdout) != text->length || fflush(stdout) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "standard output");
    }
    return TERN_OK;
}

/* NAME=VALUE, the value as JSON; owned: close each json of the `count` that are done. */
struct extra {
    char names[TERN_OPTION_LIST_MAX][64];
    struct tern_json *values[TERN_OPTION_LIST_MAX];
    struct tern_jinja_variable variables[TERN_OPTION_LIST_MAX];
    int count;
};

static tern_status read_extra(const struct tern_option_list *list, struct extra *extra)
{
    for (int i = 0; i < list->count; i++) {
        const char *equals = strchr(list->items[i], '=');
        if (equals == NULL || equals == list->items[i] || equals - list->items[i] > 63) {
            return tern_fail(TERN_ERR_USAGE, "--set: found '%.64s'; expected NAME=VALUE",
                             list->items[i]);
        }
        snprintf(extra->names[i], sizeof extra->names[i], "%.*s", (int)(equals - list->items[i]),
                 list->items[i]);
        tern_status status =
            tern_json_parse("--set", equals + 1, strlen(equals + 1), &extra->values[i]);
        if (status != TERN_OK) {
            return tern_fail_prefix(TERN_ERR_USAGE, "%s", extra->names[i]);
        }
        extra->variables[i] = (struct tern_jinja_variable){
            .name = extra->names[i], .kind = TERN_JINJA_JSON, .json = extra->values[i]};
        extra->count++;
    }
    return TERN_OK;
}

static tern_status run(const struct settings *s)
{
    struct tern_template *template = NULL;
    struct tern_json *messages = NULL, *tools = NULL;
    struct tern_jinja_output out = {0};
    struct extra extra = {.count = 0};
    tern_status status;
    TERN_GOTO_IF_ERR(status, read_extra(&s->variables, &extra), end);
    TERN_GOTO_IF_ERR(status, tern_template_open(s->tokenizer, s->template, &template), end);
    TERN_GOTO_IF_ERR(status, read_json(s->messages, &messages), end);
    if (s->tools != NULL) {
        TERN_GOTO_IF_ERR(status, read_json(s->tools, &tools), end);
    }
    struct tern_template_request request = {.messages = messages,
                                            .tools = tools,
                                            .message_count = -1,
                                            .add_generation_prompt = s->generation_prompt,
                                            .now = -1,
                                            .variables = extra.variables,
                                            .variable_count = extra.count};
    TERN_GOTO_IF_ERR(status, tern_template_render(template, &request, &out), end);
    TERN_GOTO_IF_ERR(status, write_text(&out.text), end);
end:
    tern_jinja_output_fini(&out);
    tern_json_close(tools);
    tern_json_close(messages);
    tern_template_close(template);
    for (int i = 0; i < extra.count; i++) {
        tern_json_close(extra.values[i]);
    }
    return status;
}

tern_status tern_tokenizer_template(int argc, char **argv)
{
    struct settings s = {0};
    const struct tern_option options[] = {
        {"tokenizer", TERN_OPTION_STRING, &s.tokenizer, "FILE|MODEL",
         "whose template: a folder, a file in one, or a GGUF file (required)", 0, 0, NULL},
        {"template", TERN_OPTION_STRING, &s.template, "F.jinja",
         "a template to take in place of the model's", 0, 0, NULL},
        {"messages", TERN_OPTION_STRING, &s.messages, "F.json",
         "a list of messages, or an object with \"messages\" and \"tools\" (required)", 0, 0, NULL},
        {"tools", TERN_OPTION_STRING, &s.tools, "F.json",
         "a list of tools, as JSON schemas (default: those beside the messages)", 0, 0, NULL},
        {"generation-prompt", TERN_OPTION_FLAG, &s.generation_prompt, NULL,
         "end where the assistant begins to speak (default off)", 0, 0, NULL},
        {"set", TERN_OPTION_LIST, &s.variables, "NAME=VALUE",
         "one more variable, as JSON (enable_thinking=false); may be repeated", 0, 0, NULL},
    };
    const struct tern_command_spec spec = {
        .name = "tokenizer template",
        .usage = "--tokenizer FILE|MODEL --messages F.json [options]",
        .summary = "Prints the text that a model's chat template makes of messages, byte for byte.",
        .example = "tern tokenizer template --tokenizer MODEL --messages chat.json "
                   "--generation-prompt",
        .options = options,
        .option_count = (int)(sizeof options / sizeof options[0]),
    };
    struct tern_positionals none;
    bool help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &none, &help));
    if (help) {
        return TERN_OK;
    }
    if (s.tokenizer == NULL || s.messages == NULL) {
        return tern_fail(TERN_ERR_USAGE, "%s: --%s is missing; expected %s", spec.name,
                         s.tokenizer == NULL ? "tokenizer" : "messages", spec.usage);
    }
    return run(&s);
}
