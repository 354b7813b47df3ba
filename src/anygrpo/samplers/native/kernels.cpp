// What library.py compiles for the processor it runs on, and calls.py calls. Sums are float32 whatever the type of the
// tensors. No dependency but OpenMP: inside a process that has loaded torch it is torch's own pool of threads.
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

// exp to 2 units in the last place: x = n ln 2 + r, a polynomial in r (Taylor's, to r^7), n into the exponent, where it is cut
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

// out[r][0..WIDE) = sum_i w[r * row + i * step] * x[i][0..WIDE) for R rows; what lies `ahead` of w is fetched meanwhile.
template <int R> static inline void strip(const float* w, long row, long step, const float* x, long n, float* out, long ahead) {
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
template <class T> static void norm(const T* x, const T* w, T* out, float* scale, float eps, long n, long d, int threads) {
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
static void norm_grad(const T* g, const T* x, const T* w, const float* scale, T* dx, float* dw, long n, long d, int threads) {
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
static void gate_grad_some(T* __restrict g, const T* __restrict a, const T* __restrict b, T* __restrict out, T* __restrict db, long n) {
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
static void rotate(const T* x, long head, long token, const T* cos, const T* sin, T* out, long h, long n, long d, long back, int threads) {
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

// Largest entry, and sum of exp(z - it), of each span of z [n, count * size].
extern "C" void spans(const float* z, float* peak, float* mass, long n, long count, long size, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n * count; i++) {
        const float* at = z + i * size;
        float top = -__builtin_inff(), sum = 0;
#pragma omp simd reduction(max : top)
        for (long j = 0; j < size; j++) top = at[j] > top ? at[j] : top;  // NaN is seen in the sum
        float base = top == -__builtin_inff() ? 0.f : top;
#pragma omp simd reduction(+ : sum)
        for (long j = 0; j < size; j++) sum += at[j] == -__builtin_inff() ? 0.f : exponential(at[j] - base);
        peak[i] = top, mass[i] = sum;
    }
}

// Logits z [n, v] become exp(factor z - its largest); lp, total, entropy [n] as in kept.py.
template <class T>
static void normalise(T* z, const int64_t* targets, float* lp, float* total, float* entropy, float factor, long n, long v, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; i++) {
        T* row = z + i * v;
        float top = -__builtin_inff(), sum = 0, along = 0;
#pragma omp simd reduction(max : top)
        for (long j = 0; j < v; j++) top = wide(row[j]) > top ? wide(row[j]) : top;
        float chosen = (wide(row[targets[i]]) - top) * factor;
#pragma omp simd reduction(+ : sum, along)
        for (long j = 0; j < v; j++) {
            float x = (wide(row[j]) - top) * factor;
            float y = x < -1e4f ? -1e4f : x;  // a logit of -inf has no mass and adds nothing, but 0 x -inf is no number
            float p = exponential(y);
            sum += p;
            along += p * y;
            put(row[j], p);
        }
        float norm = __builtin_logf(sum);
        lp[i] = chosen - norm, total[i] = sum, entropy[i] = norm - along / sum;
    }
}

// out = -chain g p / total, the gradient of logits but for the target's own.
template <class T>
static void grad_logits(const T* p, const float* total, const float* g, T* out, float chain, long n, long v, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < n; i++) {
        float factor = -chain * g[i] / total[i];
#pragma omp simd
        for (long j = 0; j < v; j++) put(out[i * v + j], wide(p[i * v + j]) * factor);
    }
}

struct Decode {  // of one step: P prompts, KV heads of keys with M queries each, D numbers a head
    const int *lengths, *first, *count;                 // [P] tokens, first row, rows
    long prompts, keys, queries, size, longest, width;  // longest prompt; places of a row
    long place;                                         // where this token is written
    float scale;
};

// The rows r0 to r1 of one prompt at one head of keys: widened keys and values of the prompt [length, D] are given.
template <class T>
static void attend_rows(const T* q, const float* pk, const float* pv, const T* ok, const T* ov, T* out, const Decode& a, long kv, long length,
                        long r0, long r1, float* room) {
    long d = a.size, m = a.queries, heads = a.keys * m, own = a.place + 1, lanes = (r1 - r0) * m;
    float *score = room, *turned = score + (length + own) * WIDE, *made = turned + d * WIDE, *query = made + d * WIDE, *key = query + d * WIDE;
    float top[WIDE], total[WIDE];
    for (long i = 0; i < d * WIDE; i++) turned[i] = 0;
    for (long l = 0; l < lanes; l++) {
        const T* from = q + ((r0 + l / m) * heads + kv * m + l % m) * d;
        for (long i = 0; i < d; i++) turned[i * WIDE + l] = query[l * d + i] = wide(from[i]) * a.scale;
    }
    strips(pk, d, 1, turned, d, score, length);
    for (long r = r0; r < r1; r++)
        for (long t = 0; t < own; t++) {
            const T* from = ok + ((r * a.keys + kv) * a.width + t) * d;
            for (long i = 0; i < d; i++) key[i] = wide(from[i]);
            for (long l = (r - r0) * m; l < (r - r0 + 1) * m; l++) {
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (long i = 0; i < d; i++) sum += query[l * d + i] * key[i];
                score[(length + t) * WIDE + l] = sum;
            }
        }
    for (long l = 0; l < WIDE; l++) top[l] = -3e38f, total[l] = 0;
    for (long j = 0; j < length + own; j++)
        for (long l = 0; l < WIDE; l++) top[l] = score[j * WIDE + l] > top[l] ? score[j * WIDE + l] : top[l];
    for (long j = 0; j < length + own; j++)
        for (long l = 0; l < WIDE; l++) total[l] += score[j * WIDE + l] = exponential(score[j * WIDE + l] - top[l]);
    strips(pv, 1, d, score, length, made, d);
    for (long l = 0; l < lanes; l++)
        for (long i = 0; i < d; i++) query[l * d + i] = made[i * WIDE + l];
    for (long r = r0; r < r1; r++)
        for (long t = 0; t < own; t++) {
            const T* from = ov + ((r * a.keys + kv) * a.width + t) * d;
            for (long i = 0; i < d; i++) key[i] = wide(from[i]);
            for (long l = (r - r0) * m; l < (r - r0 + 1) * m; l++)
                for (long i = 0; i < d; i++) query[l * d + i] += score[(length + t) * WIDE + l] * key[i];
        }
    for (long l = 0; l < lanes; l++) {
        T* to = out + ((r0 + l / m) * heads + kv * m + l % m) * d;
        for (long i = 0; i < d; i++) put(to[i], query[l * d + i] / total[l]);
    }
}

// Attention of one token a row over its prompt (keys and values [P, KV, longest, D]) and its own past ([R, KV, width, D],
// written at `place`). q [R, H, D] and k, v [R, KV, D]; out [R, H, D]. At most WIDE queries a head of keys.
template <class T>
static void attend(const T* q, const T* k, const T* v, const T* pk, const T* pv, T* ok, T* ov, T* out, const Decode& a, int threads) {
    long d = a.size, together = WIDE / a.queries;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (long task = 0; task < a.prompts * a.keys; task++) {
        long p = task / a.keys, kv = task % a.keys, length = a.lengths[p], r0 = a.first[p], end = r0 + a.count[p];
        float *pkf = scratch(2 * length * d + (length + a.place + 1) * WIDE + 3 * d * WIDE + d), *pvf = pkf + length * d;
        for (long i = 0; i < length * d; i++) pkf[i] = wide(pk[task * a.longest * d + i]);
        for (long i = 0; i < length * d; i++) pvf[i] = wide(pv[task * a.longest * d + i]);
        for (long r = r0; r < end; r++)
            for (long i = 0; i < d; i++) {
                ok[((r * a.keys + kv) * a.width + a.place) * d + i] = k[(r * a.keys + kv) * d + i];
                ov[((r * a.keys + kv) * a.width + a.place) * d + i] = v[(r * a.keys + kv) * d + i];
            }
        for (long r = r0; r < end; r += together)
            attend_rows(q, pkf, pvf, ok, ov, out, a, kv, length, r, end - r < together ? end : r + together, pvf + length * d);
    }
}

#define EXPORT(T, NAME)                                                                                                        \
    extern "C" void normalise_##NAME(T* z, const int64_t* y, float* l, float* s, float* h, float f, long n, long v, int t) {   \
        normalise(z, y, l, s, h, f, n, v, t);                                                                                  \
    }                                                                                                                          \
    extern "C" void grad_logits_##NAME(const T* p, const float* s, const float* g, T* o, float c, long n, long v, int t) {     \
        grad_logits(p, s, g, o, c, n, v, t);                                                                                   \
    }                                                                                                                          \
    extern "C" void norm_##NAME(const T* x, const T* w, T* o, float* s, float eps, long n, long d, int t) {                    \
        norm(x, w, o, s, eps, n, d, t);                                                                                        \
    }                                                                                                                          \
    extern "C" void norm_grad_##NAME(const T* g, const T* x, const T* w, const float* s, T* dx, float* dw, long n, long d, int t) { \
        norm_grad(g, x, w, s, dx, dw, n, d, t);                                                                                \
    }                                                                                                                          \
    extern "C" void gate_##NAME(const T* a, const T* b, T* o, long n, int t) { gate(a, b, o, n, t); }                          \
    extern "C" void gate_grad_##NAME(T* g, const T* a, const T* b, T* o, T* db, long n, int t) {                  \
        gate_grad(g, a, b, o, db, n, t);                                                                                   \
    }                                                                                                                          \
    extern "C" void rotate_##NAME(const T* x, long hs, long ts, const T* c, const T* s, T* o, long h, long n, long d, long b, int t) { \
        rotate(x, hs, ts, c, s, o, h, n, d, b, t);                                                                             \
    }                                                                                                                          \
    extern "C" void attend_##NAME(const T* q, const T* k, const T* v, const T* pk, const T* pv, T* ok, T* ov, T* o, const Decode* a, int t) { \
        attend(q, k, v, pk, pv, ok, ov, o, *a, t);                                                                             \
    }

EXPORT(float, float32)
EXPORT(bf16, bfloat16)
