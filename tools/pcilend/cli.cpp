// SPDX-License-Identifier: GPL-2.0-or-later
#include "cli.h"

#include <algorithm>
#include <ostream>

#include "json_ids.h"
#include "parser.h"
#include "pcilend/nearest.h"
#include "print.h"

namespace pcilend {
namespace {

Error unknown_command(std::string_view word) {
  std::vector<std::string_view> names;
  names.reserve(commands().size());
  for (const auto& command : commands()) names.push_back(command.name);
  if (const auto meant = nearest(word, names))
    return {ErrorClass::Usage, fmt::format("no command '{}': did you mean '{}'?", word, *meant)};
  return {ErrorClass::Usage, fmt::format("no command '{}': 'pcilend --help' lists them", word)};
}

int report(const Surroundings& at, bool json, const Error& error) {
  at.err << "pcilend: " << error.message << "\n";
  if (json) at.out << print_json(error) << std::flush;
  return static_cast<int>(error.kind);
}

// 'help' and 'help COMMAND' are '--help' and 'COMMAND --help'.
void replace_help(std::vector<std::string>* arguments) {
  if (arguments->empty() || arguments->front() != "help") return;
  arguments->erase(arguments->begin());
  arguments->push_back("--help");
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

// Where a command takes several functions, "-" stands for those of a JSON object on stdin.
Result<> read_targets(const Command& command, std::istream& in, Options* options) {
  const bool takes_ids =
      std::any_of(command.arguments.begin(), command.arguments.end(),
                  [](const CommandArgument& argument) { return argument.name == "ID..."; });
  auto& targets = options->targets;
  if (!takes_ids || std::find(targets.begin(), targets.end(), "-") == targets.end()) return {};
  if (targets.size() > 1)
    return fail(ErrorClass::Usage, "'-' reads functions from stdin: name no others beside it");
  auto ids = read_ids(in);
  if (!ids) return tl::unexpected(std::move(ids).error());
  targets = std::move(*ids);
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
  replace_help(&arguments);
  const bool json = std::any_of(arguments.begin(), arguments.end(),
                                [](const std::string& a) { return a == "-j" || a == "--json"; });
  const auto word = std::find_if(arguments.begin(), arguments.end(),
                                 [](const std::string& a) { return !a.starts_with('-'); });
  const auto command = std::find_if(
      commands().begin(), commands().end(),
      [&](const Command& candidate) { return word != arguments.end() && candidate.name == *word; });
  if (word != arguments.end() && command == commands().end())
    return report(at, json, unknown_command(*word));

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
    return report(at, json,
                  {ErrorClass::Usage,
                   fmt::format("{}; see 'pcilend{} --help'", one_line(error.what()), name)});
  }

  if (const auto read = read_targets(*command, at.in, &options); !read)
    return report(at, json, read.error());

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
            at.wall_time,
            at.run_program,
            at.read_program};
  const auto answer = execute(*command, host, options);
  host.progress("");
  if (!answer) return report(at, json, answer.error());
  if (const auto printed = print(at, *answer, options.json, print_options); !printed)
    return report(at, json, printed.error());
  return exit_status(*answer);
}

}  // namespace pcilend
