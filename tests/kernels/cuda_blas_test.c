/* cuda_blas_test.c - the parts of the CUDA matrix product that need no CUDA: cutting, keys, routes, the table of plans,
 * and its file. */
#include "kernels/cuda/blas.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum {
    MIB = 1 << 20,
    FILE_MAX = 64 << 10
};

static const struct tern_blas_machine g_machine = {.gpu = "NVIDIA H100 80GB HBM3",
                                                   .capability = 90,
                                                   .multiprocessors = 132,
                                                   .library = 130001,
                                                   .driver = 13000};

/* ---- cutting ---- */

struct cut_row {
    const char *what;
    struct tern_gemm_args args;
    bool must_finish;
    size_t scratch;
    enum tern_dtype factor;
    bool copy_a, copy_b, has_sums;
    int64_t m, n; /* 0: smaller than the whole, in whole tiles */
};

static const struct cut_row g_cuts[] = {
    {"all bf16",
     {.m = 64, .n = 32, .k = 16, .a_dtype = TERN_BF16, .b_dtype = TERN_BF16, .d_dtype = TERN_BF16},
     false,
     0,
     TERN_BF16,
     false,
     false,
     false,
     64,
     32},
    {"all f32",
     {.m = 64, .n = 32, .k = 16, .a_dtype = TERN_F32, .b_dtype = TERN_F32, .d_dtype = TERN_F32},
     false,
     0,
     TERN_F32,
     false,
     false,
     false,
     64,
     32},
    {"f32 factors rounded",
     {.m = 64, .n = 32, .k = 16, .compute = TERN_BF16},
     false,
     MIB,
     TERN_BF16,
     true,
     true,
     false,
     64,
     32},
    {"one factor widened",
     {.m = 64, .n = 32, .k = 16, .b_dtype = TERN_BF16},
     false,
     MIB,
     TERN_F32,
     false,
     true,
     false,
     64,
     32},
    {"f32 factors into bf16",
     {.m = 64, .n = 32, .k = 16, .d_dtype = TERN_BF16},
     false,
     MIB,
     TERN_F32,
     false,
     false,
     true,
     64,
     32},
    {"refused by the library",
     {.m = 64, .n = 32, .k = 16, .a_dtype = TERN_BF16, .b_dtype = TERN_BF16, .d_dtype = TERN_BF16},
     true,
     MIB,
     TERN_BF16,
     false,
     false,
     true,
     64,
     32},
    {"gradient of logits: rows",
     {.m = 1024,
      .n = 768,
      .k = 50257,
      .b_dtype = TERN_BF16,
      .d_dtype = TERN_BF16,
      .compute = TERN_BF16},
     false,
     64 * MIB,
     TERN_BF16,
     true,
     false,
     false,
     0,
     768},
    {"gradient of the head: columns of what is stored",
     {.m = 50257, .n = 768, .k = 1024, .trans_a = true, .b_dtype = TERN_BF16, .compute = TERN_BF16},
     false,
     64 * MIB,
     TERN_BF16,
     true,
     false,
     false,
     0,
     768},
};

static void test_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_cuts / sizeof g_cuts[0]; i++) {
        const struct cut_row *row = &g_cuts[i];
        struct tern_blas_cut cut;
        print_message("%s\n", row->what);
        assert_true(tern_blas_cut(&row->args, row->must_finish, row->scratch, &cut));
        assert_int_equal(cut.factor, row->factor);
        assert_int_equal(cut.copy_a, row->copy_a);
        assert_int_equal(cut.copy_b, row->copy_b);
        assert_int_equal(cut.has_sums, row->has_sums);
        assert_int_equal(cut.n, row->n);
        if (row->m != 0) {
            assert_int_equal(cut.m, row->m);
        } else {
            assert_true(cut.m < row->args.m && cut.m > row->args.m / 8);
            assert_int_equal(cut.m % 128, 0);
        }
        assert_true(cut.a_bytes + cut.b_bytes + cut.sums_bytes <= row->scratch);
    }
}

static int64_t below(int64_t n)
{
    static uint64_t index;
    uint64_t stream = tern_random_stream_id(TERN_STREAM_TEST, 0);
    return (int64_t)(tern_random_u64(41, stream, index++) % (uint64_t)n);
}

