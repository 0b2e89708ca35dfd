// SPDX-License-Identifier: GPL-2.0-or-later
#include "metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace pcilend {
namespace {

struct Label {
  std::string_view name;
  std::string value;
};

struct Sample {
  std::vector<Label> labels;
  uint64_t value = 0;
};

// A label's value as the format writes it.
std::string escaped(std::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text + '"';
}

class Writer {
 public:
  // `type`: gauge or counter. Nothing if there are no samples.
  void family(std::string_view name, std::string_view type, std::string_view help,
              const std::vector<Sample>& samples) {
    if (samples.empty()) return;
    const std::string full = fmt::format("pcilend_{}{}", name, type == "counter" ? "_total" : "");
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", full, help, full, type);
    for (const auto& sample : samples) {
      std::vector<std::string> labels;
      for (const auto& label : sample.labels)
        labels.push_back(fmt::format("{}={}", label.name, escaped(label.value)));
      text_ += full;
      if (!labels.empty()) text_ += fmt::format("{{{}}}", fmt::join(labels, ","));
      text_ += fmt::format(" {}\n", sample.value);
    }
  }
  std::string finish() && { return std::move(text_); }

 private:
  std::string text_;
};

std::vector<Label> link_labels(const Link& link, std::vector<Label> more = {}) {
  std::vector<Label> labels{{"link", std::to_string(link.index)},
                            {"adapter", link.adapter},
                            {"node", link.peer ? std::to_string(*link.peer) : ""}};
  std::move(more.begin(), more.end(), std::back_inserter(labels));
  return labels;
}

template <class Things, class Matches>
std::vector<Sample> by_state(const Things& things, uint32_t first, uint32_t last,
                             std::string_view (*name)(uint32_t), Matches matches) {
  std::vector<Sample> samples;
  for (uint32_t state = first; state <= last; ++state) {
    const auto count = std::count_if(things.begin(), things.end(), [&](const auto& thing) {
      return thing.state == state && matches(thing);
    });
    samples.push_back({{{"state", std::string(name(state))}}, static_cast<uint64_t>(count)});
  }
  return samples;
}

std::vector<Sample> each_link(const std::vector<Link>& links, uint64_t Link::*value) {
  std::vector<Sample> samples;
  for (const auto& link : links) samples.push_back({link_labels(link), link.*value});
  return samples;
}

template <class Value>
std::vector<Sample> each_region(const std::vector<Link>& links, Value value) {
  std::vector<Sample> samples;
  for (const auto& link : links) {
    for (const auto& region : link.regions) {
      if (const std::optional<uint64_t> bytes = value(region))
        samples.push_back(
            {link_labels(link, {{"kind", std::string(region_kind_name(region.kind))}}), *bytes});
    }
  }
  return samples;
}

void write_links(Writer& out, const std::vector<Link>& links) {
  out.family("links", "gauge", "Links to peers by state.",
             by_state(links, PCILEND_LINK_DOWN, PCILEND_LINK_REFUSED, link_state_name,
                      [](const Link&) { return true; }));
  std::vector<Sample> messages;
  for (const auto& link : links) {
    messages.push_back({link_labels(link, {{"direction", "sent"}}), link.tx_messages});
    messages.push_back({link_labels(link, {{"direction", "received"}}), link.rx_messages});
  }
  out.family("link_messages", "counter", "Control messages.", messages);
  out.family("link_bad_messages", "counter", "Messages received and refused as malformed.",
             each_link(links, &Link::bad_messages));
  out.family("link_timeouts", "counter", "Requests without an answer.",
             each_link(links, &Link::timeouts));
  std::vector<Sample> leases;
  for (const auto& link : links) leases.push_back({link_labels(link), link.leases.value_or(0)});
  out.family("link_leases", "gauge", "Functions borrowed and lent over a link.", leases);
  out.family("link_downs", "counter", "Times a link was lost.", each_link(links, &Link::downs));
  out.family("aperture_size_bytes", "gauge", "Size of the ranges of the aperture.",
             each_region(links, [](const Region& r) { return std::optional(r.size); }));
  out.family("aperture_used_bytes", "gauge", "What of them peers can reach now.",
             each_region(links, [](const Region& r) { return r.used; }));
}

void write_functions(Writer& out, const MetricsAnswer& metrics) {
  const uint32_t node = metrics.node.id;
  const auto& functions = metrics.functions;
  out.family("functions", "gauge", "Functions of this host by state.",
             by_state(functions, PCILEND_FUNCTION_ADDED, PCILEND_FUNCTION_QUARANTINED,
                      function_state_name, [&](const Function& f) { return f.lender == node; }));
  const auto leases = [&](auto party) {
    return static_cast<uint64_t>(std::count_if(
        functions.begin(), functions.end(),
        [&](const Function& f) { return f.state == PCILEND_FUNCTION_BORROWED && party(f); }));
  };
  out.family("leases", "gauge", "Leases now, by what this host is in them.",
             {{{{"role", "lender"}}, leases([&](const Function& f) { return f.lender == node; })},
              {{{"role", "borrower"}},
               leases([&](const Function& f) { return f.borrower == node && f.lender != node; })}});
}

std::vector<Label> function_labels(const Function& f, std::vector<Label> more = {}) {
  std::vector<Label> labels{{"function", to_string(f.id)}};
  std::move(more.begin(), more.end(), std::back_inserter(labels));
  return labels;
}

// One sample of each function that has the value.
template <class Value>
std::vector<Sample> each_function(const std::vector<Function>& functions, Value value) {
  std::vector<Sample> samples;
  for (const auto& f : functions)
    if (const std::optional<uint64_t> number = value(f))
      samples.push_back({function_labels(f), *number});
  return samples;
}

std::string number_text(const std::optional<uint32_t>& number) {
  return number ? std::to_string(*number) : "";
}

// Milliseconds of the kernel, in seconds.
std::optional<uint64_t> seconds(const std::optional<uint32_t>& ms) {
  return ms ? std::optional<uint64_t>(*ms / 1000) : std::nullopt;
}

void write_each_function(Writer& out, const MetricsAnswer& metrics) {
  const auto& functions = metrics.functions;
  std::vector<Sample> infos;
  std::vector<Sample> states;
  std::vector<Sample> leases;
  for (const auto& f : functions) {
    infos.push_back({function_labels(f, {{"uuid", to_string(f.uuid)},
                                         {"lender", std::to_string(f.lender)},
                                         {"bdf", f.bdf},
                                         {"vendor_id", fmt::format("{:04x}", f.vendor)},
                                         {"device_id", fmt::format("{:04x}", f.device)},
                                         {"label", f.label}}),
                     1});
    for (uint32_t state = PCILEND_FUNCTION_ADDED; state <= PCILEND_FUNCTION_QUARANTINED; ++state)
      states.push_back({function_labels(f, {{"state", std::string(function_state_name(state))}}),
                        f.state == state});
    if (f.borrower)
      leases.push_back({function_labels(f, {{"borrower", number_text(f.borrower)},
                                            {"owner", f.owner},
                                            {"frontend", f.frontend},
                                            {"adapter", f.adapter}}),
                        1});
  }
  out.family("function_info", "gauge", "What a function of this host or of a peer is.", infos);
  out.family("function_state", "gauge", "1 for the state that a function is in.", states);
  out.family("function_lease_info", "gauge",
             "Who has a function; the owner and the frontend are known on the borrower.", leases);
  out.family("function_quarantined", "gauge", "1 if a function waits for somebody to look at it.",
             each_function(functions, [](const Function& f) {
               return std::optional<uint64_t>(f.state == PCILEND_FUNCTION_QUARANTINED);
             }));
  out.family("function_lease_left_seconds", "gauge",
             "Time until the lease ends if its borrower stays silent, on the lender.",
             each_function(functions, [](const Function& f) { return seconds(f.lease_left_ms); }));
  out.family("function_recall_left_seconds", "gauge",
             "Time until the lender takes a function back that it wants back.",
             each_function(functions, [](const Function& f) { return seconds(f.recall_ms); }));
  out.family("function_mapped_bytes", "gauge",
             "Memory that a user of VFIO, such as a guest, has mapped for a function, on the "
             "borrower.",
             each_function(functions, [](const Function& f) { return f.guest_bytes; }));
  out.family("function_near_bytes", "gauge",
             "Memory of this host beside a function of it, for its borrower.",
             each_function(functions, [&](const Function& f) {
               return f.lender == metrics.node.id ? std::optional(f.near_used) : std::nullopt;
             }));
  out.family("function_clients", "gauge", "Clients of a function of this host that is shared.",
             each_function(functions, [&](const Function& f) {
               return f.lender == metrics.node.id && f.shared
                          ? std::optional<uint64_t>(f.clients.size())
                          : std::nullopt;
             }));
  out.family("function_paths", "gauge",
             "Links over which a function of a peer can be reached now; 0: it can't be.",
             each_function(functions, [&](const Function& f) {
               return f.lender != metrics.node.id ? std::optional<uint64_t>(f.paths.size())
                                                  : std::nullopt;
             }));
  out.family("function_resets", "counter", "Resets of a function of this host since it was added.",
             each_function(functions, [](const Function& f) {
               return f.resets ? std::optional<uint64_t>(*f.resets) : std::nullopt;
             }));
  out.family("function_dma_faults", "gauge",
             "DMA faults of a function of this host in its present lease.",
             each_function(functions, [](const Function& f) { return f.faults; }));
}

// One sample of each node.
std::vector<Sample> each_node(const std::map<uint32_t, uint64_t>& values) {
  std::vector<Sample> samples;
  for (const auto& [node, value] : values)
    samples.push_back({{{"node", std::to_string(node)}}, value});
  return samples;
}

void write_segments(Writer& out, const MetricsAnswer& metrics) {
  uint64_t own = 0;
  uint64_t pinned = 0;
  std::map<uint32_t, uint64_t> offered;
  std::map<uint32_t, uint64_t> users;
  std::map<uint32_t, uint64_t> connected;
  std::map<uint32_t, uint64_t> connected_bytes;
  for (const auto& segment : metrics.segments) {
    if (segment.id.node() != metrics.node.id) {
      ++connected[segment.id.node()];
      connected_bytes[segment.id.node()] += segment.size;
      continue;
    }
    if (segment.state != PCILEND_SEGMENT_WITHDRAWN) {
      ++own;
      pinned += segment.size;
    }
    for (const auto& offer : segment.offers) {
      offered[offer.node] += offer.withdrawn ? 0 : segment.size;
      users[offer.node] += offer.connections;
    }
  }
  out.family("segments", "gauge", "Segments of this host.", {{{}, own}});
  out.family("segment_bytes", "gauge", "Memory of this host that they pin.", {{{}, pinned}});
  out.family("segment_offered_bytes", "gauge", "Memory of them that a node reaches.",
             each_node(offered));
  out.family("segment_users", "gauge",
             "Connections of a node to them; withdrawn ones, until it has confirmed that.",
             each_node(users));
  out.family("segment_connections", "gauge", "Connections of this host to a node's segments.",
             each_node(connected));
  out.family("segment_connected_bytes", "gauge", "Memory of a node that they show.",
             each_node(connected_bytes));
}

void write_counters(Writer& out, const Counters& counters) {
  for (const auto& counter : counter_list())
    out.family(counter.name, "counter", counter.help, {{{}, counters.*counter.value}});
}

}  // namespace

