package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// words are the texts that go along with a binary, by their paths below /usr/share.
type words map[string][]byte

// words has the binary for this machine write the completions, and makes manual pages of its help.
func (r *release) words(ctx context.Context, work string, binaries map[target]string) (words, error) {
	binary := binaries[target{runtime.GOOS, runtime.GOARCH}]
	if binary == "" {
		return nil, fmt.Errorf("-targets lacks %s/%s: the binary of this machine writes completions and manual pages", runtime.GOOS, runtime.GOARCH)
	}
	made := words{}
	for shell, path := range map[string]string{
		"bash": "bash-completion/completions/auditrelay", "zsh": "zsh/site-functions/_auditrelay", "fish": "fish/vendor_completions.d/auditrelay.fish",
	} {
		text, err := r.command(ctx, binary, "completion", shell)
		if err != nil {
			return nil, err
		}
		made[path] = []byte(text)
	}
	if err := r.manual(ctx, binary, nil, made); err != nil {
		return nil, err
	}
	example := filepath.Join(work, "relay.example.yaml")
	if _, err := r.command(ctx, binary, "config", "init", example); err != nil {
		return nil, err
	}
	for path, from := range map[string]string{
		"doc/auditrelay/relay.example.yaml": example, "doc/auditrelay/copyright": filepath.Join(r.root, "LICENSE"), "doc/auditrelay/CHANGELOG.md": filepath.Join(r.root, "CHANGELOG.md"),
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		made[path] = text
	}
	return made, nil
}

// subcommand is a line of a help's list of commands.
var subcommand = regexp.MustCompile(`(?m)^  ([a-z][a-z-]*) +\S`)

// manual makes the manual page of a command, and of all below it, from their help.
func (r *release) manual(ctx context.Context, binary string, command []string, made words) error {
	help, err := r.command(ctx, binary, append(append([]string{}, command...), "--help")...)
	if err != nil {
		return err
	}
	page := strings.Join(append([]string{"auditrelay"}, command...), "-")
	about, sections := sectionsOf(help)
	made["man/man1/"+page+".1"] = []byte(r.page(page, about, sections))
	for _, s := range sections {
		if s.title != "Available Commands" {
			continue
		}
		for _, m := range subcommand.FindAllStringSubmatch(s.text, -1) {
			if m[1] == "help" || m[1] == "completion" {
				continue
			}
			if err := r.manual(ctx, binary, append(append([]string{}, command...), m[1]), made); err != nil {
				return err
			}
		}
	}
	return nil
}

type section struct{ title, text string }

// heading is a line that begins a section of a help text.
var heading = regexp.MustCompile(`(?m)^(Usage|Aliases|Examples|Available Commands|Flags|Global Flags):\n`)

// sectionsOf splits a help text into what the command does and the sections below.
func sectionsOf(help string) (about string, sections []section) {
	at := heading.FindAllStringSubmatchIndex(help, -1)
	if len(at) == 0 {
		return help, nil
	}
	for i, m := range at {
		end := len(help)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		text, _, _ := strings.Cut(help[m[1]:end], "\nUse \"")
		sections = append(sections, section{help[m[2]:m[3]], strings.Trim(text, "\n")})
	}
	return strings.TrimSpace(help[:at[0][0]]), sections
}

// page is a manual page in the macros of man(7).
func (r *release) page(name, about string, sections []section) string {
	var b strings.Builder
	first, _, _ := strings.Cut(strings.ReplaceAll(about, "\n", " "), ". ")
	fmt.Fprintf(&b, ".TH %q 1 %q %q \"auditrelay\"\n", strings.ToUpper(name), r.time.Format("2006-01-02"), "auditrelay "+r.number())
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH DESCRIPTION\n", roff(name), roff(strings.TrimSuffix(first, ".")))
	for paragraph := range strings.SplitSeq(about, "\n\n") {
		if strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") {
			b.WriteString(".PP\n" + verbatim(paragraph))
			continue
		}
		b.WriteString(".PP\n" + roff(paragraph) + "\n")
	}
	for _, s := range sections {
		b.WriteString(".SH " + strings.ToUpper(strings.ReplaceAll(s.title, "Available ", "")) + "\n" + verbatim(s.text))
	}
	if name != "auditrelay" {
		b.WriteString(".SH SEE ALSO\n.BR auditrelay (1)\n")
	}
	return b.String()
}

func verbatim(text string) string { return ".nf\n" + roff(text) + "\n.fi\n" }

// roff escapes what troff would read as its own.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// changes writes the section of the changelog about this version, or else about what is unreleased.
func (r *release) changes() error {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	sections := strings.Split("\n"+string(text), "\n## ")
	for _, title := range []string{r.number(), "[" + r.number() + "]", "Unreleased"} {
		for _, s := range sections[1:] {
			head, _, _ := strings.Cut(s, "\n")
			if name, _, _ := strings.Cut(head, " "); name == title {
				return os.WriteFile(r.file("CHANGES.md"), []byte("## "+strings.TrimSpace(s)+"\n"), 0o644)
			}
		}
	}
	return errors.New("CHANGELOG.md has no section of " + r.number() + ", and none of what is unreleased")
}
