/* process.h - runs the real binary as a child and keeps what it says. */
#ifndef TERN_TESTS_LAUNCH_PROCESS_H
#define TERN_TESTS_LAUNCH_PROCESS_H

#include <stddef.h>

enum {
    OUTPUT_BYTES = 1 << 16,
    ARGS_MAX = 80
};

struct outcome {
    int exit_code; /* 1000 + signal when a signal ended it */
    char out[OUTPUT_BYTES];
    char err[OUTPUT_BYTES];
};

/* args without the program, NULL-terminated; env "NAME=VALUE" or NULL; the child runs in
 * `folder` (NULL: here) and is ended after 60 s. Every other TERN_ variable is unset. */
void run_program(const char *program,
                 const char *const *args,
                 const char *env,
                 const char *folder,
                 struct outcome *out);
/* The last line of what is in text, without its newline; a pointer into a static buffer. */
const char *last_line(const char *text);

#endif
