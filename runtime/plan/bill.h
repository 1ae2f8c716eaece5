/* bill.h - what a run will hold in memory, item by item, before any of it is taken; and whether it
 * fits. */
#ifndef TERN_RUNTIME_PLAN_BILL_H
#define TERN_RUNTIME_PLAN_BILL_H

#include "runtime/base/status.h"

#include <stdint.h>

enum {
    TERN_BILL_ITEMS_MAX = 16
};

struct tern_bill {
    const char *where; /* "GPU memory"; NULL: memory. Static */
    struct {
        const char *what; /* static */
        int64_t bytes;
    } items[TERN_BILL_ITEMS_MAX];
    int count;
};

void tern_bill_add(struct tern_bill *bill, const char *what, int64_t bytes);
int64_t tern_bill_total(const struct tern_bill *bill);
/* A table on stderr. */
void tern_bill_print(const struct tern_bill *bill, int local_ranks, int64_t available_bytes);
/* Memory this machine can still give this process: the smallest of MemAvailable and what the limits
 * of its control groups leave (file cache counts as free). */
int64_t tern_memory_available_bytes(void);
/* The same with other places of /proc and /sys/fs/cgroup, for tests. */
int64_t tern_memory_available_under(const char *proc, const char *cgroup);
/* TERN_ERR_CONFIG with advice unless local_ranks times the total fits into available_bytes less a
 * margin of 3 %. */
TERN_MUST_CHECK tern_status tern_bill_check(const struct tern_bill *bill,
                                            int local_ranks,
                                            int64_t available_bytes);

#endif
