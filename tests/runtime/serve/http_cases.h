/* http_cases.h - byte strings and what the server must make of each: the routes are those of http_routes.h. */
#ifndef TERN_TESTS_RUNTIME_SERVE_HTTP_CASES_H
#define TERN_TESTS_RUNTIME_SERVE_HTTP_CASES_H

#include <stdbool.h>
#include <stddef.h>

enum {
    HTTP_CASE_ANSWERS_MAX = 6
};

struct http_case {
    const char *name;
    const char *bytes;
    size_t count;
    /* Status of every answer, in order, up to a 0. None at all: the server waits for more. */
    int answers[HTTP_CASE_ANSWERS_MAX];
    bool closes; /* after the last answer */
};

const struct http_case *http_cases(size_t *count_out);

#endif
