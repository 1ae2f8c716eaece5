/* build.c - from the numbers of a case to tensors, pointers and arguments, one function an op. */
#include "tests/kernels/build.h"

#include "runtime/base/check.h"

#include <math.h>
#include <string.h>

static enum tern_dtype side_of(enum tern_dtype storage)
{
    return storage == TERN_F64 ? TERN_F64 : TERN_F32;
}

/* Dense (rows, width), summed over `length`; what is special is set on the result. */
struct tern_tensor *tern_build_tensor(struct tern_instance *in,
                                      const char *name,
                                      enum tern_dtype dtype,
                                      enum tern_role role,
                                      int64_t rows,
                                      int64_t width)
{
    TERN_CHECK(in->tensor_count < TERN_TENSORS_MAX);
    struct tern_tensor *t = &in->tensors[in->tensor_count++];
    *t = (struct tern_tensor){.name = name,
                              .dtype = dtype,
                              .role = role,
                              .rows = rows,
                              .width = width,
                              .stride = width,
                              .batch_rows = rows,
                              .used_rows = rows,
                              .large = 1e4};
    return t;
}

void tern_build_slot(struct tern_instance *in, size_t offset, int64_t element)
{
    TERN_CHECK(in->slot_count < TERN_SLOTS_MAX);
    in->slots[in->slot_count++] =
        (struct tern_slot){.offset = offset, .tensor = in->tensor_count - 1, .element = element};
}

/* `positions` of n rows, each below `count`. */
#define PLACES(in, member, n, count) \
    do { \
        struct tern_tensor *places_ = \
            TENSOR((in), member, positions, TERN_I32, TERN_ROLE_IN, 1, (n)); \
        places_->fill = TERN_FILL_IDS; \
        places_->limit = (count); \
    } while (0)

/* `starts` of n tokens in sequences of t, for a case that has documents. */
#define DOCUMENTS(in, member, n, t, docs) \
    do { \
        if ((docs) > 0) { \
            struct tern_tensor *starts_ = \
                TENSOR((in), member, starts, TERN_I32, TERN_ROLE_IN, 1, (n)); \
            starts_->fill = TERN_FILL_DOCUMENTS; \
            starts_->limit = (t); \
            starts_->documents = (docs); \
        } \
    } while (0)

/* Makes rows of `stride` elements of `dtype` of a tensor that was described in elements: bytes if stored. */
static void weights(struct tern_tensor *t, enum tern_dtype dtype, int64_t stride)
{
    size_t width_bytes = 0, stride_bytes = 0;
    t->dtype = dtype;
    t->stride = stride;
    if (tern_dtype_is_stored(dtype)) {
        TERN_CHECK(tern_dtype_row_bytes(dtype, t->width, &width_bytes) &&
                   tern_dtype_row_bytes(dtype, stride, &stride_bytes));
        t->dtype = TERN_U8;
        t->width = (int64_t)width_bytes;
        t->stride = (int64_t)stride_bytes;
        t->fill = TERN_FILL_STORED;
        t->limit = dtype;
    }
}

/* A multiplier of embeddings as Gemma has it: no power of two. */
static const float EMBED_FACTOR = 11.3125F;

static void build_embed_fwd(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_embed_fwd_args *args = &in->args.embed_fwd;
    *args = (struct tern_embed_fwd_args){.n = d[EMBED_N],
                                         .t = d[EMBED_T],
                                         .c = d[EMBED_C],
                                         .v = d[EMBED_V],
                                         .first_position = d[EMBED_FIRST],
                                         .scale = d[EMBED_SCALED] ? EMBED_FACTOR : 0,
                                         .dtype = in->storage};
    struct tern_tensor *ids = TENSOR(in, embed_fwd, ids, TERN_I32, TERN_ROLE_IN, 1, args->n);
    ids->fill = TERN_FILL_IDS;
    ids->limit = args->v;
    if (d[EMBED_STORED]) {
        args->wte_dtype = (enum tern_dtype)d[EMBED_STORED];
        weights(TENSOR(in, embed_fwd, wte, TERN_U8, TERN_ROLE_IN, args->v, args->c),
                args->wte_dtype, args->c);
    } else {
        TENSOR(in, embed_fwd, wte, in->storage, TERN_ROLE_IN, args->v, args->c);
    }
    args->wte_packed = (enum tern_packed)d[EMBED_KIND];
    if (d[EMBED_WPE]) {
        int64_t rows = args->first_position + args->t;
        TENSOR(in, embed_fwd, wpe, in->storage, TERN_ROLE_IN, rows, args->c);
    }
    TENSOR(in, embed_fwd, out, in->storage, TERN_ROLE_OUT, args->n, args->c);
    DOCUMENTS(in, embed_fwd, args->n, args->t, d[EMBED_DOCS]);
    if (d[EMBED_PLACES]) {
        args->position_count = args->t;
        PLACES(in, embed_fwd, args->n, args->t);
    }
}

