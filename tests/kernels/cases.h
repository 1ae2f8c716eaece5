/* cases.h - the one table of op cases: conformance, gradients, benchmark and support matrix all
 * read it. */
#ifndef TERN_TESTS_KERNELS_CASES_H
#define TERN_TESTS_KERNELS_CASES_H

#include "kernels/ops.h"

enum {
    TERN_CASE_DIMS = 12,
    TERN_CASE_NAME_BYTES = 256
};

/* What the floating inputs hold. */
enum tern_case_data {
    TERN_DATA_NORMAL,   /* N(0, 1) */
    TERN_DATA_MEAN,     /* 1000 + N(0, 1/16): large mean, tiny variance */
    TERN_DATA_DENORMAL, /* below the smallest normal f32 */
    TERN_DATA_ONE_HOT,  /* one 1 a row */
    TERN_DATA_EQUAL,    /* all the same */
    TERN_DATA_LARGE,    /* exponentials overflow without care */
    TERN_DATA_ZERO,
    TERN_DATA_COUNT
};

/* Who is interested in a case besides conformance. */
enum tern_case_use {
    TERN_USE_TEST = 0,
    TERN_USE_BENCH = 1
};

struct tern_case {
    enum tern_op op;
    enum tern_case_data data;
    enum tern_case_use use; /* BENCH: too large for the slow reference, skipped by the tests */
    int shift; /* n: tensor n, counted from 1, starts off the alignment; 0: all or none, by dim */
    int64_t dim[TERN_CASE_DIMS];
};

/* Dimensions of each op, in the order of `dim`; 0 or 1 for switches. DOCS: documents in a sequence, 0: no starts. */
enum {
    EMBED_N,
    EMBED_T,
    EMBED_C,
    EMBED_V,
    EMBED_WPE,
    EMBED_FIRST,
    EMBED_DOCS,
    EMBED_SCALED,
    EMBED_STORED,
    EMBED_PLACES, /* rows say where they stand */
    EMBED_KIND    /* enum tern_packed: from what is stored */
};
enum {
    NORM_N,
    NORM_C,
    NORM_RMS,
    NORM_RESIDUAL,
    NORM_IN_PLACE,
    NORM_BETA,
    NORM_STATS,
    NORM_ACC,
    NORM_HEADS, /* 0: the plain op */
    NORM_LAYOUT
};
enum {
    GEMM_M,
    GEMM_N,
    GEMM_K,
    GEMM_TA,
    GEMM_TB,
    GEMM_ACC,
    GEMM_EPILOGUE,
    GEMM_MIX,
    GEMM_PAD, /* of a stored b in blocks */
    GEMM_STORED,
    GEMM_KIND /* the same */
};
enum {
    BIAS_ROWS,
    BIAS_N,
    BIAS_PAD,
    BIAS_ACC
};
enum {
    GEMM_BIAS_M,
    GEMM_BIAS_N,
    GEMM_BIAS_K,
    GEMM_BIAS_ACC,
    GEMM_BIAS_OF_A,
    GEMM_BIAS_TURNED, /* the other factor is stored the other way round */
    GEMM_BIAS_PAD
};
enum {
    ATT_B,
    ATT_TQ,
    ATT_TKV,
    ATT_H,
    ATT_K,
    ATT_D,
    ATT_LAYOUT,
    ATT_WINDOW,
    ATT_LSE,
    ATT_DOCS,
    ATT_CAP
};
enum {
    PAGED_S,
    PAGED_ROWS,   /* new tokens of every third sequence; of the others 1, and 0 to 4 */
    PAGED_LENGTH, /* of the longest */
    PAGED_H,
    PAGED_K,
    PAGED_D,
    PAGED_WINDOW,
    PAGED_CAP,
    PAGED_KEPT, /* dtype */
    PAGED_PAD
};
enum {
    ROPE_N,
    ROPE_T,
    ROPE_HEADS,
    ROPE_D,
    ROPE_PAD,
    ROPE_FIRST,
    ROPE_BWD,
    ROPE_DOCS,
    ROPE_PART,
    ROPE_PLACES
};
enum {
    ACT_N,
    ACT_KIND,
    ACT_IN_PLACE
};
enum {
    GLU_N,
    GLU_F,
    GLU_KIND
};
enum {
    ADD_N,
    ADD_ALIAS,
    ADD_SCALED, /* 1: a factor of b; 2: and no a */
};
enum {
    CE_ROWS,
    CE_V,
    CE_PAD,
    CE_BWD,
    CE_IGNORE,
    CE_HALF,
    CE_CAP
};
enum {
    ADAMW_N,
    ADAMW_COPY,
    ADAMW_STEP
};
enum {
    SUMSQ_BLOCKS,
    SUMSQ_N,
    SUMSQ_PLAIN
};
enum {
    CLIP_BLOCKS,
    CLIP_LOSSES,
    CLIP_LIMIT /* max_norm is 1 over this; 0: none */
};
enum {
    CAST_N,
    CAST_FROM,
    CAST_TO
};
enum {
    CAP_N,
    CAP_CAP,
    CAP_IN_PLACE
};
enum {
    ROUTE_N,
    ROUTE_EXPERTS,
    ROUTE_TOP,
    ROUTE_NORMALISE
};
enum {
    COMBINE_N,
    COMBINE_TOP,
    COMBINE_C
};
/* Read back by embed_fwd. */
enum {
    PACK_N,
    PACK_K,
    PACK_PAD, /* of src, in blocks */
    PACK_TRANS,
    PACK_STORED, /* 0: storage */
    PACK_PACKED
};

/* Norm: dense rows; strides of their own for x and out (or dy); equal strides and in place (out is x, with a copy; dx
 * is dy); equal strides, not in place. Plus NORM_OFFSET: gamma counts from 1. */
enum {
    NORM_DENSE,
    NORM_STRIDED,
    NORM_ONE_BUFFER,
    NORM_EQUAL,
    NORM_OFFSET
};

/* Attention: q, k and v in separate buffers with padded rows; in the rows of one buffer; or k
 * and v in a cache that has room for more. */
enum {
    ATT_SEPARATE,
    ATT_PACKED,
    ATT_CACHE
};
/* Gemm dtypes, S being the storage dtype of the test: all S; d f32; everything stored f32,
 * compute S; a f32; stored S, compute f32. */
enum {
    MIX_ALL,
    MIX_WIDE_D,
    MIX_ROUNDED,
    MIX_WIDE_A,
    MIX_STORED,
    MIX_COUNT
};

/* The table, built once; free it with tern_cases_free. */
const struct tern_case *tern_cases_build(int *count_out);
void tern_cases_free(void);

/* "gemm m=64 n=65 ... data=normal". Returns out. */
const char *tern_case_name(const struct tern_case *c, char out[TERN_CASE_NAME_BYTES]);
/* The inverse; dimensions left out are 0. False on a malformed name. */
bool tern_case_parse(const char *name, struct tern_case *out);
/* Does an op take part in `storage` (bf16 makes no difference to AdamW)? */
bool tern_case_has_storage(const struct tern_case *c, enum tern_dtype storage);

#endif
