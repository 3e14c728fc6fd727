// Attention from softmax(scale q k^T + mask) v, whatever views q, k and v are of what they were computed as.

#include <algorithm>
#include <array>
#include <cmath>

#include "passes/recognise_rules.h"
#include "rewrite/move_chain.h"
#include "rewrite/pattern.h"

namespace overtake {
namespace {

constexpr double kHidden = -1e4;  // what a mask adds to a score that is not to count, or less

// softmax(scale * product + mask) over the last dimension
struct Scores {
  TaskId product = kNone;  // the matmul
  double scale = 1;
  bool is_causal = false;
};

enum class Mask { none, causal, other };

// `mask` times `scale` is broadcast to scores [..., queries, keys].
Mask kind_of_mask(std::span<const float> mask, const Shape& shape, double scale, std::int64_t queries,
                  std::int64_t keys) {
  const std::int64_t columns = shape.rank > 0 ? shape.back() : 1;
  const std::int64_t rows = shape.rank > 1 ? shape[shape.rank - 2u] : 1;
  const std::span<const float> first = mask.first(static_cast<std::size_t>(rows * columns));
  for (std::size_t at = first.size(); at < mask.size(); at += first.size())
    if (!std::ranges::equal(mask.subspan(at, first.size()), first)) return Mask::other;
  if (std::ranges::all_of(first, [](float x) { return x == 0; })) return Mask::none;
  if (rows != queries || columns != keys || queries != keys) return Mask::other;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const double x = static_cast<double>(first[static_cast<std::size_t>(i * columns + j)]);
      if (j <= i ? x != 0 : !(x * scale <= kHidden)) return Mask::other;
    }
  return Mask::causal;
}

bool has_same_last_two(const Shape& a, const Shape& b) {
  return a.rank >= 2 && b.rank >= 2 && a.back() == b.back() && a[a.rank - 2u] == b[b.rank - 2u];
}

// Goes back from what the softmax is of to the matmul.
std::optional<Scores> find_scores(const Rewriter& g, BufferId b, MatchedTasks& group) {
  Scores scores;
  bool has_mask = false;
  for (TaskId t = g.writer(b); t != kNone; t = g.writer(b)) {
    group.push_back(t);
    const Shape& shape = g.shape(b);
    if (g.op(t) == Op::matmul) {
      scores.product = t;
      return scores;
    }
    BufferId next = g.in(t, 0);
    if (g.op(t) == Op::add || g.op(t) == Op::mul) {
      const std::size_t at = g.values(next).empty() ? 1 : 0;  // of the constant
      const BufferId constant = g.in(t, at);
      const auto values = g.values(constant);
      next = g.in(t, 1 - at);
      if (values.empty() || g.shape(next) != shape) return std::nullopt;
      if (g.op(t) == Op::mul) {
        if (values.size() != 1) return std::nullopt;
        scores.scale *= static_cast<double>(values[0]);
      } else {
        const Mask mask = kind_of_mask(values, g.shape(constant), scores.scale, shape[shape.rank - 2u], shape.back());
        if (mask == Mask::other || has_mask) return std::nullopt;
        has_mask = true;
        scores.is_causal = mask == Mask::causal;
      }
    } else if (g.op(t) != Op::reshape) {
      return std::nullopt;
    }
    // A reshape may only join or split what is before the last two dimensions.
    if (!has_same_last_two(shape, g.shape(next))) return std::nullopt;
    b = next;
  }
  return std::nullopt;
}

// An operand of a product: scale * what `view` shows of `base`.
struct Operand {
  BufferId base = kNone;
  StridedView view{Shape{}};
  double scale = 1;
};

// Looks through moves and, where asked for, through products with a number that nobody else reads.
Operand look_through(const Rewriter& g, BufferId b, bool through_scale) {
  std::vector<TaskId> way;  // last first
  for (TaskId t = g.writer(b); t != kNone; t = g.writer(b)) {
    const bool is_move = g.op(t) == Op::reshape || g.op(t) == Op::transpose || g.op(t) == Op::slice;
    const bool is_scale = through_scale && g.op(t) == Op::mul && g.readers(b) == 1;
    if (!is_move && !is_scale) break;
    std::size_t at = 0;
    if (is_scale) {
      at = g.scalar(g.in(t, 0)) ? 1 : 0;
      if (!g.scalar(g.in(t, 1 - at)) || g.shape(g.in(t, at)) != g.shape(b)) break;
    }
    way.push_back(t);
    b = g.in(t, at);
  }
  Operand x{b, StridedView(g.shape(b))};
  for (std::size_t i = way.size(); i-- > 0;) {
    const TaskId t = way[i];
    if (g.op(t) == Op::mul)
      x.scale *= *g.scalar(g.scalar(g.in(t, 0)) ? g.in(t, 0) : g.in(t, 1));
    else if (!apply_move(g, t, x.view))
      x = {g.out(t), StridedView(g.shape(g.out(t)))};
  }
  return x;
}

// One of q, k, v as columns [offset, offset + heads * depth) of the rows of a tensor [batch, length, width], or
// [length, batch, width].
struct Columns {
  BufferId base = kNone;
  std::int64_t length = 0, width = 0, offset = 0;
  bool is_length_first = false;
};

struct Sizes {
  std::int64_t batch = 0, heads = 0, queries = 0, keys = 0, depth = 0;
  std::int64_t width() const { return heads * depth; }
};

// `x` is [batch, heads, length, depth], the first two perhaps joined.
std::optional<Columns> columns_of(const Rewriter& g, const Operand& x, const Sizes& sizes, std::int64_t length) {
  StridedView view = x.view;
  if (!view.reshape({sizes.batch, sizes.heads, length, sizes.depth})) return std::nullopt;
  if (std::ranges::any_of(view.dims, [](const auto& dim) { return dim.size() > 1; })) return std::nullopt;
  const auto has_stride = [&](std::size_t dim, std::int64_t stride) {
    return view.dims[dim].empty() || view.dims[dim][0].stride == stride;
  };
  const std::int64_t rows = sizes.batch * length, elements = g.shape(x.base).elements();
  if (elements % rows != 0 || !has_stride(1, sizes.depth) || !has_stride(3, 1)) return std::nullopt;
  Columns c{x.base, length, elements / rows, view.offset};
  if (c.offset + sizes.width() > c.width) return std::nullopt;
  if (has_stride(0, length * c.width) && has_stride(2, c.width)) return c;
  c.is_length_first = true;
  if (has_stride(0, c.width) && has_stride(2, sizes.batch * c.width)) return c;
  return std::nullopt;
}

// What is known once the group is found.
struct Match {
  Sizes sizes = {};
  std::array<Columns, 3> columns = {};  // q, k, v
  double scale = 1;
  bool is_causal = false;

