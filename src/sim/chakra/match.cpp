#include "sim/chakra/match.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/error.h"

namespace overtake::chakra {
namespace {

bool is_send(const Nodes& in, const Transfer& t) { return in.nodes[t.node].kind == Kind::send; }

// "rank1.et: node 7", of the other side of what went wrong.
std::string place(const Nodes& in, const Node& node) {
  return fmt::format("{}: node {}", in.files[node.rank], node.id);
}

void match_messages(const Nodes& in, Matches& out) {
  std::vector<std::uint32_t> list;
  for (std::uint32_t i = 0; i < in.transfers.size(); ++i)
    if (in.transfers[i].peer != kNone) list.push_back(i);
  const auto channel = [&](std::uint32_t i) {
    const Transfer& t = in.transfers[i];
    const std::uint32_t rank = in.nodes[t.node].rank;
    return is_send(in, t) ? std::tuple(rank, t.peer, t.tag) : std::tuple(t.peer, rank, t.tag);
  };
  const auto key = [&](std::uint32_t i) {
    const Node& node = in.nodes[in.transfers[i].node];
    return std::tuple(channel(i), node.kind, node.start_ns, node.id);
  };
  std::ranges::sort(list, {}, key);
  for (std::size_t first = 0, last = 0; first < list.size(); first = last) {
    while (last < list.size() && channel(list[last]) == channel(list[first])) ++last;
    std::size_t middle = first;
    while (middle < last && is_send(in, in.transfers[list[middle]])) ++middle;
    const std::size_t sends = middle - first, recvs = last - middle;
    if (sends != recvs) {
      const bool is_lonely_send = sends > recvs;
      const Transfer& lonely = in.transfers[list[is_lonely_send ? first + recvs : middle + sends]];
      if (lonely.peer >= in.files.size())
        in.fail(in.nodes[lonely.node],
                fmt::format("it {} rank {}, whose file is missing: there are ranks 0 to {}",
                            is_lonely_send ? "sends to" : "receives from", lonely.peer, in.files.size() - 1));
      in.fail(in.nodes[lonely.node],
              fmt::format("a {} rank {} with tag {}, and {} has no {} for it; the files are not of one run",
                          is_lonely_send ? "send to" : "recv from", lonely.peer, lonely.tag, in.files[lonely.peer],
                          is_lonely_send ? "recv" : "send"));
    }
    for (std::size_t i = 0; i < sends; ++i) {
      const std::uint32_t send = list[first + i], recv = list[middle + i];
      const Transfer &from = in.transfers[send], &to = in.transfers[recv];
      if (from.bytes != to.bytes)
        in.fail(in.nodes[from.node],
                fmt::format("it sends {} bytes, and {} receives {} of them; the files are not of one run", from.bytes,
                            place(in, in.nodes[to.node]), to.bytes));
      out.other[send] = recv;
      out.other[recv] = send;
    }
  }
}

// The transfers of one group, or of one number: rank after rank, in the order of each.
class GroupMatcher {
 public:
  GroupMatcher(const Nodes& in, std::span<const std::uint32_t> list) : in_(in) {
    for (const std::uint32_t i : list) {
      if (by_rank_.empty() || node(by_rank_.back().front()).rank != node(i).rank) by_rank_.emplace_back();
      by_rank_.back().push_back(i);
    }
    const Transfer& first = in.transfers[list.front()];
    is_ours_ = first.collective >= 0;
    label_ = is_ours_ ? fmt::format("collective {}", first.collective)
                      : fmt::format("group '{}'", in.groups[first.group].name);
    if (!is_ours_) check_ranks(in.groups[first.group]);
    check_counts();
  }

  std::size_t count() const { return by_rank_.front().size(); }

  // The k-th that all do together.
  std::vector<std::uint32_t> members(std::size_t k) const {
    std::vector<std::uint32_t> out;
    const Transfer& first = in_.transfers[by_rank_.front()[k]];
    for (const auto& list : by_rank_) {
      const Transfer& t = in_.transfers[list[k]];
      const Kind mine = in_.nodes[t.node].kind, theirs = in_.nodes[first.node].kind;
      // In an all-to-all each rank sends what it has; see even_out().
      if (mine != theirs || (t.bytes != first.bytes && mine != Kind::all_to_all))
        in_.fail(in_.nodes[t.node], fmt::format("of {}: {} of {} bytes, but {} is {} of {} bytes; ranks must agree",
                                                label_, to_string(mine), t.bytes, place(in_, in_.nodes[first.node]),
                                                to_string(theirs), first.bytes));
      out.push_back(list[k]);
    }
    return out;
  }

