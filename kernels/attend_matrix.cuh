// attend() for 16-bit numbers by tensor cores: a warp has 16 queries at a time. Scores are f32; the weights are rounded to the
// tensors' format before they meet the values, as tensor cores want it.
#pragma once

#include "matrix.cuh"
#include "reduce.cuh"

namespace tapline {

// Queries of a warp, and channels (of scores) or keys (of values) of one product.
constexpr int SIDE = 16;
// Keys whose scores are in registers together: three products' worth, a third of a window of 12.
constexpr int CHUNK = 48;
// Numbers of the tiles of keys (144 keys of 32 channels, or 96 of 64, or 48 of 128, padded) and of values.
constexpr int KEY_TILE = 6912;
constexpr int VALUE_TILE = 7168;
constexpr int MATRIX_SCRATCH = (KEY_TILE + VALUE_TILE) * sizeof(__half) / sizeof(uint4);

// Keys lie in shared memory as (key, channel), values as (channel, key), for each the two numbers side by side that a lane needs
// together. Rows are padded by eight numbers: they begin at banks an odd multiple of four apart, and no two lanes of a
// warp read different words of one bank.
template <typename T> struct MatrixTile {
    T* keys;
    T* values;
    int key_row;
    int value_row;
};

// One warp's 16 queries: lane l has rows l / 4 and l / 4 + 8.
template <int MAX_SIZE> struct MatrixQueries {
    unsigned query[MAX_SIZE / SIDE][4];
    float sum[MAX_SIZE / 8][4];
    float most[2];
    float total[2];
};

// Copies keys first .. first + count, and fills up with zeros to a multiple of CHUNK keys and of SIDE channels.
template <typename T, typename Rows>
__device__ void stage_matrix(const MatrixTile<T>& tile, const Rows& rows, int first, int count, int size) {
    const int filled = (count + CHUNK - 1) / CHUNK * CHUNK, packs = (size + SIDE - 1) / SIDE * (SIDE / PACK);
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
        store_pack(tile.keys + key * tile.key_row + channel, k);
        T* const values = tile.values + channel * tile.value_row + key;
        values[0] = narrow<T>(v.x);
        values[tile.value_row] = narrow<T>(v.y);
        values[2 * tile.value_row] = narrow<T>(v.z);
        values[3 * tile.value_row] = narrow<T>(v.w);
    }
}

template <typename T> __device__ unsigned load_pair(const T* from) { return *reinterpret_cast<const unsigned*>(from); }

// Numbers `channel` and `channel` + 1 of a row of `size`; zeros beyond it.
template <typename T> __device__ unsigned load_pair_within(const T* row, int channel, int size, bool aligned) {
    if (aligned && channel + 1 < size) {
        return load_pair(row + channel);
    }
    return narrow_pair<T>(channel < size ? widen(row[channel]) : 0.0f, channel + 1 < size ? widen(row[channel + 1]) : 0.0f);
}

// Adds `count` keys of a tile to a warp's queries, of which the lane's two see `seen`.
template <int MAX_SIZE, typename T>
__device__ void fold_matrix(MatrixQueries<MAX_SIZE>& state, const MatrixTile<T>& tile, int count, const int (&seen)[2],
                            int size, float factor) {
    const int lane = threadIdx.x % WARP, group = lane / 4, pair = lane % 4 * 2;
    for (int first = 0; first < count; first += CHUNK) {
        float scores[CHUNK / 8][4] = {};
#pragma unroll
        for (int step = 0; step < MAX_SIZE / SIDE; ++step) {
            if (step * SIDE < size) {
#pragma unroll
                for (int keys = 0; keys < CHUNK / 8; ++keys) {
                    const T* const key = tile.keys + (first + keys * 8 + group) * tile.key_row + step * SIDE + pair;
                    multiply_add<T>(scores[keys], state.query[step], {load_pair(key), load_pair(key + 8)});
                }
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = state.most[half];
#pragma unroll
            for (int keys = 0; keys < CHUNK / 8; ++keys) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& score = scores[keys][2 * half + i];
                    score = first + keys * 8 + pair + i < seen[half] ? score * factor : -INFINITY;
                    most = fmaxf(most, score);
                }
            }
            most = max_lanes(most, 4);
            // A chunk of which nothing may be seen leaves -inf after an earlier -inf only when nothing has been seen at all.
            const float base = most == -INFINITY ? 0.0f : most;
            const float shrink = exp2f(state.most[half] - base);
            state.most[half] = most;
            float total = 0.0f;
#pragma unroll
            for (int keys = 0; keys < CHUNK / 8; ++keys) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    float& score = scores[keys][2 * half + i];
                    score = exp2f(score - base);
                    total += score;
                }
            }
            state.total[half] = state.total[half] * shrink + total;
