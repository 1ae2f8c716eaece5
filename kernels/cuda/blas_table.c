/* blas_table.c - plans in memory: a table of fixed size, open addressing within a neighbourhood.
 *
 * Training has some tens of shapes; a server has one for every number of tokens that a batch may hold, hence a bound and
 * a victim instead of growth. */
#include "kernels/cuda/blas.h"
#include "runtime/base/mem.h"

#include <string.h>

enum {
    SLOTS = 4096,
    NEIGHBOURS = 8
};

struct slot {
    uint64_t stamp; /* when it was put in; 0: empty */
    struct tern_blas_plan plan;
};

struct tern_blas_table {
    uint64_t now;
    struct slot slots[SLOTS + NEIGHBOURS];
};

struct tern_blas_table *tern_blas_table_create(void)
{
    return tern_alloc_zero("matrix product plans", 1, sizeof(struct tern_blas_table));
}

void tern_blas_table_destroy(struct tern_blas_table *table)
{
    tern_free(table);
}

static struct slot *neighbourhood(struct tern_blas_table *table, const struct tern_blas_key *key)
{
    return &table->slots[tern_blas_hash(TERN_BLAS_HASH_SEED, key, sizeof *key) % SLOTS];
}

static bool is_of(const struct slot *slot, const struct tern_blas_key *key)
{
    return slot->stamp != 0 && memcmp(&slot->plan.key, key, sizeof *key) == 0;
}

bool tern_blas_table_find(struct tern_blas_table *table,
                          const struct tern_blas_key *key,
                          struct tern_blas_plan *out)
{
    const struct slot *first = neighbourhood(table, key);
    for (int i = 0; i < NEIGHBOURS; i++) {
        if (is_of(&first[i], key)) {
            *out = first[i].plan;
            return true;
        }
    }
    return false;
}

void tern_blas_table_put(struct tern_blas_table *table, const struct tern_blas_plan *plan)
{
    struct slot *first = neighbourhood(table, &plan->key);
    struct slot *chosen = first;
    for (int i = 0; i < NEIGHBOURS; i++) {
        if (is_of(&first[i], &plan->key)) {
            chosen = &first[i];
            break;
        }
        if (first[i].stamp < chosen->stamp) {
            chosen = &first[i];
        }
    }
    chosen->plan = *plan;
    chosen->stamp = ++table->now;
}

void tern_blas_table_each(const struct tern_blas_table *table,
                          void (*visit)(const struct tern_blas_plan *plan, void *context),
                          void *context)
{
    for (int i = 0; i < SLOTS + NEIGHBOURS; i++) {
        if (table->slots[i].stamp != 0 && table->slots[i].plan.is_timed) {
            visit(&table->slots[i].plan, context);
        }
    }
}
