// SPDX-License-Identifier: GPL-2.0-or-later
// Holds the metrics against the rules of OpenMetrics 1.0.0.
#include "metrics.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace pcilend::test {
namespace {

MetricsAnswer sample() {
  MetricsAnswer metrics;
  metrics.node.id = 8;
  Link link;
  link.adapter = "a \"quoted\\\" one\n";
  link.regions = {{PCILEND_REGION_DMA, 0, 4096, 0, {}}, {PCILEND_REGION_SLOTS, 0, 8192, 0, 42}};
  Link other;
  other.index = 1;
  other.peer = 4;
  metrics.links = {link, other};
  Function lent;
  lent.lender = 8;
  lent.state = PCILEND_FUNCTION_BORROWED;
  lent.borrower = 4;
  Function borrowed;
  borrowed.lender = 4;
  borrowed.state = PCILEND_FUNCTION_BORROWED;
  borrowed.borrower = 8;
  metrics.functions = {lent, borrowed};
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
  const std::string text = metrics_text(sample());
  ASSERT_TRUE(text.ends_with("\n# EOF\n"));
  const std::regex type("# TYPE ([a-z_]+) (gauge|counter|info)");
  const std::regex unit("# UNIT ([a-z_]+) ([a-z]+)");
  const std::regex help("# HELP ([a-z_]+) [A-Z][^\\n]*\\.");
  const std::regex value(
      "([a-z_]+)(\\{[a-z_]+=\"([^\"\\\\]|\\\\[\\\\n\"])*\"(,[a-z_]+=\"([^\"\\\\]|\\\\[\\\\n\"])*\")"
      "*\\})? [0-9]+");
  std::map<std::string, std::string> types;
  std::set<std::string> helped;
  std::set<std::string> samples;
  std::string family;
  auto lines = lines_of(text);
  lines.pop_back();
  for (const auto& line : lines) {
    std::smatch m;
    if (std::regex_match(line, m, type)) {
      family = m[1];
      EXPECT_TRUE(family.starts_with("pcilend_")) << line;
      EXPECT_TRUE(types.emplace(family, m[2]).second) << "a family stands in one piece: " << line;
      if (types[family] == "counter") {
        EXPECT_FALSE(family.ends_with("_total")) << line;
      }
    } else if (std::regex_match(line, m, unit)) {
      EXPECT_EQ(m[1], family);
      EXPECT_TRUE(family.ends_with("_" + m[2].str())) << line;
    } else if (std::regex_match(line, m, help)) {
      EXPECT_EQ(m[1], family) << line;
      EXPECT_TRUE(helped.insert(family).second) << line;
    } else {
      ASSERT_TRUE(std::regex_match(line, m, value)) << line;
      const std::string suffix = types[family] == "counter" ? "_total"
                                 : types[family] == "info"  ? "_info"
                                                            : "";
      EXPECT_EQ(m[1], family + suffix) << line;
      EXPECT_TRUE(helped.contains(family)) << "metadata stands before samples: " << line;
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
      if (types[family] == "info") {
        EXPECT_TRUE(line.ends_with(" 1")) << line;
      }
    }
  }
  for (const auto& [name, kind] : types) EXPECT_TRUE(helped.contains(name)) << name;
}

TEST(Metrics, CountWhatIsThere) {
  const std::string text = metrics_text(sample());
  for (const char* const line :
       {"pcilend_links{state=\"down\"} 2", "pcilend_links{state=\"up\"} 0",
        "pcilend_functions{state=\"borrowed\"} 1", "pcilend_leases{role=\"lender\"} 1",
        "pcilend_leases{role=\"borrower\"} 1", "pcilend_interrupts_relayed_total 17",
        "pcilend_link_downs_total{link=\"1\",adapter=\"\",node=\"4\"} 0",
        "pcilend_aperture_used_bytes{link=\"0\",adapter=\"a \\\"quoted\\\\\\\" "
        "one\\n\",node=\"\",kind=\"slots\"} 42"})
    EXPECT_NE(text.find(std::string("\n") + line + "\n"), std::string::npos) << line << "\n"
                                                                             << text;
  EXPECT_EQ(text.find("aperture_used_bytes{link=\"0\",kind=\"dma\""), std::string::npos);
}

}  // namespace
}  // namespace pcilend::test