static void build_embed_bwd(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_embed_bwd_args *args = &in->args.embed_bwd;
    *args = (struct tern_embed_bwd_args){.n = d[EMBED_N],
                                         .t = d[EMBED_T],
                                         .c = d[EMBED_C],
                                         .v = d[EMBED_V],
                                         .scale = d[EMBED_SCALED] ? EMBED_FACTOR : 0,
                                         .dtype = in->storage};
    enum tern_dtype side = side_of(in->storage);
    struct tern_tensor *ids = TENSOR(in, embed_bwd, ids, TERN_I32, TERN_ROLE_IN, 1, args->n);
    ids->fill = TERN_FILL_IDS;
    ids->limit = args->v;
    TENSOR(in, embed_bwd, dout, in->storage, TERN_ROLE_IN, args->n, args->c);
    DOCUMENTS(in, embed_bwd, args->n, args->t, d[EMBED_DOCS]);
    TENSOR(in, embed_bwd, dwte, side, TERN_ROLE_IN_OUT, args->v, args->c)->length = args->n;
    if (d[EMBED_WPE]) {
        TENSOR(in, embed_bwd, dwpe, side, TERN_ROLE_IN_OUT, args->t, args->c)->length = args->n;
    }
}

/* Row strides of x, and of out (or dy), by the layout. */
static void norm_strides(const int64_t *d, int64_t width, int64_t rows[2])
{
    int64_t layout = d[NORM_LAYOUT] % NORM_OFFSET;
    rows[0] = layout == NORM_DENSE ? 0 : layout == NORM_STRIDED ? width + 3 : width + 4;
    rows[1] = layout == NORM_DENSE ? 0 : layout == NORM_STRIDED ? width + 5 : width + 4;
}

static void set_stride(struct tern_tensor *t, int64_t stride)
{
    t->stride = stride > 0 ? stride : t->width;
}

static void build_norm_fwd(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_norm_fwd_args *args = &in->args.norm_fwd;
    int64_t n = d[NORM_N], c = d[NORM_C], heads = d[NORM_HEADS] > 0 ? d[NORM_HEADS] : 1, rows[2];
    norm_strides(d, heads * c, rows);
    *args = (struct tern_norm_fwd_args){.n = n,
                                        .c = c,
                                        .heads = d[NORM_HEADS],
                                        .x_row = rows[0],
                                        .out_row = rows[1],
                                        .eps = 1e-5F,
                                        .gamma_offset = d[NORM_LAYOUT] >= NORM_OFFSET,
                                        .kind = d[NORM_RMS] ? TERN_NORM_RMS : TERN_NORM_LAYER,
                                        .dtype = in->storage};
    bool in_place = d[NORM_RESIDUAL] && d[NORM_IN_PLACE];
    bool one_buffer = d[NORM_LAYOUT] % NORM_OFFSET == NORM_ONE_BUFFER;
    enum tern_role x_role = in_place || one_buffer ? TERN_ROLE_IN_OUT : TERN_ROLE_IN;
    struct tern_tensor *x = TENSOR(in, norm_fwd, x, in->storage, x_role, n, heads * c);
    set_stride(x, rows[0]);
    if (in_place) {
        tern_build_slot(in, offsetof(union tern_args, norm_fwd.sum), 0);
    }
    if (one_buffer) {
        tern_build_slot(in, offsetof(union tern_args, norm_fwd.out), 0);
        x->length = c;
        TENSOR(in, norm_fwd, copy, in->storage, TERN_ROLE_OUT, n, heads * c);
    }
    if (d[NORM_RESIDUAL]) {
        TENSOR(in, norm_fwd, residual, in->storage, TERN_ROLE_IN, n, heads * c)->fill =
            TERN_FILL_NORMAL;
    }
    if (d[NORM_RESIDUAL] && !in_place) {
        TENSOR(in, norm_fwd, sum, in->storage, TERN_ROLE_OUT, n, heads * c);
    }
    TENSOR(in, norm_fwd, gamma, in->storage, TERN_ROLE_IN, 1, c)->fill = TERN_FILL_NORMAL;
    if (d[NORM_BETA]) {
        TENSOR(in, norm_fwd, beta, in->storage, TERN_ROLE_IN, 1, c)->fill = TERN_FILL_NORMAL;
    }
    if (!one_buffer) {
        struct tern_tensor *out =
            TENSOR(in, norm_fwd, out, in->storage, TERN_ROLE_OUT, n, heads * c);
        set_stride(out, rows[1]);
        out->length = c;
    }
    enum tern_dtype side = side_of(in->storage);
    if (d[NORM_STATS]) {
        TENSOR(in, norm_fwd, rstd, side, TERN_ROLE_OUT, 1, n * heads)->length = c;
    }
    if (d[NORM_STATS] && !d[NORM_RMS]) {
        TENSOR(in, norm_fwd, mean, side, TERN_ROLE_OUT, 1, n * heads)->length = c;
    }
}

