/* source.c - pread with and without the page cache behind one staging buffer. */
#include "io/source.h"

#include "io/file.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    STAGE_BYTES = 4 << 20,
    STAGE_ALIGN = 2 << 20,        /* a huge page, and more than any device asks for */
    DIRECT_ALIGN = 4096,          /* of offsets and lengths */
    DIRECT_BYTES_MIN = 256 << 10, /* below, the page cache and its read-ahead win */
    DIRECT_FILE_MIN = 8 << 20,
};

struct tern_source {
    char path[TERN_PATH_BYTES];
    int fd;        /* through the page cache */
    int fd_direct; /* -1: not allowed here */
    int64_t bytes;
    void *block; /* owns stage; made at the first need */
    uint8_t *stage;
};

tern_status tern_source_open(const char *path, struct tern_source **out)
{
    struct tern_source *source = tern_alloc_zero("source", 1, sizeof *source);
    if (source == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to open '%s'", path);
    }
    source->fd_direct = -1;
    tern_status status = tern_path_join(source->path, "", path);
    if (status != TERN_OK) {
        tern_free(source);
        return status;
    }
    source->fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (source->fd < 0 || fstat(source->fd, &info) != 0) {
        int error = errno;
        tern_source_close(source);
        return tern_fail_errno(TERN_ERR_IO, error, "cannot open '%s'", path);
    }
    if (!S_ISREG(info.st_mode)) {
        tern_source_close(source);
        return tern_fail(TERN_ERR_INPUT, "cannot read '%s': it is not a regular file", path);
    }
    source->bytes = (int64_t)info.st_size;
    if (source->bytes >= DIRECT_FILE_MIN) {
        source->fd_direct = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    }
    *out = source;
    return TERN_OK;
}

void tern_source_close(struct tern_source *source)
{
    if (source == NULL) {
        return;
    }
    if (source->fd >= 0) {
        close(source->fd);
    }
    if (source->fd_direct >= 0) {
        close(source->fd_direct);
    }
    tern_free(source->block);
    tern_free(source);
}

int64_t tern_source_bytes(const struct tern_source *source)
{
    return source->bytes;
}

static tern_status need_stage(struct tern_source *source)
{
    if (source->stage != NULL) {
        return TERN_OK;
    }
    source->block = tern_alloc("source", STAGE_BYTES + STAGE_ALIGN);
    if (source->block == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to read '%s'", source->path);
    }
    uintptr_t address =
        ((uintptr_t)source->block + STAGE_ALIGN - 1) & ~(uintptr_t)(STAGE_ALIGN - 1);
    source->stage = (uint8_t *)address;
    (void)madvise(source->stage, STAGE_BYTES, MADV_HUGEPAGE);
    return TERN_OK;
}

static tern_status read_plain(struct tern_source *source, int64_t offset, void *dst, size_t bytes)
{
    uint8_t *to = dst;
    while (bytes > 0) {
        ssize_t got = pread(source->fd, to, bytes, offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return tern_fail_errno(TERN_ERR_IO, errno, "cannot read '%s' at byte %lld",
                                   source->path, (long long)offset);
        }
        if (got == 0) {
            return tern_fail(TERN_ERR_CORRUPT, "'%s' ends at byte %lld, expected %zu bytes more",
                             source->path, (long long)offset, bytes);
        }
        to += got;
        offset += got;
        bytes -= (size_t)got;
    }
    return TERN_OK;
}

/* Up to STAGE_BYTES from an aligned offset into the stage; *got_out < wanted only at the end of the
 * file or when the file system refuses (then the caller reads plainly). */
static void read_direct(struct tern_source *source, int64_t offset, size_t *got_out)
{
    size_t got = 0;
    while (got < STAGE_BYTES) {
        ssize_t n =
            pread(source->fd_direct, source->stage + got, STAGE_BYTES - got, offset + (int64_t)got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            close(source->fd_direct);
            source->fd_direct = -1;
            break;
        }
        got += (size_t)n;
        if (n == 0 || n % DIRECT_ALIGN != 0) {
            break;
        }
    }
    *got_out = got;
}

tern_status tern_source_borrow(struct tern_source *source,
                               int64_t offset,
                               const void **data_out,
                               size_t *bytes_out)
{
    TERN_RETURN_IF_ERR(need_stage(source));
    int64_t left = source->bytes - offset;
    if (left <= 0) {
        return tern_fail(TERN_ERR_CORRUPT, "'%s' ends at byte %lld, expected more", source->path,
                         (long long)source->bytes);
    }
    int64_t base = offset & ~(int64_t)(DIRECT_ALIGN - 1);
    size_t skip = (size_t)(offset - base);
    size_t got = 0;
    if (source->fd_direct >= 0) {
        read_direct(source, base, &got);
    }
    if (got > skip) {
        *data_out = source->stage + skip;
        *bytes_out = got - skip;
    } else {
        *bytes_out = left < STAGE_BYTES ? (size_t)left : STAGE_BYTES;
        *data_out = source->stage;
        TERN_RETURN_IF_ERR(read_plain(source, offset, source->stage, *bytes_out));
    }
    if ((int64_t)*bytes_out > left) {
        *bytes_out = (size_t)left;
    }
    return TERN_OK;
}

tern_status tern_source_read(struct tern_source *source, int64_t offset, void *dst, size_t bytes)
{
    uint8_t *to = dst;
    if (source->fd_direct < 0 || bytes < DIRECT_BYTES_MIN) {
        return read_plain(source, offset, dst, bytes);
    }
    while (bytes > 0) {
        const void *data;
        size_t got;
        TERN_RETURN_IF_ERR(tern_source_borrow(source, offset, &data, &got));
        got = got < bytes ? got : bytes;
        memcpy(to, data, got);
        to += got;
        offset += (int64_t)got;
        bytes -= got;
    }
    return TERN_OK;
}
