/* notice.c - signal handlers and the stop file. */
#include "runtime/reclaim/notice.h"

#include "io/file.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t g_signal_notice;
static volatile sig_atomic_t g_interrupts;
static char g_stop_path[TERN_PATH_BYTES];
static const char *const g_names[TERN_NOTICE_COUNT] = {
    [TERN_NOTICE_NONE] = "none",
    [TERN_NOTICE_FILE] = "stop file",
    [TERN_NOTICE_SIGINT] = "signal SIGINT",
    [TERN_NOTICE_SIGUSR2] = "signal SIGUSR2",
    [TERN_NOTICE_SIGTERM] = "signal SIGTERM",
};

static void on_signal(int number)
{
    sig_atomic_t notice = number == SIGTERM   ? TERN_NOTICE_SIGTERM
                          : number == SIGUSR2 ? TERN_NOTICE_SIGUSR2
                                              : TERN_NOTICE_SIGINT;
    if (number == SIGINT && ++g_interrupts >= 2) {
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
        return;
    }
    if (notice > g_signal_notice) {
        g_signal_notice = notice;
    }
}

static tern_status set_handlers(void (*handler)(int))
{
    static const int signals[] = {SIGTERM, SIGUSR2, SIGINT};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction action = {.sa_flags = SA_RESTART};
        action.sa_handler = handler;
        sigemptyset(&action.sa_mask);
        if (sigaction(signals[i], &action, NULL) != 0) {
            return tern_fail_errno(TERN_ERR_STATE, errno, "cannot handle signal %d", signals[i]);
        }
    }
    return TERN_OK;
}

tern_status tern_notice_watch_signals(void)
{
    g_signal_notice = TERN_NOTICE_NONE;
    g_interrupts = 0;
    return set_handlers(on_signal);
}

tern_status tern_notice_watch_file(const char *run_dir)
{
    return tern_path_join(g_stop_path, run_dir, "stop");
}

enum tern_notice tern_notice_poll(void)
{
    enum tern_notice notice = (enum tern_notice)g_signal_notice;
    if (notice == TERN_NOTICE_NONE && g_stop_path[0] != '\0' && tern_file_exists(g_stop_path)) {
        return TERN_NOTICE_FILE;
    }
    return notice;
}

const char *tern_notice_name(enum tern_notice notice)
{
    return notice >= 0 && notice < TERN_NOTICE_COUNT ? g_names[notice] : "unknown";
}

void tern_notice_ignore(void)
{
    (void)!set_handlers(SIG_IGN); /* best effort: the work is done */
}

tern_status tern_notice_clear_file(const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "stop"));
    return tern_file_remove(path);
}
