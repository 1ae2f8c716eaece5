/* kv_test.c - blocks under random use against a model that keeps everything; what is found
 * again; what goes first. */
#include "runtime/base/random.h"
#include "runtime/serve/kv_blocks.h"
#include "tests/runtime/fixture.h"

enum {
    BLOCKS = 40,
    TABLES = 12,
    TOKENS = 150
};

struct text {
    struct tern_kv_table table;
    int32_t ids[TOKENS];
    int64_t count, written;
};

struct world {
    struct tern_kv_blocks *pool;
    struct text texts[TABLES];
    int32_t memory[BLOCKS][TERN_KV_BLOCK]; /* what was written where: -1 nothing */
    uint64_t seed, draws;
};

static int64_t draw(struct world *world, int64_t below)
{
    return (int64_t)(tern_random_u64(world->seed, TERN_STREAM_TEST, world->draws++) %
                     (uint64_t)below);
}

/* Few first tokens, so that texts often begin alike. */
static void begin(struct world *world, struct text *text)
{
    text->count = 1 + draw(world, TOKENS - 40);
    int32_t kind = (int32_t)draw(world, 3);
    int64_t common = draw(world, text->count + 1);
    for (int64_t i = 0; i < text->count; i++) {
        text->ids[i] = i < common ? kind : (int32_t)draw(world, 4);
    }
    text->written = tern_kv_table_match(&text->table, world->pool, text->ids, text->count - 1);
    assert_int_equal(text->written % TERN_KV_BLOCK, 0);
}

static void check_text(const struct world *world, const struct text *text)
{
    for (int64_t i = 0; i < text->written; i++) {
        int32_t block = text->table.blocks[i / TERN_KV_BLOCK];
        if (world->memory[block][i % TERN_KV_BLOCK] != text->ids[i]) {
            fail_msg("seed %llu: token %lld of a text is %d, its block has %d",
                     (unsigned long long)world->seed, (long long)i, text->ids[i],
                     world->memory[block][i % TERN_KV_BLOCK]);
        }
    }
}

static void write_some(struct world *world, struct text *text)
{
    struct tern_kv_copy copy;
    int64_t rows = 1 + draw(world, 30);
    rows = text->written + rows < text->count ? rows : text->count - text->written;
    if (rows == 0 && text->count < TOKENS) {
        text->ids[text->count++] = (int32_t)draw(world, 4);
        rows = 1;
    }
    bool fits = tern_kv_table_reserve(&text->table, world->pool, text->written,
                                      text->written + rows, &copy);
    if (copy.to >= 0) {
        memcpy(world->memory[copy.to], world->memory[copy.from], sizeof world->memory[0]);
    }
    if (!fits) {
        assert_int_equal(tern_kv_blocks_free(world->pool), 0);
        return;
    }
    for (int64_t i = text->written; i < text->written + rows; i++) {
        world->memory[text->table.blocks[i / TERN_KV_BLOCK]][i % TERN_KV_BLOCK] = text->ids[i];
    }
    text->written += rows;
    if (draw(world, 2) == 0) {
        tern_kv_table_commit(&text->table, world->pool, text->ids, text->written);
    }
}

static void fork_text(struct world *world, const struct text *from, struct text *to)
{
    tern_kv_table_fork(&to->table, world->pool, &from->table, from->written);
    memcpy(to->ids, from->ids, sizeof to->ids);
    to->count = to->written = from->written;
}

/* Every block is held by as many tables as it says, and those held by none are free. */
static void check_counts(const struct world *world)
{
    int32_t refs[BLOCKS] = {0};
    int64_t held = 0;
    for (int i = 0; i < TABLES; i++) {
        for (int64_t b = 0; b < world->texts[i].table.count; b++) {
            refs[world->texts[i].table.blocks[b]]++;
        }
    }
    for (int32_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(refs[b], tern_kv_blocks_refs(world->pool, b));
        held += refs[b] > 0;
    }
    assert_int_equal(BLOCKS - held, tern_kv_blocks_free(world->pool));
    assert_in_range(tern_kv_blocks_cached(world->pool), 0, BLOCKS - held);
}

static void one_life(uint64_t seed)
{
    static struct world world;
    world = (struct world){.seed = seed};
    memset(world.memory, 0xff, sizeof world.memory);
    expect_ok(tern_kv_blocks_create(BLOCKS, seed, &world.pool));
    for (int i = 0; i < TABLES; i++) {
        expect_ok(tern_kv_table_init(&world.texts[i].table, TOKENS));
    }
    for (int step = 0; step < 3000; step++) {
        struct text *text = &world.texts[draw(&world, TABLES)];
        struct text *other = &world.texts[draw(&world, TABLES)];
        int64_t what = draw(&world, 10);
        if (text->count == 0) {
            if (what < 2 && other->written > 0) {
                fork_text(&world, other, text);
            } else {
                begin(&world, text);
            }
        } else if (what < 8) {
            write_some(&world, text);
        } else {
            tern_kv_table_truncate(&text->table, world.pool, 0);
            text->count = text->written = 0;
        }
        check_text(&world, text);
        check_text(&world, other);
        check_counts(&world);
    }
    for (int i = 0; i < TABLES; i++) {
        check_text(&world, &world.texts[i]);
        tern_kv_table_truncate(&world.texts[i].table, world.pool, 0);
        tern_kv_table_fini(&world.texts[i].table);
    }
    assert_int_equal(tern_kv_blocks_free(world.pool), BLOCKS);
    tern_kv_blocks_destroy(world.pool);
}

