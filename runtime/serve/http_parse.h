/* http_parse.h - one request from its bytes: fields, framing, body. The one door to llhttp.
 *
 * The head goes in whole, after tern_http_head_feed has taken it; the body in any pieces. */
#ifndef TERN_RUNTIME_SERVE_HTTP_PARSE_H
#define TERN_RUNTIME_SERVE_HTTP_PARSE_H

#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_http_field {
    uint32_t name, value; /* offsets into text, both NUL-terminated */
};

/* What was parsed. Begins as all zeros; fini. */
struct tern_http_message {
    struct tern_text text; /* target and fields, each NUL-terminated; the target is first */
    struct tern_http_field *fields;
    int field_count, field_capacity;
    const char *method; /* static; "GET" */
    struct tern_text body;
    bool keep_alive;
    bool is_1_0; /* no chunks in the answer */
    bool expects_continue;
    bool has_body; /* one was announced, and be it empty chunks */
};

void tern_http_message_fini(struct tern_http_message *message);
/* Value of the first field of that name, in any case; NULL: none. *count_out, may be NULL: how many there are. */
const char *tern_http_message_field(const struct tern_http_message *message,
                                    const char *name,
                                    int *count_out);

enum tern_http_parse_result {
    TERN_HTTP_PARSE_MORE,  /* a body follows */
    TERN_HTTP_PARSE_WHOLE, /* the message is whole */
    TERN_HTTP_PARSE_BAD,   /* see status and reason */
};

struct tern_http_parse;

TERN_MUST_CHECK tern_status tern_http_parse_create(struct tern_http_parse **out);
void tern_http_parse_destroy(struct tern_http_parse *parse);
/* A new request, into an empty message (borrowed until the parse ends). The head of exactly `count` bytes with `headers` fields;
 * bodies above body_max are a 413, by their length or as they come. */
enum tern_http_parse_result tern_http_parse_head(struct tern_http_parse *parse,
                                                 struct tern_http_message *message,
                                                 const char *bytes,
                                                 size_t count,
                                                 int headers,
                                                 size_t body_max);
/* *used_out: how many of the bytes belong to this message (WHOLE). */
enum tern_http_parse_result tern_http_parse_body(struct tern_http_parse *parse,
                                                 const char *bytes,
                                                 size_t count,
                                                 size_t *used_out);
int tern_http_parse_status(const struct tern_http_parse *parse);
const char *tern_http_parse_reason(const struct tern_http_parse *parse);

#endif
