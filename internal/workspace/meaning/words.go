package meaning

import (
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/publicsuffix"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// words finds the bare domains and mail addresses in a text, which mail programs make
// links of.
func (l *links) words(text string) {
	text = strings.Map(asLinked, fold(text))
	for word := range strings.FieldsFuncSeq(text, endsWord) {
		word = strings.Trim(word, ".:-_~#?%")
		if !strings.Contains(word, "{{") {
			word = strings.Trim(word, "{}")
		}
		if len(word) < len("a.bc") || !strings.Contains(word, ".") {
			continue
		}
		head, rest := cutPathOff(word)
		for !strings.Contains(head, ".") && strings.HasPrefix(rest, "/") { // words with a slash between them
			head, rest = cutPathOff(rest[1:])
		}
		l.word(head, rest)
	}
}

// cutPathOff cuts a word where the path, the query or the fragment of an address begins.
func cutPathOff(word string) (head, rest string) {
	end := endOf(word, func(r rune) bool { return strings.ContainsRune("/?#", r) })
	return word[:end], word[end:]
}

// asLinked drops characters without a width, and makes every full stop one.
func asLinked(r rune) rune {
	switch {
	case ' ' < r && r < 0x7f && r != '\\':
		return r
	case r == '。', r == '．', r == '｡', r == '․', r == '﹒':
		return '.'
	case r == '\\':
		return '/'
	case r == '\u00ad', plaintext.Steers(r) && !unicode.IsSpace(r):
		return -1
	}
	return r
}

// endsWord reports whether a rune ends an address in a text, as any mark or sign does that an
// address seldom has: quotation marks of every language, arrows and pictures among them.
func endsWord(r rune) bool {
	return unicode.IsSpace(r) || (unicode.IsPunct(r) || unicode.IsSymbol(r)) && !strings.ContainsRune(".-_~:/?#@%{}", r)
}

// word adds the domains in a word, which may be the end of a mail address, have a port, or
// stand after another word and a colon.
func (l *links) word(head, rest string) {
	user := strings.LastIndexByte(head, '@')
	parts := strings.Split(head[user+1:], ":")
	for i, part := range parts {
		after := rest
		if i+1 < len(parts) {
			after = ""
		}
		port := i+1 < len(parts) && parts[i+1] != "" && strings.Trim(parts[i+1], "0123456789") == ""
		l.domain(strings.TrimRight(part, "."), after, user >= 0 || port)
	}
}

// domain adds a domain. It is sure to be one, is followed by a path, or begins with "www.":
// else it counts only if its top-level domain exists, so that a forgotten space after a full
// stop is no link. Four numbers need a path or a port, as a version has four as well.
func (l *links) domain(host, rest string, sure bool) {
	sure = sure || strings.HasPrefix(rest, "/")
	if len(host) > maxPlace || !looksLikeDomain(placeholder.ReplaceAllString(host, "x")) && (!sure || !isIPv4(host)) {
		return
	}
	place, err := hostOf(host)
	if err == nil && (sure || strings.HasPrefix(place, "www.") || hasKnownTop(place)) {
		l.host(place, rest)
	}
}

func isIPv4(host string) bool {
	at, err := netip.ParseAddr(host)
	return err == nil && at.Is4()
}

// looksLikeDomain reports whether a text is labels with dots between them, and the last one
// begins with a letter and is no single one.
func looksLikeDomain(host string) bool {
	labels := strings.Split(host, ".")
	if len(labels) < 2 || slices.Contains(labels, "") {
		return false
	}
	if strings.IndexFunc(host, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.M) && r != '-' && r != '.' && r != '_'
	}) >= 0 {
		return false
	}
	last := []rune(labels[len(labels)-1])
	return len(last) >= 2 && unicode.IsLetter(last[0])
}

// testTops are the top-level domains reserved for tests, documents and inner networks (RFC
// 2606, 6761, 7686), which are in no registry.
var testTops = []string{"example", "test", "local", "localhost", "internal", "invalid", "onion"}

func hasKnownTop(host string) bool {
	top := host[strings.LastIndexByte(host, '.')+1:]
	suffix, registered := publicsuffix.PublicSuffix(host)
	return registered || strings.Contains(suffix, ".") || slices.Contains(testTops, top)
}
