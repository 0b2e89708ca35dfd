// SPDX-License-Identifier: GPL-2.0-or-later
#include "cli.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "print.h"

namespace pcilend {
namespace {

constexpr std::string_view kLender = "On the lender";
constexpr std::string_view kBorrower = "On the borrower";
constexpr std::string_view kBoth = "On any host";
constexpr std::string_view kAddressOrId = "PCI address (0000:00:05.0) or id (40001)";
constexpr std::string_view kId = "id (40001), UUID or PCI address, as in 'pcilend list'";

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

void add_options(CLI::App& parser, const Command& command, Options* options) {
  if (!command.target.empty()) {
    auto* const target = parser.add_option(std::string(command.target), options->targets,
                                           std::string(command.target_help));
    const bool several = command.target.ends_with("...");
    target->required()->expected(1, several ? CLI::detail::expected_max_vector_size : 1);
    target->type_name("");
  }
  if (command.options & kJson) parser.add_flag("-j,--json", options->json, "print JSON");
  if (command.options & kColumns) {
    parser.add_option("-o,--output", options->columns, "print these columns, separated by commas")
        ->type_name("COL,...");
    parser.add_flag("-n,--noheadings", options->no_headings, "print no heading line");
  }
  if (command.options & kForce)
    parser.add_flag("-f,--force", options->force, std::string(command.force_help));
  if (command.options & kFrontend)
    parser
        .add_option("--frontend", options->frontend,
                    "shadow (a device of this host; default) or mdev (for a VM)")
        ->type_name("NAME")
        ->check(CLI::IsMember({"shadow", "mdev"}))
        ->default_val("shadow");
  if (command.options & kOwner)
    parser.add_option("--owner", options->owner, "who borrows; default: the calling user")
        ->type_name("NAME");
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

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {kLender, "connect", "offer this host's functions to a node", "NODE",
       "node id of the borrower", kForce, "also if no link leads to that node now",
       command_connect},
      {kLender, "disconnect", "stop offering functions to a node", "NODE",
       "node id of the borrower", 0, "", command_disconnect},
      {kLender, "add", "show a function of this host to connected nodes", "BDF", kAddressOrId,
       kJson, "", command_add},
      {kLender, "remove", "undo add", "BDF", kAddressOrId, 0, "", command_remove},
      {kLender, "available", "take a function from its driver and let it be borrowed", "BDF",
       kAddressOrId, kJson | kForce, "take it though its disks are in use", command_available},
      {kLender, "unavailable", "give a function back to its driver on this host", "BDF",
       kAddressOrId, kJson, "", command_unavailable},
      {kBoth, "list", "list functions of this host and of its peers", "", "", kJson | kColumns, "",
       command_list},
      {kBoth, "show", "show all about functions", "ID...", kId, kJson, "", command_show},
      {kBoth, "link", "list NTB adapters and the nodes behind them", "", "", kJson | kColumns, "",
       command_link},
      {kBoth, "node", "show this node", "", "", kJson, "", command_node},
      {kBorrower, "borrow", "borrow a function", "ID", kId, kJson | kFrontend | kOwner, "",
       command_borrow},
      {kBorrower, "return", "return a borrowed function", "ID", kId, kForce | kOwner,
       "take it from another owner", command_return},
      {kBorrower, "vm-xml", "print the libvirt <hostdev> elements for functions", "ID...", kId, 0,
       "", command_vm_xml},
  };
  return table;
}

std::unique_ptr<CLI::App> make_parser(Options* options) {
  auto parser = std::make_unique<CLI::App>(
      "Lends PCIe functions to other hosts over NTB, and borrows theirs.", "pcilend");
  parser->set_version_flag("-V,--version", "pcilend " PCILEND_VERSION);
  parser->require_subcommand(1);
  for (const auto& command : commands()) {
    auto* const sub =
        parser->add_subcommand(std::string(command.name), std::string(command.summary));
    sub->group(std::string(command.group));
    add_options(*sub, command, options);
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
