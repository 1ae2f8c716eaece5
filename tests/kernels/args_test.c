/* args_test.c - what the checked wrappers refuse, what they say, what they let pass; profile and
 * backends. */
#include "kernels/cost.h"
#include "kernels/open.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "tests/kernels/instance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h> /* needs the three above */
/* clang-format on */

enum change {
    SET_I64,
    SET_INT, /* enums */
    SET_BOOL,
    SET_FLOAT,
    SET_NULL,
    MISALIGN, /* one byte further */
    SAME_AS,  /* the pointer at offset `value` */
};

/* A case that is fine, one field changed, and a part of the sentence that must come. */
struct row {
    const char *name;
    size_t offset;
    enum change change;
    double value;
    const char *sentence;
};

#define AT(field) offsetof(union tern_args, field)

static const char EMBED[] = "embed_fwd n=6 t=3 c=5 v=7 wpe=1 first=2";
static const char EMBED_PACKED[] = "embed_fwd n=6 t=3 c=5 v=7 wpe=1 first=2 docs=2";
static const char EMBED_BWD[] = "embed_bwd n=6 t=3 c=5 v=7 wpe=1";
static const char NORM[] = "norm_fwd n=3 c=8 residual=1 beta=1 stats=1";
static const char RMS[] = "norm_fwd n=3 c=8 rms=1 stats=1";
static const char NORM_BWD[] = "norm_bwd n=3 c=8 residual=1 beta=1 stats=1";
static const char GEMM[] = "gemm m=4 n=6 k=8 epilogue=2";
static const char GEMM_SLOPE[] = "gemm m=4 n=6 k=8 epilogue=3";
static const char GEMM_ADD[] = "gemm m=4 n=6 k=8 ta=1 tb=1 acc=1";
static const char ATTENTION[] = "attention_fwd b=2 tq=5 tkv=5 h=4 k=2 d=8 layout=1 lse=1";
static const char ATTENTION_PACKED[] =
    "attention_fwd b=2 tq=5 tkv=5 h=4 k=2 d=8 layout=1 lse=1 docs=2";
static const char ATTENTION_BWD[] = "attention_bwd b=2 tq=5 tkv=5 h=4 k=2 d=8 layout=0 lse=1";
static const char PLACES[] = "rope n=6 t=9 heads=2 d=8 places=1";
static const char KV[] = "kv_write s=2 rows=3 length=40 h=4 k=2 d=8 kept=1";
static const char PAGED[] = "paged_attention s=2 rows=3 length=40 h=4 k=2 d=8 kept=1";
static const char ROPE[] = "rope n=6 t=3 heads=2 d=8";
static const char HEADS[] = "norm_fwd n=3 c=8 rms=1 stats=1 heads=2 layout=2";
static const char HEADS_BWD[] = "norm_bwd n=3 c=8 rms=1 stats=1 heads=2 layout=2";
static const char STORED[] = "gemm m=4 n=6 k=64 tb=1 stored=15";
static const char ROUTE[] = "moe_route n=5 experts=4 top=2";
static const char COMBINE[] = "moe_combine n=5 top=2 c=3";
static const char CE[] = "cross_entropy rows=3 v=9 bwd=1";
static const char CE_BF16[] = "cross_entropy rows=3 v=9 bwd=1 half=1";
static const char ADAMW[] = "adamw n=5 copy=2 step=3";
static const char SUMSQ[] = "sumsq blocks=3 n=20";
static const char CLIP[] = "clip blocks=3 losses=2 limit=1";

