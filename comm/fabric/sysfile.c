/* sysfile.c - bounded reads that never block and never fail loudly. */
#include "comm/fabric/sysfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    LINE_BYTES = 256
};

/* False when it does not fit. */
static bool make_path(char out[PATH_BYTES], const char *root, const char *format, va_list args)
{
    int used = snprintf(out, PATH_BYTES, "%s/", root);
    if (used < 0 || used >= PATH_BYTES) {
        return false;
    }
    int more = vsnprintf(out + used, (size_t)(PATH_BYTES - used), format, args);
    return more >= 0 && more < PATH_BYTES - used;
}

static size_t read_bytes(const char *path, uint8_t *out, size_t size)
{
    /* not blocking: a pipe in the place of a file must not stop us */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    size_t used = 0;
    if (fd < 0) {
        return 0;
    }
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        ssize_t got = 1;
        while (used < size && got > 0) {
            got = read(fd, out + used, size - used);
            used += got > 0 ? (size_t)got : 0;
        }
    }
    close(fd);
    return used;
}

static bool read_text(const char *path, char *out, size_t size)
{
    size_t length = read_bytes(path, (uint8_t *)out, size - 1);
    out[length] = '\0';
    length = strlen(out);
    for (size_t i = 0; i < length; i++) {
        if ((out[i] < ' ' || out[i] > '~') && out[i] != '\n' && out[i] != '\t') {
            out[i] = '?';
        }
    }
    return length > 0;
}

/* Copies [start, end) without the blanks at its ends. */
static void copy_trimmed(const char *start, const char *end, char *out, size_t size)
{
    while (start < end && (*start == ' ' || *start == '\t')) {
        start++;
    }
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    snprintf(out, size, "%.*s", (int)(end - start), start);
}

static bool read_line(const char *path, char *out, size_t size)
{
    char text[LINE_BYTES];
    bool is_read = read_text(path, text, sizeof text);
    copy_trimmed(text, text + strcspn(text, "\n"), out, size);
    return is_read && out[0] != '\0';
}

size_t tern_sys_bytes(const char *root, uint8_t *out, size_t size, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    return fits ? read_bytes(path, out, size) : 0;
}

bool tern_sys_text(const char *root, char *out, size_t size, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    out[0] = '\0';
    return fits && read_text(path, out, size);
}

bool tern_sys_line(const char *root, char *out, size_t size, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    out[0] = '\0';
    return fits && read_line(path, out, size);
}

int64_t tern_sys_i64(const char *root, int64_t otherwise, const char *format, ...)
{
    char path[PATH_BYTES];
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    if (!fits || !read_line(path, line, sizeof line)) {
        return otherwise;
    }
    char *end;
    errno = 0;
    long long value = strtoll(line, &end, strncmp(line, "0x", 2) == 0 ? 16 : 10);
    return end != line && *end == '\0' && errno == 0 ? value : otherwise;
}

bool tern_sys_link(const char *root, char *out, size_t size, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    ssize_t length = fits ? readlink(path, out, size - 1) : -1;
    out[length > 0 ? length : 0] = '\0';
    return length > 0;
}

bool tern_sys_exists(const char *root, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    return fits && access(path, F_OK) == 0;
}

/* PCI addresses are hexadecimal, of one length: their digits are no numbers. */
static int by_natural_order(const void *a, const void *b)
{
    return strchr(a, ':') != NULL ? strcmp(a, b) : strverscmp(a, b);
}

bool tern_sys_list_names(const char *root, struct tern_sys_list *out, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list args;
    va_start(args, format);
    bool fits = make_path(path, root, format, args);
    va_end(args);
    out->count = 0;
    DIR *folder = fits ? opendir(path) : NULL;
    if (folder == NULL) {
        return false;
    }
    struct dirent *entry;
    while (out->count < TERN_SYS_LIST_MAX && (entry = readdir(folder)) != NULL) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] != '.' && length < TERN_SYS_NAME_BYTES) {
            memcpy(out->names[out->count++], entry->d_name, length + 1);
        }
    }
    closedir(folder);
    qsort(out->names, (size_t)out->count, sizeof out->names[0], by_natural_order);
    return true;
}

bool tern_sys_value(const char *text, const char *key, char *out, size_t size)
{
    size_t length = strlen(key);
    out[0] = '\0';
    for (const char *line = text; *line != '\0';) {
        const char *end = line + strcspn(line, "\n");
        if (strncmp(line, key, length) == 0) {
            const char *colon = line + length + strspn(line + length, " \t");
            if (*colon == ':') {
                copy_trimmed(colon + 1, end, out, size);
                return out[0] != '\0';
            }
        }
        line = *end == '\n' ? end + 1 : end;
    }
    return false;
}
