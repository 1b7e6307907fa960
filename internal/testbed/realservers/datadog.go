package realservers

import (
	"cmp"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

// DatadogOptions configure an intake. The zero value takes any key and keeps no entries.
type DatadogOptions struct {
	// APIKey is the only accepted key. Empty: any is.
	APIKey string
	// Now tells how old an entry is. Default time.Now.
	Now func() time.Time
	// Keep keeps the entries themselves, not only how often each id came.
	Keep bool
	// TLS serves https, with Certificate's certificate.
	TLS bool
}

// DatadogIntake is a fake of Datadog's logs intake, on loopback. It has the limits of the
// real one (5 MB and 1000 entries a request), and answers 202. Like the real one, it cuts
// entries of more than 1 MB in silence, and drops those too old or too far ahead. It
// remembers each as a violation. It is safe for concurrent use.
type DatadogIntake struct {
	// URL is its address, without a path.
	URL string

	options DatadogOptions
	server  *httptest.Server
	gate    *datadogGate
	closed  chan struct{}

	mu         sync.Mutex // guards the fields below
	respond    func(n int, ids []string) *DatadogAnswer
	stalled    bool
	ids        map[string]int
	entries    []DatadogEntry
	requests   []DatadogRequest
	validated  int
	violations []string
}

// DatadogAnswer is an answer in place of the intake's own.
type DatadogAnswer struct {
	Status int
	Header map[string]string
	Body   string
	// Taken keeps the entries in spite of the answer.
	Taken bool
}

// DatadogRequest is one POST of logs, taken or not.
type DatadogRequest struct {
	Entries int
	Bytes   int // of the body, after decompression
	Host, Encoding, UserAgent,
	ContentType string
}

// StartDatadogIntake starts an intake on a free port of loopback.
func StartDatadogIntake(o DatadogOptions) (*DatadogIntake, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with Close
	if err != nil {
		return nil, err
	}
	d := &DatadogIntake{
		options: o, gate: &datadogGate{Listener: listener, conns: map[net.Conn]struct{}{}},
		closed: make(chan struct{}), ids: map[string]int{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v2/logs", d.logs)
	mux.HandleFunc("GET /api/v1/validate", d.validate)
	d.server = &httptest.Server{Listener: d.gate, Config: &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // of clients breaking off, or without trust in it
	}}
	if o.TLS {
		d.server.StartTLS()
	} else {
		d.server.Start()
	}
	d.URL = d.server.URL
	return d, nil
}

// IDs returns how often each CloudEvents id was taken.
func (d *DatadogIntake) IDs() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	ids := make(map[string]int, len(d.ids))
	for id, n := range d.ids {
		ids[id] = n
	}
	return ids
}

// Entries returns the accepted entries, in their order, if the options say Keep.
func (d *DatadogIntake) Entries() []DatadogEntry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.entries)
}

// Requests returns every POST of logs whose body could be read.
func (d *DatadogIntake) Requests() []DatadogRequest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.requests)
}

// Validated returns how often a key was asked about.
func (d *DatadogIntake) Validated() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.validated
}

// Violations returns those of a client's entries that the real intake would have answered with
// 202 and lost, in part or as a whole.
func (d *DatadogIntake) Violations() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.violations)
}

// Respond lets f choose the answer to request number n, from 0; nil leaves the usual one.
// ids are those of its entries.
func (d *DatadogIntake) Respond(f func(n int, ids []string) *DatadogAnswer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.respond = f
}

// Stall lets the intake read requests and never answer.
func (d *DatadogIntake) Stall() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled = true
}

// Down breaks the connections, and lets no new ones come about until Up.
func (d *DatadogIntake) Down() { d.gate.shut(true) }

// Up ends a Down.
func (d *DatadogIntake) Up() { d.gate.shut(false) }

// Certificate is the certificate of an intake with TLS, in PEM. It is for example.com and
// 127.0.0.1.
func (d *DatadogIntake) Certificate() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.server.Certificate().Raw})
}

// Addr is where it listens.
func (d *DatadogIntake) Addr() string { return d.gate.Addr().String() }

// Close ends it. Stalled requests get no answer.
func (d *DatadogIntake) Close() {
	close(d.closed)
	d.gate.shut(true)
	d.server.Close()
}

// validate is the API's question whether a key is valid.
func (d *DatadogIntake) validate(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.validated++
	d.mu.Unlock()
	if status := d.keyStatus(r); status != http.StatusOK {
		answerDatadog(w, DatadogAnswer{Status: http.StatusForbidden, Body: `{"errors":["Forbidden"]}`})
		return
	}
	answerDatadog(w, DatadogAnswer{Status: http.StatusOK, Body: `{"valid":true}`})
}

func (d *DatadogIntake) keyStatus(r *http.Request) int {
	switch key := r.Header.Get("DD-API-KEY"); {
	case key == "":
		return http.StatusUnauthorized
	case key != cmp.Or(d.options.APIKey, key):
		return http.StatusForbidden
	}
	return http.StatusOK
}

func answerDatadog(w http.ResponseWriter, a DatadogAnswer) {
	w.Header().Set("Content-Type", "application/json")
	for name, value := range a.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write([]byte(a.Body))
}
