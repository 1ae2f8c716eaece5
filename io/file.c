/* file.c - whole-file reads and writes, durable replacement, locks and listings over the POSIX file
 * API. */
#include "io/file.h"

#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_START_BYTES = 64 << 10,
    HOLDER_BYTES = 160
};

/* ---- names ---- */

tern_status tern_path_join(char out[TERN_PATH_BYTES], const char *folder, const char *name)
{
    size_t folder_bytes = strlen(folder);
    while (folder_bytes > 1 && folder[folder_bytes - 1] == '/') {
        folder_bytes--;
    }
    const char *slash = folder_bytes == 0 || folder[folder_bytes - 1] == '/' ? "" : "/";
    char joined[TERN_PATH_BYTES]; /* out may be folder */
    int length =
        snprintf(joined, sizeof joined, "%.*s%s%s", (int)folder_bytes, folder, slash, name);
    if (length < 0 || length >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...%s%.64s' is longer than %d bytes",
                         folder, slash, name, TERN_PATH_BYTES - 1);
    }
    memcpy(out, joined, (size_t)length + 1);
    return TERN_OK;
}

tern_status tern_path_absolute(char out[TERN_PATH_BYTES], const char *path)
{
    char *real = realpath(path, NULL);
    if (real == NULL) {
        return tern_fail_errno(TERN_ERR_IO, errno, "%s", path);
    }
    int length = snprintf(out, TERN_PATH_BYTES, "%s", real);
    free(real);
    return length < TERN_PATH_BYTES
               ? TERN_OK
               : tern_fail(TERN_ERR_ARGUMENT, "%s: its path is longer than %d bytes", path,
                           TERN_PATH_BYTES - 1);
}

bool tern_file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool tern_file_is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

tern_status tern_file_size(const char *path, int64_t *bytes_out)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot read the size of '%s'", path);
    }
    *bytes_out = (int64_t)info.st_size;
    return TERN_OK;
}

/* The folder that holds path: "." when it has no slash. */
static tern_status parent_of(const char *path, char out[TERN_PATH_BYTES])
{
    size_t length = strlen(path);
    if (length >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", path,
                         TERN_PATH_BYTES - 1);
    }
    const char *slash = strrchr(path, '/');
    if (slash == NULL) {
        strcpy(out, ".");
        return TERN_OK;
    }
    size_t keep = slash == path ? 1 : (size_t)(slash - path);
    memcpy(out, path, keep);
    out[keep] = '\0';
    return TERN_OK;
}

/* ---- faults ---- */

int tern_file_fault(enum tern_fault_point point)
{
    switch (tern_fault_pass(point)) {
    case TERN_FAULT_ENOSPC:
        return ENOSPC;
    case TERN_FAULT_EIO:
    case TERN_FAULT_SHORT:
        return EIO;
    default:
        return 0;
    }
}

/* write(2) behind the fault point; `short` writes half of what was asked. -1 and errno on failure.
 */
static ssize_t write_once(int fd, const void *data, size_t bytes, enum tern_fault_point point)
{
    switch (tern_fault_pass(point)) {
    case TERN_FAULT_ENOSPC:
        errno = ENOSPC;
        return -1;
    case TERN_FAULT_EIO:
        errno = EIO;
        return -1;
    case TERN_FAULT_SHORT:
        return write(fd, data, bytes > 1 ? bytes / 2 : bytes);
    default:
        return write(fd, data, bytes);
    }
}

/* Returns 0 or an errno. */
static int write_all(int fd, const void *data, size_t bytes, enum tern_fault_point point)
{
    const char *from = data;
    while (bytes > 0) {
        ssize_t done = write_once(fd, from, bytes, point);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return done < 0 ? errno : EIO;
        }
        from += done;
        bytes -= (size_t)done;
    }
    return 0;
}

static int sync_fd(int fd)
{
    int error = tern_file_fault(TERN_FAULT_FILE_FSYNC);
    if (error == 0 && fsync(fd) != 0) {
        error = errno;
    }
    return error;
}

/* ---- folders ---- */

