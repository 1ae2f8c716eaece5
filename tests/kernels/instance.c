/* instance.c - contents of a case's buffers, and a run of it with guards around every buffer. */
#include "tests/kernels/instance.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"
#include "tests/kernels/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUARD_BYTES = 256,
    GUARD_FILL = 0xA5
};

static const uint64_t SEED = 20240229;

double tern_value_round(enum tern_dtype dtype, double x)
{
    switch (dtype) {
    case TERN_F32:
        return (double)(float)x;
    case TERN_BF16:
        return (double)tern_bf16_to_f32(tern_f32_to_bf16((float)x));
    default:
        return x;
    }
}

int64_t tern_tensor_elements(const struct tern_tensor *t)
{
    return t->rows * t->stride;
}

bool tern_tensor_is_used(const struct tern_tensor *t, int64_t index)
{
    return index % t->stride < t->width && index / t->stride % t->batch_rows < t->used_rows;
}

int tern_instance_find(const struct tern_instance *in, const char *name)
{
    for (int i = 0; i < in->tensor_count; i++) {
        if (strcmp(in->tensors[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* The same name holds the same numbers in a forward and a backward case. */
static uint64_t stream_of(const char *name)
{
    uint32_t hash = 2166136261U;
    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint32_t)(unsigned char)*name) * 16777619U;
    }
    return tern_random_stream_id(TERN_STREAM_TEST, hash);
}

static double data_value(const struct tern_tensor *t,
                         enum tern_case_data data,
                         int64_t row,
                         int64_t col)
{
    uint64_t index = (uint64_t)(row * t->width + col), stream = stream_of(t->name);
    double normal = tern_random_normal(SEED, stream, index);
    switch (data) {
    case TERN_DATA_MEAN:
        return 1000 + normal / 16;
    case TERN_DATA_DENORMAL:
        return normal * 1e-39;
    case TERN_DATA_ONE_HOT:
        return tern_random_u64(SEED, stream, (uint64_t)row) % (uint64_t)t->width == (uint64_t)col;
    case TERN_DATA_EQUAL:
        return 0.3;
    case TERN_DATA_LARGE:
        return normal * t->large;
    case TERN_DATA_ZERO:
        return 0;
    default:
        return normal;
    }
}

/* Angles as a model has them; position is the row. */
static double angle(const struct tern_tensor *t, int64_t row, int64_t col)
{
    return (double)row * pow(10000, -(double)col / (double)t->width);
}

static double target_value(const struct tern_instance *in, const struct tern_tensor *t, int64_t col)
{
    uint64_t draw = tern_random_u64(SEED, stream_of(t->name), (uint64_t)col);
    if (in->c.dim[CE_IGNORE] && col % 3 == 1) {
        return col % 2 == 0 ? (double)t->limit : -1;
    }
    return (double)(draw % (uint64_t)t->limit);
}

/* Block i of n elements in `blocks`: the second is empty, the rest nearly equal. */
static double start_value(const struct tern_tensor *t, int64_t col)
{
    int64_t blocks = t->width - 1;
    if (col == blocks || blocks == 1) {
        return col == 0 ? 0 : (double)t->limit;
    }
    int64_t at = col == 2 ? 1 : col;
    return (double)(t->limit * at / blocks);
}

/* Where the document of a token begins; odd sequences have one document more. */
static double document_value(const struct tern_tensor *t, int64_t col)
{
    int64_t at = col % t->limit, documents = t->documents + col / t->limit % 2, start = 0;
    for (int64_t i = 1; i < documents; i++) {
        int64_t begin = t->limit * i * i / (documents * documents);
        start = begin <= at ? begin : start;
    }
    return (double)start;
}

/* Byte number `at` of a block: random, but the fields that scale the block are about 1/64. */
static double stored_byte(const struct tern_tensor *t, int64_t row, int64_t col)
{
    static const struct {
        enum tern_dtype dtype;
        int64_t d, m; /* where f16 fields begin; -1: there is none */
    } fields[] = {
        {TERN_F16, 0, -1},    {TERN_Q4_0, 0, -1}, {TERN_Q4_1, 0, 2},    {TERN_Q5_0, 0, -1},
        {TERN_Q5_1, 0, 2},    {TERN_Q8_0, 0, -1}, {TERN_Q2_K, 80, 82},  {TERN_Q3_K, 108, -1},
        {TERN_Q4_K, 0, 2},    {TERN_Q5_K, 0, 2},  {TERN_Q6_K, 208, -1}, {TERN_IQ4_NL, 0, -1},
        {TERN_IQ4_XS, 0, -1},
    };
    uint64_t draw =
        tern_random_u64(SEED, stream_of(t->name), (uint64_t)(row * t->width + col)) & 0xff;
    int64_t at = col % (int64_t)tern_dtype_bytes((enum tern_dtype)t->limit);
    if (t->limit == TERN_MXFP4 && at == 0) {
        return (double)(120 + draw % 4); /* 2^-7 to 2^-4 */
    }
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if ((int64_t)fields[i].dtype == t->limit &&
            (at == fields[i].d + 1 || (fields[i].m >= 0 && at == fields[i].m + 1))) {
            return (double)((draw & 0x83) | 0x24); /* the upper byte: sign, 2^-6 to 2^-5 */
        }
    }
    return (double)draw;
}

/* Halfway between two neighbours in bf16. */
static double tie_near(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits & 0xffff0000U) | 0x8000U;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static double fill_value(const struct tern_instance *in,
                         const struct tern_tensor *t,
                         int64_t row,
                         int64_t col)
{
    switch (t->fill) {
    case TERN_FILL_NORMAL:
        return data_value(t, TERN_DATA_NORMAL, row, col);
    case TERN_FILL_POSITIVE:
        return fabs(data_value(t, TERN_DATA_NORMAL, row, col)) / 100;
    case TERN_FILL_SCALE:
        return 0.37;
    case TERN_FILL_TIES:
        return col % 3 == 1 ? tie_near(data_value(t, in->c.data, row, col))
                            : data_value(t, in->c.data, row, col);
    case TERN_FILL_IDS:
        return (double)(tern_random_u64(SEED, stream_of(t->name), (uint64_t)col) %
                        (uint64_t)t->limit);
    case TERN_FILL_TARGETS:
        return target_value(in, t, col);
    case TERN_FILL_COS:
        return cos(angle(t, row, col));
    case TERN_FILL_SIN:
        return sin(angle(t, row, col));
    case TERN_FILL_STORED:
        return stored_byte(t, row, col);
    case TERN_FILL_DOCUMENTS:
        return document_value(t, col);
    case TERN_FILL_ORDER:
        return (double)(t->limit - 1 - col);
    case TERN_FILL_STARTS:
        return start_value(t, col);
    case TERN_FILL_PAGED:
        return tern_paged_value(in, t, row * t->width + col);
    case TERN_FILL_DERIVED:
        return NAN;
    default:
        return data_value(t, in->c.data, row, col);
    }
}

static double *doubles(int64_t count)
{
    double *block = tern_alloc_zero("test", (size_t)count, sizeof(double));
    TERN_CHECK(block != NULL);
    return block;
}

/* One tensor if the case says which, else all of half of the cases, whatever their order. */
static unsigned shifted_of(const struct tern_case *c)
{
    bool is_shifted = false;
    for (int i = 0; i < TERN_CASE_DIMS; i++) {
        is_shifted ^= (c->dim[i] / 2 % 2) != 0;
    }
    return c->shift > 0 ? 1U << (c->shift - 1) : is_shifted ? ~0U : 0;
}

void tern_instance_build(struct tern_instance *in,
                         const struct tern_case *c,
                         enum tern_dtype storage)
{
    *in = (struct tern_instance){.c = *c, .storage = storage};
    in->shifted = shifted_of(c);
    tern_build_shapes(in);
    for (int i = 0; i < in->tensor_count; i++) {
        struct tern_tensor *t = &in->tensors[i];
        int64_t count = tern_tensor_elements(t);
        t->value = doubles(count);
        for (int64_t j = 0; j < count; j++) {
            double x = tern_tensor_is_used(t, j) && t->role != TERN_ROLE_OUT
                           ? fill_value(in, t, j / t->stride, j % t->stride)
                           : NAN;
            t->value[j] = tern_value_round(t->dtype, x);
        }
    }
}

void tern_instance_fini(struct tern_instance *in)
{
    for (int i = 0; i < in->tensor_count; i++) {
        tern_free(in->tensors[i].value);
        tern_free(in->tensors[i].magnitude);
        tern_free(in->tensors[i].rounded);
        tern_free(in->tensors[i].underflow);
        tern_free(in->tensors[i].terms);
        tern_free(in->tensors[i].squares);
    }
    in->tensor_count = 0;
}

bool tern_instance_forward_case(const struct tern_case *c, struct tern_case *fwd_out)
{
    *fwd_out = *c;
    switch (c->op) {
    case TERN_OP_EMBED_BWD:
        fwd_out->op = TERN_OP_EMBED_FWD;
        fwd_out->dim[EMBED_FIRST] = 0;
        return true;
    case TERN_OP_NORM_BWD:
        fwd_out->op = TERN_OP_NORM_FWD;
        fwd_out->dim[NORM_IN_PLACE] = 0;
        fwd_out->dim[NORM_ACC] = 0;
        if (c->dim[NORM_LAYOUT] % NORM_OFFSET == NORM_ONE_BUFFER) {
            fwd_out->dim[NORM_LAYOUT] += NORM_EQUAL - NORM_ONE_BUFFER;
        }
        return true;
    case TERN_OP_ATTENTION_BWD:
        fwd_out->op = TERN_OP_ATTENTION_FWD;
        return true;
    case TERN_OP_ACT_BWD:
        fwd_out->op = TERN_OP_ACT_FWD;
        fwd_out->dim[ACT_IN_PLACE] = 0;
        return true;
    case TERN_OP_GLU_BWD:
        fwd_out->op = TERN_OP_GLU_FWD;
        return true;
    case TERN_OP_CROSS_ENTROPY:
        fwd_out->dim[CE_BWD] = 0;
        return c->dim[CE_BWD] != 0 && c->dim[CE_HALF] == 0; /* bf16 is too coarse for differences */
    case TERN_OP_ROPE:
        fwd_out->dim[ROPE_BWD] = 0;
        return c->dim[ROPE_BWD] != 0;
    default:
        return false;
    }
}

tern_status tern_instance_derive(struct tern_instance *in, struct tern_device *ref)
{
    struct tern_case c;
    bool is_needed = false;
    for (int i = 0; i < in->tensor_count; i++) {
        const struct tern_tensor *t = &in->tensors[i];
        is_needed |= t->fill == TERN_FILL_DERIVED && t->role == TERN_ROLE_IN;
    }
    if (!is_needed || !tern_instance_forward_case(&in->c, &c)) {
        return TERN_OK;
    }
    struct tern_instance fwd;
    struct tern_result result;
    char problem[TERN_PROBLEM_BYTES];
    tern_instance_build(&fwd, &c, in->storage);
    tern_status status = tern_instance_run(&fwd, ref, &result, problem);
    for (int i = 0; status == TERN_OK && i < in->tensor_count; i++) {
        struct tern_tensor *t = &in->tensors[i];
        int from = tern_instance_find(&fwd, t->name);
        if (strcmp(t->name, "x") == 0 && tern_instance_find(&fwd, "sum") >= 0) {
            from = tern_instance_find(&fwd, "sum");
        }
        if (t->fill == TERN_FILL_DERIVED && from >= 0) {
            size_t bytes = (size_t)tern_tensor_elements(t) * sizeof(double);
            memcpy(t->value, result.value[from], bytes);
        }
    }
    tern_result_free(&result);
    tern_instance_fini(&fwd);
    return status;
}

void tern_tensor_encode(const struct tern_tensor *t, char *bytes)
{
    for (int64_t i = 0; i < tern_tensor_elements(t); i++) {
        double x = t->value[i];
        size_t size = tern_dtype_bytes(t->dtype);
        float f = (float)x;
        tern_bf16 b = tern_f32_to_bf16(f);
        int32_t i32 = isnan(x) ? 0 : (int32_t)x;
        int64_t i64 = isnan(x) ? 0 : (int64_t)x;
        uint8_t u8 = isnan(x) ? 0 : (uint8_t)x;
        const void *from = t->dtype == TERN_F64    ? (const void *)&x
                           : t->dtype == TERN_BF16 ? (const void *)&b
                           : t->dtype == TERN_I32  ? (const void *)&i32
                           : t->dtype == TERN_I64  ? (const void *)&i64
                           : t->dtype == TERN_U8   ? (const void *)&u8
                                                   : (const void *)&f;
        memcpy(bytes + (size_t)i * size, from, size);
    }
}

static double decode(enum tern_dtype dtype, const char *bytes)
{
    double x;
    float f;
    tern_bf16 b;
    int32_t i32;
    int64_t i64;
    switch (dtype) {
    case TERN_F64:
        memcpy(&x, bytes, sizeof x);
        return x;
    case TERN_BF16:
        memcpy(&b, bytes, sizeof b);
        return (double)tern_bf16_to_f32(b);
    case TERN_I32:
        memcpy(&i32, bytes, sizeof i32);
        return (double)i32;
    case TERN_I64:
        memcpy(&i64, bytes, sizeof i64);
        return (double)i64;
    case TERN_U8:
        return (double)*(const uint8_t *)bytes;
    default:
        memcpy(&f, bytes, sizeof f);
        return (double)f;
    }
}

/* One buffer on the device: guard, shift, data, guard. */
struct buffer {
    struct tern_dptr block;
    size_t data_offset, data_bytes, block_bytes;
    char *image; /* what was uploaded */
    char *after; /* what came back */
};

static tern_status buffer_init(struct buffer *buffer,
                               const struct tern_instance *in,
                               int tensor,
                               struct tern_device *device)
{
    const struct tern_tensor *t = &in->tensors[tensor];
    size_t size = tern_dtype_bytes(t->dtype);
    buffer->data_offset = GUARD_BYTES + (in->shifted >> tensor & 1 ? size : 0);
    buffer->data_bytes = (size_t)tern_tensor_elements(t) * size;
    buffer->block_bytes = buffer->data_offset + buffer->data_bytes + GUARD_BYTES;
    buffer->image = tern_alloc("test", buffer->block_bytes);
    buffer->after = tern_alloc("test", buffer->block_bytes);
    TERN_CHECK(buffer->image != NULL && buffer->after != NULL);
    memset(buffer->image, GUARD_FILL, buffer->block_bytes);
    tern_tensor_encode(t, buffer->image + buffer->data_offset);
    TERN_RETURN_IF_ERR(
        device->ops->device->alloc(device, "test", buffer->block_bytes, &buffer->block));
    return device->ops->device->upload(device, buffer->block, buffer->image, buffer->block_bytes);
}

static void buffer_fini(struct buffer *buffer, struct tern_device *device)
{
    if (!tern_dptr_is_null(buffer->block)) {
        device->ops->device->free(device, buffer->block);
    }
    tern_free(buffer->image);
    tern_free(buffer->after);
}

tern_status tern_instance_pack(enum tern_op op,
                               union tern_args *args,
                               struct tern_device *device,
                               struct tern_dptr *block_out)
{
    struct tern_gemm_args *gemm = &args->gemm;
    struct tern_embed_fwd_args *embed = &args->embed_fwd;
    struct tern_pack_args pack = {0};
    *block_out = (struct tern_dptr){0};
    if (op == TERN_OP_GEMM && gemm->b_packed != TERN_PACKED_NONE) {
        pack = (struct tern_pack_args){.src = gemm->b,
                                       .n = gemm->n,
                                       .k = gemm->k,
                                       .ld = gemm->ldb,
                                       .src_dtype = gemm->b_dtype,
                                       .packed = gemm->b_packed};
    } else if (op == TERN_OP_EMBED_FWD && embed->wte_packed != TERN_PACKED_NONE) {
        pack = (struct tern_pack_args){.src = embed->wte,
                                       .n = embed->v,
                                       .k = embed->c,
                                       .ld = embed->c,
                                       .src_dtype = embed->wte_dtype == TERN_F32 ? embed->dtype
                                                                                 : embed->wte_dtype,
                                       .packed = embed->wte_packed};
    } else if (op == TERN_OP_PACK) {
        pack = args->pack.pack;
    } else {
        return TERN_OK;
    }
    size_t bytes = tern_packed_bytes(device, pack.packed, pack.n, pack.k);
    if (bytes == 0) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "no packed weights");
    }
    TERN_RETURN_IF_ERR(device->ops->device->alloc(device, "test", bytes, block_out));
    pack.dst = *block_out;
    struct tern_dptr *place = op == TERN_OP_GEMM        ? &gemm->b
                              : op == TERN_OP_EMBED_FWD ? &embed->wte
                                                        : &args->pack.pack.dst;
    *place = *block_out;
    return op == TERN_OP_PACK ? TERN_OK : tern_op_pack(device, &pack);
}

