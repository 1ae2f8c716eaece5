/* sysfile.h - small files of /sys and /proc below a root, where anything may be missing, unreadable, garbage, endless
 * or a link to nowhere. Nothing here fails: what can't be read is not known. Every path is a format below the root. */
#ifndef TERN_COMM_FABRIC_SYSFILE_H
#define TERN_COMM_FABRIC_SYSFILE_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_SYS_NAME_BYTES = 64,
    TERN_SYS_LIST_MAX = 1024
};

/* Names of a folder in natural order (mlx5_2 before mlx5_10; PCI addresses as text), longer ones and those past the room left out. */
struct tern_sys_list {
    char names[TERN_SYS_LIST_MAX][TERN_SYS_NAME_BYTES];
    int count;
};

/* Up to size bytes of a regular file as they are; how many. */
size_t tern_sys_bytes(const char *root, uint8_t *out, size_t size, const char *format, ...)
    TERN_PRINTF(4, 5);
/* Up to size - 1 bytes as text: cut at a NUL, what is not printable ASCII, a tab or a newline becomes '?'. False (and
 * "") when nothing could be read. */
bool tern_sys_text(const char *root, char *out, size_t size, const char *format, ...)
    TERN_PRINTF(4, 5);
/* The first line without blanks around it. */
bool tern_sys_line(const char *root, char *out, size_t size, const char *format, ...)
    TERN_PRINTF(4, 5);
/* The first line as a whole number, decimal or 0x..., else `otherwise`. */
int64_t tern_sys_i64(const char *root, int64_t otherwise, const char *format, ...)
    TERN_PRINTF(3, 4);
/* The text of a symbolic link, wherever it leads. */
bool tern_sys_link(const char *root, char *out, size_t size, const char *format, ...)
    TERN_PRINTF(4, 5);
bool tern_sys_exists(const char *root, const char *format, ...) TERN_PRINTF(2, 3);
/* False when it is no folder that can be read. */
bool tern_sys_list_names(const char *root, struct tern_sys_list *out, const char *format, ...)
    TERN_PRINTF(3, 4);
/* In a text of "Key: value" lines: the value of `key`, blanks around it cut. */
bool tern_sys_value(const char *text, const char *key, char *out, size_t size);

#endif
