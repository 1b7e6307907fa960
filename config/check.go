package config

import (
	"fmt"
	"iter"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/config/secret"
)

// A checker collects the errors in a decoded configuration.
type checker struct {
	kinds  Kinds
	places map[string]place // where the fields are written; nil if a program made the configuration
	// Fields that could not be decoded, and the sections around them. No second error is
	// reported about these, or about anything inside the former.
	broken, around map[string]bool
	errors         []Problem
	warnings       []Problem
}

// newChecker continues where d has ended.
func newChecker(d *decoder) *checker {
	k := &checker{
		kinds: d.kinds, places: d.places, broken: map[string]bool{}, around: map[string]bool{},
		errors: d.errors, warnings: d.warnings,
	}
	for _, p := range d.errors {
		k.broken[p.Field] = true
		for section := range sections(p.Field) {
			k.around[section] = true
		}
	}
	return k
}

// sections returns path and the sections around it, the whole file ("") last.
func sections(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path != "" && yield(path) {
			path = path[:max(0, strings.LastIndexAny(path, ".["))]
		}
		if path == "" {
			yield("")
		}
	}
}

// problem makes a problem with the field at path. value, unless nil, is shown; it is never a
// secret. If the field is written in the file, the text there is shown instead, so that an
// expanded ${NAME} does not appear.
func (k *checker) problem(path string, value any, reason string) Problem {
	p := Problem{Line: k.line(path), Field: path, Reason: reason}
	if value == nil {
		return p
	}
	p.Value = fmt.Sprint(value)
	m, given := k.places[path]
	if given && m.text != "" {
		p.Value = m.text
	}
	p.Value = shown(p.Value)
	p.Default = !given && k.places != nil
	return p
}

func (k *checker) fail(path string, value any, reason string) {
	if len(k.errors) > maxProblems || k.around[path] {
		return
	}
	for section := range sections(path) {
		if k.broken[section] {
			return
		}
	}
	k.errors = bounded(k.errors, k.problem(path, value, reason))
}

func (k *checker) warn(path string, reason string) {
	k.warnings = bounded(k.warnings, k.problem(path, nil, reason))
}

func (k *checker) failIf(wrong bool, path string, value any, reason string) {
	if wrong {
		k.fail(path, value, reason)
	}
}

func (k *checker) warnIf(odd bool, path string, reason string) {
	if odd {
		k.warn(path, reason)
	}
}

// line returns the line of the field, or of the nearest section around it.
func (k *checker) line(path string) int {
	for section := range sections(path) {
		if m, ok := k.places[section]; ok {
			return m.line
		}
	}
	return 0
}

func (k *checker) required(path, value string) bool {
	switch {
	case value != "":
		return true
	case k.places[path].text != "":
		k.fail(path, value, "is required, and its variable is empty")
	default:
		k.fail(path, nil, "is required")
	}
	return false
}

func (k *checker) oneOf(path, value string, allowed ...string) {
	k.failIf(!slices.Contains(allowed, value), path, value, "must be one of "+strings.Join(allowed, ", "))
}

// number is a type with bounds.
type number interface{ ~int | ~int64 | ~float64 }

func between[T number](k *checker, path string, value, low, high T) {
	k.within(path, reflect.ValueOf(value), reflect.ValueOf(low), reflect.ValueOf(high))
}

// count returns how many are given.
func count(given ...bool) (n int) {
	for _, is := range given {
		if is {
			n++
		}
	}
	return n
}

// listenAddress checks HOST:PORT, where HOST is empty for all interfaces, and returns whether
// it is loopback. A wrong address counts as loopback, because one error is enough.
func (k *checker) listenAddress(path, value string) (loopback bool) {
	host, ok := splitHostPort(value, 0)
	if !ok || host != "" && host != "localhost" && net.ParseIP(host) == nil {
		k.fail(path, value, "must be IP:PORT, localhost:PORT or :PORT")
		return true
	}
	return IsLoopback(host)
}

// hostname checks the host name that the provider pushes to.
func (k *checker) hostname(path, value string) {
	if !k.required(path, value) {
		return
	}
	host, port := value, false
	if h, ok := splitHostPort(value, 1); ok {
		host, port = h, true
	}
	switch {
	case !isHost(host):
		k.fail(path, value, "must be a host name alone, such as relay.example.com: no scheme, no path")
	case port && !IsLoopback(host):
		k.fail(path, value, "must have no port (pushes go to 443); a port is for tests on loopback")
	}
}

