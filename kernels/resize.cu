// Pillow's bicubic resize of RGB bytes and the normalisation, bit for bit what src/screenshot/{resize,normalize}.rs compute.
//
//   between[y, x, c] = level(sum_k weights[k, x] in[y, first[x] + k, c])          resize_horizontal
//   out[c, y, x]     = table[c, level(sum_k weights[k, y] between[first[y] + k, x, c])]   resize_vertical_T
//   level(sum)       = clamp((sum + 2^21) >> 22, 0, 255)
//
// Weights are whole numbers with 22 bits after the point; sums fit into 32 bits (resize.rs has the proof). Tables are
// (taps, outputs), so that neighbouring threads of the horizontal pass read neighbouring weights.
// in is (height, width, 3) bytes, out is planes (3, to, width) in the model's number format.
// Launch: blocks of (32, 8) threads, a thread a pixel of three channels. Bound by memory: the picture is read once, taps of
// neighbouring outputs overlap in the first cache.
#include "number.cuh"

namespace tapline::resize {

constexpr int FRACTION = 22;
constexpr int HALF = 1 << (FRACTION - 1);

__device__ inline int level(int sum) {
    const int value = sum >> FRACTION;
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

// The three channels of an output: `count` pixels from `in` on, `step` bytes apart.
__device__ inline void blend(int sums[3], const unsigned char* in, size_t step, const int* weights, int stride, int count) {
    sums[0] = sums[1] = sums[2] = HALF;
    for (int tap = 0; tap < count; ++tap) {
        const int weight = weights[static_cast<size_t>(tap) * stride];
        for (int channel = 0; channel < 3; ++channel) {
            sums[channel] += weight * in[tap * step + channel];
        }
    }
}

template <typename T>
__device__ void vertical(const unsigned char* in, T* out, const int* first, const int* count, const int* weights,
                         const float* table, int to, int width) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= to) {
        return;
    }
    int sums[3];
    const size_t row = static_cast<size_t>(width) * 3;
    blend(sums, in + first[y] * row + static_cast<size_t>(x) * 3, row, weights + y, to, count[y]);
    for (int channel = 0; channel < 3; ++channel) {
        const float value = table[channel * 256 + level(sums[channel])];
        out[(static_cast<size_t>(channel) * to + y) * width + x] = narrow<T>(value);
    }
}

}  // namespace tapline::resize

extern "C" __global__ void __launch_bounds__(256)
resize_horizontal(const unsigned char* in, unsigned char* out, const int* first, const int* count, const int* weights,
                  int height, int width, int to) {
    using namespace tapline::resize;
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= to || y >= height) {
        return;
    }
    int sums[3];
    blend(sums, in + (static_cast<size_t>(y) * width + first[x]) * 3, 3, weights + x, to, count[x]);
    for (int channel = 0; channel < 3; ++channel) {
        out[(static_cast<size_t>(y) * to + x) * 3 + channel] = static_cast<unsigned char>(level(sums[channel]));
    }
}

#define RESIZE_VERTICAL(suffix, T)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    resize_vertical_##suffix(const unsigned char* in, T* out, const int* first, const int* count, const int* weights,       \
                             const float* table, int to, int width) {                                                       \
        tapline::resize::vertical(in, out, first, count, weights, table, to, width);                                        \
    }
TAPLINE_EACH_NUMBER(RESIZE_VERTICAL)
