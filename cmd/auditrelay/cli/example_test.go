package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/rig"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// Inbox configures an inbox sink: the section "inbox" of a sink.
type Inbox struct {
	// URL takes a POST of JSON objects, one for each event.
	URL string `yaml:"url"`
	// Token is a bearer token.
	Token secret.Text `yaml:"token"`
	// Wait is for how long a busy inbox is left alone. Default 1s.
	Wait time.Duration `yaml:"wait"`
}

// SetDefaults implements config.Section.
func (c *Inbox) SetDefaults() {
	if c.Wait == 0 {
		c.Wait = time.Second
	}
}

// Problems implements config.Section.
func (c *Inbox) Problems() []config.Problem {
	if u, err := url.Parse(c.URL); err != nil || u.Host == "" {
		return []config.Problem{{Field: "url", Value: c.URL, Reason: "must be an address such as https://inbox.example.com"}}
	}
	return nil
}

// Warnings implements config.Warner.
func (c *Inbox) Warnings() []config.Problem {
	if strings.HasPrefix(c.URL, "http:") {
		return []config.Problem{{Field: "url", Reason: "the token goes over the network in the clear; write https://"}}
	}
	return nil
}

// InboxSink delivers to an inbox.
type InboxSink struct {
	*Inbox
	client  http.Client
	taken   prometheus.Counter // auditrelay_sink_inbox_entries_total
	closing context.Context    // ends at Close
	close   context.CancelFunc
}

// OpenInbox connects to nothing: the first delivery meets an outage.
func OpenInbox(c *Inbox, opts sinks.Options) (relay.Sink, error) {
	taken, err := sinks.Register(opts, prometheus.NewCounter(prometheus.CounterOpts{
		Name: "inbox_entries_total", Help: "Events that the inbox has taken.",
	}))
	if err != nil {
		return nil, err
	}
	s := &InboxSink{Inbox: c, client: http.Client{Transport: &http.Transport{}}, taken: taken}
	s.closing, s.close = context.WithCancel(context.Background())
	return s, nil
}

// Entry is one event as an inbox gets it.
type Entry struct {
	Attributes map[string]string // of CloudEvents
	Body       []byte
}

// Deliver implements relay.Sink. It never retries: the pump does, by the class of
// the error.
func (s *InboxSink) Deliver(ctx context.Context, events []relay.Event) error {
	if s.closing.Err() != nil {
		return errors.New("the sink is closed")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	var body bytes.Buffer
	for i := range events {
		entry := Entry{Attributes: map[string]string{"datacontenttype": events[i].ContentType}, Body: events[i].Body}
		for name, value := range events[i].Attributes {
			entry.Attributes[name] = value
		}
		if err := json.NewEncoder(&body).Encode(entry); err != nil {
			return fmt.Errorf("encode the events: %w", err)
		}
	}
	if err := s.post(ctx, &body); err != nil {
		return err
	}
	s.taken.Add(float64(len(events)))
	return nil
}

func (s *InboxSink) post(ctx context.Context, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, body)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Token.Reveal())
	res, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("post to the inbox: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	err = fmt.Errorf("the inbox answers %s", res.Status)
	switch res.StatusCode {
	case http.StatusNoContent:
		return nil // every event is acknowledged
	case http.StatusUnprocessableEntity:
		return relay.Permanent(err) // some event is refused; the pump finds it
	case http.StatusTooManyRequests:
		return relay.RetryAfter(err, s.Wait)
	}
	return err // tried again with backoff
}

// Close implements relay.Sink. A delivery under way fails at once.
func (s *InboxSink) Close() error {
	s.close()
	s.client.CloseIdleConnections()
	return nil
}

// A program with a sink of its own. Its main function is
//
//	func main() { program.Main() }
//
// and its commands are those of auditrelay. Here it runs until one event has come
// from a push to the inbox.
func Example() {
	program := cli.Program{Kinds: sinks.Kinds{sinks.NewKind("inbox", OpenInbox)}}

	arrived := make(chan Entry, 1)
	inbox := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var entry Entry
		if json.NewDecoder(r.Body).Decode(&entry) == nil && r.Header.Get("Authorization") == "Bearer example-token" {
			w.WriteHeader(http.StatusNoContent)
			select {
			case arrived <- entry:
			default:
			}
		}
	}))
	defer inbox.Close()
	dir, _ := os.MkdirTemp("", "inbox")
	defer func() { _ = os.RemoveAll(dir) }()
	ingest, admin, file := freeAddress(), freeAddress(), filepath.Join(dir, "relay.yaml")
	_ = os.WriteFile(file, fmt.Appendf(nil, `data_dir: %s/data
ingest: {listen: "%s", anonymous: shop/live}
admin: {listen: "%s"}
environments: [{project: shop, environment: live}]
sinks:
  - name: mine
    match: {types: [event_log.*]}
    inbox: {url: "%s", token: "file:%s/token"}
`, dir, ingest, admin, inbox.URL, dir), 0o600)
	_ = os.WriteFile(filepath.Join(dir, "token"), []byte("example-token"), 0o600)

	ctx, stop := context.WithCancel(context.Background())
	checked := new(bytes.Buffer)
	_ = program.Execute(ctx, []string{"config", "check", "--config", file}, checked, io.Discard)
	fmt.Println("warned:", strings.Contains(checked.String(), "sinks[0].inbox.url  the token goes over the network in the clear"))
	ended := make(chan int)
	log := new(bytes.Buffer) // read after the end
	go func() { ended <- program.Execute(ctx, []string{"run", "--config", file}, io.Discard, log) }()
	push(ctx, "http://"+ingest+"/loki/api/v1/push", `{"event_id":"e-1","action":"login"}`)
	entry := <-arrived
	fmt.Println(metric(ctx, "http://"+admin+"/metrics", "auditrelay_sink_inbox_entries_total"))
	stop()
	fmt.Println(entry.Attributes["id"], entry.Attributes["type"], string(entry.Body))
	fmt.Println("ended with", <-ended, "told the token:", strings.Contains(log.String(), "example-token"))
	// Output:
	// warned: true
	// auditrelay_sink_inbox_entries_total{sink="mine"} 1
	// e-1 event_log.login {"event_id":"e-1","action":"login"}
	// ended with 0 told the token: false
}

// push sends an event as an environment does, until the relay acknowledges it.
func push(ctx context.Context, url, event string) {
	line, _ := json.Marshal(event)
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"idp"},"values":[["%d",%s]]}]}`, time.Now().UnixNano(), line)
	for ctx.Err() == nil {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusNoContent {
				return
			}
		}
		time.Sleep(20 * time.Millisecond) // it is starting
	}
}

// metric reads the line of a counter, once it has counted.
func metric(ctx context.Context, url, name string) string {
	for ctx.Err() == nil {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if res, err := http.DefaultClient.Do(req); err == nil {
			page, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			for line := range strings.Lines(string(page)) {
				if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0\n") {
					return strings.TrimSpace(line)
				}
			}
		}
		time.Sleep(20 * time.Millisecond) // the delivery is under way
	}
	return ""
}

func freeAddress() string {
	free, err := rig.FreeAddresses(context.Background(), 1)
	if err != nil {
		panic(err)
	}
	return free[0]
}
