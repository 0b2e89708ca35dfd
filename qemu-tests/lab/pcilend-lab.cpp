// SPDX-License-Identifier: GPL-2.0-or-later
// pcilend-lab: the command that starts, drives and stops labs.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "lab/agent/foreground.h"
#include "lab/domain_xml.h"
#include "lab/lab.h"
#include "lab/print.h"
#include "lab/teardown.h"
#include "lab/watcher.h"

namespace pcilend::lab {
namespace {

using nlohmann::json;

// A machine that was just switched on may still boot.
constexpr auto kSession = 2min;

struct Arguments {
  std::string lab = "default";
  std::vector<std::string> command;  // what stands behind "--"
  bool has_command = false;
  bool as_json = false;

  std::string host, peer, file, destination, name, state, from;
  std::vector<std::string> ids;
  unsigned seconds = 1;
  uint32_t value = 0;
  int path = 0;
  bool no_input = false;
  bool reset = false;
  bool all = false;
  pid_t pid = 0;
  uint64_t start = 0;

  Options up;
  std::string iommu = "intel";
  std::string adapters = "amd";
  std::vector<std::string> memory, images, devices, objects;
  int guest_memory = kDefaultGuestMemory;
  std::string machine = "q35";
};

int say(const Error& error) {
  fmt::print(stderr, "pcilend-lab: {}\n", error.message);
  return static_cast<int>(error.kind);
}

int exit_code(const Result<>& result) {
  return result ? 0 : say(result.error());
}

void show_step(double seconds, const std::string& step) {
  fmt::print(stderr, "[{:6.2f} s] {}\n", seconds, step);
}

void print_json(const json& value) {
  fmt::print("{}\n", value.dump(2));
}

Transcript::Sink quiet() {
  return [](std::string_view) {};
}

// Attaches to the lab and finds the host; runs `act` on them.
template <class Act>
int with_host(const Arguments& arguments, Act act) {
  auto lab = Lab::attach(arguments.lab, quiet());
  if (!lab) return say(lab.error());
  const auto host = lab->host(arguments.host);
  if (!host) return say(host.error());
  return act(*lab, **host);
}

int up(Arguments& arguments) {
  Options options = arguments.up;
  options.name = arguments.lab;
  for (const std::string& text : arguments.memory)
    if (auto added = options.add_memory(text); !added) return say(added.error());
  for (const std::string& text : arguments.images)
    if (auto added = options.add_image(text); !added) return say(added.error());
  for (const std::string& text : arguments.devices)
    if (auto added = options.add_device(text); !added) return say(added.error());
  for (const std::string& text : arguments.objects)
    if (auto added = options.add_object(text); !added) return say(added.error());
  const auto iommu = parse_iommu(arguments.iommu);
  if (!iommu) return say(iommu.error());
  options.iommu = *iommu;
  auto adapters = parse_adapters(arguments.adapters);
  if (!adapters) return say(adapters.error());
  options.adapters = std::move(*adapters);
  auto lab = Lab::up(options, show_step, quiet());
  if (!lab) return say(lab.error());
  return exit_code(lab->keep());
}

int run_command(const Host& host, std::vector<std::string> argv, const agent::Foreground& how) {
  auto session = host.machine().open_session(Deadline(kSession));
  if (!session) return say(session.error()), agent::kNotRun;
  agent::Limits limits;
  limits.obituary = [&host] { return host.machine().obituary(); };
  const auto status = agent::run_in_foreground(*session, std::move(argv), how, limits);
  if (!status) {
    Error error = status.error();
    const int code = agent::exit_code(error);
    return say(std::move(error).in(host.name())), code;
  }
  return status->code();
}

int exec(const Arguments& arguments) {
  return with_host(arguments, [&](Lab&, const Host& host) {
    agent::Foreground how;
    how.input = !arguments.no_input;
    return run_command(host, agent::command_line(arguments.command), how);
  });
}

int gexec(const Arguments& arguments) {
  return with_host(arguments, [&](Lab&, const Host& host) {
    agent::Foreground how;
    how.input = !arguments.no_input;
    std::vector<std::string> argv = guest_call(arguments.name, how.input, false);
    for (std::string& word : agent::command_line(arguments.command))
      argv.push_back(std::move(word));
    return run_command(host, std::move(argv), how);
  });
}

int shell(const Arguments& arguments) {
  return with_host(arguments, [&](Lab&, const Host& host) {
    if (!::isatty(STDIN_FILENO))
      return say({ErrorClass::Usage, "shell: stdin is not a terminal: use 'exec'"});
    agent::Foreground how;
    how.terminal = true;
    if (arguments.name.empty()) return run_command(host, {"/bin/bash", "-l"}, how);
    std::vector<std::string> argv = guest_call(arguments.name, true, true);
    argv.insert(argv.end(), {"/bin/sh", "-l"});
    return run_command(host, std::move(argv), how);
  });
}

int power(const Arguments& arguments) {
  return with_host(arguments, [&](Lab&, const Host& host) {
    if (arguments.state == "off") return exit_code(host.power_off());
    if (arguments.state == "on") return exit_code(host.power_on());
    if (arguments.state == "reset") return exit_code(host.reset());
    if (arguments.state == "panic") return exit_code(host.panic());
    return say({ErrorClass::Usage,
                fmt::format("power '{}': it is off, on, reset or panic", arguments.state)});
  });
}

Result<> set_link(const Fabric& fabric, int a, int b, int path, const std::string& state) {
  if (state == "up") return fabric.link_up(a, b, path);
  if (state == "down") return fabric.link_down(a, b, path);
  const std::string prefix = "delay=";
  int milliseconds = -1;
  if (state.starts_with(prefix)) {
    const char* end = state.data() + state.size();
    const auto [at, error] = std::from_chars(state.data() + prefix.size(), end, milliseconds);
    if (error != std::errc() || at != end) milliseconds = -1;
  }
  if (milliseconds < 0)
    return fail(ErrorClass::Usage, "link '{}': it is up, down or delay=MILLISECONDS", state);
  return fabric.set_delay(a, b, std::chrono::milliseconds(milliseconds), path);
}

int link(const Arguments& arguments) {
  return with_host(arguments, [&](Lab& lab, const Host& host) {
    const auto peer = lab.host(arguments.peer);
    if (!peer) return say(peer.error());
    if (*peer == &host)
      return say({ErrorClass::Usage, fmt::format("link: {} has no link to itself", host.name())});
    return exit_code(
        set_link(lab.fabric(), host.number(), (*peer)->number(), arguments.path, arguments.state));
  });
}

int counters(const Arguments& arguments) {
  auto lab = Lab::attach(arguments.lab, quiet());
  if (!lab) return say(lab.error());
  const auto counters = lab->fabric().counters(arguments.reset);
  if (!counters) return say(counters.error());
  if (arguments.as_json)
    print_json(counters->json);
  else
    fmt::print("{}", counters_text(*counters));
  return 0;
}

int sweep(const Arguments& arguments) {
  return with_host(arguments, [&](Lab& lab, const Host& victim) {
    const auto from = lab.host(arguments.from);
    if (!from) return say(from.error());
    if (*from == &victim)
      return say({ErrorClass::Usage,
                  fmt::format("sweep: {} can't attack itself: name another host by --from",
                              victim.name())});
    const auto report = lab.fabric().sweep(victim.number(), (*from)->number());
    if (!report) return say(report.error());
    if (arguments.as_json)
      print_json(report->json);
    else
      fmt::print("{}", sweep_text(*report, victim.name(), (*from)->name()));
    return 0;
  });
}

int rogue(const Arguments& arguments) {
  return with_host(arguments, [&](Lab& lab, const Host& victim) {
    const auto answer = lab.rogue().attack(
        arguments.name, victim.number(), std::chrono::seconds(arguments.seconds), arguments.value);
    if (!answer) return say(answer.error());
    print_json(*answer);
    return 0;
  });
}

int guest(const Arguments& arguments) {
  GuestSpec asked;
  asked.name = arguments.name;
  asked.memory = arguments.guest_memory;
  asked.machine = arguments.machine;
  if (auto valid = asked.check(); !valid) return say(valid.error());
  return with_host(arguments, [&](Lab&, const Host& host) {
    const auto functions = host.guest_spec(arguments.name, arguments.ids);
    if (!functions) return say(functions.error());
    asked.places = functions->places;
    fmt::print("{}", domain_xml(asked));
    return 0;
  });
}

int status(const Arguments& arguments) {
  auto lab = Lab::attach(arguments.lab, quiet());
  if (!lab) return say(lab.error());
  const json status = status_json(*lab);
  if (arguments.as_json)
    print_json(status);
  else
    fmt::print("{}", status_text(status));
  return 0;
}

int down_all() {
  int code = 0;
  const std::vector<std::string> names = lab_names();
  for (const std::string& name : names) {
    const Standing standing = standing_of(name);
    const auto found = Lab::down(name);
    if (found)
      fmt::print("lab '{}' ({}) is down\n", name, standing.text);
    else
      code = say(Error(found.error()).in(fmt::format("lab '{}' ({})", name, standing.text)));
  }
  if (names.empty()) fmt::print(stderr, "pcilend-lab: no lab in {}\n", Layout::base().native());
  return code;
}

int down(const Arguments& arguments) {
  if (arguments.all) return down_all();
  const auto found = Lab::down(arguments.lab);
  if (!found) return say(found.error());
  if (!*found) fmt::print(stderr, "pcilend-lab: lab '{}' is not up\n", arguments.lab);
  return 0;
}

int watch(const Arguments& arguments) {
  return exit_code(pcilend::lab::watch({arguments.pid, arguments.start}, arguments.lab));
}

int update(const Arguments& arguments) {
  auto lab = Lab::attach(arguments.lab, quiet());
  if (!lab) return say(lab.error());
  return exit_code(lab->update(show_step));
}

// Takes "-- WORDS…" off the end: they are nobody's options but the command's.
void take_command(std::vector<std::string>& words, Arguments& arguments) {
  const auto separator = std::find(words.begin(), words.end(), "--");
  if (separator == words.end()) return;
  arguments.has_command = true;
  arguments.command.assign(separator + 1, words.end());
  words.erase(separator, words.end());
}

class Parser {
 public:
  explicit Parser(Arguments& arguments) : arguments_(arguments) {
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.add_option("--lab", arguments.lab, "the lab's name (or PCILEND_LAB)")
        ->envname("PCILEND_LAB")
        ->capture_default_str();
    add_up();
    add_commands();
    add_faults();
    add_guests();
    add_rest();
  }

