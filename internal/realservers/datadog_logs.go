package realservers

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// The limits of the real intake, megabytes taken for the smaller ones.
const (
	datadogRequestBytes = 5_000_000
	datadogEntryBytes   = 1_000_000
	datadogEntries      = 1000
	datadogAge          = 18 * time.Hour
	datadogAhead        = 2 * time.Hour
)

// DatadogEntry is one log entry as it came.
type DatadogEntry struct {
	Message  string `json:"message"`
	Source   string `json:"ddsource"`
	Service  string `json:"service"`
	Hostname string `json:"hostname"`
	Tags     string `json:"ddtags"`
	Status   string `json:"status"`
	// Timestamp is in milliseconds.
	Timestamp int64             `json:"timestamp"`
	CE        map[string]string `json:"ce"`
	// All are all attributes, the ones above too, numbers as json.Number.
	All map[string]any `json:"-"`
}

// logs is the intake proper.
func (d *DatadogIntake) logs(w http.ResponseWriter, r *http.Request) {
	if status := d.keyStatus(r); status != http.StatusOK {
		refuseDatadog(w, status, http.StatusText(status))
		return
	}
	body, status, err := readDatadogBody(r)
	if err != nil {
		refuseDatadog(w, status, err.Error())
		return
	}
	var raw []json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &raw) != nil {
		refuseDatadog(w, http.StatusBadRequest, "the body is no JSON array in UTF-8")
		return
	}
	entries, err := decodeDatadog(raw)
	planned, stalled := d.note(r, len(body), entries, len(raw))
	switch {
	case stalled:
		select { // never an answer
		case <-r.Context().Done():
		case <-d.closed:
		}
		panic(http.ErrAbortHandler)
	case planned != nil && !planned.Taken:
		answerDatadog(w, *planned)
		return
	case len(raw) > datadogEntries || len(raw) == 0:
		refuseDatadog(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("%d entries are not 1 to 1000", len(raw)))
		return
	case err != nil:
		refuseDatadog(w, http.StatusBadRequest, err.Error())
		return
	case r.Context().Err() != nil: // the client is gone
		return
	}
	d.take(raw, entries)
	if planned == nil {
		planned = &DatadogAnswer{Status: http.StatusAccepted, Body: "{}"}
	}
	answerDatadog(w, *planned)
}

func refuseDatadog(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(map[string]any{"errors": []any{
		map[string]string{"status": fmt.Sprint(status), "title": http.StatusText(status), "detail": detail},
	}})
	answerDatadog(w, DatadogAnswer{Status: status, Body: string(body)})
}

// readDatadogBody reads and unpacks a body, no more of it than is allowed.
func readDatadogBody(r *http.Request) (body []byte, status int, err error) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return nil, http.StatusUnsupportedMediaType, errors.New("the content type is not JSON")
	}
	from := io.Reader(r.Body)
	switch r.Header.Get("Content-Encoding") {
	case "gzip":
		from, err = gzip.NewReader(r.Body)
	case "deflate":
		from, err = zlib.NewReader(r.Body)
	case "", "identity":
	default:
		err = errors.New("the content encoding is not known")
	}
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	body, err = io.ReadAll(io.LimitReader(from, datadogRequestBytes+1))
	switch {
	case err != nil:
		return nil, http.StatusBadRequest, err
	case len(body) > datadogRequestBytes:
		return nil, http.StatusRequestEntityTooLarge, errors.New("the payload is over 5 MB")
	}
	return body, http.StatusOK, nil
}

func decodeDatadog(raw []json.RawMessage) ([]DatadogEntry, error) {
	entries := make([]DatadogEntry, len(raw))
	for i, text := range raw {
		if err := json.Unmarshal(text, &entries[i]); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&entries[i].All); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		if _, there := entries[i].All["message"]; !there {
			return nil, fmt.Errorf("entry %d has no message", i)
		}
	}
	return entries, nil
}

// note remembers a request, and says what is to become of it.
func (d *DatadogIntake) note(r *http.Request, size int, entries []DatadogEntry, n int) (*DatadogAnswer, bool) {
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.CE["id"]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	number := len(d.requests)
	d.requests = append(d.requests, DatadogRequest{
		Entries: n, Bytes: size, Host: r.Host, Encoding: r.Header.Get("Content-Encoding"),
		UserAgent: r.UserAgent(), ContentType: r.Header.Get("Content-Type"),
	})
	if d.respond == nil {
		return nil, d.stalled
	}
	return d.respond(number, ids), d.stalled
}

// take keeps the entries, but for those that the real intake drops.
func (d *DatadogIntake) take(raw []json.RawMessage, entries []DatadogEntry) {
	now := d.options.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, e := range entries {
		id := e.CE["id"]
		if len(raw[i]) > datadogEntryBytes {
			d.violations = append(d.violations, fmt.Sprintf("entry %q of %d bytes is cut", id, len(raw[i])))
			e.Message = "" // whatever is left of it
		}
		if age := now.Sub(time.UnixMilli(e.Timestamp)); age > datadogAge || age < -datadogAhead {
			d.violations = append(d.violations, fmt.Sprintf("entry %q, %v old, is dropped", id, age))
			continue
		}
		d.ids[id]++
		if d.options.Keep {
			d.entries = append(d.entries, e)
		}
	}
}

// datadogGate can be shut: then connections break, and new ones do at once.
type datadogGate struct {
	net.Listener

	mu     sync.Mutex // guards what follows
	closed bool
	conns  map[net.Conn]struct{}
}

func (g *datadogGate) shut(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	if closed {
		for c := range g.conns {
			_ = c.Close()
		}
		clear(g.conns)
	}
}

// Accept implements net.Listener.
func (g *datadogGate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.admit(c) {
			return &datadogConn{Conn: c, gate: g}, nil
		}
		_ = c.Close()
	}
}

func (g *datadogGate) admit(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.conns[c] = struct{}{}
	}
	return !g.closed
}

// datadogConn is forgotten when it is closed.
type datadogConn struct {
	net.Conn

	gate *datadogGate
}

// Close implements net.Conn.
func (c *datadogConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
