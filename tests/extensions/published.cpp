// Functions in the style of published extensions: checks of arguments, lists, memory formats, operators called from C++.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/irange.h>
#include <torch/custom_class.h>
#include <torch/extension.h>

#include <sstream>

using namespace torch::indexing;

// Raises what checkAllSameType and the like raise of two tensors.
void check(const at::Tensor& a, const at::Tensor& b, const std::string& which) {
  at::TensorArg one{a, "input", 1}, other{b, "rois", 2};
  at::CheckedFrom from = "check";
  if (which == "type") at::checkAllSameType(from, {one, other});
  if (which == "size") at::checkSameSize(from, one, other);
  if (which == "dim") at::checkDim(from, one, 3);
  if (which == "sizes") at::checkSize(from, one, {2, 5});
  if (which == "contiguous") at::checkAllContiguous(from, {one, other});
  if (which == "index") C10_THROW_ERROR(IndexError, "thrown");
  if (which == "value") TORCH_CHECK_WITH(ValueError, a.dim() == 3, "no ", 3);
  if (which == "range") throw std::range_error("out of it");
  if (which == "singular") TORCH_CHECK_LINALG(a.dim() == 3, "singular");
  if (which == "wrap") c10::maybe_wrap_dim(4, a.dim());
  if (which == "expand") at::expand_outplace(a, b);
}

// What is computed of a matrix [2, 3] of floats and a vector [3] of whole numbers, by functions that return one tensor.
std::vector<at::Tensor> tour(at::Tensor x, at::Tensor n) {
  std::vector<at::Tensor> made;
  auto counts = torch::zeros({4}, x.options());
  counts.index_put_({n}, torch::ones_like(n, x.options()), /*accumulate=*/true);
  made.push_back(counts);
  made.push_back(at::index_put(counts, {counts > 1000}, torch::zeros({}, x.options())));
  c10::List<std::optional<at::Tensor>> indices({std::nullopt, n.clamp(0, 2)});
  made.push_back(x.clone().index_put_(indices, torch::zeros({1}, x.options())));
  made.push_back(x.index({true}));
  auto y = x.to(torch::kCPU).to(n).to("cpu").to(x.device(), at::kDouble, false, true, at::MemoryFormat::Contiguous);
  made.push_back(y);
  auto v = x.clone();
  v.t_().unsqueeze_(0).squeeze_();
  v += 1;
  made.push_back(v.transpose_(0, 1));
  made.push_back(torch::arange(6, x.options()).resize_({2, 2}).mT());
  made.push_back(at::sum_to(std::get<1>(at::expand_outplace(x.unsqueeze(0), x)), {1, 3}));
  int64_t total = 0;
  for (const auto i : c10::irange(x.size(0))) total += i;
  for (auto i : c10::irange(2, c10::multiply_integers(x.sizes()))) total += i;
  made.push_back(torch::tensor({{{total, int64_t(1)}, {int64_t(2), int64_t(3)}}}));
  made.push_back(torch::tensor({true, false}));
  auto last = torch::empty({1, 2, 2, 3}, x.options(), at::MemoryFormat::ChannelsLast).fill_(2);
  made.push_back(last);
  made.push_back(torch::zeros_like(last.contiguous(last.suggest_memory_format()), x.options()) + last.sym_size(3));
  made.push_back(torch::fft::fft(x).abs() + torch::linalg::norm(x) + torch::special::expit(x));
  made.push_back(torch::pixel_unshuffle(torch::pixel_shuffle(x.repeat({1, 2}).view({1, 4, 1, 3}), 2), 2));
  made.push_back(torch::cdist(x, x) + torch::isin(n, n).sum());
  made.push_back(torch::block_diag({x, n.to(x)}));
  made.push_back(torch::tril_indices(3, 3));
  made.push_back(torch::cartesian_prod({n, n}));
  made.push_back(at::_foreach_add({x, x}, 2.0)[1].asin_().nan_to_num(5));
  made.push_back(std::get<1>(torch::max_pool2d_with_indices(x.view({1, 1, 2, 3}), {2, 2}, {1, 1})));
  auto summed = torch::empty({2}, x.options());
  made.push_back(at::sum_out(summed, x, {1}));
  made.push_back(torch::range(1, 4, 1.5));
  made.push_back(torch::where(x > 0, 1, 0) + torch::where(n > 0)[0].numel());
  made.push_back(x.where(x > 0, -x).fill_diagonal_(7).narrow_copy(1, 0, 2));
  made.push_back(at::pad_sequence({n, n.slice(0, 1)}, true, -1));
  return made;
}