tern_status tern_file_make_folder(const char *path)
{
    char part[TERN_PATH_BYTES];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof part) {
        return tern_fail(TERN_ERR_ARGUMENT,
                         "cannot make folder '%.64s': its path has %zu bytes, expected 1 to %d",
                         path, length, TERN_PATH_BYTES - 1);
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        char kept = part[i];
        part[i] = '\0';
        int error = mkdir(part, 0777) == 0 ? 0 : errno;
        if (error != 0 && !tern_file_is_folder(part)) {
            return error == EEXIST
                       ? tern_fail(TERN_ERR_IO,
                                   "cannot make folder '%s': '%s' exists and is not a folder", path,
                                   part)
                       : tern_fail_errno(TERN_ERR_IO, error, "cannot make folder '%s'", part);
        }
        part[i] = kept;
    }
    return TERN_OK;
}

tern_status tern_file_sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot open folder '%s'", path);
    }
    int error = sync_fd(fd);
    close(fd);
    /* A file system that cannot sync a folder says EINVAL: its folders are as durable as they get.
     */
    if (error != 0 && error != EINVAL) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot sync folder '%s'", path);
    }
    return TERN_OK;
}

/* ---- whole files ---- */

static tern_status read_fd(int fd,
                           const char *path,
                           int64_t max_bytes,
                           size_t expected,
                           struct tern_text *text)
{
    size_t capacity = expected > 0 ? expected + 1 : READ_START_BYTES;
    size_t length = 0;
    char *data = NULL;
    for (;;) {
        if (data == NULL || length + 1 >= capacity) {
            capacity = data == NULL ? capacity + 1 : capacity * 2;
            char *grown = tern_realloc("file", data, capacity);
            if (grown == NULL) {
                tern_free(data);
                return tern_fail(TERN_ERR_MEMORY, "cannot read '%s': no memory for %zu bytes", path,
                                 capacity);
            }
            data = grown;
        }
        ssize_t got = read(fd, data + length, capacity - length - 1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            int error = errno;
            tern_free(data);
            return tern_fail_errno(TERN_ERR_IO, error, "cannot read '%s'", path);
        }
        length += (size_t)got;
        if ((int64_t)length > max_bytes) {
            tern_free(data);
            return tern_fail(TERN_ERR_INPUT, "'%s' is larger than %lld bytes", path,
                             (long long)max_bytes);
        }
        if (got == 0) {
            break;
        }
    }
    data[length] = '\0';
    *text = (struct tern_text){data, length, capacity};
    return TERN_OK;
}

tern_status tern_file_read(const char *path, int64_t max_bytes, char **data_out, size_t *bytes_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot open '%s'", path);
    }
    struct stat info;
    tern_status status = TERN_OK;
    struct tern_text text = {NULL, 0, 0};
    if (fstat(fd, &info) != 0) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "cannot read '%s'", path);
    } else if (S_ISDIR(info.st_mode)) {
        status =
            tern_fail(TERN_ERR_INPUT, "cannot read '%s': it is a folder, expected a file", path);
    } else if (info.st_size > max_bytes) {
        status = tern_fail(TERN_ERR_INPUT, "'%s' has %lld bytes, expected at most %lld", path,
                           (long long)info.st_size, (long long)max_bytes);
    } else {
        status = read_fd(fd, path, max_bytes, (size_t)info.st_size, &text);
    }
    close(fd);
    if (status == TERN_OK) {
        *data_out = text.data;
        *bytes_out = text.length;
    }
    return status;
}

tern_status tern_file_replace(const char *path, const void *data, size_t bytes)
{
    char temporary[TERN_PATH_BYTES];
    if (snprintf(temporary, sizeof temporary, "%s.tmp", path) >= (int)sizeof temporary) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", path,
                         TERN_PATH_BYTES - 5);
    }
    int error = tern_file_fault(TERN_FAULT_FILE_OPEN);
    int fd = error == 0 ? open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, error != 0 ? error : errno, "cannot create '%s'",
                               temporary);
    }
    error = write_all(fd, data, bytes, TERN_FAULT_FILE_WRITE);
    if (error == 0) {
        error = sync_fd(fd);
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    if (error != 0) {
        unlink(temporary);
        return tern_fail_errno(TERN_ERR_IO, error, "cannot write %zu bytes to '%s'", bytes,
                               temporary);
    }
    tern_status status = tern_file_rename(temporary, path);
    if (status != TERN_OK) {
        unlink(temporary);
    }
    return status;
}

