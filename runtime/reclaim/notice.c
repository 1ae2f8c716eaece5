/* notice.c - signal handlers, the stop and save files, and what the watcher posted. */
#include "runtime/reclaim/notice.h"

#include "io/file.h"
#include "runtime/base/clock.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

static const struct {
    const char *name;
    double lead_seconds;
    enum tern_notice_takes takes;
} g_kinds[TERN_NOTICE_COUNT] = {
    [TERN_NOTICE_NONE] = {"none", 0},
    [TERN_NOTICE_AWS_REBALANCE] = {"AWS rebalance recommendation", INFINITY},
    [TERN_NOTICE_AZURE_FREEZE] = {"Azure freeze", INFINITY},
    [TERN_NOTICE_GCP_MIGRATE] = {"GCP live migration", INFINITY},
    [TERN_NOTICE_FILE] = {"stop file", INFINITY},
    [TERN_NOTICE_SIGINT] = {"signal SIGINT", INFINITY},
    [TERN_NOTICE_END_TIME] = {"end time", 60, TERN_TAKES_ALL},
    [TERN_NOTICE_SLURM_END] = {"Slurm time limit", 60, TERN_TAKES_ALL},
    [TERN_NOTICE_AWS_MAINTENANCE] = {"AWS scheduled maintenance", 120, TERN_TAKES_HOST},
    [TERN_NOTICE_AZURE_REBOOT] = {"Azure reboot", 60, TERN_TAKES_HOST},
    [TERN_NOTICE_AZURE_TERMINATE] = {"Azure terminate", 60, TERN_TAKES_HOST},
    [TERN_NOTICE_GCP_MAINTENANCE] = {"GCP host maintenance", 120, TERN_TAKES_HOST},
    [TERN_NOTICE_SIGUSR2] = {"signal SIGUSR2", INFINITY},
    [TERN_NOTICE_AWS_SCALING] = {"AWS scale-in", INFINITY, TERN_TAKES_HOST},
    [TERN_NOTICE_AWS_SPOT] = {"AWS spot interruption", INFINITY, TERN_TAKES_HOST},
    [TERN_NOTICE_AZURE_PREEMPT] = {"Azure preempt", INFINITY, TERN_TAKES_HOST},
    [TERN_NOTICE_GCP_PREEMPTED] = {"GCP preemption", INFINITY, TERN_TAKES_HOST},
    [TERN_NOTICE_SIGTERM] = {"signal SIGTERM", INFINITY},
};

static volatile sig_atomic_t g_signal_notice;
static volatile sig_atomic_t g_interrupts;
/* Clock at the first signal and at the first sight of the stop file, 0 none. */
static _Atomic int64_t g_signal_ns, g_file_ns;
static char g_stop_path[TERN_PATH_BYTES];
static char g_save_path[TERN_PATH_BYTES];
/* Of the watcher: the strongest kind, clock at its arrival, the earliest deadline known (clock
 * nanoseconds, 0 none). */
static _Atomic int g_posted;
static _Atomic int64_t g_posted_ns, g_deadline_ns;
static atomic_bool g_is_save_posted;

static void note_time(_Atomic int64_t *first)
{
    int64_t none = 0;
    atomic_compare_exchange_strong(first, &none, tern_clock_ns());
}

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
    note_time(&g_signal_ns);
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
    atomic_store(&g_signal_ns, 0);
    return set_handlers(on_signal);
}

tern_status tern_notice_watch_file(const char *run_dir)
{
    TERN_RETURN_IF_ERR(tern_path_join(g_save_path, run_dir, "save"));
    return tern_path_join(g_stop_path, run_dir, "stop");
}

void tern_notice_reset(void)
{
    g_signal_notice = TERN_NOTICE_NONE;
    g_interrupts = 0;
    g_stop_path[0] = '\0';
    g_save_path[0] = '\0';
    atomic_store(&g_signal_ns, 0);
    atomic_store(&g_file_ns, 0);
    atomic_store(&g_posted, TERN_NOTICE_NONE);
    atomic_store(&g_posted_ns, 0);
    atomic_store(&g_deadline_ns, 0);
    atomic_store(&g_is_save_posted, false);
}

enum tern_notice tern_notice_poll(void)
{
    int posted = atomic_load(&g_posted);
    int notice = g_signal_notice > posted ? g_signal_notice : posted;
    if (notice < TERN_NOTICE_FILE && g_stop_path[0] != '\0' && tern_file_exists(g_stop_path)) {
        note_time(&g_file_ns);
        return TERN_NOTICE_FILE;
    }
    return (enum tern_notice)notice;
}

bool tern_notice_is_save_asked(void)
{
    return atomic_load(&g_is_save_posted) ||
           (g_save_path[0] != '\0' && tern_file_exists(g_save_path));
}

void tern_notice_clear_save(void)
{
    atomic_store(&g_is_save_posted, false);
    if (g_save_path[0] != '\0') {
        (void)!tern_file_remove(g_save_path); /* else it asks again at the next step */
    }
}

/* The earlier of `left` and what is left `seconds` after `since_ns`, if that ever was. */
static double earlier(double left, int64_t since_ns, double seconds)
{
    double mine = (double)(since_ns - tern_clock_ns()) * 1e-9 + seconds;
    return since_ns != 0 && mine < left ? mine : left;
}

double tern_notice_seconds_left(double deadline_seconds)
{
    int64_t deadline_ns = atomic_load(&g_deadline_ns);
    double left = earlier(INFINITY, atomic_load(&g_signal_ns), deadline_seconds);
    left = earlier(left, atomic_load(&g_file_ns), deadline_seconds);
    left = deadline_ns != 0 ? earlier(left, deadline_ns, 0)
                            : earlier(left, atomic_load(&g_posted_ns), deadline_seconds);
    return left > 0 ? left : 0;
}

void tern_notice_post(const struct tern_notice_info *info)
{
    if (info->deadline >= 0) {
        int64_t deadline_ns = (int64_t)(info->deadline * 1e9);
        int64_t known = atomic_load(&g_deadline_ns);
        if (known == 0 || deadline_ns < known) {
            atomic_store(&g_deadline_ns, deadline_ns > 0 ? deadline_ns : 1);
        }
    }
    note_time(&g_posted_ns);
    if ((int)info->kind > atomic_load(&g_posted)) {
        atomic_store(&g_posted, (int)info->kind);
    }
}

void tern_notice_ask_save(void)
{
    atomic_store(&g_is_save_posted, true);
}

enum tern_notice_takes tern_notice_takes(enum tern_notice notice)
{
    return notice >= 0 && notice < TERN_NOTICE_COUNT ? g_kinds[notice].takes : TERN_TAKES_NOTHING;
}

const char *tern_notice_name(enum tern_notice notice)
{
    return notice >= 0 && notice < TERN_NOTICE_COUNT ? g_kinds[notice].name : "unknown";
}

bool tern_notice_is_advice(enum tern_notice notice)
{
    return notice > TERN_NOTICE_NONE && notice < TERN_NOTICE_FILE;
}

double tern_notice_lead_seconds(enum tern_notice notice)
{
    return g_kinds[notice].lead_seconds;
}

void tern_notice_ignore(void)
{
    (void)!set_handlers(SIG_IGN); /* best effort: the work is done */
}

tern_status tern_notice_clear_file(const char *run_dir)
{
    static const char *const names[] = {"stop", "save"};
    char path[TERN_PATH_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, names[i]));
        TERN_RETURN_IF_ERR(tern_file_remove(path));
    }
    return TERN_OK;
}