  bool is_packed() const {
    for (std::size_t i = 0; i < 3; ++i) {
      const Columns& c = columns[i];
      const bool fits = c.base == columns[0].base && c.is_length_first == columns[0].is_length_first &&
                        c.length == columns[0].length && c.width == 3 * sizes.width() &&
                        c.offset == static_cast<std::int64_t>(i) * sizes.width();
      if (!fits) return false;
    }
    return true;
  }
};

// Where the heads are joined with the batch only what is before tells how many of each there are.
std::vector<std::int64_t> possible_batches(const Rewriter& g, const Shape& product, const Operand& q) {
  if (product.rank == 4) return {product[0]};
  const Shape& base = g.shape(q.base);
  std::vector<std::int64_t> batches;
  if (base.rank >= 3) batches = {base[0], base[1]};
  for (const auto& axis : q.view.dims[0]) batches.push_back(axis.extent);
  batches.push_back(1);
  std::erase_if(batches, [&](std::int64_t n) { return product[0] % n != 0; });
  return batches;
}

// softmax(...) v, seen from its last product; nobody else reads anything between.
std::optional<Scores> find_group(const Rewriter& g, TaskId t) {
  if (g.op(t) != Op::matmul || g.attrs(t).integer("trans_a", 0) != 0 || g.attrs(t).real("scale", 1.0) != 1.0)
    return std::nullopt;
  MatchedTasks group{t};
  const BufferId weights = without_reshape(g, g.in(t, 0), group);
  const TaskId softmax = g.writer(weights, Op::softmax);
  if (softmax == kNone) return std::nullopt;
  group.push_back(softmax);
  const bool is_over_keys = g.attrs(softmax).integer("axis") == g.shape(weights).rank - 1;
  if (!is_over_keys || !has_same_last_two(g.shape(g.in(t, 0)), g.shape(weights))) return std::nullopt;
  const auto scores = find_scores(g, g.in(softmax, 0), group);
  const auto is_batched = [&](TaskId product) {
    const std::size_t rank = g.shape(g.out(product)).rank;
    return (rank == 3 || rank == 4) && g.shape(g.in(product, 1)).rank == rank;
  };
  return scores && is_batched(scores->product) && is_batched(t) && is_closed(g, group, t) ? scores : std::nullopt;
}

std::optional<Match> match_attention(const Rewriter& g, TaskId t) {
  const auto scores = find_group(g, t);
  if (!scores) return std::nullopt;
  const TaskId product = scores->product;
  const Attrs& attrs = g.attrs(product);
  Operand q = look_through(g, g.in(product, 0), true), k = look_through(g, g.in(product, 1), true);
  Operand v = look_through(g, g.in(t, 1), false);
  const bool is_q_transposed = attrs.integer("trans_a", 0) != 0;
  if (is_q_transposed) q.view.swap_last_two();
  if (attrs.integer("trans_b", 0) == 0) k.view.swap_last_two();
  if (g.attrs(t).integer("trans_b", 0) != 0) v.view.swap_last_two();

  const Shape &first = g.shape(g.out(product)), &last = g.shape(g.out(t)), &in = g.shape(g.in(product, 0));
  Match m{.scale = scores->scale * attrs.real("scale", 1.0) * q.scale * k.scale, .is_causal = scores->is_causal};
  m.sizes.queries = first[first.rank - 2u];
  m.sizes.keys = first.back();
  m.sizes.depth = in[in.rank - (is_q_transposed ? 2u : 1u)];
  if (last.back() != m.sizes.depth || m.scale == 0 || !std::isfinite(m.scale)) return std::nullopt;

  const std::int64_t batch_and_heads = first.elements() / (m.sizes.queries * m.sizes.keys);
  for (const std::int64_t batch : possible_batches(g, last.rank == 4 ? last : first, q)) {
    m.sizes.batch = batch;
    m.sizes.heads = batch_and_heads / batch;
    const auto cq = columns_of(g, q, m.sizes, m.sizes.queries), ck = columns_of(g, k, m.sizes, m.sizes.keys),
               cv = columns_of(g, v, m.sizes, m.sizes.keys);
    if (!cq || !ck || !cv) continue;
    m.columns = {*cq, *ck, *cv};
    return m;
  }
  return std::nullopt;
}

// The rows that some columns are of, as [batch, length, width].
BufferId insert_rows(Rewriter& g, TaskId t, const Columns& c, std::int64_t batch) {
  const Shape wanted = c.is_length_first ? Shape{c.length, batch, c.width} : Shape{batch, c.length, c.width};
  BufferId x = c.base;
  if (g.shape(x) != wanted)
    x = g.insert(t, Op::reshape, {{"shape", std::vector<std::int64_t>(wanted.span().begin(), wanted.span().end())}},
                 {x});
  return c.is_length_first ? g.insert(t, Op::transpose, {{"order", std::vector<std::int64_t>{1, 0, 2}}}, {x}) : x;
}

// q, k and v as the op wants them: [batch, length, width] each, or all in one.
std::vector<BufferId> insert_operands(Rewriter& g, TaskId t, const Match& m) {
  if (m.is_packed()) return {insert_rows(g, t, m.columns[0], m.sizes.batch), kNone, kNone};
  std::array<BufferId, 3> rows{};
  std::vector<BufferId> operands;
  for (std::size_t i = 0; i < 3; ++i) {
    const Columns& c = m.columns[i];
    const auto is_same = [&](const Columns& other) {
      return other.base == c.base && other.length == c.length && other.is_length_first == c.is_length_first;
    };
    std::size_t seen = 0;
    while (!is_same(m.columns[seen])) ++seen;
    rows[i] = seen < i ? rows[seen] : insert_rows(g, t, c, m.sizes.batch);
    const std::int64_t end = c.offset + m.sizes.width();
    const Attrs part{{"axis", std::int64_t{2}}, {"begin", c.offset}, {"end", end}};
    operands.push_back(c.width == m.sizes.width() ? rows[i] : g.insert(t, Op::slice, part, {rows[i]}));
  }
  return operands;
}

}  // namespace

