// LSTM and GRU: one part walks all time steps of its rows of the batch.

#include "exec/cpu/bindings.h"
#include "exec/task_shapes.h"
#include "kernels/cpu/gru.h"
#include "kernels/cpu/lstm.h"

namespace overtake {
namespace {

// Rows of the batch, or of the weights, that parts share out.
std::int64_t rnn_units(const TaskView& v, const kernels::RnnShape& s) {
  return v.kind() == Kind::weight_grad ? v.write(0).shape[0] : s.batch;
}

std::int64_t largest_part(std::int64_t units, std::uint32_t parts) { return (units + parts - 1) / parts; }

// body(begin, end, scratch of this part)
template <class Body>
BoundTask over_rows(const TaskView& v, std::int64_t units, std::int64_t piece, Body body) {
  const std::uint32_t parts = parts_for(v, units);
  std::byte* scratch = v.scratch();
  return {{parts, [=](std::uint32_t part, const StepArgs&) {
             const UnitRange r = part_range(units, part, parts);
             body(r.begin, r.end, scratch == nullptr ? nullptr : scratch + part * piece);
           }}};
}

template <class T>
std::int64_t lstm_piece(const TaskView& v) {
  const kernels::RnnShape s = rnn_shape(v);
  const std::int64_t units = rnn_units(v, s), rows = largest_part(units, parts_for(v, units));
  if (v.kind() == Kind::forward) return scratch_piece(kernels::lstm_forward_scratch_bytes<T>(s, rows));
  if (v.kind() == Kind::input_grad) return scratch_piece(kernels::lstm_input_grad_scratch_bytes<T>(s, rows));
  return scratch_piece(kernels::lstm_weight_grad_scratch_bytes<T>(s));
}

template <class T>
BoundTask lstm_of(const TaskView& v) {
  const kernels::RnnShape s = rnn_shape(v);
  const std::int64_t units = rnn_units(v, s), piece = lstm_piece<T>(v);
  if (v.kind() == Kind::forward) {
    const kernels::LstmWeights<T> w{v.in<T>(1), v.in<T>(2), v.in<float>(3), v.in<float>(4)};
    const kernels::LstmSaved saved{v.out<float>(1), v.out<float>(2)};
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    return over_rows(v, units, piece, [=](std::int64_t begin, std::int64_t end, void* scratch) {
      kernels::lstm_forward<T>(s, w, x, nullptr, nullptr, y, nullptr, nullptr, saved, scratch, begin, end);
    });
  }
  if (v.kind() == Kind::input_grad) {
    const kernels::LstmWeights<T> w{v.in<T>(0), v.in<T>(1), nullptr, nullptr};
    const kernels::LstmSaved saved{const_cast<float*>(v.in<float>(2)), const_cast<float*>(v.in<float>(3))};
    const T* dy = v.in<T>(4);
    T *dgates = v.out<T>(0), *dx = v.out<T>(1);
    return over_rows(v, units, piece, [=](std::int64_t begin, std::int64_t end, void* scratch) {
      kernels::lstm_input_grad<T>(s, w, saved, nullptr, dy, nullptr, nullptr, dgates, dx, nullptr, nullptr, scratch,
                                  begin, end);
    });
  }
  const T *x = v.in<T>(0), *y = v.in<T>(1), *dgates = v.in<T>(2);
  float *dw_ih = v.out<float>(0), *dw_hh = v.out<float>(1), *db_ih = v.out<float>(2), *db_hh = v.out<float>(3);
  return over_rows(v, units, piece, [=](std::int64_t begin, std::int64_t end, void* scratch) {
    kernels::lstm_weight_grad<T>(s, dgates, x, y, nullptr, dw_ih, dw_hh, db_ih, scratch, begin, end);
    std::copy(db_ih + begin, db_ih + end, db_hh + begin);  // both biases enter the same sum
  });
}

template <class T>
std::int64_t gru_piece(const TaskView& v) {
  const kernels::RnnShape s = rnn_shape(v);
  const std::int64_t units = rnn_units(v, s), rows = largest_part(units, parts_for(v, units));
  if (v.kind() == Kind::forward) return scratch_piece(kernels::gru_forward_scratch_bytes<T>(s, rows));
  if (v.kind() == Kind::input_grad) return scratch_piece(kernels::gru_input_grad_scratch_bytes<T>(s, rows));
  return scratch_piece(kernels::gru_weight_grad_scratch_bytes<T>(s));
}

template <class T>
BoundTask gru_of(const TaskView& v) {
  const kernels::RnnShape s = rnn_shape(v);
  const std::int64_t units = rnn_units(v, s), piece = gru_piece<T>(v);
  if (v.kind() == Kind::forward) {
    const kernels::GruWeights<T> w{v.in<T>(1), v.in<T>(2), v.in<float>(3), v.in<float>(4)};
    const T* x = v.in<T>(0);
    T* y = v.out<T>(0);
    float* gates = v.out<float>(1);
    return over_rows(v, units, piece, [=](std::int64_t begin, std::int64_t end, void* scratch) {
      kernels::gru_forward<T>(s, w, x, nullptr, y, nullptr, gates, scratch, begin, end);
    });
  }
  if (v.kind() == Kind::input_grad) {
    const kernels::GruWeights<T> w{v.in<T>(0), v.in<T>(1), nullptr, nullptr};
    const float* gates = v.in<float>(2);
    const T *y = v.in<T>(3), *dy = v.in<T>(4);
    T *dgates = v.out<T>(0), *dx = v.out<T>(1);
    return over_rows(v, units, piece, [=](std::int64_t begin, std::int64_t end, void* scratch) {
      kernels::gru_input_grad<T>(s, w, gates, y, nullptr, dy, nullptr, dgates, dx, nullptr, scratch, begin, end);
    });
  }
  const T *x = v.in<T>(0), *y = v.in<T>(1), *dgates = v.in<T>(2);
  float *dw_ih = v.out<float>(0), *dw_hh = v.out<float>(1), *db_ih = v.out<float>(2), *db_hh = v.out<float>(3);
  return over_rows(v, units, piece, [=](std::int64_t begin, std::int64_t end, void* scratch) {
    kernels::gru_weight_grad<T>(s, dgates, x, y, nullptr, dw_ih, dw_hh, db_ih, db_hh, scratch, begin, end);
  });
}

DType activation_type(const TaskView& v) { return v.kind() == Kind::input_grad ? v.write(0).dtype : v.read(0).dtype; }

BoundTask lstm(const TaskView& v) {
  return with_type(activation_type(v), [&]<class T>(T) { return lstm_of<T>(v); });
}
BoundTask gru(const TaskView& v) {
  return with_type(activation_type(v), [&]<class T>(T) { return gru_of<T>(v); });
}

std::int64_t lstm_scratch(const TaskView& v) {
  const std::int64_t parts = parts_for(v, rnn_units(v, rnn_shape(v)));
  return with_type(activation_type(v), [&]<class T>(T) { return parts * lstm_piece<T>(v); });
}
std::int64_t gru_scratch(const TaskView& v) {
  const std::int64_t parts = parts_for(v, rnn_units(v, rnn_shape(v)));
  return with_type(activation_type(v), [&]<class T>(T) { return parts * gru_piece<T>(v); });
}

}  // namespace

CpuBinding bind_lstm() { return {lstm, lstm_scratch}; }
CpuBinding bind_gru() { return {gru, gru_scratch}; }

}  // namespace overtake
