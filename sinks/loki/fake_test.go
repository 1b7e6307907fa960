package loki

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grafana/loki/pkg/push"
	"github.com/klauspost/compress/snappy"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// fake takes pushes as Loki 3.7.8 does: it leaves out the entries that Loki would leave out for
// its limits and their ages, and answers in the same words. It is stricter about what a push
// may look like. The fields before mu are set before the first push.
type fake struct {
	*httptest.Server

	t      testing.TB
	limits fakeLimits
	user   string // for Basic authentication; "" for none
	pass   string
	shards int // the number of shards that streams are split into

	mu      sync.Mutex // guards the fields below
	now     time.Time  // if zero, ages are not checked
	stored  []stored
	highest map[string]time.Time
	pushes  []received
	answer  func(*http.Request) *canned // replaces Loki's answer, unless it is nil or returns nil
	whole   func(ids []string) *canned  // an answer to a push of these events; nil for Loki's
	shut    bool
	conns   map[net.Conn]http.ConnState
	stall   chan struct{}
}

type fakeLimits struct {
	window, oldest, grace   time.Duration
	line, metaBytes, metaNo int
	request                 int // bytes before compression; 0 for any
	named                   int // refused entries that the ingester names
}

// stored is an entry that is kept.
type stored struct {
	tenant string
	labels map[string]string
	push.Entry
}

// received is a push as it came.
type received struct {
	tenant, labels string
	entries        int
}

// canned is an answer that a test wants.
type canned struct {
	status int
	header http.Header
	text   string
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{
		t: t, highest: map[string]time.Time{}, conns: map[net.Conn]http.ConnState{}, stall: make(chan struct{}),
		limits: fakeLimits{
			window: time.Hour, oldest: 168 * time.Hour, grace: 10 * time.Minute,
			line: 256 << 10, metaBytes: 64 << 10, metaNo: 128, named: 10,
		},
	}
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(f.handle))
	f.Config.ConnState = f.track
	f.Start()
	t.Cleanup(func() { close(f.stall); f.Close() })
	return f
}

func (f *fake) config() config.Loki { return config.Loki{URL: f.URL + "/loki/api/v1/push"} }

func (f *fake) sink(t testing.TB, change func(*config.Loki)) *Sink {
	t.Helper()
	cfg := f.config()
	if change != nil {
		change(&cfg)
	}
	s, err := New(complete(t, cfg), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) track(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[c] = state
	if f.shut && state != http.StateClosed {
		_ = c.Close()
	}
}

func (f *fake) down() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shut = true
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *fake) up() { f.set(func() { f.shut = false }) }

// settle waits until every push that was sent has been handled.
func (f *fake) settle() {
	waiting.Until(f.t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, state := range f.conns {
			if state == http.StateActive {
				return false
			}
		}
		return true
	})
}

func (f *fake) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut || r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	var a *canned
	if f.answer != nil {
		f.mu.Unlock()
		a = f.answer(r)
		f.mu.Lock()
	}
	if a == nil {
		a = f.take(r, body)
	}
	maps.Copy(w.Header(), a.header)
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.text)
}

func refuse(status int, format string, args ...any) *canned {
	return &canned{status: status, text: fmt.Sprintf(format, args...) + "\n"}
}

