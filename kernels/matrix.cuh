// The tensor cores' product of 16x16 and 16x8 numbers of 16 bits, added up in f32 (compute capability 8.0 and later).
#pragma once

#include "number.cuh"

namespace tapline {

// sum += a b for a warp. Lane l holds, with group = l / 4 and pair = l % 4:
//   a    rows group and group + 8, columns 2 pair, 2 pair + 1 (a[0], a[1]) and the same + 8 (a[2], a[3]); two numbers each
//   b    column group, rows 2 pair, 2 pair + 1 (b[0]) and the same + 8 (b[1])
//   sum  row group, columns 2 pair, 2 pair + 1 (sum[0], sum[1]) and row group + 8 (sum[2], sum[3])
template <typename T> __device__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]);

#ifdef TAPLINE_HOST
template <> inline void multiply_add<__nv_bfloat16>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    tapline_host::multiply_add<__nv_bfloat16>(sum, a, b);
}
template <> inline void multiply_add<__half>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    tapline_host::multiply_add<__half>(sum, a, b);
}
#else
template <> __device__ inline void
multiply_add<__nv_bfloat16>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
template <> __device__ inline void multiply_add<__half>(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

}  // namespace tapline
