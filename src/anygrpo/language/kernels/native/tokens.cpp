// Of a token: attention of a decode step, drawing, log-probs.
#include "common.h"

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
static void normalise(T* z, const int64_t* targets, float* lp, float* total, float* entropy, float factor, long n,
        long v, int threads) {
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
static void grad_logits(const T* p, const float* total, const float* g, T* out, float chain, long n, long v,
        int threads) {
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

// score [n, WIDE] becomes exp(score - the column's largest); their sums.
static void exponentials(float* score, long n, float* total) {
    float top[WIDE];
    for (long l = 0; l < WIDE; l++) top[l] = -3e38f, total[l] = 0;
    for (long j = 0; j < n; j++)
        for (long l = 0; l < WIDE; l++) top[l] = score[j * WIDE + l] > top[l] ? score[j * WIDE + l] : top[l];
    for (long j = 0; j < n; j++)
        for (long l = 0; l < WIDE; l++) total[l] += score[j * WIDE + l] = exponential(score[j * WIDE + l] - top[l]);
}

// The rows r0 to r1 of one prompt at one head of keys: widened keys and values of the prompt [length, D] are given.
template <class T>
static void attend_rows(const T* q, const float* pk, const float* pv, const T* ok, const T* ov, T* out,
        const Decode& a, long kv, long length, long r0, long r1, float* room) {
    long d = a.size, m = a.queries, heads = a.keys * m, own = a.place + 1, lanes = (r1 - r0) * m;
    float *score = room, *turned = score + (length + own) * WIDE, *made = turned + d * WIDE, *query = made + d * WIDE,
        *key = query + d * WIDE;
    float total[WIDE];
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
    exponentials(score, length + own, total);
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

// Attention of one token a row over its prompt (keys and values [P, KV, longest, D]) and its own past ([R, KV, width,
// D],
// written at `place`). q [R, H, D] and k, v [R, KV, D]; out [R, H, D]. At most WIDE queries a head of keys.
template <class T>
static void attend(const T* q, const T* k, const T* v, const T* pk, const T* pv, T* ok, T* ov, T* out,
        const Decode& a, int threads) {
    long d = a.size, together = WIDE / a.queries;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (long task = 0; task < a.prompts * a.keys; task++) {
        long p = task / a.keys, kv = task % a.keys, length = a.lengths[p], r0 = a.first[p], end = r0 + a.count[p];
        float *pkf = scratch(2 * length * d + (length + a.place + 1) * WIDE + 3 * d * WIDE + d),
            *pvf = pkf + length * d;
        for (long i = 0; i < length * d; i++) pkf[i] = wide(pk[task * a.longest * d + i]);
        for (long i = 0; i < length * d; i++) pvf[i] = wide(pv[task * a.longest * d + i]);
        for (long r = r0; r < end; r++)
            for (long i = 0; i < d; i++) {
                ok[((r * a.keys + kv) * a.width + a.place) * d + i] = k[(r * a.keys + kv) * d + i];
                ov[((r * a.keys + kv) * a.width + a.place) * d + i] = v[(r * a.keys + kv) * d + i];
            }
        for (long r = r0; r < end; r += together)
            attend_rows(q, pkf, pvf, ok, ov, out, a, kv, length, r, end - r < together ? end : r + together,
                pvf + length * d);
    }
}

#define EXPORT(T, NAME)                                                                                       \
    extern "C" void normalise_##NAME(T* z, const int64_t* y, float* l, float* s, float* h, float f, long n,   \
            long v, int t) {                                                                                  \
        normalise(z, y, l, s, h, f, n, v, t);                                                                 \
    }                                                                                                         \
    extern "C" void grad_logits_##NAME(const T* p, const float* s, const float* g, T* o, float c, long n,     \
            long v, int t) {                                                                                  \
        grad_logits(p, s, g, o, c, n, v, t);                                                                  \
    }                                                                                                         \
    extern "C" void attend_##NAME(const T* q, const T* k, const T* v, const T* pk, const T* pv, T* ok, T* ov, \
            T* o, const Decode* a, int t) {                                                                   \
        attend(q, k, v, pk, pv, ok, ov, o, *a, t);                                                            \
    }

EXPORT(float, float32)
EXPORT(bf16, bfloat16)
