/* hosts_test.c - hostfiles good and bad, and how many ranks are left when hosts are. */
#include "runtime/supervise/hosts.h"
#include "tests/runtime/fixture.h"

#include <unistd.h>

static struct tern_hosts parse(const char *text)
{
    struct tern_hosts hosts;
    expect_ok(tern_hosts_parse("hosts", text, strlen(text), &hosts));
    return hosts;
}

static void expect_refused(const char *text, size_t bytes, const char *sentence)
{
    struct tern_hosts hosts;
    assert_int_equal(tern_hosts_parse("hosts", text, bytes, &hosts), TERN_ERR_INPUT);
    assert_contains(tern_detail(), sentence);
    assert_null(hosts.items);
}

#define REFUSED(text, sentence) expect_refused(text, sizeof text - 1, sentence)

static void test_read(void **state)
{
    (void)state;
    struct tern_hosts hosts = parse(
        "# four\n\nh1 slots=2\n  h2\tslots=3 max_slots=4 # two\r\nh3:5\nh4\nh5 max-slots=2\nh1");
    const char *const names[] = {"h1", "h2", "h3", "h4", "h5"};
    const int64_t slots[] = {3, 3, 5, 0, 2};
    assert_int_equal(hosts.count, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(hosts.items[i].name, names[i]);
        assert_int_equal(hosts.items[i].slots, slots[i]);
        assert_false(hosts.items[i].is_up || hosts.items[i].is_used || hosts.items[i].is_local);
    }
    tern_hosts_fini(&hosts);
    hosts = parse("localhost slots=1\n127.0.0.1\n");
    assert_true(hosts.items[0].is_local && hosts.items[1].is_local);
    tern_hosts_fini(&hosts);
    expect_ok(tern_hosts_parse_list("a:2,b,c:1,a", &hosts));
    assert_int_equal(hosts.count, 3);
    assert_int_equal(hosts.items[0].slots, 3);
    assert_int_equal(hosts.items[1].slots, 1);
    tern_hosts_fini(&hosts);
}

static void test_refusals(void **state)
{
    (void)state;
    REFUSED("", "hosts: found no host");
    REFUSED("# nothing\n\n", "found no host");
    REFUSED("a\nb slots=x\n", "hosts:2: found 'slots=x'");
    REFUSED("a slots=0", "hosts:1: found 'slots=0', expected a number from 1");
    REFUSED("a slots=99999999999999999999", "expected a number from 1");
    REFUSED("a slots", "expected slots=N");
    REFUSED("a slot=1", "found 'slot=1' after 'a'");
    REFUSED("a:", "found '' after 'a:'");
    REFUSED("a:b", "found 'b' after 'a:'");
    REFUSED("-oProxyCommand=x", "found '-oProxyCommand=x'");
    REFUSED("a;b", "expected a host's name");
    REFUSED("$(x)", "expected a host's name");
    REFUSED("a\0b", "expected a line of text");
    char line[5000];
    memset(line, 'a', sizeof line);
    expect_refused(line, sizeof line, "expected a line of text below");
    expect_refused(line, 254, "expected a host's name");
    struct tern_hosts hosts;
    assert_int_equal(tern_hosts_parse_list("", &hosts), TERN_ERR_INPUT);
    assert_int_equal(tern_hosts_parse_list("a,,b", &hosts), TERN_ERR_INPUT);
    assert_int_equal(tern_hosts_parse_list("a:0", &hosts), TERN_ERR_INPUT);
    assert_contains(tern_detail(), "found '0' after 'a:'");
}

static void test_too_many(void **state)
{
    (void)state;
    struct tern_text text;
    tern_text_init(&text);
    for (int i = 0; i < TERN_HOSTS_MAX; i++) {
        expect_ok(tern_text_printf(&text, "node-%d.example.org slots=8\n", i));
    }
    struct tern_hosts hosts = parse(text.data);
    assert_int_equal(hosts.count, TERN_HOSTS_MAX);
    assert_string_equal(hosts.items[4095].name, "node-4095.example.org");
    tern_hosts_fini(&hosts);
    expect_ok(tern_text_printf(&text, "one-more\n"));
    expect_refused(text.data, text.length, "hosts:4097: found more than 4096 hosts");
    tern_text_fini(&text);
}

