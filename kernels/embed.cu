// What goes into a text model before its first normalisation. Position p is row p + 2 of a position table.
//
//   embed   out[row, offset + i] = tokens[ids[row, i]] + positions[*first + offset + i + 2]
//   place   out[row, i]          = x[row, i] + positions[i + 2]
//
// ids is (rows, count), tokens (vocabulary, channels), positions (positions_count, channels), x (rows, count, channels), out (rows,
// out_tokens, channels), tensors in T. `place` puts image tokens in front of the words that `embed` puts behind them with an
// offset. first (one number, null for 0) is read on the device, so that a recorded launch serves every step. Ids and positions
// past the end of their table read its last row, never beyond it: the host refuses them before.
// Launch: grid (ceil(count * channels / 1024), rows), 256 threads, four numbers a thread. Bound by memory.
#include "number.cuh"

namespace tapline::embed {

constexpr int POSITION_OFFSET = 2;

// The sum of two rows of `channels` numbers into a third, four numbers at most from `channel` on.
template <typename T> __device__ void add_pack(T* out, const T* a, const T* b, int channel, int channels) {
    const int present = min(channels - channel, PACK);
    const bool whole = channels % PACK == 0 && is_aligned(out) && is_aligned(a) && is_aligned(b);
    const float4 sum = add(load_some(a + channel, present, whole), load_some(b + channel, present, whole));
    store_some(out + channel, sum, present, whole);
}

template <typename T>
__device__ void embed(const unsigned* ids, const T* tokens, const T* positions, const int* first, T* out, int count,
                      int channels, int vocabulary, int positions_count, int out_tokens, int offset) {
    const int packs = (channels + PACK - 1) / PACK, start = offset + (first == nullptr ? 0 : *first);
    const int threads = gridDim.x * blockDim.x;
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < count * packs; index += threads) {
        const int i = index / packs, channel = index % packs * PACK;
        const unsigned id = min(ids[static_cast<size_t>(blockIdx.y) * count + i], static_cast<unsigned>(vocabulary - 1));
        const int position = min(start + i + POSITION_OFFSET, positions_count - 1);
        T* const to = out + (static_cast<size_t>(blockIdx.y) * out_tokens + offset + i) * channels;
        add_pack(to, tokens + static_cast<size_t>(id) * channels, positions + static_cast<size_t>(position) * channels, channel,
                 channels);
    }
}

template <typename T>
__device__ void place(const T* x, const T* positions, T* out, int count, int channels, int out_tokens) {
    const int packs = (channels + PACK - 1) / PACK, threads = gridDim.x * blockDim.x;
    for (int index = blockIdx.x * blockDim.x + threadIdx.x; index < count * packs; index += threads) {
        const int i = index / packs, channel = index % packs * PACK;
        add_pack(out + (static_cast<size_t>(blockIdx.y) * out_tokens + i) * channels,
                 x + (static_cast<size_t>(blockIdx.y) * count + i) * channels,
                 positions + static_cast<size_t>(i + POSITION_OFFSET) * channels, channel, channels);
    }
}

}  // namespace tapline::embed

#define EMBED(suffix, T)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    embed_##suffix(const unsigned* ids, const T* tokens, const T* positions, const int* first, T* out, int count,           \
                   int channels, int vocabulary, int positions_count, int out_tokens, int offset) {                         \
        tapline::embed::embed(ids, tokens, positions, first, out, count, channels, vocabulary, positions_count, out_tokens, \
                              offset);                                                                                      \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    place_##suffix(const T* x, const T* positions, T* out, int count, int channels, int out_tokens) {                       \
        tapline::embed::place(x, positions, out, count, channels, out_tokens);                                              \
    }
TAPLINE_EACH_NUMBER(EMBED)
