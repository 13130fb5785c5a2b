// Preloaded by tests.allocations: has one allocation of the thread that asks for it fail.
#include <dlfcn.h>

#include <cstdlib>
#include <new>

static thread_local long left = -1;  // allocations before the one that fails; -1: none does

static bool fails() { return left >= 0 && left-- == 0; }

extern "C" void fail_after(long count) { left = count; }
extern "C" long allocations_left() { return left; }
extern "C" void* realloc(void* memory, std::size_t size) {
    static auto* real = reinterpret_cast<void* (*)(void*, std::size_t)>(dlsym(RTLD_NEXT, "realloc"));
    return fails() ? nullptr : real(memory, size);
}

void* operator new(std::size_t size) {
    void* found = fails() ? nullptr : std::malloc(size ? size : 1);
    if (!found) throw std::bad_alloc();
    return found;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