/* dy and dx: two tensors, or one. */
static void norm_gradients(struct tern_instance *in, int64_t n, int64_t width, int64_t row)
{
    const int64_t *d = in->c.dim;
    bool in_place = d[NORM_RESIDUAL] && d[NORM_IN_PLACE];
    bool one_buffer = d[NORM_LAYOUT] % NORM_OFFSET == NORM_ONE_BUFFER;
    struct tern_tensor *dy = TENSOR(in, norm_bwd, dy, in->storage,
                                    one_buffer ? TERN_ROLE_IN_OUT : TERN_ROLE_IN, n, width);
    set_stride(dy, row);
    dy->fill = TERN_FILL_NORMAL;
    dy->length = d[NORM_C];
    if (d[NORM_RESIDUAL] && !in_place) {
        struct tern_tensor *dresidual =
            TENSOR(in, norm_bwd, dresidual, in->storage, TERN_ROLE_IN, n, width);
        set_stride(dresidual, row);
        dresidual->fill = TERN_FILL_NORMAL;
    }
    if (one_buffer) {
        in->slots[in->slot_count++] =
            (struct tern_slot){offsetof(union tern_args, norm_bwd.dx), (int)(dy - in->tensors), 0};
        return;
    }
    struct tern_tensor *dx = TENSOR(in, norm_bwd, dx, in->storage,
                                    in_place ? TERN_ROLE_IN_OUT : TERN_ROLE_OUT, n, width);
    set_stride(dx, row);
    dx->length = d[NORM_C];
    dx->fill = TERN_FILL_NORMAL;
    if (in_place) {
        tern_build_slot(in, offsetof(union tern_args, norm_bwd.dresidual), 0);
    }
}

static void build_norm_bwd(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_norm_bwd_args *args = &in->args.norm_bwd;
    int64_t n = d[NORM_N], c = d[NORM_C], heads = d[NORM_HEADS] > 0 ? d[NORM_HEADS] : 1, rows[2];
    norm_strides(d, heads * c, rows);
    *args = (struct tern_norm_bwd_args){.n = n,
                                        .c = c,
                                        .heads = d[NORM_HEADS],
                                        .x_row = rows[0],
                                        .dy_row = rows[1],
                                        .gamma_offset = d[NORM_LAYOUT] >= NORM_OFFSET,
                                        .accumulate = d[NORM_ACC] != 0,
                                        .kind = d[NORM_RMS] ? TERN_NORM_RMS : TERN_NORM_LAYER,
                                        .dtype = in->storage};
    enum tern_dtype side = side_of(in->storage);
    enum tern_role grad = args->accumulate ? TERN_ROLE_IN_OUT : TERN_ROLE_OUT;
    struct tern_tensor *x = TENSOR(in, norm_bwd, x, in->storage, TERN_ROLE_IN, n, heads * c);
    set_stride(x, rows[0]);
    x->fill = TERN_FILL_DERIVED;
    TENSOR(in, norm_bwd, gamma, in->storage, TERN_ROLE_IN, 1, c)->fill = TERN_FILL_NORMAL;
    TENSOR(in, norm_bwd, rstd, side, TERN_ROLE_IN, 1, n * heads)->fill = TERN_FILL_DERIVED;
    if (!d[NORM_RMS]) {
        TENSOR(in, norm_bwd, mean, side, TERN_ROLE_IN, 1, n * heads)->fill = TERN_FILL_DERIVED;
    }
    norm_gradients(in, n, heads * c, rows[1]);
    TENSOR(in, norm_bwd, dgamma, side, grad, 1, c)->length = n * heads;
    if (d[NORM_BETA]) {
        TENSOR(in, norm_bwd, dbeta, side, grad, 1, c)->length = n * heads;
    }
}

/* Dtypes of a gemm by its mix; in f64 everything is. */
static void gemm_dtypes(struct tern_gemm_args *args, int64_t mix, enum tern_dtype s)
{
    enum tern_dtype wide = side_of(s);
    args->a_dtype = mix == MIX_ROUNDED || mix == MIX_WIDE_A ? wide : s;
    args->b_dtype = mix == MIX_ROUNDED ? wide : s;
    args->d_dtype = mix == MIX_ROUNDED || mix == MIX_WIDE_D ? wide : s;
    args->bias_dtype = mix == MIX_ROUNDED ? wide : s;
    args->compute = mix == MIX_STORED ? wide : s;
}

static void build_gemm(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_gemm_args *args = &in->args.gemm;
    int64_t m = d[GEMM_M], n = d[GEMM_N], k = d[GEMM_K], pad = d[GEMM_PAD];
    bool ta = d[GEMM_TA] != 0, tb = d[GEMM_TB] != 0;
    *args = (struct tern_gemm_args){.m = m,
                                    .n = n,
                                    .k = k,
                                    .lda = (ta ? m : k) + pad,
                                    .ldb = (tb ? k : n) + 2 * pad,
                                    .ldd = n + pad,
                                    .trans_a = ta,
                                    .trans_b = tb,
                                    .accumulate = d[GEMM_ACC] != 0,
                                    .epilogue = (enum tern_epilogue)d[GEMM_EPILOGUE]};
    gemm_dtypes(args, d[GEMM_MIX], in->storage);
    if (d[GEMM_STORED]) {
        args->b_dtype = (enum tern_dtype)d[GEMM_STORED];
        args->ldb = k + pad * tern_dtype_block_elements(args->b_dtype);
    }
    args->b_packed = (enum tern_packed)d[GEMM_KIND];
    if (tern_packed_is_codes(args->b_packed)) {
        args->compute = TERN_I8;
    }
    enum tern_role role = args->accumulate ? TERN_ROLE_IN_OUT : TERN_ROLE_OUT;
    TENSOR(in, gemm, a, args->a_dtype, TERN_ROLE_IN, ta ? k : m, ta ? m : k)->stride = args->lda;
    weights(TENSOR(in, gemm, b, TERN_U8, TERN_ROLE_IN, tb ? n : k, tb ? k : n), args->b_dtype,
            args->ldb);
    struct tern_tensor *out = TENSOR(in, gemm, d, args->d_dtype, role, m, n);
    out->stride = args->ldd;
    out->length = k;
    if (tern_epilogue_has_bias(args->epilogue)) {
        TENSOR(in, gemm, bias, args->bias_dtype, TERN_ROLE_IN, 1, n);
    }
    if (tern_epilogue_has_aux(args->epilogue)) {
        bool is_read = args->epilogue == TERN_EPILOGUE_DGELU;
        struct tern_tensor *aux =
            TENSOR(in, gemm, aux, args->d_dtype, is_read ? TERN_ROLE_IN : TERN_ROLE_OUT, m, n);
        aux->stride = args->ldd;
        aux->length = k;
    }
}