static const struct row g_rows[] = {
    {EMBED, AT(embed_fwd.n), SET_I64, 7, "n is 7, expected whole sequences of t = 3"},
    {EMBED, AT(embed_fwd.n), SET_I64, -3, "n is -3"},
    {EMBED, AT(embed_fwd.t), SET_I64, 0, "t is 0"},
    {EMBED, AT(embed_fwd.c), SET_I64, 0, "c is 0"},
    {EMBED, AT(embed_fwd.v), SET_I64, 0, "v is 0"},
    {EMBED, AT(embed_fwd.first_position), SET_I64, -1, "first_position is -1"},
    {EMBED, AT(embed_fwd.ids), SET_NULL, 0, "ids is null"},
    {EMBED, AT(embed_fwd.wte), SET_NULL, 0, "wte is null"},
    {EMBED, AT(embed_fwd.out), SET_NULL, 0, "out is null"},
    {EMBED, AT(embed_fwd.out), MISALIGN, 0, "expected a multiple of 4 (f32)"},
    {EMBED, AT(embed_fwd.out), SAME_AS, AT(embed_fwd.wte), "out (0x"},
    {EMBED, AT(embed_fwd.dtype), SET_INT, TERN_I32, "dtype is i32"},
    {EMBED, AT(embed_fwd.dtype), SET_INT, 99, "no dtype at all"},
    {EMBED_PACKED, AT(embed_fwd.starts), MISALIGN, 0, "expected a multiple of 4 (i32)"},
    {EMBED_BWD, AT(embed_bwd.dwte), SET_NULL, 0, "dwte is null"},
    {EMBED_BWD, AT(embed_bwd.dwpe), SAME_AS, AT(embed_bwd.dwte), "dwpe (0x"},
    {NORM, AT(norm_fwd.sum), SET_NULL, 0, "sum is null"},
    {NORM, AT(norm_fwd.mean), SET_NULL, 0, "one of mean and rstd is null"},
    {NORM, AT(norm_fwd.rstd), SET_NULL, 0, "one of mean and rstd is null"},
    {NORM, AT(norm_fwd.out), SAME_AS, AT(norm_fwd.x), "out (0x"},
    {NORM, AT(norm_fwd.sum), SAME_AS, AT(norm_fwd.residual), "overlaps"},
    {NORM, AT(norm_fwd.kind), SET_INT, 5, "kind is 5"},
    {NORM, AT(norm_fwd.eps), SET_FLOAT, -1, "eps is -1"},
    {NORM, AT(norm_fwd.eps), SET_FLOAT, NAN, "eps is"},
    {NORM, AT(norm_fwd.n), SET_I64, -1, "n is -1"},
    {RMS, AT(norm_fwd.mean), SAME_AS, AT(norm_fwd.x), "rms has no mean"},
    {NORM_BWD, AT(norm_bwd.mean), SET_NULL, 0, "mean is null"},
    {NORM_BWD, AT(norm_bwd.rstd), SET_NULL, 0, "rstd is null"},
    {NORM_BWD, AT(norm_bwd.dgamma), SET_NULL, 0, "dgamma is null"},
    {NORM_BWD, AT(norm_bwd.kind), SET_INT, TERN_NORM_RMS, "rms has no beta"},
    {NORM_BWD, AT(norm_bwd.dx), SAME_AS, AT(norm_bwd.x), "dx (0x"},
    {NORM_BWD, AT(norm_bwd.n), SET_I64, 0, "n is 0"},
    {HEADS, AT(norm_fwd.x_row), SET_I64, 15, "x_row is 15, expected at least heads * c = 16"},
    {HEADS, AT(norm_fwd.out_row), SET_I64, 24, "out (0x"},
    {HEADS, AT(norm_fwd.heads), SET_I64, -1, "heads is -1"},
    {HEADS, AT(norm_fwd.heads), SET_I64, 0x1p40, "expected"},
    {HEADS, AT(norm_fwd.copy), SAME_AS, AT(norm_fwd.x), "copy (0x"},
    {HEADS, AT(norm_fwd.gamma_offset), SET_FLOAT, NAN, "gamma_offset is"},
    {HEADS_BWD, AT(norm_bwd.dy_row), SET_I64, 15, "dy_row is 15"},
    {HEADS_BWD, AT(norm_bwd.gamma_offset), SET_FLOAT, INFINITY, "gamma_offset is inf"},
    {EMBED, AT(embed_fwd.scale), SET_FLOAT, NAN, "scale is"},
    {EMBED, AT(embed_fwd.wte_dtype), SET_INT, TERN_I32, "wte_dtype is i32"},
    {EMBED, AT(embed_fwd.wte_dtype), SET_INT, TERN_Q8_0, "expected whole blocks of 32 (q8_0)"},
    {STORED, AT(gemm.trans_b), SET_BOOL, 0, "not transposed, expected trans_b"},
    {STORED, AT(gemm.ldb), SET_I64, 80, "80 apart, expected whole blocks of 32"},
    {STORED, AT(gemm.b_dtype), SET_INT, TERN_Q6_K, "64 elements, 64 apart, expected whole blocks"},
    {STORED, AT(gemm.b), SET_NULL, 0, "b is null"},
    {STORED, AT(gemm.d), SAME_AS, AT(gemm.b), "overlaps"},
    {ROUTE, AT(moe_route.top_k), SET_I64, 5, "top_k is 5 of 4 experts"},
    {ROUTE, AT(moe_route.top_k), SET_I64, 0, "top_k is 0"},
    {ROUTE, AT(moe_route.expert_count), SET_I64, 5000, "of 5000 experts, expected at most all of"},
    {ROUTE, AT(moe_route.n), SET_I64, 0x1p31, "expected less than 2^31"},
    {ROUTE, AT(moe_route.starts), SET_NULL, 0, "starts is null"},
    {ROUTE, AT(moe_route.rows), SAME_AS, AT(moe_route.pairs), "rows (0x"},
    {COMBINE, AT(moe_combine.weights), SET_NULL, 0, "weights is null"},
    {"softcap n=5 cap=3", AT(softcap.cap), SET_FLOAT, 0, "cap is 0, expected more than 0"},
    {"softcap n=5 cap=3", AT(softcap.cap), SET_FLOAT, NAN, "cap is"},
    {ATTENTION, AT(attention.softcap), SET_FLOAT, -1, "softcap is -1, expected 0 or more"},
    {CE, AT(cross_entropy.softcap), SET_FLOAT, INFINITY, "softcap is inf"},
    {KV, AT(paged.write.n), SET_I64, -1, "n is -1"},
    {KV, AT(paged.write.d), SET_I64, 513, "d is 513, expected at most 512"},
    {KV, AT(paged.write.kv_dtype), SET_INT, TERN_F16, "expected f32, bf16 or i8"},
    {KV, AT(paged.write.k_row), SET_I64, 15, "k_row is 15, expected at least kv_heads * d = 16"},
    {KV, AT(paged.write.v_row), SET_I64, 15, "v_row is 15"},
    {KV, AT(paged.write.slots), SET_NULL, 0, "slots is null"},
    {KV, AT(paged.write.pool), SET_NULL, 0, "pool is null"},
    {KV, AT(paged.write.pool), MISALIGN, 0, "expected a multiple of 16"},
    {KV, AT(paged.write.pool), SAME_AS, AT(paged.write.k), "overlaps k"},
    {KV, AT(paged.write.blocks), SET_I64, 0, "blocks is 0"},
    {KV, AT(paged.write.blocks), SET_I64, 2, "slots[32] is 32, expected -1 to 31"},
    {KV, AT(paged.write.blocks), SET_I64, 1e12, "blocks is 1000000000000"},
    {PAGED, AT(paged.attend.h), SET_I64, 3, "h is 3, expected a multiple of kv_heads = 2"},
    {PAGED, AT(paged.attend.n), SET_I64, 3, "expected from 0 to n = 3"},
    {PAGED, AT(paged.attend.sequences), SET_I64, 0, "sequences is 0"},
    {PAGED, AT(paged.attend.longest), SET_I64, 20, "lengths[0] is 40, expected 3 to 20"},
    {PAGED, AT(paged.attend.table_row), SET_I64, 2,
     "expected at least the blocks of `longest` = 3"},
    {PAGED, AT(paged.attend.blocks), SET_I64, 2, "tables[0]["},
    {PAGED, AT(paged.attend.window), SET_I64, -1, "window is -1"},
    {PAGED, AT(paged.attend.softcap), SET_FLOAT, -1, "softcap is -1"},
    {PAGED, AT(paged.attend.q_row), SET_I64, 31, "q_row is 31"},
    {PAGED, AT(paged.attend.out_row), SET_I64, 31, "out_row is 31"},
    {PAGED, AT(paged.attend.tables), SET_NULL, 0, "tables is null"},
    {PAGED, AT(paged.attend.out), SAME_AS, AT(paged.attend.q), "out (0x"},
    {PAGED, AT(paged.attend.lengths), MISALIGN, 0, "expected a multiple of 4 (i32)"},
    {PLACES, AT(rope.position_count), SET_I64, 0, "position_count is 0"},
    {ROPE, AT(rope.rotary_d), SET_I64, 3, "rotary_d is 3, expected an even number up to d = 8"},
    {ROPE, AT(rope.rotary_d), SET_I64, 10, "rotary_d is 10"},
    {GEMM, AT(gemm.k), SET_I64, 0, "k is 0"},
    {GEMM, AT(gemm.lda), SET_I64, 7, "lda is 7, expected at least k = 8"},
    {GEMM, AT(gemm.ldb), SET_I64, 5, "ldb is 5, expected at least n = 6"},
    {GEMM, AT(gemm.ldd), SET_I64, 5, "ldd is 5, expected at least n = 6"},
    {GEMM, AT(gemm.bias), SET_NULL, 0, "bias is null"},
    {GEMM, AT(gemm.aux), SET_NULL, 0, "aux is null"},
    {GEMM, AT(gemm.aux), SAME_AS, AT(gemm.d), "aux (0x"},
    {GEMM, AT(gemm.d), SAME_AS, AT(gemm.a), "d (0x"},
    {GEMM, AT(gemm.accumulate), SET_BOOL, 1, "accumulate with epilogue 2"},
    {GEMM, AT(gemm.epilogue), SET_INT, 9, "epilogue is 9"},
    {GEMM_SLOPE, AT(gemm.aux), SET_NULL, 0, "aux is null"},
    {GEMM_SLOPE, AT(gemm.d), SAME_AS, AT(gemm.aux), "d (0x"},
    {GEMM_SLOPE, AT(gemm.accumulate), SET_BOOL, 1, "accumulate with epilogue 3"},
    {GEMM, AT(gemm.compute), SET_INT, TERN_F64, "some dtypes are f64 and some are not"},
    {GEMM, AT(gemm.compute), SET_INT, TERN_U8, "compute is u8"},
    {GEMM_ADD, AT(gemm.lda), SET_I64, 3, "lda is 3, expected at least m = 4"},
    {GEMM_ADD, AT(gemm.ldb), SET_I64, 7, "ldb is 7, expected at least k = 8"},
    {GEMM_ADD, AT(gemm.d_dtype), SET_INT, TERN_BF16, "accumulate into bf16"},
    {GEMM_ADD, AT(gemm.m), SET_I64, 0x1p41, "m is"},
    {"bias_bwd rows=3 n=8", AT(bias_bwd.ldy), SET_I64, 7, "ldy is 7, expected at least n = 8"},
    {"bias_bwd rows=3 n=8", AT(bias_bwd.rows), SET_I64, 0, "rows is 0"},
    {"bias_bwd rows=3 n=8", AT(bias_bwd.dbias), SAME_AS, AT(bias_bwd.dy), "dbias (0x"},
    {ATTENTION, AT(attention.kv_heads), SET_I64, 3, "h is 4, expected a multiple of kv_heads = 3"},
    {ATTENTION, AT(attention.tq), SET_I64, 6, "tq is 6, expected at most tkv = 5"},
    {ATTENTION, AT(attention.d), SET_I64, 0, "d is 0"},
    {ATTENTION, AT(attention.d), SET_I64, 513, "d is 513, expected at most 512"},
    {ATTENTION, AT(attention.window), SET_I64, -1, "window is -1"},
    {ATTENTION, AT(attention.scale), SET_FLOAT, INFINITY, "scale is inf"},
    {ATTENTION, AT(attention.q_row), SET_I64, 31, "q_row is 31, expected at least h * d = 32"},
    {ATTENTION, AT(attention.kv_row), SET_I64, 15, "kv_row is 15"},
    {ATTENTION, AT(attention.out_row), SET_I64, 31, "out_row is 31"},
    {ATTENTION, AT(attention.q_batch), SET_I64, 100, "q_batch is 100"},
    {ATTENTION, AT(attention.kv_batch), SET_I64, 100, "kv_batch is 100"},
    {ATTENTION, AT(attention.out_batch), SET_I64, 100, "out_batch is 100"},
    {ATTENTION, AT(attention.q_row), SET_I64, 0x1p40, "q_batch is"},
    {ATTENTION, AT(attention.out), SAME_AS, AT(attention.q), "out (0x"},
    {ATTENTION, AT(attention.v), SET_NULL, 0, "v is null"},
    {ATTENTION_PACKED, AT(attention.tkv), SET_I64, 6, "tq is 5, expected tkv = 6 with starts"},
    {ATTENTION_BWD, AT(attention.lse), SET_NULL, 0, "lse is null"},
    {ATTENTION_BWD, AT(attention.dout), SET_NULL, 0, "dout is null"},
    {ATTENTION_BWD, AT(attention.dq), SAME_AS, AT(attention.q), "dq (0x"},
    {ATTENTION_BWD, AT(attention.dv), SAME_AS, AT(attention.dk), "dv (0x"},
    {ROPE, AT(rope.d), SET_I64, 7, "d is 7, expected an even number"},
    {ROPE, AT(rope.x_row), SET_I64, 15, "x_row is 15, expected at least heads * d = 16"},
    {ROPE, AT(rope.t), SET_I64, 4, "n is 6, expected whole sequences of t = 4"},
    {ROPE, AT(rope.sin), SET_NULL, 0, "sin is null"},
    {"act_fwd n=9", AT(act.y), SAME_AS, AT(act.x), "y (0x"},
    {"act_fwd n=9 act=1", AT(act.act), SET_INT, 7, "act is 7"},
    {"act_bwd n=9", AT(act.dx), SAME_AS, AT(act.x), "dx (0x"},
    {"act_bwd n=9", AT(act.dy), SET_NULL, 0, "dy is null"},
    {"glu_fwd n=2 f=9", AT(glu.f), SET_I64, 0, "f is 0"},
    {"gemm_bias_bwd m=4 n=6 k=8", AT(gemm_bias_bwd.dbias), SET_NULL, 0, "dbias is null"},
    {"gemm_bias_bwd m=4 n=6 k=8", AT(gemm_bias_bwd.dbias), SAME_AS, AT(gemm.d), "dbias (0x"},
    {"gemm_bias_bwd m=8 n=8 k=8", AT(gemm.trans_b), SET_BOOL, 1,
     "b is stored (n, k), expected (k, n)"},
    {"gemm_bias_bwd m=8 n=8 k=8 of_a=1", AT(gemm.trans_a), SET_BOOL, 0, "a is stored (m, k)"},
    {"glu_bwd n=2 f=9", AT(glu.dgate_up), SAME_AS, AT(glu.gate_up), "dgate_up (0x"},
    {"add n=9", AT(add.n), SET_I64, -9, "n is -9"},
    {"add n=9", AT(add.b), SET_NULL, 0, "b is null"},
    {CE, AT(cross_entropy.ld), SET_I64, 8, "ld is 8, expected at least v = 9"},
    {CE_BF16, AT(cross_entropy.ldd), SET_I64, 8, "ldd is 8, expected at least v = 9"},
    {CE_BF16, AT(cross_entropy.backward), SET_INT, 0, "dlogits is given, expected null"},
    {CE, AT(cross_entropy.dtype), SET_INT, TERN_BF16, "expected f32 logits"},
    {CE, AT(cross_entropy.nll), SET_NULL, 0, "nll is null"},
    {CE, AT(cross_entropy.targets), SET_NULL, 0, "targets is null"},
    {ADAMW, AT(adamw.beta1), SET_FLOAT, 1, "betas are 1 and"},
    {ADAMW, AT(adamw.beta2), SET_FLOAT, -0.5, "and -0.5"},
    {ADAMW, AT(adamw.bias1), SET_FLOAT, 0, "bias corrections are 0"},
    {ADAMW, AT(adamw.bias2), SET_FLOAT, NAN, "bias corrections are"},
    {ADAMW, AT(adamw.lr), SET_FLOAT, NAN, "lr is"},
    {ADAMW, AT(adamw.eps), SET_FLOAT, -1, "eps is -1"},
    {ADAMW, AT(adamw.copy_dtype), SET_INT, TERN_I64, "copy_dtype is"},
    {ADAMW, AT(adamw.exp_avg), SAME_AS, AT(adamw.exp_avg_sq), "overlaps"},
    {SUMSQ, AT(sumsq.starts), MISALIGN, 0, "expected a multiple of 8 (i64)"},
    {SUMSQ, AT(sumsq.blocks), SET_I64, -1, "blocks is -1"},
    {ADAMW, AT(adamw.grad_scale), SET_NULL, 0, "grad_scale is null"},
    {CLIP, AT(clip.losses), SET_I64, -1, "losses is -1"},
    {CLIP, AT(clip.count), SET_I64, 0, "count is 0"},
    {CLIP, AT(clip.max_norm), SET_I64, -1, "max_norm is"},
    {CLIP, AT(clip.order), SET_NULL, 0, "order is null"},
    {CLIP, AT(clip.total), SAME_AS, AT(clip.values), "overlaps"},
    {CLIP, AT(clip.scale), MISALIGN, 0, "expected a multiple of 4 (f32)"},
    {"cast n=9 from=0 to=1", AT(cast.src_dtype), SET_INT, TERN_I64, "src_dtype is i64"},
    {"cast n=9 from=0 to=1", AT(cast.dst), SAME_AS, AT(cast.src), "dst (0x"},
};

