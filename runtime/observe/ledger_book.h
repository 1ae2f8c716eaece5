/* ledger_book.h - RUN/ledger.csv: its rows, and the account that they add up to.
 *
 * A row says how the seconds from one moment to another were spent, one column a kind, so that the kinds of a row sum to
 * its length to the microsecond. Rows are appended and never changed; a last line without its end is not counted. When a
 * launch resumes at step R, what earlier launches did beyond R is lost: the reader finds that from the steps in the rows,
 * and rows of state "redone" (negative productive, positive lost_steps, no length) are there for those who add up columns
 * by other means. Between the last row of a launch and the first of the next one is `restart`, unless the former was
 * finished or stopped by hand: then nobody wanted machines. */
#ifndef TERN_RUNTIME_OBSERVE_LEDGER_BOOK_H
#define TERN_RUNTIME_OBSERVE_LEDGER_BOOK_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every second is one of these. */
enum tern_ledger_kind {
    TERN_LEDGER_PRODUCTIVE, /* steps that were kept, and evaluations */
    TERN_LEDGER_START,      /* from the process's start: configuration, ranks, run directory */
    TERN_LEDGER_COMPILE,    /* kernels and their tuning */
    TERN_LEDGER_LOAD,       /* data, memory, the state to resume from */
    TERN_LEDGER_DATA_WAIT,
    TERN_LEDGER_CHECKPOINT_STALL,
    TERN_LEDGER_LOST_STEPS,        /* done, and done again by a later launch, or never finished */
    TERN_LEDGER_DRAIN,             /* from the agreed notice to the commit */
    TERN_LEDGER_IDLE_AFTER_NOTICE, /* from there to the end of the process */
    TERN_LEDGER_HANG_DETECTION,    /* from the last sign of a lost rank to the verdict */
    TERN_LEDGER_RESTART,           /* between launches, and what no row tells of */
    TERN_LEDGER_KIND_COUNT
};

enum tern_ledger_state {
    TERN_LEDGER_RUNNING,
    TERN_LEDGER_FINISHED,
    TERN_LEDGER_RECLAIMED,
    TERN_LEDGER_STOPPED, /* by hand: until the next launch nobody wants the machines */
    TERN_LEDGER_PEER_LOST,
    TERN_LEDGER_FAILED,
    TERN_LEDGER_REDONE, /* of a correction */
    TERN_LEDGER_STATE_COUNT
};

enum {
    TERN_LEDGER_LAUNCH_BYTES = 48,
    TERN_LEDGER_CURRENCY_BYTES = 8,
    TERN_LEDGER_ROW_BYTES = 512 /* a row as text is shorter */
};

struct tern_ledger_row {
    char launch[TERN_LEDGER_LAUNCH_BYTES];
    enum tern_ledger_state state;
    int64_t from_us, to_us; /* since 1970, UTC */
    int machines, ranks;
    double price; /* of a machine an hour; negative: not known */
    char currency[TERN_LEDGER_CURRENCY_BYTES];
    int64_t first_step,
        last_step;  /* steps that were done at the beginning and at the end; -1: not known yet */
    int64_t tokens; /* that the run has trained on up to last_step */
    int64_t us[TERN_LEDGER_KIND_COUNT]; /* of one machine */
    int64_t unfinished_us; /* of us[PRODUCTIVE]: of the step after last_step, which was under way */
};

const char *tern_ledger_kind_name(enum tern_ledger_kind kind); /* "checkpoint_stall" */
const char *tern_ledger_state_name(enum tern_ledger_state state);
/* The first line of the file, with its end. */
const char *tern_ledger_header(void);
/* The row with its end; returns its length. */
size_t tern_ledger_row_print(const struct tern_ledger_row *row, char out[TERN_LEDGER_ROW_BYTES]);
/* False: it is no whole row. length: without the line end. */
bool tern_ledger_row_parse(const char *line, size_t length, struct tern_ledger_row *out);

struct tern_ledger_launch {
    char launch[TERN_LEDGER_LAUNCH_BYTES];
    enum tern_ledger_state state; /* of its last row: running if it was killed */
    int64_t from_us, to_us;       /* of its first row that is not restart, and its last */
    int64_t gap_us;               /* of us[RESTART]: between launches, before it */
    int machines, ranks;
    double price;
    char currency[TERN_LEDGER_CURRENCY_BYTES];
    int64_t first_step, last_step; /* -1: it never came to steps */
    int64_t first_tokens, last_tokens;
    int64_t tokens;                     /* that were kept */
    int64_t us[TERN_LEDGER_KIND_COUNT]; /* of one machine, after lost steps are found */
};

/* Sums over machines. */
struct tern_ledger_account {
    struct tern_ledger_launch *launches; /* (launch_count), in order */
    int launch_count;
    double seconds[TERN_LEDGER_KIND_COUNT]; /* machine-seconds */
    double total_seconds;                   /* their sum: wall time x machines */
    int64_t tokens;                         /* of steps that were kept */
    int64_t last_step;                      /* -1: none */
    bool has_cost;                          /* all launches have a price, in one currency */
    char currency[TERN_LEDGER_CURRENCY_BYTES];
    double cost[TERN_LEDGER_KIND_COUNT], total_cost;
    int64_t bad_lines; /* torn or not rows */
    int64_t end_us;    /* of the newest row; 0: none */
};

/* Reads the whole file. resume_step >= 0: as a launch sees it that goes on from that step. TERN_ERR_NOT_FOUND: no file.
 * TERN_ERR_INPUT: it is no ledger. Owned: fini, also after a failure. */
TERN_MUST_CHECK tern_status tern_ledger_read(const char *path,
                                             int64_t resume_step,
                                             struct tern_ledger_account *out);
/* Adds a launch to the sums, not to the list. */
void tern_ledger_account_add(struct tern_ledger_account *account,
                             const struct tern_ledger_launch *launch);
void tern_ledger_account_fini(struct tern_ledger_account *account);
/* Effective training time: productive share of all machine-seconds, 0 to 1; 0 when there are none. */
double tern_ledger_ratio(const struct tern_ledger_account *account);
/* Price of a million tokens that were kept; negative: not known. */
double tern_ledger_per_million(const struct tern_ledger_account *account);

#endif