static void build_bias_bwd(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_bias_bwd_args *args = &in->args.bias_bwd;
    *args = (struct tern_bias_bwd_args){.rows = d[BIAS_ROWS],
                                        .n = d[BIAS_N],
                                        .ldy = d[BIAS_N] + d[BIAS_PAD],
                                        .accumulate = d[BIAS_ACC] != 0,
                                        .dtype = in->storage};
    enum tern_role role = args->accumulate ? TERN_ROLE_IN_OUT : TERN_ROLE_OUT;
    struct tern_tensor *dy =
        TENSOR(in, bias_bwd, dy, in->storage, TERN_ROLE_IN, args->rows, args->n);
    dy->stride = args->ldy;
    TENSOR(in, bias_bwd, dbias, side_of(in->storage), role, 1, args->n)->length = args->rows;
}

static void build_gemm_bias_bwd(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_gemm_bias_bwd_args *both = &in->args.gemm_bias_bwd;
    int64_t m = d[GEMM_BIAS_M], n = d[GEMM_BIAS_N], k = d[GEMM_BIAS_K], pad = d[GEMM_BIAS_PAD];
    bool of_a = d[GEMM_BIAS_OF_A] != 0, turned = d[GEMM_BIAS_TURNED] != 0;
    bool ta = of_a || !turned, tb = of_a && turned;
    enum tern_dtype side = side_of(in->storage);
    both->is_of_a = of_a;
    both->gemm = (struct tern_gemm_args){.m = m,
                                         .n = n,
                                         .k = k,
                                         .lda = (ta ? m : k) + pad,
                                         .ldb = (tb ? k : n) + 2 * pad,
                                         .ldd = n + pad,
                                         .trans_a = ta,
                                         .trans_b = tb,
                                         .accumulate = d[GEMM_BIAS_ACC] != 0,
                                         .a_dtype = in->storage,
                                         .b_dtype = in->storage,
                                         .d_dtype = side,
                                         .bias_dtype = side,
                                         .compute = in->storage};
    const struct tern_gemm_args *args = &both->gemm;
    enum tern_role role = args->accumulate ? TERN_ROLE_IN_OUT : TERN_ROLE_OUT;
    TENSOR(in, gemm, a, in->storage, TERN_ROLE_IN, ta ? k : m, ta ? m : k)->stride = args->lda;
    TENSOR(in, gemm, b, in->storage, TERN_ROLE_IN, tb ? n : k, tb ? k : n)->stride = args->ldb;
    struct tern_tensor *out = TENSOR(in, gemm, d, side, role, m, n);
    out->stride = args->ldd;
    out->length = k;
    TENSOR(in, gemm_bias_bwd, dbias, side, role, 1, of_a ? m : n)->length = k;
}

/* One of q, kv (both parts) or their gradients: `rows` used of every `capacity`. */
static struct tern_tensor *attention_rows(struct tern_instance *in,
                                          const char *name,
                                          enum tern_role role,
                                          int64_t capacity,
                                          int64_t rows,
                                          int64_t width)
{
    struct tern_tensor *t =
        tern_build_tensor(in, name, in->storage, role, in->args.attention.b * capacity, width);
    t->batch_rows = capacity;
    t->used_rows = rows;
    t->large = 20;
    return t;
}

/* q, k, v or dq, dk, dv, whose pointers are at the three offsets. */
static void attention_triple(struct tern_instance *in,
                             const char *const names[5],
                             enum tern_role role,
                             const size_t offsets[3])
{
    const struct tern_attention_args *args = &in->args.attention;
    int64_t q = args->h * args->d, kv = args->kv_heads * args->d;
    int64_t layout = in->c.dim[ATT_LAYOUT];
    int64_t length = args->tkv * (args->h / args->kv_heads);
    length = length > args->d ? length : args->d;
    if (layout == ATT_PACKED) {
        attention_rows(in, names[3], role, args->tq, args->tq, q + 2 * kv)->length = length;
        tern_build_slot(in, offsets[0], 0);
        tern_build_slot(in, offsets[1], q);
        tern_build_slot(in, offsets[2], q + kv);
        return;
    }
    struct tern_tensor *t = attention_rows(in, names[0], role, args->tq, args->tq, q);
    t->stride = args->q_row;
    t->length = length;
    tern_build_slot(in, offsets[0], 0);
    if (layout == ATT_CACHE) {
        int64_t capacity = args->kv_batch / args->kv_row;
        attention_rows(in, names[4], role, capacity, args->tkv, 2 * kv)->length = length;
        tern_build_slot(in, offsets[1], 0);
        tern_build_slot(in, offsets[2], kv);
        return;
    }
    for (int part = 1; part < 3; part++) {
        t = attention_rows(in, names[part], role, args->tkv, args->tkv, kv);
        t->stride = args->kv_row;
        t->length = length;
        tern_build_slot(in, offsets[part], 0);
    }
}

