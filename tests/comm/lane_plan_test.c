/* lane_plan_test.c - plans and ranges for every (lanes, ranks), against their definitions. */
#include "comm/lane_tree.h"
#include "tests/comm/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

/* Every lane is in one node of one rank, and no two neighbours of a rank could be one larger subtree. */
static void test_nodes_cover_lanes(void **state)
{
    (void)state;
    for (int lanes = 1; lanes <= TERN_LANES_MAX; lanes *= 2) {
        for (int ranks = 1; ranks <= lanes; ranks++) {
            int next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                struct tern_lane_plan plan;
                assert_int_equal(tern_lane_plan_make(lanes, ranks, rank, &plan), TERN_OK);
                assert_int_equal(plan.first_lane, rank * lanes / ranks);
                assert_int_equal(plan.first_lane, next);
                assert_true(plan.lane_count >= 1 && plan.buffers <= TERN_LANE_NODES_MAX);
                for (int i = 0; i < plan.node_count; i++) {
                    struct tern_lane_node node = plan.nodes[i];
                    assert_int_equal(node.first, next);
                    assert_int_equal(node.count & (node.count - 1), 0);
                    assert_int_equal(node.first % node.count, 0);
                    next += node.count;
                    if (i > 0 && plan.nodes[i - 1].count == node.count) {
                        assert_int_not_equal(plan.nodes[i - 1].first % (2 * node.count), 0);
                    }
                }
                assert_int_equal(next, plan.first_lane + plan.lane_count);
                assert_true(plan.buffers >= plan.node_count);
                assert_true(plan.buffers <= plan.lane_count);
            }
            assert_int_equal(next, lanes);
            assert_int_equal(tern_lane_first(lanes, ranks, ranks), lanes);
        }
    }
}

static void test_known_plans(void **state)
{
    (void)state;
    struct tern_lane_plan plan;
    assert_int_equal(tern_lane_plan_make(8, 1, 0, &plan), TERN_OK);
    assert_int_equal(plan.node_count, 1);
    assert_int_equal(plan.buffers, 4);
    assert_int_equal(tern_lane_fold_count(&plan, 3), 2);
    assert_int_equal(tern_lane_fold_count(&plan, 7), 3);
    assert_int_equal(tern_lane_plan_make(8, 3, 1, &plan), TERN_OK); /* lanes 2, 3, 4 */
    assert_int_equal(plan.node_count, 2);
    assert_int_equal(plan.nodes[0].first, 2);
    assert_int_equal(plan.nodes[0].count, 2);
    assert_int_equal(plan.nodes[1].first, 4);
    assert_int_equal(plan.nodes[1].count, 1);
    assert_int_equal(tern_lane_fold_count(&plan, 3), 1); /* not with lanes 0 and 1 */
}

static void test_refusals(void **state)
{
    (void)state;
    struct tern_lane_plan plan;
    const int bad[][2] = {{0, 1}, {3, 1}, {128, 1}, {-8, 1}, {8, 0}, {8, 9}, {1, 2}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tern_lane_plan_make(bad[i][0], bad[i][1], 0, &plan), TERN_ERR_CONFIG);
    }
    assert_non_null(strstr(tern_detail(), "2 ranks share 1 lanes"));
}

/* The parts lie side by side, cover the vector, end at cuts, and none is further from even than a cut. */
static void check_ranges(int ranks, const int64_t *cuts, int64_t count, int64_t widest)
{
    struct tern_range ranges[TERN_LANES_MAX];
    tern_lane_ranges(ranks, cuts, count, ranges);
    int64_t n = cuts[count - 1];
    int64_t covered = 0;
    for (int r = 0; r < ranks; r++) {
        bool ends_at_cut = false;
        for (int64_t i = 0; i < count; i++) {
            ends_at_cut = ends_at_cut || cuts[i] == ranges[r].end;
        }
        assert_true(ends_at_cut && ranges[r].begin <= ranges[r].end);
        assert_true(ranges[r].end - ranges[r].begin <= n / ranks + 1 + widest);
        covered += ranges[r].end - ranges[r].begin;
    }
    assert_int_equal(covered, n);
    if ((ranks & (ranks - 1)) != 0) {
        return;
    }
    for (int r = 0; r < ranks / 2 * 2; r++) { /* bit 0: which half of the vector */
        bool is_low = ranges[r].end <= ranges[ranks > 1 ? 1 : 0].end && r % 2 == 0;
        assert_true(ranks == 1 || is_low == (r % 2 == 0));
        for (int q = 0; q < ranks && ranks > 1; q++) {
            assert_true(r % 2 >= q % 2 || ranges[r].end <= ranges[q].begin);
        }
    }
}

static void test_ranges(void **state)
{
    (void)state;
    const int64_t even[] = {0, 100, 200, 300, 400, 500, 600, 700, 800};
    const int64_t uneven[] = {0, 1, 2, 500, 501, 640, 799, 800};
    const int64_t empty[] = {0};
    const int64_t whole[] = {0, 1000};
    for (int ranks = 1; ranks <= TERN_LANES_MAX; ranks++) {
        check_ranges(ranks, even, 9, 100);
        check_ranges(ranks, uneven, 8, 498);
        check_ranges(ranks, empty, 1, 0);
        check_ranges(ranks, whole, 2, 1000);
    }
    struct tern_range four[4];
    tern_lane_ranges(4, even, 9, four);
    assert_int_equal(four[0].begin, 0);
    assert_int_equal(four[2].begin, 200);
    assert_int_equal(four[1].begin, 400);
    assert_int_equal(four[3].begin, 600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_cover_lanes),
        cmocka_unit_test(test_known_plans),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
