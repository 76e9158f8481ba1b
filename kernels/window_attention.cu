// Self-attention inside square windows of a grid, without shift, mask or relative positions:
//
//   for each window and head: out = softmax(scale q k^T) v
//
// qkv is (batch, height, width, 3 channels) in T: all heads' q, then k, then v; out is (batch, height, width, channels). A grid
// whose sides are no multiples of the window is filled up below and to the right with places whose q, k and v are `padding`
// (3 channels): they are attended to, their outputs are not stored. Windows are cut out while reading and put back while
// writing.
// Launch: grid (windows, heads, batch), blocks of 160 threads; head size at most 64, any window. Scores never leave the
// registers. f32 by ordinary arithmetic; bf16 and f16 by tensor cores, with softmax in f32 and its weights rounded to T.
// Bound by arithmetic in f32, by memory otherwise: a window of 144 tokens does 288 products for each number it reads.
#include "attend.cuh"

namespace tapline::window_attention {

template <typename T> struct Window {
    const T* qkv;
    const T* padding;
    T* image;
    int top, left, window, height, width, channels, head;
    bool aligned;

    // Part 0, 1 or 2 of a token: q, k or v.
    __device__ const T* part(int token, int part) const {
        const int y = top + token / window, x = left + token % window;
        const T* const all = y < height && x < width ? qkv + (static_cast<size_t>(y) * width + x) * 3 * channels : padding;
        return all + part * channels + head;
    }
    __device__ const T* query(int i) const { return part(i, 0); }
    __device__ const T* key(int j) const { return part(j, 1); }
    __device__ const T* value(int j) const { return part(j, 2); }
    __device__ T* out(int i) const {
        const int y = top + i / window, x = left + i % window;
        return y < height && x < width ? image + (static_cast<size_t>(y) * width + x) * channels + head : nullptr;
    }
    __device__ int seen(int) const { return window * window; }
    __device__ bool is_aligned() const { return aligned; }
};

template <typename T>
__device__ void run(const T* qkv, const T* padding, T* out, int height, int width, int channels, int heads, int window,
                    float scale) {
    const int size = channels / heads, columns = (width + window - 1) / window;
    const int top = static_cast<int>(blockIdx.x) / columns * window, left = static_cast<int>(blockIdx.x) % columns * window;
    const size_t image = static_cast<size_t>(blockIdx.z) * height * width * channels;
    const bool aligned = size % PACK == 0 && is_aligned(qkv) && is_aligned(padding) && is_aligned(out);
    const Window<T> rows = {qkv + 3 * image, padding, out + image, top, left, window, height, width, channels,
                            static_cast<int>(blockIdx.y) * size, aligned};
    const int tokens = window * window;
    __shared__ uint4 scratch[ATTEND_SCRATCH<T>];
    attend<64, T>(rows, tokens, tokens, size, scale, scratch);
}

}  // namespace tapline::window_attention

#define WINDOW_ATTENTION(suffix, T)                                                                                         \
    extern "C" __global__ void __launch_bounds__(160)                                                                       \
    window_attention_##suffix(const T* qkv, const T* padding, T* out, int height, int width, int channels, int heads,       \
                              int window, float scale) {                                                                    \
        tapline::window_attention::run(qkv, padding, out, height, width, channels, heads, window, scale);                   \
    }
TAPLINE_EACH_NUMBER(WINDOW_ATTENTION)