static void attention_strides(struct tern_attention_args *args, int64_t layout)
{
    int64_t q = args->h * args->d, kv = args->kv_heads * args->d;
    args->out_row = layout == ATT_SEPARATE ? q + 1 : q;
    args->q_row = layout == ATT_PACKED ? q + 2 * kv : layout == ATT_SEPARATE ? q + 3 : q;
    args->kv_row = layout == ATT_PACKED ? q + 2 * kv : layout == ATT_SEPARATE ? kv + 5 : 2 * kv;
    args->out_batch = args->tq * args->out_row;
    args->q_batch = args->tq * args->q_row;
    args->kv_batch = (args->tkv + (layout == ATT_CACHE ? 3 : 0)) * args->kv_row;
}

static void build_attention(struct tern_instance *in)
{
    static const char *const inputs[5] = {"q", "k", "v", "qkv", "kv"};
    static const char *const grads[5] = {"dq", "dk", "dv", "dqkv", "dkv"};
    static const size_t input_offsets[3] = {offsetof(union tern_args, attention.q),
                                            offsetof(union tern_args, attention.k),
                                            offsetof(union tern_args, attention.v)};
    static const size_t grad_offsets[3] = {offsetof(union tern_args, attention.dq),
                                           offsetof(union tern_args, attention.dk),
                                           offsetof(union tern_args, attention.dv)};
    const int64_t *d = in->c.dim;
    bool bwd = in->c.op == TERN_OP_ATTENTION_BWD;
    struct tern_attention_args *args = &in->args.attention;
    *args = (struct tern_attention_args){.b = d[ATT_B],
                                         .tq = d[ATT_TQ],
                                         .tkv = d[ATT_TKV],
                                         .h = d[ATT_H],
                                         .kv_heads = d[ATT_K],
                                         .d = d[ATT_D],
                                         .window = d[ATT_WINDOW],
                                         .softcap = (float)d[ATT_CAP],
                                         .scale = (float)(1 / sqrt((double)d[ATT_D])),
                                         .dtype = in->storage};
    attention_strides(args, d[ATT_LAYOUT]);
    attention_triple(in, inputs, TERN_ROLE_IN, input_offsets);
    int64_t q = args->h * args->d, rows = args->b * args->tq;
    struct tern_tensor *out =
        TENSOR(in, attention, out, in->storage, bwd ? TERN_ROLE_IN : TERN_ROLE_OUT, rows, q);
    out->stride = args->out_row;
    out->length = args->tkv > args->d ? args->tkv : args->d;
    out->fill = TERN_FILL_DERIVED;
    if (d[ATT_LSE]) {
        struct tern_tensor *lse =
            TENSOR(in, attention, lse, side_of(in->storage), bwd ? TERN_ROLE_IN : TERN_ROLE_OUT, 1,
                   args->b * args->h * args->tq);
        lse->length = out->length;
        lse->fill = TERN_FILL_DERIVED;
    }
    DOCUMENTS(in, attention, rows, args->tq, d[ATT_DOCS]);
    if (bwd) {
        struct tern_tensor *dout = TENSOR(in, attention, dout, in->storage, TERN_ROLE_IN, rows, q);
        dout->stride = args->out_row;
        dout->fill = TERN_FILL_NORMAL;
        attention_triple(in, grads, TERN_ROLE_OUT, grad_offsets);
    }
}

static void build_rope(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_rope_args *args = &in->args.rope;
    int64_t width = d[ROPE_HEADS] * d[ROPE_D], rows = d[ROPE_FIRST] + d[ROPE_T];
    *args = (struct tern_rope_args){.n = d[ROPE_N],
                                    .t = d[ROPE_T],
                                    .heads = d[ROPE_HEADS],
                                    .d = d[ROPE_D],
                                    .x_row = width + d[ROPE_PAD],
                                    .rotary_d = d[ROPE_PART],
                                    .first_position = d[ROPE_FIRST],
                                    .backward = d[ROPE_BWD] != 0,
                                    .dtype = in->storage};
    TENSOR(in, rope, x, in->storage, TERN_ROLE_IN_OUT, args->n, width)->stride = args->x_row;
    enum tern_dtype side = side_of(in->storage);
    int64_t half = (d[ROPE_PART] > 0 ? d[ROPE_PART] : d[ROPE_D]) / 2;
    TENSOR(in, rope, cos, side, TERN_ROLE_IN, rows, half)->fill = TERN_FILL_COS;
    TENSOR(in, rope, sin, side, TERN_ROLE_IN, rows, half)->fill = TERN_FILL_SIN;
    DOCUMENTS(in, rope, args->n, args->t, d[ROPE_DOCS]);
    if (d[ROPE_PLACES]) {
        args->position_count = rows;
        PLACES(in, rope, args->n, rows);
    }
}

