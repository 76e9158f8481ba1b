// The image tokens before their projection: each token with its position, and in front their mean.
//
//   out[b, 1 + n] = x[b, n] + position[n],   out[b, 0] = mean over n of out[b, 1 + n]
//
// x is (batch, tokens, channels), position (tokens, channels), out (batch, 1 + tokens, channels), all in T. The mean is that of
// the sums as they were rounded to T, added up in f32.
// Launch: grid (ceil(channels / 32), batch), blocks of (32, 8): a thread has every eighth token of one channel. Bound by
// memory: one read and one write.
#include "number.cuh"
#include "reduce.cuh"

namespace tapline::image_tokens {

constexpr int ROWS = 8;

template <typename T> __device__ void run(const T* x, const T* position, T* out, int tokens, int channels) {
    __shared__ float sums[ROWS][WARP];
    const int channel = blockIdx.x * WARP + threadIdx.x;
    x += static_cast<size_t>(blockIdx.y) * tokens * channels;
    out += static_cast<size_t>(blockIdx.y) * (tokens + 1) * channels;
    float sum = 0.0f;
    for (int token = threadIdx.y; token < tokens && channel < channels; token += ROWS) {
        const size_t place = static_cast<size_t>(token) * channels + channel;
        const T value = narrow<T>(widen(x[place]) + widen(position[place]));
        out[place + channels] = value;
        sum += widen(value);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && channel < channels) {
        for (int row = 1; row < ROWS; ++row) {
            sum += sums[row][threadIdx.x];
        }
        out[channel] = narrow<T>(sum / tokens);
    }
}

}  // namespace tapline::image_tokens

#define IMAGE_TOKENS(suffix, T)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    image_tokens_##suffix(const T* x, const T* position, T* out, int tokens, int channels) {                                \
        tapline::image_tokens::run(x, position, out, tokens, channels);                                                     \
    }
TAPLINE_EACH_NUMBER(IMAGE_TOKENS)
