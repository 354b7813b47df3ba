// Of a layer: products of few rows, norms, gates, rotary embedding.
#include "common.h"

// out [m, n] = x [m, k] times w [n, k] transposed, for few rows x: w is read once, as it lies, at the speed of memory.
extern "C" void thin(const float* x, const float* w, float* out, long m, long k, long n, int threads) {
    long chunks = (m + WIDE - 1) / WIDE;
    float* turned = scratch(chunks * k * WIDE);
    for (long c = 0; c < chunks; c++)
        for (long i = 0; i < k; i++)
            for (long l = 0; l < WIDE; l++)
                turned[(c * k + i) * WIDE + l] = c * WIDE + l < m ? x[(c * WIDE + l) * k + i] : 0.f;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long b = 0; b < n; b += STRIP) {
        long rows = n - b < STRIP ? n - b : STRIP, ahead = b + 2 * STRIP <= n ? STRIP * k : 0;
        float tile[STRIP * WIDE];
        for (long c = 0; c < chunks; c++) {
            const float* factors = turned + c * k * WIDE;
            if (rows == STRIP) strip<STRIP>(w + b * k, k, 1, factors, k, tile, c ? 0 : ahead);
            else strips(w + b * k, k, 1, factors, k, tile, rows);
            for (long l = 0; l < WIDE && c * WIDE + l < m; l++)
                for (long r = 0; r < rows; r++) out[(c * WIDE + l) * n + b + r] = tile[r * WIDE + l];
        }
    }
}

// out = round(x / rms(x)) * w, and scale [n] = 1 / rms.
template <class T> static void norm(const T* x, const T* w, T* out, float* scale, float eps, long n, long d,
        int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; i++) {
        const T* row = x + i * d;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < d; j++) sum += wide(row[j]) * wide(row[j]);
        float s = 1.f / __builtin_sqrtf(sum / d + eps);
        scale[i] = s;
#pragma omp simd
        for (long j = 0; j < d; j++) put(out[i * d + j], rounded<T>(wide(row[j]) * s) * wide(w[j]));
    }
}

// From g, the gradient of `norm`'s result: dx, and dw's parts [threads, d].
template <class T>
static void norm_grad(const T* g, const T* x, const T* w, const float* scale, T* dx, float* dw, long n, long d,
        int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        float* part = dw + t * d;
        for (long j = 0; j < d; j++) part[j] = 0;
        for (long i = n * t / threads; i < n * (t + 1) / threads; i++) {
            const T *gi = g + i * d, *xi = x + i * d;
            float s = scale[i], along = 0;
#pragma omp simd reduction(+ : along)
            for (long j = 0; j < d; j++) {
                float unit = wide(xi[j]) * s;
                along += wide(gi[j]) * wide(w[j]) * unit;
                part[j] += wide(gi[j]) * rounded<T>(unit);
            }
            along /= d;
#pragma omp simd
            for (long j = 0; j < d; j++) put(dx[i * d + j], (wide(gi[j]) * wide(w[j]) - wide(xi[j]) * s * along) * s);
        }
    }
}

// out = silu(a) * b, of n numbers; with g, the gradient of that: the gradient of b as well, and of a in place of g.
template <class T> static void gate_some(const T* __restrict a, const T* __restrict b, T* __restrict out, long n) {
    for (long i = 0; i < n; i++) put(out[i], wide(a[i]) * sigmoid(wide(a[i])) * wide(b[i]));
}
template <class T>
static void gate_grad_some(T* __restrict g, const T* __restrict a, const T* __restrict b, T* __restrict out,
        T* __restrict db, long n) {
    for (long i = 0; i < n; i++) {
        float x = wide(a[i]), y = wide(b[i]), gi = wide(g[i]), s = sigmoid(x);
        put(out[i], x * s * y);
        put(g[i], gi * y * s * (1.f + x * (1.f - s)));
        put(db[i], gi * x * s);
    }
}

template <class T> static void gate(const T* a, const T* b, T* out, long n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; i += BLOCK) gate_some(a + i, b + i, out + i, n - i < BLOCK ? n - i : BLOCK);
}
template <class T> static void gate_grad(T* g, const T* a, const T* b, T* out, T* db, long n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; i += BLOCK)
        gate_grad_some(g + i, a + i, b + i, out + i, db + i, n - i < BLOCK ? n - i : BLOCK);
}

// out [n, h, d] from x [h, n, d] (strides given), its halves turned by cos, sin [n, d]; or back, which is the gradient.
template <class T>
static void rotate(const T* x, long head, long token, const T* cos, const T* sin, T* out, long h, long n, long d,
        long back, int threads) {
    long m = d / 2;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; i++)
        for (long k = 0; k < h; k++) {
            const T *a = x + k * head + i * token, *c = cos + i * d, *s = sin + i * d;
            T* o = out + (i * h + k) * d;
#pragma omp simd
            for (long j = 0; j < m; j++) {
                float low = wide(a[j]), high = wide(a[j + m]);
                float first = back ? wide(s[j + m]) : -wide(s[j]), second = back ? -wide(s[j]) : wide(s[j + m]);
                put(o[j], low * wide(c[j]) + high * first);
                put(o[j + m], high * wide(c[j + m]) + low * second);
            }
        }
}

#define EXPORT(T, NAME)                                                                                       \
    extern "C" void norm_##NAME(const T* x, const T* w, T* o, float* s, float eps, long n, long d, int t) {   \
        norm(x, w, o, s, eps, n, d, t);                                                                       \
    }                                                                                                         \
    extern "C" void norm_grad_##NAME(const T* g, const T* x, const T* w, const float* s, T* dx, float* dw,    \
            long n, long d, int t) {                                                                          \
        norm_grad(g, x, w, s, dx, dw, n, d, t);                                                               \
    }                                                                                                         \
    extern "C" void gate_##NAME(const T* a, const T* b, T* o, long n, int t) { gate(a, b, o, n, t); }         \
    extern "C" void gate_grad_##NAME(T* g, const T* a, const T* b, T* o, T* db, long n, int t) {              \
        gate_grad(g, a, b, o, db, n, t);                                                                      \
    }                                                                                                         \
    extern "C" void rotate_##NAME(const T* x, long hs, long ts, const T* c, const T* s, T* o, long h, long n, \
            long d, long b, int t) {                                                                          \
        rotate(x, hs, ts, c, s, o, h, n, d, b, t);                                                            \
    }

EXPORT(float, float32)
EXPORT(bf16, bfloat16)
