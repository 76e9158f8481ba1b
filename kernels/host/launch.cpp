// All kernels of the folder above as one library with a C interface like the driver's: launch by name, with a grid, a block and
// pointers to the arguments. c++ -std=c++17 -shared -fPIC launch.cpp
#include <cstdlib>
#include <exception>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#define TAPLINE_HOST
#include "cuda_host.hpp"

#include "../attention.cu"
#include "../bias.cu"
#include "../cache.cu"
#include "../channel_attention.cu"
#include "../depthwise.cu"
#include "../embed.cu"
#include "../image_tokens.cu"
#include "../layer_norm.cu"
#include "../location.cu"
#include "../patches.cu"
#include "../reorder.cu"
#include "../resize.cu"
#include "../window_attention.cu"

namespace {

thread_local std::string failure;

// A kernel with the sizes of its parameters.
struct Kernel {
    const char* name;
    std::size_t count;
    const std::size_t* sizes;
    void (*call)(void* const* arguments);
};

template <auto FUNCTION> struct Call;
template <typename... P, void (*FUNCTION)(P...)> struct Call<FUNCTION> {
    static constexpr std::size_t sizes[] = {sizeof(P)...};

    template <std::size_t... I> static void unpack(void* const* arguments, std::index_sequence<I...>) {
        FUNCTION(*static_cast<P*>(arguments[I])...);
    }
    static void call(void* const* arguments) { unpack(arguments, std::index_sequence_for<P...>()); }
    static constexpr Kernel kernel(const char* name) { return {name, sizeof...(P), sizes, &call}; }
};

#define KERNEL(name) Call<&name>::kernel(#name)
#define KERNELS(name) KERNEL(name##_f32), KERNEL(name##_bf16), KERNEL(name##_f16)

const Kernel kernels[] = {
    KERNEL(resize_horizontal),          KERNELS(resize_vertical),          KERNELS(depthwise),
    KERNELS(window_attention),          KERNELS(channel_attention_logits), KERNEL(channel_attention_softmax),
    KERNELS(channel_attention_apply),   KERNELS(layer_norm),               KERNELS(bias),
    KERNELS(bias_gelu),                 KERNELS(bias_residual),            KERNELS(attention),
    KERNELS(attention_few),             KERNELS(patches),                  KERNEL(best_location),
    KERNEL(highest),                    KERNELS(reorder),                  KERNELS(append),
    KERNELS(embed),                     KERNELS(place),                    KERNELS(image_tokens),
};

int fail(const std::string& message) {
    failure = message;
    return 1;
}

std::size_t pages(std::size_t bytes) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return (bytes + page - 1) / page * page;
}

}  // namespace

// Why the last call on this thread failed.
extern "C" const char* tapline_failure() { return failure.c_str(); }

// Runs a kernel; 0 when it has run. `sizes` are the sizes of the `count` arguments.
extern "C" int tapline_launch(const char* name, const unsigned* grid, const unsigned* block, void* const* arguments,
                              const std::size_t* sizes, std::size_t count) {
    const Kernel* found = nullptr;
    for (const Kernel& kernel : kernels) {
        if (std::strcmp(kernel.name, name) == 0) found = &kernel;
    }
    if (found == nullptr) {
        return fail(std::string("there is no kernel ") + name);
    }
    if (found->count != count || std::memcmp(found->sizes, sizes, count * sizeof(*sizes)) != 0) {
        return fail(std::string("the arguments are not those of ") + name);
    }
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    try {
        for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z) {
            for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y) {
                for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
                    tapline_host::Block::current().run([&] { found->call(arguments); });
                }
            }
        }
    } catch (const std::exception& error) {
        return fail(std::string(name) + ": " + error.what());
    }
    return 0;
}

// Memory that ends where a page ends that may not be touched, so that a kernel which reads or writes past the end is stopped.
// Null when there is none.
extern "C" void* tapline_allocate(std::size_t bytes) {
    const std::size_t guard = pages(1), inside = pages(bytes);
    void* const start = mmap(nullptr, inside + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        return nullptr;
    }
    if (mprotect(static_cast<char*>(start) + inside, guard, PROT_NONE) != 0) {
        munmap(start, inside + guard);
        return nullptr;
    }
    return static_cast<char*>(start) + inside - bytes;
}

// Gives back what tapline_allocate gave for as many bytes.
extern "C" void tapline_release(void* place, std::size_t bytes) {
    munmap(static_cast<char*>(place) + bytes - pages(bytes), pages(bytes) + pages(1));
}
