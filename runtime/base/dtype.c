/* dtype.c - one row a type. */
#include "runtime/base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;     /* of a block */
    int64_t elements; /* in a block */
    double epsilon;
} g_dtypes[TERN_DTYPE_COUNT] = {
    [TERN_F32] = {"f32", 4, 1, 0x1p-23},
    [TERN_BF16] = {"bf16", 2, 1, 0x1p-7},
    [TERN_F64] = {"f64", 8, 1, 0x1p-52},
    [TERN_I32] = {"i32", 4, 1, 0},
    [TERN_I64] = {"i64", 8, 1, 0},
    [TERN_U16] = {"u16", 2, 1, 0},
    [TERN_U8] = {"u8", 1, 1, 0},
    [TERN_F16] = {"f16", 2, 1, 0x1p-10},
    [TERN_I8] = {"i8", 1, 1, 0},
    [TERN_I16] = {"i16", 2, 1, 0},
    [TERN_U32] = {"u32", 4, 1, 0},
    [TERN_U64] = {"u64", 8, 1, 0},
    [TERN_BOOL] = {"bool", 1, 1, 0},
    [TERN_F8_E4M3] = {"f8_e4m3", 1, 1, 0x1p-3},
    [TERN_F8_E5M2] = {"f8_e5m2", 1, 1, 0x1p-2},
    [TERN_Q4_0] = {"q4_0", 18, 32, 0},
    [TERN_Q4_1] = {"q4_1", 20, 32, 0},
    [TERN_Q5_0] = {"q5_0", 22, 32, 0},
    [TERN_Q5_1] = {"q5_1", 24, 32, 0},
    [TERN_Q8_0] = {"q8_0", 34, 32, 0},
    [TERN_Q2_K] = {"q2_k", 84, 256, 0},
    [TERN_Q3_K] = {"q3_k", 110, 256, 0},
    [TERN_Q4_K] = {"q4_k", 144, 256, 0},
    [TERN_Q5_K] = {"q5_k", 176, 256, 0},
    [TERN_Q6_K] = {"q6_k", 210, 256, 0},
    [TERN_IQ4_NL] = {"iq4_nl", 18, 32, 0},
    [TERN_IQ4_XS] = {"iq4_xs", 136, 256, 0},
    [TERN_MXFP4] = {"mxfp4", 17, 32, 0},
};

size_t tern_dtype_bytes(enum tern_dtype dtype)
{
    return g_dtypes[dtype].bytes;
}

int64_t tern_dtype_block_elements(enum tern_dtype dtype)
{
    return g_dtypes[dtype].elements;
}

bool tern_dtype_row_bytes(enum tern_dtype dtype, int64_t n, size_t *bytes_out)
{
    int64_t blocks = n / g_dtypes[dtype].elements;
    return n >= 0 && n % g_dtypes[dtype].elements == 0 &&
           !__builtin_mul_overflow((size_t)blocks, g_dtypes[dtype].bytes, bytes_out);
}

const char *tern_dtype_name(enum tern_dtype dtype)
{
    return g_dtypes[dtype].name;
}

double tern_dtype_epsilon(enum tern_dtype dtype)
{
    return g_dtypes[dtype].epsilon;
}
