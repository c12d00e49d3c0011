"""CUDA text of the reduction kernels, over any state of ``reduce_states``.

``rows``: reduced elements are neighbours; a few lanes, a block, or several blocks make one result. ``columns``: kept
elements are neighbours; a thread has a vector of results. Where several blocks share a result, the last to finish joins
their states in the order of the blocks, so that results are the same every time. Tickets are zero before and after.
"""

from __future__ import annotations

LOADS = r"""
template <int BYTES> struct bits;
template <> struct bits<16> { typedef uint4 type; };
template <> struct bits<8> { typedef uint2 type; };
template <> struct bits<4> { typedef u32 type; };
template <> struct bits<2> { typedef u16 type; };
template <> struct bits<1> { typedef u8 type; };
template <class T, int V> DEV vec<T, V> load_vector(const T* from) {
    typedef typename bits<sizeof(T) * V>::type B;
    B raw = __ldg((const B*)from);
    return *(const vec<T, V>*)&raw;
}
"""

KERNELS = r"""
// kept_t and reduced_t are layouts of geometry.INDEXING: of the operand and the results, and of the operand
// lanes: a power of two, how many threads share a result or, of columns, have neighbours
struct Job { double value; kept_t kept; reduced_t reduced; index_t results, units, chunk; u32 splits, lanes; };

DEV index_t offset_of(const reduced_t& reduced, index_t i) {
    index_t at[1];
    reduced.find(i, at);
    return at[0];
}
// where the operand's elements of a result begin, and where the result goes
struct Offsets { index_t in, first, second; };
DEV Offsets offsets_of(const kept_t& kept, index_t i) {
    index_t at[3];
    kept.find(i, at);
    return {at[0], at[1], at[2]};
}

template <class A> DEV A shuffle_down(A a, int distance) {
    const int N = (sizeof(A) + 3) / 4;
    union U { A value; u32 at[N]; __device__ U() {} } u;
    u.value = a;
#pragma unroll
    for (int k = 0; k < N; ++k) u.at[k] = __shfl_down_sync(0xffffffff, u.at[k], distance);
    return u.value;
}
// lane 0 of every warp gets its state
template <class Op> DEV typename Op::Acc warp_reduce(typename Op::Acc a) {
#pragma unroll
    for (int d = 16; d; d /= 2) a = Op::merge(a, shuffle_down(a, d));
    return a;
}
// lane 0 of each so many lanes gets their state
template <class Op> DEV typename Op::Acc sub_warp_reduce(typename Op::Acc a, u32 lanes) {
    for (u32 d = lanes / 2; d; d /= 2) a = Op::merge(a, shuffle_down(a, (int)d));
    return a;
}
// thread 0 gets the block's
template <class Op> DEV typename Op::Acc block_reduce(typename Op::Acc a, typename Op::Acc* shared) {
    a = warp_reduce<Op>(a);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    __syncthreads();
    if (lane == 0) shared[warp] = a;
    __syncthreads();
    if (warp == 0) a = warp_reduce<Op>(lane < warps ? shared[lane] : Op::init());
    return a;
}

template <class Op, int V> struct Accumulators {
    typename Op::Acc at[V];
    u32 steps;
    __device__ __forceinline__ Accumulators() {
        steps = 0;
#pragma unroll
        for (int k = 0; k < V; ++k) at[k] = Op::init();
    }
    __device__ __forceinline__ void add(const vec<typename Op::In, V>& v, index_t place, double value) {
        ++steps;
#pragma unroll
        for (int k = 0; k < V; ++k) Op::add(at[k], v.at[k], place + k, steps, value);
    }
    __device__ __forceinline__ void close() {
#pragma unroll
        for (int k = 0; k < V; ++k) Op::close(at[k], steps);
    }
    __device__ __forceinline__ typename Op::Acc merged() {
        close();
#pragma unroll
        for (int d = V / 2; d; d /= 2)
#pragma unroll
            for (int k = 0; k < d; ++k) at[k] = Op::merge(at[k], at[k + d]);
        return at[0];
    }
};

// elements of one result, V at a time: one after the other, or wherever the reduced dimensions say
template <class T, int V> struct ContiguousElements {
    const T* from;
    __device__ __forceinline__ vec<T, V> load(index_t unit) const { return load_vector<T, V>(from + unit * V); }
};
template <class T, int V> struct StridedElements {
    const T* from;
    const reduced_t* reduced;
    __device__ __forceinline__ vec<T, V> load(index_t unit) const {
        return load_vector<T, V>(from + offset_of(*reduced, unit));
    }
};

template <class Op, int V, class Source>
DEV void accumulate(
    Accumulators<Op, V>& lanes, const Source& source, index_t i, index_t end, index_t step, index_t place, double x
) {
    typedef vec<typename Op::In, V> Vec;
    const int U = 4;
    for (; i + (U - 1) * step < end; i += U * step) {
        Vec v[U];
#pragma unroll
        for (int u = 0; u < U; ++u) v[u] = source.load(i + u * step);
#pragma unroll
        for (int u = 0; u < U; ++u) lanes.add(v[u], place + (i + u * step) * V, x);
    }
    for (; i < end; i += step) lanes.add(source.load(i), place + i * V, x);
}

// whether this block is the last of those that share the ticket; their writes are seen by it
DEV bool is_last(u32* ticket, u32 of) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1) + 1 == of;
        if (last) *ticket = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

// lanes of a warp make a result of at most a unit each, or all of them one of U units each; R results at a time
template <class Op, int V, int U, int R, bool LINE>
DEV void sub_warp_rows(
    typename Op::First* first, typename Op::Second* second, const typename Op::In* in, const Job& job
) {
    typedef vec<typename Op::In, V> Vec;
    const u32 shift = 31 - __clz((int)job.lanes), groups = 256 >> shift;
    index_t row = (index_t)blockIdx.x * (groups * R) + (threadIdx.x >> shift);
    u32 lane = threadIdx.x & (job.lanes - 1);
    Vec v[R][U];
    Offsets at[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        bool is_row = row + r * groups < job.results;
        if (is_row) at[r] = offsets_of(job.kept, row + r * groups);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            index_t unit = lane + u * 32;
            if (is_row && unit < job.units) {
                index_t offset = LINE ? unit * V : offset_of(job.reduced, unit);
                v[r][u] = load_vector<typename Op::In, V>(in + at[r].in + offset);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
        Accumulators<Op, V> lanes;
#pragma unroll
        for (int u = 0; u < U; ++u) {
            index_t unit = lane + u * 32;
            if (row + r * groups < job.results && unit < job.units) lanes.add(v[r][u], unit * V, job.value);
        }
        typename Op::Acc a = sub_warp_reduce<Op>(lanes.merged(), job.lanes);
        if (lane == 0 && row + r * groups < job.results)
            Op::write(a, job.value, first + at[r].first, second + at[r].second);
    }
}

// a warp makes a result of at most 32 * U vectors, R results at a time; a line need not begin where a vector may:
// its edges are single elements
template <class Op, int V, int U, int R>
DEV void misaligned_rows(
    typename Op::First* first, typename Op::Second* second, const typename Op::In* in, const Job& job
) {
    typedef typename Op::In T;
    const int WARPS = 8;
    index_t row = (index_t)blockIdx.x * (WARPS * R) + threadIdx.x / 32;
    u32 lane = threadIdx.x % 32, length[R], head[R], units[R], edge[R];
    vec<T, V> v[R][U];
    vec<T, 1> single[R];
    Offsets at[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        bool is_row = row + r * WARPS < job.results;
        if (is_row) at[r] = offsets_of(job.kept, row + r * WARPS);
        const T* from = in + (is_row ? at[r].in : 0);
        length[r] = is_row ? job.units : 0;
        head[r] = (u32)((0 - (u64)from / sizeof(T)) % V);
        if (head[r] > length[r]) head[r] = length[r];
        units[r] = (length[r] - head[r]) / V;
        edge[r] = lane < head[r] ? lane : lane + units[r] * V;
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (lane + u * 32 < units[r]) v[r][u] = load_vector<T, V>(from + head[r] + (lane + u * 32) * V);
        if (edge[r] < length[r]) single[r] = load_vector<T, 1>(from + edge[r]);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
        Accumulators<Op, V> lanes;
        Accumulators<Op, 1> rest;
#pragma unroll
        for (int u = 0; u < U; ++u)
            if (lane + u * 32 < units[r]) lanes.add(v[r][u], head[r] + (lane + u * 32) * V, job.value);
        if (edge[r] < length[r]) rest.add(single[r], edge[r], job.value);
        typename Op::Acc a = warp_reduce<Op>(Op::merge(lanes.merged(), rest.merged()));
        if (lane == 0 && row + r * WARPS < job.results)
            Op::write(a, job.value, first + at[r].first, second + at[r].second);
    }
}

// the block's share of one result; a line need not begin where a vector may
template <class Op, int V, bool LINE>
DEV typename Op::Acc block_partial(const typename Op::In* in, const Job& job, u32 split) {
    typedef typename Op::In T;
    index_t begin = split * (index_t)blockDim.x + threadIdx.x, step = job.splits * (index_t)blockDim.x;
    Accumulators<Op, V> lanes;
    if (!LINE) {
        StridedElements<T, V> source = {in, &job.reduced};
        accumulate(lanes, source, begin, job.units, step, (index_t)0, job.value);
        return lanes.merged();
    }
    index_t n = job.units, head = (0 - (u64)in / sizeof(T)) % V;
    if (head > n) head = n;
    index_t units = (n - head) / V;
    ContiguousElements<T, V> source = {in + head};
    accumulate(lanes, source, begin, units, step, head, job.value);
    typename Op::Acc a = lanes.merged();
    if (V == 1) return a;
    Accumulators<Op, 1> edge;
    index_t rest = head + units * V;
    if (begin < head) edge.add(load_vector<T, 1>(in + begin), begin, job.value);
    if (begin < n - rest) edge.add(load_vector<T, 1>(in + rest + begin), rest + begin, job.value);
    return Op::merge(a, edge.merged());
}

// a block, or `splits` blocks, make a result
template <class Op, int V, bool LINE>
DEV void block_rows(
    typename Op::First* first, typename Op::Second* second, const typename Op::In* in, void* partial, u32* tickets,
    const Job& job
) {
    typedef typename Op::Acc Acc;
    __shared__ alignas(16) u64 memory[(32 * sizeof(Acc) + 7) / 8 + 1];
    Acc* shared = (Acc*)memory;
    index_t row = blockIdx.x / job.splits;
    u32 split = blockIdx.x % job.splits;
    Offsets at = offsets_of(job.kept, row);
    Acc a = block_reduce<Op>(block_partial<Op, V, LINE>(in + at.in, job, split), shared);
    if (job.splits > 1) {
        Acc* mine = (Acc*)partial + row * job.splits;
        if (threadIdx.x == 0) mine[split] = a;
        if (!is_last(tickets + row, job.splits)) return;
        a = Op::init();
        for (u32 s = threadIdx.x; s < job.splits; s += blockDim.x) a = Op::merge(a, mine[s]);
        a = block_reduce<Op>(a, shared);
    }
    if (threadIdx.x == 0) Op::write(a, job.value, first + at.first, second + at.second);
}

template <class Op, int V>
DEV void add_row(Accumulators<Op, V>& lanes, const vec<typename Op::In, V>& v, index_t row, double x) {
    ++lanes.steps;
#pragma unroll
    for (int k = 0; k < V; ++k) Op::add(lanes.at[k], v.at[k], row, lanes.steps, x);
}
// threads of the first row get the states of their columns
template <class Op, int V>
DEV void reduce_rows(Accumulators<Op, V>& lanes, typename Op::Acc* shared, u32 tx, u32 ty, u32 across) {
    for (u32 half = 128 / across; half; half /= 2) {
        if (ty >= half && ty < 2 * half)
#pragma unroll
            for (int k = 0; k < V; ++k) shared[((ty - half) * V + k) * across + tx] = lanes.at[k];
        __syncthreads();
        if (ty < half)
#pragma unroll
            for (int k = 0; k < V; ++k) lanes.at[k] = Op::merge(lanes.at[k], shared[(ty * V + k) * across + tx]);
        __syncthreads();
    }
}

// job.lanes threads have V columns each; the others share the block's rows, `splits` blocks share all rows
template <class Op, int V>
DEV void columns(
    typename Op::First* first, typename Op::Second* second, const typename Op::In* in, void* partial, u32* tickets,
    const Job& job
) {
    typedef typename Op::Acc Acc;
    typedef typename Op::In T;
    __shared__ alignas(16) u64 memory[(128 * V * sizeof(Acc) + 7) / 8];
    Acc* shared = (Acc*)memory;
    const u32 across = job.lanes, shift = 31 - __clz((int)across), down = 256 >> shift;
    u32 tx = threadIdx.x & (across - 1), ty = threadIdx.x >> shift;
    u32 tile = blockIdx.x / job.splits, split = blockIdx.x % job.splits;
    index_t result = ((index_t)tile * across + tx) * V;
    bool is_column = result < job.results;
    Offsets at = {0, 0, 0};
    if (is_column) at = offsets_of(job.kept, result);

    Accumulators<Op, V> lanes;
    index_t i = split * job.chunk + ty, end = (split + 1) * job.chunk;
    if (end > job.units) end = job.units;
    if (is_column) {
        StridedElements<T, V> source = {in + at.in, &job.reduced};
        const int U = V * sizeof(Acc) <= 64 ? 8 : 4;  // registers are few
        for (; i + (U - 1) * down < end; i += U * down) {
            vec<T, V> v[U];
#pragma unroll
            for (int u = 0; u < U; ++u) v[u] = source.load(i + u * down);
#pragma unroll
            for (int u = 0; u < U; ++u) add_row<Op, V>(lanes, v[u], i + u * down, job.value);
        }
        for (; i < end; i += down) add_row<Op, V>(lanes, source.load(i), i, job.value);
    }
    lanes.close();
    reduce_rows<Op, V>(lanes, shared, tx, ty, across);
    if (job.splits > 1) {
        Acc* mine = (Acc*)partial + (index_t)tile * job.splits * (across * V);
        if (ty == 0)
#pragma unroll
            for (int k = 0; k < V; ++k) mine[(split * across + tx) * V + k] = lanes.at[k];
        if (!is_last(tickets + tile, job.splits)) return;
        lanes = Accumulators<Op, V>();
        for (u32 s = ty; s < job.splits; s += down)
#pragma unroll
            for (int k = 0; k < V; ++k) lanes.at[k] = Op::merge(lanes.at[k], mine[(s * across + tx) * V + k]);
        __syncthreads();
        reduce_rows<Op, V>(lanes, shared, tx, ty, across);
    }
    if (ty == 0 && is_column)
#pragma unroll
        for (int k = 0; k < V; ++k)
            Op::write(
                lanes.at[k], job.value, first + at.first + k * job.kept.step[1][0],
                second + at.second + k * job.kept.step[2][0]
            );
}
"""
