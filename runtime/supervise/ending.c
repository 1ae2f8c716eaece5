/* ending.c - the table of endings, and the rule for starting again. */
#include "runtime/supervise/ending.h"

#include <string.h>

static const char *const g_states[TERN_LAUNCH_STATE_COUNT] = {
    [TERN_LAUNCH_NO_RECORD] = "no record", [TERN_LAUNCH_RUNNING] = "running",
    [TERN_LAUNCH_FINISHED] = "finished",   [TERN_LAUNCH_RECLAIMED] = "reclaimed",
    [TERN_LAUNCH_PEER_LOST] = "peer_lost", [TERN_LAUNCH_FAILED] = "failed",
};
static const struct {
    const char *name;
    int exit_code;
} g_verdicts[TERN_VERDICT_COUNT] = {
    [TERN_VERDICT_FINISHED] = {"finished", TERN_EXIT_OK},
    [TERN_VERDICT_RECLAIMED] = {"reclaimed", TERN_EXIT_RECLAIMED},
    [TERN_VERDICT_LOST] = {"peer lost", TERN_EXIT_PEER_LOST},
    [TERN_VERDICT_NOT_STARTED] = {"not started", TERN_EXIT_PEER_LOST},
    [TERN_VERDICT_FAILED] = {"failed", TERN_EXIT_FAILED},
    [TERN_VERDICT_REFUSED] = {"refused", TERN_EXIT_USAGE},
};

enum tern_verdict tern_ending_judge(const struct tern_ending *ending)
{
    switch (ending->state) {
    case TERN_LAUNCH_FINISHED:
        return TERN_VERDICT_FINISHED;
    case TERN_LAUNCH_RECLAIMED:
        return TERN_VERDICT_RECLAIMED;
    case TERN_LAUNCH_PEER_LOST:
        return TERN_VERDICT_LOST;
    case TERN_LAUNCH_FAILED:
        return ending->code == TERN_EXIT_USAGE ? TERN_VERDICT_REFUSED : TERN_VERDICT_FAILED;
    case TERN_LAUNCH_RUNNING: /* nobody could say how it ended */
        return TERN_VERDICT_LOST;
    default:
        break;
    }
    /* Nothing on record: all that there is is the status. Zero without a finished run is no success. */
    if (ending->code == TERN_EXIT_OK) {
        return TERN_VERDICT_FAILED;
    }
    return ending->code == TERN_EXIT_USAGE ? TERN_VERDICT_REFUSED : TERN_VERDICT_NOT_STARTED;
}

int tern_verdict_exit_code(enum tern_verdict verdict)
{
    return verdict >= 0 && verdict < TERN_VERDICT_COUNT ? g_verdicts[verdict].exit_code
                                                        : TERN_EXIT_FAILED;
}

const char *tern_verdict_name(enum tern_verdict verdict)
{
    return verdict >= 0 && verdict < TERN_VERDICT_COUNT ? g_verdicts[verdict].name : "unknown";
}

enum tern_launch_state tern_launch_state_of(const char *word)
{
    for (int i = TERN_LAUNCH_RUNNING; word != NULL && i < TERN_LAUNCH_STATE_COUNT; i++) {
        if (strcmp(word, g_states[i]) == 0) {
            return (enum tern_launch_state)i;
        }
    }
    return TERN_LAUNCH_NO_RECORD;
}

const char *tern_launch_state_name(enum tern_launch_state state)
{
    return state >= 0 && state < TERN_LAUNCH_STATE_COUNT ? g_states[state] : "unknown";
}

static struct tern_restart end(int exit_code, const char *reason)
{
    return (struct tern_restart){.exit_code = exit_code, .reason = reason};
}

static double delay_of(int64_t stalls, double delay_seconds_max)
{
    double delay = 1;
    for (int64_t i = 1; i < stalls && delay < delay_seconds_max; i++) {
        delay *= 2;
    }
    return delay < delay_seconds_max ? delay : delay_seconds_max;
}

struct tern_restart tern_restart_decide(const struct tern_restart_limits *limits,
                                        const struct tern_restart_facts *facts,
                                        struct tern_restart_count *count)
{
    int code = tern_verdict_exit_code(facts->verdict);
    if (facts->verdict == TERN_VERDICT_FINISHED) {
        return end(code, "all steps are done");
    }
    if (facts->verdict == TERN_VERDICT_FAILED) {
        return end(code, "the run failed: starting it again would not help");
    }
    if (facts->verdict == TERN_VERDICT_REFUSED) {
        return end(code, "the command, its configuration or its input is refused");
    }
    if (facts->is_asked) {
        return end(code, "asked to stop");
    }
    if (facts->is_leaving && facts->verdict == TERN_VERDICT_RECLAIMED) {
        return end(code, "this machine is being taken away: to be started again on another");
    }
    if (limits->ends_reclaimed && facts->verdict == TERN_VERDICT_RECLAIMED) {
        return end(code, "reclaimed, and to be started again from outside");
    }
    if (facts->is_own && facts->verdict == TERN_VERDICT_RECLAIMED) {
        return (struct tern_restart){.starts = true};
    }
    count->stalls = facts->came_ahead ? 0 : count->stalls + 1;
    if (count->stalls >= limits->stalls) {
        return end(TERN_EXIT_FAILED, "one launch after the other comes no further");
    }
    if (limits->restarts >= 0 && count->restarts >= limits->restarts) {
        return end(code, "it was started again as often as --max-restarts allows");
    }
    count->restarts++;
    return (struct tern_restart){
        .starts = true,
        .delay_seconds =
            count->stalls > 0 ? delay_of(count->stalls, limits->delay_seconds_max) : 0};
}