  int run(std::vector<std::string> words) {
    if (!words.empty() && !words.front().starts_with("-") && !knows(words.front()))
      return say({ErrorClass::Usage,
                  fmt::format("no command '{}': pcilend-lab --help lists them", words.front())});
    std::reverse(words.begin(), words.end());
    try {
      app_.parse(words);
    } catch (const CLI::Success& help) {
      return app_.exit(help);
    } catch (const CLI::ParseError& error) {
      return say({ErrorClass::Usage, fmt::format("{} (see pcilend-lab --help)", error.what())});
    }
    const CLI::App* chosen = app_.get_subcommands().front();
    const bool takes_command = chosen->get_name() == "exec" || chosen->get_name() == "gexec";
    if (takes_command && arguments_.command.empty())
      return say({ErrorClass::Usage,
                  fmt::format("{0}: no command: give it after '--', as in "
                              "'pcilend-lab {0} host1{1} -- uname -r'",
                              chosen->get_name(), chosen->get_name() == "gexec" ? " NAME" : "")});
    if (!takes_command && arguments_.has_command)
      return say({ErrorClass::Usage, fmt::format("{} takes no '--'", chosen->get_name())});
    for (const auto& [command, action] : actions_)
      if (command == chosen) return action(arguments_);
    return static_cast<int>(ErrorClass::Usage);
  }

