// Multi-head attention over rows of different lengths, for prompts and answers:
//
//   out[b, i] = softmax over the keys seen (scale q[b, i] k[b, j]) v[b, j], for each head
//   query i of row b sees the keys below min(real_keys[b] or keys, *causal + i + 1)
//
// q is (batch, queries, channels), k and v are (batch, capacity, channels) of which the first `keys` or fewer are looked at, out
// is (batch, queries, channels), all in T. Tokens of q lie q_stride numbers apart, those of k and v kv_stride: 3 channels where
// they are parts of one packed qkv. real_keys (batch) and causal (one number) are read on the device, so that a recorded
// launch serves every step; a null pointer means all keys, and no causal limit. A head has `size` channels, at most 128.
// Launch, two kernels for the same thing:
//   attention      for many queries: grid (ceil(queries / 64), heads, batch), 128 threads; keys and values go through shared
//                  memory (attend.cuh). Bound by arithmetic.
//   attention_few  for the few queries of a decode step: grid (queries, heads, batch), 128 threads; eight lanes have a key at a
//                  time, each group of eight an online softmax of its own, which are put together at the end. Bound by
//                  memory: keys and values are read once a query.
#include "attend.cuh"

namespace tapline::attention {

constexpr int QUERIES = 64;
constexpr int THREADS = 128;
constexpr int MAX_SIZE = 128;
// Lanes that share a key in attention_few, and the channels that each may have.
constexpr int LANES = 8;
constexpr int SHARE = MAX_SIZE / LANES;
constexpr int TEAMS = THREADS / LANES;

template <typename T> struct Head {
    const T* q;
    const T* k;
    const T* v;
    T* first_out;
    int first_query, q_stride, kv_stride, channels, limit;
    const int* causal;
    bool aligned;

    __device__ const T* query(int i) const { return q + static_cast<size_t>(first_query + i) * q_stride; }
    __device__ const T* key(int j) const { return k + static_cast<size_t>(j) * kv_stride; }
    __device__ const T* value(int j) const { return v + static_cast<size_t>(j) * kv_stride; }
    __device__ T* out(int i) const { return first_out + static_cast<size_t>(first_query + i) * channels; }
    __device__ int seen(int i) const {
        return causal == nullptr ? limit : min(limit, *causal + first_query + i + 1);
    }
    __device__ bool is_aligned() const { return aligned; }
};

// The head that the block has, its queries from `first_query` on.
template <typename T>
__device__ Head<T> head(const T* q, const T* k, const T* v, T* out, const int* real_keys, const int* causal, int queries,
                        int keys, int capacity, int q_stride, int kv_stride, int heads, int size, int first_query) {
    const int row = blockIdx.z, channel = blockIdx.y * size, channels = heads * size;
    const size_t keys_before = static_cast<size_t>(row) * capacity * kv_stride + channel;
    const bool aligned = size % PACK == 0 && q_stride % PACK == 0 && kv_stride % PACK == 0 && is_aligned(q) &&
                         is_aligned(k) && is_aligned(v) && is_aligned(out);
    return {q + static_cast<size_t>(row) * queries * q_stride + channel,
            k + keys_before,
            v + keys_before,
            out + static_cast<size_t>(row) * queries * channels + channel,
            first_query,
            q_stride,
            kv_stride,
            channels,
            min(real_keys == nullptr ? keys : real_keys[row], keys),
            causal,
            aligned};
}

// What a group of lanes has found: the weighted sum of values, the sum of weights, and the largest score they are relative to.
struct Found {
    float sum[SHARE];
    float most;
    float total;
};

// Adds a part's sums to others, both scaled to the larger of the two largest scores.
__device__ inline void merge(Found& found, float most, float total, const float (&sum)[SHARE]) {
    const float base = fmaxf(found.most, most);
    if (base == -INFINITY) {
        return;
    }
    const float own = exp2f(found.most - base), other = exp2f(most - base);
    found.most = base;
    found.total = found.total * own + total * other;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        found.sum[i] = found.sum[i] * own + sum[i] * other;
    }
}

