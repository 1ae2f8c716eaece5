/* http_fuzz.c - any bytes as what a client sends: the head's check, the parser and the routing make the same of them in one piece
 * as byte by byte, within their limits, and leak nothing. */
#include "runtime/base/mem.h"
#include "runtime/serve/http_head.h"
#include "runtime/serve/http_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum {
    BODY_MAX = 1 << 16
};

static const struct tern_http_head_limits limits = {.line_max = 1024,
                                                    .bytes_max = 2048,
                                                    .headers_max = 20};
static const struct tern_http_route routes[] = {
    {.path = "/light", .methods = TERN_HTTP_GET},
    {.path = "/echo", .methods = TERN_HTTP_POST},
    {.path = "/rest/*", .methods = TERN_HTTP_GET | TERN_HTTP_DELETE},
};

struct reader {
    struct tern_http_head head;
    struct tern_http_parse *parse;
    struct tern_http_request request;
    struct tern_text held; /* of a head that is not whole */
    struct tern_text said; /* what was made of the bytes */
    bool in_body, is_over;
};

static void say(struct reader *reader, const char *what, int number)
{
    if (tern_text_printf(&reader->said, "%s %d\n", what, number) != TERN_OK) {
        abort();
    }
}

static void must(bool condition)
{
    if (!condition) {
        abort();
    }
}

static void end(struct reader *reader, const char *what, int number)
{
    say(reader, what, number);
    reader->is_over = true;
}

/* A message is whole. */
static void finish(struct reader *reader)
{
    const struct tern_http_message *message = &reader->request.message;
    must(message->body.length <= BODY_MAX);
    must(strlen(reader->request.path) + strlen(reader->request.query) <= limits.line_max);
    for (int i = 0; i < message->field_count; i++) {
        const char *value = message->text.data + message->fields[i].value;
        must(strpbrk(value, "\r\n") == NULL && message->text.data[message->fields[i].name] != '\0');
        say(reader, message->text.data + message->fields[i].name, (int)strlen(value));
    }
    say(reader, reader->request.path, (int)strlen(reader->request.query));
    if (message->body.length > 0) {
        say(reader, message->body.data, (int)message->body.length);
    }
    char allow[TERN_HTTP_ALLOW_BYTES];
    say(reader, message->method,
        tern_http_request_route(&reader->request, routes, sizeof routes / sizeof routes[0], allow));
    reader->is_over = !message->keep_alive;
    tern_http_request_fini(&reader->request);
    reader->request = (struct tern_http_request){0};
    reader->in_body = false;
}

static void judge(struct reader *reader, enum tern_http_parse_result result)
{
    if (result == TERN_HTTP_PARSE_BAD) {
        must(tern_http_parse_status(reader->parse) >= 400 &&
             tern_http_parse_reason(reader->parse) != NULL);
        end(reader, "parse", tern_http_parse_status(reader->parse));
    } else if (!reader->in_body && !tern_http_request_target(&reader->request)) {
        end(reader, "target", 400);
    } else if (result == TERN_HTTP_PARSE_WHOLE) {
        finish(reader);
    } else {
        reader->in_body = true;
    }
}

static size_t read_head(struct reader *reader, const char *bytes, size_t count)
{
    size_t used;
    enum tern_http_head_result result =
        tern_http_head_feed(&reader->head, &limits, bytes, count, &used);
    must(used <= count);
    if (result == TERN_HTTP_HEAD_BAD) {
        end(reader, "head", reader->head.status);
        return count;
    }
    if (tern_text_append(&reader->held, bytes, used) != TERN_OK) {
        abort();
    }
    if (result == TERN_HTTP_HEAD_WHOLE) {
        must(reader->held.length <= limits.bytes_max);
        judge(reader,
              tern_http_parse_head(reader->parse, &reader->request.message, reader->held.data,
                                   reader->held.length, reader->head.headers, BODY_MAX));
        reader->head = (struct tern_http_head){0};
        reader->held.length = 0;
    }
    return used;
}

/* All of the bytes, in pieces; what was made of them. */
static struct tern_text read_all(const char *bytes, size_t count, size_t piece)
{
    struct reader reader = {0};
    if (tern_http_parse_create(&reader.parse) != TERN_OK) {
        abort();
    }
    for (size_t at = 0; at < count;) {
        size_t size = count - at < piece ? count - at : piece;
        for (size_t end_of_piece = at + size; at < end_of_piece && !reader.is_over;) {
            size_t used = end_of_piece - at;
            if (reader.in_body) {
                judge(&reader, tern_http_parse_body(reader.parse, bytes + at, used, &used));
            } else {
                used = read_head(&reader, bytes + at, used);
            }
            must(used > 0);
            at += used;
        }
        if (reader.is_over) {
            break;
        }
    }
    tern_http_request_fini(&reader.request);
    tern_http_parse_destroy(reader.parse);
    tern_text_fini(&reader.held);
    return reader.said;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    int64_t before = tern_mem_stats().live_blocks;
    if (bytes == 0 || bytes > BODY_MAX / 2) {
        return 0;
    }
    struct tern_text whole = read_all((const char *)data, bytes, bytes);
    struct tern_text single = read_all((const char *)data, bytes, 1);
    struct tern_text some = read_all((const char *)data, bytes, 1 + bytes / 3);
    must(whole.length == single.length && whole.length == some.length);
    must(whole.length == 0 || (memcmp(whole.data, single.data, whole.length) == 0 &&
                               memcmp(whole.data, some.data, whole.length) == 0));
    tern_text_fini(&whole);
    tern_text_fini(&single);
    tern_text_fini(&some);
    must(tern_mem_stats().live_blocks == before);
    return 0;
}
