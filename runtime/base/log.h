/* log.h - the only writer to stderr. Lines are whole (one write each), stamped with the rank when there is
 * more than one, and filtered by TERN_LOG=error|warn|info|debug (default info). */
#ifndef TERN_RUNTIME_BASE_LOG_H
#define TERN_RUNTIME_BASE_LOG_H

#include "runtime/base/status.h"

#include <stdbool.h>

enum tern_log_level {
    TERN_LOG_ERROR,
    TERN_LOG_WARN,
    TERN_LOG_INFO,
    TERN_LOG_DEBUG
};

/* Reads TERN_LOG; TERN_ERR_USAGE names the value found and those expected. */
tern_status tern_log_init(void);
/* From now on lines carry "[rank N]" if world_size > 1. */
void tern_log_set_rank(int rank, int world_size);
bool tern_log_enabled(enum tern_log_level level);
/* "tern: LEVEL: ..." (info: "tern: ..."). A newline is added. */
void tern_log(enum tern_log_level level, const char *format, ...) TERN_PRINTF(2, 3);
/* A line without any prefix (the step line, tables). A newline is added. */
void tern_log_line(const char *format, ...) TERN_PRINTF(1, 2);
/* Draws text over the current terminal line (progress bar); erased by the next line. Does nothing when
 * stderr is not a terminal. */
void tern_log_bar(const char *format, ...) TERN_PRINTF(1, 2);
/* stderr is a terminal and NO_COLOR is not set / stderr is a terminal. */
bool tern_log_has_color(void);
bool tern_log_is_terminal(void);

#define tern_log_error(...) tern_log(TERN_LOG_ERROR, __VA_ARGS__)
#define tern_log_warn(...)  tern_log(TERN_LOG_WARN, __VA_ARGS__)
#define tern_log_info(...)  tern_log(TERN_LOG_INFO, __VA_ARGS__)
#define tern_log_debug(...) tern_log(TERN_LOG_DEBUG, __VA_ARGS__)

#endif
