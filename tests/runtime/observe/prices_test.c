/* prices_test.c - prices found, and sentences about what a catalogue lacks. */
#include "runtime/observe/prices.h"
#include "tests/runtime/fixture.h"

#include <math.h>

static char g_root[TERN_PATH_BYTES];
static char g_path[TERN_PATH_BYTES];

/* Columns in an order of their own, a Python dictionary in quotes, lines of DOS. */
static const char g_catalogue[] =
    "InstanceType,AcceleratorName,GpuInfo,Region,Price,SpotPrice\r\n"
    "p5.48xlarge,H100,\"{'Gpus': [{'Name': \"\"H100\"\", 'Count': 8.0}]}\",us-east-1,55.04,20.5\r\n"
    "p5.48xlarge,H100,\"{'a', 'b'}\",us-east-1,55.04,17.25\r\n"
    "p5.48xlarge,H100,x,eu-north-1,60.5,\r\n"
    "p4d.24xlarge,A100,x,us-east-1,21.96,nan\r\n"
    "\r\n"
    "\"quoted,type\",T4,x,us-east-1,0.5,0.1\r\n"
    "free,T4,x,us-east-1,0,-1";

static int set_up(void **state)
{
    (void)state;
    make_folder(g_root);
    expect_ok(tern_path_join(g_path, g_root, "vms.csv"));
    expect_ok(tern_file_replace(g_path, g_catalogue, sizeof g_catalogue - 1));
    return 0;
}

static int tear_down(void **state)
{
    remove_folder(g_root);
    return check_no_live_blocks(state);
}

static void expect_price(const char *instance, const char *region, bool is_spot, double expected)
{
    double price;
    expect_ok(tern_price_find(g_path, instance, region, is_spot, &price));
    if (price != expected) {
        fail_msg("%s: %g, expected %g", instance, price, expected);
    }
}

static void expect_refused(const char *instance, const char *region, bool is_spot, const char *why)
{
    double price;
    assert_int_equal(tern_price_find(g_path, instance, region, is_spot, &price), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), why);
}

static void test_prices(void **state)
{
    (void)state;
    expect_price("p5.48xlarge", "us-east-1", false, 55.04);
    expect_price("p5.48xlarge", "us-east-1", true, 17.25);
    expect_price("p5.48xlarge", "eu-north-1", false, 60.5);
    expect_price("p5.48xlarge", NULL, false, 55.04);
    expect_price("quoted,type", NULL, true, 0.1);
    expect_refused("p5.48xlarge", "eu-north-1", true,
                   "no spot price of 'p5.48xlarge' in region eu-north-1");
    expect_refused("p4d.24xlarge", NULL, true, "no spot price of 'p4d.24xlarge'");
    expect_refused("free", NULL, false, "no price of 'free'");
    expect_refused("free", NULL, true, "no spot price of 'free'");
    expect_refused("p5.48xlarg", NULL, false,
                   "no instance type 'p5.48xlarg', nearest is 'p5.48xlarge'");
    expect_refused("p5.48xlarge", "mars", false, "no 'p5.48xlarge' in region 'mars'");
}

static void write_file(const char *text)
{
    expect_ok(tern_file_replace(g_path, text, strlen(text)));
}

static void test_what_is_no_catalogue(void **state)
{
    (void)state;
    write_file("");
    expect_refused("a", NULL, false, "is empty");
    write_file("InstanceType,Region\na,b\n");
    expect_refused("a", NULL, false, "no column Price");
    write_file("InstanceType,Price");
    expect_refused("a", NULL, false, "no instance type 'a'");
    write_file("InstanceType,Price\na,1\n");
    expect_refused("a", "b", false, "no column Region");
    write_file("InstanceType,Price\na,\"1");
    expect_price("a", NULL, false, 1);
    write_file("InstanceType,Price\n,,,,\n\"\n\"\"\"\na\n");
    expect_refused("a", NULL, false, "no price of 'a'");
    expect_ok(tern_file_remove(g_path));
    expect_refused("a", NULL, false, "vms.csv");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_prices),
        IN_FOLDER(test_what_is_no_catalogue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
