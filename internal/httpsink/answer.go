package httpsink

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
)

// Answer is the answer to a request.
type Answer struct {
	Status int
	Header http.Header
	Text   string // the body, at most [MaxAnswer] bytes of it, with "?" for what is not UTF-8
	Cut    bool   // the body is longer
	Broken bool   // the body's end did not come, or not in time

	client   *Client
	host     string
	redirect string // where a redirect leads, without what may be a credential
}

const (
	// MaxAnswer bounds how much of a body is read. Loki writes a line for each kind of refusal,
	// some 700 kB for a full push.
	MaxAnswer = 1 << 20
	// answerTime bounds the wait for a body, since the status is known by then.
	answerTime = 2 * time.Second
	// shownFrom bounds the text that is shortened in order to be shown, and maxShown what is left.
	shownFrom = 4 << 10
	maxShown  = 300
	// maxWait bounds Retry-After, so that a wrong date does not silence the sink for days.
	maxWait = time.Hour
	// throttled is the wait after a 429 that names none.
	throttled = time.Second
)

// read reads the beginning of a body. Reading a short one to its end lets the connection be used
// again.
func (c *Client) read(res *http.Response, host string) *Answer {
	defer time.AfterFunc(answerTime, func() { _ = res.Body.Close() }).Stop()
	text, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	a := &Answer{Status: res.StatusCode, Header: res.Header, Cut: len(text) > MaxAnswer, Broken: err != nil, client: c, host: host}
	a.Text = strings.ToValidUTF8(string(text[:min(len(text), MaxAnswer)]), "?")
	if to, err := res.Location(); err == nil {
		a.redirect = " to " + to.Scheme + "://" + to.Host
	}
	return a
}

// Err is an answer that does not acknowledge, as an error to be tried again: with a part of the
// body, the remedy (by default that for the status), the class, and the wait that it asks for.
func (a *Answer) Err(part, remedy string) error {
	text := a.host + " answered " + a.StatusText()
	if shown := a.Show(part); shown != "" {
		text += ": " + shown
	}
	if remedy = cmp.Or(remedy, a.remedy()); remedy != "" {
		text += " (" + remedy + ")"
	}
	err := relay.WithClass(errors.New(text), relay.StatusClass(a.Status))
	wait, told := retry.After(a.Header, maxWait)
	if !told && a.Status == http.StatusTooManyRequests {
		wait = throttled
	}
	if wait > 0 {
		return relay.RetryAfter(err, wait)
	}
	return err
}

// IsPage reports whether the body is a page for people, as that of a proxy which does not like the
// request: it is in HTML.
func (a *Answer) IsPage() bool { return strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") }

// Denies reports whether the body tells of an error, as JSON, whatever the status says: a gateway may
// answer 200 to everything.
func (a *Answer) Denies() bool {
	var said struct{ Error, Errors json.RawMessage }
	return json.Unmarshal([]byte(a.Text), &said) == nil && (isError(said.Error) || isError(said.Errors))
}

// isError reports whether the value of such a member is an error, and not the absence of one.
func isError(value json.RawMessage) bool {
	none := []string{"", "null", "false", "0", `""`, "[]", "{}"}
	return !slices.Contains(none, string(bytes.TrimSpace(value)))
}

// StatusText is the status, such as 404 Not Found.
func (a *Answer) StatusText() string {
	return strings.TrimSpace(strconv.Itoa(a.Status) + " " + http.StatusText(a.Status))
}

// Show makes a short line of a stranger's text, without the credentials that it repeats.
func (a *Answer) Show(text string) string {
	text = a.client.Hide.Replace(text)
	return plaintext.Line(strings.ToValidUTF8(text[:min(len(text), shownFrom)], ""), maxShown)
}

// remedy is what cures a status that lasts.
func (a *Answer) remedy() string {
	switch a.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return a.client.Credential
	case http.StatusNotFound, http.StatusGone, http.StatusMethodNotAllowed:
		return a.client.Address
	}
	if a.Status/100 == 3 {
		return "it redirects" + a.redirect + ", and following it would take the events and credentials along; set url to the target itself"
	}
	return ""
}
