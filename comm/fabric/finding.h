/* finding.h - what is wrong with a machine, each thing in five sentences that a person can act on. */
#ifndef TERN_COMM_FABRIC_FINDING_H
#define TERN_COMM_FABRIC_FINDING_H

#include "runtime/base/status.h"

#include <stdbool.h>

enum tern_severity {
    TERN_SEVERITY_NOTE,  /* works; worth knowing */
    TERN_SEVERITY_SLOW,  /* works, slower than the machine can */
    TERN_SEVERITY_BROKEN /* fails or hangs */
};

enum {
    TERN_FINDING_BYTES = 320,
    TERN_FINDINGS_MAX = 48
};

/* Plain data: ranks send it to each other. Parts that have nothing to say are "". */
struct tern_finding {
    enum tern_severity severity;
    char id[32];                       /* stable, for programs: "ib-port-down" */
    char where[TERN_FINDING_BYTES];    /* "mlx5_4 port 1" */
    char found[TERN_FINDING_BYTES];    /* "DOWN, physical link Disabled" */
    char expected[TERN_FINDING_BYTES]; /* "ACTIVE" */
    char effect[TERN_FINDING_BYTES];   /* what is slow or fails with it, by how much when known */
    char advice[TERN_FINDING_BYTES];   /* what to do */
};

struct tern_findings {
    struct tern_finding items[TERN_FINDINGS_MAX];
    int count;
    int left_out; /* found after the list was full */
};

/* A new finding with the place filled; never NULL: a full list counts it and gives its last entry's place away. */
struct tern_finding *tern_findings_add(struct tern_findings *findings,
                                       enum tern_severity severity,
                                       const char *id,
                                       const char *where_format,
                                       ...) TERN_PRINTF(4, 5);
/* One part of a finding; what does not fit is cut. */
void tern_finding_say(char part[TERN_FINDING_BYTES], const char *format, ...) TERN_PRINTF(2, 3);
const char *tern_severity_name(enum tern_severity severity); /* "note", "slow", "broken" */

/* A list of names in one part: "mlx5_0, mlx5_1"; ".." at its end when not all fit. */
struct tern_names {
    char text[200];
    int count;
};
void tern_names_add(struct tern_names *names, const char *format, ...) TERN_PRINTF(2, 3);

#endif
