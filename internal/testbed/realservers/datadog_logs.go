package realservers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
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
	body, ok := datadogBodies.Get().(*bytes.Buffer)
	if !ok {
		body = new(bytes.Buffer)
	}
	defer datadogBodies.Put(body)
	if status, err := readDatadogBody(body, r); err != nil {
		refuseDatadog(w, status, err.Error())
		return
	}
	heads, err := datadogHeads(body.Bytes())
	planned, stalled := d.note(r, body.Len(), heads)
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
	case err != nil:
		refuseDatadog(w, http.StatusBadRequest, err.Error())
		return
	case len(heads) > datadogEntries || len(heads) == 0:
		refuseDatadog(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("%d entries are not 1 to 1000", len(heads)))
		return
	case r.Context().Err() != nil: // the client is gone
		return
	}
	if err := d.take(heads); err != nil {
		refuseDatadog(w, http.StatusBadRequest, err.Error())
		return
	}
	if planned == nil {
		planned = &DatadogAnswer{Status: http.StatusAccepted, Body: "{}"}
	}
	answerDatadog(w, *planned)
}

// datadogBodies keeps memory for bodies: a benchmark should not measure the fake.
var datadogBodies sync.Pool // of *bytes.Buffer

func refuseDatadog(w http.ResponseWriter, status int, detail string) {
	body, _ := json.Marshal(map[string]any{"errors": []any{
		map[string]string{"status": fmt.Sprint(status), "title": http.StatusText(status), "detail": detail},
	}})
	answerDatadog(w, DatadogAnswer{Status: status, Body: string(body)})
}

// readDatadogBody reads and unpacks a body, no more of it than is allowed.
func readDatadogBody(body *bytes.Buffer, r *http.Request) (status int, err error) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return http.StatusUnsupportedMediaType, errors.New("the content type is not JSON")
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
		return http.StatusBadRequest, err
	}
	body.Reset()
	switch _, err = body.ReadFrom(io.LimitReader(from, datadogRequestBytes+1)); {
	case err != nil:
		return http.StatusBadRequest, err
	case body.Len() > datadogRequestBytes:
		return http.StatusRequestEntityTooLarge, errors.New("the payload is over 5 MB")
	}
	return http.StatusOK, nil
}

// decodeDatadog reads a kept entry. Its JSON reader shares nothing with the sink's.
func decodeDatadog(text []byte) (e DatadogEntry, err error) {
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return e, decoder.Decode(&e.All)
}

// note remembers a request, and decides on its answer.
func (d *DatadogIntake) note(r *http.Request, size int, heads []datadogHead) (*DatadogAnswer, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	number := len(d.requests)
	d.requests = append(d.requests, DatadogRequest{
		Entries: len(heads), Bytes: size, Host: r.Host, Encoding: r.Header.Get("Content-Encoding"),
		UserAgent: r.UserAgent(), ContentType: r.Header.Get("Content-Type"),
	})
	if d.respond == nil {
		return nil, d.stalled
	}
	ids := make([]string, len(heads))
	for i, h := range heads {
		ids[i] = h.id
	}
	return d.respond(number, ids), d.stalled
}

// take keeps the entries, except for those dropped by the real intake.
func (d *DatadogIntake) take(heads []datadogHead) error {
	var entries []DatadogEntry
	for i, h := range heads {
		if !d.options.Keep {
			break
		}
		e, err := decodeDatadog(h.text)
		if err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		entries = append(entries, e)
	}
	now := d.options.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, h := range heads {
		if len(h.text) > datadogEntryBytes {
			d.violations = append(d.violations, fmt.Sprintf("entry %q of %d bytes is cut", h.id, len(h.text)))
		}
		if age := now.Sub(time.UnixMilli(h.timestamp)); age > datadogAge || age < -datadogAhead {
			d.violations = append(d.violations, fmt.Sprintf("entry %q, %v old, is dropped", h.id, age))
			continue
		}
		d.ids[h.id]++
		if d.options.Keep {
			if len(h.text) > datadogEntryBytes {
				entries[i].Message = "" // whatever is left of it
			}
			d.entries = append(d.entries, entries[i])
		}
	}
	return nil
}
