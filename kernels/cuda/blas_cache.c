/* blas_cache.c - the file that remembers timed plans: text, whole or not at all, good on one machine.
 *
 *   tern-cuda-plans 1
 *   gpu NVIDIA H100 80GB HBM3
 *   machine CAPABILITY MULTIPROCESSORS LIBRARY DRIVER
 *   plan ...                                  the numbers of a plan, in the order of `fields`
 *   end COUNT CHECKSUM                        FNV-1a of all bytes before this line
 *
 * Several ranks may write the same file: each writes one of its own and renames it, so that a reader finds the old one
 * or a new one. */
#include "kernels/cuda/blas.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    KEY_FIELDS = 19,
    FIELDS = KEY_FIELDS + 3 + TERN_BLAS_ALGO_WORDS,
    HEAD_BYTES = 640,
    FILE_BYTES_MAX = 4 << 20,
};

static void head_text(const struct tern_blas_machine *machine, char out[HEAD_BYTES])
{
    snprintf(out, HEAD_BYTES, "tern-cuda-plans 1\ngpu %s\nmachine %d %d %" PRId64 " %" PRId64 "\n",
             machine->gpu, machine->capability, machine->multiprocessors, machine->library,
             machine->driver);
}

bool tern_blas_cache_path(const struct tern_blas_machine *machine,
                          char out[TERN_BLAS_PATH_BYTES],
                          bool *is_given_out)
{
    const char *given = getenv("TERN_CUDA_CACHE");
    *is_given_out = given != NULL && given[0] != '\0';
    if (*is_given_out) {
        int length = snprintf(out, TERN_BLAS_PATH_BYTES, "%s", given);
        return strcmp(given, "off") != 0 && length < TERN_BLAS_PATH_BYTES;
    }
    char head[HEAD_BYTES];
    head_text(machine, head);
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    bool has_cache = cache != NULL && cache[0] == '/';
    if (!has_cache && (home == NULL || home[0] != '/')) {
        return false;
    }
    int length = snprintf(out, TERN_BLAS_PATH_BYTES, "%s%s/tern/cuda-%016" PRIx64 ".plans",
                          has_cache ? cache : home, has_cache ? "" : "/.cache",
                          tern_blas_hash(TERN_BLAS_HASH_SEED, head, strlen(head)));
    return length < TERN_BLAS_PATH_BYTES;
}

/* ---- a plan as numbers ---- */

static void to_fields(const struct tern_blas_plan *plan, uint64_t fields[FIELDS])
{
    const struct tern_blas_key *k = &plan->key;
    const uint64_t head[] = {
        (uint64_t)k->m,
        (uint64_t)k->n,
        (uint64_t)k->k,
        (uint64_t)k->lda,
        (uint64_t)k->ldb,
        (uint64_t)k->ldd,
        k->trans_a,
        k->trans_b,
        k->accumulate,
        k->epilogue,
        k->factor,
        k->d_dtype,
        k->bias_dtype,
        k->is_finish,
        k->align_a,
        k->align_b,
        k->align_d,
        k->align_bias,
        k->align_aux,
        plan->route,
        plan->workspace_bytes,
        (uint64_t)(plan->seconds * 1e9),
    };
    _Static_assert(sizeof head / sizeof head[0] == FIELDS - TERN_BLAS_ALGO_WORDS, "all fields");
    memcpy(fields, head, sizeof head);
    memcpy(fields + FIELDS - TERN_BLAS_ALGO_WORDS, plan->algo, sizeof plan->algo);
}

static bool from_fields(const uint64_t f[FIELDS], struct tern_blas_plan *plan)
{
    for (int i = 6; i < KEY_FIELDS; i++) {
        if (f[i] > UINT8_MAX) {
            return false;
        }
    }
    *plan = (struct tern_blas_plan){
        .key = {.m = (int64_t)f[0],
                .n = (int64_t)f[1],
                .k = (int64_t)f[2],
                .lda = (int64_t)f[3],
                .ldb = (int64_t)f[4],
                .ldd = (int64_t)f[5],
                .trans_a = (uint8_t)f[6],
                .trans_b = (uint8_t)f[7],
                .accumulate = (uint8_t)f[8],
                .epilogue = (uint8_t)f[9],
                .factor = (uint8_t)f[10],
                .d_dtype = (uint8_t)f[11],
                .bias_dtype = (uint8_t)f[12],
                .is_finish = (uint8_t)f[13],
                .align_a = (uint8_t)f[14],
                .align_b = (uint8_t)f[15],
                .align_d = (uint8_t)f[16],
                .align_bias = (uint8_t)f[17],
                .align_aux = (uint8_t)f[18]},
        .route = (uint32_t)f[19],
        .workspace_bytes = f[20],
        .seconds = (double)f[21] * 1e-9,
        .is_timed = 1,
    };
    memcpy(plan->algo, f + FIELDS - TERN_BLAS_ALGO_WORDS, sizeof plan->algo);
    return f[19] < TERN_BLAS_ROUTES;
}

/* ---- reading ---- */

/* The whole file as a string, or NULL: *error_out is 0 when it is only too large. Owned: tern_free. */
static char *slurp(const char *path, int *error_out)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        *error_out = errno;
        return NULL;
    }
    *error_out = 0;
    char *text = tern_alloc("matrix product plans", FILE_BYTES_MAX + 1);
    if (text != NULL) {
        size_t length = fread(text, 1, FILE_BYTES_MAX + 1, file);
        if (length > FILE_BYTES_MAX || ferror(file)) {
            tern_free(text);
            text = NULL;
        } else {
            text[length] = '\0';
        }
    }
    fclose(file);
    return text;
}