static struct tern_device *g_ref;

/* Arguments of a case over buffers of zeros, which make valid ids and starts, but for the numbers of paged ones. */
struct call {
    struct tern_instance in;
    union tern_args args;
    void *blocks[TERN_TENSORS_MAX];
};

static void call_init(struct call *call, const char *name)
{
    struct tern_case c;
    assert_true(tern_case_parse(name, &c));
    tern_instance_build(&call->in, &c, TERN_F32);
    call->args = call->in.args;
    for (int i = 0; i < call->in.tensor_count; i++) {
        const struct tern_tensor *t = &call->in.tensors[i];
        size_t bytes = (size_t)tern_tensor_elements(t) * tern_dtype_bytes(t->dtype);
        call->blocks[i] = tern_alloc_zero("test", 1, bytes);
        assert_non_null(call->blocks[i]);
        if (t->fill == TERN_FILL_PAGED) {
            tern_tensor_encode(t, call->blocks[i]);
        }
    }
    for (int i = 0; i < call->in.slot_count; i++) {
        const struct tern_slot *slot = &call->in.slots[i];
        struct tern_dptr p = {(uint64_t)(uintptr_t)call->blocks[slot->tensor]};
        p = tern_dptr_at(p, slot->element, call->in.tensors[slot->tensor].dtype);
        memcpy((char *)&call->args + slot->offset, &p, sizeof p);
    }
}

