package meaning

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/publicsuffix"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// parseURL parses as browsers do (WHATWG's URL standard), and not as net/url, which
// refuses or misreads much of what browsers follow. A panic in the parser is an error.
func parseURL(text string) (u *url.Url, err error) {
	defer func() {
		if p := recover(); p != nil {
			u, err = nil, fmt.Errorf("parse the address: panic: %v", p)
		}
	}()
	return url.Parse(text)
}

// hostOf gives the host, and the port if it is not the usual one, of an authority: what
// stands before its last "@" is a user's name. An authority with a placeholder stays as it is:
// the value of one may hold the slash that ends an authority.
func hostOf(authority string) (string, error) {
	if strings.Contains(authority, "{{") {
		return authority, nil
	}
	authority = authority[strings.LastIndex(authority, "@")+1:]
	switch {
	case authority == "":
		return "", errors.New("no host")
	case plainHost.MatchString(authority) && !strings.Contains(strings.ToLower(authority), "xn--"):
		return strings.ToLower(authority), nil
	}
	u, err := parseURL("https://" + authority + "/")
	if err != nil {
		return "", err
	}
	return placeOf(u)
}

// plainHost is a host of which a parser would only lower the letters, unless it has "xn--". It saves
// nearly all calls of the parser.
var plainHost = regexp.MustCompile(`^([A-Za-z0-9-]+\.)*[A-Za-z][A-Za-z0-9-]*$`)

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func placeOf(u *url.Url) (string, error) {
	host := strings.TrimRight(u.Hostname(), ".")
	if host == "" {
		return "", errors.New("no host")
	}
	if port := u.Port(); port != "" {
		host += ":" + port
	}
	return host, nil
}

// identifiers are hosts in names of formats: everybody writes them, and nobody else can
// put anything there.
var identifiers = []string{"www.w3.org"}

// shared are hosts whose paths belong to different people.
var shared = []string{
	"bit.ly", "t.co", "tinyurl.com", "is.gd", "ow.ly", "rb.gy", "cutt.ly", "t.ly", "goo.gl", "forms.gle", "lnkd.in", "linktr.ee", "t.me", "wa.me", "rebrand.ly",
	"docs.google.com", "drive.google.com", "sites.google.com", "forms.office.com", "storage.googleapis.com", "s3.amazonaws.com", "raw.githubusercontent.com",
	"www.google.com", "www.dropbox.com", "github.com", "www.notion.so", "telegra.ph", "ipfs.io",
}

// host adds a host. Of a shared one, the path counts too: it begins the text after.
func (l *links) host(host, after string) {
	switch {
	case slices.Contains(identifiers, host):
	case slices.Contains(shared, host):
		l.add(host + pathOf(after))
	default:
		l.add(host)
	}
}

func pathOf(text string) string {
	text = text[:min(len(text), maxAddress)]
	end := endOf(text, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`?#"'<>()`, r) })
	return strings.TrimRight(text[:end], "/.,;:!")
}

// relative is the base of addresses in a mail, which has none of its own.
const relative = "https://relative.invalid/"

// address adds the place of an attribute with an address. leads: people are taken there,
// and not only a picture from there.
func (l *links) address(value string, leads bool) {
	value = fold(strings.TrimFunc(strings.Map(withoutLines, value), func(r rune) bool { return r <= ' ' }))
	if leads {
		maps.Copy(l.filled, placeholdersIn(value))
	}
	if value == "" || strings.HasPrefix(value, "{{") {
		if leads && value != "" {
			l.add(value[:endOf(value, func(r rune) bool { return strings.ContainsRune(`/?#\`, r) })])
		}
		return
	}
	if len(value) > maxAddress && !isImage(value) {
		l.suspect(value) // its host may stand beyond what is read
		return
	}
	u, err := parseURL(value[:min(len(value), maxAddress)])
	switch {
	case err == nil:
		l.absolute(u, value)
	case withScheme.MatchString(value):
		l.suspect(value)
	default:
		l.relative(value, leads)
	}
}

// isImage reports whether an address is a picture itself. One in SVG may lead elsewhere.
func isImage(value string) bool {
	kind := strings.ToLower(value[:min(len(value), len("data:image/svg"))])
	return strings.HasPrefix(kind, "data:image/") && kind != "data:image/svg"
}

// withoutLines drops what a browser passes over in an address.
func withoutLines(r rune) rune {
	if r == '\t' || r == '\n' || r == '\r' {
		return -1
	}
	return r
}

// withScheme is an address with a scheme, of letters and digits.
var withScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

func (l *links) absolute(u *url.Url, value string) {
	switch u.Scheme() {
	case "http", "https", "ws", "wss", "ftp":
		if place, err := placeOf(u); err == nil {
			l.host(place, u.Pathname())
			return
		}
	case "mailto":
		l.words(strings.NewReplacer("?", " ", "&", " ", "=", " ", ":", " ", ";", " ").Replace(decodePercent(value)))
		return
	case "cid", "mid", "about": // parts of the mail itself
		return
	case "data":
		if isImage(value) {
			return
		}
	default:
		if unicode.IsDigit(rune(u.Scheme()[len(u.Scheme())-1])) || strings.Contains(u.Scheme(), ".") { // a host with a port
			l.words(value)
		}
	}
	l.suspect(value)
}

// relative adds the place of an address without a scheme. Most such lead nowhere in a mail,
// except that mail programs take a bare domain for a host.
func (l *links) relative(value string, leads bool) {
	u, err := url.ParseRef(relative, value)
	if err != nil {
		l.suspect(value)
		return
	}
	if place, err := placeOf(u); err == nil && place+"/" != strings.TrimPrefix(relative, "https://") {
		l.host(place, u.Pathname())
		return
	}
	head, _ := cutPathOff(strings.TrimLeft(strings.ReplaceAll(value, `\`, "/"), "/"))
	switch {
	case leads && strings.Contains(head, "{{"), // it may hold the scheme and the host
		leads && !isLetter(value[0]) && !strings.ContainsRune("/.#?_-~0123456789", rune(value[0])): // a placeholder of another form
		l.suspect(value)
	case strings.Contains(head, "."):
		l.words(value)
	}
}

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
	if len(host) > maxPlace || !domain.MatchString(placeholder.ReplaceAllString(host, "x")) && (!sure || !isIPv4(host)) {
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

// domain is labels with dots between them; the last one begins with a letter and is no single one.
var domain = regexp.MustCompile(`^([\pL\pN\pM_-]+\.)+\pL[\pL\pN\pM_-]+$`)

// testTops are the top-level domains reserved for tests, documents and inner networks (RFC
// 2606, 6761, 7686), which are in no registry.
var testTops = []string{"example", "test", "local", "localhost", "internal", "invalid", "onion"}

func hasKnownTop(host string) bool {
	top := host[strings.LastIndexByte(host, '.')+1:]
	suffix, registered := publicsuffix.PublicSuffix(host)
	return registered || strings.Contains(suffix, ".") || slices.Contains(testTops, top)
}
