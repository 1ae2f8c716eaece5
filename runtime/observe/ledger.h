/* ledger.h - where the time of a launch goes: a state machine that the training thread switches, and a thread that appends
 * to RUN/ledger.csv what came together, at most once a second, where state is saved, and at the end.
 *
 * Every rank may switch; only one that opened it (rank 0) writes. Switching takes a lock and the clock, allocates nothing and
 * waits for no disk. A ledger that cannot be written is a warning, and its rows wait: it never ends a run. */
#ifndef TERN_RUNTIME_OBSERVE_LEDGER_H
#define TERN_RUNTIME_OBSERVE_LEDGER_H

#include "io/file.h"
#include "runtime/observe/ledger_book.h"

#include <pthread.h>

enum {
    TERN_LEDGER_ROWS_MAX = 32 /* that wait to be written; later time then stays in the open row */
};

struct tern_ledger {
    pthread_mutex_t lock; /* over all that follows but the thread's own */
    pthread_cond_t wake;
    enum tern_ledger_kind kind; /* now */
    int64_t began_us;           /* wall time of the start; what follows is the monotonic clock's */
    int64_t began_ns, counted_us; /* up to where time has been given to kinds */
    int64_t first_tokens;         /* of the run, before this launch */
    int64_t unfinished_us;        /* productive time since a step was last done */
    int64_t cut_us;               /* when the last row was cut */
    struct tern_ledger_row open;  /* grows */
    struct tern_ledger_row rows[TERN_LEDGER_ROWS_MAX]; /* cut, not yet written */
    int row_count;
    struct tern_ledger_account before; /* of earlier launches, as this one sees them */
    struct tern_ledger_row total;      /* of this launch */
    char path[TERN_PATH_BYTES];
    pthread_mutex_t file_lock;  /* one writer at a time */
    pthread_mutex_t close_lock; /* whoever closes second waits for the first */
    bool is_torn, is_lost;      /* file_lock: the file ends inside a line; the last append failed */
    pthread_t thread;
    bool is_started, has_thread, is_closing, is_hurried;
};

struct tern_ledger_options {
    const char *run_dir, *launch; /* the launch's id */
    int machines, ranks;
    double price;         /* of a machine an hour; negative: not known */
    const char *currency; /* three letters */
};

/* The clock begins, with kind START. */
void tern_ledger_start(struct tern_ledger *ledger);
/* Rank 0, once the run directory is this launch's: from now on it is written; first of all, what passed since the launch
 * before. */
TERN_MUST_CHECK tern_status tern_ledger_open(struct tern_ledger *ledger,
                                             const struct tern_ledger_options *options);
/* From now on time is `kind`. Returns what it was. */
enum tern_ledger_kind tern_ledger_enter(struct tern_ledger *ledger, enum tern_ledger_kind kind);
/* The launch goes on from this step, after so many tokens: what earlier launches did beyond it is lost. Reads the file, and
 * writes what it found. */
void tern_ledger_resume(struct tern_ledger *ledger, int64_t step, int64_t tokens);
/* Another step is done; tokens: of the run so far. */
void tern_ledger_step(struct tern_ledger *ledger, int64_t step, int64_t tokens);
/* A row ends here, so that a launch that resumes from here finds its time exactly: call it where state is saved. */
void tern_ledger_cut(struct tern_ledger *ledger);
/* The thread writes soon what has been cut: for when what was saved is likely to be resumed from. */
void tern_ledger_hurry(struct tern_ledger *ledger);
/* Writes what came together, now; the thread does it every second. */
void tern_ledger_flush(struct tern_ledger *ledger);
/* The step under way will never be done: its time was `kind`, HANG_DETECTION or LOST_STEPS. Any thread. */
void tern_ledger_blame(struct tern_ledger *ledger, enum tern_ledger_kind kind);
/* All that was counted, of earlier launches too; launches stay the ledger's. For metrics and summaries. */
void tern_ledger_sum(struct tern_ledger *ledger, struct tern_ledger_account *out);
/* The last row. From any thread, once; later calls do nothing. */
void tern_ledger_close(struct tern_ledger *ledger, enum tern_ledger_state state);
/* For a rank that outlives rank 0: the time since rank 0's last row was spent to find out. No ledger is open here. */
void tern_ledger_bury(const struct tern_ledger_options *options);
/* After close, or instead of it. */
void tern_ledger_fini(struct tern_ledger *ledger);

#endif