static void build_act(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    int64_t n = d[ACT_N];
    bool bwd = in->c.op == TERN_OP_ACT_BWD, in_place = bwd && d[ACT_IN_PLACE];
    in->args.act =
        (struct tern_act_args){.n = n, .act = (enum tern_act)d[ACT_KIND], .dtype = in->storage};
    TENSOR(in, act, x, in->storage, TERN_ROLE_IN, 1, n);
    if (!bwd) {
        TENSOR(in, act, y, in->storage, TERN_ROLE_OUT, 1, n);
        return;
    }
    struct tern_tensor *dy =
        TENSOR(in, act, dy, in->storage, in_place ? TERN_ROLE_IN_OUT : TERN_ROLE_IN, 1, n);
    dy->fill = TERN_FILL_NORMAL;
    if (in_place) {
        tern_build_slot(in, offsetof(union tern_args, act.dx), 0);
    } else {
        TENSOR(in, act, dx, in->storage, TERN_ROLE_OUT, 1, n);
    }
}

static void build_glu(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    int64_t n = d[GLU_N], f = d[GLU_F];
    in->args.glu = (struct tern_glu_args){
        .n = n, .f = f, .act = (enum tern_act)d[GLU_KIND], .dtype = in->storage};
    TENSOR(in, glu, gate_up, in->storage, TERN_ROLE_IN, n, 2 * f)->large = 100;
    if (in->c.op == TERN_OP_GLU_FWD) {
        TENSOR(in, glu, out, in->storage, TERN_ROLE_OUT, n, f);
        return;
    }
    TENSOR(in, glu, dout, in->storage, TERN_ROLE_IN, n, f)->fill = TERN_FILL_NORMAL;
    TENSOR(in, glu, dgate_up, in->storage, TERN_ROLE_OUT, n, 2 * f);
}

static void build_add(struct tern_instance *in)
{
    int64_t n = in->c.dim[ADD_N], alias = in->c.dim[ADD_ALIAS];
    in->args.add = (struct tern_add_args){.n = n, .dtype = in->storage};
    in->args.add.scale = in->c.dim[ADD_SCALED] > 0 ? -1.7F : 0;
    if (in->c.dim[ADD_SCALED] < 2) {
        TENSOR(in, add, a, in->storage, alias == 1 ? TERN_ROLE_IN_OUT : TERN_ROLE_IN, 1, n);
    }
    if (alias == 1) {
        tern_build_slot(in, offsetof(union tern_args, add.y), 0);
    }
    TENSOR(in, add, b, in->storage, alias == 2 ? TERN_ROLE_IN_OUT : TERN_ROLE_IN, 1, n);
    if (alias == 2) {
        tern_build_slot(in, offsetof(union tern_args, add.y), 0);
    }
    if (alias == 0) {
        TENSOR(in, add, y, in->storage, TERN_ROLE_OUT, 1, n);
    }
}

static void build_cross_entropy(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_cross_entropy_args *args = &in->args.cross_entropy;
    enum tern_dtype dtype = side_of(in->storage);
    *args = (struct tern_cross_entropy_args){.rows = d[CE_ROWS],
                                             .v = d[CE_V],
                                             .ld = d[CE_V] + d[CE_PAD],
                                             .softcap = (float)d[CE_CAP],
                                             .backward = d[CE_BWD] != 0,
                                             .dtype = dtype};
    struct tern_tensor *logits = TENSOR(in, cross_entropy, logits, dtype,
                                        d[CE_HALF]       ? TERN_ROLE_IN_LOST
                                        : args->backward ? TERN_ROLE_IN_OUT
                                                         : TERN_ROLE_IN,
                                        args->rows, args->v);
    logits->stride = args->ld;
    logits->length = args->v;
    if (d[CE_HALF]) {
        args->ldd = d[CE_V] + 2 * d[CE_PAD];
        struct tern_tensor *dlogits =
            TENSOR(in, cross_entropy, dlogits, TERN_BF16, TERN_ROLE_OUT, args->rows, args->v);
        dlogits->stride = args->ldd;
        dlogits->length = args->v;
    }
    struct tern_tensor *targets =
        TENSOR(in, cross_entropy, targets, TERN_I32, TERN_ROLE_IN, 1, args->rows);
    targets->fill = TERN_FILL_TARGETS;
    targets->limit = args->v;
    TENSOR(in, cross_entropy, nll, dtype, TERN_ROLE_OUT, 1, args->rows)->length = args->v;
}

