package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/auditrelay/auditrelay/config"
)

// An interview asks a person for a configuration. Each answer is held against the checks of
// `config check` before the next question.
type interview struct {
	kinds config.Kinds
	file  string // to be written
	out   io.Writer
	// line reads an answer, and unseen one to a question of its own, which is not shown.
	line   func() (string, error)
	unseen func(question string) (string, error)
	draft  draft
	made   []string // files with secrets, which go if nothing is written
}

var errNothingWritten = errors.New("nothing was written")

// interviewAt asks at a terminal, and writes the configuration.
func (p Program) interviewAt(ctx context.Context, in, out *os.File, file string, force bool) error {
	if _, err := os.Lstat(file); err == nil && !force {
		return errExists(file)
	}
	if err := unix.Access(filepath.Dir(file), unix.W_OK|unix.X_OK); err != nil { // before a person has answered everything
		return fmt.Errorf("nothing can be written in the folder %s: %w; make it, or name a FILE elsewhere", filepath.Dir(file), err)
	}
	typed := bufio.NewReader(in)
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("read the terminal's state: %w", err)
	}
	i := &interview{
		kinds: p.Kinds.Config(), file: file, out: out,
		line: func() (string, error) { return orEnded(ctx, func() (string, error) { return typed.ReadString('\n') }) },
		unseen: func(question string) (string, error) {
			// Before the question, so that nothing that is typed at once is shown.
			if _, err := term.MakeRaw(int(in.Fd())); err != nil {
				return "", err
			}
			defer func() { _ = term.Restore(int(in.Fd()), before) }()
			screen := term.NewTerminal(struct {
				io.Reader
				io.Writer
			}{typed, out}, "")
			secret, err := orEnded(ctx, func() (string, error) { return screen.ReadPassword(question) })
			if errors.Is(err, io.EOF) { // Ctrl-C is one key among others now
				err = errNothingWritten
			}
			return secret, err
		},
	}
	if err = i.run(); err == nil {
		err = writeConfig(file, i.draft.text(), force)
	}
	if err != nil {
		for _, file := range i.made {
			err = errors.Join(err, os.Remove(file))
		}
		return err
	}
	return i.next()
}

// orEnded reads, or gives up when ctx ends; the process ends then, too.
func orEnded(ctx context.Context, read func() (string, error)) (text string, err error) {
	done := make(chan struct{})
	go func() { text, err = read(); close(done) }()
	select {
	case <-done:
		return text, err
	case <-ctx.Done():
		return "", errNothingWritten
	}
}

func (i *interview) say(format string, args ...any) { _, _ = fmt.Fprintf(i.out, format+"\n", args...) }

// answer asks for a line that can be read on the screen: the arrow keys, for one, put something else into it.
// An empty answer means the usual one.
func (i *interview) answer(question, usual string) (string, error) {
	if usual != "" {
		question += " [" + usual + "]"
	}
	for {
		_, _ = fmt.Fprintf(i.out, "%s: ", question)
		line, err := i.line()
		if err != nil && line == "" {
			i.say("")
			return "", errNothingWritten // the input has ended, or the person has ended it
		}
		switch line = strings.TrimSpace(line); {
		case line == "":
			return usual, nil
		case utf8.ValidString(line) && !strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
			return line, nil
		}
		i.say("  it holds a character that cannot be seen; type it again")
	}
}

// yes asks whether to do something.
func (i *interview) yes(question string) (bool, error) {
	for {
		answer, err := i.answer(question+", y or n", "n")
		if err != nil {
			return false, err
		}
		switch strings.ToLower(answer) {
		case "y", "yes":
			return true, nil
		case "n", "no", "-":
			return false, nil
		}
		i.say("  it is y or n")
	}
}

