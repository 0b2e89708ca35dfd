// SPDX-License-Identifier: GPL-2.0-or-later
#include "metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

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
  // `type`: gauge, counter or info; `unit`, if there is one, is the last word of `name`.
  void family(std::string_view name, std::string_view type, std::string_view unit,
              std::string_view help, const std::vector<Sample>& samples) {
    const std::string full = fmt::format("pcilend_{}", name);
    text_ += fmt::format("# TYPE {} {}\n", full, type);
    if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", full, unit);
    text_ += fmt::format("# HELP {} {}\n", full, help);
    const std::string_view suffix = type == "counter" ? "_total" : type == "info" ? "_info" : "";
    for (const auto& sample : samples) {
      std::vector<std::string> labels;
      for (const auto& label : sample.labels)
        labels.push_back(fmt::format("{}={}", label.name, escaped(label.value)));
      text_ += full;
      text_ += suffix;
      if (!labels.empty()) text_ += fmt::format("{{{}}}", fmt::join(labels, ","));
      text_ += fmt::format(" {}\n", sample.value);
    }
  }
  void counter(std::string_view name, std::string_view help, uint64_t value) {
    family(name, "counter", "", help, {{{}, value}});
  }
  std::string finish() && { return std::move(text_) + "# EOF\n"; }

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
  out.family("links", "gauge", "", "Links to peers by state.",
             by_state(links, PCILEND_LINK_DOWN, PCILEND_LINK_REFUSED, link_state_name,
                      [](const Link&) { return true; }));
  std::vector<Sample> messages;
  for (const auto& link : links) {
    messages.push_back({link_labels(link, {{"direction", "sent"}}), link.tx_messages});
    messages.push_back({link_labels(link, {{"direction", "received"}}), link.rx_messages});
  }
  out.family("link_messages", "counter", "", "Control messages.", messages);
  out.family("link_bad_messages", "counter", "", "Messages received and refused as malformed.",
             each_link(links, &Link::bad_messages));
  out.family("link_timeouts", "counter", "", "Requests without an answer.",
             each_link(links, &Link::timeouts));
  std::vector<Sample> leases;
  for (const auto& link : links) leases.push_back({link_labels(link), link.leases.value_or(0)});
  out.family("link_leases", "gauge", "", "Functions borrowed and lent over a link.", leases);
  out.family("link_downs", "counter", "", "Times a link was lost.", each_link(links, &Link::downs));
  out.family("aperture_size_bytes", "gauge", "bytes", "Size of the ranges of the aperture.",
             each_region(links, [](const Region& r) { return std::optional(r.size); }));
  out.family("aperture_used_bytes", "gauge", "bytes", "What of them peers can reach now.",
             each_region(links, [](const Region& r) { return r.used; }));
}

void write_functions(Writer& out, const MetricsAnswer& metrics) {
  const uint32_t node = metrics.node.id;
  const auto& functions = metrics.functions;
  out.family("functions", "gauge", "", "Functions of this host by state.",
             by_state(functions, PCILEND_FUNCTION_ADDED, PCILEND_FUNCTION_QUARANTINED,
                      function_state_name, [&](const Function& f) { return f.lender == node; }));
  const auto leases = [&](auto party) {
    return static_cast<uint64_t>(std::count_if(
        functions.begin(), functions.end(),
        [&](const Function& f) { return f.state == PCILEND_FUNCTION_BORROWED && party(f); }));
  };
  out.family("leases", "gauge", "", "Leases now, by what this host is in them.",
             {{{{"role", "lender"}}, leases([&](const Function& f) { return f.lender == node; })},
              {{{"role", "borrower"}},
               leases([&](const Function& f) { return f.borrower == node && f.lender != node; })}});
}

void write_counters(Writer& out, const Counters& counters) {
  out.counter("leases_granted", "Leases granted to borrowers.", counters.granted);
  out.counter("leases_returned", "Leases that borrowers ended.", counters.returned);
  out.counter("leases_expired", "Leases that ended for want of a heartbeat.", counters.expired);
  out.counter("leases_revoked", "Leases that this host took back.", counters.revoked);
  out.counter("requests_refused", "Requests of borrowers that were refused.", counters.refused);
  out.counter("resets", "Resets of functions of this host.", counters.resets);
  out.counter("reset_failures", "Resets after which a function was quarantined.",
              counters.reset_failures);
  out.counter("dma_faults", "DMA faults of lent functions.", counters.faults);
  out.counter("functions_borrowed", "Functions of peers that this host borrowed.",
              counters.borrowed);
  out.counter("leases_lost", "Leases of this host that ended without its doing.", counters.lost);
  out.counter("interrupts_relayed", "Interrupts that this host relayed to borrowers.",
              counters.relayed);
  out.counter("strangers_refused", "Peers refused, as their node is known elsewhere.",
              counters.strangers);
}

}  // namespace

std::string metrics_text(const MetricsAnswer& metrics) {
  Writer out;
  out.family("node", "info", "", "This host.",
             {{{{"id", std::to_string(metrics.node.id)},
                {"boot_id", fmt::format("{:016x}", metrics.node.boot_id)},
                {"protocol", std::to_string(metrics.node.abi)}},
               1}});
  write_links(out, metrics.links);
  write_functions(out, metrics);
  write_counters(out, metrics.counters);
  return std::move(out).finish();
}

}  // namespace pcilend