#pragma unroll
            for (int block = 0; block < MAX_SIZE / 8; ++block) {
                state.sum[block][2 * half] *= shrink;
                state.sum[block][2 * half + 1] *= shrink;
            }
        }
#pragma unroll
        for (int step = 0; step < CHUNK / SIDE; ++step) {
            const float(&low)[4] = scores[2 * step];
            const float(&high)[4] = scores[2 * step + 1];
            // Scores lie in the lanes as the left operand of the next product wants them.
            const unsigned weights[4] = {narrow_pair<T>(low[0], low[1]), narrow_pair<T>(low[2], low[3]),
                                         narrow_pair<T>(high[0], high[1]), narrow_pair<T>(high[2], high[3])};
#pragma unroll
            for (int block = 0; block < MAX_SIZE / 8; ++block) {
                if (block * 8 < size) {
                    const T* const value = tile.values + (block * 8 + group) * tile.value_row + first + step * SIDE + pair;
                    multiply_add<T>(state.sum[block], weights, {load_pair(value), load_pair(value + 8)});
                }
            }
        }
    }
}

template <int MAX_SIZE, typename T, typename Rows>
__device__ void attend_matrix(const Rows& rows, int queries, int keys, int size, float scale, uint4* scratch) {
    const int channels = (size + SIDE - 1) / SIDE * SIDE, key_row = channels + 8;
    const int capacity = KEY_TILE / key_row / CHUNK * CHUNK;
    T* const numbers = reinterpret_cast<T*>(scratch);
    const MatrixTile<T> tile = {numbers, numbers + KEY_TILE, key_row, capacity + 8};
    const int lane = threadIdx.x % WARP, group = lane / 4, pair = lane % 4 * 2;
    const int warp = threadIdx.x / WARP, at_once = blockDim.x / WARP * SIDE;
    const bool aligned = rows.is_aligned() && size % 2 == 0;
    const float factor = scale * 1.44269504f;

    for (int round = 0; round < queries; round += at_once) {
        const int first_query = round + warp * SIDE;
        const int indices[2] = {first_query + group, first_query + group + 8};
        // Rows beyond the last query are computed as copies of it and not stored.
        const int present[2] = {min(indices[0], queries - 1), min(indices[1], queries - 1)};
        const int seen[2] = {rows.seen(present[0]), rows.seen(present[1])};
        MatrixQueries<MAX_SIZE> state;
        state.most[0] = state.most[1] = -INFINITY;
        state.total[0] = state.total[1] = 0.0f;
#pragma unroll
        for (int block = 0; block < MAX_SIZE / 8; ++block) {
            state.sum[block][0] = state.sum[block][1] = state.sum[block][2] = state.sum[block][3] = 0.0f;
        }
#pragma unroll
        for (int step = 0; step < MAX_SIZE / SIDE; ++step) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int channel = step * SIDE + pair + i / 2 * 8;
                state.query[step][i] = load_pair_within(rows.query(present[i % 2]), channel, size, aligned);
            }
        }
        for (int first = 0; first < keys; first += capacity) {
            const int count = min(capacity, keys - first);
            if (round == 0 || keys > capacity) {
                __syncthreads();
                stage_matrix(tile, rows, first, count, size);
                __syncthreads();
            }
            // The same for all lanes of a warp. What follows is for lanes in step, and storing an earlier round may have parted them.
            if (first_query < queries) {
                __syncwarp();
                const int seen_here[2] = {seen[0] - first, seen[1] - first};
                fold_matrix<MAX_SIZE>(state, tile, count, seen_here, size, factor);
            }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float rest = 1.0f / sum_lanes(state.total[half], 4);
            T* const out = indices[half] < queries ? rows.out(indices[half]) : nullptr;
            if (out == nullptr) {
                continue;
            }
#pragma unroll
            for (int block = 0; block < MAX_SIZE / 8; ++block) {
                const int channel = block * 8 + pair;
                const float first = state.sum[block][2 * half] * rest, second = state.sum[block][2 * half + 1] * rest;
                if (aligned && channel + 1 < size) {
                    *reinterpret_cast<unsigned*>(out + channel) = narrow_pair<T>(first, second);
                } else {
                    if (channel < size) out[channel] = narrow<T>(first);
                    if (channel + 1 < size) out[channel + 1] = narrow<T>(second);
                }
            }
        }
    }
}

}  // namespace tapline