// ask asks until the answer can be written, and then passes the checks of the field and those below
// it. The answer "-" is none.
func (i *interview) ask(field, question, usual string, write func(answer string) error) (string, error) {
	for {
		answer, err := i.answer(question, usual)
		if err != nil {
			return "", err
		}
		if answer == "-" {
			answer = ""
		}
		if err = write(answer); errors.Is(err, errNothingWritten) {
			return "", err
		}
		if err == nil {
			err = i.wrong(field)
		}
		if err == nil {
			return answer, nil
		}
		i.say("  %v", err)
	}
}

// orWithout writes a field, or leaves its section out where there is no answer.
func (i *interview) orWithout(section, field string) func(answer string) error {
	return func(answer string) error {
		if answer == "" {
			i.draft.drop(section)
			return nil
		}
		return i.draft.set(section+field, answer)
	}
}

// wrong is what the checks say about a field.
func (i *interview) wrong(field string) error {
	_, _, err := i.kinds.CheckText(i.file, i.draft.text(), orSetLater)
	var found config.Errors
	if !errors.As(err, &found) {
		return nil
	}
	at := slices.IndexFunc(found, func(p config.Problem) bool {
		rest, within := strings.CutPrefix(p.Field, field)
		return within && (rest == "" || strings.HasPrefix(rest, "[") || strings.HasPrefix(rest, "."))
	})
	if at < 0 {
		return nil
	}
	problem := found[at]
	problem.File, problem.Line, problem.Field = "", 0, ""
	return errors.New(problem.String())
}

// orSetLater knows every variable: one that is not set will be, before the start.
func orSetLater(name string) (string, bool) {
	if value, set := os.LookupEnv(name); set {
		return value, true
	}
	return "set-before-the-start-of-the-relay", true
}

// variableName is NAME, $NAME or ${NAME}.
var variableName = regexp.MustCompile(`^(?:\$?([A-Z_][A-Z0-9_]*)|\$\{([A-Z_][A-Z0-9_]*)\})$`)

// secret asks where a secret is. It never asks for the secret itself on the screen.
func (i *interview) secret(field, what, variable string) error {
	keep, err := filepath.Abs(filepath.Join(filepath.Dir(i.file), strings.ToLower(variable)))
	if err != nil {
		return err
	}
	keep = unused(keep)
	i.say("%s: the NAME of an environment variable, file:PATH,\n  or - to type it unseen; it is then kept in %s", what, keep)
	_, err = i.ask(field, "Where is it", variable, func(answer string) (err error) {
		i.discard(keep) // with a secret that was refused
		switch {
		case answer == "":
			answer, err = i.keepUnseen(keep)
		case variableName.MatchString(answer):
			answer = variableName.ReplaceAllString(answer, "$${$1$2}")
		case !strings.HasPrefix(answer, "file:"):
			err = errors.New("that is neither of them; if it was the secret itself, it was on the screen: make a new one")
		}
		if err == nil {
			err = i.draft.set(field, answer)
		}
		return err
	})
	return err
}

// unused is a path where nothing is yet: this one, or one with a number after it.
func unused(path string) string {
	free := path
	for n := 2; ; n++ {
		if _, err := os.Lstat(free); err != nil {
			return free
		}
		free = fmt.Sprintf("%s_%d", path, n)
	}
}

// discard removes a file with a secret, so that another one can be typed.
func (i *interview) discard(file string) {
	if n := slices.Index(i.made, file); n >= 0 {
		i.made = slices.Delete(i.made, n, n+1)
		if err := os.Remove(file); err != nil {
			i.say("  %v", err)
		}
	}
}

// keepUnseen keeps a secret in a file of its own.
func (i *interview) keepUnseen(file string) (string, error) {
	typed, err := i.unseen("The secret, which is not shown: ")
	if typed = strings.TrimSpace(typed); err != nil || typed == "" {
		return "", errors.Join(err, errors.New("nothing was typed"))
	}
	if err := writeNew(file, []byte(typed+"\n")); err != nil {
		return "", fmt.Errorf("keep the secret: %w", err)
	}
	i.made = append(i.made, file)
	return "file:" + file, nil
}
