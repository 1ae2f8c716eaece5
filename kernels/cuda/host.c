/* host.c - the plugin's own tern_fail, tern_alloc and tern_log: they call the program's. Hidden in the plugin, so that
 * the code of kernels/ and comm/ reads the same on both sides. */
#include "kernels/cuda/host.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tern_cuda_host *g_host;

void tern_cuda_attach(const struct tern_cuda_host *host)
{
    g_host = host;
}

static void format(char sentence[TERN_DETAIL_BYTES], const char *text, va_list args)
{
    vsnprintf(sentence, TERN_DETAIL_BYTES, text, args);
}

tern_status tern_fail(tern_status status, const char *text, ...)
{
    char sentence[TERN_DETAIL_BYTES];
    va_list args;
    va_start(args, text);
    format(sentence, text, args);
    va_end(args);
    g_host->fail(status, sentence);
    return status;
}

tern_status tern_fail_errno(tern_status status, int error, const char *text, ...)
{
    char sentence[TERN_DETAIL_BYTES];
    va_list args;
    va_start(args, text);
    format(sentence, text, args);
    va_end(args);
    return tern_fail(status, "%s: %s", sentence, strerror(error));
}

tern_status tern_fail_prefix(tern_status status, const char *text, ...)
{
    char sentence[TERN_DETAIL_BYTES];
    char rest[TERN_DETAIL_BYTES];
    va_list args;
    va_start(args, text);
    format(sentence, text, args);
    va_end(args);
    snprintf(rest, sizeof rest, "%s",
             g_host->detail()); /* the program's: the next failure replaces it */
    return tern_fail(status, "%s: %s", sentence, rest);
}

const char *tern_detail(void)
{
    return g_host->detail();
}

void tern_detail_set(const char *sentence)
{
    g_host->fail(TERN_OK, sentence);
}

void tern_log(enum tern_log_level level, const char *text, ...)
{
    char sentence[TERN_DETAIL_BYTES];
    va_list args;
    va_start(args, text);
    format(sentence, text, args);
    va_end(args);
    g_host->log(level, sentence);
}

void *tern_alloc(const char *tag, size_t bytes)
{
    return g_host->alloc(tag, bytes);
}

void *tern_alloc_zero(const char *tag, size_t count, size_t bytes)
{
    size_t wanted;
    if (__builtin_mul_overflow(count, bytes, &wanted)) {
        return NULL;
    }
    void *block = g_host->alloc(tag, wanted);
    if (block != NULL) {
        memset(block, 0, wanted);
    }
    return block;
}

void tern_free(void *block)
{
    g_host->free(block);
}

void tern_check_failed(const char *file, int line, const char *condition)
{
    tern_log(TERN_LOG_ERROR, "%s:%d: '%s' does not hold: this is a bug of tern", file, line,
             condition);
    abort();
}