static void build_adamw(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    int64_t n = d[ADAMW_N];
    double step = (double)d[ADAMW_STEP];
    in->args.adamw =
        (struct tern_adamw_args){.copy_dtype = d[ADAMW_COPY] == 2 ? TERN_BF16 : TERN_F32,
                                 .n = n,
                                 .lr = 6e-3F,
                                 .beta1 = 0.9F,
                                 .beta2 = 0.95F,
                                 .eps = 1e-8F,
                                 .weight_decay = 0.1F,
                                 .bias1 = (float)(1 - pow(0.9, step)),
                                 .bias2 = (float)(1 - pow(0.95, step))};
    TENSOR(in, adamw, weight, TERN_F32, TERN_ROLE_IN_OUT, 1, n)->fill = TERN_FILL_NORMAL;
    TENSOR(in, adamw, grad, TERN_F32, TERN_ROLE_IN, 1, n);
    TENSOR(in, adamw, exp_avg, TERN_F32, TERN_ROLE_IN_OUT, 1, n)->fill = TERN_FILL_NORMAL;
    TENSOR(in, adamw, exp_avg_sq, TERN_F32, TERN_ROLE_IN_OUT, 1, n)->fill = TERN_FILL_POSITIVE;
    if (d[ADAMW_COPY]) {
        TENSOR(in, adamw, copy, in->args.adamw.copy_dtype, TERN_ROLE_OUT, 1, n);
    }
    TENSOR(in, adamw, grad_scale, TERN_F32, TERN_ROLE_IN, 1, 1)->fill = TERN_FILL_SCALE;
}

static void build_sumsq(struct tern_instance *in)
{
    int64_t blocks = in->c.dim[SUMSQ_BLOCKS], n = in->c.dim[SUMSQ_N];
    in->args.sumsq = (struct tern_sumsq_args){.blocks = blocks, .is_plain = in->c.dim[SUMSQ_PLAIN]};
    TENSOR(in, sumsq, x, TERN_F32, TERN_ROLE_IN, 1, n);
    struct tern_tensor *starts = TENSOR(in, sumsq, starts, TERN_I64, TERN_ROLE_IN, 1, blocks + 1);
    starts->fill = TERN_FILL_STARTS;
    starts->limit = n;
    TENSOR(in, sumsq, sums, TERN_F64, TERN_ROLE_OUT, 1, blocks)->length = n;
}

static void build_clip(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    int64_t blocks = d[CLIP_BLOCKS], n = blocks + d[CLIP_LOSSES];
    double limit = (double)d[CLIP_LIMIT];
    in->args.clip = (struct tern_clip_args){.n = n,
                                            .blocks = blocks,
                                            .losses = d[CLIP_LOSSES],
                                            .count = 3,
                                            .max_norm = limit > 0 ? 1 / limit : 0};
    TENSOR(in, clip, values, TERN_F64, TERN_ROLE_IN, 1, n)->fill = TERN_FILL_POSITIVE;
    struct tern_tensor *order = TENSOR(in, clip, order, TERN_I64, TERN_ROLE_IN, 1, n);
    order->fill = TERN_FILL_ORDER;
    order->limit = n;
    TENSOR(in, clip, total, TERN_F64, TERN_ROLE_OUT, 1, 1)->length = blocks;
    TENSOR(in, clip, scale, TERN_F32, TERN_ROLE_OUT, 1, 1)->length = blocks;
}

static void build_cast(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_cast_args *args = &in->args.cast;
    *args = (struct tern_cast_args){.n = d[CAST_N],
                                    .src_dtype = (enum tern_dtype)d[CAST_FROM],
                                    .dst_dtype = (enum tern_dtype)d[CAST_TO]};
    TENSOR(in, cast, src, args->src_dtype, TERN_ROLE_IN, 1, args->n)->fill = TERN_FILL_TIES;
    TENSOR(in, cast, dst, args->dst_dtype, TERN_ROLE_OUT, 1, args->n);
}

static void build_softcap(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    in->args.softcap =
        (struct tern_softcap_args){.n = d[CAP_N], .cap = (float)d[CAP_CAP], .dtype = in->storage};
    TENSOR(in, softcap, x, in->storage, d[CAP_IN_PLACE] ? TERN_ROLE_IN_OUT : TERN_ROLE_IN, 1,
           d[CAP_N]);
    if (d[CAP_IN_PLACE]) {
        tern_build_slot(in, offsetof(union tern_args, softcap.y), 0);
    } else {
        TENSOR(in, softcap, y, in->storage, TERN_ROLE_OUT, 1, d[CAP_N]);
    }
}

static void build_moe_route(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    int64_t n = d[ROUTE_N], count = d[ROUTE_EXPERTS], k = d[ROUTE_TOP];
    in->args.moe_route = (struct tern_moe_route_args){.n = n,
                                                      .expert_count = count,
                                                      .top_k = k,
                                                      .normalise = d[ROUTE_NORMALISE] != 0,
                                                      .dtype = in->storage};
    TENSOR(in, moe_route, logits, in->storage, TERN_ROLE_IN, n, count);
    TENSOR(in, moe_route, experts, TERN_I32, TERN_ROLE_OUT, n, k);
    TENSOR(in, moe_route, weights, side_of(in->storage), TERN_ROLE_OUT, n, k)->length = count;
    TENSOR(in, moe_route, pairs, TERN_I32, TERN_ROLE_OUT, n, k);
    TENSOR(in, moe_route, rows, TERN_I32, TERN_ROLE_OUT, 1, n * k);
    TENSOR(in, moe_route, starts, TERN_I32, TERN_ROLE_OUT, 1, count + 1);
}

