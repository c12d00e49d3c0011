#pragma once
template <typename T>
T scaled(T value, double by) { return static_cast<T>(value * by); }
