package meaning

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// maxRereading bounds the reading of markup within markup, as a multiple of the text's
// length: a mail with a comment within it needs less than four.
const maxRereading = 8

// markup finds the addresses in HTML. Readers do not agree on what is markup: a browser
// without scripts reads <noscript>, Outlook reads comments. So everything that may be
// markup for anybody is read as markup.
func (l *links) markup(content string) {
	left := maxRereading*len(content) + 4096
	for waiting := []string{content}; len(waiting) > 0; {
		fragment := waiting[0]
		waiting = waiting[1:]
		if left -= 2 * len(fragment); left < 0 {
			sum := sha256.Sum256([]byte(content))
			l.suspect("markup nested too deeply to be read, with the SHA-256 " + hex.EncodeToString(sum[:]))
			return
		}
		// Once as most readers do, and once as if no element had text only.
		waiting = append(waiting, l.tokens(fragment, false)...)
		waiting = append(waiting, l.tokens(fragment, true)...)
	}
}

// tokens reads the tags and texts of a fragment, and returns those parts that may be
// markup within it.
func (l *links) tokens(fragment string, noRawText bool) (within []string) {
	z := html.NewTokenizer(strings.NewReader(fragment))
	var shown strings.Builder // the text as a reader sees it
	element := ""
	for {
		switch z.Next() {
		case html.ErrorToken:
			l.words(shown.String())
			return within
		case html.TextToken:
			if noRawText || element == "style" || element == "script" {
				continue
			}
			if element != "" {
				within = appendMarkup(within, string(z.Raw()))
			}
			text := string(z.Text())
			l.words(text)
			shown.WriteString(text)
		case html.CommentToken, html.DoctypeToken:
			within = appendMarkup(within, string(z.Raw()[min(2, len(z.Raw())):]))
		case html.StartTagToken, html.SelfClosingTagToken, html.EndTagToken:
			name, more := z.TagName()
			if element = rawText(string(name)); !slices.Contains(inline, string(name)) {
				shown.WriteByte('\n')
			}
			within = append(within, l.attributes(z, string(name), more)...)
			if noRawText {
				z.NextIsNotRawText()
			}
		}
	}
}

// appendMarkup adds a text that may hold an element.
func appendMarkup(list []string, text string) []string {
	if strings.Contains(text, "<") {
		return append(list, text)
	}
	return list
}

// inline are elements that leave the words around them one word.
var inline = []string{"b", "i", "u", "s", "em", "strong", "span", "font", "small", "big", "sub", "sup", "wbr", "code", "mark"}

// rawText is the name of an element with text only, and empty for others.
func rawText(name string) string {
	if slices.Contains([]string{"iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp"}, name) {
		return name
	}
	return ""
}

func (l *links) attributes(z *html.Tokenizer, tag string, more bool) (within []string) {
	var refresh bool
	var contents []string // of equal names, readers take the first or the last
	for more {
		var key, raw []byte
		key, raw, more = z.TagAttr()
		name, value := string(key), string(raw)
		within = appendMarkup(within, value)
		switch local := name[strings.LastIndexByte(name, ':')+1:]; {
		case slices.Contains(leading, local):
			l.address(value, true)
		case slices.Contains(loading, local):
			l.address(value, tag != "img")
		case local == "srcset", local == "imagesrcset":
			for one := range strings.SplitSeq(value, ",") {
				l.address(strings.TrimSpace(one), false)
			}
		case local == "http-equiv":
			refresh = refresh || strings.EqualFold(strings.TrimSpace(value), "refresh")
		case local == "content" && tag == "meta":
			contents = append(contents, value)
		case slices.Contains(animated, local):
			for one := range strings.SplitSeq(value, ";") {
				l.address(one, false)
			}
		}
	}
	for _, content := range contents {
		l.refresh(content, refresh)
	}
	return within
}

// The attributes with an address. The leading ones take a reader there.
var (
	leading = []string{"href", "action", "formaction", "ping"}
	// animated are the values that an animation gives another attribute, perhaps a link's.
	animated = []string{"to", "from", "by", "values"}
	loading  = []string{"src", "data", "background", "poster", "cite", "longdesc", "codebase", "manifest", "lowsrc", "dynsrc"}
)

var refreshTime = regexp.MustCompile(`^[\s0-9.]*[;,]?\s*(?i:url\s*=\s*)?["']?`)

// refresh reads the content of a <meta>: after a time, where the reader is taken.
func (l *links) refresh(content string, is bool) {
	content = strings.Map(withoutLines, content)
	address := strings.TrimRight(content[len(refreshTime.FindString(content)):], `"'`)
	if is || withScheme.MatchString(address) {
		l.address(address, is)
	}
}
