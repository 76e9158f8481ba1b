// Beams' own keys and values follow the beams that were chosen:
//
//   out[l, row, t] = in[l, from[row], t]   for t < *length
//
// in and out are different buffers (layers, row_capacity, capacity, channels) in T: keys and values of all layers at once. from
// (rows) and length (one number) are read on the device, so that a recorded launch serves every step; positions from length
// on are left alone.
// Launch: grid (ceil(capacity * channels / 1024), rows, layers), 256 threads, four numbers a thread; threads beyond the length
// leave at once. Bound by memory: one read and one write of what has been decoded.
#include "copy.cuh"

namespace tapline::reorder {

template <typename T>
__device__ void run(const T* in, T* out, const int* from, const int* length, int row_capacity, int capacity, int channels) {
    const long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * PACK;
    const long long count = static_cast<long long>(min(*length, capacity)) * channels;
    const size_t layer = static_cast<size_t>(blockIdx.z) * row_capacity, row = static_cast<size_t>(capacity) * channels;
    if (first < count) {
        copy_pack(out + (layer + blockIdx.y) * row, in + (layer + from[blockIdx.y]) * row, first, count);
    }
}

}  // namespace tapline::reorder

#define REORDER(suffix, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    reorder_##suffix(const T* in, T* out, const int* from, const int* length, int row_capacity, int capacity,               \
                     int channels) {                                                                                        \
        tapline::reorder::run(in, out, from, length, row_capacity, capacity, channels);                                     \
    }
TAPLINE_EACH_NUMBER(REORDER)
