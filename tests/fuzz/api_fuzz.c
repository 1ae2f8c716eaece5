/* api_fuzz.c - any bytes as the body of a request to OpenAI's API, and as an answer that may hold calls of tools: refused
 * with a 400 or 404 that is JSON, or taken; nothing leaks. The first byte says which. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_request.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct tern_loaded g_loaded;
static struct tern_api_model g_model;

static void must(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void open_model(void)
{
    const char *path = TERN_GOLDEN "/tokenizers/smollm.json";
    must(tern_tokenizer_open(path, &g_loaded.tokenizer) == TERN_OK);
    g_loaded.model.config.vocab_size = tern_tokenizer_vocab_size(g_loaded.tokenizer);
    g_loaded.model.config.width = 32;
    must(tern_api_model_init(&g_model, &g_loaded, path, TERN_TEMPLATE, 2048) == TERN_OK);
    must(g_model.template != NULL);
    struct tern_grammar_vocab *vocab;
    must(tern_api_model_vocab(&g_model, &vocab) == TERN_OK);
}

static void check_error(const struct tern_api_error *error)
{
    struct tern_text text;
    struct tern_json *json;
    tern_text_init(&text);
    must(error->status == 400 || error->status == 404);
    must(tern_api_error_write(error, &text) == TERN_OK);
    must(tern_json_parse("error", text.data, text.length, &json) == TERN_OK);
    tern_json_close(json);
    tern_text_fini(&text);
}

static void check_request(const struct tern_api_request *request)
{
    int64_t vocab = g_loaded.model.config.vocab_size;
    must(request->prompt_count >= 1 && request->n >= 1 && request->n <= TERN_ENGINE_CHOICES_MAX);
    for (int64_t i = 0; i < request->prompt_count; i++) {
        must(request->prompts[i].count >= 1 && request->prompts[i].count <= g_model.context);
        for (int64_t k = 0; k < request->prompts[i].count; k++) {
            must(request->prompts[i].ids[k] >= 0 && request->prompts[i].ids[k] < vocab);
        }
    }
    for (int i = 0; i < request->engine.stop_id_count; i++) {
        must(request->engine.stop_ids[i] >= 0 && request->engine.stop_ids[i] < vocab);
    }
}

static void read_body(enum tern_api_kind kind, const uint8_t *data, size_t bytes)
{
    struct tern_api_request request;
    struct tern_api_error error = {0};
    tern_status status = tern_api_request_read(&g_model, kind, data, bytes, &request, &error);
    if (status == TERN_OK) {
        check_request(&request);
    } else {
        tern_api_error_from(&error, status);
        check_error(&error);
    }
    tern_api_request_fini(&request);
}

static tern_status hear_text(void *context, const char *bytes, size_t count)
{
    (void)bytes;
    *(size_t *)context += count;
    return TERN_OK;
}

static tern_status hear_call(void *context, int call, const char *name)
{
    (void)context;
    must(call >= 0 && call < TERN_TOOL_CALLS_MAX && name[0] != '\0');
    return TERN_OK;
}

static tern_status hear_arguments(void *context, int call, const char *bytes, size_t count)
{
    (void)call;
    return hear_text(context, bytes, count);
}

static void read_answer(unsigned how, const uint8_t *data, size_t bytes)
{
    size_t told = 0;
    const struct tern_tool_sink sink = {hear_text, hear_call, hear_arguments, &told};
    struct tern_tool_parser parser;
    size_t piece = 1 + how / 8 % 16;
    tern_tool_parser_init(&parser, (enum tern_tool_format)(how % 4), how & 4, 3, &sink);
    for (size_t at = 0; at < bytes; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;
        must(tern_tool_parser_push(&parser, (const char *)data + at, n) == TERN_OK);
    }
    must(tern_tool_parser_finish(&parser) == TERN_OK);
    must(told <= bytes + 2 * TERN_TOOL_CALLS_MAX); /* "{}" may be made up */
    tern_tool_parser_fini(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (g_loaded.tokenizer == NULL) {
        open_model();
    }
    if (bytes == 0) {
        return 0;
    }
    int64_t before = tern_mem_stats().live_blocks;
    if (data[0] < '3') {
        read_body((enum tern_api_kind)(data[0] % 3), data + 1, bytes - 1);
    } else {
        read_answer(data[0], data + 1, bytes - 1);
    }
    must(tern_mem_stats().live_blocks == before);
    return 0;
}
