/* runners.c - opens every backend at every level that this machine has. */
#include "tests/kernels/runners.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What TERN_CPU_ISA takes, lowest first. */
static const char *const g_levels[] = {"generic",     "avx2",        "avx512",
                                       "avx512_bf16", "avx512_vnni", "amx"};
enum {
    LEVEL_COUNT = sizeof g_levels / sizeof g_levels[0],
    BACKENDS_MAX = 8
};

int tern_runner_threads(void)
{
    const char *text = getenv("TERN_RUNS");
    int runs = text == NULL ? TERN_RUNNER_THREADS : atoi(text);
    return runs < 1 || runs > TERN_RUNNER_THREADS ? TERN_RUNNER_THREADS : runs;
}

bool tern_case_is_drawn(int number)
{
    const char *every = getenv("TERN_EVERY");
    int64_t step = every != NULL ? strtoll(every, NULL, 10) : 1;
    return step < 2 || number % step == 0;
}

static void close_runner(struct tern_runner *runner)
{
    for (int i = 0; i < TERN_RUNNER_THREADS; i++) {
        tern_device_close(runner->devices[i]);
        runner->devices[i] = NULL;
    }
}

/* A runner that cannot run stays in the list with its reason. */
static tern_status add_runner(struct tern_runners *runners, const char *backend, const char *isa)
{
    struct tern_runner *runner = &runners->list[runners->count++];
    *runner = (struct tern_runner){.backend = backend, .isa = isa};
    snprintf(runner->name, sizeof runner->name, "%s%s%s", backend, isa == NULL ? "" : "/",
             isa == NULL ? "" : isa);
    if (isa != NULL) {
        setenv("TERN_CPU_ISA", isa, 1);
    }
    for (int i = 0; i < tern_runner_threads(); i++) {
        TERN_RETURN_IF_ERR(tern_device_open(backend, i + 1, &runner->devices[i]));
    }
    const char *found = tern_device_isa(runner->devices[0]);
    if (isa != NULL && strcmp(found, isa) != 0) {
        snprintf(runner->reason, sizeof runner->reason, "this machine stops at %s", found);
        close_runner(runner);
    }
    return TERN_OK;
}

static tern_status add_backend(struct tern_runners *runners,
                               const struct tern_backend_info *info,
                               const char *only_isa,
                               bool is_asked)
{
    if (info->reason[0] != '\0' && is_asked) { /* else every case of it would pass */
        return tern_fail(TERN_ERR_UNSUPPORTED, "TERN_BACKEND=%s cannot run here: %s", info->name,
                         info->reason);
    }
    if (info->reason[0] != '\0') {
        struct tern_runner *runner = &runners->list[runners->count++];
        *runner = (struct tern_runner){.backend = info->name};
        snprintf(runner->name, sizeof runner->name, "%s", info->name);
        snprintf(runner->reason, sizeof runner->reason, "%s", info->reason);
        return TERN_OK;
    }
    if (strcmp(info->name, "cpu") != 0) {
        return add_runner(runners, info->name, NULL);
    }
    for (int i = 0; i < LEVEL_COUNT; i++) {
        if (only_isa == NULL || strcmp(only_isa, g_levels[i]) == 0) {
            TERN_RETURN_IF_ERR(add_runner(runners, info->name, g_levels[i]));
        }
    }
    return TERN_OK;
}

tern_status tern_runners_open(struct tern_runners *runners)
{
    struct tern_backend_info infos[BACKENDS_MAX];
    char isa_text[64] = "";
    const char *isa = getenv("TERN_CPU_ISA"), *only = getenv("TERN_BACKEND");
    if (isa != NULL) { /* setenv below would change it under our feet */
        snprintf(isa_text, sizeof isa_text, "%s", isa);
    }
    *runners = (struct tern_runners){0};
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_device_open("ref", 1, &runners->ref), fail);
    int count = tern_backend_list(infos, BACKENDS_MAX);
    for (int i = 0; i < count && i < BACKENDS_MAX; i++) {
        if (only == NULL || strcmp(only, infos[i].name) == 0) {
            TERN_GOTO_IF_ERR(status,
                             add_backend(runners, &infos[i], isa_text[0] == '\0' ? NULL : isa_text,
                                         only != NULL),
                             fail);
        }
    }
    if (isa_text[0] != '\0') {
        setenv("TERN_CPU_ISA", isa_text, 1);
    } else {
        unsetenv("TERN_CPU_ISA");
    }
    if (runners->count == 0) { /* every case would pass */
        status =
            tern_fail(TERN_ERR_USAGE, "TERN_BACKEND=%s, TERN_CPU_ISA=%s: nothing has that name",
                      only != NULL ? only : "", isa_text);
        goto fail;
    }
    return TERN_OK;
fail:
    tern_runners_close(runners);
    return status;
}

void tern_runners_close(struct tern_runners *runners)
{
    for (int i = 0; i < runners->count; i++) {
        close_runner(&runners->list[i]);
    }
    tern_device_close(runners->ref);
    *runners = (struct tern_runners){0};
}

static bool grow(int64_t *have, int64_t want)
{
    bool is_larger = want > *have;
    *have = is_larger ? want : *have;
    return is_larger;
}

tern_status tern_runner_prepare(struct tern_runner *runner, const struct tern_op_limits *limits)
{
    struct tern_op_limits *have = &runner->limits;
    bool grew = grow(&have->rows, limits->rows);
    grew |= grow(&have->sequence, limits->sequence);
    grew |= grow(&have->width, limits->width);
    grew |= grow(&have->heads, limits->heads);
    grew |= grow(&have->kv_heads, limits->kv_heads);
    grew |= grow(&have->head_width, limits->head_width);
    grew |= grow(&have->batch, limits->batch);
    grew |= grow(&have->vocab, limits->vocab);
    for (int i = 0; grew && i < tern_runner_threads(); i++) {
        size_t bytes;
        TERN_RETURN_IF_ERR(tern_device_prepare(runner->devices[i], have, &bytes));
    }
    return TERN_OK;
}
