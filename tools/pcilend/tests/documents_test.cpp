// SPDX-License-Identifier: GPL-2.0-or-later
// Holds the manual page and the bash completion against the parser, the source map against the
// sources.
#include <gmock/gmock.h>
#include <stdio.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "columns.h"
#include "host.h"
#include "parser.h"
#include "print.h"

namespace pcilend::test {
namespace {

using Words = std::set<std::string>;

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

Words matches(const std::string& text, const std::string& pattern) {
  Words words;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    words.insert((*it)[1]);
  return words;
}

// Long options of a command, without --help.
Words options_of(const CLI::App& parser) {
  Words words;
  for (const CLI::Option* option : parser.get_options())
    for (const std::string& name : option->get_lnames())
      if (name != "help") words.insert("--" + name);
  return words;
}

Words command_names() {
  Words words;
  for (const auto& command : commands()) words.insert(std::string(command.name));
  return words;
}

class ManPage : public testing::Test {
 protected:
  void SetUp() override {
    page_ = replaced(file_text(PCILEND_SOURCE_DIR "/tools/pcilend/pcilend.8"), "\\-", "-");
  }
  std::string section(const std::string& name) {
    const size_t start = page_.find(".SH " + name + "\n");
    EXPECT_NE(start, std::string::npos) << name;
    return page_.substr(start, page_.find("\n.SH ", start + 1) - start);
  }

