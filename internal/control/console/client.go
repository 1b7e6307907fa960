package console

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/auditrelay/auditrelay/internal/health"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/workspace"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
	"github.com/auditrelay/auditrelay/relay"
)

// Client asks the relay of a data directory. It is safe for concurrent use.
type Client struct {
	dir  string
	http *http.Client
	// Person asks, as the audit trail will show it.
	Person workspace.Person
}

// NewClient makes a client; it connects at each call.
func NewClient(dataDir string) *Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, dataDir) }
	return &Client{dir: dataDir, http: &http.Client{Transport: &http.Transport{DialContext: connect, DisableKeepAlives: true}}}
}

// Sinks lists the sinks.
func (c *Client) Sinks(ctx context.Context) (list []Sink, err error) {
	return list, c.call(ctx, "/v1/sinks", none{}, &list)
}

// Retire removes the position of a sink, and returns it.
func (c *Client) Retire(ctx context.Context, name string) (was Sink, err error) {
	return was, c.call(ctx, "/v1/sinks/retire", OfSink{name}, &was)
}

// Damage lists the damaged records without an acceptance.
func (c *Client) Damage(ctx context.Context) (d journal.Damage, err error) {
	return d, c.call(ctx, "/v1/damage", none{}, &d)
}

// AcceptDamage lets the sinks pass over the damage, and returns it.
func (c *Client) AcceptDamage(ctx context.Context) (was journal.Damage, err error) {
	return was, c.call(ctx, "/v1/damage/accept", none{}, &was)
}

// Credentials lists the accepted credentials.
func (c *Client) Credentials(ctx context.Context) (list []credentials.Listed, err error) {
	return list, c.call(ctx, "/v1/credentials", none{}, &list)
}

// Rotate replaces the generated credential of an environment, and lists the accepted
// ones.
func (c *Client) Rotate(ctx context.Context, which OfEnvironment) (list []credentials.Listed, err error) {
	return list, c.call(ctx, "/v1/credentials/rotate", which, &list)
}

// Revoke has a generated credential accepted no more.
func (c *Client) Revoke(ctx context.Context, which OfEnvironment) (done Revoked, err error) {
	return done, c.call(ctx, "/v1/credentials/revoke", which, &done)
}

// Streaming lists the state of each environment's streaming config.
func (c *Client) Streaming(ctx context.Context) (list []streaming.Health, err error) {
	return c.StreamingOf(ctx, OfEnvironment{})
}

// StreamingOf lists the state of an environment's streaming config, if it has one.
func (c *Client) StreamingOf(ctx context.Context, which OfEnvironment) (list []streaming.Health, err error) {
	return list, c.call(ctx, "/v1/streaming", which, &list)
}

// PlanStreaming calls yield with the plan of an environment, or, for the zero value, of each
// one with a desired config.
func (c *Client) PlanStreaming(ctx context.Context, which OfEnvironment, yield func(Planned) error) error {
	return items(ctx, c, "/v1/streaming/plan", which, yield, nil)
}

// ApplyStreaming sets the desired streaming config of an environment.
func (c *Client) ApplyStreaming(ctx context.Context, which OfEnvironment) (done streaming.Preview, err error) {
	return done, c.call(ctx, "/v1/streaming/apply", which, &done)
}

// Silences lists the active silences.
func (c *Client) Silences(ctx context.Context) (list []health.Silence, err error) {
	return list, c.call(ctx, "/v1/silences", none{}, &list)
}

// AddSilence begins a silence.
func (c *Client) AddSilence(ctx context.Context, req AddSilence) (s health.Silence, err error) {
	return s, c.call(ctx, "/v1/silences/add", req, &s)
}

// EndSilence ends a silence before its time.
func (c *Client) EndSilence(ctx context.Context, req EndSilence) (s health.Silence, err error) {
	return s, c.call(ctx, "/v1/silences/end", req, &s)
}

// EnterMigration enters the start or the end of a run into the trail.
func (c *Client) EnterMigration(ctx context.Context, req EnterMigration) error {
	return c.call(ctx, "/v1/migration/enter", req, &none{})
}