static void set_up_hosts(struct tern_hosts *hosts, const char *up)
{
    for (int i = 0; i < hosts->count; i++) {
        hosts->items[i].is_up = up[i] == '+';
    }
}

static void expect_written(const struct tern_hosts *hosts,
                           int64_t wanted,
                           bool is_list,
                           const char *expected)
{
    struct tern_text text;
    tern_text_init(&text);
    expect_ok(tern_hosts_write(hosts, wanted, is_list, &text));
    assert_string_equal(text.data, expected);
    tern_text_fini(&text);
}

static void test_ranks(void **state)
{
    (void)state;
    struct tern_hosts hosts = parse("a slots=2\nb slots=2\nc slots=4\n");
    set_up_hosts(&hosts, "+++");
    assert_int_equal(tern_hosts_ranks(&hosts, 8), 8);
    assert_int_equal(tern_hosts_ranks(&hosts, 4), 4); /* never more than asked for */
    assert_int_equal(tern_hosts_ranks(&hosts, 0), 8);
    set_up_hosts(&hosts, "+-+");
    assert_int_equal(tern_hosts_ranks(&hosts, 8), 6);
    assert_int_equal(tern_hosts_ranks(&hosts, 4), 4); /* a spare host stands in */
    expect_written(&hosts, 8, false, "a slots=2\nc slots=4\n");
    expect_written(&hosts, 8, true, "a:2,c:4");
    tern_hosts_fini(&hosts);
    /* hosts that do not say share evenly */
    hosts = parse("h1\nh2\nh3\nh4\n");
    const char *const up[] = {"++++", "++-+", "+--+", "---+"};
    for (int i = 0; i < 4; i++) {
        set_up_hosts(&hosts, up[i]);
        assert_int_equal(tern_hosts_up(&hosts), 4 - i);
        assert_int_equal(tern_hosts_ranks(&hosts, 4), 4 - i);
        assert_int_equal(tern_hosts_ranks(&hosts, 8), 8 - 2 * i);
        assert_int_equal(tern_hosts_ranks(&hosts, 0), 0); /* mpirun counts cores */
    }
    expect_written(&hosts, 4, false, "h4 slots=1\n");
    expect_written(&hosts, 0, false, "h4\n");
    tern_hosts_fini(&hosts);
}

static void test_find(void **state)
{
    (void)state;
    struct tern_hosts hosts = parse("h1\nh10.example.org\nh2\n");
    assert_string_equal(tern_hosts_find(&hosts, "h1")->name, "h1");
    assert_string_equal(tern_hosts_find(&hosts, "h1.cluster.local")->name, "h1");
    assert_string_equal(tern_hosts_find(&hosts, "h10")->name, "h10.example.org");
    assert_null(tern_hosts_find(&hosts, "h3"));
    assert_null(tern_hosts_find(&hosts, "h"));
    assert_null(tern_hosts_find(&hosts, ""));
    assert_null(tern_hosts_find(&hosts, "*"));
    tern_hosts_fini(&hosts);
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    assert_true(tern_host_is_here(own) && tern_host_is_here("localhost"));
    assert_false(tern_host_is_here("") || tern_host_is_here("no-such-host"));
}

static void test_memory(void **state)
{
    (void)state;
    struct tern_hosts old = parse("a\nb\nc\n");
    set_up_hosts(&old, "+-+");
    old.items[2].misses = 3;
    struct tern_hosts now = parse("c slots=9\nd\na\n");
    tern_hosts_remember(&now, &old);
    assert_true(now.items[0].is_up && !now.items[1].is_up && now.items[2].is_up);
    assert_int_equal(now.items[0].misses, 3);
    assert_int_equal(now.items[0].slots, 9);
    assert_string_equal(now.items[1].name, "d");
    tern_hosts_fini(&old);
    tern_hosts_fini(&now);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_read),  CHECKED(test_refusals), CHECKED(test_too_many),
        CHECKED(test_ranks), CHECKED(test_memory),   CHECKED(test_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