  Options options_;
  std::unique_ptr<CLI::App> parser_ = make_parser(&options_);
  std::string page_;
};

TEST_F(ManPage, DescribesEveryCommandWithItsOptions) {
  const std::string text = section("COMMANDS");
  EXPECT_EQ(matches(text, "\n\\.B pcilend ([a-z0-9-]+)"), command_names());
  for (const auto& command : commands()) {
    const std::string name(command.name);
    const size_t at = text.find("\n.B pcilend " + name + (command.arguments.empty() ? "" : " "));
    ASSERT_NE(at, std::string::npos) << name;
    const std::string synopsis = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    EXPECT_EQ(matches(synopsis, "(--[a-z-]+)"), options_of(*parser_->get_subcommand(name)))
        << synopsis;
    for (const auto& argument : command.arguments) {
      std::string word(argument.name);
      if (word.ends_with("...")) word.resize(word.size() - 3);
      EXPECT_NE(synopsis.find("\\fI" + word + "\\fR"), std::string::npos) << synopsis;
    }
  }
}

TEST_F(ManPage, DescribesEveryOption) {
  Words all{"--help", "--version"};
  for (const auto& command : commands())
    all.merge(options_of(*parser_->get_subcommand(std::string(command.name))));
  EXPECT_EQ(matches(section("OPTIONS"), "\n\\.BI? [^\n]*(--[a-z-]+)"), all);
}

TEST_F(ManPage, NamesEveryColumn) {
  const std::string text = section("COLUMNS");
  const size_t link = text.find(".B link");
  ASSERT_NE(link, std::string::npos);
  Words functions;
  for (const auto& column : function_columns()) functions.insert(std::string(column.name));
  Words links;
  for (const auto& column : link_columns()) links.insert(std::string(column.name));
  Words kinds;
  for (const auto& column : kind_columns()) kinds.insert(std::string(column.name));
  const size_t kind = text.find(".B kinds");
  ASSERT_NE(kind, std::string::npos);
  const std::string list = text.substr(text.find(".B list") + 7, link - text.find(".B list") - 7);
  EXPECT_EQ(matches(replaced(list, ".TP", ""), "([a-z0-9_]+)"), functions);
  EXPECT_EQ(matches(replaced(text.substr(link + 7, kind - link - 7), ".TP", ""), "([a-z0-9_]+)"),
            links);
  EXPECT_EQ(matches(text.substr(kind + 8), "([a-z0-9_]+)"), kinds);
}

// Every key of the objects in testdata is promised in the manual.
void collect_keys(const nlohmann::json& value, Words* keys) {
  if (value.is_object())
    for (const auto& [key, member] : value.items()) keys->insert(key);
  if (value.is_structured())
    for (const auto& member : value) collect_keys(member, keys);
}

TEST_F(ManPage, PromisesEveryJsonKey) {
  Words keys;
  for (const auto& entry : fs::directory_iterator(PCILEND_TESTDATA_DIR)) {
    if (entry.path().extension() != ".json") continue;
    std::istringstream text(file_text(entry.path()));
    // One object, or one a line.
    for (nlohmann::json object; text >> std::ws && !text.eof();) {
      text >> object;
      EXPECT_EQ(object.value("schema", 0), kJsonSchema) << entry.path();
      collect_keys(object, &keys);
    }
  }
  EXPECT_GT(keys.size(), 100u);
  const std::string promised = section("JSON") + section("COLUMNS") + section("STATES");
  for (const auto& key : keys)
    EXPECT_TRUE(std::regex_search(promised, std::regex("\\b" + key + "\\b"))) << key;
}

TEST_F(ManPage, DocumentsEveryExitStatus) {
  EXPECT_EQ(matches(section("EXIT STATUS"), "\n\\.B ([0-9])"),
            (Words{"0", "1", "2", "3", "4", "5", "6", "7", "8"}));
}

// The names from `first` on are in the text, each in a heading of its own or with others.
void expect_headings(const std::string& text, std::string_view (*name)(uint32_t), uint32_t first) {
  Words headings;
  for (const auto& heading : matches(text, "\n\\.B ([a-z, -]+)"))
    headings.merge(matches(heading, "([a-z-]+)"));
  for (uint32_t value = first; name(value) != "unknown"; ++value)
    EXPECT_TRUE(headings.contains(std::string(name(value)))) << name(value);
}

TEST_F(ManPage, NamesEveryState) {
  const std::string text = section("STATES");
  const auto part = [&](const std::string& title) {
    const size_t start = text.find(".SS " + title + "\n");
    EXPECT_NE(start, std::string::npos) << title;
    return text.substr(start, text.find("\n.SS ", start) - start);
  };
  expect_headings(part("Functions"), function_state_name, PCILEND_FUNCTION_ADDED);
  expect_headings(part("Links"), link_state_name, PCILEND_LINK_DOWN);
  expect_headings(part("Clients of shared functions"), client_state_name, PCILEND_CLIENT_REQUESTED);
  expect_headings(part("Regions of an aperture"), region_kind_name, PCILEND_REGION_DMA);
}

TEST_F(ManPage, NamesEveryEvent) {
  const std::string text = section("JSON");
  const size_t start = text.find("Events:\n.RS\n");
  ASSERT_NE(start, std::string::npos);
  expect_headings(text.substr(start, text.find("\n.RE\n", start) - start), event_name,
                  PCILEND_EVENT_LINK);
}

// Runs the completion in bash on the words, the last one being completed.
Words complete(const std::vector<std::string>& words) {
  std::string script =
      "pcilend() { case \"$*\" in *adapter) "
      "printf '0000:00:04.0\\n0000:01:00.0\\n' ;; link*) echo 4 ;; kinds*) echo fast ;; *) printf "
      "'40001\\n80002\\n' ;; "
      "esac; }\n"
      "source " PCILEND_SOURCE_DIR "/tools/pcilend/completion/pcilend\nCOMP_WORDS=(pcilend";
  for (const auto& word : words) script += " '" + word + "'";
  script += fmt::format(")\nCOMP_CWORD={}\n_pcilend\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
                        words.size());
  const fs::path file = fs::path(testing::TempDir()) / "pcilend-completion.bash";
  std::ofstream(file) << script;
  FILE* const pipe = ::popen(("bash " + file.native()).c_str(), "r");
  EXPECT_NE(pipe, nullptr);
  std::string out;
  char chunk[4096];
  while (pipe && ::fgets(chunk, sizeof chunk, pipe)) out += chunk;
  EXPECT_EQ(::pclose(pipe), 0);
  fs::remove(file);
  return matches(out, "([^\n]+)");
}

TEST(Completion, KnowsEveryCommand) {
  Words expected = command_names();
  expected.merge(Words{"--help", "--version"});
  EXPECT_EQ(complete({""}), expected);
  EXPECT_EQ(complete({"di"}), Words{"disconnect"});
}

TEST(Completion, KnowsEveryOption) {
  Options options;
  const auto parser = make_parser(&options);
  for (const auto& command : commands()) {
    const std::string name(command.name);
    Words expected = options_of(*parser->get_subcommand(name));
    expected.insert("--help");
    EXPECT_EQ(complete({name, "--"}), expected) << name;
  }
}

TEST(Completion, KnowsEveryColumn) {
  Words functions;
  for (const auto& column : function_columns()) functions.insert(std::string(column.name));
  EXPECT_EQ(complete({"list", "-o", ""}), functions);
  Words links;
  for (const auto& column : link_columns()) links.insert(std::string(column.name));
  EXPECT_EQ(complete({"link", "--output", ""}), links);
  Words kinds;
  for (const auto& column : kind_columns()) kinds.insert(std::string(column.name));
  EXPECT_EQ(complete({"kinds", "-o", ""}), kinds);
  EXPECT_EQ(complete({"list", "-o", "id,uu"}), Words{"id,uuid"});
}

TEST(Completion, OffersWhatIsThere) {
  EXPECT_EQ(complete({"show", ""}), (Words{"40001", "80002"}));
  EXPECT_EQ(complete({"borrow", "4"}), Words{"40001"});
  EXPECT_EQ(complete({"connect", ""}), Words{"4"});
  EXPECT_EQ(complete({"allow", ""}), (Words{"40001", "80002"}));
  EXPECT_EQ(complete({"allow", "40001", ""}), (Words{"4", "all", "none"}));
  EXPECT_EQ(complete({"reserve", "--for", ""}), Words{"4"});
  EXPECT_EQ(complete({"remove-kind", ""}), Words{"fast"});
  EXPECT_EQ(complete({"add-kind", "--function", "4"}), Words{"40001"});
  EXPECT_EQ(complete({"borrow", "--frontend", ""}), (Words{"shadow", "vfio"}));
}

// As bash splits them, by COMP_WORDBREAKS.
TEST(Completion, AddressesHaveColons) {
  EXPECT_EQ(complete({"connect", "--adapter", ""}), (Words{"0000:00:04.0", "0000:01:00.0"}));
  EXPECT_EQ(complete({"connect", "--adapter", "0000", ":"}), (Words{"00:04.0", "01:00.0"}));
  EXPECT_EQ(complete({"connect", "--adapter", "0000", ":", "01"}), Words{"01:00.0"});
  EXPECT_EQ(complete({"connect", "--adapter", "0000", ":", "01", ":"}), Words{"00.0"});
  EXPECT_EQ(complete({"status", "--ignore", "0000", ":", "00", ":", "0"}), Words{"04.0"});
  EXPECT_EQ(complete({"connect", "--adapter", "0000", ":", "01", ":", "00.0", ""}), Words{"4"});
}

// What the package installs refers to nothing that it does not.
TEST(InstalledDocuments, LinkToWhatIsInstalled) {
  const std::string list = file_text(PCILEND_SOURCE_DIR "/debian/pcilend.docs");
  std::set<fs::path> installed;
  std::set<fs::path> directories;
  for (const auto& line : matches(list, "([^\n]+)")) {
    const fs::path at = fs::path(PCILEND_SOURCE_DIR) / line;
    ASSERT_TRUE(fs::exists(at)) << line;
    if (fs::is_directory(at)) {
      directories.insert(at);
      for (const auto& entry : fs::directory_iterator(at)) installed.insert(entry.path());
    } else {
      installed.insert(at);
    }
  }
  EXPECT_GT(installed.size(), 10u);
  for (const auto& file : installed)
    for (const auto& target : matches(file_text(file), "\\]\\(([^)#:]+)(?:#[^)]*)?\\)")) {
      const fs::path place = (file.parent_path() / target).lexically_normal();
      EXPECT_TRUE(installed.contains(place) || directories.contains(place))
          << file << " links to " << target;
    }
}

// Every `path` and `path: name, function()` of docs/source-map.md: a name is a word of the file, a
// function is defined there, on a line that is not indented.
TEST(SourceMap, NamesWhatIsThere) {
  const std::string map = file_text(PCILEND_SOURCE_DIR "/docs/source-map.md");
  const std::regex span("`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)+)(?:: ([^`]+))?`");
  const std::regex item("([A-Za-z0-9_]+)(\\(\\))?");
  size_t functions = 0;
  for (std::sregex_iterator at(map.begin(), map.end(), span), end; at != end; ++at) {
    const std::string path = (*at)[1];
    const std::string names = (*at)[2];
    const fs::path file = fs::path(PCILEND_SOURCE_DIR) / path;
    EXPECT_TRUE(fs::exists(file)) << path;
    if (names.empty() || !fs::is_regular_file(file)) continue;
    const std::string text = file_text(file);
    for (std::sregex_iterator name(names.begin(), names.end(), item); name != end; ++name) {
      const bool function = (*name)[2].matched;
      const std::string word = "\\b" + (*name)[1].str() + "\\b";
      const std::regex wanted(function ? "\n[A-Za-z][^\n]*" + word + "\\(" : word);
      EXPECT_TRUE(std::regex_search(text, wanted)) << path << ": " << name->str();
      functions += function;
    }
  }
  EXPECT_GT(functions, 50u) << "the map is not read";
}

}  // namespace
}  // namespace pcilend::test