static void call_fini(struct call *call)
{
    for (int i = 0; i < call->in.tensor_count; i++) {
        tern_free(call->blocks[i]);
    }
    tern_instance_fini(&call->in);
}

static void apply(const struct row *row, union tern_args *args)
{
    char *field = (char *)args + row->offset;
    int64_t i64 = row->change == SET_I64 ? (int64_t)row->value : 0;
    float f32 = row->change == SET_FLOAT ? (float)row->value : 0;
    struct tern_dptr p;
    memcpy(&p, field, sizeof p);
    switch (row->change) {
    case SET_I64:
        memcpy(field, &i64, sizeof i64);
        return;
    case SET_INT:
        memcpy(field, &(int){(int)row->value}, sizeof(int));
        return;
    case SET_BOOL:
        memcpy(field, &(bool){row->value != 0}, sizeof(bool));
        return;
    case SET_FLOAT:
        memcpy(field, &f32, sizeof f32);
        return;
    case SET_NULL:
        p.addr = 0;
        break;
    case MISALIGN:
        p.addr += 1;
        break;
    case SAME_AS:
        memcpy(&p, (char *)args + (size_t)row->value, sizeof p);
        break;
    }
    memcpy(field, &p, sizeof p);
}

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_rows / sizeof g_rows[0]; i++) {
        struct call call;
        call_init(&call, g_rows[i].name);
        union tern_args good = call.args;
        if (tern_instance_call(call.in.c.op, &good, g_ref) != TERN_OK) {
            fail_msg("%s unchanged: %s", g_rows[i].name, tern_detail());
        }
        apply(&g_rows[i], &call.args);
        tern_status status = tern_instance_call(call.in.c.op, &call.args, g_ref);
        const char *op = tern_op_name(call.in.c.op);
        if (status != TERN_ERR_ARGUMENT || strstr(tern_detail(), g_rows[i].sentence) == NULL ||
            strncmp(tern_detail(), op, strlen(op)) != 0) {
            fail_msg("row %zu, %s: status %s, sentence '%s', expected '%s'", i, g_rows[i].name,
                     tern_status_name(status), status == TERN_OK ? "" : tern_detail(),
                     g_rows[i].sentence);
        }
        call_fini(&call);
    }
}

