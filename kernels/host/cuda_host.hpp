// As much of CUDA C++ as the kernels of this folder use, for an ordinary C++17 compiler: a block's threads run one at a time on
// the CPU (block.hpp) and see their indices, barriers, shared memory, warp shuffles and the tensor cores' product as they
// would on a device. For tests: it is exact in what is computed and says nothing about speed.
//
// What it does not show: races between threads that a barrier is missing for, as far as they do not depend on the order in which
// threads run. Threads run in ascending order in even blocks and in descending order in odd ones, so that most do.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>

#include "block.hpp"
#include "number_host.hpp"

#define __global__
#define __device__
#define __launch_bounds__(threads)
// Blocks run one after another on the thread that launches them.
#define __shared__ static thread_local

inline void __syncthreads() { tapline_host::Block::current().wait_for_block(); }

inline void __syncwarp() { tapline_host::Block::current().exchange(0xffffffffu, nullptr, 0); }

// The value of lane `lane ^ mask`; all lanes of the warp take part.
template <typename T> T __shfl_xor_sync(unsigned lanes, T value, int mask) {
    static_assert(sizeof(T) <= sizeof(tapline_host::Slot));
    tapline_host::Block& block = tapline_host::Block::current();
    const tapline_host::Slot* const slots = block.exchange(lanes, &value, sizeof(T));
    T other;
    std::memcpy(&other, &slots[block.lane() ^ mask], sizeof(T));
    return other;
}

template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }

namespace tapline_host {

// mma.m16n8k16: the fragments lie in the lanes as PTX's manual has them (and matrix.cuh repeats).
template <typename T> void multiply_add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Block& block = Block::current();
    float numbers[12];
    for (int i = 0; i < 6; ++i) {
        const float2 pair = widen_bits<T>(i < 4 ? a[i] : b[i - 4]);
        numbers[2 * i] = pair.x;
        numbers[2 * i + 1] = pair.y;
    }
    const Slot* const slots = block.exchange(0xffffffffu, numbers, sizeof(numbers));
    const int group = block.lane() / 4, pair = block.lane() % 4;
    for (int k = 0; k < 16; ++k) {
        // The lane of a group that holds this step, and where: the upper half of the steps is in later registers.
        const int holder = k % 8 / 2, upper = k / 8, odd = k % 2;
        for (int i = 0; i < 4; ++i) {
            const float left = slots[group * 4 + holder].numbers[(upper * 2 + i / 2) * 2 + odd];
            const float right = slots[(pair * 2 + i % 2) * 4 + holder].numbers[8 + upper * 2 + odd];
            sum[i] += left * right;
        }
    }
}

}  // namespace tapline_host
