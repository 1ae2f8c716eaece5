/* blas_problem.c - what cuBLASLt can do of a product, and how the rest is cut: pure functions.
 *
 * Its documentation (cublasLtMatmul, table of type combinations) allows, with fp32 accumulation and fp32 scales:
 *   factors bf16: d bf16 with a bf16 bias, or d f32 with an f32 bias
 *   factors f32:  d f32 with an f32 bias
 * Everything else is made of these: a factor of another dtype is converted into the scratch (to bf16 when the
 * arithmetic is bf16: then both are rounded, as the definition says; from bf16 to f32, which is exact, when one factor
 * is f32 and the arithmetic too), and an output or a bias of another dtype is finished by a kernel of ours. Two bf16
 * factors with fp32 arithmetic need nothing: their products are exact in fp32. */
#include "kernels/cuda/blas.h"

#include <string.h>

enum {
    SCRATCH_BYTES_MAX = 256 << 20,
    SCRATCH_ALIGN = 256,
    STRIDE_STEP = 8,  /* elements: 16 bytes of bf16 */
    PIECE_STEP = 128, /* rows or columns of a piece, when it has that many: whole tiles */
    FEWEST_BYTES =
        64, /* of scratch for each element of the longest side: a piece of 8 by 8, both factors f32 */
    HOPPER = 90,
};

