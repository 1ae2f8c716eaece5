/* watch_tool.c - a watcher alone, for tests that play the cloud: watch_tool URL ROOT POLL NAME...
 *
 * Says "notice NAME SECONDS_LEFT" when the notice to stop changes, "save" when a checkpoint is asked
 * for, "given SOURCE SECONDS" at first. Reads one word a line: "approve", "need SECONDS", "end
 * UNIX" only as the first; the end of its input ends it. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/reclaim/notice.h"
#include "runtime/reclaim/watch.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, tern_detail());
    return 1;
}

static void say_news(enum tern_notice *last)
{
    enum tern_notice now = tern_notice_poll();
    if (now != *last) {
        printf("notice %s %.2f\n", tern_notice_name(now), tern_notice_seconds_left(25));
        *last = now;
    }
    if (tern_notice_is_save_asked()) {
        tern_notice_clear_save();
        printf("save\n");
    }
}

/* False at the end of the input. */
static bool obey(struct tern_watch *watch, struct tern_planner *planner)
{
    char line[64];
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, 1, 5) <= 0) {
        return true;
    }
    if (fgets(line, sizeof line, stdin) == NULL) {
        return false;
    }
    if (strcmp(line, "approve\n") == 0) {
        tern_watch_approve(watch);
        printf("approved\n");
    } else if (strncmp(line, "need ", 5) == 0) {
        tern_planner_hear(planner, atof(line + 5));
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct tern_planner planner;
    struct tern_watch *watch;
    const char *source;
    const char *end = getenv("END_TIME");
    if (argc < 4 || tern_log_init() != TERN_OK) {
        fprintf(stderr, "usage: watch_tool URL ROOT POLL NAME...\n");
        return 2;
    }
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct tern_watch_options options = {
        .names = (const char *const *)(argv + 4),
        .name_count = argc - 4,
        .end_unix = end != NULL ? atof(end) : 0,
        .is_first = true,
        .is_host_first = true,
        .root = argv[2],
        .metadata_url = argv[1],
        .poll_seconds = atof(argv[3]),
        .planner = &planner,
    };
    double given = tern_watch_given_seconds(&options, 25, &source);
    printf("given %s %.0f\n", source[0] != '\0' ? source : "nobody", given);
    if (tern_watch_start(&options, &watch) != TERN_OK) {
        return fail("tern_watch_start");
    }
    printf(watch != NULL ? "watching\n" : "nothing to watch\n");
    enum tern_notice last = TERN_NOTICE_NONE;
    do {
        say_news(&last);
    } while (obey(watch, &planner));
    double started = tern_clock_seconds();
    tern_watch_stop(watch);
    printf("stopped %.2f\n", tern_clock_seconds() - started);
    return 0;
}
