#pragma once
// The terminal of `turnstile top`: raw mode, the alternate screen, and signals. Without ncurses: the screen needs only
// to place, write and clear whole lines, which each terminal does alike.

#include <sys/types.h>
#include <termios.h>

#include <string>
#include <vector>

namespace turnstile::cli::top {

/// Blocks the signals that end, stop, continue or resize the program, and reads them from a descriptor. Create it
/// before the first thread, because threads inherit the mask. The signals stay blocked.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  /// The signals that have arrived. Does not wait.
  std::vector<int> take() const;

 private:
  int descriptor_ = -1;
};

/// Stdin and stdout as a screen. The destructor gives the terminal back as it was.
class Terminal {
 public:
  /// Empty if stdin and stdout are a terminal that can show a screen. Otherwise the reason.
  static std::string why_not();

  /// Throws std::system_error.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// After leave(), and after another program has changed the terminal.
  void enter();
  /// As it was. It waits a short time for a terminal that takes no output.
  void leave() noexcept;

  struct Size {
    std::size_t columns = 80, rows = 24;
  };
  [[nodiscard]] Size size() const;
  /// Writes the lines that differ from those on the screen. Call it only if `idle()`.
  void show(const std::vector<std::string>& lines, Size size);
  /// False: the terminal has not taken all output, as after Ctrl-S or on a slow line.
  [[nodiscard]] bool idle() const noexcept { return pending_.empty(); }
  /// Writes as much as the terminal takes now.
  void flush();
  /// The keys' bytes that have arrived, without waiting. `hung_up`: there will be no more.
  std::string read(bool& hung_up);

  [[nodiscard]] int output() const noexcept { return output_; }

 private:
  int output_ = -1;  ///< opened anew, so that not to block is not a property of the shell's own descriptor
  termios before_{};
  bool entered_ = false;
  std::vector<std::string> shown_{};
  Size shown_size_{0, 0};
  std::string pending_{};
};

}  // namespace turnstile::cli::top