static int64_t round_up(int64_t value, int64_t step)
{
    return (value + step - 1) / step * step;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t tern_blas_scratch_stride(int64_t width)
{
    return round_up(width, STRIDE_STEP);
}

/* Bytes of (rows, width) elements in the scratch. */
static size_t matrix_bytes(int64_t rows, int64_t width, enum tern_dtype dtype)
{
    size_t bytes = (size_t)rows * (size_t)tern_blas_scratch_stride(width) * tern_dtype_bytes(dtype);
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

static void measure(const struct tern_gemm_args *args, struct tern_blas_cut *cut)
{
    cut->a_bytes = !cut->copy_a    ? 0
                   : args->trans_a ? matrix_bytes(args->k, cut->m, cut->factor)
                                   : matrix_bytes(cut->m, args->k, cut->factor);
    cut->b_bytes = !cut->copy_b    ? 0
                   : args->trans_b ? matrix_bytes(cut->n, args->k, cut->factor)
                                   : matrix_bytes(args->k, cut->n, cut->factor);
    cut->sums_bytes = cut->has_sums ? matrix_bytes(cut->m, cut->n, TERN_F32) : 0;
}

static int64_t halve(int64_t value)
{
    int64_t half = (value + 1) / 2;
    return half > PIECE_STEP ? round_up(half, PIECE_STEP) : half;
}

bool tern_blas_cut(const struct tern_gemm_args *args,
                   bool must_finish,
                   size_t scratch_bytes,
                   struct tern_blas_cut *out)
{
    bool is_bf16 =
        args->compute == TERN_BF16 || (args->a_dtype == TERN_BF16 && args->b_dtype == TERN_BF16);
    enum tern_dtype factor = is_bf16 ? TERN_BF16 : TERN_F32;
    *out = (struct tern_blas_cut){
        .factor = factor,
        .copy_a = args->a_dtype != factor,
        .copy_b = args->b_dtype != factor,
        .has_sums = args->d_dtype == TERN_BF16 && (must_finish || factor == TERN_F32),
        .m = args->m,
        .n = args->n,
    };
    for (measure(args, out); out->a_bytes + out->b_bytes + out->sums_bytes > scratch_bytes;
         measure(args, out)) {
        if (out->m == 1 && out->n == 1) {
            return false;
        }
        /* cut what costs more; a cut that wins nothing (8 columns are the least) goes to the other side */
        bool cuts_m = out->a_bytes >= out->b_bytes ? out->m > 1 : out->n == 1;
        if (cuts_m) {
            out->m = halve(out->m);
        } else {
            out->n = halve(out->n);
        }
    }
    return true;
}

size_t tern_blas_scratch_bytes(const struct tern_op_limits *limits)
{
    int64_t longest = max_i64(max_i64(limits->rows, limits->width), limits->vocab);
    longest = round_up(max_i64(longest, 1), STRIDE_STEP);
    size_t least = (size_t)longest * FEWEST_BYTES + 3 * (size_t)SCRATCH_ALIGN + 8 * 8 * 4;
    /* three square f32 matrices: nothing within the limits is larger */
    size_t most = longest > 8192 ? SIZE_MAX : 3 * 4 * (size_t)longest * (size_t)longest + 768;
    size_t wanted = most < SCRATCH_BYTES_MAX ? most : SCRATCH_BYTES_MAX;
    return wanted > least ? wanted : least;
}

static uint8_t alignment(struct tern_dptr p)
{
    uint64_t lowest = p.addr & (~p.addr + 1);
    return lowest == 0 || lowest > TERN_BLAS_ALIGN ? TERN_BLAS_ALIGN : (uint8_t)lowest;
}

struct tern_blas_key tern_blas_key_of(const struct tern_gemm_args *args, bool is_finish)
{
    bool has_bias = tern_epilogue_has_bias(args->epilogue);
    bool has_aux = tern_epilogue_has_aux(args->epilogue);
    return (struct tern_blas_key){
        .m = args->m,
        .n = args->n,
        .k = args->k,
        .lda = args->lda,
        .ldb = args->ldb,
        .ldd = args->ldd,
        .trans_a = args->trans_a,
        .trans_b = args->trans_b,
        .accumulate = args->accumulate,
        .epilogue = (uint8_t)args->epilogue,
        .factor = (uint8_t)args->a_dtype,
        .d_dtype = (uint8_t)args->d_dtype,
        .bias_dtype = has_bias ? (uint8_t)args->bias_dtype : 0,
        .is_finish = is_finish,
        .align_a = alignment(args->a),
        .align_b = alignment(args->b),
        .align_d = alignment(args->d),
        .align_bias = has_bias ? alignment(args->bias) : TERN_BLAS_ALIGN,
        .align_aux = has_aux ? alignment(args->aux) : TERN_BLAS_ALIGN,
    };
}

/* The bias must have d's dtype. No preference tells the library how its address is aligned, and kernels were seen to
 * take 16 bytes for granted, so less than that is ours. */
static bool has_library_bias(const struct tern_blas_key *key)
{
    return key->bias_dtype == key->d_dtype && key->align_bias >= 16;
}

/* aux: a row stride that is a multiple of 8 elements; 16 bytes for the reason above. */
static bool has_library_gelu(const struct tern_blas_key *key)
{
    return key->ldd % 8 == 0 && key->align_aux >= 16 && key->align_d >= 16;
}

/* GELU and its slope: Hopper's kernels have them in their epilogue; before, others saw cuBLASLt run a second pass over d
 * that is slower than a kernel which reads aux once. (Not measured here; where plans are timed, time decides.) The
 * library may take ab + bias, or ab, before it is rounded to d_dtype, ours takes what is stored: both are within that
 * rounding. */
int tern_blas_routes(const struct tern_blas_key *key,
                     int capability,
                     enum tern_blas_route out[TERN_BLAS_ROUTES])
{
    int count = 0;
    if (key->epilogue == TERN_BLAS_SUMS_OF_A || key->epilogue == TERN_BLAS_SUMS_OF_B) {
        out[count++] = TERN_BLAS_DIRECT;
        out[count++] = TERN_BLAS_APART;
        return count;
    }
    bool has_bias = tern_epilogue_has_bias((enum tern_epilogue)key->epilogue);
    bool has_gelu = tern_epilogue_has_aux((enum tern_epilogue)key->epilogue);
    bool is_late = has_gelu && capability < HOPPER;
    bool is_library = !key->is_finish && (!has_bias || has_library_bias(key));
    bool is_direct = is_library && (!has_gelu || has_library_gelu(key));
    if (is_direct && !is_late) {
        out[count++] = TERN_BLAS_DIRECT;
    }
    if (is_library && has_gelu) {
        out[count++] = TERN_BLAS_GELU;
    }
    if (is_direct && is_late) {
        out[count++] = TERN_BLAS_DIRECT;
    }
    if (key->is_finish || has_bias) {
        out[count++] = TERN_BLAS_FINISH;
    }
    return count;
}

uint64_t tern_blas_hash(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}
