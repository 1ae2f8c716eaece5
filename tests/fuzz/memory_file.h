/* memory_file.h - a fuzzer's input as a file with a path, without a disk. */
#ifndef TERN_TESTS_FUZZ_MEMORY_FILE_H
#define TERN_TESTS_FUZZ_MEMORY_FILE_H

#include "runtime/base/mem.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MEMORY_BYTES = 64 << 20 /* that reading a file may take beyond its size */
};

/* The path of a file that has these bytes, until the next call. */
static inline const char *memory_file(const uint8_t *data, size_t bytes)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, bytes, 0) != (ssize_t)bytes) {
        abort();
    }
    return path;
}

/* A refusal is of the input's kind and says something. */
static inline void check_refusal(tern_status status)
{
    bool is_refusal =
        status == TERN_ERR_INPUT || status == TERN_ERR_CONFIG || status == TERN_ERR_UNSUPPORTED;
    if (status != TERN_OK && (!is_refusal || tern_detail()[0] == '\0')) {
        fprintf(stderr, "%s: %s\n", tern_status_name(status), tern_detail());
        abort();
    }
}

/* Nothing is left, and nothing took more than the file and a fixed amount. */
static inline void check_memory(size_t bytes)
{
    static size_t largest;
    largest = bytes > largest ? bytes : largest;
    struct tern_mem_stats stats = tern_mem_stats();
    if (stats.live_blocks != 0 || stats.peak_bytes > (int64_t)largest + MEMORY_BYTES) {
        fprintf(stderr, "%lld live blocks, at most %lld bytes\n", (long long)stats.live_blocks,
                (long long)stats.peak_bytes);
        abort();
    }
}

#endif
