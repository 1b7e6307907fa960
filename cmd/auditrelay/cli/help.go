package cli

import (
	"embed"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// helpWidth is the least and the greatest width of a help text.
var helpWidth = struct{ least, most int }{40, 96}

// showHelpWithin replaces a command's help, and that of all below it, by one that fits the
// terminal. Elsewhere it stays as it is written.
func showHelpWithin(root *cobra.Command) {
	plain := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		file := fileOf(cmd.OutOrStdout())
		if !isTerminal(file) {
			plain(cmd, args)
			return
		}
		printHelp(cmd, cmd.OutOrStdout(), min(max(widthOf(file), helpWidth.least), helpWidth.most))
	})
}

// printHelp prints the help of cmd in lines of at most width.
func printHelp(cmd *cobra.Command, w io.Writer, width int) {
	about := cmd.Long
	if about == "" {
		about = cmd.Short
	}
	example := cmd.Example
	cmd.Example = ""
	usage := cmd.UsageString() // with the commands and the flags
	cmd.Example = example
	usage, flags, _ := strings.Cut(usage, "\nFlags:\n")
	text := strings.Join(reflow(about, width), "\n") + "\n\n" + strings.Join(reflow(strings.TrimSpace(usage), width), "\n") + "\n"
	if example != "" {
		text += "\nExamples:\n" + strings.Join(exampleLines(example, width), "\n") + "\n"
	}
	if flags != "" {
		text += "\nFlags:\n" + cmd.Flags().FlagUsagesWrapped(width)
		if _, more, found := strings.Cut(flags, "\n\n"); found {
			text += "\n" + strings.Join(reflow(strings.TrimSpace(more), width), "\n") + "\n"
		}
	}
	_, _ = fmt.Fprint(w, text) // a help that cannot be printed has no other place to say so
}

// reflow joins the lines of a paragraph and breaks them again. An indented line is one by
// itself, with the lines below it that begin under its second column.
func reflow(text string, width int) (lines []string) {
	var whole []string
	for line := range strings.SplitSeq(text, "\n") {
		if last := len(whole) - 1; last >= 0 && goesOn(whole[last], line) {
			whole[last] += " " + strings.TrimLeft(line, " ")
		} else {
			whole = append(whole, line)
		}
	}
	for _, line := range whole {
		lines = append(lines, hang(line, width)...)
	}
	return lines
}

// goesOn reports whether a line goes on with the paragraph, or the indented line, before it.
func goesOn(before, line string) bool {
	indent := indentOf(line)
	switch {
	case before == "" || line == "":
		return false
	case indent == 0:
		return indentOf(before) == 0 && !strings.HasSuffix(before, ":")
	}
	return indentOf(before) > 0 && indent == secondColumn(before) && strings.TrimSpace(before[:indent]) != ""
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// hang breaks a line, so that the rest of it begins under its second column.
func hang(line string, width int) []string {
	if utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	at := secondColumn(line)
	indent := strings.Repeat(" ", at)
	var lines []string
	for i, part := range wrap(line[at:], width-at) {
		if i == 0 {
			lines = append(lines, line[:at]+part)
			continue
		}
		lines = append(lines, indent+part)
	}
	return lines
}

// secondColumn is where the text after a gap of two blanks begins, or else the first one.
func secondColumn(line string) int {
	first := indentOf(line)
	gap := strings.Index(line[first:], "  ")
	const most = 30 // a gap far to the right is within a text
	if gap < 0 || first+gap > most {
		return first
	}
	return first + gap + indentOf(line[first+gap:])
}

// exampleLines gives each example's comment a line of its own where there is no room
// next to it, and breaks a long command before a flag or a pipe.
func exampleLines(text string, width int) (lines []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(line) <= width {
			lines = append(lines, line)
			continue
		}
		command, comment, found := strings.Cut(line, " # ")
		if found {
			lines = append(lines, "  # "+strings.TrimSpace(comment))
		}
		lines = append(lines, brokenCommand(strings.TrimRight(command, " "), width)...)
	}
	return lines
}

func brokenCommand(command string, width int) (lines []string) {
	for utf8.RuneCountInString(command) > width {
		room := command[:min(len(command), width-len(" \\"))]
		at := max(strings.LastIndex(room, " --"), strings.LastIndex(room, " | "), strings.LastIndex(room, " > "), strings.LastIndex(room, " || "))
		begin := indentOf(command)
		if at <= begin && !strings.ContainsAny(room, "'\"") { // a blank within quotes is no place to break
			at = strings.LastIndex(room, " ")
		}
		if at <= begin {
			break // one word, longer than a line
		}
		lines = append(lines, command[:at]+" \\")
		command = "      " + command[at+1:]
	}
	return append(lines, command)
}

// helpFiles have the help of the commands, a file for each group. A command begins with its usage,
// as "# auditrelay trail show INDEX". Then come a line on what it does, the text, and the examples
// after the line "Examples:".
//
//go:embed help/*.txt
var helpFiles embed.FS

// helpText is the help of one command.
type helpText struct{ use, short, long, examples string }

// helpTexts are those of the help files, by the commands' names.
var helpTexts = sync.OnceValue(func() map[string]helpText {
	lists := strings.NewReplacer(
		"{match.Names}", strings.Join(match.Names(), ", "),
		"{health.Help}", strings.Join(wrap(health.Help(), 76), "\n            "),
	)
	texts := map[string]helpText{}
	files, _ := helpFiles.ReadDir("help") // it is there, as are the files
	for _, f := range files {
		file, _ := helpFiles.ReadFile("help/" + f.Name())
		for section := range strings.SplitSeq(strings.TrimPrefix(lists.Replace(string(file)), "# "), "\n# ") {
			usage, text, _ := strings.Cut(section, "\n")
			short, text, _ := strings.Cut(text, "\n")
			long, examples, _ := strings.Cut("\n"+strings.TrimRight(text, "\n"), "\nExamples:\n")
			name, use := commandOf(usage)
			texts[name] = helpText{use, short, strings.Trim(long, "\n"), examples}
		}
	}
	return texts
})

// commandOf reads a usage, such as "auditrelay trail show INDEX": the name of the command is
// "auditrelay trail show", and its use under "trail" is "show INDEX".
func commandOf(usage string) (name, use string) {
	last := "" // word of the name
	rest := usage
	for rest != "" && rest[0] >= 'a' && rest[0] <= 'z' {
		last, rest, _ = strings.Cut(rest, " ")
		name += " " + last
	}
	return strings.TrimSpace(name), strings.TrimSpace(last + " " + rest)
}

// described is the command that the help files have under name, which is without the program's; it
// can do nothing yet.
func described(name string) *cobra.Command {
	text, known := helpTexts()[strings.TrimSpace("auditrelay "+name)]
	if !known {
		panic("the help has no text on auditrelay " + name)
	}
	return &cobra.Command{Use: text.use, Short: text.short, Long: text.long, Example: text.examples}
}
