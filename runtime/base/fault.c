/* fault.c - the table of fault points and the reader of TERN_FAULT. */
#include "runtime/base/fault.h"

#include "runtime/base/clock.h"
#include "runtime/base/text.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    RULES_MAX = 8
};

static const struct {
    const char *name;
    const char *help;
} g_points[TERN_FAULT_POINT_COUNT] = {
    [TERN_FAULT_STEP_BEGIN] = {"step.begin", "before the forward pass of a step"},
    [TERN_FAULT_STEP_BACKWARD] = {"step.backward", "after a backward pass of one micro-batch"},
    [TERN_FAULT_STEP_REDUCE] = {"step.reduce", "before waiting for the gradient reduction"},
    [TERN_FAULT_STEP_UPDATE] = {"step.update", "before the optimizer updates the weights"},
    [TERN_FAULT_STEP_END] = {"step.end", "after a step is complete"},
    [TERN_FAULT_SNAPSHOT] = {"snapshot", "before the state is copied for a checkpoint"},
    [TERN_FAULT_FILE_OPEN] = {"file.open", "opening a file for writing"},
    [TERN_FAULT_FILE_WRITE] = {"file.write", "one write call"},
    [TERN_FAULT_FILE_FSYNC] = {"file.fsync", "fsync of a file or folder"},
    [TERN_FAULT_FILE_RENAME] = {"file.rename", "rename of a finished file"},
    [TERN_FAULT_CKPT_SETTLE] = {"ckpt.settle", "before the writer waits for the copied state"},
    [TERN_FAULT_CKPT_SHARD] = {"ckpt.shard", "before a rank writes its shard"},
    [TERN_FAULT_CKPT_VIEW] = {"ckpt.view", "before model.h5 is written"},
    [TERN_FAULT_CKPT_MANIFEST] = {"ckpt.manifest", "before the manifest is written"},
    [TERN_FAULT_CKPT_LATEST] = {"ckpt.latest", "before LATEST is replaced"},
    [TERN_FAULT_CKPT_PRUNE] = {"ckpt.prune", "before an old checkpoint is removed"},
    [TERN_FAULT_CKPT_RESTORE] = {"ckpt.restore", "before a checkpoint is read back"},
    [TERN_FAULT_MEMORY_COPY] = {"memory.copy", "before the state is copied to shared memory"},
    [TERN_FAULT_MEMORY_SEAL] = {"memory.seal", "before a snapshot in memory is sealed"},
    [TERN_FAULT_MEMORY_PEER] = {"memory.peer", "before a piece of a snapshot goes to a peer"},
    [TERN_FAULT_MEMORY_RESTORE] = {"memory.restore", "before a snapshot in memory is read back"},
    [TERN_FAULT_LAUNCH_RECORD] = {"launch.record", "before a launch record is written"},
    [TERN_FAULT_COMM_SEND] = {"comm.send", "before one message to a peer"},
    [TERN_FAULT_COMM_COLLECTIVE] = {"comm.collective", "before one collective between GPUs"},
    [TERN_FAULT_GRADIENT] = {"gradient", "after a gradient is complete (action nan poisons it)"},
    [TERN_FAULT_SERVE_LOAD] = {"serve.load", "before a server loads its model"},
    [TERN_FAULT_STORE_PUT] = {"store.put", "before an object is sent to a store (eio: the "
                                           "connection is cut)"},
    [TERN_FAULT_STORE_PART] = {"store.part", "before a part of an object is sent to a store"},
    [TERN_FAULT_STORE_COMPLETE] = {"store.complete", "before a store is told that all parts are "
                                                     "there"},
    [TERN_FAULT_STORE_MANIFEST] = {"store.manifest", "before a manifest is sent to a store"},
    [TERN_FAULT_STORE_GET] = {"store.get", "before bytes are fetched from a store"},
    [TERN_FAULT_OBSERVE_APPEND] = {"observe.append",
                                   "one write call to ledger.csv or TensorBoard's events"},
};

static const struct {
    const char *name;
    enum tern_fault_action action;
} g_actions[] = {
    {"kill", TERN_FAULT_KILL},     {"stop", TERN_FAULT_STOP}, {"exit", TERN_FAULT_EXIT},
    {"enospc", TERN_FAULT_ENOSPC}, {"eio", TERN_FAULT_EIO},   {"short", TERN_FAULT_SHORT},
    {"delay", TERN_FAULT_DELAY},   {"nan", TERN_FAULT_NAN},
};

struct rule {
    enum tern_fault_point point;
    enum tern_fault_action action;
    long pass; /* acts on this pass, counted from 1 */
    int rank;  /* -1: every rank */
    double delay_seconds;
    _Atomic long count;
};

int tern_fault_armed;
static struct rule g_rules[RULES_MAX];
static int g_rule_count;
static int g_rank;

const char *tern_fault_point_name(enum tern_fault_point point)
{
    return g_points[point].name;
}

const char *tern_fault_point_help(enum tern_fault_point point)
{
    return g_points[point].help;
}

void tern_fault_set_rank(int rank)
{
    g_rank = rank;
}

