/* act.cuh - GELU (tanh form) and SiLU, and their slopes.
 *
 * Both are x * s(z) with s the logistic function: silu has z = x, and gelu(x) = x/2 (1 + tanh(u)) = x * s(2u) with
 * u = sqrt(2/pi) (x + 0.044715 x^3). Written so, no digit is lost where 1 + tanh(u) is small. With e = exp(-z):
 * s = 1/(1+e), s' = s * (e * s). e is capped, so that e * s stays finite.
 *
 * T bf16: results keep 8 bits, so the exponential is exp2 and the quotient an approximate reciprocal (errors near
 * 2^-22): at 4 bytes an element, exact ones would take longer than the memory does. T f32: exact. */
#ifndef TERN_KERNELS_CUDA_ACT_CUH
#define TERN_KERNELS_CUDA_ACT_CUH

#include "kernels/cuda/vec.cuh"

#define TERN_GELU_TWICE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define TERN_GELU_CUBIC 0.044715f
#define TERN_LOG2_E     1.4426950408889634f

/* exp(-z), at most 6.1e37: below the 2^126 from which __fdividef gives 0; of a NaN NaN. */
template <typename T> TERN_DEVICE float tern_act_exp(float z)
{
    if constexpr (sizeof(T) == 2) {
        return exp2f(z < -87.0f ? 87.0f * TERN_LOG2_E : -z * TERN_LOG2_E);
    } else {
        return expf(z < -87.0f ? 87.0f : -z);
    }
}

template <typename T> TERN_DEVICE float tern_act_quotient(float x, float y)
{
    if constexpr (sizeof(T) == 2) {
        return __fdividef(x, y);
    } else {
        return x / y;
    }
}

/* z of x, and dz/dx. */
template <bool is_gelu> TERN_DEVICE float tern_act_inner(float x, float &slope)
{
    if constexpr (is_gelu) {
        float square = x * x;
        slope = 3.0f * TERN_GELU_TWICE * TERN_GELU_CUBIC * square + TERN_GELU_TWICE;
        return x * (TERN_GELU_TWICE * TERN_GELU_CUBIC * square + TERN_GELU_TWICE);
    } else {
        slope = 1.0f;
        return x;
    }
}

template <typename T, bool is_gelu> TERN_DEVICE float tern_act(float x)
{
    float slope;
    float e = tern_act_exp<T>(tern_act_inner<is_gelu>(x, slope));
    return tern_act_quotient<T>(x, 1.0f + e);
}

/* act'(x) = s + x s (1 - s) dz/dx; value is act(x). */
template <typename T, bool is_gelu> TERN_DEVICE float tern_act_slope(float x, float &value)
{
    float slope;
    float e = tern_act_exp<T>(tern_act_inner<is_gelu>(x, slope));
    float s = tern_act_quotient<T>(1.0f, 1.0f + e);
    value = x * s;
    float bend = value * (e * s) * slope;
    /* Where s rounds to 0 or 1, slope may be infinite: no 0 * infinity. */
    return x < -1e6f ? 0.0f : x > 1e6f ? s : s + bend;
}

#endif
