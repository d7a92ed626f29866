#include "core/scenario/shell_words.h"

#include <fmt/format.h>

#include <cctype>
#include <map>

namespace moetwin {

namespace {

bool name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  ShellScript run() {
    while (at_ < text_.size()) {
      const int line = line_;
      const size_t begin = at_;
      std::vector<ShellWord> words = command();
      if (words.empty()) continue;
      const std::string& first = words.front().text;
      if (first == "if" || first == "for" || first == "while" || first == "case") ++inside_;
      const bool keyword = first == "then" || first == "else" || first == "do" || first == "fi" ||
                           first == "done" || first == "esac";
      if (!keyword && inside_ > 0) {
        script_.unread.push_back(fmt::format("{}: {}", line, source(begin)));
      } else if (!keyword && !assign(words)) {
        script_.commands.push_back(std::move(words));
      }
      if (inside_ > 0 && (first == "fi" || first == "done" || first == "esac")) --inside_;
    }
    return std::move(script_);
  }

 private:
  // NAME=value alone on a line, with or without export.
  bool assign(const std::vector<ShellWord>& words) {
    size_t i = words.front().text == "export" || words.front().text == "local" ? 1 : 0;
    if (i == words.size()) return false;
    for (size_t w = i; w < words.size(); ++w) {
      const size_t equals = words[w].text.find('=');
      if (equals == std::string::npos || equals == 0) return false;
      for (size_t c = 0; c < equals; ++c)
        if (!name_char(words[w].text[c])) return false;
    }
    for (; i < words.size(); ++i) {
      const size_t equals = words[i].text.find('=');
      variables_[words[i].text.substr(0, equals)] = {words[i].text.substr(equals + 1),
                                                     words[i].line};
    }
    return true;
  }

  std::string source(size_t begin) const {
    std::string text = text_.substr(begin, at_ - begin);
    const size_t first = text.find_first_not_of(" \t\n"), last = text.find_last_not_of(" \t\n;");
    return first == std::string::npos ? "" : text.substr(first, last + 1 - first);
  }

  // Up to the end of the line or a semicolon outside quotes.
  std::vector<ShellWord> command() {
    std::vector<ShellWord> words;
    std::string word;
    bool open = false;  // a word has begun, perhaps empty
    int word_line = line_;
    const auto end_word = [&] {
      if (open) words.push_back({word, word_line});
      word.clear();
      open = false;
    };
    const auto add = [&](char c) {
      if (!open) word_line = line_;
      open = true;
      word += c;
    };
    char quote = 0;
    std::string list;  // the NAME= of a list that is open
    size_t list_begin = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '\n') ++line_;
      if (quote == '\'') {
        if (c == '\'')
          quote = 0;
        else
          add(c);
      } else if (c == '\\' && at_ < text_.size()) {
        const char next = text_[at_++];
        if (next == '\n') {
          ++line_;
        } else {
          if (quote && next != '"' && next != '\\' && next != '$') add('\\');
          add(next);
        }
      } else if (c == '$') {
        bool is_list = false;  // "${LIST[@]}" is as many words as there are, in quotes too
        const auto& [value, line] = variables_[variable(&is_list)];
        if (quote && !is_list) {
          for (const char v : value) add(v);
          open = true;
          continue;
        }
        // Unquoted: the value's blanks end words.
        for (const char v : value) {
          if (std::isspace(static_cast<unsigned char>(v)))
            end_word();
          else
            add(v), word_line = line;
        }
      } else if (quote) {
        if (c == '"')
          quote = 0;
        else
          add(c);
      } else if (c == '"' || c == '\'') {
        quote = c;
        if (!open) word_line = line_;
        open = true;
      } else if (c == '#' && !open) {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '(' && open && word.back() == '=') {
        list = word;
        list_begin = words.size();
        word.clear();
        open = false;
      } else if (c == ')' && !list.empty()) {
        end_word();
        for (size_t i = list_begin; i < words.size(); ++i) list += words[i].text + " ";
        words.resize(list_begin);
        words.push_back({list, word_line});
        list.clear();
      } else if ((c == '\n' || c == ';') && list.empty()) {
        break;
      } else if (c == '|' || c == '>' || c == '<' || c == '&') {
        // What a pipe or a redirection names is no argument.
        end_word();
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(c))) {
        end_word();
      } else {
        add(c);
      }
    }
    end_word();
    return words;
  }

  // Behind the dollar sign: NAME, {NAME}, {NAME:-default}, {NAME[@]}, a digit or @.
  std::string variable(bool* is_list) {
    std::string name;
    if (at_ < text_.size() && text_[at_] == '{') {
      const size_t end = std::min(text_.find('}', at_), text_.size());
      name = text_.substr(at_ + 1, end - at_ - 1);
      at_ = std::min(end + 1, text_.size());
      const size_t fallback = name.find(":-"), list = name.find('[');
      *is_list = list != std::string::npos;
      const std::string plain = name.substr(0, std::min(fallback, list));
      if (fallback != std::string::npos && variables_[plain].first.empty())
        variables_[plain] = {name.substr(fallback + 2), line_};
      return plain;
    }
    while (at_ < text_.size() && name_char(text_[at_])) name += text_[at_++];
    if (name.empty() && at_ < text_.size() && (text_[at_] == '@' || text_[at_] == '*')) ++at_;
    return name;
  }

  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;
  int inside_ = 0;  // of conditions and loops
  std::map<std::string, std::pair<std::string, int>> variables_;
  ShellScript script_;
};

}  // namespace

ShellScript read_shell(const std::string& text) { return Reader(text).run(); }

}  // namespace moetwin