// splitHostPort splits HOST:PORT with a port of at least low.
func splitHostPort(value string, low int) (host string, ok bool) {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return "", false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return host, err == nil && int(n) >= low
}

// IsLoopback reports whether a host of an address is this machine: localhost, or an IP
// address of loopback.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// isHost reports whether host is an IP address or has the form of a host name.
func isHost(host string) bool {
	if net.ParseIP(host) != nil {
		return true
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || !all(label, isWord) {
			return false
		}
	}
	return len(host) <= 253
}

// isWord reports whether r is a letter or digit of ASCII, "-" or "_".
func isWord(r rune) bool {
	return r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// all reports whether every rune of s is allowed.
func all(s string, allowed func(rune) bool) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !allowed(r) })
}

// login checks a user name and its password, and reports whether one of them is given.
func (k *checker) login(at, username string, password secret.Text) (given bool) {
	if username == "" && password.Empty() {
		return false
	}
	k.required(at+".username", username)
	k.secret(at+".password", password)
	return true
}

// differs refuses a listener with the address of another one, unless each gets a port of its own.
func (k *checker) differs(path, value, reason string, others ...string) {
	k.failIf(!strings.HasSuffix(value, ":0") && slices.Contains(others, value), path, value, "must differ from "+reason)
}

// minSecret keeps a token, or a key of hashes, from being found by trials.
const minSecret = 16

func (k *checker) longEnough(path string, value secret.Text) {
	if text := value.Reveal(); text != "" && len(text) < minSecret {
		k.fail(path, nil, fmt.Sprintf("must have at least %d characters; make one with: openssl rand -hex 32", minSecret))
	}
}

// name checks an identifier of at most 64 letters, digits, "-" and "_".
func (k *checker) name(path, value string) {
	k.failIf(k.required(path, value) && (len(value) > 64 || !all(value, isWord)), path, value, `must be 1 to 64 letters, digits, "-" and "_"`)
}

// natsURLs checks addresses that are separated by commas.
func (k *checker) natsURLs(path, value string) {
	for address := range strings.SplitSeq(value, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		switch {
		case err == nil && u.User != nil, err != nil && strings.Contains(value, "@"):
			k.fail(path, nil, "must hold no user and password: an address is shown in logs; use the fields for credentials")
			return
		case err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || !isHost(u.Hostname()):
			k.fail(path, value, "must be nats://HOST:PORT or tls://HOST:PORT, several joined with commas")
			return
		}
	}
}

// placeholders are those that topics, subjects, tenants, labels and tags may have.
func placeholders() []string { return []string{"type", "project", "environment"} }

// template checks a text with placeholders.
func (k *checker) template(path, value string) bool {
	for rest := value; ; {
		before, after, open := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			k.fail(path, value, "holds a } without a {")
			return false
		}
		if !open {
			return true
		}
		name, next, closed := strings.Cut(after, "}")
		if !closed || !slices.Contains(placeholders(), name) {
			k.fail(path, value, "may hold no other placeholders than {"+strings.Join(placeholders(), "}, {")+"}")
			return false
		}
		rest = next
	}
}

// address describes a kind of URL in the configuration. Its texts end the errors.
type address struct {
	form  string // such as "an address such as https://loki.example.com, without ? and #"
	login string // where to put a user and password instead
	https string // why it has to be https

	query, path bool // whether it may have a query, and whether it needs a path
	secret      bool // whether it is never shown

	bare string // why it must have no path; empty if it may have one
}

// url checks a URL, unless it is empty.
func (k *checker) url(path, value string, a address) {
	shown := any(value)
	if a.secret {
		shown = nil
	}
	u, err := url.Parse(value)
	switch {
	case value == "":
	case err == nil && u.User != nil, err != nil && strings.Contains(value, "@"):
		k.fail(path, nil, "must hold no user and password"+a.login)
	case err != nil || !a.fits(u):
		k.fail(path, shown, "must be "+a.form)
	case u.Scheme == "http" && !IsLoopback(u.Hostname()):
		k.fail(path, shown, "must be https"+a.https+"; http is for loopback only")
	case a.bare != "" && u.Path != "" && u.Path != "/":
		k.fail(path, shown, "must have no path: "+a.bare)
	}
}

func (a address) fits(u *url.URL) bool {
	return (u.Scheme == "https" || u.Scheme == "http") && isHost(u.Hostname()) && u.Fragment == "" &&
		(a.query || u.RawQuery == "") && (!a.path || strings.Trim(u.Path, "/") != "")
}
