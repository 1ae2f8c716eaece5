/* agree_test.c - whoever fails, all ranks hear the same of the first. */
#include "runtime/train/agree.h"
#include "tests/runtime/fixture.h"

struct round {
    unsigned failing; /* bit r: rank r fails */
    int ranks;
};

static tern_status agree_main(struct tern_comm *comm, void *arg)
{
    const struct round *round = arg;
    tern_status mine = TERN_OK;
    if (round->failing >> comm->rank & 1) {
        mine = tern_fail(comm->rank % 2 == 0 ? TERN_ERR_CONFIG : TERN_ERR_NO_SPACE,
                         "%d has its own reason", comm->rank);
    } else {
        tern_detail_set("an old sentence that is nobody's business");
    }
    tern_status all = tern_agree(comm, mine);
    if (round->failing == 0) {
        return all;
    }
    int first = __builtin_ctz(round->failing);
    char expected[64];
    char name[24];
    snprintf(name, sizeof name, "rank %d: ", first);
    snprintf(expected, sizeof expected, "%s%d has its own reason",
             first == 0 || comm->size == 1 ? "" : name, first);
    char found[TERN_DETAIL_BYTES];
    snprintf(found, sizeof found, "%s", tern_detail());
    tern_status status = first % 2 == 0 ? TERN_ERR_CONFIG : TERN_ERR_NO_SPACE;
    MUST(all == status, "rank %d: found %s, expected %s", comm->rank, tern_status_name(all),
         tern_status_name(status));
    MUST(strcmp(found, expected) == 0, "rank %d: found '%.200s', expected '%s'", comm->rank, found,
         expected);
    return tern_agree(comm, TERN_OK); /* and the group lives on */
}

static void test_agree(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) {
        for (unsigned failing = 0; failing < 1U << ranks; failing++) {
            struct round round = {.failing = failing, .ranks = ranks};
            run_ranks(ranks, agree_main, &round);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
