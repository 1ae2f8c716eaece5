/* ledger_print.h - an account in words, as JSON, and as rows with FOCUS' column names. */
#ifndef TERN_RUNTIME_OBSERVE_LEDGER_PRINT_H
#define TERN_RUNTIME_OBSERVE_LEDGER_PRINT_H

#include "runtime/base/text.h"
#include "runtime/observe/ledger_book.h"

/* One line without an end: "3.42 machine-hours in 4 launches, 96.1 % productive, ...". */
TERN_MUST_CHECK tern_status tern_ledger_print_line(const struct tern_ledger_account *account,
                                                   struct tern_text *out);
/* A line a kind, then the line above. */
TERN_MUST_CHECK tern_status tern_ledger_print_table(const struct tern_ledger_account *account,
                                                    struct tern_text *out);
/* One object: sums, and an array of launches. */
TERN_MUST_CHECK tern_status tern_ledger_print_json(const struct tern_ledger_account *account,
                                                   struct tern_text *out);

/* What the ledger does not know of its machines; NULL or "" where nobody said. */
struct tern_ledger_focus {
    const char *run;      /* resource name: the run directory */
    const char *provider; /* "aws" */
    const char *region;
    const char *instance; /* "p5.48xlarge" */
    const char *pricing;  /* "Standard", "Dynamic" (spot) or "Committed" */
};

/* CSV with columns of FOCUS 1.2, one row a launch and kind of time: estimates, since a job never sees the invoice. */
TERN_MUST_CHECK tern_status tern_ledger_print_focus(const struct tern_ledger_account *account,
                                                    const struct tern_ledger_focus *focus,
                                                    struct tern_text *out);

#endif