std::span<const Counter> counter_list() {
  static constexpr Counter kCounters[] = {
      {"leases_granted", &Counters::granted, "Leases granted to borrowers."},
      {"leases_returned", &Counters::returned, "Leases that borrowers ended."},
      {"leases_expired", &Counters::expired, "Leases that ended for want of a heartbeat."},
      {"leases_revoked", &Counters::revoked, "Leases that this host took back."},
      {"requests_refused", &Counters::refused, "Requests of borrowers that were refused."},
      {"resets", &Counters::resets, "Resets of functions of this host."},
      {"reset_failures", &Counters::reset_failures,
       "Resets after which a function was quarantined."},
      {"dma_faults", &Counters::faults, "DMA faults of lent functions."},
      {"functions_borrowed", &Counters::borrowed, "Functions of peers that this host borrowed."},
      {"leases_lost", &Counters::lost, "Leases of this host that ended without its doing."},
      {"interrupts_relayed", &Counters::relayed, "Interrupts that this host relayed to borrowers."},
      {"strangers_refused", &Counters::strangers,
       "Peers refused, as their node is known elsewhere."},
  };
  return kCounters;
}

std::string metrics_text(const MetricsAnswer& metrics) {
  Writer out;
  out.family("node_info", "gauge", "This host.",
             {{{{"id", std::to_string(metrics.node.id)},
                {"boot_id", fmt::format("{:016x}", metrics.node.boot_id)},
                {"protocol", std::to_string(metrics.node.abi)}},
               1}});
  write_links(out, metrics.links);
  write_functions(out, metrics);
  write_each_function(out, metrics);
  write_segments(out, metrics);
  write_counters(out, metrics.counters);
  return std::move(out).finish();
}

}  // namespace pcilend
