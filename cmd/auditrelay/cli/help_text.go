package cli

import (
	"embed"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/routing/match"
)

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
