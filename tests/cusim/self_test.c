/* self_test.c - the simulated CUDA on small programs: the right ones pass whatever the seed, and each wrong one is caught
 * with the sentence that says why. Every case runs in a process of its own, cusim_cases. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* needs the four above */
/* clang-format on */

enum {
    SEEDS = 5,
    TEXT_BYTES = 4096
};

/* What must come of a case: NULL, it passes; else its report has this in it; a bar parts texts of which one does. */
static const struct expectation {
    const char *name, *report;
} g_expectations[] = {
    /* threads */
    {"sum", NULL},
    {"sum_no_barrier", "race: |shared scratch (512 bytes), which was never written"},
    {"sum_no_last_barrier", "race: "},
    {"block_sum", NULL},
    {"divergent_barrier", "divergent barrier: __syncthreads at cases_threads.cu:"},
    {"barrier_of_some", "waits at __syncthreads cases_threads.cu:|threads have already returned"},
    {"return_before_barrier", "waits at __syncthreads|threads have already returned"},
    {"early_return", NULL},
    {"shuffle_left_out", "with mask 0xffff, which leaves out the calling lane"},
    {"shuffle_other_mask", "with mask 0xffffffff waits for lane|waits for it at __shfl_sync"},
    {"shuffle_from_outside", "reads lane 20, which takes no part in it"},
    {"shuffle_after_return", "__shfl_sync"},
    {"shuffle_against_barrier", "deadlock: every thread waits for another: "},
    {"shuffles", NULL},
    {"swap_in_warp", NULL},
    {"swap_unordered", "race: "},
    {"warp_order_across_warps", "race: |shared tile (512 bytes), which was never written"},
    {"shared_not_written", "reads byte 12 of shared tile (512 bytes), which was never written"},
    {"shared_index", "index 32 is outside the array"},
    {"dynamic_index", "writes byte 512 of dynamic shared memory (512 bytes)"},
    {"use_dynamic", NULL},
    {"no_dynamic", "was launched with 0 bytes of it"},
    {"too_much_shared", "bytes of static shared memory, at most 49152 are there"},
    {"copy_tiles", NULL},
    {"copy_no_wait", "race: "},
    {"copy_wait_too_little", "race: "},
    {"copy_no_barrier", "race: |shared tile (4096 bytes), which was never written"},
    {"copy_no_commit", "race: "},
    {"product", NULL},
    {"product_misaligned", "ldmatrix of a row at "},
    {"load_matrix_too_soon", "race: "},
    {"mma_in_part", "mma in a warp of which only the lanes 0xfffff are there|waits for it at mma"},
    /* memory */
    {"scale", NULL},
    {"scale_too_far", "not allocated, 0 bytes behind the end of allocation 1 of 400 bytes"},
    {"scale_unwritten", "of the 400 of allocation 1 on GPU 0, which was never written"},
    {"read_unwritten_on_host", "cudaMemcpyAsync reads byte 0 of the 400 of allocation 1"},
    {"copy_unwritten", NULL},
    {"use_after_free", "reads device memory that is not allocated"},
    {"double_free", "cudaFree of "},
    {"copy_too_much", "a copy of 404 bytes, whose target is byte 0 of the 400"},
    {"set_host_memory", "a memset of 400 bytes, whose target is pageable host memory"},
    {"host_argument", "argument 1 of kernel scale"},
    {"host_pointer_in_struct", "reads pageable host memory"},
    {"pointer_in_struct", NULL},
    {"memory_of_other_gpu", "reads memory of another GPU"},
    {"host_touches", "the host touches byte 12 of the 400 of allocation 1"},
    {"same_place", "by another block of the same kernel"},
    {"read_neighbour", "by another block of the same kernel"},
    {"own_places", NULL},
    {"halves", NULL},
    {"wide", NULL},
    {"wide_misaligned", "is not aligned for its type"},
    {"wide_too_far", "not allocated, 0 bytes behind the end of allocation 1 of 1040 bytes"},
    {"shift_too_far", "a shift by too much"},
    {"cast_too_large", "does not fit the integer"},
    {"launch_limits", NULL},
    {"out_of_memory", NULL},
    {"addresses_come_round", NULL},
    {"leak_memory", "at exit 1 of device memory are still there"},
    /* streams */
    {"read_after_write", NULL},
    {"read_after_write_unordered", "no event or stream order lies between"},
    {"write_after_read", NULL},
    {"write_after_read_unordered", "no event or stream order lies between"},
    {"write_after_two_reads", NULL},
    {"write_after_two_reads_unordered", "no event or stream order lies between"},
    {"copy_after_write", NULL},
    {"copy_after_write_unordered", "no event or stream order lies between"},
    {"download_after_write", NULL},
    {"download_after_write_unordered", "no event or stream order lies between"},
    {"set_after_write", NULL},
    {"set_after_write_unordered", "no event or stream order lies between"},
    {"event_too_early", "no event or stream order lies between"},
    {"event_never_recorded", NULL},
    {"stream_synchronize", NULL},
    {"event_synchronize", NULL},
    {"event_query", NULL},
    {"legacy_order", NULL},
    {"upload", NULL},
    {"upload_source_reused", "was changed before the host had waited for the copy"},
    {"download", NULL},
    {"download_read_early", "does not hold: s.host[9] == 3"},
    {"through_pinned", NULL},
    {"pageable", NULL},
    {"host_function", NULL},
    {"bad_handles", NULL},
    {"leak_stream", "at exit 1 of streams are still there"},
    {"leak_event", "at exit 1 of events are still there"},
    {"leak_pinned", "at exit 1 of pinned host memory are still there"},
    /* graphs */
    {"replay", NULL},
    {"fork_and_join", NULL},
    {"fork_and_join_late", "no event or stream order lies between"},
    {"launch_unordered", "no event or stream order lies between"},
    {"forbidden", NULL},
    {"unjoined", NULL},
    {"leak_graph", "at exit 1 of graphs are still there"},
    /* products */
    {"product_right", NULL},
    {"product_types", NULL},
    {"product_epilogues", NULL},
    {"product_shapes", NULL},
    {"product_preferences", NULL},
    {"product_workspace", NULL},
    {"product_order", NULL},
    {"product_a_misaligned", "is not aligned to 16 bytes, as the chosen algorithm needs"},
    {"product_d_misaligned", "is not aligned to 16 bytes, as the chosen algorithm needs"},
    {"product_bias_misaligned", "the bias at "},
    {"product_aux_misaligned", "aux at "},
    {"product_workspace_misaligned", "the workspace at "},
    {"product_into_factor", "D is also a factor"},
    {"product_other_algorithm", "the algorithm is not one of m=16 n=8 k=64"},
    {"product_a_too_short", "cublasLtMatmul"},
    {"product_d_too_short", "cublasLtMatmul"},
    {"product_bias_too_short", "cublasLtMatmul"},
    {"product_a_unwritten", "was never written"},
    {"product_host_memory", "is pageable host memory"},
    {"product_shared_workspace", "no event or stream order lies between"},
    {"product_shared_output", "no event or stream order lies between"},
    {"product_after_event", NULL},
    {"leak_handle", "at exit 1 of cublasLtHandle are still there"},
};

