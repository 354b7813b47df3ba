// What the kernels share. library.py compiles them for the processor it runs on, calls.py calls them. Sums are float32
// whatever
// the type of the tensors. No dependency but OpenMP: inside a process that has loaded torch it is torch's own pool of
// threads.
#pragma once
#include <cstdint>
#include <cstdlib>

#if defined(__AVX512F__)
enum { LANES = 16, STRIP = 8 };  // a strip's sums and a row of factors fill the registers
#else
enum { LANES = 8, STRIP = 3 };
#endif
enum { WIDE = 32, PARTS = WIDE / LANES, BLOCK = 1024 };
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

struct bf16 {
    uint16_t bits;
};

static inline float wide(float x) { return x; }
static inline float wide(bf16 x) { return __builtin_bit_cast(float, (uint32_t)x.bits << 16); }
static inline void put(float& out, float x) { out = x; }
static inline void put(bf16& out, float x) {  // to nearest even; NaN stays NaN
    uint32_t u = __builtin_bit_cast(uint32_t, x);
    out.bits = x != x ? 0x7fc0 : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
template <class T> static inline float rounded(float x) {
    T y;
    put(y, x);
    return wide(y);
}

// exp to 2 units in the last place: x = n ln 2 + r, a polynomial in r (Taylor's, to r^7), n into the exponent, where
// it is cut
// off: a cut of x would be computed apart by compilers, with the slow tiny numbers that it leads to. -inf gives NaN.
static inline float exponential(float x) {
    float n = x * 1.44269504f;
    n = (n + 12582912.f) - 12582912.f;  // to the nearest whole number
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.f / 5040;
    p = p * r + 1.f / 720;
    p = p * r + 1.f / 120;
    p = p * r + 1.f / 24;
    p = p * r + 1.f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.f;
    p = p * r + 1.f;
    int32_t exponent = (int32_t)n + 127;
    exponent = exponent > 0 ? exponent : 0;
    exponent = exponent < 254 ? exponent : 254;
    return p * __builtin_bit_cast(float, exponent << 23);
}

static inline float sigmoid(float x) { return 1.f / (1.f + exponential(-x)); }

static float* scratch(long size) {  // of this thread, kept from call to call
    static thread_local float* held = nullptr;
    static thread_local long room = 0;
    if (size > room) {
        free(held);
        held = (float*)malloc(size * sizeof(float));
        room = size;
    }
    return held;
}

// out[r][0..WIDE) = sum_i w[r * row + i * step] * x[i][0..WIDE) for R rows; what lies `ahead` of w is fetched
// meanwhile.
template <int R> static inline void strip(const float* w, long row, long step, const float* x, long n, float* out,
        long ahead) {
    vec sum[R][PARTS] = {};
    for (long i = 0; i < n; i++) {
        if (ahead && i % 16 == 0)
            for (int r = 0; r < R; r++) __builtin_prefetch(w + ahead + r * row + i, 0, 2);
        vec factor[PARTS];
        for (int p = 0; p < PARTS; p++) factor[p] = *(const vec*)(x + i * WIDE + p * LANES);
        for (int r = 0; r < R; r++) {
            float b = w[r * row + i * step];
            for (int p = 0; p < PARTS; p++) sum[r][p] += b * factor[p];
        }
    }
    for (int r = 0; r < R; r++)
        for (int p = 0; p < PARTS; p++) *(vec*)(out + r * WIDE + p * LANES) = sum[r][p];
}

static void strips(const float* w, long row, long step, const float* x, long n, float* out, long rows) {
    long r = 0;
    for (; r + STRIP <= rows; r += STRIP) strip<STRIP>(w + r * row, row, step, x, n, out + r * WIDE, 0);
    for (; r < rows; r++) strip<1>(w + r * row, row, step, x, n, out + r * WIDE, 0);
}
