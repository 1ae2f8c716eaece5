/* file.h - the only caller of the operating system's file API: whole reads and writes, durable
 * replacement, locks, fault points. Errors name the path. */
#ifndef TERN_IO_FILE_H
#define TERN_IO_FILE_H

#include "runtime/base/fault.h"
#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_PATH_BYTES = 4096
};

/* Joins with one '/'; TERN_ERR_ARGUMENT if it does not fit. */
TERN_MUST_CHECK tern_status tern_path_join(char out[TERN_PATH_BYTES],
                                           const char *folder,
                                           const char *name);
/* The path of what is there, without links, dots or a working folder. */
TERN_MUST_CHECK tern_status tern_path_absolute(char out[TERN_PATH_BYTES], const char *path);
bool tern_file_exists(const char *path);
bool tern_file_is_folder(const char *path);
TERN_MUST_CHECK tern_status tern_file_size(const char *path, int64_t *bytes_out);
/* mkdir -p */
TERN_MUST_CHECK tern_status tern_file_make_folder(const char *path);
/* Whole file into a tern_alloc'd, NUL-terminated block (free with tern_free). Refuses above
 * max_bytes. */
TERN_MUST_CHECK tern_status tern_file_read(const char *path,
                                           int64_t max_bytes,
                                           char **data_out,
                                           size_t *bytes_out);
/* path.tmp, write, fsync, rename, fsync of the folder: afterwards path has exactly these bytes or
 * the old ones. */
TERN_MUST_CHECK tern_status tern_file_replace(const char *path, const void *data, size_t bytes);
/* Appends with one write call (log lines). The file is created if need be. */
TERN_MUST_CHECK tern_status tern_file_append(const char *path, const void *data, size_t bytes);
/* The same, and what went out in part is taken back (one writer; a process that dies meanwhile leaves it). With a fault point
 * of its own, for what is written beside a run at times of its own. */
TERN_MUST_CHECK tern_status tern_file_append_whole(const char *path,
                                                   const void *data,
                                                   size_t bytes,
                                                   enum tern_fault_point point);
/* The file ends inside a line: an append that failed half-way left it so. */
bool tern_file_is_torn(const char *path);
TERN_MUST_CHECK tern_status tern_file_remove(const char *path); /* a missing file is fine */
TERN_MUST_CHECK tern_status tern_file_remove_tree(const char *path);
TERN_MUST_CHECK tern_status tern_file_rename(const char *from,
                                             const char *to); /* and fsync of the folder */
TERN_MUST_CHECK tern_status tern_file_sync_folder(const char *path);

/* A read-only mapping of a whole file. */
struct tern_map {
    const uint8_t *data;
    size_t bytes;
};
TERN_MUST_CHECK tern_status tern_map_open(const char *path, struct tern_map *out);
void tern_map_close(struct tern_map *map);
/* These bytes of a mapping are not needed for now: their pages leave the process's memory, and come back from the file
 * when they are read again. */
void tern_map_drop(const void *data, size_t bytes);

/* An exclusive lock on a file (made if missing), held until unlocked or the process ends.
 * TERN_ERR_BUSY names the holder ("pid 123 on host h", as it wrote into the file). */
struct tern_lock {
    int fd;
};
TERN_MUST_CHECK tern_status tern_lock_take(const char *path, struct tern_lock *out);
void tern_lock_drop(struct tern_lock *lock);

/* Names in a folder, sorted, without "." and ".."; NULL-terminated array, one tern_free frees it
 * all. */
TERN_MUST_CHECK tern_status tern_file_list(const char *folder, char ***names_out, int *count_out);
/* Paths matching a shell pattern, sorted; at least one or TERN_ERR_NOT_FOUND. Freed by one
 * tern_free. */
TERN_MUST_CHECK tern_status tern_file_glob(const char *pattern, char ***paths_out, int *count_out);

/* Passes a fault point: 0, or the errno that the caller is to fail with (short counts as EIO). */
int tern_file_fault(enum tern_fault_point point);

#endif