func (f *fake) take(r *http.Request, body []byte) *canned {
	user, pass, _ := r.BasicAuth()
	switch {
	case r.URL.Path != "/loki/api/v1/push" || r.Method != http.MethodPost:
		return refuse(http.StatusNotFound, "404 page not found")
	case user != f.user || pass != f.pass:
		return refuse(http.StatusUnauthorized, "no org id")
	case r.Header.Get("Content-Type") != "application/x-protobuf" || r.Header.Get("Content-Encoding") != "":
		return refuse(http.StatusBadRequest, "wrong media type")
	}
	plain, err := snappy.Decode(nil, body)
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	var request push.PushRequest
	if err := request.Unmarshal(plain); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	if len(request.Streams) == 0 {
		return refuse(http.StatusUnprocessableEntity, "error at least one valid stream is required for ingestion")
	}
	if f.limits.request > 0 && len(plain) > f.limits.request {
		return refuse(http.StatusInternalServerError,
			"rpc error: code = ResourceExhausted desc = grpc: received message larger than max (%d vs. %d)", len(plain), f.limits.request)
	}
	tenant := r.Header.Get("X-Scope-OrgID")
	f.inspect(&request)
	s := request.Streams[0]
	f.pushes = append(f.pushes, received{tenant, s.Labels, len(s.Entries)})
	if f.whole != nil {
		var ids []string
		for _, e := range s.Entries {
			ids = append(ids, (&stored{Entry: e}).meta()["id"])
		}
		if a := f.whole(ids); a != nil {
			return a
		}
	}
	return f.distribute(tenant, s)
}

var metaName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// inspect checks a push against what the sink promises of each.
func (f *fake) inspect(request *push.PushRequest) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			f.t.Errorf("a push is wrong: "+format, args...)
		}
	}
	check(len(request.Streams) == 1, "it has %d streams: Loki's answer would be the last one's", len(request.Streams))
	s := request.Streams[0]
	check(len(s.Entries) > 0, "it has no entries")
	labels, err := parseLabels(s.Labels)
	check(err == nil && len(labels) > 0, "labels %s: %v", s.Labels, err)
	check(slices.IsSortedFunc(labels, func(a, b relay.Label) int { return strings.Compare(a.Name, b.Name) }), "labels %s are not in order", s.Labels)
	for _, l := range labels {
		check(l.Value != "", "label %s is empty", l.Name)
	}
	check(slices.IsSortedFunc(s.Entries, func(a, b push.Entry) int { return a.Timestamp.Compare(b.Timestamp) }), "it is not in order of time")
	for _, e := range s.Entries {
		names := map[string]bool{}
		for _, m := range e.StructuredMetadata {
			check(metaName.MatchString(m.Name) && !names[m.Name], "metadata %q: not a name, or twice", m.Name)
			check(m.Value != "", "metadata %s is empty", m.Name)
			names[m.Name] = true
		}
	}
}

// distribute is Loki's distributor.
func (f *fake) distribute(tenant string, s push.Stream) *canned {
	counts, valid := map[string]int{}, []push.Entry{}
	for _, e := range s.Entries {
		if text := f.invalid(s.Labels, e); text != "" {
			counts[text]++
			continue
		}
		valid = append(valid, e)
	}
	shards := min(max(1, f.shards), max(1, len(valid)))
	for shard := range shards {
		labels := s.Labels
		if shards > 1 {
			labels = strings.TrimSuffix(labels, "}") + fmt.Sprintf(`, __stream_shard__="%d"}`, shard)
		}
		var part []push.Entry
		for i := shard; i < len(valid); i += shards {
			part = append(part, valid[i])
		}
		// Of several answers the last one counts, and it hides which entries were invalid.
		if a := f.ingest(tenant, labels, part); a != nil && shard == shards-1 {
			return a
		}
	}
	if len(counts) == 0 {
		return &canned{status: http.StatusNoContent}
	}
	var texts []string
	for text, n := range counts { // in any order, as in Loki
		if len(counts) > 1 || n > 1 {
			text = fmt.Sprintf("%d errors like: %s", n, text)
		}
		texts = append(texts, text)
	}
	return refuse(http.StatusBadRequest, "%s", strings.Join(texts, "; "))
}