/* Whatever fits the limits can be cut to the scratch that they ask for, and pieces hold what they say. */
static void test_cut_any(void **state)
{
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const struct tern_op_limits limits = {
            .rows = 1 + below(2000), .width = 1 + below(2000), .vocab = below(60000)};
        int64_t longest = limits.rows > limits.width ? limits.rows : limits.width;
        longest = limits.vocab > longest ? limits.vocab : longest;
        const struct tern_gemm_args args = {
            .m = 1 + below(longest),
            .n = 1 + below(longest),
            .k = 1 + below(longest),
            .trans_a = below(2) != 0,
            .trans_b = below(2) != 0,
            .a_dtype = (enum tern_dtype)below(2),
            .b_dtype = (enum tern_dtype)below(2),
            .d_dtype = (enum tern_dtype)below(2),
            .compute = (enum tern_dtype)below(2),
        };
        struct tern_blas_cut cut;
        size_t scratch = tern_blas_scratch_bytes(&limits);
        assert_true(tern_blas_cut(&args, below(2) != 0, scratch, &cut));
        assert_true(cut.a_bytes + cut.b_bytes + cut.sums_bytes <= scratch);
        assert_true(cut.m >= 1 && cut.m <= args.m && cut.n >= 1 && cut.n <= args.n);
        size_t bytes = tern_dtype_bytes(cut.factor);
        assert_true(!cut.copy_a || cut.a_bytes >= (size_t)(cut.m * args.k) * bytes);
        assert_true(!cut.copy_b || cut.b_bytes >= (size_t)(cut.n * args.k) * bytes);
        assert_true(!cut.has_sums || cut.sums_bytes >= (size_t)(cut.m * cut.n) * 4);
        assert_int_equal((cut.a_bytes | cut.b_bytes) % 256, 0);
    }
    struct tern_blas_cut cut;
    const struct tern_gemm_args args = {.m = 1, .n = 1, .k = 1000, .compute = TERN_BF16};
    assert_false(tern_blas_cut(&args, false, 1000, &cut));
}

/* ---- keys and routes ---- */

static const struct tern_gemm_args g_gelu = {
    .a = {0x1000},
    .b = {0x2000},
    .d = {0x3000},
    .bias = {0x4000},
    .aux = {0x5000},
    .m = 16,
    .n = 24,
    .k = 32,
    .lda = 32,
    .ldb = 24,
    .ldd = 24,
    .epilogue = TERN_EPILOGUE_BIAS_GELU,
    .a_dtype = TERN_BF16,
    .b_dtype = TERN_BF16,
    .d_dtype = TERN_BF16,
    .bias_dtype = TERN_BF16,
    .compute = TERN_BF16,
};