// SinkHistory tells what became of the deliveries to a configured sink.
func (c *Client) SinkHistory(ctx context.Context, which OfSink) (h relay.History, err error) {
	return h, c.call(ctx, "/v1/sinks/history", which, &h)
}

// Letters calls yield with each dead letter of req, oldest first. Its error ends the
// listing.
func (c *Client) Letters(ctx context.Context, req ListLetters, yield func(*Letter) error) error {
	return items(ctx, c, "/v1/deadletters", req, yield, nil)
}

// ReplayLetters hands dead letters to their sink again. report is told now and
// then how it gets on, and at the end.
func (c *Client) ReplayLetters(ctx context.Context, req ReplayLetters, report func(*Progress)) error {
	return c.work(ctx, "/v1/deadletters/replay", req, report)
}

// DiscardLetters removes dead letters.
func (c *Client) DiscardLetters(ctx context.Context, req DiscardLetters, report func(*Progress)) error {
	return c.work(ctx, "/v1/deadletters/discard", req, report)
}

// Tap calls yield with the live events, and counted with the tap's counts now and then. It
// ends when ctx does, or with an error of theirs.
func (c *Client) Tap(ctx context.Context, req Tap, yield func(*Tapped) error, counted func(*TapCounts)) error {
	return items(ctx, c, "/v1/tap", req, yield, func(f *frame) {
		if f.Taps != nil {
			counted(f.Taps)
		}
	})
}

// ReplaySpan hands a span of the journal to a sink again. It ends when ctx does.
func (c *Client) ReplaySpan(ctx context.Context, req ReplaySpan, report func(*Progress)) error {
	return c.work(ctx, "/v1/replay", req, report)
}

// List calls yield with the chosen entries of the audit trail, the oldest first. With
// Follow it ends when ctx does.
func (c *Client) List(ctx context.Context, req ListTrail, yield func(timeline.Row) error) error {
	return items(ctx, c, "/v1/trail/list", req, yield, func(f *frame) {
		if f.Following != nil && req.Following != nil {
			req.Following(*f.Following)
		}
	})
}

// Entries calls yield with the whole of the chosen entries, the oldest first.
func (c *Client) Entries(ctx context.Context, f timeline.Filter, yield func(timeline.Entry) error) error {
	return items(ctx, c, "/v1/trail/entries", ListTrail{Filter: f}, yield, nil)
}

// Annotate marks an entry as reviewed.
func (c *Client) Annotate(ctx context.Context, a timeline.Annotation) (done Annotated, err error) {
	return done, c.call(ctx, "/v1/trail/annotate", a, &done)
}

// ForwardTrail hands entries of the trail to a sink again. It ends when ctx does.
func (c *Client) ForwardTrail(ctx context.Context, req ForwardTrail, report func(*Progress)) error {
	return c.work(ctx, "/v1/trail/forward", req, report)
}

// ArchiveTrail moves old entry bundles of the trail out. It ends when ctx does.
func (c *Client) ArchiveTrail(ctx context.Context, req ArchiveTrail, report func(*Progress)) error {
	return c.work(ctx, "/v1/trail/archive", req, report)
}

// RotateKey replaces the signing key of the audit trail.
func (c *Client) RotateKey(ctx context.Context, req RotateKey) (done RotatedKey, err error) {
	return done, c.call(ctx, "/v1/trail/rotate-key", req, &done)
}

// ProveEvent proves the receipt of an event.
func (c *Client) ProveEvent(ctx context.Context, q eventproof.Query) (b *eventproof.Bundle, err error) {
	return b, c.call(ctx, "/v1/trail/prove-event", q, &b)
}

// ListSpan calls yield with the lines of a span's list.
func (c *Client) ListSpan(ctx context.Context, req ListSpan, yield func(line json.RawMessage) error) error {
	return items(ctx, c, "/v1/trail/span", req, yield, nil)
}

// Settings lists the settings with states in the trail.
func (c *Client) Settings(ctx context.Context, f timeline.Filter) (list []timeline.Setting, err error) {
	return list, c.call(ctx, "/v1/settings/list", ListTrail{Filter: f}, &list)
}

// At gives the state of a setting at a time.
func (c *Client) At(ctx context.Context, w timeline.Where, at time.Time) (s timeline.State, err error) {
	return s, c.call(ctx, "/v1/settings/at", SettingAt{Where: w, At: at}, &s)
}

