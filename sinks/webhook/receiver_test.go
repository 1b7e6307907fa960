package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

const (
	token = "Bearer hunter2-token-of-the-receiver"
	key   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	path  = "/hooks/hunter2-part-of-the-address"
)

// receiver verifies and strictly decodes each post. A faulty request fails the test.
type receiver struct {
	t       *testing.T
	secure  bool
	address string

	mu       sync.Mutex // guards the fields below
	server   *httptest.Server
	arrived  []relaytest.Arrival
	refused  map[string]bool
	stalled  bool
	requests []*http.Request
	bodies   [][]byte
	answer   http.HandlerFunc // if set, answers verified requests
}

func newReceiver(t *testing.T, secure bool) *receiver {
	r := &receiver{t: t, secure: secure, address: "127.0.0.1:0", refused: map[string]bool{}}
	r.up()
	t.Cleanup(r.down)
	return r
}

func (r *receiver) up() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var listener net.Listener
	waiting.Until(r.t, func() (ok bool) {
		var err error
		listener, err = net.Listen("tcp", r.address)
		return err == nil
	})
	r.address = listener.Addr().String()
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	_ = r.server.Listener.Close()
	r.server.Listener = listener
	r.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	if !r.secure {
		r.server.Start()
		return
	}
	r.server.EnableHTTP2 = true
	r.server.StartTLS()
}

func (r *receiver) down() {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	server.CloseClientConnections()
	server.Close()
}

func (r *receiver) config(t *testing.T) config.Webhook {
	c := config.Webhook{
		URL: secret.New("http://" + r.address + path), Secret: secret.New(key),
		Headers: map[string]secret.Text{"authorization": secret.New(token)},
	}
	if r.secure {
		file := filepath.Join(t.TempDir(), "ca.pem")
		block := &pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw}
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
		c.URL = secret.New("https://" + r.address + path)
		c.TLS = &config.TLSClient{CAFile: file}
	}
	return c
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender has given up
	}
	arrivals, err := verified(req, body)
	if err != nil {
		r.t.Errorf("a request is not as it should be: %v", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	r.mu.Lock()
	stalled := r.stalled
	r.mu.Unlock()
	if stalled {
		<-req.Context().Done()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests, r.bodies = append(r.requests, req), append(r.bodies, body)
	switch {
	case r.answer != nil:
		r.answer(w, req)
	case slices.ContainsFunc(arrivals, func(a relaytest.Arrival) bool { return r.refused[a.ID] }):
		http.Error(w, `{"error":"an event is not to my taste","token":"`+token+`"}`, http.StatusUnprocessableEntity)
	default:
		r.arrived = append(r.arrived, arrivals...)
		w.WriteHeader(http.StatusAccepted)
	}
}

func verified(req *http.Request, body []byte) ([]relaytest.Arrival, error) {
	if err := Verify(req.Header, body, secret.New(key), time.Minute, time.Now()); err != nil {
		return nil, err
	}
	media, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	switch {
	case err != nil || media != ContentType:
		return nil, fmt.Errorf("media type %q: %w", media, err)
	case req.Method != http.MethodPost || req.URL.Path != path || req.Header.Get("Authorization") != token || req.UserAgent() != "auditrelay":
		return nil, fmt.Errorf("%s %s with %v", req.Method, req.URL, req.Header)
	}
	return decodeBatch(body)
}

// decodeBatch reads the JSON batch format strictly.
func decodeBatch(body []byte) ([]relaytest.Arrival, error) {
	var batch []json.RawMessage
	if err := json.Unmarshal(body, &batch); err != nil {
		return nil, err
	}
	if len(batch) == 0 || !bytes.HasPrefix(body, []byte("[{")) {
		return nil, fmt.Errorf("no events in %q", body)
	}
	arrivals := make([]relaytest.Arrival, len(batch))
	for i, raw := range batch {
		a, err := decodeEvent(raw)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		arrivals[i] = a
	}
	return arrivals, nil
}

func decodeEvent(raw []byte) (a relaytest.Arrival, err error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return a, err
	}
	a.Attributes = map[string]string{}
	for name, value := range members {
		if name == "data" || name == "data_base64" {
			continue
		}
		var text string
		if err := json.Unmarshal(value, &text); err != nil || text == "" || strings.ToLower(name) != name {
			return a, fmt.Errorf("attribute %s: %q, %w", name, text, err)
		}
		a.Attributes[name] = text
	}
	a.ID = a.Attributes["id"]
	for _, required := range []string{"specversion", "id", "source", "type"} {
		if a.Attributes[required] == "" {
			return a, fmt.Errorf("attribute %s is missing", required)
		}
	}
	a.Body, err = decodeData(members, a.Attributes["datacontenttype"])
	return a, err
}

func decodeData(members map[string]json.RawMessage, contentType string) (body []byte, err error) {
	data, plain := members["data"]
	encoded, binary := members["data_base64"]
	var text string
	switch {
	case plain && binary:
		return nil, fmt.Errorf("both data and data_base64")
	case binary:
		if err := json.Unmarshal(encoded, &text); err != nil {
			return nil, err
		}
		return base64.StdEncoding.Strict().DecodeString(text)
	case plain && contentType != "application/json":
		err = json.Unmarshal(data, &text)
		return []byte(text), err
	}
	return data, nil
}

func (r *receiver) got() []relaytest.Arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrived)
}

func (r *receiver) respond(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

func newSink(t *testing.T, cfg config.Webhook) *Sink {
	t.Helper()
	s, err := New(complete(t, cfg), Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"http/1.1": false, "tls and http/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relaytest.Run(t, relaytest.Harness{New: func(t *testing.T) relaytest.Destination {
				r := newReceiver(t, secure)
				return relaytest.Destination{
					Sink: newSink(t, r.config(t)), Arrived: r.got, Down: r.down, Up: r.up,
					Stall:   func() { r.mu.Lock(); r.stalled = true; r.mu.Unlock() },
					Refuse:  func(e *relay.Event) { r.mu.Lock(); r.refused[e.ID] = true; r.mu.Unlock() },
					Secrets: []string{"hunter2", key[len("whsec_"):]},
				}
			}})
		})
	}
}

// complete fills in the defaults of a section, as the configuration does.
func complete(t testing.TB, cfg config.Webhook) config.Webhook {
	t.Helper()
	require.NoError(t, (&config.Sink{Name: "test", Webhook: &cfg}).Complete())
	return cfg
}
