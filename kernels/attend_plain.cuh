// attend() in f32: one to four neighbouring lanes have a query, each up to 32 channels of the head.
#pragma once

#include "number.cuh"
#include "reduce.cuh"

namespace tapline {

// Channels of a head that a lane holds.
constexpr int PART = 32;
// Keys whose scores are computed together, so that sums are scaled once for all of them.
constexpr int SCORES = 8;
// Numbers of a tile of keys, and as many of values: a window of 144 tokens of 32 channels.
constexpr int TILE = 144 * PART;
constexpr int PLAIN_SCRATCH = 2 * TILE * sizeof(float) / sizeof(uint4);

// What a lane knows of its query.
struct PlainQuery {
    float query[PART];
    float sum[PART];
    float most;
    float total;
};

// A tile lies in shared memory as (key, lane, channel). Parts of neighbouring lanes begin four banks apart, so that lanes which
// read different parts of one key do not wait for each other.
struct PlainTile {
    float* keys;
    float* values;
    int row;
    int part;
};

// Copies keys first .. first + count and fills up with zeros to a multiple of SCORES.
template <typename Rows>
__device__ void stage_plain(const PlainTile& tile, const Rows& rows, int first, int count, int size, int lanes) {
    const int packs = lanes * PART / PACK, filled = (count + SCORES - 1) / SCORES * SCORES;
    const bool aligned = rows.is_aligned() && size % PACK == 0;
    for (int index = threadIdx.x; index < filled * packs; index += blockDim.x) {
        const int key = index / packs, channel = index % packs * PACK;
        const int present = key < count ? size - channel : 0;
        const bool whole = aligned && present >= PACK;
        float4 k = make_float4(0.0f, 0.0f, 0.0f, 0.0f), v = k;
        if (present > 0) {
            k = load_some(rows.key(first + key) + channel, present, whole);
            v = load_some(rows.value(first + key) + channel, present, whole);
        }
        const int place = key * tile.row + channel / PART * tile.part + channel % PART;
        store_pack(tile.keys + place, k);
        store_pack(tile.values + place, v);
    }
}

// Adds the first `count` keys of a tile to a query that sees `seen` of them. `part` is the lane's place among the query's lanes.
__device__ inline void fold_plain(PlainQuery& state, const PlainTile& tile, int count, int seen, int part, int lanes) {
    for (int first = 0; first < count; first += SCORES) {
        const float* keys = tile.keys + first * tile.row + part * tile.part;
        const float* values = tile.values + first * tile.row + part * tile.part;
        float scores[SCORES] = {};
#pragma unroll
        for (int channel = 0; channel < PART; channel += PACK) {
#pragma unroll
            for (int key = 0; key < SCORES; ++key) {
                const float4 k = load_pack(keys + key * tile.row + channel);
                scores[key] += state.query[channel] * k.x + state.query[channel + 1] * k.y +
                               state.query[channel + 2] * k.z + state.query[channel + 3] * k.w;
            }
        }
        float most = state.most;
#pragma unroll
        for (int key = 0; key < SCORES; ++key) {
            const float score = sum_lanes(scores[key], lanes);
            scores[key] = first + key < seen ? score : -INFINITY;
            most = fmaxf(most, scores[key]);
        }
        if (first >= seen) {
            continue;
        }
        const float shrink = exp2f(state.most - most);
        state.most = most;
        state.total *= shrink;
#pragma unroll
        for (int channel = 0; channel < PART; ++channel) {
            state.sum[channel] *= shrink;
        }
#pragma unroll
        for (int key = 0; key < SCORES; ++key) {
            const float weight = exp2f(scores[key] - most);
            state.total += weight;
#pragma unroll
            for (int channel = 0; channel < PART; channel += PACK) {
                const float4 v = load_pack(values + key * tile.row + channel);
                state.sum[channel] += weight * v.x;
                state.sum[channel + 1] += weight * v.y;
                state.sum[channel + 2] += weight * v.z;
                state.sum[channel + 3] += weight * v.w;
            }
        }
    }
}

template <typename Rows>
__device__ void attend_plain(const Rows& rows, int queries, int keys, int size, float scale, uint4* scratch) {
    const int lanes = size <= PART ? 1 : size <= 2 * PART ? 2 : 4;
    const int part_stride = lanes == 1 ? PART : PART + PACK;
    float* const numbers = reinterpret_cast<float*>(scratch);
    const PlainTile tile = {numbers, numbers + TILE, lanes * part_stride, part_stride};
    const int capacity = TILE / tile.row / SCORES * SCORES, at_once = blockDim.x / lanes;
    const int part = threadIdx.x % lanes, present = size - part * PART;
    const bool aligned = rows.is_aligned() && size % PACK == 0;
    // exp2 instead of exp: its factor joins the scale.
    const float factor = scale * 1.44269504f;

    for (int first_query = 0; first_query < queries; first_query += at_once) {
        const int index = first_query + threadIdx.x / lanes;
        // Threads without a query help to stage.
        const int query = min(index, queries - 1), seen = rows.seen(query);
        PlainQuery state;
        state.most = -INFINITY;
        state.total = 0.0f;
#pragma unroll
        for (int channel = 0; channel < PART; channel += PACK) {
            const int count = present - channel;
            const float4 q = count > 0 ? load_some(rows.query(query) + part * PART + channel, count, aligned && count >= PACK)
                                       : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            const float numbers[PACK] = {q.x, q.y, q.z, q.w};
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                state.query[channel + i] = numbers[i] * factor;
                state.sum[channel + i] = 0.0f;
            }
        }
        for (int first = 0; first < keys; first += capacity) {
            const int count = min(capacity, keys - first);
            if (first_query == 0 || keys > capacity) {
                __syncthreads();
                stage_plain(tile, rows, first, count, size, lanes);
                __syncthreads();
            }
            fold_plain(state, tile, count, seen - first, part, lanes);
        }
        auto* const out = index < queries ? rows.out(index) : nullptr;
        if (out == nullptr) {
            continue;
        }
        const float rest = 1.0f / state.total;
#pragma unroll
        for (int channel = 0; channel < PART; channel += PACK) {
            const int count = present - channel;
            const float4 x = make_float4(state.sum[channel] * rest, state.sum[channel + 1] * rest,
                                         state.sum[channel + 2] * rest, state.sum[channel + 3] * rest);
            if (count > 0) {
                store_some(out + part * PART + channel, x, count, aligned && count >= PACK);
            }
        }
    }
}

}  // namespace tapline
