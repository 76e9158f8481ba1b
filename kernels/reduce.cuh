// Sums and maxima over a warp.
#pragma once

namespace tapline {

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// The sum over `width` neighbouring lanes (a power of two), in each of them. All lanes of the warp take part.
__device__ inline float sum_lanes(float x, int width = WARP) {
    for (int step = width / 2; step > 0; step /= 2) {
        x += __shfl_xor_sync(ALL_LANES, x, step);
    }
    return x;
}

// As sum_lanes, the largest.
__device__ inline float max_lanes(float x, int width = WARP) {
    for (int step = width / 2; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    }
    return x;
}

}  // namespace tapline