 private:
  const Node& node(std::uint32_t transfer) const { return in_.nodes[in_.transfers[transfer].node]; }

  void check_ranks(const Group& group) const {
    std::vector<std::uint32_t> expected = group.ranks;
    if (expected.empty() && group.name.empty()) {
      expected.resize(in_.files.size());
      std::iota(expected.begin(), expected.end(), 0u);
    }
    if (expected.empty()) return;
    std::vector<std::uint32_t> present;
    for (const auto& list : by_rank_) present.push_back(node(list.front()).rank);
    for (const std::uint32_t rank : expected) {
      if (std::ranges::binary_search(present, rank)) continue;
      if (rank >= in_.files.size())
        in_.fail(node(by_rank_.front().front()), fmt::format("{} has rank {}, whose file is missing", label_, rank));
      in_.fail(node(by_rank_.front().front()),
               fmt::format("{} takes no part in {}; the files are not of one run", in_.files[rank], label_));
    }
    for (const auto& list : by_rank_)
      if (!std::ranges::binary_search(expected, std::uint32_t{node(list.front()).rank}))
        in_.fail(node(list.front()), fmt::format("rank {} is not of {}", node(list.front()).rank, label_));
  }

  void check_counts() const {
    const auto [least, most] = std::ranges::minmax_element(by_rank_, {}, [](const auto& list) { return list.size(); });
    if (is_ours_ && most->size() > 1) in_.fail(node((*most)[1]), fmt::format("it is twice in {}", label_));
    if (least->size() < most->size())
      in_.fail(node((*most)[least->size()]),
               fmt::format("it is number {} in {}, and {} has only {}; the files are not of one run", least->size() + 1,
                           label_, in_.files[node(least->front()).rank], least->size()));
  }

  const Nodes& in_;
  std::vector<std::vector<std::uint32_t>> by_rank_;
  bool is_ours_ = false;
  std::string label_;
};

void match_collectives(const Nodes& in, Matches& out) {
  std::vector<std::uint32_t> list;
  std::int64_t next_number = 0;
  for (std::uint32_t i = 0; i < in.transfers.size(); ++i) {
    if (in.transfers[i].peer != kNone) continue;
    list.push_back(i);
    next_number = std::max(next_number, in.transfers[i].collective + 1);
  }
  const auto whole = [&](std::uint32_t i) {
    const Transfer& t = in.transfers[i];
    return t.collective >= 0 ? std::pair(false, t.collective) : std::pair(true, std::int64_t{t.group});
  };
  std::ranges::sort(list, {}, [&](std::uint32_t i) {
    const Node& node = in.nodes[in.transfers[i].node];
    return std::tuple(whole(i), node.rank, node.start_ns, node.id);
  });
  for (std::size_t first = 0, last = 0; first < list.size(); first = last) {
    while (last < list.size() && whole(list[last]) == whole(list[first])) ++last;
    const GroupMatcher group(in, std::span(list).subspan(first, last - first));
    for (std::size_t k = 0; k < group.count(); ++k) {
      const auto [is_theirs, number] = whole(list[first]);
      Collective collective{.number = is_theirs ? next_number++ : number, .members = {}};
      for (const std::uint32_t i : group.members(k)) {
        collective.members.push_back(in.transfers[i].node);
        out.other[i] = static_cast<std::uint32_t>(out.collectives.size());
      }
      out.collectives.push_back(std::move(collective));
    }
  }
}

}  // namespace

Matches match(const Nodes& nodes) {
  Matches out;
  out.other.assign(nodes.transfers.size(), kNone);
  match_messages(nodes, out);
  match_collectives(nodes, out);
  return out;
}

std::size_t even_out(Nodes& nodes, const Matches& matches) {
  std::size_t uneven = 0;
  for (const Collective& collective : matches.collectives) {
    if (nodes.nodes[collective.members[0]].kind != Kind::all_to_all) continue;
    const auto bytes = [&](TaskId member) -> std::int64_t& {
      return nodes.transfers[nodes.nodes[member].transfer].bytes;
    };
    std::int64_t most = 0;
    for (const TaskId member : collective.members) most = std::max(most, bytes(member));
    const bool is_even = std::ranges::all_of(collective.members, [&](TaskId member) { return bytes(member) == most; });
    if (!is_even) ++uneven;
    for (const TaskId member : collective.members) bytes(member) = most;
  }
  return uneven;
}

}  // namespace overtake::chakra