bool recognise_attention(Rewriter& g, TaskId t) {
  const auto m = match_attention(g, t);
  if (!m) return false;
  const Sizes& s = m->sizes;
  std::vector<BufferId> operands = insert_operands(g, t, *m);
  operands.push_back(kNone);  // no mask of the host's
  Attrs attrs{{"heads", s.heads}, {"causal", std::int64_t{m->is_causal}}};
  if (!is_close(m->scale, 1 / std::sqrt(static_cast<double>(s.depth)), 1e-6)) attrs.set("scale", m->scale);
  const BufferId o = g.insert(t, Op::attention, attrs, operands);  // [batch, queries, width]

  // What the product made: [batch, heads, queries, depth], the first two perhaps joined.
  const std::vector<std::int64_t> split{s.batch, s.queries, s.heads, s.depth}, order{0, 2, 1, 3};
  const BufferId rows = g.insert(t, Op::reshape, {{"shape", split}}, {o});
  const Shape made = g.shape(g.out(t));
  if (made == Shape{s.batch, s.heads, s.queries, s.depth}) {
    g.become(t, Op::transpose, {{"order", order}}, {rows});
  } else {
    const BufferId heads = g.insert(t, Op::transpose, {{"order", order}}, {rows});
    const std::vector<std::int64_t> joined(made.span().begin(), made.span().end());
    g.become(t, Op::reshape, {{"shape", joined}}, {heads});
  }
  return true;
}

}  // namespace overtake
