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
//                  time, each team of eight an online softmax of its own, which are put together at the end. Bound by
//                  memory: keys and values are read once a query.
#include "attend.cuh"

namespace tapline::attention {

constexpr int QUERIES = 64;
constexpr int THREADS = 128;
constexpr int MAX_SIZE = 128;
// In attention_few: lanes that have a key together, and how many such teams there are.
constexpr int LANES = 8;
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

// What a team of lanes has found: the weighted sum of values (SHARE channels of it a lane), the sum of weights, and the largest
// score they are relative to.
template <int SHARE> struct Found {
    float sum[SHARE];
    float most;
    float total;
};

// Adds what another team has found, both scaled to the larger of the two largest scores.
template <int SHARE> __device__ void merge(Found<SHARE>& found, const Found<SHARE>& other) {
    const float base = fmaxf(found.most, other.most);
    // Neither has seen a key.
    if (base == -INFINITY) {
        return;
    }
    const float own = exp2f(found.most - base), others = exp2f(other.most - base);
    found.most = base;
    found.total = found.total * own + other.total * others;
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        found.sum[i] = found.sum[i] * own + other.sum[i] * others;
    }
}

// Pack p of a lane is the channels from (p LANES + lane) PACK on: neighbouring lanes read neighbouring packs.
template <int SHARE, typename T>
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

// What the keys first + i TEAMS + team add, those of them that are seen. All their loads are under way together.
template <int SHARE, typename T>
__device__ void fold(Found<SHARE>& found, const Head<T>& rows, const float (&q)[SHARE], int first, int seen, int size,
                     float factor) {
    constexpr int KEYS = 32 / SHARE;
    const int lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
    float keys[KEYS][SHARE], values[KEYS][SHARE], scores[KEYS], most = found.most;
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
        const int key = min(first + i * TEAMS + team, seen - 1);
        load_share(keys[i], rows.key(key), lane, size, rows.aligned);
        load_share(values[i], rows.value(key), lane, size, rows.aligned);
    }
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
        float score = 0.0f;
#pragma unroll
        for (int channel = 0; channel < SHARE; ++channel) {
            score += q[channel] * keys[i][channel];
        }
        score = sum_lanes(score, LANES) * factor;
        scores[i] = first + i * TEAMS + team < seen ? score : -INFINITY;
        most = fmaxf(most, scores[i]);
    }
    const float base = most == -INFINITY ? 0.0f : most, shrink = exp2f(found.most - base);
    found.most = most;
    found.total *= shrink;
#pragma unroll
    for (int channel = 0; channel < SHARE; ++channel) {
        found.sum[channel] *= shrink;
    }
#pragma unroll
    for (int i = 0; i < KEYS; ++i) {
        const float weight = exp2f(scores[i] - base);
        found.total += weight;
#pragma unroll
        for (int channel = 0; channel < SHARE; ++channel) {
            found.sum[channel] += weight * values[i][channel];
        }
    }
}

// SHARE: channels that a lane may have, enough for `size` among LANES of them.
template <int SHARE, typename T>
__device__ void few(const Head<T>& rows, int size, float scale, Found<SHARE> (&parts)[THREADS / WARP][LANES]) {
    const int lane = threadIdx.x % LANES, seen = rows.seen(0);
    const float factor = scale * 1.44269504f;
    float q[SHARE];
    load_share(q, rows.query(0), lane, size, rows.aligned);
    Found<SHARE> found = {{}, -INFINITY, 0.0f};
    for (int first = 0; first < seen; first += TEAMS * (32 / SHARE)) {
        fold(found, rows, q, first, seen, size, factor);
    }
    // The four teams of a warp, then the warps.
    for (int step = LANES; step < WARP; step *= 2) {
        Found<SHARE> other;
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            other.sum[i] = __shfl_xor_sync(ALL_LANES, found.sum[i], step);
        }
        other.most = __shfl_xor_sync(ALL_LANES, found.most, step);
        other.total = __shfl_xor_sync(ALL_LANES, found.total, step);
        merge(found, other);
    }
    if (threadIdx.x % WARP < LANES) {
        parts[threadIdx.x / WARP][lane] = found;
    }
    __syncthreads();
    if (threadIdx.x >= LANES) {
        return;
    }
    for (int other = 1; other < THREADS / WARP; ++other) {
        merge(found, parts[other][lane]);
    }
    T* const out = rows.out(0);
    const float rest = 1.0f / found.total;
#pragma unroll
    for (int pack = 0; pack < SHARE / PACK; ++pack) {
        const int channel = (pack * LANES + lane) * PACK;
        const float* const sum = found.sum + pack * PACK;
        if (channel < size) {
            store_some(out + channel, make_float4(sum[0] * rest, sum[1] * rest, sum[2] * rest, sum[3] * rest),
                       size - channel, rows.aligned);
        }
    }
}

template <typename T> __device__ void few(const Head<T>& rows, int size, float scale) {
    constexpr int LARGE = MAX_SIZE / LANES, SMALL = LARGE / 2;
    if (size <= MAX_SIZE / 2) {
        __shared__ Found<SMALL> parts[THREADS / WARP][LANES];
        few<SMALL>(rows, size, scale, parts);
    } else {
        __shared__ Found<LARGE> parts[THREADS / WARP][LANES];
        few<LARGE>(rows, size, scale, parts);
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