static bool parse_plan(const char *line, struct tern_blas_plan *out)
{
    uint64_t fields[FIELDS];
    char *at = (char *)line + strlen("plan");
    for (int i = 0; i < FIELDS; i++) {
        char *end;
        if (*at != ' ') {
            return false;
        }
        fields[i] = strtoull(at + 1, &end, 16);
        if (end == at + 1) {
            return false;
        }
        at = end;
    }
    return *at == '\n' && from_fields(fields, out);
}

/* Puts the plans of a body into the table, or into none when table is NULL. Returns how many; -1 on a broken one. */
static int parse_body(const char *body, const char *end, struct tern_blas_table *table)
{
    int count = 0;
    for (const char *line = body; line < end; line = strchr(line, '\n') + 1) {
        struct tern_blas_plan plan;
        if (strncmp(line, "plan ", 5) != 0 || !parse_plan(line, &plan)) {
            return -1;
        }
        if (table != NULL) {
            tern_blas_table_put(table, &plan);
        }
        count++;
    }
    return count;
}

/* What is wrong with the file, or NULL. */
static const char *check(const char *text,
                         const struct tern_blas_machine *machine,
                         const char **body_out,
                         const char **end_out)
{
    char head[HEAD_BYTES];
    head_text(machine, head);
    static const char magic[] = "tern-cuda-plans 1\n";
    if (strncmp(text, magic, strlen(magic)) != 0) {
        return "is not a file of CUDA plans, or one of another version of tern";
    }
    const char *end = strstr(text, "\nend ");
    uint64_t sum;
    int count;
    if (end == NULL || sscanf(end, "\nend %d %" SCNx64, &count, &sum) != 2) {
        return "is cut off";
    }
    end++;
    if (sum != tern_blas_hash(TERN_BLAS_HASH_SEED, text, (size_t)(end - text))) {
        return "has a wrong checksum";
    }
    if (strncmp(text, head, strlen(head)) != 0) {
        return "is of another GPU, driver or cuBLASLt";
    }
    *body_out = text + strlen(head);
    *end_out = end;
    return parse_body(*body_out, end, NULL) == count ? NULL : "holds a line that is not a plan";
}

int tern_blas_cache_read(const char *path,
                         const struct tern_blas_machine *machine,
                         struct tern_blas_table *table)
{
    int error;
    char *text = slurp(path, &error);
    if (text == NULL) {
        if (error != ENOENT) {
            tern_log_warn("CUDA plans: %s: %s; algorithms are chosen anew", path,
                          error != 0 ? strerror(error) : "is too large");
        }
        return 0;
    }
    const char *body;
    const char *end;
    int count = 0;
    const char *problem = check(text, machine, &body, &end);
    if (problem != NULL) {
        tern_log_warn("CUDA plans: %s %s; it is ignored and will be replaced", path, problem);
    } else {
        count = parse_body(body, end, table);
    }
    tern_free(text);
    return count;
}

/* ---- writing ---- */

struct writer {
    FILE *file;
    uint64_t sum; /* of what is written so far */
    int count;
};

static void put(struct writer *writer, const char *text)
{
    fputs(text, writer->file); /* an error stays with the file */
    writer->sum = tern_blas_hash(writer->sum, text, strlen(text));
}

static void put_plan(const struct tern_blas_plan *plan, void *context)
{
    struct writer *writer = context;
    uint64_t fields[FIELDS];
    char line[FIELDS * 17 + 8] = "plan";
    char *at = line + strlen(line);
    to_fields(plan, fields);
    for (int i = 0; i < FIELDS; i++) {
        at += sprintf(at, " %" PRIx64, fields[i]);
    }
    sprintf(at, "\n");
    put(writer, line);
    writer->count++;
}

/* The last two folders of the path: ~/.cache/tern. */
static void make_folders(const char *path)
{
    char folder[TERN_BLAS_PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *last = strrchr(folder, '/');
    if (last == NULL || last == folder) {
        return;
    }
    *last = '\0';
    char *before = strrchr(folder, '/');
    if (before != NULL && before != folder) {
        *before = '\0';
        mkdir(folder, 0777);
        *before = '/';
    }
    mkdir(folder, 0777);
}

/* errno says why not. */
static bool write_file(const char *path,
                       const struct tern_blas_machine *machine,
                       const struct tern_blas_table *table)
{
    char fresh[TERN_BLAS_PATH_BYTES + 32];
    char head[HEAD_BYTES];
    snprintf(fresh, sizeof fresh, "%s.%ld", path, (long)getpid());
    struct writer writer = {.file = fopen(fresh, "wb"), .sum = TERN_BLAS_HASH_SEED};
    if (writer.file == NULL) {
        return false;
    }
    head_text(machine, head);
    put(&writer, head);
    tern_blas_table_each(table, put_plan, &writer);
    fprintf(writer.file, "end %d %" PRIx64 "\n", writer.count, writer.sum);
    bool is_good =
        !ferror(writer.file) && fflush(writer.file) == 0 && fsync(fileno(writer.file)) == 0;
    is_good = fclose(writer.file) == 0 && is_good && rename(fresh, path) == 0;
    if (!is_good) {
        int error = errno;
        unlink(fresh);
        errno = error;
    }
    return is_good;
}

bool tern_blas_cache_write(const char *path,
                           const struct tern_blas_machine *machine,
                           const struct tern_blas_table *table)
{
    make_folders(path);
    if (!write_file(path, machine, table)) {
        tern_log_warn("CUDA plans: cannot write %s: %s; they are forgotten when this process ends",
                      path, strerror(errno));
        return false;
    }
    return true;
}
