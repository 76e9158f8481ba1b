// Layer normalisation over channels, of a sum:
//
//   s   = x [+ added] [+ residual]                   rounded to T, stored where `sum` is given
//   out = (s - mean) / sqrt(variance + epsilon) * weight + bias
//
// x, residual, sum and out are (rows, channels) in T, added (channels) in T, weight and bias (channels) in f32. `added` is the
// bias of the product that made x. sum and out may be x or residual. The variance is that of the differences from the mean,
// not a difference of squares.
// Launch: blocks of 128 threads, a warp a row. Up to 1024 channels stay in registers between the passes; longer rows, and those
// that packs do not fit, are read three times, from the cache after the first.
// Bound by memory: one read of each operand, one write of each result.
#include "number.cuh"
#include "reduce.cuh"

namespace tapline::layer_norm {

// Packs of a lane that are kept.
constexpr int KEPT = 8;

template <typename T> struct Row {
    const T* x;
    const T* added;
    const T* residual;

    __device__ float4 pack(int channel) const {
        float4 value = load_pack(x + channel);
        if (added != nullptr) value = add(value, load_pack(added + channel));
        if (residual != nullptr) value = add(value, load_pack(residual + channel));
        return make_float4(rounded(value.x), rounded(value.y), rounded(value.z), rounded(value.w));
    }
    __device__ float number(int channel) const {
        float value = widen(x[channel]);
        if (added != nullptr) value += widen(added[channel]);
        if (residual != nullptr) value += widen(residual[channel]);
        return rounded(value);
    }
    __device__ static float rounded(float value) { return widen(narrow<T>(value)); }
};

__device__ inline float sum_of(float4 x) { return (x.x + x.y) + (x.z + x.w); }
__device__ inline float4 minus(float4 x, float y) { return make_float4(x.x - y, x.y - y, x.z - y, x.w - y); }
__device__ inline float square_of(float4 x) { return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w); }

template <typename T>
__device__ void in_registers(Row<T> row, T* sum, const float* weight, const float* bias, T* out, int channels, float epsilon) {
    const int lane = threadIdx.x % WARP;
    float4 values[KEPT];
    float total = 0.0f, squares = 0.0f;
#pragma unroll
    for (int part = 0; part < KEPT; ++part) {
        const int channel = (part * WARP + lane) * PACK;
        if (channel < channels) {
            values[part] = row.pack(channel);
            total += sum_of(values[part]);
        }
    }
    const float mean = sum_lanes(total) / channels;
#pragma unroll
    for (int part = 0; part < KEPT; ++part) {
        if ((part * WARP + lane) * PACK < channels) {
            squares += square_of(minus(values[part], mean));
        }
    }
    const float scale = 1.0f / sqrtf(sum_lanes(squares) / channels + epsilon);
#pragma unroll
    for (int part = 0; part < KEPT; ++part) {
        const int channel = (part * WARP + lane) * PACK;
        if (channel < channels) {
            if (sum != nullptr) store_pack(sum + channel, values[part]);
            const float4 w = load_pack(weight + channel), b = load_pack(bias + channel), x = minus(values[part], mean);
            store_pack(out + channel, make_float4(x.x * scale * w.x + b.x, x.y * scale * w.y + b.y,
                                                  x.z * scale * w.z + b.z, x.w * scale * w.w + b.w));
        }
    }
}

template <typename T>
__device__ void from_memory(Row<T> row, T* sum, const float* weight, const float* bias, T* out, int channels, float epsilon) {
    const int lane = threadIdx.x % WARP;
    float total = 0.0f, squares = 0.0f;
    for (int channel = lane; channel < channels; channel += WARP) {
        total += row.number(channel);
    }
    const float mean = sum_lanes(total) / channels;
    for (int channel = lane; channel < channels; channel += WARP) {
        const float difference = row.number(channel) - mean;
        squares += difference * difference;
    }
    const float scale = 1.0f / sqrtf(sum_lanes(squares) / channels + epsilon);
    for (int channel = lane; channel < channels; channel += WARP) {
        const float value = row.number(channel);
        if (sum != nullptr) sum[channel] = narrow<T>(value);
        out[channel] = narrow<T>((value - mean) * scale * weight[channel] + bias[channel]);
    }
}

template <typename T>
__device__ void run(const T* x, const T* added, const T* residual, T* sum, const float* weight, const float* bias, T* out,
                    int rows, int channels, float epsilon) {
    const int index = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    if (index >= rows) {
        return;
    }
    const size_t first = static_cast<size_t>(index) * channels;
    const Row<T> row = {x + first, added, residual == nullptr ? nullptr : residual + first};
    const bool in_packs = channels % PACK == 0 && is_aligned(x) && is_aligned(added) && is_aligned(residual) &&
                          is_aligned(sum) && is_aligned(weight) && is_aligned(bias) && is_aligned(out);
    T* const sum_row = sum == nullptr ? nullptr : sum + first;
    if (in_packs && channels <= KEPT * WARP * PACK) {
        in_registers(row, sum_row, weight, bias, out + first, channels, epsilon);
    } else {
        from_memory(row, sum_row, weight, bias, out + first, channels, epsilon);
    }
}

}  // namespace tapline::layer_norm

#define LAYER_NORM(suffix, T)                                                                                               \
    extern "C" __global__ void __launch_bounds__(128)                                                                       \
    layer_norm_##suffix(const T* x, const T* added, const T* residual, T* sum, const float* weight, const float* bias,      \
                        T* out, int rows, int channels, float epsilon) {                                                    \
        tapline::layer_norm::run(x, added, residual, sum, weight, bias, out, rows, channels, epsilon);                      \
    }
TAPLINE_EACH_NUMBER(LAYER_NORM)