static tern_status parse_point(const char *name, enum tern_fault_point *point_out)
{
    const char *names[TERN_FAULT_POINT_COUNT];
    for (int i = 0; i < TERN_FAULT_POINT_COUNT; i++) {
        names[i] = g_points[i].name;
        if (strcmp(name, names[i]) == 0) {
            *point_out = (enum tern_fault_point)i;
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_USAGE,
                     "environment TERN_FAULT: unknown point '%s', nearest is '%s' (see 'tern "
                     "doctor --fault-points')",
                     name, tern_text_nearest(name, names, TERN_FAULT_POINT_COUNT));
}

static tern_status parse_action(char *text, struct rule *rule)
{
    char *value = strchr(text, '=');
    if (value != NULL) {
        *value++ = '\0';
    }
    for (size_t i = 0; i < sizeof g_actions / sizeof g_actions[0]; i++) {
        if (strcmp(text, g_actions[i].name) != 0) {
            continue;
        }
        rule->action = g_actions[i].action;
        bool wants_value = rule->action == TERN_FAULT_DELAY;
        char *end = value;
        rule->delay_seconds = value != NULL ? strtod(value, &end) : 0;
        if (wants_value != (value != NULL) || (value != NULL && (*end != '\0' || end == value))) {
            return tern_fail(TERN_ERR_USAGE, "environment TERN_FAULT: action '%s' %s", text,
                             wants_value ? "needs =SECONDS" : "takes no value");
        }
        return TERN_OK;
    }
    return tern_fail(TERN_ERR_USAGE,
                     "environment TERN_FAULT: unknown action '%s', expected kill, stop, exit, "
                     "enospc, eio, short, delay=SECONDS or nan",
                     text);
}

/* Cuts text at the last `mark` and reads the number behind it into *value. */
static tern_status parse_suffix(char *text, char mark, long *value)
{
    char *at = strrchr(text, mark);
    if (at == NULL) {
        return TERN_OK;
    }
    char *end;
    *value = strtol(at + 1, &end, 10);
    if (end == at + 1 || *end != '\0' || *value < 0) {
        return tern_fail(TERN_ERR_USAGE, "environment TERN_FAULT: '%s' is not a number", at + 1);
    }
    *at = '\0';
    return TERN_OK;
}

static tern_status parse_rule(char *text)
{
    if (g_rule_count == RULES_MAX) {
        return tern_fail(TERN_ERR_USAGE, "environment TERN_FAULT: more than %d rules", RULES_MAX);
    }
    char *colon = strchr(text, ':');
    if (colon == NULL) {
        return tern_fail(
            TERN_ERR_USAGE,
            "environment TERN_FAULT: '%s' has no action, expected point[@n][#rank]:action", text);
    }
    *colon = '\0';
    struct rule *rule = &g_rules[g_rule_count];
    long rank = -1;
    rule->pass = 1;
    atomic_store(&rule->count, 0); /* a test arms more than once */
    TERN_RETURN_IF_ERR(parse_suffix(text, '#', &rank));
    TERN_RETURN_IF_ERR(parse_suffix(text, '@', &rule->pass));
    rule->rank = (int)rank;
    TERN_RETURN_IF_ERR(parse_point(text, &rule->point));
    TERN_RETURN_IF_ERR(parse_action(colon + 1, rule));
    g_rule_count++;
    return TERN_OK;
}

tern_status tern_fault_init(void)
{
    const char *value = getenv("TERN_FAULT");
    if (value == NULL || value[0] == '\0') {
        return TERN_OK;
    }
    if (!TERN_FAULTS) {
        return tern_fail(TERN_ERR_USAGE, "environment TERN_FAULT: this build has no fault points "
                                         "(configure with -DTERN_FAULTS=ON)");
    }
    char copy[512];
    if (strlen(value) >= sizeof copy) {
        return tern_fail(TERN_ERR_USAGE, "environment TERN_FAULT: longer than %zu bytes",
                         sizeof copy - 1);
    }
    strcpy(copy, value);
    g_rule_count = 0;
    char *rest = copy;
    for (char *rule = strsep(&rest, ","); rule != NULL; rule = strsep(&rest, ",")) {
        TERN_RETURN_IF_ERR(parse_rule(rule));
    }
    tern_fault_armed = g_rule_count;
    return TERN_OK;
}

static enum tern_fault_action act(const struct rule *rule)
{
    switch (rule->action) {
    case TERN_FAULT_KILL:
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    case TERN_FAULT_STOP:
        kill(getpid(), SIGSTOP);
        return TERN_FAULT_NONE;
    case TERN_FAULT_EXIT:
        _exit(TERN_EXIT_FAILED);
    case TERN_FAULT_DELAY:
        for (double end = tern_clock_seconds() + rule->delay_seconds; tern_clock_seconds() < end;) {
            tern_clock_sleep_ns(10000000); /* a signal wakes it early: go on */
        }
        return TERN_FAULT_NONE;
    default:
        return rule->action;
    }
}

enum tern_fault_action tern_fault_pass_slow(enum tern_fault_point point)
{
    enum tern_fault_action result = TERN_FAULT_NONE;
    for (int i = 0; i < g_rule_count; i++) {
        struct rule *rule = &g_rules[i];
        if (rule->point != point || (rule->rank >= 0 && rule->rank != g_rank)) {
            continue;
        }
        if (atomic_fetch_add(&rule->count, 1) + 1 == rule->pass) {
            enum tern_fault_action action = act(rule);
            result = action != TERN_FAULT_NONE ? action : result;
        }
    }
    return result;
}
