/* pieces.c - pwrite at offsets, then fsync and a rename that may refuse to replace. */
#include "io/pieces.h"

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MARK ".tmp-"

struct tern_pieces {
    int fd;
    char path[TERN_PATH_BYTES];
    char temporary[TERN_PATH_BYTES];
};

static tern_status make_parent(const char *path)
{
    char folder[TERN_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) {
        return TERN_OK;
    }
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return tern_file_make_folder(folder);
}

static tern_status open_temporary(struct tern_pieces *pieces, int64_t bytes)
{
    int error = tern_file_fault(TERN_FAULT_FILE_OPEN);
    if (error == 0) {
        pieces->fd = open(pieces->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        error = pieces->fd < 0 ? errno : 0;
    }
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot create '%s'", pieces->temporary);
    }
    if (bytes > 0 && fallocate(pieces->fd, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 && errno == ENOSPC) {
        unlink(pieces->temporary);
        return tern_fail_errno(TERN_ERR_IO, ENOSPC, "cannot take %lld bytes for '%s'",
                               (long long)bytes, pieces->temporary);
    }
    return TERN_OK;
}

tern_status tern_pieces_create(const char *path, int64_t bytes, struct tern_pieces **out)
{
    TERN_RETURN_IF_ERR(make_parent(path));
    struct tern_pieces *pieces = tern_alloc_zero("pieces", 1, sizeof *pieces);
    if (pieces == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory to write '%s'", path);
    }
    pieces->fd = -1;
    tern_status status = TERN_OK;
    if (snprintf(pieces->path, sizeof pieces->path, "%s", path) >= (int)sizeof pieces->path ||
        snprintf(pieces->temporary, sizeof pieces->temporary, "%s" MARK "%d-%llx", path, getpid(),
                 (unsigned long long)tern_clock_ns()) >= (int)sizeof pieces->temporary) {
        status = tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is too long", path);
    }
    if (status == TERN_OK) {
        status = open_temporary(pieces, bytes);
    }
    if (status != TERN_OK) {
        if (pieces->fd >= 0) {
            close(pieces->fd);
        }
        tern_free(pieces);
        return status;
    }
    *out = pieces;
    return TERN_OK;
}

tern_status tern_pieces_write(struct tern_pieces *pieces,
                              int64_t offset,
                              const void *data,
                              size_t bytes)
{
    const char *from = data;
    int error = tern_file_fault(TERN_FAULT_FILE_WRITE);
    while (bytes > 0 && error == 0) {
        ssize_t count = pwrite(pieces->fd, from, bytes, offset);
        if (count < 0 && errno != EINTR) {
            error = errno;
        } else if (count > 0) {
            from += count;
            offset += count;
            bytes -= (size_t)count;
        }
    }
    return error == 0 ? TERN_OK
                      : tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", pieces->temporary);
}

/* Rename that answers TERN_ERR_BUSY instead of replacing. */
static tern_status rename_new(const char *from, const char *to)
{
    int error = tern_file_fault(TERN_FAULT_FILE_RENAME);
    if (error == 0 && link(from, to) != 0) { /* works on every file system that has hard links */
        error = errno;
    }
    if ((error == EPERM || error == ENOTSUP) &&
        renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
        return TERN_OK;
    }
    if (error == EEXIST) {
        return tern_fail(TERN_ERR_BUSY, "'%s' is there already", to);
    }
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot put '%s' in place", to);
    }
    unlink(from);
    return TERN_OK;
}

static tern_status put_in_place(struct tern_pieces *pieces, bool is_new)
{
    char folder[TERN_PATH_BYTES];
    if (!is_new) {
        return tern_file_rename(pieces->temporary, pieces->path);
    }
    TERN_RETURN_IF_ERR(rename_new(pieces->temporary, pieces->path));
    const char *slash = strrchr(pieces->path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - pieces->path) : 1,
             slash != NULL ? pieces->path : ".");
    return tern_file_sync_folder(folder[0] != '\0' ? folder : "/");
}

tern_status tern_pieces_finish(struct tern_pieces *pieces, bool is_new)
{
    tern_status status = TERN_OK;
    int error = tern_file_fault(TERN_FAULT_FILE_FSYNC);
    if (error == 0 && fsync(pieces->fd) != 0) {
        error = errno;
    }
    if (close(pieces->fd) != 0 && error == 0) {
        error = errno;
    }
    pieces->fd = -1;
    status = error != 0 ? tern_fail_errno(TERN_ERR_IO, error, "cannot write '%s'", pieces->path)
                        : put_in_place(pieces, is_new);
    if (status != TERN_OK) {
        unlink(pieces->temporary);
    }
    tern_free(pieces);
    return status;
}

void tern_pieces_abandon(struct tern_pieces *pieces)
{
    if (pieces == NULL) {
        return;
    }
    close(pieces->fd);
    unlink(pieces->temporary);
    tern_free(pieces);
}

bool tern_pieces_is_temporary(const char *name)
{
    return strstr(name, MARK) != NULL;
}
