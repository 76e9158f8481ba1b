// softmax(q k^T scale) v for one head, a block's share of the queries. Scores stay in registers, keys and values go through
// shared memory a tile at a time, the softmax is online: what has been summed is scaled down whenever a larger score comes.
//
// `Rows` says where queries, keys, values and outputs of this head lie and what may be seen:
//   const T* query(int i), key(int j), value(int j)   `size` numbers each
//   T* out(int i)                                     the place of an output, null where nobody wants it
//   int seen(int i)                                   query i sees the keys below this, at least one
//   bool is_aligned()                                 packs may be loaded and stored at all of these places
#pragma once

#include "attend_matrix.cuh"
#include "attend_plain.cuh"

namespace tapline {

// Shared memory that attend() works in, in blocks of 16 bytes.
template <typename T>
constexpr int ATTEND_SCRATCH = sizeof(T) == sizeof(float) ? PLAIN_SCRATCH : MATRIX_SCRATCH;

// All threads of the block take part; blockDim.x is a multiple of 32. f32 is multiplied as it is, 16-bit numbers by tensor
// cores. MAX_SIZE bounds the size of a head: 64 or 128.
template <int MAX_SIZE, typename T, typename Rows>
__device__ void attend(const Rows& rows, int queries, int keys, int size, float scale, uint4 (&scratch)[ATTEND_SCRATCH<T>]) {
    if constexpr (sizeof(T) == sizeof(float)) {
        attend_plain(rows, queries, keys, size, scale, scratch);
    } else if (size <= 32) {
        attend_matrix<32, T>(rows, queries, keys, size, scale, scratch);
    } else if (MAX_SIZE == 64 || size <= 64) {
        attend_matrix<64, T>(rows, queries, keys, size, scale, scratch);
    } else {
        attend_matrix<MAX_SIZE, T>(rows, queries, keys, size, scale, scratch);
    }
}

}  // namespace tapline
