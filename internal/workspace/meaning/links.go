package meaning

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"html"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A mail leads to places: hosts, and whatever else an address can name. The set of a
// project's places is deliberately taken too large: whatever any browser or mail program
// might follow counts as a link. What cannot be read counts too, and is suspicious.

const (
	maxPlaces  = 50_000 // of one state
	maxPlace   = 260    // bytes of a place; a host name has at most 253
	maxAddress = 4096   // bytes of an address that are read
)

// links collects the places of one text.
type links struct {
	// places says whether each place could be read.
	places map[string]bool
	// beyond hashes what exceeds maxPlaces, so that a change there is a new place as well.
	beyond hash.Hash
	// filled are the placeholders in addresses that people are taken to.
	filled map[string]bool
}

func newLinks() *links {
	return &links{places: map[string]bool{}, beyond: sha256.New(), filled: map[string]bool{}}
}

// linksIn returns the places in a value of a template and in all values within it. The
// name of a member says how its text is read.
func linksIn(name string, v any) map[string]bool {
	l := newLinks()
	l.value(name, v)
	if len(l.places) >= maxPlaces {
		l.places["more places, with the SHA-256 "+hex.EncodeToString(l.beyond.Sum(nil))] = true
	}
	return l.places
}

func (l *links) value(name string, v any) {
	switch x := v.(type) {
	case string:
		l.anywhere(x)
		if strings.Contains(x, "<") {
			l.markup(x)
		} else {
			x = html.UnescapeString(x)
		}
		if name != "html_content" || !strings.Contains(x, "<") {
			l.words(x)
		}
	case []any:
		for _, element := range x {
			l.value(name, element)
		}
	case map[string]any:
		for _, member := range sortedUnion(x, nil) {
			l.value(member, x[member])
		}
	}
}

func (l *links) add(place string) { l.put(place, true) }

// suspect adds an address that leads somewhere, though nobody can say where.
func (l *links) suspect(address string) { l.put(address, false) }

func (l *links) put(place string, read bool) {
	if len(place) > maxPlace {
		sum := sha256.Sum256([]byte(place))
		place = strings.ToValidUTF8(place[:maxPlace/2], "") + "… (SHA-256 " + hex.EncodeToString(sum[:8]) + ")"
	}
	if _, known := l.places[place]; known {
		return
	}
	if len(l.places) >= maxPlaces {
		_, _ = fmt.Fprintf(l.beyond, "%q", place)
		return
	}
	l.places[place] = read
}

// placeholder is what the service replaces by a value, such as {{url}}.
var placeholder = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// placeholdersIn are the placeholders of a text, each written in one way.
func placeholdersIn(text string) map[string]bool {
	found := map[string]bool{}
	for _, one := range placeholder.FindAllString(fold(text), -1) {
		found[one] = true
	}
	return found
}

// fold writes each placeholder without characters that would end an address.
func fold(text string) string {
	if !strings.Contains(text, "{{") {
		return text
	}
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		inner := strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.", r) {
				return r
			}
			return '_'
		}, strings.TrimSpace(found[2:len(found)-2]))
		return "{{" + inner + "}}"
	})
}

// maxDecodings is how often an address may be percent-encoded within another.
const maxDecodings = 3

// anywhere finds the addresses that a text has anywhere: in code, in comments, and as
// parameters of other addresses.
func (l *links) anywhere(text string) {
	text = html.UnescapeString(text)
	if strings.Contains(text, `\`) {
		l.schemes(cssEscape.ReplaceAllStringFunc(text, decodeCSS))
		text = strings.ReplaceAll(text, `\`, "/")
	}
	for range maxDecodings {
		l.schemes(text)
		if folded := fold(text); folded != text {
			l.schemes(folded)
		}
		if !encodesAddress(text) {
			return
		}
		text = strings.ReplaceAll(decodePercent(text), `\`, "/")
	}
	l.schemes(text)
}

// encodesAddress reports whether a text has an encoded slash, or an encoded percent sign.
func encodesAddress(text string) bool {
	return strings.Contains(text, "%2f") || strings.Contains(text, "%2F") || strings.Contains(text, "%5c") || strings.Contains(text, "%5C") || strings.Contains(text, "%25")
}

var encoded = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func decodePercent(text string) string {
	return encoded.ReplaceAllStringFunc(text, func(found string) string {
		plain, err := url.PathUnescape(found)
		if err != nil { // never: the expression matched
			return found
		}
		return plain
	})
}

// cssEscape is a character as a style may write it, by its number.
var cssEscape = regexp.MustCompile(`\\[0-9A-Fa-f]{1,6}[ \t\r\n\f]?`)

func decodeCSS(found string) string {
	number, err := strconv.ParseInt(strings.TrimSpace(found[1:]), 16, 32)
	if err != nil { // never: the expression matched
		return found
	}
	return string(rune(number))
}

// schemes finds "//", "http:" and "https:" with an authority after them.
func (l *links) schemes(text string) {
	for i := 0; i+1 < len(text); i++ {
		scheme := text[i] == ':' && (endsIn(text[:i], "http") || endsIn(text[:i], "https"))
		if !scheme && (text[i] != '/' || text[i+1] != '/') {
			continue
		}
		scheme = scheme || i > 0 && text[i-1] == ':'
		rest := strings.TrimLeft(text[i+1:], "/")
		end := endOf(rest, endsAuthority)
		l.authority(rest[:end], rest[end:], scheme)
		i = len(text) - len(rest) + end - 1
	}
}

func endsIn(text, word string) bool {
	return len(text) >= len(word) && strings.EqualFold(text[len(text)-len(word):], word)
}

func endOf(text string, ends func(rune) bool) int {
	if end := strings.IndexFunc(text, ends); end >= 0 {
		return end
	}
	return len(text)
}

func endsAuthority(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`/?#"<>`, r) }

func endsShortAuthority(r rune) bool { return strings.ContainsRune("'()[],;|`", r) }

// authority adds the host of an authority found in a text. Programs that make links of
// text do not agree on where an address ends, so the shortest one counts too. after is the
// text that follows. Without a scheme before it, "//" may also begin a comment.
func (l *links) authority(text, after string, scheme bool) {
	if len(text) > maxAddress {
		l.suspect(text)
		return
	}
	if !strings.HasPrefix(text, "[") {
		l.ending(text[:endOf(text, endsShortAuthority)], after, scheme)
	}
	l.ending(text, after, scheme)
}

func (l *links) ending(text, after string, scheme bool) {
	text = strings.TrimRight(text, `.,;:!'")*`)
	if strings.Count(text, "}") != 2*strings.Count(text, "}}") || !strings.Contains(text, "{{") {
		text = strings.TrimRight(text, "}")
	}
	switch place, err := hostOf(text); {
	case text == "":
	case !scheme && !strings.ContainsAny(text, ".:{"):
	case err == nil:
		l.host(place, after)
	case scheme:
		l.suspect(text)
	}
}