static tern_status pack_and_read(struct tern_device *device, const struct tern_pack_and_read *args)
{
    TERN_RETURN_IF_ERR(tern_op_pack(device, &args->pack));
    return tern_op_embed_fwd(device,
                             &(struct tern_embed_fwd_args){.ids = args->ids,
                                                           .wte = args->pack.dst,
                                                           .out = args->out,
                                                           .n = args->pack.n,
                                                           .t = 1,
                                                           .c = args->pack.k,
                                                           .v = args->pack.n,
                                                           .wte_packed = args->pack.packed});
}

tern_status tern_instance_call(enum tern_op op,
                               const union tern_args *args,
                               struct tern_device *device)
{
    switch (op) {
    case TERN_OP_EMBED_FWD:
        return tern_op_embed_fwd(device, &args->embed_fwd);
    case TERN_OP_EMBED_BWD:
        return tern_op_embed_bwd(device, &args->embed_bwd);
    case TERN_OP_NORM_FWD:
        return tern_op_norm_fwd(device, &args->norm_fwd);
    case TERN_OP_NORM_BWD:
        return tern_op_norm_bwd(device, &args->norm_bwd);
    case TERN_OP_GEMM:
        return tern_op_gemm(device, &args->gemm);
    case TERN_OP_BIAS_BWD:
        return tern_op_bias_bwd(device, &args->bias_bwd);
    case TERN_OP_GEMM_BIAS_BWD:
        return tern_op_gemm_bias_bwd(device, &args->gemm_bias_bwd);
    case TERN_OP_ATTENTION_FWD:
        return tern_op_attention_fwd(device, &args->attention);
    case TERN_OP_ATTENTION_BWD:
        return tern_op_attention_bwd(device, &args->attention);
    case TERN_OP_KV_WRITE:
    case TERN_OP_PAGED_ATTENTION:
        return tern_paged_call(args, device);
    case TERN_OP_ROPE:
        return tern_op_rope(device, &args->rope);
    case TERN_OP_ACT_FWD:
        return tern_op_act_fwd(device, &args->act);
    case TERN_OP_ACT_BWD:
        return tern_op_act_bwd(device, &args->act);
    case TERN_OP_GLU_FWD:
        return tern_op_glu_fwd(device, &args->glu);
    case TERN_OP_GLU_BWD:
        return tern_op_glu_bwd(device, &args->glu);
    case TERN_OP_ADD:
        return tern_op_add(device, &args->add);
    case TERN_OP_CROSS_ENTROPY:
        return tern_op_cross_entropy(device, &args->cross_entropy);
    case TERN_OP_ADAMW:
        return tern_op_adamw(device, &args->adamw);
    case TERN_OP_SUMSQ:
        return tern_op_sumsq(device, &args->sumsq);
    case TERN_OP_CLIP:
        return tern_op_clip(device, &args->clip);
    case TERN_OP_CAST:
        return tern_op_cast(device, &args->cast);
    case TERN_OP_SOFTCAP:
        return tern_op_softcap(device, &args->softcap);
    case TERN_OP_MOE_ROUTE:
        return tern_op_moe_route(device, &args->moe_route);
    case TERN_OP_MOE_COMBINE:
        return tern_op_moe_combine(device, &args->moe_combine);
    case TERN_OP_PACK:
        return pack_and_read(device, &args->pack);
    default:
        return tern_fail(TERN_ERR_ARGUMENT, "there is no op number %d", (int)op);
    }
}

