// CUDA's vector types and 16-bit number formats, with its conversions: to nearest, ties to even.
#pragma once

#include <cstdint>
#include <cstring>

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

struct __nv_bfloat16 { std::uint16_t bits; };
struct __half { std::uint16_t bits; };
struct __nv_bfloat162 { __nv_bfloat16 x, y; };
struct __half2 { __half x, y; };

inline float __uint_as_float(unsigned bits) {
    float x;
    std::memcpy(&x, &bits, sizeof(x));
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return bits;
}

inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    const unsigned bits = __float_as_uint(x);
    if (x != x) {
        return {0x7fff};
    }
    // Half a unit, less a little where the last bit that stays is even.
    return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

inline float __half2float(__half x) {
    const unsigned sign = (x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31u, fraction = x.bits & 1023u;
    if (exponent == 31) {
        return __uint_as_float(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) {
        const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
        return sign == 0 ? magnitude : -magnitude;
    }
    return __uint_as_float(sign | (exponent + 112u) << 23 | fraction << 13);
}

inline __half __float2half_rn(float x) {
    const unsigned bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    const auto with_sign = [sign](unsigned rest) { return __half{static_cast<std::uint16_t>(sign | rest)}; };
    if (magnitude > 0x7f800000u) {
        return with_sign(0x7fffu);
    }
    if (magnitude >= 0x47800000u) {  // 65536 and more
        return with_sign(0x7c00u);
    }
    if (magnitude < 0x38800000u) {
        // Below 2^-14 numbers are 2^-24 apart; adding 1/2 leaves just those in the last bits, rounded as f32 sums are.
        return with_sign(__float_as_uint(__uint_as_float(magnitude) + 0.5f) - __float_as_uint(0.5f));
    }
    return with_sign((magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13);
}

inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__float2half_rn(x), __float2half_rn(y)}; }
inline float2 __half22float2(__half2 pair) { return {__half2float(pair.x), __half2float(pair.y)}; }

namespace tapline_host {

// Two numbers of 16 bits, the first in the lower half.
template <typename T> float2 widen_bits(unsigned bits);
template <> inline float2 widen_bits<__nv_bfloat16>(unsigned bits) {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
}
template <> inline float2 widen_bits<__half>(unsigned bits) {
    return {__half2float({static_cast<std::uint16_t>(bits)}), __half2float({static_cast<std::uint16_t>(bits >> 16)})};
}

}  // namespace tapline_host
