/* check.h - assertions that stay on in release: a failed one is a bug of ours, and ends the process. */
#ifndef TERN_RUNTIME_BASE_CHECK_H
#define TERN_RUNTIME_BASE_CHECK_H

/* Prints the place and the condition, then abort(): under a launcher that takes the whole group down. */
_Noreturn void tern_check_failed(const char *file, int line, const char *condition);

#define TERN_CHECK(condition) \
    do { \
        if (__builtin_expect(!(condition), 0)) { \
            tern_check_failed(__FILE__, __LINE__, #condition); \
        } \
    } while (0)

#endif