std::string facts(const at::Tensor& x) {
  std::ostringstream text;
  text << x.options() << ' ' << x.suggest_memory_format() << ' ' << c10::Join("x", x.sizes()) << ' ' << at::promote_types(x.scalar_type(), at::kHalf)
       << ' ' << at::toAccumulateType(at::kHalf, false) << ' ' << c10::Scalar(2.5).toInt() << ' ' << (-c10::Scalar(2)).toHalf()
       << ' ' << std::abs(c10::complex<float>(3, 4)) << ' ' << *x.expect_contiguous() << ' ' << at::canCast(at::kFloat, at::kInt);
  return text.str();
}

at::Tensor resize_argument(at::Tensor x, int64_t size) { return x.resize_({size}); }

c10::Dict<std::string, at::Tensor> halves(const c10::Dict<std::string, at::Tensor>& given, c10::List<int64_t> sizes) {
  c10::Dict<std::string, at::Tensor> made;
  for (auto& entry : given) made.insert(entry.key(), entry.value() / 2);
  made.insert_or_assign("sizes", torch::tensor(sizes.vec()));
  return made;
}

py::dict named(int64_t k) {
  c10::IValue both = std::tuple<int64_t, double>(k, 0.5);
  torch::jit::Stack stack;
  torch::jit::push(stack, k, "text");
  return py::dict(py::arg("first") = both.toTuple()->elements()[0].toInt(), py::arg("text") = torch::jit::pop(stack).toStringRef());
}

struct Counter : torch::CustomClassHolder {
  int64_t count = 0;
};
int64_t counted() {
  auto counter = c10::make_intrusive<Counter>();
  c10::intrusive_ptr<Counter> same = counter;
  same->count += 2;
  return counter->count + same.use_count();
}

// An operator whose function for Autograd calls the one of the device by the operator's name.
at::Tensor cube_cpu(const at::Tensor& x) { return x * x * x; }
at::Tensor cube(const at::Tensor& x) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("telegrad_published::cube", "").typed<at::Tensor(const at::Tensor&)>();
  return op.call(x);
}
struct Cube : torch::autograd::Function<Cube> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({x});
    ctx->saved_data["sizes"] = x.sizes();
    return cube(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, torch::autograd::variable_list grads) {
    const c10::List<int64_t> sizes = ctx->saved_data["sizes"].toIntList();
    auto x = ctx->get_saved_variables()[0];
    return {3 * x * x * grads[0].view(sizes.vec())};
  }
};
at::Tensor cube_autograd(const at::Tensor& x) { return Cube::apply(x); }
at::Tensor plus(const at::Tensor& a, const at::Tensor& b) {
  return torch::Dispatcher::singleton()
      .findSchemaOrThrow("aten::add", "Tensor")
      .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Scalar&)>()
      .call(a, b, 2);
}
TORCH_LIBRARY(telegrad_published, m) { m.def(TORCH_SELECTIVE_SCHEMA("telegrad_published::cube(Tensor x) -> Tensor")); }
TORCH_LIBRARY_IMPL(telegrad_published, CPU, m) { m.impl(TORCH_SELECTIVE_NAME("telegrad_published::cube"), TORCH_FN(cube_cpu)); }
TORCH_LIBRARY_IMPL(telegrad_published, Autograd, m) { m.impl("cube", cube_autograd); }
static auto registered = torch::RegisterOperators("telegrad_registered::plus", &plus).op("telegrad_registered::cube", &cube);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("check", &check);
  m.def("tour", &tour);
  m.def("facts", &facts);
  m.def("resize_argument", &resize_argument);
  m.def("halves", &halves);
  m.def("named", &named);
  m.def("counted", &counted);
  m.def("cube", &cube);
}
