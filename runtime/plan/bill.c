/* bill.c - the memory bill. */
#include "runtime/plan/bill.h"

#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tern_bill_add(struct tern_bill *bill, const char *what, int64_t bytes)
{
    TERN_CHECK(bill->count < TERN_BILL_ITEMS_MAX);
    bill->items[bill->count].what = what;
    bill->items[bill->count].bytes = bytes;
    bill->count++;
}

int64_t tern_bill_total(const struct tern_bill *bill)
{
    int64_t total = 0;
    for (int i = 0; i < bill->count; i++) {
        total += bill->items[i].bytes;
    }
    return total;
}

void tern_bill_print(const struct tern_bill *bill, int local_ranks, int64_t available_bytes)
{
    char size[TERN_TEXT_BYTES_BYTES];
    char available[TERN_TEXT_BYTES_BYTES];
    tern_log_line("memory of one rank, planned before the first step:");
    for (int i = 0; i < bill->count; i++) {
        if (bill->items[i].bytes > 0) {
            tern_log_line("  %-28s %10s", bill->items[i].what,
                          tern_text_bytes(bill->items[i].bytes, size));
        }
    }
    tern_log_line("  %-28s %10s  (%d rank%s on this machine, %s available)", "total",
                  tern_text_bytes(tern_bill_total(bill), size), local_ranks,
                  local_ranks == 1 ? "" : "s", tern_text_bytes(available_bytes, available));
}

/* First number of a file, -1 if there is none ("max" included). */
static int64_t read_number(const char *path)
{
    FILE *file = fopen(path, "re");
    long long value = -1;
    if (file != NULL) {
        if (fscanf(file, "%lld", &value) != 1) {
            value = -1;
        }
        fclose(file);
    }
    return value;
}

int64_t tern_memory_available_bytes(void)
{
    int64_t available = INT64_MAX;
    FILE *file = fopen("/proc/meminfo", "re");
    if (file != NULL) {
        char line[128];
        long long kib;
        while (fgets(line, sizeof line, file) != NULL) {
            if (sscanf(line, "MemAvailable: %lld kB", &kib) == 1) {
                available = (int64_t)kib * 1024;
            }
        }
        fclose(file);
    }
    int64_t limit = read_number("/sys/fs/cgroup/memory.max");
    int64_t used = read_number("/sys/fs/cgroup/memory.current");
    if (limit >= 0 && used >= 0 && limit - used < available) {
        available = limit - used;
    }
    return available;
}

tern_status tern_bill_check(const struct tern_bill *bill, int local_ranks, int64_t available_bytes)
{
    int64_t needed = tern_bill_total(bill) * local_ranks;
    if (needed <= available_bytes / 100 * 97) {
        return TERN_OK;
    }
    char need[TERN_TEXT_BYTES_BYTES];
    char have[TERN_TEXT_BYTES_BYTES];
    return tern_fail(TERN_ERR_CONFIG,
                     "the run needs %s on this machine (%d rank%s), %s are available; smaller: "
                     "train.recompute: block, a "
                     "smaller train.micro_batch or train.sequence_length, train.precision: bf16, "
                     "fewer ranks here",
                     tern_text_bytes(needed, need), local_ranks, local_ranks == 1 ? "" : "s",
                     tern_text_bytes(available_bytes, have));
}