 private:
  using Action = std::function<int(Arguments&)>;

  CLI::App* add(const std::string& name, const std::string& text, Action action) {
    CLI::App* command = app_.add_subcommand(name, text);
    actions_.emplace_back(command, std::move(action));
    return command;
  }

  [[nodiscard]] bool knows(const std::string& name) const {
    return std::any_of(actions_.begin(), actions_.end(),
                       [&](const auto& entry) { return entry.first->get_name() == name; });
  }

  void add_host(CLI::App* command) {
    command->add_option("HOST", arguments_.host, "host1, host2, …")->required();
  }

  void add_json(CLI::App* command) {
    command->add_flag("-j,--json", arguments_.as_json, "JSON instead of text");
  }

  void add_up() {
    CLI::App* command = add("up", "starts the fabric and the hosts", up);
    command->add_option("--hosts", arguments_.up.hosts, "how many")->capture_default_str();
    command->add_option("--kernel", arguments_.up.kernel, kernel_names())->capture_default_str();
    command->add_option("--iommu", arguments_.iommu, "intel, amd or off")->capture_default_str();
    command->add_option("--memory", arguments_.memory, "HOST:MIB")->take_all();
    command
        ->add_option("--image", arguments_.images,
                     "HOST:IMAGE, as in host2:installed: an installed Debian with systemd")
        ->take_all();
    command->add_option("--paths", arguments_.up.paths, "adapters of each host towards each other")
        ->capture_default_str();
    command
        ->add_option("--adapter", arguments_.adapters,
                     "amd or switchtec, or one for each path: amd,switchtec")
        ->capture_default_str();
    command->add_flag("--rogue", arguments_.up.rogue, "a rogue node, joined with every host");
    command
        ->add_option("--device", arguments_.devices,
                     "HOST:QEMU-DEVICE-STRING, as in host1:nvme,serial=a,drive-size=256M")
        ->take_all();
    command
        ->add_option("--object", arguments_.objects,
                     "HOST:QEMU-OBJECT-STRING that a device names by its id, as in "
                     "host1:memory-backend-ram,id=m,size=16M")
        ->take_all();
  }

