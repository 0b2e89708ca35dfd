// SPDX-License-Identifier: GPL-2.0-or-later
#include "cli.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "print.h"

namespace pcilend {
namespace {

// Single-character edits between two words (Levenshtein).
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

Error unknown_command(std::string_view word) {
  const auto nearest = std::min_element(commands().begin(), commands().end(),
                                        [&](const Command& a, const Command& b) {
                                          return edits(word, a.name) < edits(word, b.name);
                                        });
  if (edits(word, nearest->name) <= 2)
    return {ErrorClass::Usage,
            fmt::format("no command '{}': did you mean '{}'?", word, nearest->name)};
  return {ErrorClass::Usage, fmt::format("no command '{}': 'pcilend --help' lists them", word)};
}

void add_argument(CLI::App& parser, const CommandArgument& argument, Options* options) {
  auto* const added = parser.add_option(std::string(argument.name), options->*argument.slot,
                                        std::string(argument.help));
  const bool several = argument.name.ends_with("...");
  added->required(argument.required)
      ->expected(argument.required ? 1 : 0, several ? CLI::detail::expected_max_vector_size : 1)
      ->type_name("");
}

void add_option(CLI::App& parser, const CommandOption& option, Options* options) {
  const std::string names(option.names);
  const std::string help(option.help);
  std::visit(
      [&](auto slot) {
        auto& value = options->*slot;
        if constexpr (std::is_same_v<decltype(slot), bool Options::*>) {
          parser.add_flag(names, value, help);
        } else {
          auto* const added = parser.add_option(names, value, help);
          added->type_name(std::string(option.value));
          if (!option.choices.empty())
            added->check(CLI::IsMember(option.choices))->default_val(option.choices.front());
        }
      },
      option.slot);
}

int report(std::ostream& err, const Error& error) {
  err << "pcilend: " << error.message << "\n";
  return static_cast<int>(error.kind);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::unique_ptr<CLI::App> make_parser(Options* options) {
  auto parser = std::make_unique<CLI::App>(
      "Lends PCIe functions to other hosts over NTB, and borrows theirs.", "pcilend");
  parser->set_version_flag("-V,--version", "pcilend " PCILEND_VERSION);
  parser->require_subcommand(1);
  for (const auto& command : commands()) {
    auto* const sub =
        parser->add_subcommand(std::string(command.name), std::string(command.summary));
    sub->group(std::string(command.group));
    for (const auto& argument : command.arguments) add_argument(*sub, argument, options);
    for (const auto& option : command.options) add_option(*sub, option, options);
  }
  return parser;
}

int run(Surroundings& at, std::vector<std::string> arguments) {
  const auto word = std::find_if(arguments.begin(), arguments.end(),
                                 [](const std::string& a) { return !a.starts_with('-'); });
  const auto command = std::find_if(
      commands().begin(), commands().end(),
      [&](const Command& candidate) { return word != arguments.end() && candidate.name == *word; });
  if (word != arguments.end() && command == commands().end())
    return report(at.err, unknown_command(*word));

  Options options;
  const auto parser = make_parser(&options);
  try {
    std::reverse(arguments.begin(), arguments.end());
    parser->parse(arguments);
  } catch (const CLI::Success& wish) {  // --help, --version
    return parser->exit(wish, at.out, at.err);
  } catch (const CLI::ParseError& error) {
    const std::string name =
        command == commands().end() ? std::string() : " " + std::string(command->name);
    return report(at.err, {ErrorClass::Usage, fmt::format("{}; see 'pcilend{} --help'",
                                                          one_line(error.what()), name)});
  }

  auto client = at.open_client();
  if (!client) return report(at.err, client.error());
  Session session{**client, at.environment,
                  [&](std::string_view line) { at.err << "pcilend: warning: " << line << "\n"; },
                  at.sleep};
  const auto answer = command->run(session, options);
  if (!answer) return report(at.err, answer.error());

  const PrintOptions print_options{options.columns, options.no_headings};
  const auto text = options.json ? print_json(*answer, at.names, print_options)
                                 : print_text(*answer, at.names, print_options);
  if (!text) return report(at.err, text.error());
  at.out << *text << std::flush;
  if (!at.out) return report(at.err, {ErrorClass::Failure, "stdout: write failed"});
  return 0;
}

}  // namespace pcilend
