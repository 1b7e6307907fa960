package config

import (
	"regexp"
	"strings"
)

// What secrets look like, wherever they are.
var (
	variable   = regexp.MustCompile(`\$\{[A-Za-z0-9_]*\}`)
	longRun    = regexp.MustCompile(`[A-Za-z0-9_+=]{16,}`) // as in keys and tokens
	uuid       = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	pair       = regexp.MustCompile(`^[^:/{]+:[^/]{8,}$`) // NAME:PASSWORD, but not HOST:PORT
	secretWord = regexp.MustCompile(`password|secret|api_key|token`)
)

// shown returns as much of a value as a problem may show: not much, and nothing that may be a
// secret in the wrong field.
func shown(value string) string {
	if looksSecret(variable.ReplaceAllString(value, "")) {
		return ""
	}
	const most = 100
	if len(value) > most {
		return strings.ToValidUTF8(value[:most], "") + "…"
	}
	return value
}

// looksSecret errs on the safe side. The line and the field still lead to a value that is
// hidden.
func looksSecret(value string) bool {
	return strings.Contains(value, "@") || pair.MatchString(value) || secretWord.MatchString(value) || holdsKey(value)
}

// holdsKey reports whether a key or a token is in value.
func holdsKey(value string) bool {
	if uuid.MatchString(value) {
		return true
	}
	for _, run := range longRun.FindAllString(value, -1) {
		digits := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return r
			}
			return -1
		}, run)
		if len(digits) > 1 && len(digits) < len(run) || len(run) >= 32 {
			return true
		}
	}
	return false
}