  void add_commands() {
    CLI::App* command = add("exec", "runs a command: exec HOST -- CMD…", exec);
    add_host(command);
    command->add_flag("-n", arguments_.no_input, "its stdin is /dev/null");

    command = add("shell", "an interactive shell on a host or in its guest", shell);
    add_host(command);
    command->add_option("GUEST", arguments_.name, "a guest of that host");

    command = add("put", "copies a file into a host", [](Arguments& a) {
      return with_host(
          a, [&](Lab&, const Host& host) { return exit_code(host.put(a.file, a.destination)); });
    });
    add_host(command);
    command->add_option("FILE", arguments_.file)->required();
    command->add_option("DEST", arguments_.destination)->required();

    command = add("get", "copies a file out of a host", [](Arguments& a) {
      return with_host(
          a, [&](Lab&, const Host& host) { return exit_code(host.get(a.file, a.destination)); });
    });
    add_host(command);
    command->add_option("FILE", arguments_.file)->required();
    command->add_option("DEST", arguments_.destination)->required();
  }

  void add_faults() {
    CLI::App* command = add("link", "pulls the cable, plugs it in, makes it slow", link);
    command->add_option("A", arguments_.host)->required();
    command->add_option("B", arguments_.peer)->required();
    command->add_option("STATE", arguments_.state, "up, down or delay=MS")->required();
    command->add_option("--path", arguments_.path, "of several links of the two: only this one");

    command = add("power", "cuts or gives power, resets, makes the kernel panic", power);
    add_host(command);
    command->add_option("STATE", arguments_.state, "off, on, reset or panic")->required();

    command = add("counters", "what crossed the NTB", counters);
    command->add_flag("--reset", arguments_.reset, "begin anew after this");
    add_json(command);

    command = add("sweep", "reads a victim's aperture as a hostile peer would", sweep);
    command->add_option("VICTIM", arguments_.host)->required();
    command->add_option("--from", arguments_.from, "the host that attacks")->required();
    add_json(command);

    command =
        add("rogue", "what the rogue node does to a host (qemu-tests/fabric/README.md)", rogue);
    command->add_option("VICTIM", arguments_.host)->required();
    command->add_option("ATTACK", arguments_.name)->required();
    command->add_option("VALUE", arguments_.value, "the attack's own");
    command->add_option("--seconds", arguments_.seconds, "how long, for attacks that go on")
        ->capture_default_str()
        ->check(CLI::Range(1, 60));
  }

  void add_guests() {
    CLI::App* command = add("guest", "domain XML of the lab's guest with these functions", guest);
    add_host(command);
    command->add_option("NAME", arguments_.name)->required();
    command->add_option("ID", arguments_.ids, "as 'pcilend list' shows them");
    command->add_option("--memory", arguments_.guest_memory, "MiB")->capture_default_str();
    command->add_option("--machine", arguments_.machine, "q35 or pc")->capture_default_str();

    command = add("gexec", "runs a command in a guest: gexec HOST NAME -- CMD…", gexec);
    add_host(command);
    command->add_option("NAME", arguments_.name)->required();
    command->add_flag("-n", arguments_.no_input, "its stdin is /dev/null");
  }

  void add_rest() {
    add_json(add("status", "what runs", status));
    add("update", "puts freshly built programs and modules into the running hosts", update);
    add_host(add("log", "where a host's console is logged", [](Arguments& a) {
      return with_host(a, [](Lab&, const Host& host) {
        fmt::print("{}\n", host.machine().console_path());
        return 0;
      });
    }));
    add("down", "ends the lab and removes all of it", down)
        ->add_flag("--all", arguments_.all, "every lab, whoever it belongs to");
    // What Lab::up() starts.
    CLI::App* command = add("watch", "ends the lab with its owner", watch)->group("");
    command->add_option("PID", arguments_.pid)->required();
    command->add_option("START", arguments_.start)->required();
  }

  Arguments& arguments_;
  CLI::App app_{"Labs: hosts under QEMU, joined by a simulated NTB", "pcilend-lab"};
  std::vector<std::pair<const CLI::App*, Action>> actions_;
};

}  // namespace
}  // namespace pcilend::lab

int main(int argc, char** argv) {
  using namespace pcilend::lab;
  Arguments arguments;
  std::vector<std::string> words(argv + 1, argv + argc);
  take_command(words, arguments);
  return Parser(arguments).run(std::move(words));
}
