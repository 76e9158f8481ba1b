// Choosing ids from rows of logits (rows, vocabulary) in f32, so that a few numbers a row leave the device:
//
//   best_location  the best id of a range of ids, and the best of all
//   highest        the `count` best ids, best first
//
// with the log-softmax over the whole vocabulary of each. The lower id is better among equals; what is not a number is worse
// than everything.
// Launch: a block of 1024 threads a row; each thread has every 1024th logit. `highest` takes the best of the threads' bests and
// lets only its owner look for its next best, so that a row is read twice however many are wanted.
// Bound by latency: a row of 51,289 logits is 200 kB, from the second cache.
#include "reduce.cuh"

namespace tapline::location {

constexpr int THREADS = 1024;
constexpr int WARPS = THREADS / WARP;
constexpr int NO_ID = 0x7fffffff;

struct Choice {
    float logit;
    int id;
};

__device__ inline bool is_better(Choice a, Choice b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// What is not a number becomes the least there is.
__device__ inline float comparable(float logit) { return logit == logit ? logit : -INFINITY; }

// The best choice of all threads, in each of them.
__device__ inline Choice best_of_block(Choice choice) {
    __shared__ Choice bests[WARPS];
    const int lane = threadIdx.x % WARP;
    for (int step = WARP / 2; step > 0; step /= 2) {
        const Choice other = {__shfl_xor_sync(ALL_LANES, choice.logit, step), __shfl_xor_sync(ALL_LANES, choice.id, step)};
        if (is_better(other, choice)) choice = other;
    }
    // The bests of an earlier call have been read.
    __syncthreads();
    if (lane == 0) bests[threadIdx.x / WARP] = choice;
    __syncthreads();
    choice = bests[0];
    for (int warp = 1; warp < WARPS; ++warp) {
        if (is_better(bests[warp], choice)) choice = bests[warp];
    }
    return choice;
}

__device__ inline float sum_of_block(float x) {
    __shared__ float sums[WARPS];
    x = sum_lanes(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) sums[threadIdx.x / WARP] = x;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < WARPS; ++warp) {
        sum += sums[warp];
    }
    return sum;
}

// The best of this thread's logits first .. end that is worse than `after`; with no such logit, NO_ID.
__device__ inline Choice next_of_thread(const float* logits, int first, int end, Choice after) {
    Choice best = {-INFINITY, NO_ID};
    for (int id = first + threadIdx.x; id < end; id += THREADS) {
        const Choice choice = {comparable(logits[id]), id};
        if (is_better(choice, best) && is_better(after, choice)) best = choice;
    }
    return best;
}

// log(sum(exp(logits - most))).
__device__ inline float log_total(const float* logits, int vocabulary, float most) {
    float sum = 0.0f;
    for (int id = threadIdx.x; id < vocabulary; id += THREADS) {
        sum += expf(comparable(logits[id]) - most);
    }
    return logf(sum_of_block(sum));
}

}  // namespace tapline::location

extern "C" __global__ void __launch_bounds__(1024)
best_location(const float* logits, const int* ranges, int* ids, float* log_probabilities, int vocabulary) {
    using namespace tapline::location;
    const int row = blockIdx.x;
    logits += static_cast<size_t>(row) * vocabulary;
    const Choice before_all = {INFINITY, -1};
    const int first = max(ranges[2 * row], 0), end = min(ranges[2 * row + 1], vocabulary);
    const Choice allowed = best_of_block(next_of_thread(logits, first, end, before_all));
    const Choice free = best_of_block(next_of_thread(logits, 0, vocabulary, before_all));
    const float total = log_total(logits, vocabulary, free.logit);
    if (threadIdx.x == 0) {
        ids[2 * row] = allowed.id;
        ids[2 * row + 1] = free.id;
        log_probabilities[2 * row] = allowed.logit - free.logit - total;
        log_probabilities[2 * row + 1] = -total;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
highest(const float* logits, int* ids, float* log_probabilities, int vocabulary, int count) {
    using namespace tapline::location;
    const int row = blockIdx.x;
    logits += static_cast<size_t>(row) * vocabulary;
    Choice own = next_of_thread(logits, 0, vocabulary, {INFINITY, -1});
    float most = 0.0f, total = 0.0f;
    for (int rank = 0; rank < count; ++rank) {
        const Choice best = best_of_block(own);
        if (rank == 0) {
            most = best.logit;
            total = log_total(logits, vocabulary, most);
        }
        if (threadIdx.x == 0) {
            ids[static_cast<size_t>(row) * count + rank] = best.id;
            log_probabilities[static_cast<size_t>(row) * count + rank] = best.logit - most - total;
        }
        if (own.id == best.id && own.id != NO_ID) own = next_of_thread(logits, 0, vocabulary, best);
    }
}