static void test_contents(void **state)
{
    (void)state;
    struct call call;
    call_init(&call, EMBED);
    int32_t *ids = call.blocks[0];
    ids[4] = 7;
    assert_int_equal(tern_op_embed_fwd(g_ref, &call.args.embed_fwd), TERN_ERR_ARGUMENT);
    assert_string_equal(tern_detail(), "embed_fwd: ids[4] is 7, expected 0 to 6");
    ids[4] = -1;
    assert_int_equal(tern_op_embed_fwd(g_ref, &call.args.embed_fwd), TERN_ERR_ARGUMENT);
    ids[4] = 6;
    assert_int_equal(tern_op_embed_fwd(g_ref, &call.args.embed_fwd), TERN_OK);
    call_fini(&call);
    call_init(&call, EMBED_PACKED);
    int32_t *documents = call.blocks[4];
    documents[4] = 2;
    assert_int_equal(tern_op_embed_fwd(g_ref, &call.args.embed_fwd), TERN_ERR_ARGUMENT);
    assert_string_equal(tern_detail(), "embed_fwd: starts[4] is 2, expected 0 to 1");
    documents[4] = 1;
    assert_int_equal(tern_op_embed_fwd(g_ref, &call.args.embed_fwd), TERN_ERR_ARGUMENT);
    assert_string_equal(tern_detail(), "embed_fwd: starts[5] is 0, expected 1 to 2");
    call_fini(&call);
    call_init(&call, SUMSQ);
    int64_t *starts = call.blocks[1];
    starts[1] = 5;
    assert_int_equal(tern_op_sumsq(g_ref, &call.args.sumsq), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "starts[1] is 5 and the next is 0"));
    call_fini(&call);
    call_init(&call, CLIP);
    int64_t *order = call.blocks[1];
    order[4] = 5;
    assert_int_equal(tern_op_clip(g_ref, &call.args.clip), TERN_ERR_ARGUMENT);
    assert_string_equal(tern_detail(), "clip: order[4] is 5, expected 0 to 4");
    call_fini(&call);
}

