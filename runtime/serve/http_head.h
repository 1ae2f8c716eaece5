/* http_head.h - the lexical check of a request's head, one byte at a time, before any parser sees it.
 *
 * What may be read in two ways is refused here, whatever the parser behind it would take: a bare CR or LF, a
 * folded line, a control byte, blanks around a header's name, more or fewer than two spaces in the request line. */
#ifndef TERN_RUNTIME_SERVE_HTTP_HEAD_H
#define TERN_RUNTIME_SERVE_HTTP_HEAD_H

#include <stddef.h>

struct tern_http_head_limits {
    size_t line_max;  /* bytes of the request line */
    size_t bytes_max; /* bytes of the whole head */
    int headers_max;
};

enum tern_http_head_result {
    TERN_HTTP_HEAD_MORE,
    TERN_HTTP_HEAD_WHOLE,
    TERN_HTTP_HEAD_BAD
};

/* Begins as all zeros. */
struct tern_http_head {
    int state;
    size_t bytes;       /* seen so far; blank lines in front of the request line included */
    int blank_lines;    /* of those */
    int version_bytes;  /* of "HTTP/1.1" that have been seen */
    int minor;          /* 0 or 1 */
    int headers;        /* fields so far */
    int status;         /* BAD: the answer's */
    const char *reason; /* BAD: a sentence; static */
};

/* Begins behind the request line: for a section of fields alone, such as trailers. */
void tern_http_head_init_fields(struct tern_http_head *head);
/* Takes bytes up to the end of the head; *used_out: how many (WHOLE: the empty line is the last of them). */
enum tern_http_head_result tern_http_head_feed(struct tern_http_head *head,
                                               const struct tern_http_head_limits *limits,
                                               const char *bytes,
                                               size_t count,
                                               size_t *used_out);

#endif
