// Attention between channels, over all tokens of an image, for each group of channels:
//
//   A = softmax over j of sum_n (scale q[n, i]) k[n, j],   out[n, i] = sum_j A[i, j] v[n, j]
//
// qkv is (batch, tokens, 3 channels) in T, out is (batch, tokens, channels); size = channels / groups is at most 64. q is scaled
// before the product, which sums over tens of thousands of tokens; all sums are in f32.
// Launch, three kernels:
//   logits   grid (splits, groups, batch), 256 threads: each split sums a share of the tokens into partial
//            (batch, groups, splits, size, size). A thread has 4 x 4 sums; where 64 threads or fewer have all of them, the block's
//            threads take different tokens and add up at the end.
//   softmax  256 threads, a warp a row: adds up the splits and normalises to weights (batch, groups, size, size)
//   apply    grid (ceil(tokens / 64), groups, batch), 256 threads: a thread has 2 tokens x 4 channels at a time
// Bound by memory: q and k are read once, v once, out is written once.
#include "number.cuh"
#include "reduce.cuh"

namespace tapline::channel_attention {

constexpr int MAX_SIZE = 64;
constexpr int THREADS = 256;
// Tokens in shared memory together, in each of the first and the third kernel.
constexpr int SUMMED = 32;
constexpr int APPLIED = 64;
// Logits of a thread: BLOCK x BLOCK.
constexpr int BLOCK = 4;

// Copies `count` tokens of one part (q, k or v) of a group into rows of `row` numbers, times a factor; zeros in what is left of
// `tokens` rows.
template <typename T>
__device__ void stage(float* to, int row, const T* from, int stride, int size, int count, int tokens, float factor,
                      bool aligned) {
    const int packs = row / PACK;
    for (int index = threadIdx.x; index < tokens * packs; index += THREADS) {
        const int token = index / packs, channel = index % packs * PACK;
        const int present = token < count ? size - channel : 0;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (present > 0) {
            x = load_some(from + static_cast<size_t>(token) * stride + channel, present, aligned && present >= PACK);
        }
        store_pack(to + token * row + channel, make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor));
    }
}

template <typename T>
__device__ void logits(const T* qkv, float* partial, int tokens, int channels, int groups, float scale) {
    __shared__ float4 staged[2 * SUMMED * MAX_SIZE / PACK];
    __shared__ float sums[MAX_SIZE * MAX_SIZE];
    const int size = channels / groups, blocks = (size + BLOCK - 1) / BLOCK, row = blocks * BLOCK;
    float* const q = reinterpret_cast<float*>(staged);
    float* const k = q + SUMMED * MAX_SIZE;
    // Threads with the same place in the matrix take every `teams`-th token.
    const int places = blocks * blocks, teams = THREADS / places;
    const int team = threadIdx.x / places, i = threadIdx.x % places / blocks * BLOCK, j = threadIdx.x % blocks * BLOCK;
    const int splits = gridDim.x, share = (tokens + splits - 1) / splits;
    const int first = min(static_cast<int>(blockIdx.x) * share, tokens), end = min(first + share, tokens);
    const T* const image = qkv + static_cast<size_t>(blockIdx.z) * tokens * 3 * channels + blockIdx.y * size;
    const bool aligned = size % PACK == 0 && is_aligned(qkv);

    float sum[BLOCK][BLOCK] = {};
    for (int token = first; token < end; token += SUMMED) {
        const T* const from = image + static_cast<size_t>(token) * 3 * channels;
        const int count = min(SUMMED, end - token);
        __syncthreads();
        stage(q, row, from, 3 * channels, size, count, SUMMED, scale, aligned);
        stage(k, row, from + channels, 3 * channels, size, count, SUMMED, 1.0f, aligned);
        __syncthreads();
        for (int n = team; n < SUMMED && team < teams; n += teams) {
            const float4 a = load_pack(q + n * row + i), b = load_pack(k + n * row + j);
            const float left[BLOCK] = {a.x, a.y, a.z, a.w}, right[BLOCK] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int y = 0; y < BLOCK; ++y) {
#pragma unroll
                for (int x = 0; x < BLOCK; ++x) {
                    sum[y][x] += left[y] * right[x];
                }
            }
        }
    }
    // Teams add up one after another: the same sum in every run.
    for (int turn = 0; turn < teams; ++turn) {
        if (team == turn) {
#pragma unroll
            for (int y = 0; y < BLOCK; ++y) {
#pragma unroll
                for (int x = 0; x < BLOCK; ++x) {
                    float& place = sums[(i + y) * row + j + x];
                    place = turn == 0 ? sum[y][x] : place + sum[y][x];
                }
            }
        }
        __syncthreads();
    }
    float* const out = partial + ((static_cast<size_t>(blockIdx.z) * groups + blockIdx.y) * splits + blockIdx.x) * size * size;
    for (int index = threadIdx.x; index < size * size; index += THREADS) {
        out[index] = sums[index / size * row + index % size];
    }
}