static void test_overflow(void **state)
{
    (void)state;
    struct call call;
    call_init(&call, "bias_bwd rows=3 n=8");
    call.args.bias_bwd.rows = (int64_t)1 << 40;
    call.args.bias_bwd.ldy = (int64_t)1 << 40;
    assert_int_equal(tern_op_bias_bwd(g_ref, &call.args.bias_bwd), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "dy of 1 x 1099511627776 x 8 elements is too large"));
    call_fini(&call);
    call_init(&call, ATTENTION);
    call.args.attention.h = (int64_t)1 << 40;
    call.args.attention.b = (int64_t)1 << 40;
    call.args.attention.q_row = (int64_t)1 << 40;
    assert_int_equal(tern_op_attention_fwd(g_ref, &call.args.attention), TERN_ERR_ARGUMENT);
    call_fini(&call);
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    assert_int_equal(tern_op_add(g_ref, &(struct tern_add_args){0}), TERN_OK);
    assert_int_equal(tern_op_cast(g_ref, &(struct tern_cast_args){0}), TERN_OK);
    assert_int_equal(tern_op_sumsq(g_ref, &(struct tern_sumsq_args){0}), TERN_OK);
    assert_int_equal(tern_op_add(NULL, &(struct tern_add_args){0}), TERN_ERR_ARGUMENT);
    assert_string_equal(tern_detail(), "add: the device is NULL");
    assert_int_equal(tern_op_add(g_ref, NULL), TERN_ERR_ARGUMENT);
    assert_string_equal(tern_detail(), "add: the argument struct is NULL");
}

/* A backend without an op, without f64. */
static void test_missing_op(void **state)
{
    (void)state;
    struct tern_ops ops = *g_ref->ops;
    struct tern_device device = {.ops = &ops};
    struct call call;
    call_init(&call, "add n=9");
    ops.add = NULL;
    assert_int_equal(tern_op_add(&device, &call.args.add), TERN_ERR_UNSUPPORTED);
    assert_string_equal(tern_detail(), "backend ref has no op add");
    ops = *g_ref->ops;
    ops.has_f64 = false;
    call.args.add.dtype = TERN_F64;
    assert_int_equal(tern_op_add(&device, &call.args.add), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "dtype is f64, which backend ref does not take"));
    call_fini(&call);
}

