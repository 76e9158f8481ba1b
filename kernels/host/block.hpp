// A block of threads on one CPU thread: each is a coroutine with a stack of its own that runs until it waits for others, at a
// barrier of the block or an exchange of its warp. Stacks are made by ucontext and switched by setjmp, which asks the system
// for nothing.
#pragma once

#include <csetjmp>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <ucontext.h>
#include <vector>

struct uint3 { unsigned x, y, z; };
struct dim3 { unsigned x, y, z; };

// Of the coroutine that is running.
inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace tapline_host {

constexpr unsigned LANES = 32;
constexpr std::size_t STACK = 64 * 1024;

// What a lane shows the other lanes of its warp.
struct Slot { float numbers[12]; };

struct Thread {
    ucontext_t start;
    std::jmp_buf place;
    std::unique_ptr<char[]> stack;
    bool started = false;
    bool ready = false;
    bool finished = true;
    // Exchanges of this block so far: neighbouring ones use different slots, so that one wait for each is enough.
    unsigned exchanges = 0;
};

struct Warp {
    Slot slots[2][LANES];
    unsigned arrived[2] = {0, 0};
};

class Block {
public:
    // That of the calling CPU thread.
    static Block& current() {
        static thread_local Block block;
        return block;
    }

    // Runs `body` as every thread of the block that blockIdx names. Throws when threads wait for others that never come.
    template <typename Body> void run(const Body& body) {
        const unsigned count = blockDim.x * blockDim.y * blockDim.z;
        call = [](const void* of) { (*static_cast<const Body*>(of))(); };
        callable = &body;
        while (threads.size() < count) {
            threads.push_back(std::make_unique<Thread>());
        }
        warps.assign((count + LANES - 1) / LANES, Warp());
        total = unfinished = count;
        waiting = 0;
        for (unsigned index = 0; index < count; ++index) {
            threads[index]->ready = true;
            threads[index]->finished = false;
            threads[index]->exchanges = 0;
        }
        const bool descending = (blockIdx.x + blockIdx.y + blockIdx.z) % 2 == 1;
        while (unfinished > 0) {
            bool any = false;
            for (unsigned turn = 0; turn < count; ++turn) {
                const unsigned index = descending ? count - 1 - turn : turn;
                if (threads[index]->ready && !threads[index]->finished) {
                    any = true;
                    resume(index);
                }
            }
            if (!any) {
                abandon();
                throw std::runtime_error("threads wait at a barrier or for a warp that " +
                                         std::to_string(total - unfinished) + " of " + std::to_string(total) +
                                         " threads have left, or at different ones");
            }
        }
    }

    unsigned lane() const { return running % LANES; }

    void wait_for_block() {
        if (++waiting == total) {
            waiting = 0;
            for (unsigned index = 0; index < total; ++index) {
                threads[index]->ready = true;
            }
            return;
        }
        threads[running]->ready = false;
        suspend();
    }

    // Shows `bytes` bytes to the other lanes and waits until all lanes in the mask have shown theirs; what each lane showed. It
    // is there until the exchange after the next.
    const Slot* exchange(unsigned lanes, const void* shown, std::size_t bytes) {
        Thread& thread = *threads[running];
        const unsigned parity = thread.exchanges++ % 2, first = running / LANES * LANES;
        Warp& warp = warps[running / LANES];
        // Lanes that the block does not fill are not waited for.
        const unsigned present = total - first < LANES ? (1u << (total - first)) - 1 : 0xffffffffu;
        if (bytes > 0) std::memcpy(&warp.slots[parity][lane()], shown, bytes);
        warp.arrived[parity] |= 1u << lane();
        if ((warp.arrived[parity] & lanes & present) == (lanes & present)) {
            warp.arrived[parity] = 0;
            for (unsigned index = first; index < total && index < first + LANES; ++index) {
                if (lanes >> (index - first) & 1u) {
                    threads[index]->ready = true;
                }
            }
        } else {
            thread.ready = false;
            suspend();
        }
        return warp.slots[parity];
    }

private:
    void resume(unsigned index) {
        Thread& thread = *threads[index];
        running = index;
        threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y, index / (blockDim.x * blockDim.y)};
        if (_setjmp(scheduler) != 0) {
            return;
        }
        if (thread.started) {
            _longjmp(thread.place, 1);
        }
        thread.started = true;
        if (!thread.stack) {
            thread.stack.reset(new char[STACK]);
        }
        getcontext(&thread.start);
        thread.start.uc_stack.ss_sp = thread.stack.get();
        thread.start.uc_stack.ss_size = STACK;
        thread.start.uc_link = nullptr;
        makecontext(&thread.start, &Block::live, 0);
        setcontext(&thread.start);
    }

    void suspend() {
        if (_setjmp(threads[running]->place) == 0) {
            _longjmp(scheduler, 1);
        }
    }

    // The life of a coroutine: one block after another.
    static void live() {
        for (;;) {
            Block& block = current();
            block.call(block.callable);
            block.threads[block.running]->finished = true;
            --block.unfinished;
            block.suspend();
        }
    }

    // Coroutines in the middle of a block begin anew next time.
    void abandon() {
        for (const auto& thread : threads) {
            thread->started = thread->finished && thread->started;
            thread->finished = true;
        }
    }

    void (*call)(const void*) = nullptr;
    const void* callable = nullptr;
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<Warp> warps;
    std::jmp_buf scheduler;
    unsigned running = 0, total = 0, unfinished = 0, waiting = 0;
};

}  // namespace tapline_host
