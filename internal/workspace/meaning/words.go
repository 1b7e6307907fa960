package meaning

import (
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
		word = strings.Trim(word, ".:-_~")
		if len(word) < len("a.bc") || !strings.Contains(word, ".") {
			continue
		}
		head, rest := word, ""
		if end := strings.IndexAny(word, "/?#"); end >= 0 {
			head, rest = word[:end], word[end:]
		}
		l.word(head, rest)
	}
}

// asLinked drops characters without a width, and makes every full stop one.
func asLinked(r rune) rune {
	switch {
	case ' ' < r && r < 0x7f && r != '\\':
		return r
	case r == '。', r == '．', r == '｡':
		return '.'
	case r == '\\':
		return '/'
	case r == '\u00ad', plaintext.Steers(r) && !unicode.IsSpace(r):
		return -1
	}
	return r
}

func endsWord(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune("\"'<>()[],;|!*=`", r)
}

// word adds the domain in a word. It is followed by a path, has a port, is the end of a
// mail address or begins with "www.": else it counts only if its top-level domain exists,
// so that a forgotten space after a full stop is no link.
func (l *links) word(head, rest string) {
	user := strings.LastIndexByte(head, '@')
	host, port, _ := strings.Cut(head[user+1:], ":")
	sure := user >= 0 || strings.HasPrefix(rest, "/") || port != "" && strings.Trim(port, "0123456789") == ""
	host = strings.TrimRight(host, ".")
	if len(host) > maxPlace || !looksLikeDomain(placeholder.ReplaceAllString(host, "x")) {
		return
	}
	place, err := hostOf(host)
	if err == nil && (sure || strings.HasPrefix(place, "www.") || hasKnownTop(place)) {
		l.host(place, rest)
	}
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
