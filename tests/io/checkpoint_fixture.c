/* checkpoint_fixture.c - see checkpoint_fixture.h. */
#include "tests/io/checkpoint_fixture.h"

#include "runtime/base/fault.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static void fill(struct fixture_tensor *tensor, uint64_t seed, uint64_t stream)
{
    size_t count = tensor->bytes / tern_dtype_bytes(tensor->dtype);
    for (size_t i = 0; i < count; i++) {
        double x = 0.02 * tern_random_normal(seed, stream, i);
        switch (tensor->dtype) {
        case TERN_F32:
            ((float *)tensor->data)[i] = (float)x;
            break;
        case TERN_BF16:
            ((tern_bf16 *)tensor->data)[i] = tern_f32_to_bf16((float)x);
            break;
        case TERN_F64:
            ((double *)tensor->data)[i] = x;
            break;
        default: /* integers: all bits */
            memset((char *)tensor->data + i * tern_dtype_bytes(tensor->dtype), (int)(1e6 * x),
                   tern_dtype_bytes(tensor->dtype));
        }
    }
}

static void add(struct fixture *fixture,
                uint64_t seed,
                const char *group,
                const char *name,
                enum tern_dtype dtype,
                int rank,
                const int64_t *shape)
{
    assert_true(fixture->count < FIXTURE_TENSORS_MAX);
    struct fixture_tensor *tensor = &fixture->tensors[fixture->count];
    *tensor = (struct fixture_tensor){group, name, dtype, rank, {0}, tern_dtype_bytes(dtype), NULL};
    for (int i = 0; i < rank; i++) {
        tensor->shape[i] = shape[i];
        tensor->bytes *= (size_t)shape[i];
    }
    tensor->data = tern_alloc("fixture", tensor->bytes);
    assert_non_null(tensor->data);
    fill(tensor, seed, (uint64_t)fixture->count++);
}

void fixture_make(struct fixture *fixture, uint64_t seed, bool is_small)
{
    static const char *const groups[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};
    fixture->count = 0;
    for (int i = 0; i < 3; i++) {
        add(fixture, seed, groups[i], "wte.weight", TERN_F32, 2,
            (int64_t[]){is_small ? 31 : 1501, 96});
        add(fixture, seed, groups[i], "h.0.ln_1.weight", TERN_F32, 1, (int64_t[]){96});
        add(fixture, seed, groups[i], "h.0.attn.c_attn.weight", TERN_F32, 2,
            (int64_t[]){is_small ? 12 : 288, 96});
        add(fixture, seed, groups[i], "h.0.tiny", TERN_F32, 1, (int64_t[]){3});
    }
    if (is_small) {
        return;
    }
    add(fixture, seed, "model", "head.bf16", TERN_BF16, 2, (int64_t[]){2003, 520});
    add(fixture, seed, "model", "large", TERN_F32, 3, (int64_t[]){3001, 2, 200});
    add(fixture, seed, "model", "table.i64", TERN_I64, 2, (int64_t[]){4001, 7});
    add(fixture, seed, "model", "table.i32", TERN_I32, 1, (int64_t[]){70001});
    add(fixture, seed, "model", "table.u16", TERN_U16, 2, (int64_t[]){999, 101});
    add(fixture, seed, "model", "table.u8", TERN_U8, 4, (int64_t[]){101, 3, 5, 100});
    add(fixture, seed, "model", "table.f64", TERN_F64, 2, (int64_t[]){1201, 33});
}

void fixture_free(struct fixture *fixture)
{
    for (int i = 0; i < fixture->count; i++) {
        tern_free(fixture->tensors[i].data);
    }
    fixture->count = 0;
}

void fixture_rows(int64_t rows, int rank, int ranks, int64_t *offset_out, int64_t *count_out)
{
    int64_t share = rows / ranks, rest = rows % ranks;
    *count_out = share + (rank < rest);
    *offset_out = share * rank + (rank < rest ? rank : rest);
}

static void make_slabs(const struct fixture *fixture,
                       int rank,
                       int ranks,
                       struct tern_ckpt_slab *slabs)
{
    for (int i = 0; i < fixture->count; i++) {
        const struct fixture_tensor *tensor = &fixture->tensors[i];
        struct tern_ckpt_slab *slab = &slabs[i];
        *slab = (struct tern_ckpt_slab){.group = tensor->group,
                                        .name = tensor->name,
                                        .dtype = tensor->dtype,
                                        .rank = tensor->rank};
        memcpy(slab->global_shape, tensor->shape, sizeof slab->global_shape);
        fixture_rows(tensor->shape[0], rank, ranks, &slab->row_offset, &slab->row_count);
        size_t row_bytes = tensor->bytes / (size_t)tensor->shape[0];
        slab->data = (const char *)tensor->data + (size_t)slab->row_offset * row_bytes;
    }
}

tern_status fixture_write(const struct fixture *fixture,
                          const char *run_dir,
                          int64_t step,
                          int ranks,
                          enum tern_ckpt_compression compression,
                          int level,
                          int threads,
                          int keep)
{
    struct tern_ckpt_slab slabs[FIXTURE_TENSORS_MAX];
    struct tern_ckpt_file files[64];
    char state[160];
    assert_true(ranks <= 64);
    snprintf(state, sizeof state,
             "{\"cursor\": {\"step\": %lld, \"x\": 0.1},\n \"note\": \"ranks %d\"}",
             (long long)step, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        make_slabs(fixture, rank, ranks, slabs);
        struct tern_ckpt_write write = {
            run_dir,     step,  rank,   ranks, slabs, fixture->count, rank == 0 ? state : NULL,
            compression, level, threads};
        TERN_RETURN_IF_ERR(tern_ckpt_write_shard(&write, &files[rank]));
    }
    return tern_ckpt_commit(run_dir, step, files, ranks, "feed", keep);
}

void fixture_check(const struct fixture *fixture, const char *ckpt_dir, int ranks)
{
    struct tern_ckpt_reader *reader;
    if (tern_ckpt_open(ckpt_dir, &reader) != TERN_OK) {
        fail_msg("open: %s", tern_detail());
    }
    for (int i = 0; i < fixture->count; i++) {
        const struct fixture_tensor *tensor = &fixture->tensors[i];
        size_t row_bytes = tensor->bytes / (size_t)tensor->shape[0];
        char *read = tern_alloc("fixture", tensor->bytes);
        memset(read, 0xa5, tensor->bytes);
        for (int rank = 0; rank < ranks; rank++) {
            int64_t offset, count;
            fixture_rows(tensor->shape[0], rank, ranks, &offset, &count);
            if (tern_ckpt_read(reader, tensor->group, tensor->name, offset, count,
                               read + (size_t)offset * row_bytes) != TERN_OK) {
                fail_msg("read: %s", tern_detail());
            }
        }
        if (memcmp(read, tensor->data, tensor->bytes) != 0) {
            fail_msg("tensor %s/%s read by %d ranks differs", tensor->group, tensor->name, ranks);
        }
        tern_free(read);
    }
    tern_ckpt_close(reader);
}

void fixture_arm(const char *rules)
{
    if (rules == NULL) {
        tern_fault_armed = 0;
        return;
    }
    setenv("TERN_FAULT", rules, 1);
    assert_int_equal(tern_fault_init(), TERN_OK);
}

void fixture_make_folder(char out[TERN_PATH_BYTES])
{
    const char *base = getenv("TMPDIR");
    snprintf(out, TERN_PATH_BYTES, "%s/tern-ckpt-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(out));
}
