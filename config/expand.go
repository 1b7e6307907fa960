package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

var (
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// A variable without its braces, as in $HOME/relay.
	unbraced = regexp.MustCompile(`(?:^|[^$])\$[A-Z_][A-Z0-9_]+`)
)

// expand replaces each ${NAME} by the environment variable NAME, and each $${ by ${. It works
// on parsed values, so the content of a variable can add no field. Errors name the variable,
// but no value.
func expand(text string, env func(string) (string, bool)) (string, error) {
	var out strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			return out.String() + text, nil
		}
		if i > 0 && text[i-1] == '$' {
			out.WriteString(text[:i-1] + "${")
			text = text[i+2:]
			continue
		}
		name, rest, closed := strings.Cut(text[i+2:], "}")
		if !closed || !variableName.MatchString(name) {
			return "", errors.New("holds ${ that is not followed by a variable's name and }; write ${NAME}, or $${ for a literal ${")
		}
		value, set := env(name)
		if !set {
			return "", fmt.Errorf("the environment variable %s is not set; set it, or write $${ for a literal ${", name)
		}
		out.WriteString(text[:i] + value)
		text = rest
	}
}

// secretSource is the text of a secret and where it came from.
type secretSource struct {
	text  secret.Text
	file  string // of file:PATH
	plain bool   // it is written in the configuration itself
}

// readSecret returns the secret of raw: the content of PATH for file:PATH, and otherwise raw
// itself with its ${NAME} replaced. Errors name the variable or the file, but no value.
func readSecret(raw string, env func(string) (string, bool)) (secretSource, error) {
	path, isFile := strings.CutPrefix(raw, "file:")
	text, err := expand(path, env)
	s := secretSource{plain: !isFile && raw != "" && !strings.Contains(strings.ReplaceAll(raw, "$${", ""), "${")}
	switch {
	case err != nil:
	case isFile:
		s.file = strings.TrimSpace(text)
		text, err = readSecretFile(s.file)
	case raw != "" && text == "":
		err = errors.New("the environment variable is set, but empty")
	}
	if err != nil {
		return secretSource{}, err
	}
	if strings.ContainsFunc(text, isControl) {
		return secretSource{}, errors.New("the secret holds a line break or another control character; keep it on one line")
	}
	s.text = secret.New(text)
	return s, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func readSecretFile(path string) (string, error) {
	data, err := readRegular(path, maxSecret)
	if err != nil {
		return "", fmt.Errorf("read the secret's file: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("read the secret's file: %s is empty", path)
	}
	return text, nil
}
