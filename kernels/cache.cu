// New keys or values go to the end of a cache of fixed size:
//
//   cache[row, *length + i] = added[row, i]   for i < count, while there is room
//
// added is (rows, count, channels) in T, its tokens `stride` numbers apart (channels, or 3 channels in a packed qkv); cache is
// (rows, capacity, channels). length (one number) is read on the device, so that a recorded launch serves every step.
// Launch: grid (ceil(count * channels / 1024), rows), 256 threads, four numbers a thread. Bound by memory.
#include "copy.cuh"

namespace tapline::cache {

template <typename T>
__device__ void append(const T* added, T* cache, const int* length, int count, int capacity, int channels, int stride) {
    const long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * PACK;
    // Threads' packs lie within a token where channels are packs; elsewhere each number goes by itself.
    for (long long index = first; index < first + PACK; ++index) {
        const int token = static_cast<int>(index / channels), channel = static_cast<int>(index % channels);
        const int position = *length + token;
        if (token >= count || position >= capacity) {
            return;
        }
        const T* const from = added + (static_cast<size_t>(blockIdx.y) * count + token) * stride;
        T* const to = cache + (static_cast<size_t>(blockIdx.y) * capacity + position) * channels;
        if (channels % PACK == 0 && is_aligned(from) && is_aligned(to)) {
            store_pack(to + channel, load_pack(from + channel));
            return;
        }
        to[channel] = from[channel];
    }
}

}  // namespace tapline::cache

#define APPEND(suffix, T)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    append_##suffix(const T* added, T* cache, const int* length, int count, int capacity, int channels, int stride) {       \
        tapline::cache::append(added, cache, length, count, capacity, channels, stride);                                    \
    }
TAPLINE_EACH_NUMBER(APPEND)
