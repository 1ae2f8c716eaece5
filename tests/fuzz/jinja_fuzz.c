/* jinja_fuzz.c - any bytes as a chat template, over one conversation: it ends, within its budget, and leaks nothing. */
#include "io/json.h"
#include "runtime/base/mem.h"
#include "runtime/chat/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char conversation[] =
    "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": [{\"type\": "
    "\"text\", \"text\": \" h\\u00e9 \\ud83d\\ude42\\n\"}]}, {\"role\": \"assistant\", "
    "\"content\": null, "
    "\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"y\": [true, "
    "null]}}}], "
    "\"reasoning\": \"why\"}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tern_jinja *jinja;
    struct tern_json *messages;
    struct tern_jinja_output out = {0};
    int64_t before = tern_mem_stats().live_blocks;
    if (tern_jinja_compile("fuzz", (const char *)data, bytes, &jinja) != TERN_OK) {
        return 0;
    }
    if (tern_json_parse("messages", conversation, sizeof conversation - 1, &messages) != TERN_OK) {
        abort();
    }
    struct tern_jinja_variable variables[] = {
        {.name = "messages",
         .kind = TERN_JINJA_JSON,
         .json = messages,
         .is_messages = true,
         .item_count = -1},
        {.name = "l", .kind = TERN_JINJA_JSON, .json = messages},
        {.name = "s", .kind = TERN_JINJA_STRING, .string = "a\xC3\xA9 b<c"},
        {.name = "add_generation_prompt", .kind = TERN_JINJA_BOOL, .truth = true},
        {.name = "tools", .kind = TERN_JINJA_NONE},
    };
    struct tern_jinja_input input = {.variables = variables,
                                     .variable_count = 5,
                                     .now = 0,
                                     .steps_max = 100000,
                                     .memory_bytes = 4 << 20};
    tern_status status = tern_jinja_render(jinja, &input, &out);
    if (status == TERN_OK) {
        for (int64_t i = 0; i < out.span_count; i++) {
            if (out.spans[i].start > out.spans[i].end || out.spans[i].end > out.text.length) {
                abort();
            }
        }
    } else if (status != TERN_ERR_INPUT && status != TERN_ERR_UNSUPPORTED) {
        abort();
    }
    tern_jinja_output_fini(&out);
    tern_jinja_destroy(jinja);
    tern_json_close(messages);
    if (tern_mem_stats().live_blocks != before) {
        abort();
    }
    return 0;
}
