package match

import "strings"

// Pattern is a parsed pattern for names; a "*" stands for any characters, also for none. It is
// immutable; the zero value matches nothing.
type Pattern struct{ parts []string } // between the asterisks

// ParsePattern reads a pattern. Every text is one.
func ParsePattern(text string) Pattern { return Pattern{strings.Split(text, "*")} }

// Matches reports whether name, the whole of it, fits.
func (p Pattern) Matches(name string) bool {
	switch len(p.parts) {
	case 0:
		return false
	case 1:
		return name == p.parts[0]
	}
	first, last := p.parts[0], p.parts[len(p.parts)-1]
	rest, ok := strings.CutPrefix(name, first)
	if !ok || !strings.HasSuffix(rest, last) {
		return false
	}
	rest = rest[:len(rest)-len(last)]
	for _, part := range p.parts[1 : len(p.parts)-1] {
		_, behind, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = behind
	}
	return true
}