static tern_status append(const char *path,
                          const void *data,
                          size_t bytes,
                          enum tern_fault_point point,
                          bool is_whole)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot open '%s' for appending", path);
    }
    struct stat info;
    bool is_known = fstat(fd, &info) == 0;
    int error = write_all(fd, data, bytes, point);
    if (error != 0 && is_whole && (!is_known || ftruncate(fd, info.st_size) != 0)) {
        error = errno; /* what went out in part stays */
    }
    if (close(fd) != 0 && error == 0) {
        error = errno;
    }
    return error == 0 ? TERN_OK
                      : tern_fail_errno(TERN_ERR_IO, error, "cannot append %zu bytes to '%s'",
                                        bytes, path);
}

tern_status tern_file_append_whole(const char *path,
                                   const void *data,
                                   size_t bytes,
                                   enum tern_fault_point point)
{
    return append(path, data, bytes, point, true);
}

tern_status tern_file_append(const char *path, const void *data, size_t bytes)
{
    int error = tern_file_fault(TERN_FAULT_FILE_OPEN);
    return error == 0 ? append(path, data, bytes, TERN_FAULT_FILE_WRITE, false)
                      : tern_fail_errno(TERN_ERR_IO, error, "cannot open '%s' for appending", path);
}

bool tern_file_is_torn(const char *path)
{
    struct tern_map map;
    if (!tern_file_exists(path) || tern_map_open(path, &map) != TERN_OK) {
        return false;
    }
    bool is_torn = map.bytes > 0 && map.data[map.bytes - 1] != '\n';
    tern_map_close(&map);
    return is_torn;
}

tern_status tern_file_remove(const char *path)
{
    if (unlink(path) != 0 && errno != ENOENT) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot remove '%s'", path);
    }
    return TERN_OK;
}

static tern_status remove_entry(const FTSENT *entry)
{
    switch (entry->fts_info) {
    case FTS_D: /* on the way down; removed on the way up */
        return TERN_OK;
    case FTS_DNR:
    case FTS_ERR:
        return tern_fail_errno(TERN_ERR_IO, entry->fts_errno, "cannot remove '%s'",
                               entry->fts_path);
    case FTS_NS:
        if (entry->fts_errno == ENOENT) {
            return TERN_OK;
        }
        return tern_fail_errno(TERN_ERR_IO, entry->fts_errno, "cannot remove '%s'",
                               entry->fts_path);
    default:
        if (remove(entry->fts_accpath) != 0 && errno != ENOENT) {
            return tern_fail_errno(TERN_ERR_IO, errno, "cannot remove '%s'", entry->fts_path);
        }
        return TERN_OK;
    }
}

tern_status tern_file_remove_tree(const char *path)
{
    char copy[TERN_PATH_BYTES];
    if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", path,
                         TERN_PATH_BYTES - 1);
    }
    char *roots[] = {copy, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    if (walk == NULL) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot remove '%s'", path);
    }
    tern_status status = TERN_OK;
    for (FTSENT *entry = fts_read(walk); entry != NULL && status == TERN_OK;
         entry = fts_read(walk)) {
        status = remove_entry(entry);
    }
    fts_close(walk);
    return status;
}

tern_status tern_file_rename(const char *from, const char *to)
{
    char folder[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(parent_of(to, folder));
    int error = tern_file_fault(TERN_FAULT_FILE_RENAME);
    if (error == 0 && rename(from, to) != 0) {
        error = errno;
    }
    if (error != 0) {
        return tern_fail_errno(TERN_ERR_IO, error, "cannot rename '%s' to '%s'", from, to);
    }
    return tern_file_sync_folder(folder);
}

/* ---- mappings ---- */

tern_status tern_map_open(const char *path, struct tern_map *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot open '%s'", path);
    }
    struct stat info;
    tern_status status = TERN_OK;
    if (fstat(fd, &info) != 0) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "cannot read '%s'", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = tern_fail(TERN_ERR_INPUT, "cannot map '%s': it is not a regular file", path);
    } else if (info.st_size == 0) {
        *out = (struct tern_map){(const uint8_t *)"", 0};
    } else {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            status = tern_fail_errno(TERN_ERR_IO, errno, "cannot map '%s'", path);
        } else {
            *out = (struct tern_map){data, (size_t)info.st_size};
        }
    }
    close(fd);
    return status;
}

void tern_map_close(struct tern_map *map)
{
    if (map->bytes > 0) {
        munmap((void *)map->data, map->bytes);
    }
    *map = (struct tern_map){NULL, 0};
}