/* What a backend may lack is refused by name, only where it is needed, and before anything is done. */
static void test_lacks(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum tern_op_lack lack;
        const char *sentence;
    } rows[] = {
        {EMBED_PACKED, TERN_LACKS_DOCUMENTS, "packed documents (starts)"},
        {ATTENTION_PACKED, TERN_LACKS_DOCUMENTS, "packed documents (starts)"},
        {"rope n=6 t=3 heads=2 d=8 docs=2", TERN_LACKS_DOCUMENTS, "packed documents (starts)"},
        {"embed_fwd n=6 t=3 c=5 v=7 scaled=1", TERN_LACKS_EMBED_SCALE, "a scale of embeddings"},
        {"embed_bwd n=6 t=3 c=5 v=7 scaled=1", TERN_LACKS_EMBED_SCALE, "a scale of embeddings"},
        {HEADS, TERN_LACKS_NORM_HEADS, "norms of heads and of strided rows"},
        {"norm_fwd n=3 c=8 rms=1 stats=1 layout=1", TERN_LACKS_NORM_HEADS, "strided rows"},
        {HEADS_BWD, TERN_LACKS_NORM_HEADS, "norms of heads and of strided rows"},
        {"norm_fwd n=3 c=8 rms=1 stats=1 layout=4", TERN_LACKS_NORM_OFFSET, "an offset of gamma"},
        {"norm_bwd n=3 c=8 rms=1 stats=1 layout=4", TERN_LACKS_NORM_OFFSET, "an offset of gamma"},
        {"attention_fwd b=1 tq=5 tkv=5 h=2 k=1 d=8 layout=1 cap=3", TERN_LACKS_SOFTCAP,
         "a softcap"},
        {"attention_bwd b=1 tq=5 tkv=5 h=2 k=1 d=8 layout=1 lse=1 cap=3", TERN_LACKS_SOFTCAP,
         "a softcap"},
        {"cross_entropy rows=3 v=9 cap=3", TERN_LACKS_SOFTCAP, "a softcap"},
        {"rope n=6 t=3 heads=2 d=8 part=4", TERN_LACKS_ROTARY_PART, "of a part of the head"},
        {STORED, TERN_LACKS_STORED, "products of weights as they are stored"},
        {"embed_fwd n=6 t=3 c=32 v=7 stored=15", TERN_LACKS_STORED,
         "embeddings as they are stored"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_ops ops = *g_ref->ops;
        struct tern_device device = {.ops = &ops};
        struct call call;
        call_init(&call, rows[i].name);
        enum tern_op op = call.in.c.op;
        ops.lacks = ~(unsigned)rows[i].lack;
        assert_int_equal(tern_instance_call(op, &call.args, &device), TERN_OK);
        ops.lacks = (unsigned)rows[i].lack;
        assert_int_equal(tern_instance_call(op, &call.args, &device), TERN_ERR_UNSUPPORTED);
        if (strstr(tern_detail(), rows[i].sentence) == NULL ||
            strstr(tern_detail(), "backend ref lacks ") == NULL) {
            fail_msg("%s: says '%s', expected '%s'", rows[i].name, tern_detail(), rows[i].sentence);
        }
        call_fini(&call);
    }
}

static int64_t g_now_ns;

static int64_t slow_clock(void)
{
    g_now_ns += 1500;
    return g_now_ns;
}

static void test_profile(void **state)
{
    (void)state;
    struct tern_op_profile profile[TERN_OP_COUNT];
    struct call call;
    call_init(&call, "add n=9");
    tern_clock_fake(slow_clock);
    tern_op_profile_enable(true);
    assert_int_equal(tern_op_add(g_ref, &call.args.add), TERN_OK);
    assert_int_equal(tern_op_add(g_ref, &call.args.add), TERN_OK);
    call.args.add.n = -1;
    assert_int_equal(tern_op_add(g_ref, &call.args.add), TERN_ERR_ARGUMENT);
    call.args.add.n = 9;
    tern_op_profile_enable(false);
    assert_int_equal(tern_op_add(g_ref, &call.args.add), TERN_OK);
    tern_clock_fake(NULL);
    tern_op_profile_read(profile);
    assert_int_equal(profile[TERN_OP_ADD].calls, 2);
    assert_string_equal(profile[TERN_OP_ADD].name, "add");
    assert_true(fabs(profile[TERN_OP_ADD].seconds - 3e-6) < 1e-12);
    assert_true(profile[TERN_OP_ADD].flops == 18 && profile[TERN_OP_ADD].bytes == 2 * 9 * 12);
    assert_int_equal(profile[TERN_OP_GEMM].calls, 0);
    tern_op_profile_enable(true);
    tern_op_profile_enable(false);
    tern_op_profile_read(profile);
    assert_int_equal(profile[TERN_OP_ADD].calls, 0);
    call_fini(&call);
}

