package meaning

import (
	"html"
	"strings"
	"unicode"
)

// linkedHosts gives the hosts behind "//" in a text, as a reader's browser would see
// them: with HTML entities decoded, backslashes as slashes, without user names, in lower
// case. A placeholder such as {{url}} counts as a host.
func linkedHosts(content string) map[string]bool {
	hosts := map[string]bool{}
	content = strings.ReplaceAll(html.UnescapeString(content), `\`, "/")
	for rest := content; ; {
		_, behind, found := strings.Cut(rest, "//")
		if !found {
			return hosts
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
