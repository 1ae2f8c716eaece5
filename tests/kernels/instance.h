/* instance.h - one case made concrete: its buffers, their contents, the argument struct; run on
 * any device. */
#ifndef TERN_TESTS_KERNELS_INSTANCE_H
#define TERN_TESTS_KERNELS_INSTANCE_H

#include "tests/kernels/cases.h"

enum {
    TERN_TENSORS_MAX = 12,
    TERN_SLOTS_MAX = 16,
    TERN_PROBLEM_BYTES = 256
};

enum tern_role {
    TERN_ROLE_IN,     /* must come back unchanged */
    TERN_ROLE_OUT,    /* all NaN before the op, no NaN after it */
    TERN_ROLE_IN_OUT, /* read and written */
    TERN_ROLE_IN_LOST /* read, then of no use */
};

enum tern_fill {
    TERN_FILL_DATA,     /* as the case says */
    TERN_FILL_NORMAL,   /* N(0, 1) whatever the case says */
    TERN_FILL_POSITIVE, /* |N(0, 1)| / 100 */
    TERN_FILL_SCALE,    /* 0.37 */
    TERN_FILL_TIES,     /* as the case says, but every third lies halfway between two bf16 */
    TERN_FILL_IDS,      /* [0, limit) */
    TERN_FILL_TARGETS,  /* [0, limit), some -1 or limit when the case ignores some */
    TERN_FILL_COS,
    TERN_FILL_SIN,
    TERN_FILL_DOCUMENTS, /* starts of `documents` uneven documents in sequences of `limit` tokens */
    TERN_FILL_ORDER,     /* limit - 1 down to 0 */
    TERN_FILL_STORED,    /* bytes of stored weights, of dtype `limit`: small numbers */
    TERN_FILL_STARTS,    /* ascending from 0 to limit, an empty block among them */
    TERN_FILL_PAGED,     /* tern_paged_value (build.h) */
    TERN_FILL_DERIVED,   /* from a forward run: tern_instance_derive */
};

/* A buffer: rows of `width` elements, `stride` apart. Of every batch_rows rows, the first
 * used_rows are used. What is not used holds NaN, and must still hold it afterwards. */
struct tern_tensor {
    const char *name;
    enum tern_dtype dtype;
    enum tern_role role;
    enum tern_fill fill;
    int64_t rows, width, stride, batch_rows, used_rows;
    int64_t limit, documents;
    int64_t length;    /* of the sums behind an output */
    double large;      /* scale for TERN_DATA_LARGE */
    double *value;     /* rows * stride; inputs, already rounded to dtype */
    double *magnitude; /* outputs: see kernels/tolerance.h */
    double *rounded;
    double *underflow;
    double *terms, *squares;
};

struct tern_slot {
    size_t offset; /* of the tern_dptr in the argument struct */
    int tensor;
    int64_t element; /* where in the tensor it starts */
};

/* One case of both. */
struct tern_paged_args {
    struct tern_kv_write_args write;
    struct tern_paged_attention_args attend;
};

/* pack, and what reads it back: rows ids of what was packed, as f32. */
struct tern_pack_and_read {
    struct tern_pack_args pack; /* dst is the test's */
    struct tern_dptr ids, out;
};

union tern_args {
    struct tern_embed_fwd_args embed_fwd;
    struct tern_embed_bwd_args embed_bwd;
    struct tern_norm_fwd_args norm_fwd;
    struct tern_norm_bwd_args norm_bwd;
    struct tern_gemm_args gemm;
    struct tern_bias_bwd_args bias_bwd;
    struct tern_gemm_bias_bwd_args gemm_bias_bwd; /* begins as gemm */
    struct tern_attention_args attention;
    struct tern_paged_args paged;
    struct tern_rope_args rope;
    struct tern_act_args act;
    struct tern_glu_args glu;
    struct tern_add_args add;
    struct tern_cross_entropy_args cross_entropy;
    struct tern_adamw_args adamw;
    struct tern_sumsq_args sumsq;
    struct tern_clip_args clip;
    struct tern_cast_args cast;
    struct tern_softcap_args softcap;
    struct tern_moe_route_args moe_route;
    struct tern_moe_combine_args moe_combine;
    struct tern_pack_and_read pack;
};

struct tern_instance {
    struct tern_case c;
    enum tern_dtype storage;
    union tern_args args; /* pointers are set by each run */
    struct tern_tensor tensors[TERN_TENSORS_MAX];
    int tensor_count;
    struct tern_slot slots[TERN_SLOTS_MAX];
    int slot_count;
    struct tern_op_limits limits;
    unsigned shifted; /* bit i: tensor i starts one element off the alignment of the allocator */
};

/* What one run left behind, tensor by tensor, as doubles with padding. */
struct tern_result {
    double *value[TERN_TENSORS_MAX];
    int count;
};

/* Buffers of instances and results come from tern_alloc; running out of memory ends the test. */
void tern_instance_build(struct tern_instance *in,
                         const struct tern_case *c,
                         enum tern_dtype storage);
void tern_instance_fini(struct tern_instance *in);
/* The case of the forward op that a backward op belongs to; false if it has none. */
bool tern_instance_forward_case(const struct tern_case *c, struct tern_case *fwd_out);
/* Fills what only a forward run on `ref` gives (mean, rstd, lse, out). */
TERN_MUST_CHECK tern_status tern_instance_derive(struct tern_instance *in, struct tern_device *ref);
/* Allocates and fills magnitude and what follows it, once; `want` is the run on ref. */
void tern_instance_magnitudes(struct tern_instance *in, const struct tern_result *want);

/* Runs the op. problem_out gets a sentence when something outside the outputs was changed, an
 * output is NaN, or the op allocated; else "". */
TERN_MUST_CHECK tern_status tern_instance_run(const struct tern_instance *in,
                                              struct tern_device *device,
                                              struct tern_result *result_out,
                                              char problem_out[TERN_PROBLEM_BYTES]);
void tern_result_free(struct tern_result *result);
/* The weights of a call that takes them packed, packed into *block_out, which takes their place in args: owned. A null
 * block where the call takes them as they are. */
TERN_MUST_CHECK tern_status tern_instance_pack(enum tern_op op,
                                               union tern_args *args,
                                               struct tern_device *device,
                                               struct tern_dptr *block_out);
/* The wrapper of the op on arguments whose pointers are set. */
TERN_MUST_CHECK tern_status tern_instance_call(enum tern_op op,
                                               const union tern_args *args,
                                               struct tern_device *device);

/* Index of a tensor by name, or -1. */
int tern_instance_find(const struct tern_instance *in, const char *name);
int64_t tern_tensor_elements(const struct tern_tensor *t);
bool tern_tensor_is_used(const struct tern_tensor *t, int64_t index);
/* The tensor's values as its dtype: rows * stride elements. */
void tern_tensor_encode(const struct tern_tensor *t, char *bytes);
double tern_value_round(enum tern_dtype dtype, double x);

#endif
