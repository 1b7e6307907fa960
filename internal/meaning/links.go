package meaning

import (
	"html"
	"strings"
	"unicode"

	htmltoken "golang.org/x/net/html"
)

// linkedHosts gives the hosts linked in a text, as a reader's browser or mail program
// would see them: those behind "//" and "www." anywhere, and the addresses in attributes
// of HTML. A placeholder such as {{url}} counts as a host.
func linkedHosts(content string) map[string]bool {
	hosts := map[string]bool{}
	text := strings.ReplaceAll(html.UnescapeString(content), `\`, "/")
	hostsBehind(hosts, text, "//")
	for word := range strings.FieldsFuncSeq(text, endsHost) {
		if word = strings.ToLower(word); strings.HasPrefix(word, "www.") {
			hosts[word] = true
		}
	}
	tokens := htmltoken.NewTokenizer(strings.NewReader(content))
	for tokens.Next() != htmltoken.ErrorToken {
		for more := true; more; {
			var name, value []byte
			name, value, more = tokens.TagAttr()
			address(hosts, string(value))
			if text := strings.TrimSpace(string(value)); string(name) == "href" && strings.HasPrefix(text, "{{") {
				hosts[text] = true
			}
		}
	}
	return hosts
}

// address adds the hosts in an attribute. A browser passes over tabs and line ends in an
// address, and needs no slashes behind its scheme.
func address(hosts map[string]bool, value string) {
	value = strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(value)
	lower := strings.TrimSpace(strings.ToLower(value))
	for _, scheme := range []string{"http:", "https:"} {
		hostsBehind(hosts, lower, scheme)
	}
	if to, found := strings.CutPrefix(lower, "mailto:"); found {
		for one := range strings.SplitSeq(strings.ReplaceAll(to, "%40", "@"), ",") {
			hostsBehind(hosts, one, "@")
		}
	}
	if strings.HasPrefix(lower, "//") {
		hostsBehind(hosts, lower, "//")
	}
}

// hostsBehind adds the host behind each mark, without user names, in lower case.
func hostsBehind(hosts map[string]bool, text, mark string) {
	for rest := text; ; {
		_, behind, found := strings.Cut(rest, mark)
		if !found {
			return
		}
		rest = strings.TrimLeft(behind, "/")
		end := strings.IndexFunc(rest, endsHost)
		if end < 0 {
			end = len(rest)
		}
		host := rest[:end]
		rest = rest[end:]
		host = strings.ToLower(host[strings.LastIndex(host, "@")+1:])
		if host != "" {
			hosts[host] = true
		}
	}
}

func endsHost(r rune) bool {
	return unicode.IsSpace(r) || strings.ContainsRune(`/?#"'<>()`, r)
}