func (c *Client) work(ctx context.Context, path string, req any, report func(*Progress)) error {
	return items(ctx, c, path, req, func(none) error { return nil }, func(f *frame) {
		if f.Progress != nil {
			report(f.Progress)
		}
	})
}

// call asks a question that has one answer.
func (c *Client) call(ctx context.Context, path string, req, answer any) error {
	return items(ctx, c, path, req, func(raw json.RawMessage) error { return json.Unmarshal(raw, answer) }, nil)
}

// items reads an answer line by line, and makes sure of its end. It calls yield with each item,
// and told, where there is one, with each line.
func items[T any](ctx context.Context, c *Client, path string, req any, yield func(T) error, told func(*frame)) error {
	body, err := c.send(ctx, path, req)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	for d := json.NewDecoder(bufio.NewReaderSize(body, 64<<10)); ; {
		var f item[T]
		if err := d.Decode(&f); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("the relay broke off before it had finished: %w", err)
		}
		if f.Item != nil {
			if err := yield(*f.Item); err != nil {
				return err
			}
		}
		if told != nil {
			told(&f.frame)
		}
		if f.Error != "" {
			return cmp.Or(ctx.Err(), errors.New(f.Error)) // the relay takes the end of a question within it for its own
		}
		if f.Finished {
			return nil
		}
	}
}

// patience is how long a command waits for a relay that tells it to try again.
const patience = 30 * time.Second

// send makes a call and returns the body of a 200 answer. A relay that tells a command to try again has
// done nothing yet.
func (c *Client) send(ctx context.Context, path string, body any) (io.ReadCloser, error) {
	for deadline := time.Now().Add(patience); ; {
		answer, again, err := c.sendOnce(ctx, path, body)
		if !again || c.dir == "" || time.Now().After(deadline) || retry.Sleep(ctx, time.Second) != nil {
			return answer, err
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, path string, body any) (answer io.ReadCloser, again bool, err error) {
	var payload bytes.Buffer
	if err := json.NewEncoder(&payload).Encode(body); err != nil {
		return nil, false, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://relay"+path+"?"+onURL(c.Person), &payload)
	if err != nil {
		return nil, false, fmt.Errorf("make the request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, false, c.unreachable(ctx, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, false, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // for the message only
	var refused answerError
	if json.Unmarshal(text, &refused) != nil || refused.Error == "" {
		refused.Error = fmt.Sprintf("the relay answered %s; is it of another version than this command?", resp.Status)
	}
	return nil, resp.Header.Get("Retry-After") != "", &Refused{resp.StatusCode, refused.Error}
}

// ErrRequest marks a request that the relay found wrong before it did anything.
var ErrRequest = errors.New("wrong request")

// Refused is the relay's answer to a request that it does not carry out.
type Refused struct {
	Status int // of HTTP
	Reason string
}

func (r *Refused) Error() string { return r.Reason }

// Is tells a wrong request from a refused one, for errors.Is with [ErrRequest].
func (r *Refused) Is(target error) bool {
	return target == ErrRequest && r.Status == http.StatusBadRequest
}

// ErrNoRelay means that nobody answers at the socket of a data directory.
var ErrNoRelay = errors.New("no relay runs on the data directory")

// unreachable adds advice if no relay answers.
func (c *Client) unreachable(ctx context.Context, err error) error {
	var request *url.Error // it names an address within the socket
	if errors.As(err, &request) {
		err = request.Err
	}
	_, noDir := os.Stat(c.dir)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.dir == "": // within the relay
		return err
	case errors.Is(noDir, fs.ErrNotExist):
		whole, _ := filepath.Abs(c.dir) // a relative one is of the folder of this command
		return fmt.Errorf("there is no data directory %s: name the relay's by --data-dir or --config", cmp.Or(whole, c.dir))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w %s, or it is still starting: "+
			"start it by 'auditrelay run --config FILE', on this machine and in this container, and try again", ErrNoRelay, c.dir)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the relay's socket in %s is for its user only: run this command as that user: %w", c.dir, err)
	}
	return fmt.Errorf("ask the relay on %s: %w", c.dir, err)
}