static bool is_same(struct tern_blas_key a, struct tern_blas_key b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

#define CHANGED(field, value) \
    do { \
        struct tern_gemm_args changed = g_gelu; \
        changed.field = value; \
        assert_false( \
            is_same(tern_blas_key_of(&g_gelu, false), tern_blas_key_of(&changed, false))); \
    } while (0)

static void test_key(void **state)
{
    (void)state;
    CHANGED(m, 17);
    CHANGED(n, 23);
    CHANGED(k, 31);
    CHANGED(lda, 33);
    CHANGED(ldb, 25);
    CHANGED(ldd, 25);
    CHANGED(trans_a, true);
    CHANGED(trans_b, true);
    CHANGED(accumulate, true);
    CHANGED(epilogue, TERN_EPILOGUE_BIAS);
    CHANGED(a_dtype, TERN_F32);
    CHANGED(d_dtype, TERN_F32);
    CHANGED(bias_dtype, TERN_F32);
    CHANGED(a.addr, 0x1002);
    CHANGED(b.addr, 0x2004);
    CHANGED(d.addr, 0x3008);
    CHANGED(bias.addr, 0x4002);
    CHANGED(aux.addr, 0x5002);
    assert_false(is_same(tern_blas_key_of(&g_gelu, false), tern_blas_key_of(&g_gelu, true)));
    struct tern_gemm_args moved = g_gelu;
    moved.a.addr = 0x1010; /* as well aligned */
    moved.d.addr = 0x8000000;
    assert_true(is_same(tern_blas_key_of(&g_gelu, false), tern_blas_key_of(&moved, false)));
    struct tern_gemm_args bare = g_gelu;
    bare.epilogue = TERN_EPILOGUE_NONE;
    struct tern_gemm_args leftover = bare;
    leftover.bias.addr = 0x4002; /* not looked at */
    leftover.aux.addr = 0;
    leftover.bias_dtype = TERN_F32;
    assert_true(is_same(tern_blas_key_of(&bare, false), tern_blas_key_of(&leftover, false)));
    assert_int_equal(tern_blas_key_of(&g_gelu, false).align_a, 16);
    moved.a.addr = 0x1002;
    assert_int_equal(tern_blas_key_of(&moved, false).align_a, 2);
}

static void check_key_routes(const struct tern_blas_key *key, int capability, const char *expected)
{
    static const char names[TERN_BLAS_ROUTES] = {
        [TERN_BLAS_DIRECT] = 'd',
        [TERN_BLAS_GELU] = 'g',
        [TERN_BLAS_APART] = 'a',
        [TERN_BLAS_FINISH] = 'f',
    };
    enum tern_blas_route routes[TERN_BLAS_ROUTES];
    char found[TERN_BLAS_ROUTES + 1] = "";
    int count = tern_blas_routes(key, capability, routes);
    for (int i = 0; i < count; i++) {
        found[i] = names[routes[i]];
    }
    assert_string_equal(found, expected);
}

static void check_routes(const struct tern_gemm_args *args,
                         bool is_finish,
                         int capability,
                         const char *expected)
{
    struct tern_blas_key key = tern_blas_key_of(args, is_finish);
    check_key_routes(&key, capability, expected);
}

static void test_routes(void **state)
{
    (void)state;
    struct tern_gemm_args args = g_gelu;
    check_routes(&args, false, 90, "dgf");
    check_routes(&args, false, 80, "gdf");
    check_routes(&args, true, 90, "f");
    args.bias_dtype = TERN_F32; /* not d's */
    check_routes(&args, false, 90, "f");
    args = g_gelu;
    args.bias.addr += 2;
    check_routes(&args, false, 90, "f");
    args = g_gelu;
    args.aux.addr += 2;
    check_routes(&args, false, 90, "gf");
    args = g_gelu;
    args.ldd = 25; /* aux needs multiples of 8 */
    check_routes(&args, false, 90, "gf");
    args.epilogue = TERN_EPILOGUE_BIAS;
    check_routes(&args, false, 90, "df");
    check_routes(&args, false, 80, "df");
    args.epilogue = TERN_EPILOGUE_NONE;
    args.bias_dtype = TERN_F32;
    check_routes(&args, false, 80, "d");
    args = g_gelu;
    args.epilogue = TERN_EPILOGUE_DGELU; /* has no bias */
    args.bias_dtype = TERN_F32;
    check_routes(&args, false, 90, "dg");
    check_routes(&args, false, 80, "gd");
    check_routes(&args, true, 90, "f");
    args.ldd = 25;
    check_routes(&args, false, 90, "g");
    args.epilogue = TERN_EPILOGUE_NONE;
    struct tern_blas_key key = tern_blas_key_of(&args, false);
    key.epilogue = TERN_BLAS_SUMS_OF_A; /* a bias gradient beside the product */
    check_key_routes(&key, 90, "da");
    key.epilogue = TERN_BLAS_SUMS_OF_B;
    check_key_routes(&key, 80, "da");
}

/* ---- the table ---- */

static struct tern_blas_plan plan_of(int64_t i)
{
    struct tern_gemm_args args = g_gelu;
    args.m = i;
    struct tern_blas_plan plan = {.key = tern_blas_key_of(&args, false),
                                  .workspace_bytes = (uint64_t)i * 1024,
                                  .route = TERN_BLAS_GELU,
                                  .is_timed = 1,
                                  .seconds = (double)i * 1e-6};
    for (int word = 0; word < TERN_BLAS_ALGO_WORDS; word++) {
        plan.algo[word] = 0x8000000000000000u + (uint64_t)(100 * i + word);
    }
    return plan;
}

static bool is_in(struct tern_blas_table *table, int64_t i)
{
    struct tern_blas_plan plan = plan_of(i), found;
    return tern_blas_table_find(table, &plan.key, &found);
}

static void test_table(void **state)
{
    (void)state;
    struct tern_blas_table *table = tern_blas_table_create();
    struct tern_blas_plan found;
    assert_non_null(table);
    int64_t blocks = tern_mem_stats().total_blocks;
    assert_false(is_in(table, 1));
    int kept = 0;
    for (int64_t i = 1; i <= 20000; i++) { /* more than it holds */
        struct tern_blas_plan plan = plan_of(i);
        tern_blas_table_put(table, &plan);
        assert_true(tern_blas_table_find(table, &plan.key, &found));
        assert_int_equal(found.workspace_bytes, i * 1024);
    }
    for (int64_t i = 1; i <= 20000; i++) {
        kept += is_in(table, i);
    }
    print_message("%d of 20000 plans are still known\n", kept);
    assert_in_range(kept, 3500, 4200);
    struct tern_blas_plan again = plan_of(20000);
    again.route = TERN_BLAS_DIRECT;
    tern_blas_table_put(table, &again); /* replaces, is not a second one */
    assert_true(tern_blas_table_find(table, &again.key, &found));
    assert_int_equal(found.route, TERN_BLAS_DIRECT);
    assert_int_equal(tern_mem_stats().total_blocks, blocks);
    tern_blas_table_destroy(table);
}

/* ---- the file ---- */

static char g_folder[64];
static char g_path[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(g_folder, sizeof g_folder, "/tmp/tern-blas-XXXXXX");
    if (mkdtemp(g_folder) == NULL) {
        return -1;
    }
    snprintf(g_path, sizeof g_path, "%s/plans", g_folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", g_folder);
    return system(command); /* NOLINT(cert-env33-c) */
}

/* Lines on stderr while `call` reads the file; its count of plans in *count_out. */
static int read_lines(const struct tern_blas_machine *machine,
                      struct tern_blas_table *table,
                      int *count_out,
                      char first[256])
{
    char path[96];
    snprintf(path, sizeof path, "%s/stderr", g_folder);
    int kept = dup(STDERR_FILENO);
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(kept >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    *count_out = tern_blas_cache_read(g_path, machine, table);
    dup2(kept, STDERR_FILENO);
    close(kept);
    char text[1024];
    ssize_t length = pread(file, text, sizeof text - 1, 0);
    close(file);
    assert_true(length >= 0);
    text[length] = '\0';
    snprintf(first, 256, "%.255s", text);
    int lines = 0;
    for (const char *c = text; *c != '\0'; c++) {
        lines += *c == '\n';
    }
    return lines;
}

static void write_plans(int count)
{
    struct tern_blas_table *table = tern_blas_table_create();
    assert_non_null(table);
    for (int i = 1; i <= count; i++) {
        struct tern_blas_plan plan = plan_of(i);
        tern_blas_table_put(table, &plan);
    }
    struct tern_blas_plan untimed = plan_of(count + 1);
    untimed.is_timed = 0;
    tern_blas_table_put(table, &untimed);
    assert_true(tern_blas_cache_write(g_path, &g_machine, table));
    tern_blas_table_destroy(table);
}

static void test_file(void **state)
{
    (void)state;
    struct tern_blas_table *table = tern_blas_table_create();
    char text[256];
    int count;
    unlink(g_path);
    assert_int_equal(read_lines(&g_machine, table, &count, text), 0); /* none is fine */
    assert_int_equal(count, 0);
    write_plans(40);
    assert_int_equal(read_lines(&g_machine, table, &count, text), 0);
    assert_int_equal(count, 40); /* not the untimed one */
    for (int i = 1; i <= 40; i++) {
        struct tern_blas_plan want = plan_of(i), found;
        assert_true(tern_blas_table_find(table, &want.key, &found));
        assert_memory_equal(found.algo, want.algo, sizeof want.algo);
        assert_int_equal(found.workspace_bytes, want.workspace_bytes);
        assert_int_equal(found.route, want.route);
        assert_int_equal(found.is_timed, 1);
        assert_int_equal(found.is_checked, 0); /* the library has not seen it yet */
        assert_true(found.seconds > want.seconds * 0.99 && found.seconds < want.seconds * 1.01);
    }
    tern_blas_table_destroy(table);
}

static void test_other_machine(void **state)
{
    (void)state;
    struct tern_blas_machine others[5];
    write_plans(3);
    for (int i = 0; i < 5; i++) {
        others[i] = g_machine;
    }
    others[0].capability = 100;
    others[1].multiprocessors = 114; /* an H100 PCIe: another choice */
    others[2].library++;
    others[3].driver++;
    snprintf(others[4].gpu, sizeof others[4].gpu, "NVIDIA H200");
    for (int i = 0; i < 5; i++) {
        struct tern_blas_table *table = tern_blas_table_create();
        char text[256];
        int count;
        assert_int_equal(read_lines(&others[i], table, &count, text), 1);
        assert_non_null(strstr(text, "is of another GPU, driver or cuBLASLt"));
        assert_int_equal(count, 0);
        assert_false(is_in(table, 1));
        tern_blas_table_destroy(table);
    }
}

static size_t read_all(char text[FILE_MAX])
{
    FILE *file = fopen(g_path, "rb");
    assert_non_null(file);
    size_t length = fread(text, 1, FILE_MAX, file);
    fclose(file);
    assert_in_range(length, 100, FILE_MAX - 1);
    return length;
}

static void write_all(const char *text, size_t length)
{
    FILE *file = fopen(g_path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

/* Cut anywhere, or with any byte changed: nothing of it is used, and one line says so. */
static void test_broken(void **state)
{
    (void)state;
    char whole[FILE_MAX], text[256];
    write_plans(4);
    size_t length = read_all(whole);
    struct tern_blas_table *table = tern_blas_table_create();
    int count;
    for (size_t i = 0; i < length; i++) {
        write_all(whole, i);
        int lines = read_lines(&g_machine, table, &count, text);
        if (i < length - 1) { /* without its last newline it is still whole */
            assert_int_equal(lines, 1);
            assert_int_equal(count, 0);
            assert_false(is_in(table, 1));
        }
        if (i == length - 1) {
            break;
        }
        char kept = whole[i];
        whole[i] = kept == '7' ? '8' : '7';
        write_all(whole, length);
        lines = read_lines(&g_machine, table, &count, text);
        whole[i] = kept;
        assert_int_equal(lines, 1);
        assert_int_equal(count, 0);
    }
    tern_blas_table_destroy(table);
    write_plans(4); /* replaced */
    table = tern_blas_table_create();
    assert_int_equal(read_lines(&g_machine, table, &count, text), 0);
    assert_int_equal(count, 4);
    tern_blas_table_destroy(table);
}

static void test_path(void **state)
{
    (void)state;
    char path[TERN_BLAS_PATH_BYTES], other[TERN_BLAS_PATH_BYTES], expected[256];
    bool is_given;
    setenv("TERN_CUDA_CACHE", "/somewhere/plans", 1);
    assert_true(tern_blas_cache_path(&g_machine, path, &is_given));
    assert_true(is_given);
    assert_string_equal(path, "/somewhere/plans");
    setenv("TERN_CUDA_CACHE", "off", 1);
    assert_false(tern_blas_cache_path(&g_machine, path, &is_given));
    unsetenv("TERN_CUDA_CACHE");
    setenv("XDG_CACHE_HOME", g_folder, 1);
    assert_true(tern_blas_cache_path(&g_machine, path, &is_given));
    assert_false(is_given);
    snprintf(expected, sizeof expected, "%s/tern/cuda-", g_folder);
    assert_memory_equal(path, expected, strlen(expected));
    struct tern_blas_machine h200 = g_machine; /* shares the home, not the file */
    snprintf(h200.gpu, sizeof h200.gpu, "NVIDIA H200");
    assert_true(tern_blas_cache_path(&h200, other, &is_given));
    assert_string_not_equal(path, other);
    struct tern_blas_table *table = tern_blas_table_create();
    struct tern_blas_plan plan = plan_of(1);
    tern_blas_table_put(table, &plan);
    assert_true(tern_blas_cache_write(path, &g_machine, table)); /* makes the folder */
    assert_int_equal(tern_blas_cache_read(path, &g_machine, table), 1);
    tern_blas_table_destroy(table);
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/home/someone", 1);
    assert_true(tern_blas_cache_path(&g_machine, path, &is_given));
    assert_memory_equal(path, "/home/someone/.cache/tern/cuda-",
                        strlen("/home/someone/.cache/tern/cuda-"));
    unsetenv("HOME");
    assert_false(tern_blas_cache_path(&g_machine, path, &is_given));
}

static int no_leaks(void **state)
{
    (void)state;
    int64_t live = tern_mem_stats().live_blocks;
    if (live != 0) {
        print_error("%lld blocks are still allocated\n", (long long)live);
    }
    return live == 0 ? remove_folder(state) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut),    cmocka_unit_test(test_cut_any),
        cmocka_unit_test(test_key),    cmocka_unit_test(test_routes),
        cmocka_unit_test(test_table),  cmocka_unit_test(test_file),
        cmocka_unit_test(test_broken), cmocka_unit_test(test_other_machine),
        cmocka_unit_test(test_path),
    };
    return cmocka_run_group_tests_name("kernels_cuda_blas", tests, make_folder, no_leaks);
}
