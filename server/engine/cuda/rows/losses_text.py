"""The CUDA text of cross-entropy and negative log-likelihood: rows and images of logits, and sums over samples."""

from __future__ import annotations

LOSSES = r"""
// The targets of a loss: their classes, the weights of the classes, the ignored class, and where faults are reported.
template <class T, class I> struct Targets {
    typedef compute_t<T> A;
    const I* target;
    const T* weight;
    i64 classes, ignored;
    fault_record* record;
    u64 tag;

    // The class of a sample; -1 if it is ignored or out of range
    __device__ __forceinline__ i64 of(i64 sample) const {
        i64 label = (i64)target[sample];
        if (label == ignored) return -1;
        if ((u64)label < (u64)classes) return label;
        report(record, tag, label, 0);
        return -1;
    }
    __device__ __forceinline__ A weight_of(i64 of_class) const {
        return weight ? (A)widen(weight[of_class]) : (A)1;
    }
};

// The sum of a value over the threads of a block; thread 0 gets it.
template <class A> __device__ __forceinline__ A block_reduce(A value, A* scratch) {
    value = row_reduce<Sum, 32>(value, scratch);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    if (threadIdx.x == 0) for (int warp = 0; warp < (blockDim.x + 31) / 32; ++warp) value += scratch[warp];
    __syncthreads();
    return value;
}
// Store the sums of this block's losses and weights
template <class A> __device__ __forceinline__ void store_partial(A loss, A weight, A* partial) {
    __shared__ A scratch[32];
    loss = block_reduce(loss, scratch);
    weight = block_reduce(weight, scratch);
    if (threadIdx.x == 0) { partial[blockIdx.x] = loss; partial[gridDim.x + blockIdx.x] = weight; }
}

// N threads read the logits of one sample, which are contiguous.
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
        bool is_valid = sample < samples;
        const T* row = in + sample * targets.classes;
        i64 length = is_valid ? targets.classes : 0, label = -1;
        A picked = 0, target_weight = 0;
        if (is_valid && lane == 0) {
            label = targets.of(sample);
            if (label >= 0) { picked = widen(row[label]); target_weight = targets.weight_of(label); }
        }
        Online<T, A> online;
        A shift = 0, weighted_sum = 0, weight_sum = 0;
        if (SMOOTH && length) { shift = widen(row[0]); if (!(fabs(shift) < INFINITE)) shift = 0; }
        auto one = [&](i64 k) {
            A x = widen(row[k]);
            online.take(x);
            if (SMOOTH) { A w = targets.weight_of(k); weight_sum += w; weighted_sum += w * (x - shift); }
        };
        stream<VEC>(row, length, lane, N, one, [&](i64 k) {
            vec<T, VEC> v = read<VEC>(row + k);
            A top = widen(v.at[0]);
            #pragma unroll
            for (int j = 1; j < VEC; ++j) top = Max::of(top, (A)widen(v.at[j]));
            online.raise(top);
            #pragma unroll
            for (int j = 0; j < VEC; ++j) {
                A x = widen(v.at[j]);
                online.add(x);
                if (SMOOTH) { A w = targets.weight_of(k + j); weight_sum += w; weighted_sum += w * (x - shift); }
            }
        });
        A top = row_reduce<Max, N>(online.top, scratch[0]);
        online.merge(top);
        A sum = row_reduce<Sum, N>(online.sum, scratch[1]);
        if (SMOOTH) {
            weighted_sum = row_reduce<Sum, N>(weighted_sum, scratch[2]);
            weight_sum = row_reduce<Sum, N>(weight_sum, scratch[3]);
        }
        if (!is_valid || lane) continue;
        A log_of_sum = row_log(sum), lse = top + log_of_sum;
        // lse has fewer digits where top is large
        A result = label < 0 ? (A)0 : target_weight * (log_of_sum + (top - picked));
        if (SMOOTH && label >= 0)
            result = (1 - smoothing) * result
                + smoothing / targets.classes * (weight_sum * (log_of_sum + (top - shift)) - weighted_sum);
        log_sum[sample] = lse;
        if (loss) loss[sample] = cast<T>(result);
        losses += result;
        weights += target_weight;
    }
    if (!loss) store_partial(losses, weights, partial);
}

// One thread per pixel of an image whose channels are the classes: logits of a pixel are ``inner`` elements apart.
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
        i64 label = targets.of(sample);
        Online<T, A> online;
        A shift = targets.classes ? (A)widen(pixel[0]) : (A)0, weighted_sum = 0, weight_sum = 0;
        if (!(fabs(shift) < INFINITE)) shift = 0;
        #pragma unroll 4
        for (i64 k = 0; k < targets.classes; ++k) {
            A x = widen(pixel[k * inner]);
            online.take(x);
            if (SMOOTH) { A w = targets.weight_of(k); weight_sum += w; weighted_sum += w * (x - shift); }
        }
        A log_of_sum = row_log(online.sum), lse = online.top + log_of_sum, target_weight = 0, result = 0;
        if (label >= 0) {
            target_weight = targets.weight_of(label);
            result = target_weight * (log_of_sum + (online.top - (A)widen(pixel[label * inner])));
        }
        if (SMOOTH && label >= 0)
            result = (1 - smoothing) * result
                + smoothing / targets.classes * (weight_sum * (log_of_sum + (online.top - shift)) - weighted_sum);
        log_sum[sample] = lse;
        if (loss) loss[sample] = cast<T>(result);
        losses += result;
        weights += target_weight;
    }
    if (!loss) store_partial(losses, weights, partial);
}

// One block adds up the partial sums of all blocks, in a fixed order.
template <class T, class W, class A, bool MEAN>
__device__ __forceinline__ void finish_loss(T* loss, W* total, const A* partial, i64 count) {
    __shared__ A scratch[32];
    A losses = 0, weights = 0;
    for (i64 k = threadIdx.x; k < count; k += blockDim.x) { losses += partial[k]; weights += partial[count + k]; }
    losses = block_reduce(losses, scratch);
    weights = block_reduce(weights, scratch);
    if (threadIdx.x == 0) {
        *loss = cast<T>(MEAN ? losses / weights : losses);
        *total = cast<W>(weights);
    }
}

// The gradient of a sample's logits is grad * (softmax * softmax_scale - smoothing_weight * class weight), and at the
// target's class less ``target_weight``.
template <class A> struct TargetGradient { i64 label; A grad, softmax_scale, smoothing_weight, target_weight; };
template <class T, class I, class G, bool SMOOTH, class A = compute_t<T>>
__device__ __forceinline__ TargetGradient<A> target_gradient(
    const Targets<T, I>& targets, i64 sample, const G* grad, bool per_sample, const A* total, A smoothing, A all_weights
) {
    TargetGradient<A> result = {targets.of(sample), 0, 0, 0, 0};
    if (result.label < 0) return result;
    result.grad = (A)widen(grad[per_sample ? sample : 0]) / *total;
    result.target_weight = targets.weight_of(result.label);
    if (SMOOTH) { result.target_weight *= 1 - smoothing; result.smoothing_weight = smoothing / targets.classes; }
    result.softmax_scale = result.target_weight + (SMOOTH ? result.smoothing_weight * all_weights : (A)0);
    return result;
}
template <class T, bool SMOOTH, class X, class A = compute_t<T>>
__device__ __forceinline__ T logit_gradient(const TargetGradient<A>& target, X targets, A x, i64 k, A lse) {
    if (target.label < 0) return cast<T>((A)0);
    A gradient = row_exp<T>(x - lse) * target.softmax_scale;
    if (SMOOTH) gradient -= target.smoothing_weight * targets.weight_of(k);
    if (k == target.label) gradient -= target.target_weight;
    return cast<T>(gradient * target.grad);
}
// The sum of the weights of all classes, for every thread of a block
template <class T, class I, class A = compute_t<T>>
__device__ __forceinline__ A sum_of_weights(const Targets<T, I>& targets) {
    if (!targets.weight) return (A)targets.classes;
    __shared__ A scratch[32], total;
    A sum = 0;
    for (i64 k = threadIdx.x; k < targets.classes; k += blockDim.x) sum += targets.weight_of(k);
    sum = block_reduce(sum, scratch);
    if (threadIdx.x == 0) total = sum;
    __syncthreads();
    return total;
}

template <class T, class I, class G, int N, int VEC, bool SMOOTH>
__device__ __forceinline__ void cross_entropy_backward_rows(
    T* out, const G* grad, const T* in, Targets<T, I> targets, const compute_t<T>* log_sum,
    const compute_t<T>* total, i64 samples, bool per_sample, compute_t<T> smoothing
) {
    typedef compute_t<T> A;
    A all = SMOOTH ? sum_of_weights(targets) : (A)0;
    i64 sample = (i64)blockIdx.x * (blockDim.x / N) + threadIdx.x / N, length = targets.classes;
    if (sample >= samples) return;
    in += sample * length; out += sample * length;
    TargetGradient<A> target =
        target_gradient<T, I, G, SMOOTH>(targets, sample, grad, per_sample, total, smoothing, all);
    A lse = log_sum[sample];
    bool aligned = (u64)in % (VEC * sizeof(T)) == (u64)out % (VEC * sizeof(T));
    auto one = [&](i64 k) { out[k] = logit_gradient<T, SMOOTH>(target, targets, (A)widen(in[k]), k, lse); };
    if (aligned) stream<VEC>(in, length, threadIdx.x % N, N, one, [&](i64 k) {
        vec<T, VEC> v = read<VEC>(in + k);
        vec<T, VEC> result;
        #pragma unroll
        for (int j = 0; j < VEC; ++j)
            result.at[j] = logit_gradient<T, SMOOTH>(target, targets, (A)widen(v.at[j]), k + j, lse);
        write<VEC>(out + k, result);
    });
    else for (i64 k = threadIdx.x % N; k < length; k += N) one(k);
}

template <class T, class I, class G, bool SMOOTH>
__device__ __forceinline__ void cross_entropy_backward_pixels(
    T* out, const G* grad, const T* in, Targets<T, I> targets, const compute_t<T>* log_sum,
    const compute_t<T>* total, i64 samples, i64 inner, bool per_sample, compute_t<T> smoothing
) {
    typedef compute_t<T> A;
    A all = SMOOTH ? sum_of_weights(targets) : (A)0;
    i64 sample = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (sample >= samples) return;
    i64 start = sample / inner * inner * targets.classes + sample % inner;
    TargetGradient<A> target =
        target_gradient<T, I, G, SMOOTH>(targets, sample, grad, per_sample, total, smoothing, all);
    A lse = log_sum[sample];
    #pragma unroll 4
    for (i64 k = 0; k < targets.classes; ++k)
        out[start + k * inner] = logit_gradient<T, SMOOTH>(target, targets, (A)widen(in[start + k * inner]), k, lse);
}

// The negative log-likelihoods of the targets, given log-probabilities
template <class T, class I>
__device__ __forceinline__ void nll(
    T* loss, compute_t<T>* partial, const T* in, Targets<T, I> targets, i64 samples, i64 inner
) {
    typedef compute_t<T> A;
    A losses = 0, weights = 0;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 sample = (i64)blockIdx.x * blockDim.x + threadIdx.x; sample < samples; sample += step) {
        i64 label = targets.of(sample);
        A target_weight = 0, result = 0;
        if (label >= 0) {
            target_weight = targets.weight_of(label);
            i64 at = sample / inner * inner * targets.classes + label * inner + sample % inner;
            result = -(A)widen(in[at]) * target_weight;
        }
        if (loss) loss[sample] = cast<T>(result);
        losses += result;
        weights += target_weight;
    }
    store_partial(losses, weights, partial);
}

// Zeros except at the targets' classes; VEC elements per thread, which are neighbours in one row or image plane
template <class T, class I, int VEC, bool PLANES>
__device__ __forceinline__ void nll_backward(
    T* out, const T* grad, Targets<T, I> targets, const T* total, i64 count, i64 inner, bool per_sample, bool mean
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
        i64 label = targets.of(sample);
        A value = 0;
        if (label == wanted) value = -(A)widen(grad[per_sample ? sample : 0]) * targets.weight_of(label) / divisor;
        result.at[j] = cast<T>(value);
    }
    write<VEC>(out + at, result);
}
"""
