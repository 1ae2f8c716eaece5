/* http_parse.c - llhttp (strict, 8.1.0 as Debian has it) behind a few functions, and the rules that it leaves to its user. */
#include "runtime/serve/http_parse.h"

#include "runtime/base/mem.h"
#include "runtime/serve/http_head.h"

#include <llhttp.h>
#include <string.h>
#include <strings.h>

/* Raw bytes of a chunked body may be so many times its decoded ones, and so many more: llhttp does
 * not bound extensions. */
enum {
    RAW_TIMES_MAX = 2,
    RAW_EXTRA_MAX = 64 << 10,
    TRAILERS_MAX = 100,
    TRAILER_BYTES_MAX = 16 << 10,
};

struct tern_http_parse {
    llhttp_t llhttp; /* .data: this */
    struct tern_http_message *message;
    size_t body_max;
    size_t raw_bytes; /* of the body so far */
    bool in_head;
    bool
        in_trailer; /* behind the last chunk's line: llhttp, which takes a bare LF there, is done */
    struct tern_http_head trailer;
    bool in_value; /* a field has its name, and maybe some of its value */
    bool is_whole;
    int status; /* 0: nothing wrong yet */
    const char *reason;
};

void tern_http_message_fini(struct tern_http_message *message)
{
    tern_text_fini(&message->text);
    tern_text_fini(&message->body);
    tern_free(message->fields);
    message->fields = NULL;
    message->field_count = message->field_capacity = 0;
}

const char *tern_http_message_field(const struct tern_http_message *message,
                                    const char *name,
                                    int *count_out)
{
    const char *value = NULL;
    int count = 0;
    for (int i = 0; i < message->field_count; i++) {
        const struct tern_http_field *field = &message->fields[i];
        if (strcasecmp(message->text.data + field->name, name) == 0) {
            value = value != NULL ? value : message->text.data + field->value;
            count++;
        }
    }
    if (count_out != NULL) {
        *count_out = count;
    }
    return value;
}

/* Notes what is wrong; what llhttp wants from a callback that refuses. */
static int refuse(struct tern_http_parse *parse, int status, const char *reason)
{
    parse->status = status;
    parse->reason = reason;
    return -1;
}

static int out_of_memory(struct tern_http_parse *parse)
{
    return refuse(parse, 503, "out of memory");
}

static int append(struct tern_http_parse *parse,
                  struct tern_text *text,
                  const char *at,
                  size_t length)
{
    return tern_text_append(text, at, length) == TERN_OK ? 0 : out_of_memory(parse);
}

static int on_url(llhttp_t *llhttp, const char *at, size_t length)
{
    struct tern_http_parse *parse = llhttp->data;
    return append(parse, &parse->message->text, at, length);
}

static int on_url_complete(llhttp_t *llhttp)
{
    struct tern_http_parse *parse = llhttp->data;
    return append(parse, &parse->message->text, "", 1);
}

/* Room for one field more; its name begins at the end of text. */
static int add_field(struct tern_http_parse *parse)
{
    struct tern_http_message *message = parse->message;
    if (message->field_count == message->field_capacity) {
        int wanted = message->field_capacity * 2 + 16;
        struct tern_http_field *grown =
            tern_realloc("http fields", message->fields, (size_t)wanted * sizeof *grown);
        if (grown == NULL) {
            return out_of_memory(parse);
        }
        message->fields = grown;
        message->field_capacity = wanted;
    }
    message->fields[message->field_count++] =
        (struct tern_http_field){.name = (uint32_t)message->text.length};
    return 0;
}

/* Ends the value of the last field: the blanks behind it go. */
static int end_value(struct tern_http_parse *parse)
{
    struct tern_http_message *message = parse->message;
    if (!parse->in_value) {
        return 0;
    }
    parse->in_value = false;
    size_t begin = message->fields[message->field_count - 1].value;
    while (message->text.length > begin && (message->text.data[message->text.length - 1] == ' ' ||
                                            message->text.data[message->text.length - 1] == '\t')) {
        message->text.length--;
    }
    return append(parse, &message->text, "", 1);
}