void tern_map_drop(const void *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data / page * page;
    (void)madvise((void *)begin, (uintptr_t)data + bytes - begin, MADV_DONTNEED); /* NOLINT */
}

/* ---- locks ---- */

/* Who wrote the lock file, without the line end; "an unknown process" when it is empty. */
static void read_holder(int fd, char holder[HOLDER_BYTES])
{
    ssize_t got = pread(fd, holder, HOLDER_BYTES - 1, 0);
    holder[got > 0 ? got : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (holder[0] == '\0') {
        strcpy(holder, "an unknown process");
    }
}

tern_status tern_lock_take(const char *path, struct tern_lock *out)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot open lock file '%s'", path);
    }
    char holder[HOLDER_BYTES];
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        read_holder(fd, holder);
        close(fd);
        return error == EWOULDBLOCK ? tern_fail(TERN_ERR_BUSY, "'%s' is locked by %s", path, holder)
                                    : tern_fail_errno(TERN_ERR_IO, error, "cannot lock '%s'", path);
    }
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    int length = snprintf(holder, sizeof holder, "pid %ld on host %s\n", (long)getpid(), host);
    /* The lock is the flock; a full disk only costs the name of its holder. */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, holder, (size_t)length, 0) != length) {
        (void)!ftruncate(fd, 0);
    }
    out->fd = fd;
    return TERN_OK;
}

void tern_lock_drop(struct tern_lock *lock)
{
    if (lock->fd >= 0) {
        (void)!ftruncate(lock->fd, 0);
        close(lock->fd);
    }
    lock->fd = -1;
}

/* ---- listings ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* `text` holds count NUL-terminated names one after another; *names_out is one block: pointers,
 * then the names. */
static tern_status names_from_text(const struct tern_text *text, int count, char ***names_out)
{
    size_t table_bytes = ((size_t)count + 1) * sizeof(char *);
    char **names = tern_alloc("file names", table_bytes + text->length + 1);
    if (names == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a list of %d file names", count);
    }
    char *chars = (char *)names + table_bytes;
    if (text->length > 0) {
        memcpy(chars, text->data, text->length);
    }
    for (int i = 0; i < count; i++) {
        names[i] = chars;
        chars += strlen(chars) + 1;
    }
    names[count] = NULL;
    qsort(names, (size_t)count, sizeof names[0], compare_names);
    *names_out = names;
    return TERN_OK;
}

tern_status tern_file_list(const char *folder, char ***names_out, int *count_out)
{
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return tern_fail_errno(TERN_ERR_IO, errno, "cannot list folder '%s'", folder);
    }
    struct tern_text text;
    tern_text_init(&text);
    int count = 0;
    tern_status status = TERN_OK;
    errno = 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; errno = 0, entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        TERN_GOTO_IF_ERR(status, tern_text_append(&text, entry->d_name, strlen(entry->d_name) + 1),
                         done);
        count++;
    }
    if (errno != 0) {
        status = tern_fail_errno(TERN_ERR_IO, errno, "cannot list folder '%s'", folder);
        goto done;
    }
    TERN_GOTO_IF_ERR(status, names_from_text(&text, count, names_out), done);
    *count_out = count;
done:
    tern_text_fini(&text);
    closedir(dir);
    return status;
}

tern_status tern_file_glob(const char *pattern, char ***paths_out, int *count_out)
{
    glob_t found = {0};
    int code = glob(pattern, 0, NULL, &found);
    if (code != 0) {
        globfree(&found);
        return code == GLOB_NOMATCH
                   ? tern_fail(TERN_ERR_NOT_FOUND, "no file matches '%s'", pattern)
                   : tern_fail(TERN_ERR_IO, "cannot search for '%s': %s", pattern,
                               code == GLOB_NOSPACE ? "no memory" : "a folder cannot be read");
    }
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = TERN_OK;
    int count = (int)found.gl_pathc;
    for (int i = 0; i < count && status == TERN_OK; i++) {
        status = tern_text_append(&text, found.gl_pathv[i], strlen(found.gl_pathv[i]) + 1);
    }
    if (status == TERN_OK) {
        status = names_from_text(&text, count, paths_out);
    }
    if (status == TERN_OK) {
        *count_out = count;
    }
    tern_text_fini(&text);
    globfree(&found);
    return status;
}
