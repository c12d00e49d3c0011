"""One step of each recurrent layer on arrays, and its gradient.

A step gets the products of weights with input and state, and the states with which it begins; it fills ``kept``,
changes the cells in place, and returns its output. With s the logistic function and gates i, f, g, o:
LSTM: c' = s(f) c + s(i) tanh(g), h' = s(o) tanh(c'); GRU: n = tanh(i_n + s(r) h_n), h' = n + s(z) (h - n).
"""

from __future__ import annotations


def _logistic(xp, x):
    """1 / (1 + exp(-x)) in place, by tanh, which neither overflows nor rounds badly."""
    x *= 0.5
    xp.tanh(x, out=x)
    x *= 0.5
    x += 0.5
    return x


def _lstm(xp, by_input, by_state, h, c, kept):
    n = c.shape[1]
    gates = kept[:, : 4 * n]
    xp.add(by_input, by_state, out=gates)
    i, f, g, o = (gates[:, k * n : (k + 1) * n] for k in range(4))
    _logistic(xp, gates[:, : 2 * n])
    xp.tanh(g, out=g)
    _logistic(xp, o)
    c *= f
    c += i * g
    kept[:, 4 * n :] = c
    return o * xp.tanh(c)


def _gru(xp, by_input, by_state, h, c, kept):
    n = h.shape[1]
    r, z, new, hn = (kept[:, k * n : (k + 1) * n] for k in range(4))
    both = kept[:, : 2 * n]
    xp.add(by_input[:, : 2 * n], by_state[:, : 2 * n], out=both)
    _logistic(xp, both)
    hn[...] = by_state[:, 2 * n :]
    xp.multiply(r, hn, out=new)
    new += by_input[:, 2 * n :]
    xp.tanh(new, out=new)
    return new + z * (h - new)


def _tanh(xp, by_input, by_state, h, c, kept):
    return xp.tanh(by_input + by_state)


def _relu(xp, by_input, by_state, h, c, kept):
    return xp.maximum(by_input + by_state, 0)


def _lstm_gradient(xp, grad, output, before, cell, kept, by_c, gates_i, gates_h, raw):
    n = cell.shape[1]
    i, f, g, o, c = (kept[:, k * n : (k + 1) * n] for k in range(5))
    di, df, dg, do = (gates_i[:, k * n : (k + 1) * n] for k in range(4))
    t = xp.tanh(c)
    if raw is not None:
        xp.multiply(o, t, out=raw)
    by_c += grad * o * (1 - t * t)
    xp.multiply(by_c * g, i * (1 - i), out=di)
    xp.multiply(by_c * cell, f * (1 - f), out=df)
    xp.multiply(by_c * i, 1 - g * g, out=dg)
    xp.multiply(grad * t, o * (1 - o), out=do)
    by_c *= f
    return None


def _gru_gradient(xp, grad, output, before, cell, kept, by_c, gates_i, gates_h, raw):
    n = before.shape[1]
    r, z, new, hn = (kept[:, k * n : (k + 1) * n] for k in range(4))
    by_new = grad * (1 - z) * (1 - new * new)
    xp.multiply(by_new * hn, r * (1 - r), out=gates_i[:, :n])
    xp.multiply(grad * (before - new), z * (1 - z), out=gates_i[:, n : 2 * n])
    gates_i[:, 2 * n :] = by_new
    gates_h[:, : 2 * n] = gates_i[:, : 2 * n]
    xp.multiply(by_new, r, out=gates_h[:, 2 * n :])
    return grad * z


def _tanh_gradient(xp, grad, output, before, cell, kept, by_c, gates_i, gates_h, raw):
    xp.multiply(grad, 1 - output * output, out=gates_i)


def _relu_gradient(xp, grad, output, before, cell, kept, by_c, gates_i, gates_h, raw):
    xp.multiply(grad, output > 0, out=gates_i)


CELLS = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _tanh, "RNN_RELU": _relu}
GRADIENTS = {"LSTM": _lstm_gradient, "GRU": _gru_gradient, "RNN_TANH": _tanh_gradient, "RNN_RELU": _relu_gradient}
