/* dtype.c - one row a type. */
#include "runtime/base/dtype.h"

static const struct {
    const char *name;
    size_t bytes;
    double epsilon;
} g_dtypes[TERN_DTYPE_COUNT] = {
    [TERN_F32] = {"f32", 4, 0x1p-23}, [TERN_BF16] = {"bf16", 2, 0x1p-7},
    [TERN_F64] = {"f64", 8, 0x1p-52}, [TERN_I32] = {"i32", 4, 0},
    [TERN_I64] = {"i64", 8, 0},       [TERN_U16] = {"u16", 2, 0},
    [TERN_U8] = {"u8", 1, 0},
};

size_t tern_dtype_bytes(enum tern_dtype dtype)
{
    return g_dtypes[dtype].bytes;
}

const char *tern_dtype_name(enum tern_dtype dtype)
{
    return g_dtypes[dtype].name;
}

double tern_dtype_epsilon(enum tern_dtype dtype)
{
    return g_dtypes[dtype].epsilon;
}
