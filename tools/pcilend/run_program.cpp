// SPDX-License-Identifier: GPL-2.0-or-later
#include "run_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "pcilend/fd.h"

namespace pcilend {
namespace {

constexpr size_t kMost = 1 << 20;

struct Pipe {
  UniqueFd output;
  UniqueFd input;
};

// What a program has said, as far as it is kept.
struct Said {
  std::string out;
  std::string err;
  bool more = false;  // than is kept of stdout
};

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const size_t end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

// Programs that are asked for JSON may say in JSON, on several lines, what is wrong.
std::string on_one_line(std::string_view text) {
  constexpr size_t kLongest = 300;
  std::string line;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    if (!space)
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  while (line.ends_with(' ')) line.pop_back();
  return line.substr(0, kLongest);
}

std::string complaint(const Said& said) {
  std::string text = last_line(said.err);
  if (text.empty()) text = on_one_line(said.out);
  return text.empty() ? "it said nothing" : text;
}

Result<Pipe> make_pipe(const std::string& program) {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return fail(ErrorClass::Unreachable, "{}: no pipe (error {})", program, errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<pid_t> start(const std::vector<std::string>& words, const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out.input.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err.input.get(), STDERR_FILENO);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(ErrorClass::State, "{} can't be run: {}", words.front(), strerrordesc_np(error));
  return child;
}

// Some more of it; false at its end.
bool read_some(const UniqueFd& fd, std::string* text) {
  std::array<char, 4096> bytes;
  const ssize_t got = ::read(fd.get(), bytes.data(), bytes.size());
  if (got < 0) return errno == EINTR;
  text->append(bytes.data(), static_cast<size_t>(got));
  return got > 0;
}

// All of both. What is too much is read, too: the program would wait for that.
Said listen(Pipe out, Pipe err) {
  Said said;
  while (out.output || err.output) {
    // Those that are at their end are -1, and left out.
    std::array<pollfd, 2> both{{{out.output.get(), POLLIN, 0}, {err.output.get(), POLLIN, 0}}};
    if (::poll(both.data(), both.size(), -1) < 0) continue;
    if (both[0].revents && !read_some(out.output, &said.out)) out.output = UniqueFd();
    if (both[1].revents && !read_some(err.output, &said.err)) err.output = UniqueFd();
    said.more |= said.out.size() > kMost;
    if (said.out.size() > kMost) said.out.resize(kMost);
    // Its last line is what counts.
    if (said.err.size() > kMost) said.err.erase(0, said.err.size() - kMost / 2);
  }
  return said;
}

Result<Said> run(const std::vector<std::string>& words) {
  auto out = make_pipe(words.front());
  if (!out) return tl::unexpected(std::move(out).error());
  auto err = make_pipe(words.front());
  if (!err) return tl::unexpected(std::move(err).error());
  const auto child = start(words, *out, *err);
  if (!child) return tl::unexpected(child.error());
  out->input = UniqueFd();
  err->input = UniqueFd();
  Said said = listen(std::move(*out), std::move(*err));
  int status = 0;
  while (::waitpid(*child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return said;
  return fail(ErrorClass::State, "{} failed: {}", words.front(), complaint(said));
}

}  // namespace

Result<> run_program(const std::vector<std::string>& words) {
  PCILEND_TRY(run(words));
  return {};
}

Result<std::string> read_program(const std::vector<std::string>& words) {
  auto said = run(words);
  if (!said) return tl::unexpected(std::move(said).error());
  if (said->more)
    return fail(ErrorClass::Failure, "{} prints more than {} MiB", words.front(), kMost >> 20);
  return std::move(said->out);
}

}  // namespace pcilend