static void set_pointers(const struct tern_instance *in,
                         const struct buffer *buffers,
                         union tern_args *args)
{
    for (int i = 0; i < in->slot_count; i++) {
        const struct tern_slot *slot = &in->slots[i];
        const struct buffer *buffer = &buffers[slot->tensor];
        struct tern_dptr start = {buffer->block.addr + buffer->data_offset};
        struct tern_dptr p = tern_dptr_at(start, slot->element, in->tensors[slot->tensor].dtype);
        memcpy((char *)args + slot->offset, &p, sizeof p);
    }
}

/* The first thing in a buffer that the op should not have touched, or left NaN. */
static void inspect(const struct tern_tensor *t,
                    const struct buffer *buffer,
                    double *value,
                    char problem_out[TERN_PROBLEM_BYTES])
{
    size_t size = tern_dtype_bytes(t->dtype), end = buffer->data_offset + buffer->data_bytes;
    for (size_t i = 0; i < buffer->block_bytes; i++) {
        bool is_guard = i < buffer->data_offset || i >= end;
        int64_t element = is_guard ? 0 : (int64_t)((i - buffer->data_offset) / size);
        bool is_fixed = is_guard || t->role == TERN_ROLE_IN || !tern_tensor_is_used(t, element);
        if (is_fixed && buffer->image[i] != buffer->after[i] && problem_out[0] == '\0') {
            snprintf(problem_out, TERN_PROBLEM_BYTES, "byte %lld of %s (%s) was overwritten",
                     (long long)i - (long long)buffer->data_offset, t->name,
                     is_guard                  ? "outside the buffer"
                     : t->role == TERN_ROLE_IN ? "an input"
                                               : "between the rows");
        }
    }
    for (int64_t i = 0; i < tern_tensor_elements(t); i++) {
        value[i] = decode(t->dtype, buffer->after + buffer->data_offset + (size_t)i * size);
        if (isnan(value[i]) && tern_tensor_is_used(t, i) && problem_out[0] == '\0') {
            snprintf(problem_out, TERN_PROBLEM_BYTES, "%s[%lld][%lld] is NaN", t->name,
                     (long long)(i / t->stride), (long long)(i % t->stride));
        }
    }
}

