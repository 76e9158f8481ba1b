// The numbers under each position of a square convolution kernel, side by side, so that a product makes the convolution:
//
//   out[b, r, c, p, i, j, e] = x[b, p, stride r + i - padding, stride c + j - padding, e], zero outside
//
// x is (batch, planes, height, width, pixel): (channels, height, width, 1) for images plane by plane, (1, height, width,
// channels) for channels last; out is (batch, rows, columns, planes * kernel * kernel * pixel), both in T. `count` is the number
// of numbers of out.
// Launch: blocks of 256 threads, four numbers a thread. Bound by memory: out is written once, x is read from the caches as
// often as positions overlap.
#include "number.cuh"

namespace tapline::patches {

struct Geometry {
    int planes, height, width, pixel, kernel, stride, padding, rows, columns;

    // Where number `index` of out comes from; -1 for padding.
    __device__ long long source(long long index) const {
        const int e = static_cast<int>(index % pixel);
        index /= pixel;
        const int j = static_cast<int>(index % kernel);
        index /= kernel;
        const int i = static_cast<int>(index % kernel);
        index /= kernel;
        const int plane = static_cast<int>(index % planes);
        index /= planes;
        const int x = static_cast<int>(index % columns) * stride + j - padding;
        index /= columns;
        const int y = static_cast<int>(index % rows) * stride + i - padding;
        const long long image = index / rows;
        if (y < 0 || y >= height || x < 0 || x >= width) {
            return -1;
        }
        return (((image * planes + plane) * height + y) * width + x) * pixel + e;
    }
};

template <typename T> __device__ void run(const T* x, T* out, long long count, Geometry geometry) {
    const long long first = (static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x) * PACK;
    if (first >= count) {
        return;
    }
    if (geometry.pixel % PACK == 0 && is_aligned(x) && is_aligned(out)) {
        const long long from = geometry.source(first);
        store_pack(out + first, from < 0 ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : load_pack(x + from));
        return;
    }
    float numbers[PACK] = {};
    const int present = static_cast<int>(min(count - first, static_cast<long long>(PACK)));
#pragma unroll
    for (int i = 0; i < PACK; ++i) {
        const long long from = i < present ? geometry.source(first + i) : -1;
        if (from >= 0) numbers[i] = widen(x[from]);
    }
    const float4 pack = make_float4(numbers[0], numbers[1], numbers[2], numbers[3]);
    store_some(out + first, pack, present, present == PACK && is_aligned(out));
}

}  // namespace tapline::patches

#define PATCHES(suffix, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    patches_##suffix(const T* x, T* out, long long count, int planes, int height, int width, int pixel, int kernel,         \
                     int stride, int padding, int rows, int columns) {                                                      \
        tapline::patches::run(x, out, count, {planes, height, width, pixel, kernel, stride, padding, rows, columns});       \
    }
TAPLINE_EACH_NUMBER(PATCHES)
