/* command_test.c - commands as users write them, and what becomes of them. */
#include "runtime/base/text.h"
#include "runtime/supervise/command.h"
#include "tests/runtime/fixture.h"

enum {
    WORDS_MAX = 64
};

struct words {
    const char *items[WORDS_MAX];
    char text[1024];
    int count;
};

/* Words at single blanks. */
static struct words *split(const char *line)
{
    static struct words words;
    words.count = 0;
    snprintf(words.text, sizeof words.text, "%s", line);
    char *rest = NULL;
    for (char *word = strtok_r(words.text, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        words.items[words.count++] = word;
    }
    return &words;
}

static tern_status read_line(const char *line, struct tern_launch_command *out)
{
    struct words *words = split(line);
    return tern_launch_command_read(words->count, words->items, out);
}

static void expect_refused(const char *line, const char *sentence)
{
    struct tern_launch_command command;
    assert_int_equal(read_line(line, &command), TERN_ERR_USAGE);
    assert_contains(tern_detail(), sentence);
}

/* What `line` becomes for so many ranks and those hosts. */
static void expect_written(const char *line, int64_t ranks, const char *hosts, const char *expected)
{
    struct tern_launch_command command;
    const struct tern_launch_shape shape = {ranks, hosts};
    const char **argv;
    char found[2048] = "";
    size_t used = 0;
    expect_ok(read_line(line, &command));
    expect_ok(tern_launch_command_write(&command, &shape, &argv));
    for (int i = 0; argv[i] != NULL; i++) {
        used +=
            (size_t)snprintf(found + used, sizeof found - used, "%s%s", i > 0 ? " " : "", argv[i]);
    }
    tern_free(argv);
    assert_string_equal(found, expected);
}

#define KEEPALIVE \
    "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca " \
    "oob_tcp_keepalive_probes 3"

static void test_read(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum tern_launcher launcher;
        int64_t ranks;
        const char *run_dir;
        int hosts_at;
    } rows[] = {
        {"mpirun -np 4 tern train c.yaml --run-dir runs/a", TERN_LAUNCHER_MPIRUN, 4, "runs/a", -1},
        {"/usr/bin/mpirun --np 16 --hostfile hosts tern train c.yaml --run-dir=/x",
         TERN_LAUNCHER_MPIRUN, 16, "/x", 4},
        {"mpiexec.openmpi -n 2 tern finetune base c.yaml", TERN_LAUNCHER_MPIRUN, 2, "run", -1},
        {"nice -n 5 mpirun -np 3 -H a:2,b ./tern train c.yaml", TERN_LAUNCHER_MPIRUN, 3, "run", 7},
        {"mpirun tern train c.yaml --run-dir a --run-dir b", TERN_LAUNCHER_MPIRUN, 0, "b", -1},
        {"srun --mpi=pmix -n 4 tern train c.yaml --run-dir r", TERN_LAUNCHER_SRUN, 0, "r", -1},
        {"tern train c.yaml", TERN_LAUNCHER_NONE, 0, "run", -1},
        {"env A=1 tern train c.yaml --run-dir r", TERN_LAUNCHER_NONE, 0, "r", -1},
        {"./start.sh", TERN_LAUNCHER_NONE, 0, NULL, -1},
        /* what comes after the program is the program's */
        {"mpirun -np 2 tern train c.yaml --set -np 7 --hostfile x", TERN_LAUNCHER_MPIRUN, 2, "run",
         -1},
        {"tern train mpirun", TERN_LAUNCHER_NONE, 0, "run", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_launch_command command;
        expect_ok(read_line(rows[i].line, &command));
        if (command.launcher != rows[i].launcher || command.ranks != rows[i].ranks ||
            command.hosts_at != rows[i].hosts_at) {
            fail_msg("%s: launcher %d, ranks %lld, hosts at %d", rows[i].line,
                     (int)command.launcher, (long long)command.ranks, command.hosts_at);
        }
        if (rows[i].run_dir == NULL) {
            assert_null(command.run_dir);
        } else {
            assert_string_equal(command.run_dir, rows[i].run_dir);
        }
    }
    struct tern_launch_command command;
    struct words *words = split(
        "mpirun --mca plm rsh --mca plm_rsh_agent ssh -np 2 --mca plm_rsh_args x tern train c");
    expect_ok(tern_launch_command_read(words->count, words->items, &command));
    assert_string_equal(command.shell, "ssh");
    assert_string_equal(command.shell_args, "x");
    assert_false(command.has_keepalive);
    assert_int_equal(command.ranks, 2);
}

static void test_write(void **state)
{
    (void)state;
    expect_written("mpirun -np 4 tern train c.yaml", 0, NULL,
                   "mpirun " KEEPALIVE " -x TERN_LAUNCH_ID -np 4 tern train c.yaml");
    expect_written("mpirun -np 4 --hostfile hosts tern train c.yaml -np 4", 3, "run/up",
                   "mpirun " KEEPALIVE
                   " -x TERN_LAUNCH_ID -np 3 --hostfile run/up tern train c.yaml -np 4");
    expect_written("mpirun tern train c.yaml", 12, "run/up",
                   "mpirun " KEEPALIVE
                   " -x TERN_LAUNCH_ID --hostfile run/up -np 12 tern train c.yaml");
    expect_written("nice mpirun -n 4 --host a,b tern train c", 1, "b:1",
                   "nice mpirun " KEEPALIVE " -x TERN_LAUNCH_ID -n 1 --host b:1 tern train c");
    expect_written("mpirun --mca oob_tcp_keepalive_time 9 tern train c", 0, NULL,
                   "mpirun -x TERN_LAUNCH_ID --mca oob_tcp_keepalive_time 9 tern train c");
    expect_written("srun -n 4 tern train c.yaml", 0, NULL, "srun -n 4 tern train c.yaml");
    expect_written("tern train c.yaml", 0, NULL, "tern train c.yaml");
}

static void test_refusals(void **state)
{
    (void)state;
    struct tern_launch_command command;
    assert_int_equal(tern_launch_command_read(0, NULL, &command), TERN_ERR_USAGE);
    assert_contains(tern_detail(), "found no command");
    expect_refused("mpirun -np x tern train c", "found 'x' after -np, expected ranks from 1");
    expect_refused("mpirun -np 0 tern train c", "found '0'");
    expect_refused("mpirun -n -3 tern train c", "found '-3' after -n");
    expect_refused("mpirun -np 99999999999999999999 tern train c", "expected ranks");
    expect_refused("mpirun --hostfile a --host b tern train c", "another list of hosts");
    expect_refused("mpirun -np 2 tern train c : -np 2 tern train c", "a second program");
    expect_ok(read_line("mpirun -np", &command)); /* mpirun's to complain of */
    assert_int_equal(command.ranks_at, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CHECKED(test_read), CHECKED(test_write),
                                       CHECKED(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