tern_status tern_instance_run(const struct tern_instance *in,
                              struct tern_device *device,
                              struct tern_result *result_out,
                              char problem_out[TERN_PROBLEM_BYTES])
{
    struct buffer buffers[TERN_TENSORS_MAX] = {0};
    union tern_args args = in->args;
    struct tern_dptr packed = {0};
    tern_status status = TERN_OK;
    *result_out = (struct tern_result){.count = in->tensor_count};
    problem_out[0] = '\0';
    for (int i = 0; i < in->tensor_count; i++) {
        TERN_GOTO_IF_ERR(status, buffer_init(&buffers[i], in, i, device), out);
    }
    set_pointers(in, buffers, &args);
    TERN_GOTO_IF_ERR(status, tern_instance_pack(in->c.op, &args, device, &packed), out);
    int64_t before = tern_mem_stats().total_blocks;
    TERN_GOTO_IF_ERR(status, tern_instance_call(in->c.op, &args, device), out);
    int64_t allocated = tern_mem_stats().total_blocks - before;
    TERN_GOTO_IF_ERR(status, device->ops->device->sync(device), out);
    if (allocated != 0) {
        snprintf(problem_out, TERN_PROBLEM_BYTES, "the op allocated %lld blocks",
                 (long long)allocated);
    }
    for (int i = 0; i < in->tensor_count; i++) {
        struct buffer *b = &buffers[i];
        TERN_GOTO_IF_ERR(
            status, device->ops->device->download(device, b->after, b->block, b->block_bytes), out);
        result_out->value[i] = doubles(tern_tensor_elements(&in->tensors[i]));
        inspect(&in->tensors[i], b, result_out->value[i], problem_out);
    }
out:
    if (!tern_dptr_is_null(packed)) {
        device->ops->device->free(device, packed);
    }
    for (int i = 0; i < in->tensor_count; i++) {
        buffer_fini(&buffers[i], device);
    }
    return status;
}

void tern_result_free(struct tern_result *result)
{
    for (int i = 0; i < result->count; i++) {
        tern_free(result->value[i]);
    }
    result->count = 0;
}