static void build_moe_combine(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    int64_t n = d[COMBINE_N], k = d[COMBINE_TOP], c = d[COMBINE_C];
    in->args.moe_combine =
        (struct tern_moe_combine_args){.n = n, .top_k = k, .c = c, .dtype = in->storage};
    TENSOR(in, moe_combine, x, in->storage, TERN_ROLE_IN, n * k, c);
    TENSOR(in, moe_combine, weights, side_of(in->storage), TERN_ROLE_IN, n, k)->fill =
        TERN_FILL_NORMAL;
    struct tern_tensor *pairs = TENSOR(in, moe_combine, pairs, TERN_I32, TERN_ROLE_IN, 1, n * k);
    pairs->fill = TERN_FILL_IDS;
    pairs->limit = n * k;
    TENSOR(in, moe_combine, out, in->storage, TERN_ROLE_OUT, n, c)->length = k;
}

static void build_pack(struct tern_instance *in)
{
    const int64_t *d = in->c.dim;
    struct tern_pack_args *args = &in->args.pack.pack;
    int64_t n = d[PACK_N], k = d[PACK_K];
    *args = (struct tern_pack_args){.n = n,
                                    .k = k,
                                    .trans_src = d[PACK_TRANS] != 0,
                                    .src_dtype = (enum tern_dtype)d[PACK_STORED],
                                    .packed = (enum tern_packed)d[PACK_PACKED]};
    args->src_dtype = d[PACK_STORED] ? args->src_dtype : in->storage;
    args->ld = (args->trans_src ? n : k) + d[PACK_PAD] * tern_dtype_block_elements(args->src_dtype);
    weights(TENSOR(in, pack, pack.src, TERN_U8, TERN_ROLE_IN, args->trans_src ? k : n,
                   args->trans_src ? n : k),
            args->src_dtype, args->ld);
    struct tern_tensor *ids = TENSOR(in, pack, ids, TERN_I32, TERN_ROLE_IN, 1, n);
    ids->fill = TERN_FILL_ORDER;
    ids->limit = n;
    TENSOR(in, pack, out, TERN_F32, TERN_ROLE_OUT, n, k);
}

static void set_limits(struct tern_instance *in)
{
    struct tern_op_limits *limits = &in->limits;
    *limits = (struct tern_op_limits){.rows = 1, .width = 1};
    bool is_flat = in->c.op == TERN_OP_ACT_FWD || in->c.op == TERN_OP_ACT_BWD ||
                   in->c.op == TERN_OP_ADD || in->c.op == TERN_OP_CAST ||
                   in->c.op == TERN_OP_ADAMW || in->c.op == TERN_OP_SUMSQ ||
                   in->c.op == TERN_OP_CLIP || in->c.op == TERN_OP_SOFTCAP;
    for (int i = 0; i < in->tensor_count && !is_flat; i++) {
        const struct tern_tensor *t = &in->tensors[i];
        limits->rows = t->rows > limits->rows ? t->rows : limits->rows;
        limits->width = t->stride > limits->width ? t->stride : limits->width;
    }
    if (in->c.op == TERN_OP_ATTENTION_FWD || in->c.op == TERN_OP_ATTENTION_BWD) {
        const struct tern_attention_args *args = &in->args.attention;
        limits->sequence = args->tkv;
        limits->heads = args->h;
        limits->kv_heads = args->kv_heads;
        limits->head_width = args->d;
        limits->batch = args->b;
    }
    if (in->c.op == TERN_OP_KV_WRITE || in->c.op == TERN_OP_PAGED_ATTENTION) {
        tern_paged_limits(in, limits);
    }
    if (in->c.op == TERN_OP_CROSS_ENTROPY) {
        limits->vocab = in->args.cross_entropy.v;
    }
}

void tern_build_shapes(struct tern_instance *in)
{
    static void (*const build[TERN_OP_COUNT])(struct tern_instance *) = {
        [TERN_OP_EMBED_FWD] = build_embed_fwd,
        [TERN_OP_EMBED_BWD] = build_embed_bwd,
        [TERN_OP_NORM_FWD] = build_norm_fwd,
        [TERN_OP_NORM_BWD] = build_norm_bwd,
        [TERN_OP_GEMM] = build_gemm,
        [TERN_OP_BIAS_BWD] = build_bias_bwd,
        [TERN_OP_GEMM_BIAS_BWD] = build_gemm_bias_bwd,
        [TERN_OP_ATTENTION_FWD] = build_attention,
        [TERN_OP_ATTENTION_BWD] = build_attention,
        [TERN_OP_KV_WRITE] = tern_build_paged,
        [TERN_OP_PAGED_ATTENTION] = tern_build_paged,
        [TERN_OP_ROPE] = build_rope,
        [TERN_OP_ACT_FWD] = build_act,
        [TERN_OP_ACT_BWD] = build_act,
        [TERN_OP_GLU_FWD] = build_glu,
        [TERN_OP_GLU_BWD] = build_glu,
        [TERN_OP_ADD] = build_add,
        [TERN_OP_CROSS_ENTROPY] = build_cross_entropy,
        [TERN_OP_ADAMW] = build_adamw,
        [TERN_OP_SUMSQ] = build_sumsq,
        [TERN_OP_CLIP] = build_clip,
        [TERN_OP_CAST] = build_cast,
        [TERN_OP_SOFTCAP] = build_softcap,
        [TERN_OP_MOE_ROUTE] = build_moe_route,
        [TERN_OP_MOE_COMBINE] = build_moe_combine,
        [TERN_OP_PACK] = build_pack,
    };
    build[in->c.op](in);
    set_limits(in);
}
