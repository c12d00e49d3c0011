// Kernels that the tests on GPUs call.
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#include <vector>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) \
  CHECK_CUDA(x);       \
  TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

template <typename scalar_t>
__global__ void gated_kernel(const scalar_t* __restrict__ x, const scalar_t* __restrict__ y, scalar_t* __restrict__ out,
                             int64_t count) {
  using acc_t = at::acc_type<scalar_t, true>;
  CUDA_KERNEL_LOOP(at, count) {
    const acc_t gate = acc_t(1) / (acc_t(1) + exp(-static_cast<acc_t>(x[at])));
    out[at] = static_cast<scalar_t>(gate * static_cast<acc_t>(y[at]));
  }
}
torch::Tensor gated(torch::Tensor x, torch::Tensor y) {
  CHECK_INPUT(x);
  CHECK_INPUT(y);
  const at::cuda::OptionalCUDAGuard guard(device_of(x));
  auto out = torch::empty_like(x);
  const int blocks = static_cast<int>(std::min<int64_t>((x.numel() + 255) / 256, 4096));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "gated", [&] {
    gated_kernel<scalar_t><<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

__global__ void double_kernel(float* x, int64_t count) {
  CUDA_KERNEL_LOOP(at, count) x[at] = 2 * x[at];
}
void double_(torch::Tensor x) {
  double_kernel<<<256, 256>>>(x.data_ptr<float>(), x.numel());  // on the default stream
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
double first(torch::Tensor x) {
  float value = 0;
  C10_CUDA_CHECK(cudaMemcpy(&value, x.data_ptr<float>(), sizeof value, cudaMemcpyDeviceToHost));
  return value;
}
torch::Tensor count_and_take(torch::Tensor flags) {
  std::vector<float> host(static_cast<size_t>(flags.numel()));
  C10_CUDA_CHECK(cudaMemcpy(host.data(), flags.data_ptr<float>(), flags.nbytes(), cudaMemcpyDeviceToHost));
  int64_t count = 0;
  for (const float flag : host) count += flag != 0;
  return torch::empty({count}, flags.options());
}

namespace {
template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid(scalar_t z) { return 1.0 / (1.0 + exp(-z)); }
template <typename scalar_t>
__device__ __forceinline__ scalar_t d_sigmoid(scalar_t z) { const auto s = sigmoid(z); return (1.0 - s) * s; }
template <typename scalar_t>
__device__ __forceinline__ scalar_t d_tanh(scalar_t z) { const auto t = tanh(z); return 1 - t * t; }
template <typename scalar_t>
__device__ __forceinline__ scalar_t elu(scalar_t z) { return fmax(scalar_t(0), z) + fmin(scalar_t(0), exp(z) - 1); }
template <typename scalar_t>
__device__ __forceinline__ scalar_t d_elu(scalar_t z) { return z < 0 ? exp(z) : scalar_t(1); }

template <typename T, size_t N>
using Accessor = torch::PackedTensorAccessor32<T, N, torch::RestrictPtrTraits>;

template <typename scalar_t>
__global__ void forward_kernel(const Accessor<scalar_t, 3> gates, const Accessor<scalar_t, 2> old_cell,
                               Accessor<scalar_t, 2> new_h, Accessor<scalar_t, 2> new_cell) {
  const int n = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= gates.size(2)) return;
  new_cell[n][column] = old_cell[n][column] + elu(gates[n][2][column]) * sigmoid(gates[n][0][column]);
  new_h[n][column] = tanh(new_cell[n][column]) * sigmoid(gates[n][1][column]);
}
template <typename scalar_t>
__global__ void backward_kernel(Accessor<scalar_t, 2> d_old_cell, Accessor<scalar_t, 3> d_gates,
                                const Accessor<scalar_t, 2> grad_h, const Accessor<scalar_t, 2> grad_cell,
                                const Accessor<scalar_t, 2> new_cell, const Accessor<scalar_t, 3> gates) {
  const int n = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= gates.size(2)) return;
  const auto input = sigmoid(gates[n][0][column]), output = sigmoid(gates[n][1][column]);
  const auto candidate = elu(gates[n][2][column]);
  const auto d_output = tanh(new_cell[n][column]) * grad_h[n][column];
  const auto d_cell = output * grad_h[n][column] * d_tanh(new_cell[n][column]) + grad_cell[n][column];
  d_old_cell[n][column] = d_cell;
  d_gates[n][0][column] = candidate * d_cell * d_sigmoid(gates[n][0][column]);
  d_gates[n][1][column] = d_output * d_sigmoid(gates[n][1][column]);
  d_gates[n][2][column] = input * d_cell * d_elu(gates[n][2][column]);
}
}  // namespace

std::vector<torch::Tensor> lltm_forward(torch::Tensor input, torch::Tensor weights, torch::Tensor bias,
                                        torch::Tensor old_h, torch::Tensor old_cell) {
  CHECK_INPUT(input);
  auto x = torch::cat({old_h, input}, /*dim=*/1);
  auto gates = torch::addmm(bias, x, weights.transpose(0, 1)).reshape({input.size(0), 3, old_cell.size(1)}).contiguous();
  auto new_h = torch::zeros_like(old_cell), new_cell = torch::zeros_like(old_cell);
  const dim3 blocks((old_cell.size(1) + 127) / 128, input.size(0));
  AT_DISPATCH_FLOATING_TYPES(gates.type(), "lltm_forward", ([&] {
    forward_kernel<scalar_t><<<blocks, 128>>>(
        gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        old_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        new_h.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        new_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
  }));
  return {new_h, new_cell, x, gates, new_cell};
}
std::vector<torch::Tensor> lltm_backward(torch::Tensor grad_h, torch::Tensor grad_cell, torch::Tensor x,
                                         torch::Tensor gates, torch::Tensor new_cell, torch::Tensor weights) {
  auto d_old_cell = torch::zeros_like(new_cell), d_gates = torch::zeros_like(gates);
  const dim3 blocks((new_cell.size(1) + 127) / 128, new_cell.size(0));
  AT_DISPATCH_FLOATING_TYPES(x.type(), "lltm_backward", ([&] {
    backward_kernel<scalar_t><<<blocks, 128>>>(
        d_old_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        d_gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
        grad_h.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        grad_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        new_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
        gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>());
  }));
  auto flat = d_gates.flatten(1, 2);
  auto d_weights = flat.t().mm(x), d_bias = flat.sum(/*dim=*/0);
  auto d_x = flat.mm(weights);
  const int64_t size = new_cell.size(1);
  return {d_x.slice(1, size), d_weights, d_bias, d_x.slice(1, 0, size), d_old_cell};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("gated", &gated, "sigmoid(x) * y");
  m.def("double_", &double_);
  m.def("first", &first);
  m.def("count_and_take", &count_and_take);
  m.def("lltm_forward", &lltm_forward);
  m.def("lltm_backward", &lltm_backward);
}