template <typename T>
__device__ void apply(const T* qkv, const float* weights, T* out, int tokens, int channels, int groups) {
    __shared__ float4 staged[APPLIED * MAX_SIZE / PACK];
    __shared__ float4 turned[MAX_SIZE * MAX_SIZE / PACK];
    const int size = channels / groups, packs = (size + PACK - 1) / PACK, row = packs * PACK;
    float* const v = reinterpret_cast<float*>(staged);
    // The weights by (j, i), so that four neighbouring outputs are one load.
    float* const by_value = reinterpret_cast<float*>(turned);
    const int first = blockIdx.x * APPLIED, count = min(APPLIED, tokens - first);
    const size_t token = static_cast<size_t>(blockIdx.z) * tokens + first;
    const bool aligned = size % PACK == 0 && is_aligned(qkv) && is_aligned(out);
    weights += (static_cast<size_t>(blockIdx.z) * groups + blockIdx.y) * size * size;
    for (int index = threadIdx.x; index < row * row; index += THREADS) {
        const int i = index / row, j = index % row;
        by_value[j * row + i] = i < size && j < size ? weights[i * size + j] : 0.0f;
    }
    stage(v, row, qkv + token * 3 * channels + 2 * channels + blockIdx.y * size, 3 * channels, size, count, APPLIED, 1.0f,
          aligned);
    __syncthreads();
    for (int index = threadIdx.x; index < APPLIED / 2 * packs; index += THREADS) {
        const int n = index / packs * 2, i = index % packs * PACK;
        float4 sums[2] = {};
        for (int j = 0; j < row; j += PACK) {
            const float4 x = load_pack(v + n * row + j), y = load_pack(v + (n + 1) * row + j);
            const float values[2][PACK] = {{x.x, x.y, x.z, x.w}, {y.x, y.y, y.z, y.w}};
#pragma unroll
            for (int step = 0; step < PACK; ++step) {
                const float4 a = load_pack(by_value + (j + step) * row + i);
#pragma unroll
                for (int which = 0; which < 2; ++which) {
                    const float value = values[which][step];
                    sums[which] = add(sums[which], make_float4(a.x * value, a.y * value, a.z * value, a.w * value));
                }
            }
        }
        for (int which = 0; which < 2; ++which) {
            if (n + which < count) {
                T* const to = out + (token + n + which) * channels + blockIdx.y * size + i;
                store_some(to, sums[which], size - i, aligned);
            }
        }
    }
}

}  // namespace tapline::channel_attention

extern "C" __global__ void __launch_bounds__(256)
channel_attention_softmax(const float* partial, float* weights, int rows, int splits, int size) {
    using namespace tapline;
    using namespace tapline::channel_attention;
    const int lane = threadIdx.x % WARP, row = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;
    if (row >= rows) {
        return;
    }
    const size_t matrix = static_cast<size_t>(size) * size;
    const float* const from = partial + static_cast<size_t>(row / size) * splits * matrix + row % size * size;
    float logit[MAX_SIZE / WARP], most = -INFINITY, total = 0.0f;
#pragma unroll
    for (int part = 0; part < MAX_SIZE / WARP; ++part) {
        const int j = part * WARP + lane;
        float sum = 0.0f;
        for (int split = 0; split < splits && j < size; ++split) {
            sum += from[split * matrix + j];
        }
        logit[part] = j < size ? sum : -INFINITY;
        most = fmaxf(most, logit[part]);
    }
    most = max_lanes(most);
#pragma unroll
    for (int part = 0; part < MAX_SIZE / WARP; ++part) {
        logit[part] = expf(logit[part] - most);
        total += logit[part];
    }
    total = sum_lanes(total);
#pragma unroll
    for (int part = 0; part < MAX_SIZE / WARP; ++part) {
        const int j = part * WARP + lane;
        if (j < size) {
            weights[static_cast<size_t>(row) * size + j] = logit[part] / total;
        }
    }
}

#define CHANNEL_ATTENTION(suffix, T)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    channel_attention_logits_##suffix(const T* qkv, float* partial, int tokens, int channels, int groups, float scale) {    \
        tapline::channel_attention::logits(qkv, partial, tokens, channels, groups, scale);                                  \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
    channel_attention_apply_##suffix(const T* qkv, const float* weights, T* out, int tokens, int channels, int groups) {    \
        tapline::channel_attention::apply(qkv, weights, out, tokens, channels, groups);                                     \
    }
TAPLINE_EACH_NUMBER(CHANNEL_ATTENTION)
