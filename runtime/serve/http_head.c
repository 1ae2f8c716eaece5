/* http_head.c - the lexical check of a request's head. */
#include "runtime/serve/http_head.h"

#include <stdbool.h>

enum {
    BEGIN, /* nothing of the request line yet */
    BEGIN_LF,
    METHOD,
    TARGET_BEGIN,
    TARGET,
    VERSION,
    LINE_LF,
    FIELD_BEGIN,
    NAME,
    VALUE,
    END_LF,
};

enum {
    BLANK_LINES_MAX =
        2 /* in front of a request line: RFC 9112, 2.2 wants one or more to be skipped */
};

/* tchar of RFC 9110, 5.6.2. */
static bool is_token(unsigned char byte)
{
    static const unsigned char is_set[256] = {
        ['!'] = 1, ['#'] = 1, ['$'] = 1, ['%'] = 1, ['&'] = 1, ['\''] = 1, ['*'] = 1, ['+'] = 1,
        ['-'] = 1, ['.'] = 1, ['^'] = 1, ['_'] = 1, ['`'] = 1, ['|'] = 1,  ['~'] = 1,
    };
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= 'a' && byte <= 'z') || is_set[byte];
}

void tern_http_head_init_fields(struct tern_http_head *head)
{
    *head = (struct tern_http_head){.state = FIELD_BEGIN};
}

static int bad(struct tern_http_head *head, int status, const char *reason)
{
    head->status = status;
    head->reason = reason;
    return -1;
}

/* The next state after a byte of the request line, or -1. */
static int in_request_line(struct tern_http_head *head, unsigned char byte)
{
    static const char version[] = "HTTP/1.";
    switch (head->state) {
    case BEGIN:
        if (byte == '\r' && head->blank_lines < BLANK_LINES_MAX) {
            head->blank_lines++;
            return BEGIN_LF;
        }
        return is_token(byte) ? METHOD : bad(head, 400, "the request line begins with no method");
    case BEGIN_LF:
        return byte == '\n' ? BEGIN : bad(head, 400, "a CR without its LF");
    case METHOD:
        if (byte == ' ') {
            return TARGET_BEGIN;
        }
        return is_token(byte) ? METHOD : bad(head, 400, "a byte in the method that is no letter");
    case TARGET_BEGIN:
    case TARGET:
        if (byte == ' ' && head->state == TARGET) {
            return VERSION;
        }
        return byte > 0x20 && byte < 0x7f && byte != '#'
                   ? TARGET
                   : bad(head, 400,
                         "a byte in the request's target that must be escaped, or no version");
    default: /* VERSION */
        break;
    }
    int at = head->version_bytes++;
    if (at < 5) {
        return byte == (unsigned char)version[at] ? VERSION
                                                  : bad(head, 400, "a malformed HTTP version");
    }
    if (at < 8) {
        bool fits = at == 6 ? byte == '.' : byte >= '0' && byte <= '9';
        if (!fits) {
            return bad(head, 400, "a malformed HTTP version");
        }
        if ((at == 5 && byte != '1') || (at == 7 && byte > '1')) {
            return bad(head, 505, "this server speaks HTTP/1.1 and HTTP/1.0");
        }
        head->minor = byte - '0';
        return VERSION;
    }
    return byte == '\r' ? LINE_LF : bad(head, 400, "more than a method, a target and a version");
}

/* The next state after a byte of the fields, or -1. */
static int in_fields(struct tern_http_head *head,
                     const struct tern_http_head_limits *limits,
                     unsigned char byte)
{
    switch (head->state) {
    case LINE_LF:
        return byte == '\n' ? FIELD_BEGIN : bad(head, 400, "a CR without its LF");
    case FIELD_BEGIN:
        if (byte == '\r') {
            return END_LF;
        }
        if (!is_token(byte)) {
            return bad(head, 400,
                       "a header that begins with a blank or another byte that no name has");
        }
        if (++head->headers > limits->headers_max) {
            return bad(head, 431, "too many headers");
        }
        return NAME;
    case NAME:
        if (byte == ':') {
            return VALUE;
        }
        return is_token(byte) ? NAME : bad(head, 400, "a byte in a header's name that no name has");
    case VALUE:
        if (byte == '\r') {
            return LINE_LF;
        }
        return (byte >= 0x20 && byte != 0x7f) || byte == '\t'
                   ? VALUE
                   : bad(head, 400, "a control byte in a header, or an LF without its CR");
    default: /* END_LF: the caller sees that this was the last byte */
        return byte == '\n' ? END_LF : bad(head, 400, "a CR without its LF");
    }
}

enum tern_http_head_result tern_http_head_feed(struct tern_http_head *head,
                                               const struct tern_http_head_limits *limits,
                                               const char *bytes,
                                               size_t count,
                                               size_t *used_out)
{
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        int state = head->state;
        int next = state <= VERSION ? in_request_line(head, byte) : in_fields(head, limits, byte);
        head->bytes++;
        if (next >= 0 && next <= VERSION && head->bytes > limits->line_max) {
            next = bad(head, 414, "the request line is too long");
        } else if (next >= 0 && head->bytes > limits->bytes_max) {
            next = bad(head, 431, "the headers are too long");
        }
        if (next < 0) {
            *used_out = i + 1;
            return TERN_HTTP_HEAD_BAD;
        }
        head->state = next;
        if (state == END_LF) {
            *used_out = i + 1;
            return TERN_HTTP_HEAD_WHOLE;
        }
    }
    *used_out = count;
    return TERN_HTTP_HEAD_MORE;
}
