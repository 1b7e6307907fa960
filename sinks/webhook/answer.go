package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/plaintext"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// maxAnswer bounds how much of an answer's body is read, and maxExcerpt how much of it is
	// shown. Far more is read than shown, so that a secret that is echoed is seen as a whole
	// and taken out.
	maxAnswer   = 64 << 10
	excerptFrom = 4 << 10
	maxExcerpt  = 200
	// answerTime bounds the wait for an answer's body, since the status is known by then.
	answerTime = time.Second
	// maxWait bounds Retry-After, so that a wrong date of a receiver does not silence the sink
	// for days.
	maxWait = time.Hour
)

// answered classifies an answer.
func (s *Sink) answered(resp *http.Response) error {
	text := readSome(resp.Body)
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	message := fmt.Sprintf("%s answered %d", s.target.Host, resp.StatusCode)
	if name := http.StatusText(resp.StatusCode); name != "" {
		message += " " + name
	}
	if advice := advise(resp); advice != "" {
		message += ": " + advice
	}
	if excerpt := s.clean.excerpt(text); excerpt != "" {
		message += ": " + strconv.Quote(excerpt)
	}
	err := relay.WithClass(errors.New(message), relay.StatusClass(resp.StatusCode))
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return relay.Permanent(err)
	}
	if wait := retryAfter(resp.Header.Get("Retry-After"), time.Now()); wait > 0 {
		return relay.RetryAfter(err, wait)
	}
	if advise(resp) == "" && resp.StatusCode != http.StatusTooManyRequests || resp.StatusCode == http.StatusForbidden {
		return relay.Suspect(err) // a firewall before the receiver may refuse one event with a 403
	}
	return err
}

// advise returns the remedy for a status that lasts.
func advise(resp *http.Response) string {
	switch status := resp.StatusCode; {
	case status >= 300 && status < 400:
		where := ""
		if to, err := resp.Location(); err == nil {
			where = " to " + to.Scheme + "://" + to.Host // no more of it, since the rest may be a credential
		}
		return "it redirects" + where + ", and following it would take the events and credentials along; set url to the receiver itself"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "check the secret and the headers"
	case status == http.StatusNotFound || status == http.StatusGone || status == http.StatusMethodNotAllowed:
		return "check the url"
	case status == http.StatusUnsupportedMediaType:
		return "it does not take " + ContentType + "; headers may set another Content-Type"
	}
	return ""
}

// readSome reads the beginning of an answer's body. Reading a short one to its end lets the
// connection be reused.
func readSome(body io.ReadCloser) string {
	defer time.AfterFunc(answerTime, func() { _ = body.Close() }).Stop()
	text, _ := io.ReadAll(io.LimitReader(body, maxAnswer)) // what came before an error is good enough to be shown
	return string(text)
}

// retryAfter reads a Retry-After header (RFC 9110, 10.2.3): seconds, or an HTTP date. A time
// that cannot be read or is past is zero.
func retryAfter(header string, now time.Time) time.Duration {
	wait, _ := retry.ParseAfter(header, now, maxWait) // zero if it says nothing
	return wait
}

// A cleaner takes the sink's secrets out of the text of a receiver, which may echo a header or
// the address.
type cleaner struct{ replacer *strings.Replacer }

// The least lengths of a text to search for. A shorter one may be an everyday word, above all
// among the parts of an address such as "/hooks/events".
const (
	shortestSecret  = 4
	shortestSegment = 16
)

func newCleaner(cfg config.Webhook, target *url.URL) cleaner {
	var forms []string
	add := func(shortest int, texts ...string) {
		for _, text := range texts {
			if len(text) >= shortest {
				forms = append(forms, text)
			}
		}
	}
	add(shortestSecret, cfg.Secret.Reveal(), strings.TrimPrefix(cfg.Secret.Reveal(), "whsec_"))
	for _, value := range cfg.Headers {
		add(shortestSecret, value.Reveal())
		add(shortestSecret, strings.Fields(value.Reveal())...) // "Bearer" and the token
	}
	add(shortestSecret, target.String(), target.RequestURI(), target.EscapedPath(), target.Path)
	add(shortestSegment, strings.Split(target.Path, "/")...)
	for _, values := range target.Query() {
		add(shortestSecret, values...)
	}
	return cleaner{secret.Hide(shortestSecret, forms...)}
}

// error returns err, or, if its text contains a secret, an error without the secret and without
// the wrapped chain.
func (c cleaner) error(err error) error {
	text := err.Error()
	if cleaned := c.replacer.Replace(text); cleaned != text {
		return errors.New(cleaned)
	}
	return err
}

// excerpt makes one short line of a stranger's text.
func (c cleaner) excerpt(text string) string {
	text = c.replacer.Replace(text)
	text = strings.ToValidUTF8(text[:min(len(text), excerptFrom)], "")
	return plaintext.Line(text, maxExcerpt)
}
