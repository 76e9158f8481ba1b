// Number formats of tensors. Arithmetic is in f32 everywhere: numbers are widened when they are loaded and rounded to nearest,
// ties to even, when they are stored.
#pragma once

#ifndef TAPLINE_HOST
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

// KERNEL(suffix, type) once for each number format: how a file makes its functions <op>_f32, <op>_bf16 and <op>_f16.
#define TAPLINE_EACH_NUMBER(KERNEL) KERNEL(f32, float) KERNEL(bf16, __nv_bfloat16) KERNEL(f16, __half)

namespace tapline {

// Numbers that are loaded and stored together: 16 bytes in f32, 8 in the others.
constexpr int PACK = 4;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float widen(__half x) { return __half2float(x); }

template <typename T> __device__ T narrow(float x);
template <> __device__ inline float narrow<float>(float x) { return x; }
template <> __device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
template <> __device__ inline __half narrow<__half>(float x) { return __float2half_rn(x); }

// Two numbers as the 32 bits that hold them, the first in the lower half.
template <typename T> __device__ unsigned narrow_pair(float first, float second);
template <> __device__ inline unsigned narrow_pair<__nv_bfloat16>(float first, float second) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&pair);
}
template <> __device__ inline unsigned narrow_pair<__half>(float first, float second) {
    const __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&pair);
}

template <typename T> __device__ float2 widen_pair(unsigned pair);
template <> __device__ inline float2 widen_pair<__nv_bfloat16>(unsigned pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}
template <> __device__ inline float2 widen_pair<__half>(unsigned pair) {
    return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// Four numbers from a place that is aligned to four numbers.
__device__ inline float4 load_pack(const float* from) { return *reinterpret_cast<const float4*>(from); }
template <typename T> __device__ float4 load_pack(const T* from) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    const float2 low = widen_pair<T>(bits.x), high = widen_pair<T>(bits.y);
    return make_float4(low.x, low.y, high.x, high.y);
}

__device__ inline void store_pack(float* to, float4 x) { *reinterpret_cast<float4*>(to) = x; }
template <typename T> __device__ void store_pack(T* to, float4 x) {
    *reinterpret_cast<uint2*>(to) = make_uint2(narrow_pair<T>(x.x, x.y), narrow_pair<T>(x.z, x.w));
}

// Whether packs may be loaded from this place on.
template <typename T> __device__ bool is_aligned(const T* place) {
    return reinterpret_cast<unsigned long long>(place) % (PACK * sizeof(T)) == 0;
}

// The first `count` of four numbers, zeros for the rest; `whole`: all four are there and aligned.
template <typename T> __device__ float4 load_some(const T* from, int count, bool whole) {
    if (whole) {
        return load_pack(from);
    }
    return make_float4(count > 0 ? widen(from[0]) : 0.0f, count > 1 ? widen(from[1]) : 0.0f,
                       count > 2 ? widen(from[2]) : 0.0f, count > 3 ? widen(from[3]) : 0.0f);
}

// Stores the first `count` of four numbers; `whole`: all four have a place, and it is aligned.
template <typename T> __device__ void store_some(T* to, float4 x, int count, bool whole) {
    if (whole) {
        store_pack(to, x);
        return;
    }
    if (count > 0) to[0] = narrow<T>(x.x);
    if (count > 1) to[1] = narrow<T>(x.y);
    if (count > 2) to[2] = narrow<T>(x.z);
    if (count > 3) to[3] = narrow<T>(x.w);
}

__device__ inline float4 add(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

}  // namespace tapline
