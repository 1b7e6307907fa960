package config

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces each ${NAME} by the environment variable of that name, and
// each $${ by ${. It works on values that YAML has parsed already, so that what
// a variable holds can add no field. Errors name the variable, no value.
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
			return "", errors.New("holds ${ without a variable's name and } behind it; write ${NAME}, or $${ for a literal ${")
		}
		value, set := env(name)
		if !set {
			return "", fmt.Errorf("the environment variable %s is not set; set it, or write $${ for a literal ${", name)
		}
		out.WriteString(text[:i] + value)
		text = rest
	}
}

// readSecret returns the secret that raw stands for: the content of PATH for
// file:PATH, else raw itself with its ${NAME} replaced. plain says that the
// secret is there in the open. Errors name the variable or file, no value.
func readSecret(raw string, env func(string) (string, bool)) (text string, plain bool, err error) {
	path, isFile := strings.CutPrefix(raw, "file:")
	text, err = expand(path, env)
	switch {
	case err != nil:
	case isFile:
		text, err = readSecretFile(strings.TrimSpace(text))
	case raw != "" && text == "":
		err = errors.New("the environment variable is set, but empty")
	}
	if err != nil {
		return "", false, err
	}
	if strings.ContainsFunc(text, isControl) {
		return "", false, errors.New("the secret holds a line break or another control character; keep it on one line")
	}
	plain = !isFile && raw != "" && !strings.Contains(strings.ReplaceAll(raw, "$${", ""), "${")
	return text, plain, nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func readSecretFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("read the secret's file: %w", err)
	}
	// A pipe or a terminal would be waited for without end.
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("read the secret's file: %s is not a regular file", path)
	}
	data, err := readBounded(path, maxSecret)
	if err != nil {
		return "", fmt.Errorf("read the secret's file: %w", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("read the secret's file: %s is empty", path)
	}
	return text, nil
}