enum {
    COUNT = sizeof g_expectations / sizeof g_expectations[0]
};

static const char *program(void)
{
    const char *path = getenv("CUSIM_CASES");
    if (path == NULL) {
        fail_msg("CUSIM_CASES is not set: it names the program cusim_cases");
    }
    return path;
}

/* Runs the program and keeps the start of what it says. */
static int run(const char *arguments, int seed, char text[TEXT_BYTES])
{
    char command[TEXT_BYTES];
    snprintf(command, sizeof command, "CUSIM_SEED=%d exec %s %s 2>&1", seed, program(), arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(text, 1, TEXT_BYTES - 1, pipe);
    text[length] = '\0';
    return pclose(pipe);
}

/* Has the text one of the alternatives in it? */
static bool has_one_of(const char *text, const char *alternatives)
{
    char copy[TEXT_BYTES];
    snprintf(copy, sizeof copy, "%s", alternatives);
    for (char *it = strtok(copy, "|"); it != NULL; it = strtok(NULL, "|")) {
        if (strstr(text, it) != NULL) {
            return true;
        }
    }
    return false;
}

static void test_case(void **state)
{
    const struct expectation *want = *state;
    char text[TEXT_BYTES];
    if (want->report != NULL && getenv("CUSIM_ONLY_RIGHT") != NULL) {
        print_message("skipped: CUSIM_ONLY_RIGHT: a build without the hooks that would find it\n");
        skip();
    }
    for (int seed = 1; seed <= SEEDS; seed++) {
        int status = run(want->name, seed, text);
        bool is_passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (want->report == NULL && !is_passed) {
            fail_msg("seed %d, expected to pass (status %#x):\n%s", seed, (unsigned)status, text);
        }
        if (want->report != NULL && (is_passed || !has_one_of(text, want->report))) {
            fail_msg("seed %d, expected a report with '%s' (status %#x):\n%s", seed, want->report,
                     (unsigned)status, text);
        }
    }
    if (want->report != NULL) {
        text[strcspn(text, "\n")] = '\0';
        print_message("    %s\n", text);
    }
}

/* The program has no case that is not in the table. */
static void test_all_are_expected(void **state)
{
    (void)state;
    char text[TEXT_BYTES];
    run("", 1, text);
    int found = 0;
    for (char *name = strtok(text, "\n"); name != NULL; name = strtok(NULL, "\n")) {
        found++;
        bool is_known = false;
        for (int i = 0; i < COUNT; i++) {
            is_known |= strcmp(g_expectations[i].name, name) == 0;
        }
        if (!is_known) {
            fail_msg("the case %s is not in the table", name);
        }
    }
    assert_int_equal(found, COUNT);
}

int main(void)
{
    struct CMUnitTest tests[COUNT + 1];
    for (int i = 0; i < COUNT; i++) {
        tests[i] = (struct CMUnitTest){.name = g_expectations[i].name,
                                       .test_func = test_case,
                                       .initial_state = (void *)&g_expectations[i]};
    }
    tests[COUNT] =
        (struct CMUnitTest){.name = "all are expected", .test_func = test_all_are_expected};
    return cmocka_run_group_tests_name("cusim", tests, NULL, NULL);
}
