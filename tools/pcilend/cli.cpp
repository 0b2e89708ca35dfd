// SPDX-License-Identifier: GPL-2.0-or-later
#include "cli.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "parser.h"
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

int report(std::ostream& err, const Error& error) {
  err << "pcilend: " << error.message << "\n";
  return static_cast<int>(error.kind);
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Result<> print(const Surroundings& at, const Answer& answer, bool json,
               const PrintOptions& options) {
  const auto text =
      json ? print_json(answer, at.names, options) : print_text(answer, at.names, options);
  if (!text) return tl::unexpected(text.error());
  at.out << *text << std::flush;
  if (!at.out) return fail(ErrorClass::Failure, "stdout: write failed");
  return {};
}

Result<Answer> execute(const Command& command, Host& host, const Options& options) {
  if (const auto* const run = std::get_if<Result<Answer> (*)(Host&, const Options&)>(&command.run))
    return (*run)(host, options);
  auto client = host.open_client();
  if (!client) return tl::unexpected(std::move(client).error());
  Session session{host, **client};
  return std::get<Result<Answer> (*)(Session&, const Options&)>(command.run)(session, options);
}

}  // namespace

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

  const PrintOptions print_options{options.columns, options.no_headings};
  bool progress_shown = false;
  Host host{at.environment,
            at.open_client,
            at.open_events,
            [&](std::string_view line) { at.err << "pcilend: warning: " << line << "\n"; },
            [&](std::string_view line) {
              if (!at.terminal || (line.empty() && !progress_shown)) return;
              at.err << "\r\033[K" << line << std::flush;
              progress_shown = !line.empty();
            },
            [&](const Answer& answer) {
              PrintOptions one_line = print_options;
              one_line.one_line = true;
              return print(at, answer, options.json, one_line);
            },
            at.sleep,
            at.now,
            at.wall_time};
  const auto answer = execute(*command, host, options);
  host.progress("");
  if (!answer) return report(at.err, answer.error());
  if (const auto printed = print(at, *answer, options.json, print_options); !printed)
    return report(at.err, printed.error());
  return exit_status(*answer);
}

}  // namespace pcilend