/* Pairs by their definition. */
static double pairs(int64_t tq, int64_t tkv, int64_t window)
{
    double sum = 0;
    for (int64_t t = 0; t < tq; t++) {
        int64_t seen = tkv - tq + t + 1;
        sum += (double)(window > 0 && seen > window ? window : seen);
    }
    return sum;
}

static void test_cost(void **state)
{
    (void)state;
    for (int64_t tq = 1; tq < 8; tq++) {
        for (int64_t tkv = tq; tkv < 12; tkv++) {
            for (int64_t window = 0; window < 14; window++) {
                double got = tern_cost_attention_pairs(tq, tkv, window);
                if (got != pairs(tq, tkv, window)) {
                    fail_msg("tq=%lld tkv=%lld window=%lld: %g pairs, expected %g", (long long)tq,
                             (long long)tkv, (long long)window, got, pairs(tq, tkv, window));
                }
            }
        }
    }
    struct call call;
    call_init(&call, "gemm m=4 n=6 k=8 epilogue=1");
    struct tern_cost cost = tern_cost_gemm(&call.args.gemm);
    assert_true(cost.flops == 2 * 4 * 6 * 8 + 4 * 6);
    assert_true(cost.bytes == 4 * (4 * 8 + 8 * 6 + 4 * 6 + 6));
    call_fini(&call);
}

static void test_open(void **state)
{
    (void)state;
    struct tern_device *device = NULL;
    assert_int_equal(tern_device_open("cpy", 1, &device), TERN_ERR_USAGE);
    assert_non_null(strstr(tern_detail(), "there is no backend 'cpy'"));
    assert_non_null(strstr(tern_detail(), "did you mean 'cpu'"));
    assert_null(device);
    assert_int_equal(tern_device_open("ref", -1, &device), TERN_ERR_USAGE);
    struct tern_backend_info infos[8];
    int count = tern_backend_list(infos, 8);
    assert_int_equal(count, tern_backend_list(NULL, 0));
    for (int i = 0; i < count; i++) {
        tern_status status = tern_device_open(infos[i].name, 1, &device);
        assert_int_equal(status, infos[i].reason[0] == '\0' ? TERN_OK : TERN_ERR_UNSUPPORTED);
        if (status == TERN_OK) {
            assert_string_equal(device->ops->device->name, infos[i].name);
            assert_int_equal(tern_device_threads(device), 1);
            assert_true(tern_device_isa(device)[0] != '\0');
        }
        tern_device_close(device);
        device = NULL;
    }
    assert_int_equal(tern_device_open("auto", 1, &device), TERN_OK);
    assert_string_equal(device->ops->device->name, "cpu");
    tern_device_close(device);
    assert_true(strlen(tern_cpu_features()) > 0);
}

static void test_limits(void **state)
{
    (void)state;
    size_t bytes = 1;
    struct tern_op_limits limits = {.rows = 1, .width = 1};
    assert_int_equal(tern_device_prepare(g_ref, &limits, &bytes), TERN_OK);
    assert_int_equal(bytes, 0);
    limits.head_width = 513;
    assert_int_equal(tern_device_prepare(g_ref, &limits, &bytes), TERN_ERR_ARGUMENT);
    limits = (struct tern_op_limits){.rows = 0, .width = 1};
    assert_int_equal(tern_device_prepare(g_ref, &limits, &bytes), TERN_ERR_ARGUMENT);
    assert_non_null(strstr(tern_detail(), "rows is 0"));
    assert_int_equal(tern_device_prepare(g_ref, NULL, &bytes), TERN_ERR_ARGUMENT);
}

/* Every case says its name so that it can be built again from it. */
static void test_names(void **state)
{
    (void)state;
    int count;
    const struct tern_case *cases = tern_cases_build(&count);
    for (int i = 0; i < count; i++) {
        char name[TERN_CASE_NAME_BYTES], again[TERN_CASE_NAME_BYTES];
        struct tern_case parsed;
        assert_true(tern_case_parse(tern_case_name(&cases[i], name), &parsed));
        assert_string_equal(tern_case_name(&parsed, again), name);
    }
    struct tern_case c;
    assert_false(tern_case_parse("gemm m=3 q=4", &c));
    assert_false(tern_case_parse("gem m=3", &c));
    tern_cases_free();
}

static int open_ref(void **state)
{
    (void)state;
    return tern_device_open("ref", 1, &g_ref) == TERN_OK ? 0 : -1;
}

static int close_ref(void **state)
{
    (void)state;
    tern_device_close(g_ref);
    return tern_mem_stats().live_blocks == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_contents),
        cmocka_unit_test(test_overflow),   cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_missing_op), cmocka_unit_test(test_lacks),
        cmocka_unit_test(test_profile),    cmocka_unit_test(test_cost),
        cmocka_unit_test(test_open),       cmocka_unit_test(test_limits),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("kernels_args", tests, open_ref, close_ref);
}
