/* log.c - whole lines to stderr, with a progress bar that never mixes with them. */
#include "runtime/base/log.h"

#include "runtime/base/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_BYTES = 2048
};

static enum tern_log_level g_level = TERN_LOG_INFO;
static int g_rank;
static int g_world_size = 1;
static bool g_bar_shown;
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *const g_level_names[] = {"error", "warn", "info", "debug"};
static const char *const g_prefixes[] = {"error: ", "warning: ", "", "debug: "};

tern_status tern_log_init(void)
{
    const char *value = getenv("TERN_LOG");
    if (value == NULL || value[0] == '\0') {
        return TERN_OK;
    }
    for (int level = TERN_LOG_ERROR; level <= TERN_LOG_DEBUG; level++) {
        if (strcmp(value, g_level_names[level]) == 0) {
            g_level = (enum tern_log_level)level;
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_USAGE,
                     "environment TERN_LOG: found '%s', expected error, warn, info or debug",
                     value);
}

void tern_log_set_rank(int rank, int world_size)
{
    g_rank = rank;
    g_world_size = world_size;
}

bool tern_log_enabled(enum tern_log_level level)
{
    return level <= g_level;
}

bool tern_log_is_terminal(void)
{
    static int known = -1;
    if (known < 0) {
        const char *term = getenv("TERM");
        known = isatty(STDERR_FILENO) && !(term != NULL && strcmp(term, "dumb") == 0);
    }
    return known == 1;
}

bool tern_log_has_color(void)
{
    const char *off = getenv("NO_COLOR");
    return tern_log_is_terminal() && (off == NULL || off[0] == '\0');
}

static void write_all(const char *text, size_t length)
{
    while (length > 0) {
        ssize_t done = write(STDERR_FILENO, text, length);
        if (done <= 0) {
            return; /* nowhere left to say it */
        }
        text += done;
        length -= (size_t)done;
    }
}

static void emit(const char *prefix, const char *format, va_list args)
{
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "%s", prefix);
    int body = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    size_t length = (size_t)used + (size_t)(body < 0 ? 0 : body);
    if (length > sizeof line - 2) {
        length = sizeof line - 2;
    }
    line[length++] = '\n';
    pthread_mutex_lock(&g_lock);
    if (g_bar_shown) {
        write_all("\r\033[K", 4);
        g_bar_shown = false;
    }
    write_all(line, length);
    pthread_mutex_unlock(&g_lock);
}

void tern_log(enum tern_log_level level, const char *format, ...)
{
    if (!tern_log_enabled(level)) {
        return;
    }
    char prefix[64];
    if (g_world_size > 1) {
        snprintf(prefix, sizeof prefix, "tern: %s[rank %d] ", g_prefixes[level], g_rank);
    } else {
        snprintf(prefix, sizeof prefix, "tern: %s", g_prefixes[level]);
    }
    va_list args;
    va_start(args, format);
    emit(prefix, format, args);
    va_end(args);
}

void tern_log_line(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    emit("", format, args);
    va_end(args);
}

void tern_log_bar(const char *format, ...)
{
    if (!tern_log_is_terminal()) {
        return;
    }
    char line[LINE_BYTES];
    va_list args;
    va_start(args, format);
    int used = snprintf(line, sizeof line, "\r\033[K");
    vsnprintf(line + used, sizeof line - (size_t)used, format, args);
    va_end(args);
    pthread_mutex_lock(&g_lock);
    write_all(line, strlen(line));
    g_bar_shown = true;
    pthread_mutex_unlock(&g_lock);
}

_Noreturn void tern_check_failed(const char *file, int line, const char *condition)
{
    tern_log_error("bug in tern at %s:%d: %s does not hold; please report this line", file, line,
                   condition);
    abort();
}
