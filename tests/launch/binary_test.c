/* binary_test.c - what the binary says about itself: version, help, doctor, what it is linked
 * to. */
#include "io/json.h"
#include "runtime/base/fault.h"
#include "runtime/train/config.h"
#include "tests/base/check.h"
#include "tests/launch/process.h"

#include <string.h>

static struct outcome g_outcome;

static void run_tern(const char *const *args)
{
    run_program(TERN_BINARY, args, NULL, NULL, &g_outcome);
}

static void test_version(void **state)
{
    (void)state;
    run_tern((const char *const[]){"--version", NULL});
    assert_int_equal(g_outcome.exit_code, 0);
    assert_true(strncmp(g_outcome.out, "tern " TERN_VERSION " (commit ",
                        strlen("tern " TERN_VERSION " (commit ")) == 0);
    const char *const parts[] = {
        "\ncpu features: ", "\nbackends:\n",       "  ref ", "  cpu ", "  cuda ",
        "runs here",        "\nlaunchers:\n  mpi "};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_contains(g_outcome.out, parts[i]);
    }
    assert_string_equal(g_outcome.err, "");
}

/* A small instance that serves has neither MPI nor CUDA. */
static void test_links_neither_mpi_nor_cuda(void **state)
{
    (void)state;
    run_program("ldd", (const char *const[]){TERN_BINARY, NULL}, NULL, NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "libc.so");
    const char *const foreign[] = {"libmpi",    "libopen-rte", "libpmix",  "libcuda",
                                   "libcublas", "libnccl",     "not found"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        if (strstr(g_outcome.out, foreign[i]) != NULL) {
            fail_msg("%s is linked:\n%s", foreign[i], g_outcome.out);
        }
    }
}

static const struct {
    const char *words[4];
} g_helps[] = {
    {{"train"}},
    {{"generate"}},
    {{"eval"}},
    {{"score"}},
    {{"bench"}},
    {{"tokenizer"}},
    {{"tokenizer", "train"}},
    {{"tokenizer", "encode"}},
    {{"tokenizer", "decode"}},
    {{"tokenizer", "info"}},
    {{"data"}},
    {{"data", "prepare"}},
    {{"data", "info"}},
    {{"checkpoint"}},
    {{"checkpoint", "list"}},
    {{"checkpoint", "verify"}},
    {{"checkpoint", "digest"}},
    {{"checkpoint", "prune"}},
    {{"doctor"}},
};

static void test_every_command_has_help(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_helps / sizeof g_helps[0]; i++) {
        const char *args[5];
        char usage[96] = "usage: tern";
        int count = 0;
        for (; count < 3 && g_helps[i].words[count] != NULL; count++) {
            args[count] = g_helps[i].words[count];
            strcat(strcat(usage, " "), args[count]);
        }
        args[count] = "--help";
        args[count + 1] = NULL;
        run_tern(args);
        if (g_outcome.exit_code != 0 || strstr(g_outcome.out, usage) == NULL ||
            strstr(g_outcome.out, "example") == NULL || g_outcome.err[0] != '\0') {
            fail_msg("%s --help: exit code %d, expected '%s' and an example in:\n%s\nstderr: %s",
                     usage + 7, g_outcome.exit_code, usage, g_outcome.out, g_outcome.err);
        }
        for (const char *line = g_outcome.out; line != NULL; line = strchr(line, '\n')) {
            line += *line == '\n';
            assert_true(strcspn(line, "\n") <= 120);
        }
    }
}

static void test_top_help(void **state)
{
    (void)state;
    const char *const ways[] = {"--help", "-h", "help"};
    for (size_t i = 0; i < 3; i++) {
        run_tern((const char *const[]){ways[i], NULL});
        assert_int_equal(g_outcome.exit_code, 0);
        assert_contains(g_outcome.out, "usage: tern COMMAND");
        for (size_t k = 0; k < sizeof g_helps / sizeof g_helps[0]; k++) {
            assert_non_null(strstr(g_outcome.out, g_helps[k].words[0]));
        }
    }
    run_tern((const char *const[]){"help", "doctor", NULL});
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "usage: tern doctor");
}

static void test_help_config_names_every_key(void **state)
{
    (void)state;
    run_tern((const char *const[]){"train", "--help-config", NULL});
    assert_int_equal(g_outcome.exit_code, 0);
    for (int i = 0; i < tern_train_schema.row_count; i++) {
        assert_contains(g_outcome.out, tern_train_schema.rows[i].key);
        assert_contains(g_outcome.out, tern_train_schema.rows[i].help);
    }
}

static void test_doctor(void **state)
{
    (void)state;
    run_tern((const char *const[]){"doctor", NULL});
    assert_int_equal(g_outcome.exit_code, 0);
    assert_contains(g_outcome.out, "\nmachine:\n");
    assert_contains(g_outcome.out, "cores_allowed");
    assert_contains(g_outcome.out, "\nproblems:");

    run_tern((const char *const[]){"doctor", "--json", NULL});
    assert_int_equal(g_outcome.exit_code, 0);
    struct tern_json *document;
    if (tern_json_parse("doctor", g_outcome.out, strlen(g_outcome.out), &document) != TERN_OK) {
        fail_msg("%s\n%s", tern_detail(), g_outcome.out);
    }
    tern_json_close(document);
    assert_contains(g_outcome.out, "\"cores_online\":");
    assert_contains(g_outcome.out, "\"backends\":[{");

    run_tern((const char *const[]){"doctor", "--fault-points", NULL});
    assert_int_equal(g_outcome.exit_code, 0);
    for (int i = 0; i < TERN_FAULT_POINT_COUNT; i++) {
        assert_contains(g_outcome.out, tern_fault_point_name((enum tern_fault_point)i));
    }
}

static void test_unknown_variable_is_named(void **state)
{
    (void)state;
    run_program(TERN_BINARY, (const char *const[]){"doctor", NULL}, "TERN_BACKENDS=cpu", NULL,
                &g_outcome);
    assert_int_equal(g_outcome.exit_code, 0);
    assert_string_equal(
        g_outcome.err,
        "tern: warning: environment TERN_BACKENDS is not known and does nothing; nearest "
        "is TERN_BACKEND\n");
}

/* Output that is lost is a failure. */
static void test_full_output(void **state)
{
    (void)state;
    run_program("sh",
                (const char *const[]){"-c", "exec \"$0\" --version >/dev/full", TERN_BINARY, NULL},
                NULL, NULL, &g_outcome);
    assert_int_equal(g_outcome.exit_code, 1);
    assert_string_equal(last_line(g_outcome.err),
                        "tern: error: cannot write to stdout: No space left on device");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_version),
        CHECKED(test_links_neither_mpi_nor_cuda),
        CHECKED(test_every_command_has_help),
        CHECKED(test_top_help),
        CHECKED(test_help_config_names_every_key),
        CHECKED(test_doctor),
        CHECKED(test_unknown_variable_is_named),
        CHECKED(test_full_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