func (f *fake) invalid(labels string, e push.Entry) string {
	size, count := 0, len(e.StructuredMetadata)
	for _, m := range e.StructuredMetadata {
		size += len(m.Name) + len(m.Value)
	}
	at, l := e.Timestamp, f.limits
	switch {
	case !f.now.IsZero() && at.Before(f.now.Add(-l.oldest)):
		return fmt.Sprintf("entry for stream '%s' has timestamp too old: %v, oldest acceptable timestamp is: %v",
			labels, at.Format(time.RFC3339), f.now.Add(-l.oldest).Format(time.RFC3339))
	case !f.now.IsZero() && at.After(f.now.Add(l.grace)):
		return fmt.Sprintf("entry for stream '%s' has timestamp too new: %v", labels, at.Format(time.RFC3339))
	case len(e.Line) > l.line:
		return fmt.Sprintf("max entry size '%d' bytes exceeded for stream '%s' while adding an entry with length '%d' bytes", l.line, labels, len(e.Line))
	case size > l.metaBytes:
		return fmt.Sprintf("stream '%s' has structured metadata too large: '%d' bytes, limit: '%d' bytes. Please see `limits_config.max_structured_metadata_size` or contact your Loki administrator to increase it", labels, size, l.metaBytes)
	case count > l.metaNo:
		return fmt.Sprintf("stream '%s' has too many structured metadata labels: '%d', limit: '%d'. Please see `limits_config.max_structured_metadata_entries_count` or contact your Loki administrator to increase it", labels, count, l.metaNo)
	}
	return ""
}

// ingest is Loki's ingester.
func (f *fake) ingest(tenant, labels string, entries []push.Entry) *canned {
	key, parsed := tenant+labels, map[string]string{}
	set, _ := parseLabels(labels)
	for _, l := range set {
		parsed[l.Name] = l.Value
	}
	var refused []string
	for _, e := range entries {
		oldest := f.highest[key].Add(-f.limits.window)
		if !f.highest[key].IsZero() && e.Timestamp.Before(oldest) {
			refused = append(refused, fmt.Sprintf("entry with timestamp %s ignored, reason: 'entry too far behind, entry timestamp is: %s, oldest acceptable timestamp is: %s',\n",
				e.Timestamp, e.Timestamp.Format(time.RFC3339), oldest.Format(time.RFC3339)))
			continue
		}
		if e.Timestamp.After(f.highest[key]) {
			f.highest[key] = e.Timestamp
		}
		e.Line, e.StructuredMetadata = strings.Clone(e.Line), slices.Clone(e.StructuredMetadata)
		f.stored = append(f.stored, stored{tenant, parsed, e})
	}
	if len(refused) == 0 {
		return nil
	}
	return refuse(http.StatusBadRequest, "%suser 'fake', total ignored: %d out of %d for stream: %s",
		strings.Join(refused[:min(len(refused), f.limits.named)], ""), len(refused), len(entries), labels)
}

// meta returns an entry's structured metadata by name.
func (s *stored) meta() map[string]string {
	m := map[string]string{}
	for _, p := range s.StructuredMetadata {
		m[p.Name] = p.Value
	}
	return m
}

func (f *fake) entries() []stored {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stored)
}

// byID counts what is stored.
func (f *fake) byID() map[string]int {
	ids := map[string]int{}
	for _, e := range f.entries() {
		ids[e.meta()["id"]]++
	}
	return ids
}

// arrivals are in order of the relay's time. Loki's own order is that of the events' time,
// within a stream.
func (f *fake) arrivals() []relaytest.Arrival {
	f.settle()
	var list []relaytest.Arrival
	for _, e := range f.entries() {
		meta := e.meta()
		a := relaytest.Arrival{ID: meta["id"], Body: []byte(e.Line), Attributes: map[string]string{
			"specversion": relay.SpecVersion, "time": e.Timestamp.UTC().Format(time.RFC3339Nano),
		}}
		maps.Copy(a.Attributes, e.labels)
		maps.Copy(a.Attributes, meta)
		list = append(list, a)
	}
	received := func(a relaytest.Arrival) time.Time {
		at, _ := time.Parse(time.RFC3339Nano, a.Attributes["receivedtime"])
		return at
	}
	slices.SortStableFunc(list, func(a, b relaytest.Arrival) int {
		return received(a).Compare(received(b))
	})
	return list
}

// complete fills in what a section leaves out, as the configuration does.
func complete(t testing.TB, cfg config.Loki) config.Loki {
	t.Helper()
	require.NoError(t, (&config.Sink{Name: "test", Loki: &cfg}).Complete())
	return cfg
}
