/* runners.h - every backend, instruction level and thread count that a test should run on, and
 * those it cannot. */
#ifndef TERN_TESTS_KERNELS_RUNNERS_H
#define TERN_TESTS_KERNELS_RUNNERS_H

#include "kernels/open.h"

enum {
    TERN_RUNNERS_MAX = 32,
    TERN_RUNNER_THREADS = 3
};

/* How many of them: all, or TERN_RUNS in the environment. */
int tern_runner_threads(void);
/* Is the case of this number (from 0, of its op) to be run? TERN_EVERY=8: each eighth, for builds that take long over one. */
bool tern_case_is_drawn(int number);

/* One backend at one level, opened with 1, 2 and 3 threads. */
struct tern_runner {
    char name[64]; /* "ref", "cpu/avx2" */
    const char *backend;
    const char *isa;                                  /* NULL: no choice */
    struct tern_device *devices[TERN_RUNNER_THREADS]; /* all NULL: cannot run, see reason */
    char reason[256];
    struct tern_op_limits limits;
};

struct tern_runners {
    struct tern_runner list[TERN_RUNNERS_MAX];
    int count;
    struct tern_device *ref; /* the oracle, apart from the runner that is tested */
};

/* TERN_BACKEND and TERN_CPU_ISA in the environment choose one; without them all are opened. */
TERN_MUST_CHECK tern_status tern_runners_open(struct tern_runners *runners);
void tern_runners_close(struct tern_runners *runners);
/* Prepares all devices of a runner for at least these. */
TERN_MUST_CHECK tern_status tern_runner_prepare(struct tern_runner *runner,
                                                const struct tern_op_limits *limits);

#endif
