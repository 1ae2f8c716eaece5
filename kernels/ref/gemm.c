/* gemm.c - matrix product with its epilogues, and the column sums of a bias gradient. */
#include "kernels/blocks.h"
#include "kernels/ref/ref.h"

enum {
    COLUMNS = 64, /* of d that are summed side by side */
    BLOCK = 256   /* the longest block of stored weights */
};

static double factor(double x, enum tern_dtype compute)
{
    return compute == TERN_BF16 ? tern_ref_round(TERN_BF16, x) : x;
}

/* row[j] = op(b)[p][first + j] for j < count. */
static void load_row(const struct tern_gemm_args *args,
                     int64_t p,
                     int64_t first,
                     int64_t count,
                     double *row)
{
    for (int64_t j = 0; j < count; j++) {
        int64_t at = args->trans_b ? (first + j) * args->ldb + p : p * args->ldb + first + j;
        row[j] = factor(tern_ref_get(args->b, args->b_dtype, at), args->compute);
    }
}

void tern_ref_weights(struct tern_dptr p,
                      enum tern_dtype dtype,
                      int64_t first,
                      int64_t count,
                      double *out)
{
    if (!tern_dtype_is_stored(dtype)) {
        for (int64_t i = 0; i < count; i++) {
            out[i] = tern_ref_get(p, dtype, first + i);
        }
        return;
    }
    float values[BLOCK];
    int64_t block = tern_dtype_block_elements(dtype), start = first / block * block;
    int64_t n = (first - start + count + block - 1) / block * block;
    const char *bytes = tern_ref_ptr(p);
    tern_blocks_decode(dtype, bytes + (size_t)(start / block) * tern_dtype_bytes(dtype), n, values);
    for (int64_t i = 0; i < count; i++) {
        out[i] = (double)values[first - start + i];
    }
}

/* a row i of a times row j of a stored b. */
static double stored_product(const struct tern_gemm_args *args, int64_t i, int64_t j)
{
    double sum = 0, b[BLOCK];
    for (int64_t p = 0; p < args->k; p += BLOCK) {
        int64_t count = args->k - p < BLOCK ? args->k - p : BLOCK;
        tern_ref_weights(args->b, args->b_dtype, j * args->ldb + p, count, b);
        for (int64_t q = 0; q < count; q++) {
            int64_t at = args->trans_a ? (p + q) * args->lda + i : i * args->lda + p + q;
            double a = tern_ref_get(args->a, args->a_dtype, at);
            sum += factor(a, args->compute) * factor(b[q], args->compute);
        }
    }
    return sum;
}

static void finish(const struct tern_gemm_args *args, int64_t i, int64_t j, double sum)
{
    int64_t at = i * args->ldd + j;
    if (args->accumulate) {
        sum += tern_ref_get(args->d, args->d_dtype, at);
    }
    if (tern_epilogue_has_bias(args->epilogue)) {
        sum += tern_ref_get(args->bias, args->bias_dtype, j);
    }
    if (args->epilogue == TERN_EPILOGUE_BIAS_GELU) {
        tern_ref_put(args->aux, args->d_dtype, at, sum);
        sum = tern_ref_act(TERN_ACT_GELU_TANH, tern_ref_get(args->aux, args->d_dtype, at));
    }
    if (args->epilogue == TERN_EPILOGUE_DGELU) {
        double x = tern_ref_get(args->aux, args->d_dtype, at);
        sum = tern_ref_round(args->d_dtype, sum) * tern_ref_act_slope(TERN_ACT_GELU_TANH, x);
    }
    tern_ref_put(args->d, args->d_dtype, at, sum);
}

tern_status tern_ref_gemm(struct tern_device *device, const struct tern_gemm_args *args)
{
    (void)device;
    for (int64_t i = 0; i < args->m; i++) {
        for (int64_t first = 0; first < args->n; first += COLUMNS) {
            int64_t count = args->n - first < COLUMNS ? args->n - first : COLUMNS;
            double sum[COLUMNS] = {0}, row[COLUMNS];
            bool is_packed = args->b_packed != TERN_PACKED_NONE;
            bool is_by_rows = is_packed || tern_dtype_is_stored(args->b_dtype);
            for (int64_t j = 0; is_by_rows && j < count; j++) {
                sum[j] = is_packed ? tern_ref_packed_product(args, i, first + j)
                                   : stored_product(args, i, first + j);
            }
            for (int64_t p = 0; !is_by_rows && p < args->k; p++) {
                int64_t at = args->trans_a ? p * args->lda + i : i * args->lda + p;
                double a = factor(tern_ref_get(args->a, args->a_dtype, at), args->compute);
                load_row(args, p, first, count, row);
                for (int64_t j = 0; j < count; j++) {
                    sum[j] += a * row[j];
                }
            }
            for (int64_t j = 0; j < count; j++) {
                finish(args, i, first + j, sum[j]);
            }
        }
    }
    return TERN_OK;
}

tern_status tern_ref_bias_bwd(struct tern_device *device, const struct tern_bias_bwd_args *args)
{
    (void)device;
    enum tern_dtype side = tern_ref_side(args->dtype);
    for (int64_t j = 0; j < args->n; j++) {
        double sum = args->accumulate ? tern_ref_get(args->dbias, side, j) : 0;
        for (int64_t i = 0; i < args->rows; i++) {
            sum += tern_ref_get(args->dy, args->dtype, i * args->ldy + j);
        }
        tern_ref_put(args->dbias, side, j, sum);
    }
    return TERN_OK;
}
