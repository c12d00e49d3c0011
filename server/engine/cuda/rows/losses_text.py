"""CUDA text of the losses over classes: rows of logits, images of them, sums over samples, and log-likelihoods."""

from __future__ import annotations

LOSSES = r"""
// What a loss knows of its targets: their classes, weights of classes, and how much is spread over all classes.
template <class T, class I> struct Targets {
    typedef compute_t<T> A;
    const I* target;
    const T* weight;
    i64 classes, ignored;
    fault_record* record;
    u64 tag;

    // The class of a sample; -1 where it does not count
    __device__ __forceinline__ i64 of(i64 sample) const {
        i64 found = (i64)target[sample];
        if (found == ignored) return -1;
        if ((u64)found < (u64)classes) return found;
        report(record, tag, found, 0);
        return -1;
    }
    __device__ __forceinline__ A weigh(i64 of_class) const {
        return weight ? (A)widen(weight[of_class]) : (A)1;
    }
};

// Adds up what blocks of threads hold; for thread 0.
template <class A> __device__ __forceinline__ A over_block(A value, A* scratch) {
    value = over_row<Sum, 32>(value, scratch);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    if (threadIdx.x == 0) for (int warp = 0; warp < (blockDim.x + 31) / 32; ++warp) value += scratch[warp];
    __syncthreads();
    return value;
}
// The sums of all losses and of all weights, of this block
template <class A> __device__ __forceinline__ void leave_partial(A loss, A weight, A* partial) {
    __shared__ A scratch[32];
    loss = over_block(loss, scratch);
    weight = over_block(weight, scratch);
    if (threadIdx.x == 0) { partial[blockIdx.x] = loss; partial[gridDim.x + blockIdx.x] = weight; }
}

// N threads go over the logits of one sample; samples lie one after another.
template <class T, class I, int N, int VEC, bool SMOOTH>
__device__ __forceinline__ void cross_entropy_rows(
    T* loss, compute_t<T>* log_sum, compute_t<T>* partial, const T* in, Targets<T, I> targets, i64 samples,
    compute_t<T> smoothing
) {
    typedef compute_t<T> A;
    __shared__ A scratch[4][32];
    int lane = threadIdx.x % N, rows = blockDim.x / N;
    A losses = 0, weights = 0;
    for (i64 first = (i64)blockIdx.x * rows; first < samples; first += (i64)gridDim.x * rows) {
        i64 sample = first + threadIdx.x / N;
        bool there = sample < samples;
        const T* row = in + sample * targets.classes;
        i64 length = there ? targets.classes : 0, found = -1;
        A picked = 0, own = 0;
        if (there && lane == 0) {
            found = targets.of(sample);
            if (found >= 0) { picked = widen(row[found]); own = targets.weigh(found); }
        }
        Online<T, A> seen;
        A shift = 0, spread = 0, share = 0;
        if (SMOOTH && length) { shift = widen(row[0]); if (!(fabs(shift) < INFINITE)) shift = 0; }
        auto one = [&](i64 k) {
            A x = widen(row[k]);
            seen.take(x);
            if (SMOOTH) { A w = targets.weigh(k); share += w; spread += w * (x - shift); }
        };
        stream<VEC>(row, length, lane, N, one, [&](i64 k) {
            vec<T, VEC> v = read<VEC>(row + k);
            A top = widen(v.at[0]);
            #pragma unroll
            for (int j = 1; j < VEC; ++j) top = Max::of(top, (A)widen(v.at[j]));
            seen.raise(top);
            #pragma unroll
            for (int j = 0; j < VEC; ++j) {
                A x = widen(v.at[j]);
                seen.add(x);
                if (SMOOTH) { A w = targets.weigh(k + j); share += w; spread += w * (x - shift); }
            }
        });
        A top = over_row<Max, N>(seen.top, scratch[0]);
        seen.merge(top);
        A sum = over_row<Sum, N>(seen.sum, scratch[1]);
        if (SMOOTH) { spread = over_row<Sum, N>(spread, scratch[2]); share = over_row<Sum, N>(share, scratch[3]); }
        if (!there || lane) continue;
        A log_of_sum = row_log(sum), lse = top + log_of_sum;
        A result = found < 0 ? (A)0 : own * (log_of_sum + (top - picked));  // lse has lost digits where top is large
        if (SMOOTH && found >= 0)
            result = (1 - smoothing) * result
                + smoothing / targets.classes * (share * (log_of_sum + (top - shift)) - spread);
        log_sum[sample] = lse;
        if (loss) loss[sample] = cast<T>(result);
        losses += result;
        weights += own;
    }
    if (!loss) leave_partial(losses, weights, partial);
}

// One thread per pixel of an image whose channels are the classes.
template <class T, class I, bool SMOOTH>
__device__ __forceinline__ void cross_entropy_pixels(
    T* loss, compute_t<T>* log_sum, compute_t<T>* partial, const T* in, Targets<T, I> targets, i64 samples,
    i64 inner, compute_t<T> smoothing
) {
    typedef compute_t<T> A;
    A losses = 0, weights = 0;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 sample = (i64)blockIdx.x * blockDim.x + threadIdx.x; sample < samples; sample += step) {
        const T* pixel = in + sample / inner * inner * targets.classes + sample % inner;
        i64 found = targets.of(sample);
        Online<T, A> seen;
        A shift = targets.classes ? (A)widen(pixel[0]) : (A)0, spread = 0, share = 0;
        if (!(fabs(shift) < INFINITE)) shift = 0;
        #pragma unroll 4
        for (i64 k = 0; k < targets.classes; ++k) {
            A x = widen(pixel[k * inner]);
            seen.take(x);
            if (SMOOTH) { A w = targets.weigh(k); share += w; spread += w * (x - shift); }
        }
        A log_of_sum = row_log(seen.sum), lse = seen.top + log_of_sum, own = 0, result = 0;
        if (found >= 0) {
            own = targets.weigh(found);
            result = own * (log_of_sum + (seen.top - (A)widen(pixel[found * inner])));
        }
        if (SMOOTH && found >= 0)
            result = (1 - smoothing) * result
                + smoothing / targets.classes * (share * (log_of_sum + (seen.top - shift)) - spread);
        log_sum[sample] = lse;
        if (loss) loss[sample] = cast<T>(result);
        losses += result;
        weights += own;
    }
    if (!loss) leave_partial(losses, weights, partial);
}

// One block adds up what the others have left.
template <class T, class W, class A, bool MEAN>
__device__ __forceinline__ void finish_loss(T* loss, W* total, const A* partial, i64 count) {
    __shared__ A scratch[32];
    A losses = 0, weights = 0;
    for (i64 k = threadIdx.x; k < count; k += blockDim.x) { losses += partial[k]; weights += partial[count + k]; }
    losses = over_block(losses, scratch);
    weights = over_block(weights, scratch);
    if (threadIdx.x == 0) {
        *loss = cast<T>(MEAN ? losses / weights : losses);
        *total = cast<W>(weights);
    }
}

// What a sample's gradient is made of: softmax times ``spread``, less ``share`` per class, less ``own`` for its own one
template <class A> struct Pull { i64 found; A grad, spread, share, own; };
template <class T, class I, class G, bool SMOOTH, class A = compute_t<T>>
__device__ __forceinline__ Pull<A> pull_of(
    const Targets<T, I>& targets, i64 sample, const G* grad, bool each, const A* total, A smoothing, A all_weights
) {
    Pull<A> pull = {targets.of(sample), 0, 0, 0, 0};
    if (pull.found < 0) return pull;
    pull.grad = (A)widen(grad[each ? sample : 0]) / *total;
    pull.own = targets.weigh(pull.found);
    if (SMOOTH) { pull.own *= 1 - smoothing; pull.share = smoothing / targets.classes; }
    pull.spread = pull.own + (SMOOTH ? pull.share * all_weights : (A)0);
    return pull;
}
template <class T, bool SMOOTH, class X, class A = compute_t<T>>
__device__ __forceinline__ T pulled(const Pull<A>& pull, X targets, A x, i64 k, A lse) {
    if (pull.found < 0) return cast<T>((A)0);
    A found = row_exp<T>(x - lse) * pull.spread;
    if (SMOOTH) found -= pull.share * targets.weigh(k);
    if (k == pull.found) found -= pull.own;
    return cast<T>(found * pull.grad);
}
// The sum of the weights of all classes, for every thread of a block
template <class T, class I, class A = compute_t<T>>
__device__ __forceinline__ A weights_of_all(const Targets<T, I>& targets) {
    if (!targets.weight) return (A)targets.classes;
    __shared__ A scratch[32], found;
    A sum = 0;
    for (i64 k = threadIdx.x; k < targets.classes; k += blockDim.x) sum += targets.weigh(k);
    sum = over_block(sum, scratch);
    if (threadIdx.x == 0) found = sum;
    __syncthreads();
    return found;
}

template <class T, class I, class G, int N, int VEC, bool SMOOTH>
__device__ __forceinline__ void cross_entropy_backward_rows(
    T* out, const G* grad, const T* in, Targets<T, I> targets, const compute_t<T>* log_sum,
    const compute_t<T>* total, i64 samples, bool each, compute_t<T> smoothing
) {
    typedef compute_t<T> A;
    A all = SMOOTH ? weights_of_all(targets) : (A)0;
    i64 sample = (i64)blockIdx.x * (blockDim.x / N) + threadIdx.x / N, length = targets.classes;
    if (sample >= samples) return;
    in += sample * length; out += sample * length;
    Pull<A> pull = pull_of<T, I, G, SMOOTH>(targets, sample, grad, each, total, smoothing, all);
    A lse = log_sum[sample];
    bool alike = (u64)in % (VEC * sizeof(T)) == (u64)out % (VEC * sizeof(T));
    auto one = [&](i64 k) { out[k] = pulled<T, SMOOTH>(pull, targets, (A)widen(in[k]), k, lse); };
    if (alike) stream<VEC>(in, length, threadIdx.x % N, N, one, [&](i64 k) {
        vec<T, VEC> v = read<VEC>(in + k);
        vec<T, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j) result.at[j] = pulled<T, SMOOTH>(pull, targets, (A)widen(v.at[j]), k + j, lse);
        write<VEC>(out + k, result);
    });
    else for (i64 k = threadIdx.x % N; k < length; k += N) one(k);
}

template <class T, class I, class G, bool SMOOTH>
__device__ __forceinline__ void cross_entropy_backward_pixels(
    T* out, const G* grad, const T* in, Targets<T, I> targets, const compute_t<T>* log_sum,
    const compute_t<T>* total, i64 samples, i64 inner, bool each, compute_t<T> smoothing
) {
    typedef compute_t<T> A;
    A all = SMOOTH ? weights_of_all(targets) : (A)0;
    i64 sample = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (sample >= samples) return;
    i64 start = sample / inner * inner * targets.classes + sample % inner;
    Pull<A> pull = pull_of<T, I, G, SMOOTH>(targets, sample, grad, each, total, smoothing, all);
    A lse = log_sum[sample];
    #pragma unroll 4
    for (i64 k = 0; k < targets.classes; ++k)
        out[start + k * inner] = pulled<T, SMOOTH>(pull, targets, (A)widen(in[start + k * inner]), k, lse);
}

// The likelihoods of targets under given logarithms
template <class T, class I>
__device__ __forceinline__ void nll(
    T* loss, compute_t<T>* partial, const T* in, Targets<T, I> targets, i64 samples, i64 inner
) {
    typedef compute_t<T> A;
    A losses = 0, weights = 0;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 sample = (i64)blockIdx.x * blockDim.x + threadIdx.x; sample < samples; sample += step) {
        i64 found = targets.of(sample);
        A own = 0, result = 0;
        if (found >= 0) {
            own = targets.weigh(found);
            result = -(A)widen(in[sample / inner * inner * targets.classes + found * inner + sample % inner]) * own;
        }
        if (loss) loss[sample] = cast<T>(result);
        losses += result;
        weights += own;
    }
    leave_partial(losses, weights, partial);
}

// Zeros but for the targets' classes; ``width`` elements per thread, which lie in one row or image plane
template <class T, class I, int VEC, bool PLANES>
__device__ __forceinline__ void nll_backward(
    T* out, const T* grad, Targets<T, I> targets, const T* total, i64 count, i64 inner, bool each, bool mean
) {
    typedef compute_t<T> A;
    i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * VEC;
    if (at >= count) return;
    A divisor = mean ? (A)widen(*total) : (A)1;
    vec<T, VEC> result;
    i64 plane = PLANES ? at / inner : at;
    i64 outer = plane / targets.classes, of_class = plane % targets.classes, within = PLANES ? at % inner : 0;
    #pragma unroll
    for (int j = 0; j < VEC; ++j) {
        i64 sample = outer * inner + within + (PLANES ? j : 0), wanted = of_class + (PLANES ? 0 : j);
        i64 found = targets.of(sample);
        A value = 0;
        if (found == wanted) value = -(A)widen(grad[each ? sample : 0]) * targets.weigh(found) / divisor;
        result.at[j] = cast<T>(value);
    }
    write<VEC>(out + at, result);
}
"""
