/* api_stream.c - answers as server-sent events: a chunk for each piece of text, usage, [DONE]. */
#include "runtime/serve/api_impl.h"

#include <string.h>

/* ---- the frame of a chunk ---- */

static tern_status begin_chunk(struct tern_api_job *job)
{
    struct tern_text *out = &job->scratch;
    out->length = 0;
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "data: {\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", job->id,
        job->request.kind == TERN_API_CHAT ? "chat.completion.chunk" : "text_completion",
        (long long)job->created));
    TERN_RETURN_IF_ERR(tern_json_quote(out, job->api->model.name, strlen(job->api->model.name)));
    return tern_text_printf(out, ",\"system_fingerprint\":\"tern-%s\",\"choices\":[",
                            job->api->options.version);
}

static void put(struct tern_api_job *job)
{
    if (!tern_http_reply_write(job->reply, job->scratch.data, job->scratch.length)) {
        job->is_over = true; /* `gone` cancels what runs */
    }
}

static tern_status end_chunk(struct tern_api_job *job)
{
    const char *usage = job->request.include_usage ? ",\"usage\":null" : "";
    TERN_RETURN_IF_ERR(tern_text_printf(&job->scratch, "]%s}\n\n", usage));
    put(job);
    return TERN_OK;
}

/* {"index":0, up to where the delta's members, or the text, follow. */
static tern_status begin_choice(const struct tern_api_choice *choice)
{
    TERN_RETURN_IF_ERR(begin_chunk(choice->job));
    return tern_text_printf(&choice->job->scratch, "{\"index\":%d,%s", choice->index,
                            choice->job->request.kind == TERN_API_CHAT ? "\"delta\":{"
                                                                       : "\"text\":");
}

static tern_status end_choice(struct tern_api_choice *choice, const char *reason)
{
    struct tern_text *out = &choice->job->scratch;
    bool is_chat = choice->job->request.kind == TERN_API_CHAT;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s,\"logprobs\":", is_chat ? "}" : ""));
    TERN_RETURN_IF_ERR(tern_api_logprobs_write(&choice->logprobs, out));
    if (reason != NULL) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"finish_reason\":\"%s\"}", reason));
    } else {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"finish_reason\":null}"));
    }
    return end_chunk(choice->job);
}

/* ---- chunks ---- */

tern_status tern_api_stream_begin(struct tern_api_job *job)
{
    job->is_begun = true;
    tern_http_reply_header(job->reply, "cache-control", "no-cache");
    tern_http_reply_header(job->reply, "x-accel-buffering", "no");
    tern_http_reply_begin(job->reply, 200, "text/event-stream; charset=utf-8");
    if (job->request.kind != TERN_API_CHAT) {
        return TERN_OK;
    }
    for (int64_t i = 0; i < job->choice_count; i++) {
        TERN_RETURN_IF_ERR(begin_choice(&job->choices[i]));
        TERN_RETURN_IF_ERR(
            tern_text_printf(&job->scratch, "\"role\":\"assistant\",\"content\":\"\""));
        TERN_RETURN_IF_ERR(end_choice(&job->choices[i], NULL));
    }
    return TERN_OK;
}

tern_status tern_api_stream_text(struct tern_api_choice *choice, const char *text, size_t bytes)
{
    struct tern_text *out = &choice->job->scratch;
    TERN_RETURN_IF_ERR(begin_choice(choice));
    if (choice->job->request.kind == TERN_API_CHAT) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\"content\":"));
    }
    TERN_RETURN_IF_ERR(tern_json_quote(out, text, bytes));
    return end_choice(choice, NULL);
}

tern_status tern_api_stream_call(struct tern_api_choice *choice, int call)
{
    struct tern_text *out = &choice->job->scratch;
    const struct tern_api_call *begun = &choice->calls[call];
    TERN_RETURN_IF_ERR(begin_choice(choice));
    TERN_RETURN_IF_ERR(tern_text_printf(
        out,
        "\"tool_calls\":[{\"index\":%d,\"id\":\"%s\",\"type\":\"function\",\"function\":{\"name\":",
        call, begun->id));
    TERN_RETURN_IF_ERR(tern_json_quote(out, begun->name, strlen(begun->name)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"arguments\":\"\"}}]"));
    return end_choice(choice, NULL);
}

tern_status tern_api_stream_arguments(struct tern_api_choice *choice,
                                      int call,
                                      const char *text,
                                      size_t bytes)
{
    struct tern_text *out = &choice->job->scratch;
    TERN_RETURN_IF_ERR(begin_choice(choice));
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":", call));
    TERN_RETURN_IF_ERR(tern_json_quote(out, text, bytes));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "}}]"));
    return end_choice(choice, NULL);
}

tern_status tern_api_stream_finish(struct tern_api_choice *choice)
{
    TERN_RETURN_IF_ERR(begin_choice(choice));
    if (choice->job->request.kind != TERN_API_CHAT) {
        TERN_RETURN_IF_ERR(tern_text_printf(&choice->job->scratch, "\"\""));
    }
    return end_choice(choice, tern_api_choice_reason(choice));
}

static void put_done(struct tern_api_job *job)
{
    static const char done[] = "data: [DONE]\n\n";
    tern_http_reply_write(job->reply, done, sizeof done - 1);
    tern_http_reply_end(job->reply);
}

tern_status tern_api_stream_end(struct tern_api_job *job)
{
    if (job->request.include_usage) {
        TERN_RETURN_IF_ERR(begin_chunk(job));
        TERN_RETURN_IF_ERR(tern_text_printf(&job->scratch, "],\"usage\":"));
        TERN_RETURN_IF_ERR(tern_api_usage_write(job, &job->scratch));
        TERN_RETURN_IF_ERR(tern_text_printf(&job->scratch, "}\n\n"));
        put(job);
    }
    put_done(job);
    return TERN_OK;
}

void tern_api_stream_fail(struct tern_api_job *job, const struct tern_api_error *error)
{
    struct tern_text *out = &job->scratch;
    out->length = 0;
    if (tern_text_printf(out, "data: ") == TERN_OK && tern_api_error_write(error, out) == TERN_OK &&
        tern_text_printf(out, "\n\n") == TERN_OK) {
        put(job);
    }
    put_done(job);
}