// Packs p of a lane are channels (p LANES + lane) PACK and three more: neighbouring lanes read neighbouring packs.
template <typename T>
__device__ void load_share(float (&share)[SHARE], const T* from, int lane, int size, bool aligned) {
#pragma unroll
    for (int pack = 0; pack < SHARE / PACK; ++pack) {
        const int channel = (pack * LANES + lane) * PACK, present = size - channel;
        const float4 x = present > 0 ? load_some(from + channel, present, aligned) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        share[pack * PACK] = x.x;
        share[pack * PACK + 1] = x.y;
        share[pack * PACK + 2] = x.z;
        share[pack * PACK + 3] = x.w;
    }
}

template <typename T> __device__ void few(const Head<T>& rows, int size, float scale) {
    __shared__ Found parts[THREADS / WARP][LANES];
    const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES, warp = threadIdx.x / WARP;
    const int seen = rows.seen(0);
    const float factor = scale * 1.44269504f;
    float q[SHARE];
    load_share(q, rows.query(0), lane, size, rows.aligned);
    Found found = {{}, -INFINITY, 0.0f};
    // All teams take equally many turns, since the lanes of a warp add up together.
    for (int first = 0; first < seen; first += TEAMS) {
        const int key = first + team;
        float k[SHARE], score = 0.0f;
        load_share(k, rows.key(min(key, seen - 1)), lane, size, rows.aligned);
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            score += q[i] * k[i];
        }
        score = sum_lanes(score, LANES) * factor;
        if (key < seen) {
            load_share(k, rows.value(key), lane, size, rows.aligned);
            merge(found, score, 1.0f, k);
        }
    }
    // The four teams of a warp, then the warps.
    for (int step = LANES; step < WARP; step *= 2) {
        float sum[SHARE];
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            sum[i] = __shfl_xor_sync(ALL_LANES, found.sum[i], step);
        }
        const float most = __shfl_xor_sync(ALL_LANES, found.most, step);
        const float total = __shfl_xor_sync(ALL_LANES, found.total, step);
        merge(found, most, total, sum);
    }
    if (threadIdx.x % WARP < LANES) {
        parts[warp][lane] = found;
    }
    __syncthreads();
    if (threadIdx.x >= LANES) {
        return;
    }
    for (int other = 1; other < THREADS / WARP; ++other) {
        merge(found, parts[other][lane].most, parts[other][lane].total, parts[other][lane].sum);
    }
    T* const out = rows.out(0);
#pragma unroll
    for (int pack = 0; pack < SHARE / PACK; ++pack) {
        const int channel = (pack * LANES + lane) * PACK;
        const float* const sum = found.sum + pack * PACK;
        if (channel < size) {
            store_some(out + channel, make_float4(sum[0] / found.total, sum[1] / found.total, sum[2] / found.total,
                                                  sum[3] / found.total), size - channel, rows.aligned);
        }
    }
}

template <typename T>
__device__ void many(const Head<T>& rows, int queries, int size, float scale) {
    __shared__ uint4 scratch[ATTEND_SCRATCH<T>];
    const int count = min(QUERIES, queries - rows.first_query);
    attend<MAX_SIZE, T>(rows, count, rows.seen(count - 1), size, scale, scratch);
}

}  // namespace tapline::attention

#define ATTENTION(suffix, T)                                                                                                \
    extern "C" __global__ void __launch_bounds__(128)                                                                       \
    attention_##suffix(const T* q, const T* k, const T* v, T* out, const int* real_keys, const int* causal, int queries,    \
                       int keys, int capacity, int q_stride, int kv_stride, int heads, int size, float scale) {             \
        using namespace tapline::attention;                                                                                 \
        const int first = blockIdx.x * QUERIES;                                                                             \
        many(head(q, k, v, out, real_keys, causal, queries, keys, capacity, q_stride, kv_stride, heads, size, first),       \
             queries, size, scale);                                                                                         \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(128)                                                                       \
    attention_few_##suffix(const T* q, const T* k, const T* v, T* out, const int* real_keys, const int* causal,             \
                           int queries, int keys, int capacity, int q_stride, int kv_stride, int heads, int size,           \
                           float scale) {                                                                                   \
        using namespace tapline::attention;                                                                                 \
        const int first = blockIdx.x;                                                                                       \
        few(head(q, k, v, out, real_keys, causal, queries, keys, capacity, q_stride, kv_stride, heads, size, first), size,  \
            scale);                                                                                                         \
    }
TAPLINE_EACH_NUMBER(ATTENTION)
