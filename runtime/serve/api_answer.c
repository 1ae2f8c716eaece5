/* api_answer.c - whole answers: chat.completion, text_completion, embeddings. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_impl.h"

#include <math.h>
#include <string.h>

const char *tern_api_choice_reason(const struct tern_api_choice *choice)
{
    return choice->call_count > 0 && strcmp(choice->finish_reason, "stop") == 0
               ? "tool_calls"
               : choice->finish_reason;
}

tern_status tern_api_usage_write(const struct tern_api_job *job, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "{\"prompt_tokens\":%lld", (long long)job->prompt_tokens));
    if (job->request.kind != TERN_API_EMBEDDING) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"completion_tokens\":%lld",
                                            (long long)job->completion_tokens));
    }
    return tern_text_printf(out,
                            ",\"total_tokens\":%lld,\"prompt_tokens_details\":"
                            "{\"cached_tokens\":%lld}}",
                            (long long)(job->prompt_tokens + job->completion_tokens),
                            (long long)job->cached_tokens);
}

tern_status tern_api_echo(const struct tern_api_job *job, int64_t prompt, struct tern_text *out)
{
    const struct tern_api_prompt *from = &job->request.prompts[prompt];
    char *text;
    size_t bytes;
    if (from->text != NULL) {
        return tern_text_append(out, from->text, from->text_bytes);
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_decode(job->api->model.loaded->tokenizer, from->ids,
                                             from->count, false, &text, &bytes));
    tern_status status = tern_text_append_utf8(out, text, bytes);
    tern_free(text);
    return status;
}

static tern_status quote(struct tern_text *out, const struct tern_text *text)
{
    return tern_json_quote(out, text->length > 0 ? text->data : "", text->length);
}

/* ---- chat and completions ---- */

static tern_status write_calls(const struct tern_api_choice *choice, struct tern_text *out)
{
    for (int i = 0; i < choice->call_count; i++) {
        const struct tern_api_call *call = &choice->calls[i];
        TERN_RETURN_IF_ERR(tern_text_printf(
            out, "%s{\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":", i > 0 ? "," : "",
            call->id));
        TERN_RETURN_IF_ERR(tern_json_quote(out, call->name, strlen(call->name)));
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"arguments\":"));
        TERN_RETURN_IF_ERR(quote(out, &call->arguments));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}}"));
    }
    return TERN_OK;
}

static tern_status write_message(const struct tern_api_choice *choice, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\"message\":{\"role\":\"assistant\",\"content\":"));
    if (choice->call_count > 0 && choice->text.length == 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "null"));
    } else {
        TERN_RETURN_IF_ERR(quote(out, &choice->text));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"refusal\":null"));
    if (choice->call_count > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"tool_calls\":["));
        TERN_RETURN_IF_ERR(write_calls(choice, out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    }
    return tern_text_printf(out, "}");
}

static tern_status write_choice(struct tern_api_choice *choice, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "%s{\"index\":%d,", choice->index > 0 ? "," : "", choice->index));
    if (choice->job->request.kind == TERN_API_CHAT) {
        TERN_RETURN_IF_ERR(write_message(choice, out));
    } else {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\"text\":"));
        TERN_RETURN_IF_ERR(quote(out, &choice->text));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"logprobs\":"));
    TERN_RETURN_IF_ERR(tern_api_logprobs_write(&choice->logprobs, out));
    return tern_text_printf(out, ",\"finish_reason\":\"%s\"}", tern_api_choice_reason(choice));
}

static tern_status write_texts(struct tern_api_job *job, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", job->id,
        job->request.kind == TERN_API_CHAT ? "chat.completion" : "text_completion",
        (long long)job->created));
    TERN_RETURN_IF_ERR(tern_json_quote(out, job->api->model.name, strlen(job->api->model.name)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"system_fingerprint\":\"tern-%s\",\"choices\":[",
                                        job->api->options.version));
    for (int64_t i = 0; i < job->choice_count; i++) {
        TERN_RETURN_IF_ERR(write_choice(&job->choices[i], out));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "],\"usage\":"));
    TERN_RETURN_IF_ERR(tern_api_usage_write(job, out));
    return tern_text_printf(out, "}");
}

/* ---- embeddings ---- */

/* Of the first `width` numbers one of length 1 again. */
static void cut(float *embedding, int64_t width)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++) {
        sum += (double)embedding[i] * (double)embedding[i];
    }
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int64_t i = 0; i < width; i++) {
        embedding[i] = (float)((double)embedding[i] * scale);
    }
}

/* Little-endian f32, as every host that Tern runs on has them. */
static tern_status write_base64(const float *embedding, int64_t width, struct tern_text *out)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *bytes = (const unsigned char *)embedding;
    size_t count = (size_t)width * sizeof *embedding;
    TERN_RETURN_IF_ERR(tern_text_append(out, "\"", 1));
    for (size_t i = 0; i < count; i += 3) {
        size_t left = count - i;
        uint32_t word = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                        (left > 2 ? (uint32_t)bytes[i + 2] : 0);
        const char four[4] = {letters[word >> 18], letters[word >> 12 & 63],
                              left > 1 ? letters[word >> 6 & 63] : '=',
                              left > 2 ? letters[word & 63] : '='};
        TERN_RETURN_IF_ERR(tern_text_append(out, four, 4));
    }
    return tern_text_append(out, "\"", 1);
}

static tern_status write_floats(const float *embedding, int64_t width, struct tern_text *out)
{
    for (int64_t i = 0; i < width; i++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%c%.9g", i > 0 ? ',' : '[', (double)embedding[i]));
    }
    return tern_text_append(out, "]", 1);
}

static tern_status write_embeddings(struct tern_api_job *job, struct tern_text *out)
{
    const struct tern_api_request *request = &job->request;
    int64_t width = request->dimensions > 0 ? request->dimensions : job->width;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"object\":\"list\",\"data\":["));
    for (int64_t i = 0; i < job->choice_count; i++) {
        float *embedding = job->choices[i].embedding;
        TERN_RETURN_IF_ERR(tern_text_printf(
            out, "%s{\"object\":\"embedding\",\"index\":%lld,\"embedding\":", i > 0 ? "," : "",
            (long long)i));
        if (width < job->width) {
            cut(embedding, width);
        }
        TERN_RETURN_IF_ERR(request->is_base64 ? write_base64(embedding, width, out)
                                              : write_floats(embedding, width, out));
        TERN_RETURN_IF_ERR(tern_text_append(out, "}", 1));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "],\"model\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, job->api->model.name, strlen(job->api->model.name)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"usage\":"));
    TERN_RETURN_IF_ERR(tern_api_usage_write(job, out));
    return tern_text_append(out, "}", 1);
}

tern_status tern_api_answer_write(struct tern_api_job *job, struct tern_text *out)
{
    return job->request.kind == TERN_API_EMBEDDING ? write_embeddings(job, out)
                                                   : write_texts(job, out);
}