static int on_header_field(llhttp_t *llhttp, const char *at, size_t length)
{
    struct tern_http_parse *parse = llhttp->data;
    if (!parse->in_head) {
        return 0;
    }
    /* The head comes in one piece, so a name does, too. */
    if (end_value(parse) != 0 || add_field(parse) != 0) {
        return -1;
    }
    struct tern_http_message *message = parse->message;
    if (append(parse, &message->text, at, length) != 0 ||
        append(parse, &message->text, "", 1) != 0) {
        return -1;
    }
    message->fields[message->field_count - 1].value = (uint32_t)message->text.length;
    parse->in_value = true;
    return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct tern_http_parse *parse = llhttp->data;
    return parse->in_head ? append(parse, &parse->message->text, at, length) : 0;
}

static int on_header_value_complete(llhttp_t *llhttp)
{
    struct tern_http_parse *parse = llhttp->data;
    return parse->in_head ? end_value(parse) : 0;
}

/* A value of Host: host or address, and maybe a port; no user, no path, no list. */
static bool is_host(const char *value)
{
    return value[0] != '\0' &&
           strspn(value,
                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:[]%") ==
               strlen(value);
}

/* What the framing headers must be, so that no proxy in front can read them in another way. */
static int check_framing(struct tern_http_parse *parse)
{
    const struct tern_http_message *message = parse->message;
    int hosts, lengths, codings, expects;
    const char *host = tern_http_message_field(message, "Host", &hosts);
    const char *length = tern_http_message_field(message, "Content-Length", &lengths);
    const char *coding = tern_http_message_field(message, "Transfer-Encoding", &codings);
    const char *expect = tern_http_message_field(message, "Expect", &expects);
    if (hosts > 1 || (hosts == 0 && !message->is_1_0)) {
        return refuse(parse, 400, hosts == 0 ? "no Host header" : "more than one Host header");
    }
    if (host != NULL && !is_host(host)) {
        return refuse(parse, 400, "a Host header that is no host");
    }
    if (lengths > 1 || codings > 1 || (lengths > 0 && codings > 0)) {
        return refuse(parse, 400, "more than one of Content-Length and Transfer-Encoding");
    }
    if (length != NULL && (length[0] == '\0' || strspn(length, "0123456789") != strlen(length))) {
        return refuse(parse, 400, "a Content-Length that is no number");
    }
    if (coding != NULL && message->is_1_0) {
        return refuse(parse, 400, "a Transfer-Encoding in HTTP/1.0");
    }
    if (coding != NULL && strcasecmp(coding, "chunked") != 0) {
        return refuse(parse, 501, "a Transfer-Encoding other than chunked");
    }
    if (expects > 1 || (expect != NULL && strcasecmp(expect, "100-continue") != 0)) {
        return refuse(parse, 417, "an Expect other than 100-continue");
    }
    return 0;
}

static int on_headers_complete(llhttp_t *llhttp)
{
    struct tern_http_parse *parse = llhttp->data;
    struct tern_http_message *message = parse->message;
    parse->in_head = false;
    message->is_1_0 = llhttp->http_minor == 0;
    message->method = llhttp_method_name((llhttp_method_t)llhttp->method);
    message->keep_alive = llhttp_should_keep_alive(llhttp) != 0;
    if (check_framing(parse) != 0) {
        return -1;
    }
    message->has_body = (llhttp->flags & F_CHUNKED) != 0 || llhttp->content_length > 0;
    message->expects_continue =
        !message->is_1_0 && tern_http_message_field(message, "Expect", NULL) != NULL;
    if (llhttp->content_length > parse->body_max) {
        return refuse(parse, 413, "the body is too long");
    }
    llhttp->upgrade = 0; /* no other protocol is spoken here: an Upgrade is ignored */
    return 0;
}

static int on_chunk_header(llhttp_t *llhttp)
{
    struct tern_http_parse *parse = llhttp->data;
    if (llhttp->content_length > parse->body_max - parse->message->body.length) {
        return refuse(parse, 413, "the body is too long");
    }
    parse->in_trailer = llhttp->content_length == 0;
    return parse->in_trailer ? HPE_PAUSED : 0;
}

static int on_body(llhttp_t *llhttp, const char *at, size_t length)
{
    struct tern_http_parse *parse = llhttp->data;
    struct tern_text *body = &parse->message->body;
    if (length > parse->body_max - body->length) {
        return refuse(parse, 413, "the body is too long");
    }
    return append(parse, body, at, length);
}

static int on_message_complete(llhttp_t *llhttp)
{
    struct tern_http_parse *parse = llhttp->data;
    parse->is_whole = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_url_complete = on_url_complete,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_value_complete,
    .on_headers_complete = on_headers_complete,
    .on_chunk_header = on_chunk_header,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

tern_status tern_http_parse_create(struct tern_http_parse **out)
{
    struct tern_http_parse *parse = tern_alloc_zero("http parser", 1, sizeof *parse);
    *out = parse;
    return parse != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "no memory for an HTTP parser");
}

void tern_http_parse_destroy(struct tern_http_parse *parse)
{
    tern_free(parse);
}

/* Trailers are checked as headers are, and dropped. */
static enum tern_http_parse_result drop_trailer(struct tern_http_parse *parse,
                                                const char *bytes,
                                                size_t count,
                                                size_t *used_out)
{
    static const struct tern_http_head_limits limits = {
        .line_max = TRAILER_BYTES_MAX, .bytes_max = TRAILER_BYTES_MAX, .headers_max = TRAILERS_MAX};
    switch (tern_http_head_feed(&parse->trailer, &limits, bytes, count, used_out)) {
    case TERN_HTTP_HEAD_BAD:
        refuse(parse, parse->trailer.status, parse->trailer.reason);
        return TERN_HTTP_PARSE_BAD;
    case TERN_HTTP_HEAD_MORE:
        return TERN_HTTP_PARSE_MORE;
    default:
        return TERN_HTTP_PARSE_WHOLE;
    }
}

/* Through llhttp; what it refuses by itself is a 400, but for methods that it does not know. */
static enum tern_http_parse_result execute(struct tern_http_parse *parse,
                                           const char *bytes,
                                           size_t count,
                                           size_t *used_out)
{
    llhttp_errno_t error = llhttp_execute(&parse->llhttp, bytes, count);
    *used_out = count;
    if (error == HPE_PAUSED && parse->is_whole) {
        *used_out = (size_t)(llhttp_get_error_pos(&parse->llhttp) - bytes);
        return TERN_HTTP_PARSE_WHOLE;
    }
    if (error == HPE_PAUSED && parse->in_trailer) {
        size_t body = (size_t)(llhttp_get_error_pos(&parse->llhttp) - bytes);
        tern_http_head_init_fields(&parse->trailer);
        enum tern_http_parse_result result =
            drop_trailer(parse, bytes + body, count - body, used_out);
        *used_out += body;
        return result;
    }
    if (error == HPE_OK) {
        return TERN_HTTP_PARSE_MORE;
    }
    if (parse->status == 0 && error == HPE_INVALID_METHOD) {
        refuse(parse, 501, "an unknown method");
    } else if (parse->status == 0) {
        refuse(parse, 400, "malformed HTTP");
    }
    return TERN_HTTP_PARSE_BAD;
}

enum tern_http_parse_result tern_http_parse_head(struct tern_http_parse *parse,
                                                 struct tern_http_message *message,
                                                 const char *bytes,
                                                 size_t count,
                                                 int headers,
                                                 size_t body_max)
{
    *parse = (struct tern_http_parse){.message = message, .body_max = body_max, .in_head = true};
    llhttp_init(&parse->llhttp, HTTP_REQUEST, &settings);
    parse->llhttp.data = parse;
    size_t used;
    enum tern_http_parse_result result = execute(parse, bytes, count, &used);
    if (result != TERN_HTTP_PARSE_BAD &&
        (parse->in_head || used != count || message->field_count != headers)) {
        refuse(parse, 400, "malformed headers"); /* two readings of one head */
        return TERN_HTTP_PARSE_BAD;
    }
    return result;
}

enum tern_http_parse_result tern_http_parse_body(struct tern_http_parse *parse,
                                                 const char *bytes,
                                                 size_t count,
                                                 size_t *used_out)
{
    enum tern_http_parse_result result = parse->in_trailer
                                             ? drop_trailer(parse, bytes, count, used_out)
                                             : execute(parse, bytes, count, used_out);
    parse->raw_bytes += *used_out;
    if (result != TERN_HTTP_PARSE_BAD &&
        parse->raw_bytes > RAW_TIMES_MAX * parse->message->body.length + RAW_EXTRA_MAX) {
        refuse(parse, 400, "a chunked body that is mostly not body");
        return TERN_HTTP_PARSE_BAD;
    }
    return result;
}

int tern_http_parse_status(const struct tern_http_parse *parse)
{
    return parse->status;
}

const char *tern_http_parse_reason(const struct tern_http_parse *parse)
{
    return parse->reason;
}