static void test_random_use(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        one_life(seed);
    }
}

/* Writes and commits a text of `count` equal tokens, and lets it go. */
static void pass_by(struct tern_kv_blocks *pool, int32_t token, int64_t count)
{
    struct tern_kv_table table;
    struct tern_kv_copy copy;
    int32_t ids[TOKENS];
    for (int64_t i = 0; i < count; i++) {
        ids[i] = token;
    }
    expect_ok(tern_kv_table_init(&table, TOKENS));
    int64_t found = tern_kv_table_match(&table, pool, ids, count);
    assert_true(tern_kv_table_reserve(&table, pool, found, count, &copy));
    tern_kv_table_commit(&table, pool, ids, count);
    tern_kv_table_truncate(&table, pool, 0);
    tern_kv_table_fini(&table);
}

static int64_t known(const struct tern_kv_blocks *pool, int32_t token)
{
    int32_t ids[TOKENS];
    for (int64_t i = 0; i < TOKENS; i++) {
        ids[i] = token;
    }
    return tern_kv_table_probe(pool, ids, TOKENS) / TERN_KV_BLOCK;
}

/* Blocks that nothing is known by are taken before those that something is. */
static void test_unknown_goes_first(void **state)
{
    (void)state;
    struct tern_kv_blocks *pool;
    struct tern_kv_table table;
    struct tern_kv_copy copy;
    expect_ok(tern_kv_blocks_create(8, 1, &pool));
    pass_by(pool, 1, 96);
    expect_ok(tern_kv_table_init(&table, TOKENS));
    assert_true(tern_kv_table_reserve(&table, pool, 0, 32, &copy)); /* and never committed */
    tern_kv_table_truncate(&table, pool, 0);
    pass_by(pool, 2, 32);
    assert_int_equal(known(pool, 1), 6);
    assert_int_equal(known(pool, 2), 2);
    tern_kv_table_fini(&table);
    tern_kv_blocks_destroy(pool);
}

/* Of 8 blocks: what was used last stays, of one text its end goes first, blocks that are known by
 * nothing go before all. */
static void test_least_recently_used(void **state)
{
    (void)state;
    struct tern_kv_blocks *pool;
    expect_ok(tern_kv_blocks_create(8, 1, &pool));
    pass_by(pool, 1, 48);
    pass_by(pool, 2, 48);
    assert_int_equal(tern_kv_blocks_cached(pool), 6);
    pass_by(pool, 3, 32);
    assert_int_equal(known(pool, 1), 3);
    assert_int_equal(known(pool, 2), 3);
    pass_by(pool, 1, 48); /* found, and the latest now */
    pass_by(pool, 4, 16);
    assert_int_equal(known(pool, 2), 2);
    pass_by(pool, 5, 32);
    assert_int_equal(known(pool, 2), 0);
    assert_int_equal(known(pool, 1), 3);
    assert_int_equal(known(pool, 3), 2);
    assert_int_equal(tern_kv_blocks_free(pool), 8);
    tern_kv_blocks_destroy(pool);
}

/* A block is known by all tokens before it too. */
static void test_prefix_is_whole(void **state)
{
    (void)state;
    struct tern_prefix *prefix;
    int32_t ids[TERN_KV_BLOCK] = {7};
    int32_t others[TERN_KV_BLOCK] = {8};
    expect_ok(tern_prefix_create(4, 99, &prefix));
    assert_int_equal(tern_prefix_find(prefix, 0, ids), -1);
    uint64_t first = tern_prefix_add(prefix, 0, 0, ids);
    uint64_t second = tern_prefix_add(prefix, 1, first, ids);
    assert_int_equal(tern_prefix_find(prefix, 0, ids), 0);
    assert_int_equal(tern_prefix_find(prefix, first, ids), 1);
    assert_int_equal(tern_prefix_find(prefix, second, ids), -1);
    assert_int_equal(tern_prefix_find(prefix, 0, others), -1);
    assert_true(tern_prefix_add(prefix, 2, 0, ids) == first); /* the first one stays known */
    assert_true(tern_prefix_serial(prefix, 2) == 0);
    tern_prefix_forget(prefix, 0);
    assert_int_equal(tern_prefix_find(prefix, 0, ids), -1);
    uint64_t again = tern_prefix_add(prefix, 3, 0, ids);
    assert_true(again != first);
    assert_int_equal(tern_prefix_find(prefix, again, ids),
                     -1); /* block 1 belongs to what was forgotten */
    tern_prefix_destroy(prefix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_random_use),
        CHECKED(test_least_recently_used),
        CHECKED(test_unknown_goes_first),
        CHECKED(test_prefix_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
