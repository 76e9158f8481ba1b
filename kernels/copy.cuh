// Copying rows of numbers of any format, several at a time.
#pragma once

#include "number.cuh"

namespace tapline {

// Numbers first .. first + PACK of `count`, from one place to another.
template <typename T> __device__ void copy_pack(T* to, const T* from, long long first, long long count) {
    if (first + PACK <= count && is_aligned(to) && is_aligned(from)) {
        store_pack(to + first, load_pack(from + first));
        return;
    }
    for (long long i = first; i < count && i < first + PACK; ++i) {
        to[i] = from[i];
    }
}

}  // namespace tapline
