// SPDX-License-Identifier: GPL-2.0-or-later
// Holds the metrics against the rules of Prometheus' text format 0.0.4, and docs/metrics.md.
#include "metrics.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace pcilend::test {
namespace {

// With a sample of every family.
MetricsAnswer sample() {
  MetricsAnswer metrics;
  metrics.node.id = 8;
  Link link;
  link.adapter = "a \"quoted\\\" one\n";
  link.regions = {{PCILEND_REGION_DMA, 0, 4096, 0, {}},
                  {PCILEND_REGION_INTERRUPTS, 0, 4096, 0, {}},
                  {PCILEND_REGION_EXPORTS, 0, 8192, 1, 0},
                  {PCILEND_REGION_SLOTS, 0, 8192, 0, 42}};
  Link other;
  other.index = 1;
  other.peer = 4;
  metrics.links = {link, other};
  Function lent;
  lent.lender = 8;
  lent.state = PCILEND_FUNCTION_BORROWED;
  lent.borrower = 4;
  lent.id.value = 0x80001;
  lent.lease_left_ms = 9500;
  lent.recall_ms = 5000;
  lent.faults = 1;
  lent.resets = 3;
  lent.near_used = 65536;
  lent.shared = true;
  lent.clients.resize(2);
  Function borrowed;
  borrowed.id.value = 0x40001;
  borrowed.owner = "user root";
  borrowed.frontend = "vfio";
  borrowed.guest_bytes = 4096;
  borrowed.paths = {"0000:00:04.0"};
  borrowed.lender = 4;
  borrowed.state = PCILEND_FUNCTION_BORROWED;
  borrowed.borrower = 8;
  metrics.functions = {lent, borrowed};
  Segment own;
  own.id.value = 0x80001;
  own.size = 8192;
  own.state = PCILEND_SEGMENT_CONNECTED;
  own.offers = {{4, "0000:00:04.0", false, false, 2}, {12, "0000:00:05.0", false, true, 1}};
  Segment ended = own;
  ended.state = PCILEND_SEGMENT_WITHDRAWN;
  ended.offers = {{4, "0000:00:04.0", false, true, 1}};
  Segment connected;
  connected.id.value = 0x40001;
  connected.size = 4096;
  connected.state = PCILEND_SEGMENT_CONNECTED;
  metrics.segments = {own, ended, connected, connected};
  metrics.counters.relayed = 17;
  metrics.counters.strangers = 18;
  return metrics;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Metrics, FollowTheFormat) {
  const std::regex help("# HELP ([a-z_]+) [A-Z1][^\\n]*\\.");
  const std::regex type("# TYPE ([a-z_]+) (gauge|counter)");
  const std::regex value(
      "([a-z_]+)(\\{[a-z_]+=\"([^\"\\\\]|\\\\[\\\\n\"])*\"(,[a-z_]+=\"([^\"\\\\]|\\\\[\\\\n\"])*\")"
      "*\\})? [0-9]+");
  std::set<std::string> families;
  std::set<std::string> samples;
  std::string family;
  bool typed = false;
  for (const auto& line : lines_of(metrics_text(sample()))) {
    std::smatch m;
    if (std::regex_match(line, m, help)) {
      family = m[1];
      typed = false;
      EXPECT_TRUE(family.starts_with("pcilend_")) << line;
      EXPECT_TRUE(families.insert(family).second) << "a family stands in one piece: " << line;
    } else if (std::regex_match(line, m, type)) {
      EXPECT_EQ(m[1], family) << line;
      EXPECT_EQ(m[2] == "counter", family.ends_with("_total")) << line;
      typed = true;
    } else {
      ASSERT_TRUE(std::regex_match(line, m, value)) << line;
      EXPECT_EQ(m[1], family) << line;
      EXPECT_TRUE(typed) << "metadata stands before samples: " << line;
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
    }
  }
  EXPECT_GT(families.size(), 20u);
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// All that `pattern` finds first in the brackets of its matches, in order.
std::vector<std::string> found_in(const std::string& text, const std::string& pattern) {
  std::vector<std::string> words;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    words.push_back((*at)[1]);
  return words;
}

struct Family {
  std::string type;
  std::vector<std::string> labels;
  bool operator==(const Family&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Family& family) {
  out << family.type;
  for (const auto& label : family.labels) out << " " << label;
  return out;
}

std::map<std::string, Family> families_of(const std::string& text) {
  std::map<std::string, Family> families;
  std::string name;
  for (const auto& line : lines_of(text)) {
    std::smatch m;
    if (std::regex_match(line, m, std::regex("# TYPE ([a-z_]+) ([a-z]+)"))) {
      name = m[1];
      families[name].type = m[2];
    } else if (!line.starts_with("#")) {
      families[name].labels = found_in(line, "[{,]([a-z_]+)=\"");
    }
  }
  return families;
}

TEST(Metrics, AreThoseOfTheDocument) {
  const std::string document = file_text(PCILEND_SOURCE_DIR "/docs/metrics.md");
  std::map<std::string, Family> documented;
  const std::regex row(R"(\| `([a-z_]+)` \| (gauge|counter) \|([a-z_`, ]*)\| .+ \|)");
  for (const auto& line : lines_of(document)) {
    if (!line.starts_with("| `pcilend_")) continue;
    std::smatch m;
    ASSERT_TRUE(std::regex_match(line, m, row)) << line;
    EXPECT_TRUE(documented.insert({m[1], {m[2], found_in(m[3], "`([a-z_]+)`")}}).second) << line;
  }
  const std::string text = metrics_text(sample());
  EXPECT_EQ(families_of(text), documented);
  // The sample has every family that can be written.
  const auto written = found_in(file_text(PCILEND_SOURCE_DIR "/tools/pcilend/metrics.cpp"),
                                R"re(\bout\.family\("([a-z_]+)")re");
  EXPECT_EQ(documented.size(), written.size() + counter_list().size());
  for (const auto& value : found_in(text, R"re((?:state|kind|role|direction)="([^"]*)")re"))
    EXPECT_NE(document.find("`" + value + "`"), std::string::npos) << value;
}

TEST(Metrics, CountSegments) {
  const auto lines = lines_of(metrics_text(sample()));
  for (const char* line :
       {"pcilend_segments 1", "pcilend_segment_bytes 8192",
        "pcilend_segment_offered_bytes{node=\"4\"} 8192",
        "pcilend_segment_offered_bytes{node=\"12\"} 0", "pcilend_segment_users{node=\"4\"} 3",
        "pcilend_segment_users{node=\"12\"} 1", "pcilend_segment_connections{node=\"4\"} 2",
        "pcilend_segment_connected_bytes{node=\"4\"} 8192"})
    EXPECT_EQ(std::count(lines.begin(), lines.end(), line), 1) << line;
}

TEST(Metrics, CountWhatIsThere) {
  const std::string text = metrics_text(sample());
  for (const char* const line :
       {"pcilend_links{state=\"down\"} 2", "pcilend_links{state=\"up\"} 0",
        "pcilend_functions{state=\"borrowed\"} 1", "pcilend_leases{role=\"lender\"} 1",
        "pcilend_leases{role=\"borrower\"} 1", "pcilend_interrupts_relayed_total 17",
        "pcilend_function_state{function=\"40001\",state=\"borrowed\"} 1",
        "pcilend_function_state{function=\"40001\",state=\"added\"} 0",
        "pcilend_function_lease_info{function=\"40001\",borrower=\"8\",owner=\"user root\","
        "frontend=\"vfio\",adapter=\"\"} 1",
        "pcilend_function_quarantined{function=\"80001\"} 0",
        "pcilend_function_lease_left_seconds{function=\"80001\"} 9",
        "pcilend_function_mapped_bytes{function=\"40001\"} 4096",
        "pcilend_function_near_bytes{function=\"80001\"} 65536",
        "pcilend_function_clients{function=\"80001\"} 2",
        "pcilend_function_paths{function=\"40001\"} 1",
        "pcilend_function_resets_total{function=\"80001\"} 3",
        "pcilend_link_downs_total{link=\"1\",adapter=\"\",node=\"4\"} 0",
        "pcilend_aperture_used_bytes{link=\"0\",adapter=\"a \\\"quoted\\\\\\\" "
        "one\\n\",node=\"\",kind=\"slots\"} 42"})
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line << "\n"
                                                                             << text;
  for (const char* const other :
       {"near_bytes{function=\"40001", "clients{function=\"40001", "paths{function=\"80001"})
    EXPECT_EQ(text.find(other), std::string::npos) << other;
  EXPECT_EQ(text.find("aperture_used_bytes{link=\"0\",kind=\"dma\""), std::string::npos);
}

}  // namespace
}  // namespace pcilend::test
