// What follows a product, in place on its output x (rows, channels) in T:
//
//   bias           x + bias
//   bias_gelu      gelu(x [+ bias]),  gelu(v) = v (1 + erf(v / sqrt 2)) / 2
//   bias_residual  x [+ bias] + residual
//
// bias is (channels), residual (rows, channels), both in T; count is rows * channels. The sum is rounded once.
// Launch: blocks of 256 threads, four numbers a thread. Bound by memory; erf to 2 units in the last place.
#include "number.cuh"

namespace tapline::bias {

__device__ inline float gelu(float x) {
    const float half = 0.5f * x;
    return half * erff(x * 0.70710678f) + half;
}

template <bool GELU, typename T>
__device__ void run(T* x, const T* bias, const T* residual, long long count, int channels) {
    const long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * PACK;
    if (first >= count) {
        return;
    }
    const int present = static_cast<int>(min(count - first, static_cast<long long>(PACK)));
    const bool whole = present == PACK && channels % PACK == 0 && is_aligned(x) && is_aligned(bias) && is_aligned(residual);
    const int channel = static_cast<int>(first % channels);
    float4 value = load_some(x + first, present, whole);
    if (bias != nullptr) {
        if (whole) {
            value = add(value, load_pack(bias + channel));
        } else {
            // A pack may go on in the next row, or in the one after it.
            float terms[PACK] = {};
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                if (i < present) terms[i] = widen(bias[(channel + i) % channels]);
            }
            value = add(value, make_float4(terms[0], terms[1], terms[2], terms[3]));
        }
    }
    if (residual != nullptr) {
        value = add(value, load_some(residual + first, present, whole));
    }
    if (GELU) {
        value = make_float4(gelu(value.x), gelu(value.y), gelu(value.z), gelu(value.w));
    }
    store_some(x + first, value, present, whole);
}

}  // namespace tapline::bias

#define BIAS(suffix, T)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    bias_##suffix(T* x, const T* bias, long long count, int channels) {                                                     \
        tapline::bias::run<false, T>(x, bias, nullptr, count, channels);                                                    \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    bias_gelu_##suffix(T* x, const T* bias, long long count, int channels) {                                                \
        tapline::bias::run<true, T>(x, bias, nullptr, count, channels);                                                     \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    bias_residual_##suffix(T* x, const T* bias, const T* residual, long long count, int channels) {                         \
        tapline::bias::run<false, T>(x, bias, residual, count, channels);                                                   \
    }
TAPLINE_EACH_NUMBER(BIAS)
