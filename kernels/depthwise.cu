// The depthwise 3x3 convolution with bias, added to its input, in one pass:
//
//   out[b, y, x, c] = x[b, y, x, c] + bias[c] + sum_{i, j} weight[3 i + j, c] x[b, y + i - 1, x + j - 1, c]
//
// x and out are (batch, height, width, channels) in T, places outside count as zero; weight (9, channels) and bias (channels)
// are f32.
// Launch: blocks of 128 threads over (pairs of columns) x (packs of four channels), grid (those, ceil(height / 8), batch).
// A thread walks down eight rows of two columns: each row of four pixels is loaded once and goes into the three outputs that
// see it, which stay in registers until their last row has come. Neighbouring threads share two of the four columns in the
// first cache. Bound by memory: one read and one write of the tensor, and 2/8 of the rows a second time from the second
// cache.
#include "number.cuh"

namespace tapline::depthwise {

constexpr int COLUMNS = 2;
constexpr int ROWS = 8;

__device__ inline void add_product(float4& sum, float4 x, float4 weight) {
    sum.x += x.x * weight.x;
    sum.y += x.y * weight.y;
    sum.z += x.z * weight.z;
    sum.w += x.w * weight.w;
}

template <typename T>
__device__ void run(const T* x, const float* weight, const float* bias, T* out, int height, int width, int channels) {
    const int packs = (channels + PACK - 1) / PACK;
    const int index = blockIdx.x * blockDim.x + threadIdx.x;
    const int channel = index % packs * PACK, left = index / packs * COLUMNS;
    if (left >= width) {
        return;
    }
    const int top = blockIdx.y * ROWS, bottom = min(top + ROWS, height), count = channels - channel;
    const bool whole = channels % PACK == 0 && is_aligned(x) && is_aligned(out);
    const bool whole_weights = channels % PACK == 0 && is_aligned(weight) && is_aligned(bias);
    float4 taps[9];
#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
        taps[tap] = load_some(weight + static_cast<size_t>(tap) * channels + channel, count, whole_weights);
    }
    // The pixel itself is added once more.
    taps[4] = add(taps[4], make_float4(1.0f, 1.0f, 1.0f, 1.0f));
    const float4 start = load_some(bias + channel, count, whole_weights);

    const size_t row = static_cast<size_t>(width) * channels, image = blockIdx.z * row * height;
    x += image + channel;
    out += image + channel;
    // Outputs of the row above the one that is being loaded, of that row, and of the row below.
    float4 above[COLUMNS], same[COLUMNS], below[COLUMNS];
#pragma unroll
    for (int column = 0; column < COLUMNS; ++column) {
        above[column] = same[column] = below[column] = start;
    }
    for (int y = top - 1; y <= bottom; ++y) {
        float4 line[COLUMNS + 2];
#pragma unroll
        for (int column = 0; column < COLUMNS + 2; ++column) {
            const int from = left + column - 1;
            const bool inside = y >= 0 && y < height && from >= 0 && from < width;
            line[column] = inside ? load_some(x + y * row + static_cast<size_t>(from) * channels, count, whole)
                                  : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
#pragma unroll
        for (int column = 0; column < COLUMNS; ++column) {
#pragma unroll
            for (int dx = 0; dx < 3; ++dx) {
                add_product(above[column], line[column + dx], taps[6 + dx]);
                add_product(same[column], line[column + dx], taps[3 + dx]);
                add_product(below[column], line[column + dx], taps[dx]);
            }
            if (y > top && left + column < width) {
                store_some(out + (y - 1) * row + static_cast<size_t>(left + column) * channels, above[column], count, whole);
            }
            above[column] = same[column];
            same[column] = below[column];
            below[column] = start;
        }
    }
}

}  // namespace tapline::depthwise

#define DEPTHWISE(suffix, T)                                                                                                \
    extern "C" __global__ void __launch_bounds__(128)                                                                       \
    depthwise_##suffix(const T* x, const float* weight, const float* bias, T* out, int height, int width, int channels) {   \
        tapline::depthwise::run(x, weight, bias, out, height, width, channels);                                             \
    }
TAPLINE_EACH_NUMBER(DEPTHWISE)
